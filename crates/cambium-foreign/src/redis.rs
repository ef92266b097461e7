//! A client of Redis' protocol (RESP2), for servers that are imported from and measured.
//!
//! ```text
//!  push ─▶ output buffer ─flush─▶ server ─▶ receive     one Answer a command, in order
//!  call = push + flush + receive
//! ```
//!
//! A request is a list of strings, `*2 CRLF $3 CRLF GET CRLF $3 CRLF oak CRLF`. An answer begins
//! with one byte that says what it is: `+` text, `-` an error, `:` a number, `$` bytes with their
//! length before them, `*` a list with its length. Several requests may be pushed before the
//! first answer is read (pipelining).
//!
//! An answer takes no memory before its bytes arrive, and no answer is larger than the limit
//! that [`Connection::connect`] was given. An answer that breaks the protocol is an error; the
//! connection cannot be used after it.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub use cambium_base::Address;

/// Lists within lists that are read.
const MOST_NESTED: u32 = 4;
/// The longest line: a text, an error, or a length.
const MOST_LINE_BYTES: u64 = 1 << 16;
/// How long a server may take to accept a connection.
const CONNECTING: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection failed, or the server broke the protocol.
    #[error("{0}, while an answer was awaited")]
    Lost(#[from] io::Error),
    /// The server answered an error: its own words.
    #[error("{0}")]
    Refused(String),
}

/// The result of calls.
pub type Result<T> = std::result::Result<T, Error>;

/// An answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A text or a number.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Nothing: the key is not there.
    None,
    /// Several answers.
    List(Vec<Answer>),
    /// An error of the server; within a list, that of one command of a transaction.
    Error(String),
}

impl Answer {
    /// The bytes of a text or of bytes; none of anything else.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Answer::Text(text) => text.into_bytes(),
            Answer::Bytes(bytes) => bytes,
            Answer::None | Answer::List(_) | Answer::Error(_) => Vec::new(),
        }
    }

    /// The same as text.
    pub fn into_text(self) -> String {
        String::from_utf8_lossy(&self.into_bytes()).into_owned()
    }

    /// The answer, unless it is an error.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's words.
    pub fn accepted(self) -> Result<Answer> {
        match self {
            Answer::Error(words) => Err(Error::Refused(words)),
            answer => Ok(answer),
        }
    }
}

/// A socket of either kind.
trait Socket: Read + Write + Send {}
impl<S: Read + Write + Send> Socket for S {}

/// A connection to a server.
pub struct Connection {
    socket: BufReader<Box<dyn Socket>>,
    /// Requests that are not sent.
    output: Vec<u8>,
    /// Kept between answers.
    line: Vec<u8>,
    most_bytes: u64,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects. An answer of more than `most_bytes`, or one that does not come within
    /// `patience`, is an error.
    ///
    /// # Errors
    /// No server accepts connections there.
    pub fn connect(address: &Address, most_bytes: u64, patience: Duration) -> io::Result<Self> {
        let socket: Box<dyn Socket> = match address {
            Address::Tcp(address) => {
                let stream = connect_tcp(address, CONNECTING)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                Box::new(stream)
            }
        };
        Ok(Connection::on(socket, most_bytes))
    }

    /// A connection over a stream. One thread may write to a clone of a stream, and another
    /// read from it.
    pub fn over(stream: impl Read + Write + Send + 'static, most_bytes: u64) -> Self {
        Connection::on(Box::new(stream), most_bytes)
    }

    fn on(socket: Box<dyn Socket>, most_bytes: u64) -> Self {
        Connection {
            socket: BufReader::new(socket),
            output: Vec::new(),
            line: Vec::new(),
            most_bytes,
        }
    }

    /// Sends a request, and reads its answer. All earlier answers must have been read.
    ///
    /// # Errors
    /// The connection is lost, or the server answered an error.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Answer> {
        self.push(words);
        self.flush()?;
        self.receive()?.accepted()
    }

    /// Adds a request to those that [`Connection::flush`] sends.
    pub fn push(&mut self, words: &[&[u8]]) {
        // Writing to memory does not fail.
        _ = write!(self.output, "*{}\r\n", words.len());
        for word in words {
            _ = write!(self.output, "${}\r\n", word.len());
            self.output.extend_from_slice(word);
            self.output.extend_from_slice(b"\r\n");
        }
    }

    /// Sends what was pushed.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn flush(&mut self) -> Result<()> {
        self.socket.get_mut().write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }

    /// True if a part of the next answer has come already.
    pub fn has_begun(&self) -> bool {
        !self.socket.buffer().is_empty()
    }

    /// Reads the next answer; an error of the server is one.
    ///
    /// # Errors
    /// The connection is lost, or the server broke the protocol.
    pub fn receive(&mut self) -> Result<Answer> {
        Ok(read_answer(
            &mut self.socket,
            &mut self.line,
            self.most_bytes,
            MOST_NESTED,
        )?)
    }
}

/// Connects to `HOST:PORT` within a time for each of its addresses.
///
/// # Errors
/// No server accepts connections there.
pub fn connect_tcp(address: &str, patience: Duration) -> io::Result<TcpStream> {
    let mut outcome = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in address.to_socket_addrs()? {
        outcome = TcpStream::connect_timeout(&address, patience);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn read_answer(
    from: &mut impl BufRead,
    line: &mut Vec<u8>,
    most_bytes: u64,
    deeper: u32,
) -> io::Result<Answer> {
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_string());
    line.clear();
    from.by_ref()
        .take(MOST_LINE_BYTES)
        .read_until(b'\n', line)?;
    let Some((kind, text)) = line.strip_suffix(b"\r\n").and_then(<[u8]>::split_first) else {
        return Err(broken(
            "the connection ended, or the answer is none of Redis'",
        ));
    };
    let text = String::from_utf8_lossy(text);
    let count = || text.parse::<i64>().ok();
    match kind {
        b'+' | b':' => Ok(Answer::Text(text.into_owned())),
        b'-' => Ok(Answer::Error(text.into_owned())),
        b'$' | b'*' if text == "-1" => Ok(Answer::None),
        b'$' => {
            let count = count().and_then(|count| u64::try_from(count).ok());
            let count = count.filter(|&count| count <= most_bytes);
            let count = count.ok_or_else(|| broken("an answer longer than any value"))?;
            read_bytes(from, count).map(Answer::Bytes)
        }
        b'*' if deeper > 0 => {
            let count = count().ok_or_else(|| broken("a list without its length"))?;
            let answers = (0..count).map(|_| read_answer(from, line, most_bytes, deeper - 1));
            answers.collect::<io::Result<_>>().map(Answer::List)
        }
        _ => Err(broken("the answer is none of Redis'")),
    }
}

/// So many bytes, and the end of a line behind them.
fn read_bytes(from: &mut impl BufRead, count: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.by_ref().take(count + 2).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != count + 2 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(count as usize);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn read(text: &str) -> io::Result<Answer> {
        read_answer(&mut text.as_bytes(), &mut Vec::new(), 1_000, MOST_NESTED)
    }

    #[test]
    fn answers_are_read_and_broken_ones_are_errors() {
        let text = |text: &str| read(text).unwrap().into_text();
        assert_eq!(text("+OK\r\n"), "OK");
        assert_eq!(text("$4\r\na\r\nb\r\n"), "a\r\nb");
        assert_eq!(read("$-1\r\n").unwrap(), Answer::None);
        let Answer::List(list) = read("*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n").unwrap() else {
            panic!("not a list");
        };
        assert_eq!(list.len(), 2);
        assert_eq!(read("-ERR no\r\n").unwrap(), Answer::Error("ERR no".into()));
        for broken in [
            "",
            "\r\n",
            "HTTP/1.1 400\r\n",
            "$5\r\nab",
            "$1001\r\n",
            "$99999999999\r\n",
            "$x\r\n",
            "*x\r\n",
            "+OK",
            &"*1\r\n".repeat(100_000),
        ] {
            assert!(read(broken).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn an_error_within_a_list_does_not_end_it() {
        let transaction = "*3\r\n+OK\r\n-ERR second\r\n:3\r\n+PONG\r\n";
        let (mut bytes, mut line) = (transaction.as_bytes(), Vec::new());
        let mut next = || read_answer(&mut bytes, &mut line, 1_000, MOST_NESTED).unwrap();
        let Answer::List(list) = next() else {
            panic!("not a list");
        };
        assert_eq!(list[1], Answer::Error("ERR second".into()));
        assert_eq!(list[2], Answer::Text("3".into()));
        assert_eq!(next(), Answer::Text("PONG".into()));
    }

    #[test]
    fn pushed_requests_are_sent_together_and_answered_in_order() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap().to_string());
        let expected = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n";
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; expected.len()];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(b"+PONG\r\n-NOAUTH no\r\n").unwrap();
            request
        });
        let patience = Duration::from_secs(20);
        let mut connection = Connection::connect(&address, 1_000, patience).unwrap();
        connection.push(&[b"PING"]);
        connection.push(&[b"GET", b"\r\n"]);
        connection.flush().unwrap();
        assert_eq!(connection.receive().unwrap(), Answer::Text("PONG".into()));
        let refused = connection.receive().unwrap().accepted();
        assert!(matches!(refused, Err(Error::Refused(words)) if words == "NOAUTH no"));
        assert_eq!(server.join().unwrap(), expected);
        let lost = connection.call(&[b"PING"]);
        assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
    }
}
