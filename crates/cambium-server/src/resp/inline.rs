//! Inline commands: a line of words, some of them quoted, as a person types them.

use super::Span;

/// Splits a line that lies at `from..to` of the buffer into words. Quoted words are
/// unescaped in place: no escape is shorter than the byte that it stands for. `None` where
/// quotes are not balanced.
pub fn split(buffer: &mut [u8], from: usize, to: usize, words: &mut Vec<Span>) -> Option<()> {
    let mut at = from;
    loop {
        while at < to && is_blank(buffer[at]) {
            at += 1;
        }
        if at == to {
            return Some(());
        }
        let start = at;
        let end = word(buffer, &mut at, to)?;
        words.push((start as u32, end as u32));
    }
}

/// Unescapes the word that begins at `at`, and moves `at` behind it. Answers the end of the
/// word in the buffer.
fn word(buffer: &mut [u8], at: &mut usize, to: usize) -> Option<usize> {
    let mut end = *at;
    let mut push = |buffer: &mut [u8], byte: u8| {
        buffer[end] = byte;
        end += 1;
    };
    while *at < to && !is_blank(buffer[*at]) {
        match buffer[*at] {
            quote @ (b'"' | b'\'') => {
                *at += 1;
                loop {
                    if *at >= to {
                        return None;
                    }
                    let byte = buffer[*at];
                    if byte == quote {
                        *at += 1;
                        break;
                    }
                    let (byte, length) = match quote {
                        b'"' => escaped(&buffer[*at..to]),
                        _ if buffer[*at..to].starts_with(b"\\'") => (b'\'', 2),
                        _ => (byte, 1),
                    };
                    *at += length;
                    push(buffer, byte);
                }
                // A closing quote ends the word.
                if *at < to && !is_blank(buffer[*at]) {
                    return None;
                }
            }
            byte => {
                *at += 1;
                push(buffer, byte);
            }
        }
    }
    Some(end)
}

/// The byte at the front of the rest of a word in double quotes, and how long it is there.
fn escaped(rest: &[u8]) -> (u8, usize) {
    match rest {
        [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            (digit(*high) << 4 | digit(*low), 4)
        }
        [b'\\', byte, ..] => {
            let byte = match byte {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'b' => 8,
                b'a' => 7,
                other => *other,
            };
            (byte, 2)
        }
        [byte, ..] => (*byte, 1),
        [] => (0, 0),
    }
}

fn digit(letter: u8) -> u8 {
    match letter {
        b'0'..=b'9' => letter - b'0',
        b'a'..=b'f' => letter - b'a' + 10,
        _ => letter.wrapping_sub(b'A') + 10,
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<Vec<u8>>> {
        let mut buffer = line.as_bytes().to_vec();
        let mut spans = Vec::new();
        let to = buffer.len();
        split(&mut buffer, 0, to, &mut spans)?;
        let word = |&(from, to): &Span| buffer[from as usize..to as usize].to_vec();
        Some(spans.iter().map(word).collect())
    }

    #[test]
    fn words_are_split_and_unescaped() {
        let expected: Vec<Vec<u8>> = vec![
            b"SET".into(),
            b"a b".into(),
            vec![0, b'\n', b'"'],
            b"it's".into(),
            b"".into(),
        ];
        assert_eq!(
            words(r#"  SET "a b" "\x00\n\"" 'it\'s' """#),
            Some(expected)
        );
        assert_eq!(words("   "), Some(vec![]));
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in [r#"a "b"#, "a 'b", r#""a"b"#, r#"a "b\"#] {
            assert_eq!(words(line), None, "{line}");
        }
    }
}
