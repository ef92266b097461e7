//! A client that shows answers as text, as they came.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::harness::PATIENCE;

/// One connection.
pub struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

/// A command in the protocol.
pub fn encoded(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Client {
    /// Connects; an answer that does not come fails the test.
    pub fn connect(address: &str) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        Client::over(stream, PATIENCE).unwrap()
    }

    /// Connects to a server that may be gone, or silent: an answer that does not come in time
    /// is none.
    pub fn try_connect(address: &str, patience: Duration) -> Option<Client> {
        let address = address.parse().unwrap();
        let stream = TcpStream::connect_timeout(&address, patience).ok()?;
        Client::over(stream, patience).ok()
    }

    fn over(stream: TcpStream, patience: Duration) -> std::io::Result<Client> {
        stream.set_read_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Client { stream, reader })
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends bytes, if the server still takes them.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends nothing more.
    pub fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Sends a command of words, and reads its answer.
    pub fn call(&mut self, command: &str) -> String {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        self.call_bytes(&words)
    }

    /// Sends a command, and reads its answer.
    pub fn call_bytes(&mut self, arguments: &[&[u8]]) -> String {
        self.send(&encoded(arguments));
        self.answer()
    }

    /// Calls commands in turn, and compares their answers. The time that a key has left may be
    /// less by what the test has taken.
    pub fn script(&mut self, lines: &[(&str, &str)]) {
        let number = |answer: &str| answer.strip_prefix(':')?.parse::<i64>().ok();
        for (command, expected) in lines {
            let answer = self.call(command);
            match (
                command.strip_prefix("TTL "),
                number(&answer),
                number(expected),
            ) {
                (Some(_), Some(left), Some(most)) if most > 0 => {
                    assert!((most - 60..=most).contains(&left), "{command}: {left}");
                }
                _ => assert_eq!(answer, *expected, "{command}"),
            }
        }
    }

    /// One answer as text: `+OK`, `:1`, `-ERR …`, `oak`, `nil`, `[a b]`, `%[k v]`.
    pub fn answer(&mut self) -> String {
        self.try_answer().expect("an answer")
    }

    /// One answer; `None` if the connection has ended.
    pub fn try_answer(&mut self) -> Option<String> {
        let mut line = Vec::new();
        self.reader
            .read_until(b'\n', &mut line)
            .ok()
            .filter(|count| *count > 0)?;
        let line = String::from_utf8_lossy(&line).trim_end().to_string();
        let count = || line[1..].parse::<i64>().unwrap();
        Some(match line.as_bytes()[0] {
            b'$' if count() < 0 => "nil".to_string(),
            b'*' if count() < 0 => "nil-array".to_string(),
            b'_' => "null".to_string(),
            b'$' | b'=' => {
                let mut bytes = vec![0; count() as usize + 2];
                self.reader.read_exact(&mut bytes).ok()?;
                bytes.truncate(bytes.len() - 2);
                String::from_utf8_lossy(&bytes).into_owned()
            }
            b'*' => self.list("", count())?,
            b'%' => self.list("%", count() * 2)?,
            b'~' => self.list("~", count())?,
            b'>' => self.list(">", count())?,
            _ => line,
        })
    }

    fn list(&mut self, mark: &str, count: i64) -> Option<String> {
        let parts: Option<Vec<String>> = (0..count).map(|_| self.try_answer()).collect();
        Some(format!("{mark}[{}]", parts?.join(" ")))
    }

    /// True if the server has closed the connection, and nothing is left to be read.
    pub fn is_closed(&mut self) -> bool {
        self.try_answer().is_none()
    }
}
