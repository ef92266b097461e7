//! Requests, parsed where they lie in the read buffer.
//!
//! ```text
//! *3\r\n  $3\r\nSET\r\n  $3\r\noak\r\n  $7\r\nQuercus\r\n     an array of bulk strings
//! SET oak Quercus\r\n                                       or a line of words
//! ```
//!
//! The parser keeps its place between reads, so a request that arrives byte by byte is
//! parsed once. A length costs no memory before the bytes themselves have arrived.

use super::numbers::parse_integer;
use super::{Arguments, Span, inline};

/// Longest line: an inline command, or the header of an array or a bulk string.
const MOST_LINE_BYTES: usize = 64 << 10;
/// Arguments of a command before the client has authenticated itself.
const MOST_STRANGE_ARGUMENTS: i64 = 10;
/// Bytes of an argument before the client has authenticated itself.
pub const MOST_STRANGE_BYTES: usize = 16 << 10;

/// What a request may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest argument.
    pub argument_bytes: usize,
    /// The client has yet to authenticate itself.
    pub is_stranger: bool,
}

/// Whole commands of one buffer, in order.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    spans: Vec<Span>,
    /// For each command, the place behind its last argument in `spans`.
    ends: Vec<u32>,
}

impl Commands {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The arguments of one command.
    pub fn arguments<'a>(&'a self, buffer: &'a [u8], place: usize) -> Option<Arguments<'a>> {
        let to = *self.ends.get(place)? as usize;
        let from = place.checked_sub(1).map_or(0, |before| self.ends[before]) as usize;
        Some(Arguments::new(buffer, &self.spans[from..to]))
    }
}

/// A request that breaks the protocol; the connection ends after the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// Parses the requests of one connection.
#[derive(Debug, Default)]
pub struct Parser {
    /// Where the command under way begins.
    start: usize,
    /// The next byte to look at.
    at: usize,
    /// Up to here there is no end of the line under way.
    searched: usize,
    /// Arguments that are missing; `None` between commands.
    missing: Option<usize>,
    /// Length of the argument under way.
    length: Option<usize>,
    /// Arguments of the command under way.
    spans: Vec<Span>,
}

impl Parser {
    /// Parses whole commands, at most `most`, from where the last call stopped.
    ///
    /// # Errors
    /// A violation; the commands before it are in `commands`.
    pub fn parse(
        &mut self,
        buffer: &mut [u8],
        limits: Limits,
        most: usize,
        commands: &mut Commands,
    ) -> Result<(), Violation> {
        while commands.len() < most && self.command(buffer, limits)? {
            if !self.spans.is_empty() {
                commands.spans.append(&mut self.spans);
                commands.ends.push(commands.spans.len() as u32);
            }
            self.missing = None;
            self.start = self.at;
        }
        Ok(())
    }

    /// Bytes at the front of the buffer that belong to whole commands.
    pub fn consumed(&self) -> usize {
        self.start
    }

    /// The consumed bytes have left the buffer.
    pub fn shift(&mut self) {
        let by = std::mem::take(&mut self.start);
        self.at -= by;
        self.searched = self.searched.saturating_sub(by);
        for (from, to) in &mut self.spans {
            *from -= by as u32;
            *to -= by as u32;
        }
    }

    /// Parses one command; false if it is not whole yet.
    fn command(&mut self, buffer: &mut [u8], limits: Limits) -> Result<bool, Violation> {
        if self.missing.is_none() {
            match buffer.get(self.at) {
                None => return Ok(false),
                Some(b'*') => {
                    let Some(count) = self.header(buffer, "too big mbulk count string")? else {
                        return Ok(false);
                    };
                    self.missing = Some(count_of(count, limits)?);
                }
                Some(_) => return self.inline(buffer, limits),
            }
        }
        while self.missing > Some(0) {
            if !self.argument(buffer, limits)? {
                return Ok(false);
            }
            self.missing = self.missing.map(|missing| missing - 1);
        }
        Ok(true)
    }

    fn argument(&mut self, buffer: &[u8], limits: Limits) -> Result<bool, Violation> {
        let length = match self.length {
            Some(length) => length,
            None => {
                match buffer.get(self.at) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(other) => {
                        let other = char::from(*other);
                        return Err(Violation(format!("expected '$', got '{other}'")));
                    }
                }
                let Some(length) = self.header(buffer, "too big bulk count string")? else {
                    return Ok(false);
                };
                *self.length.insert(length_of(length, limits)?)
            }
        };
        let end = self.at + length;
        if buffer.len() < end + 2 {
            return Ok(false);
        }
        self.spans.push((self.at as u32, end as u32));
        self.at = end + 2;
        self.length = None;
        Ok(true)
    }

    /// The number behind the mark at `self.at`, as text; `None` if its line is not whole.
    fn header<'a>(
        &mut self,
        buffer: &'a [u8],
        too_long: &str,
    ) -> Result<Option<&'a [u8]>, Violation> {
        let Some(end) = self.line_end(buffer, b'\r') else {
            return match buffer.len() - self.at > MOST_LINE_BYTES {
                true => Err(Violation(too_long.to_string())),
                false => Ok(None),
            };
        };
        // The line feed behind it belongs to the header as well.
        if end + 1 >= buffer.len() {
            return Ok(None);
        }
        let number = &buffer[self.at + 1..end];
        self.at = end + 2;
        self.searched = self.at;
        Ok(Some(number))
    }

    fn inline(&mut self, buffer: &mut [u8], limits: Limits) -> Result<bool, Violation> {
        let Some(newline) = self.line_end(buffer, b'\n') else {
            return match buffer.len() - self.at > MOST_LINE_BYTES {
                true => Err(Violation("too big inline request".to_string())),
                false => Ok(false),
            };
        };
        if newline - self.at > MOST_LINE_BYTES {
            return Err(Violation("too big inline request".to_string()));
        }
        let end = match newline.checked_sub(1) {
            Some(before) if before >= self.at && buffer[before] == b'\r' => before,
            _ => newline,
        };
        if inline::split(buffer, self.at, end, &mut self.spans).is_none() {
            return Err(Violation("unbalanced quotes in request".to_string()));
        }
        if limits.is_stranger && self.spans.len() as i64 > MOST_STRANGE_ARGUMENTS {
            return Err(Violation("unauthenticated multibulk length".to_string()));
        }
        self.at = newline + 1;
        self.searched = self.at;
        Ok(true)
    }

    /// The first `end` at or behind `self.at`. The next search goes on where this one ended.
    fn line_end(&mut self, buffer: &[u8], end: u8) -> Option<usize> {
        let from = self.searched.max(self.at);
        let found = buffer[from..].iter().position(|byte| *byte == end);
        if found.is_none() {
            self.searched = buffer.len();
        }
        found.map(|offset| from + offset)
    }
}

fn count_of(text: &[u8], limits: Limits) -> Result<usize, Violation> {
    match parse_integer(text) {
        Some(count) if count > i64::from(i32::MAX) => {}
        Some(count) if limits.is_stranger && count > MOST_STRANGE_ARGUMENTS => {
            return Err(Violation("unauthenticated multibulk length".to_string()));
        }
        Some(count) => return Ok(usize::try_from(count).unwrap_or(0)),
        None => {}
    }
    Err(Violation("invalid multibulk length".to_string()))
}

fn length_of(text: &[u8], limits: Limits) -> Result<usize, Violation> {
    match parse_integer(text) {
        Some(length) if length < 0 || length as u64 > limits.argument_bytes as u64 => {}
        Some(length) if limits.is_stranger && length > MOST_STRANGE_BYTES as i64 => {
            return Err(Violation("unauthenticated bulk length".to_string()));
        }
        Some(length) => return Ok(length as usize),
        None => {}
    }
    Err(Violation("invalid bulk length".to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on has failed
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        argument_bytes: 1 << 20,
        is_stranger: false,
    };

    type Parsed = Vec<Vec<Vec<u8>>>;

    fn all(commands: &Commands, buffer: &[u8]) -> Parsed {
        let command = |place| commands.arguments(buffer, place).unwrap();
        (0..commands.len())
            .map(|place| command(place).from(0).map(<[u8]>::to_vec).collect())
            .collect()
    }

    /// Parses with reads of `step` bytes, and gives whole commands away after each.
    fn in_steps(bytes: &[u8], step: usize, limits: Limits) -> (Parsed, Result<(), Violation>) {
        let (mut parser, mut buffer, mut found) = (Parser::default(), Vec::new(), Vec::new());
        for piece in bytes.chunks(step) {
            buffer.extend_from_slice(piece);
            let mut commands = Commands::default();
            let outcome = parser.parse(&mut buffer, limits, usize::MAX, &mut commands);
            found.extend(all(&commands, &buffer));
            if outcome.is_err() {
                return (found, outcome);
            }
            buffer.drain(..parser.consumed());
            parser.shift();
        }
        (found, Ok(()))
    }

    #[test]
    fn pieces_of_any_size_give_the_same_commands() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\nPING \"a b\"\r\n*0\r\n\r\n*-1\r\n*1\r\n$4\r\nQUIT\r\n\n";
        let (whole, _) = in_steps(bytes, bytes.len(), LIMITS);
        let expected: Parsed = vec![
            vec![b"GET".to_vec(), b"\r\n".to_vec()],
            vec![b"PING".to_vec(), b"a b".to_vec()],
            vec![b"QUIT".to_vec()],
        ];
        assert_eq!(whole, expected);
        for step in 1..bytes.len() {
            assert_eq!(
                in_steps(bytes, step, LIMITS),
                (whole.clone(), Ok(())),
                "{step}"
            );
        }
    }

    #[test]
    fn violations_are_named_as_redis_names_them() {
        let long = format!("*{}", "1".repeat(70_000));
        let line = format!("GET {}", "a".repeat(70_000));
        for (bytes, expected) in [
            ("*9223372036854775808\r\n", "invalid multibulk length"),
            ("*3000000000\r\n", "invalid multibulk length"),
            ("*x\r\n", "invalid multibulk length"),
            ("*1\r\nGET\r\n", "expected '$', got 'G'"),
            ("*1\r\n$9223372036854775807\r\n", "invalid bulk length"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("*1\r\n$1048577\r\n", "invalid bulk length"),
            (&long, "too big mbulk count string"),
            (&line, "too big inline request"),
            ("GET \"a\r\n", "unbalanced quotes in request"),
        ] {
            let (_, outcome) = in_steps(bytes.as_bytes(), bytes.len(), LIMITS);
            assert_eq!(outcome, Err(Violation(expected.to_string())), "{bytes:.40}");
        }
    }

    #[test]
    fn strangers_have_little_room() {
        let stranger = Limits {
            is_stranger: true,
            ..LIMITS
        };
        for (bytes, expected) in [
            ("*11\r\n", "unauthenticated multibulk length"),
            ("*1\r\n$16385\r\n", "unauthenticated bulk length"),
            (
                "a b c d e f g h i j k\r\n",
                "unauthenticated multibulk length",
            ),
        ] {
            let (_, outcome) = in_steps(bytes.as_bytes(), bytes.len(), stranger);
            assert_eq!(outcome, Err(Violation(expected.to_string())));
            assert_eq!(in_steps(bytes.as_bytes(), bytes.len(), LIMITS).1, Ok(()));
        }
    }

    #[test]
    fn a_violation_comes_after_the_commands_before_it() {
        let (found, outcome) = in_steps(b"PING\r\n*x\r\n", 100, LIMITS);
        assert_eq!(found, vec![vec![b"PING".to_vec()]]);
        assert!(outcome.is_err());
    }

    /// Requests as clients send them, some of them broken at a byte.
    fn requests() -> impl Strategy<Value = Vec<u8>> {
        let argument = proptest::collection::vec(any::<u8>(), 0..20);
        let command = proptest::collection::vec(argument, 1..5).prop_map(|arguments| {
            let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
            for argument in arguments {
                bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
                bytes.extend(argument);
                bytes.extend(b"\r\n");
            }
            bytes
        });
        let inline = "[ -~]{0,20}(\r\n|\n)".prop_map(String::into_bytes);
        let other = proptest::collection::vec(any::<u8>(), 0..10);
        let request = prop_oneof![6 => command, 2 => inline, 1 => other];
        let broken = proptest::option::of((any::<prop::sample::Index>(), any::<u8>()));
        (proptest::collection::vec(request, 0..6), broken).prop_map(|(requests, broken)| {
            let mut bytes = requests.concat();
            if let (Some((place, byte)), false) = (broken, bytes.is_empty()) {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_bytes_in_pieces_parse_as_they_do_in_one(
            bytes in requests(),
            step in 1..40_usize,
            is_stranger in any::<bool>(),
        ) {
            let limits = Limits { is_stranger, ..LIMITS };
            let whole = in_steps(&bytes, bytes.len().max(1), limits);
            prop_assert_eq!(in_steps(&bytes, step, limits), whole);
        }
    }
}
