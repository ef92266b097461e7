//! A client that shows answers as text, as they came.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

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
    /// Connects; an answer that does not come in 20 seconds fails the test.
    pub fn connect(address: &str) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        Client::over(stream, Duration::from_secs(20)).unwrap()
    }

    /// Connects to a server that may be gone, or silent: an answer that does not come in two
    /// seconds is none.
    pub fn try_connect(address: &str) -> Option<Client> {
        let address = address.parse().unwrap();
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
        Client::over(stream, Duration::from_secs(2)).ok()
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

    /// Calls commands in turn, and compares their answers.
    pub fn script(&mut self, lines: &[(&str, &str)]) {
        for (command, expected) in lines {
            assert_eq!(self.call(command), *expected, "{command}");
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
