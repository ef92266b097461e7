//! A Redis server as a source of entries: its keys that hold strings, of one of its
//! databases, by `SCAN`, `TYPE`, `PTTL` and `GET`.
//!
//! An entry expires when the server's key does, by this machine's clock. Keys of other types
//! are counted and left out. A `SCAN` that runs while others write gives what is there from its
//! beginning to its end; what comes or goes meanwhile may be missing. Its place is
//! the server's cursor, which means something to that run of the server alone.
//! Memory holds the keys of a page, and one value.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, SystemTime};

use cambium::hexdump::readable;
use cambium::{KeyKind, UnixMillis, limits};

use crate::failure::Failure;
use crate::import::foreign::item;
use crate::import::position::Position;
use crate::import::source::{Item, Source, elsewhere};
use crate::progress::Meter;

/// Keys asked for at once.
const PAGE_KEYS: &str = "500";
/// The longest answer that is read: the largest value and some.
const MOST_BYTES: u64 = limits::MAX_VALUE_BYTES as u64 + 1024;
/// Lists within lists that are read: the commands here answer two.
const MOST_NESTED: u32 = 4;
const CONNECTING: Duration = Duration::from_secs(10);
const ANSWERING: Duration = Duration::from_secs(60);
/// The password, where the server wants one, as `redis-cli` takes it.
const PASSWORD: &str = "REDISCLI_AUTH";

/// A server's strings.
pub struct RedisSource {
    name: String,
    connection: BufReader<TcpStream>,
    keys: KeyKind,
    /// This run of the server.
    run: String,
    /// The cursor of the page that is read, and of the one behind it: `0` at both ends.
    page: Option<String>,
    next: String,
    /// Keys of the page whose values were asked for, and come in this order.
    asked: VecDeque<Vec<u8>>,
    /// Types that have no place here: how many keys, and one of them.
    others: BTreeMap<String, (u64, String)>,
    left_out: u64,
}

enum Answer {
    Text(String),
    Bytes(Vec<u8>),
    None,
    List(Vec<Answer>),
}

impl Answer {
    fn into_bytes(self) -> Vec<u8> {
        match self {
            Answer::Text(text) => text.into_bytes(),
            Answer::Bytes(bytes) => bytes,
            Answer::None | Answer::List(_) => Vec::new(),
        }
    }

    fn into_text(self) -> String {
        String::from_utf8_lossy(&self.into_bytes()).into_owned()
    }
}

impl RedisSource {
    /// Connects to `HOST:PORT` or `HOST:PORT/DATABASE`.
    pub fn connect(place: &str, keys: KeyKind) -> Result<Self, Failure> {
        let (address, database) = place.split_once('/').unwrap_or((place, "0"));
        let failed = |error: io::Error| {
            Failure::failed(format!("redis {address}: {error}; expected a server there"))
        };
        if !address.contains(':') || database.parse::<u32>().is_err() {
            return Err(Failure::usage(format!(
                "--from redis:{place}: expected redis:HOST:PORT or redis:HOST:PORT/DATABASE"
            )));
        }
        let mut outcome = Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
        for address in address.to_socket_addrs().map_err(failed)? {
            outcome = TcpStream::connect_timeout(&address, CONNECTING);
            if outcome.is_ok() {
                break;
            }
        }
        let stream = outcome.map_err(failed)?;
        stream.set_read_timeout(Some(ANSWERING)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut source = RedisSource {
            name: format!("redis {address}"),
            connection: BufReader::new(stream),
            keys,
            run: String::new(),
            page: None,
            next: "0".to_string(),
            asked: VecDeque::new(),
            others: BTreeMap::new(),
            left_out: 0,
        };
        if let Ok(password) = std::env::var(PASSWORD) {
            source.call(&[b"AUTH", password.as_bytes()])?;
        }
        if database != "0" {
            source.call(&[b"SELECT", database.as_bytes()])?;
        }
        let info = source.call(&[b"INFO", b"server"])?.into_text();
        let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        source.run = run.unwrap_or_default().trim().to_string();
        Ok(source)
    }

    fn failed(&self, what: impl std::fmt::Display) -> Failure {
        Failure::failed(format!("{}: {what}", self.name))
    }

    fn call(&mut self, words: &[&[u8]]) -> Result<Answer, Failure> {
        self.send(&command(words))?;
        self.answer()
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let sent = self.connection.get_mut().write_all(bytes);
        sent.map_err(|error| self.failed(error))
    }

    fn answer(&mut self) -> Result<Answer, Failure> {
        match read_answer(&mut self.connection) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(words)) if words.starts_with("NOAUTH") => Err(self.failed(format!(
                "{words}; put the password into the environment variable {PASSWORD}"
            ))),
            Ok(Err(words)) => Err(self.failed(words)),
            Err(error) => Err(self.failed(format!("{error}, while an answer was awaited"))),
        }
    }

    /// Asks for a page of keys, their types, and the values of strings.
    fn turn_page(&mut self) -> Result<(), Failure> {
        let cursor = self.next.clone();
        let page = self.call(&[b"SCAN", cursor.as_bytes(), b"COUNT", PAGE_KEYS.as_bytes()])?;
        self.page = Some(cursor);
        let Answer::List(mut parts) = page else {
            return Err(self.failed("SCAN answered no list"));
        };
        let (Some(Answer::List(found)), Some(next)) = (parts.pop(), parts.pop()) else {
            return Err(self.failed("SCAN answered something else than a cursor and keys"));
        };
        self.next = next.into_text();
        let found: Vec<Vec<u8>> = found.into_iter().map(Answer::into_bytes).collect();
        let types = found.iter().flat_map(|key| command(&[b"TYPE", key]));
        self.send(&types.collect::<Vec<u8>>())?;
        let mut gets = Vec::new();
        for key in found {
            match self.answer()?.into_text().as_str() {
                "string" => {
                    gets.extend(command(&[b"PTTL", &key]));
                    gets.extend(command(&[b"GET", &key]));
                    self.asked.push_back(key);
                }
                // It went away since.
                "none" => {}
                other => {
                    let first = || (0, readable(&key));
                    self.others.entry(other.to_string()).or_insert_with(first).0 += 1;
                    self.left_out += 1;
                }
            }
        }
        self.send(&gets)
    }

    fn name_others(&mut self, meter: &Meter) {
        for (kind, (count, key)) in std::mem::take(&mut self.others) {
            let name = &self.name;
            meter.say(&format!(
                "{name}: {count} keys of type {kind}, such as {key}; expected strings; left out"
            ));
        }
    }
}

impl Source for RedisSource {
    fn next_item(&mut self, meter: &Meter) -> Result<Option<Item>, Failure> {
        loop {
            let Some(key) = self.asked.pop_front() else {
                if self.page.is_some() && self.next == "0" {
                    self.name_others(meter);
                    return Ok(None);
                }
                self.turn_page()?;
                continue;
            };
            let left = self.answer()?.into_text();
            let value = match self.answer()? {
                Answer::Bytes(value) => value,
                // It went away since.
                _ => continue,
            };
            let shown = readable(&key);
            match item(None, key, value, self.keys) {
                Ok(item) => {
                    let expires = moment_after(&left);
                    return Ok(Some(Item { expires, ..item }));
                }
                Err(why) => {
                    meter.say(&format!("{}, key {shown}: {why}; left out", self.name));
                    self.left_out += 1;
                }
            }
        }
    }

    /// The page that is read begins there: a part of it is done again.
    fn position(&self) -> Option<Position> {
        self.page.clone().map(|cursor| Position::Cursor {
            cursor,
            run: self.run.clone(),
        })
    }

    fn resume(&mut self, position: &Position) -> Result<(), Failure> {
        let Position::Cursor { cursor, run } = position else {
            return Err(elsewhere());
        };
        if *run != self.run {
            return Err(self.failed(
                "the server was started anew, so the place that was kept is none of it; import without --resume",
            ));
        }
        self.next = cursor.clone();
        Ok(())
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// The moment that lies so many milliseconds ahead; negative numbers mean none.
fn moment_after(milliseconds: &str) -> Option<UnixMillis> {
    let ahead = Duration::from_millis(milliseconds.parse().ok()?);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let moment = now.unwrap_or_default().saturating_add(ahead).as_millis();
    Some(UnixMillis(u64::try_from(moment).unwrap_or(u64::MAX)))
}

/// A command, as servers read it.
fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Reads an answer; an error of the server is the inner one.
fn read_answer(from: &mut impl BufRead) -> io::Result<Result<Answer, String>> {
    read_nested(from, MOST_NESTED)
}

fn read_nested(from: &mut impl BufRead, deeper: u32) -> io::Result<Result<Answer, String>> {
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_string());
    let mut line = Vec::new();
    (&mut *from).take(1 << 16).read_until(b'\n', &mut line)?;
    let Some(line) = line.strip_suffix(b"\r\n") else {
        return Err(broken(
            "the connection ended, or the answer is none of Redis'",
        ));
    };
    let text = String::from_utf8_lossy(line.get(1..).unwrap_or_default()).into_owned();
    let count = text.parse::<i64>();
    Ok(Ok(match line.first() {
        Some(b'+' | b':') => Answer::Text(text),
        Some(b'-') => return Ok(Err(text)),
        Some(b'$' | b'*') if count == Ok(-1) => Answer::None,
        Some(b'$') => {
            let count = count.ok().and_then(|count| u64::try_from(count).ok());
            let count = count.filter(|&count| count <= MOST_BYTES);
            let count = count.ok_or_else(|| broken("an answer longer than any value"))?;
            let mut bytes = Vec::new();
            (&mut *from).take(count + 2).read_to_end(&mut bytes)?;
            if bytes.len() as u64 != count + 2 {
                return Err(broken("the connection ended in the middle of an answer"));
            }
            bytes.truncate(count as usize);
            Answer::Bytes(bytes)
        }
        Some(b'*') if deeper > 0 => {
            let mut list = Vec::new();
            for _ in 0..count.unwrap_or_default() {
                match read_nested(from, deeper - 1)? {
                    Ok(answer) => list.push(answer),
                    Err(words) => return Ok(Err(words)),
                }
            }
            Answer::List(list)
        }
        _ => return Err(broken("the answer is none of Redis'")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_broken_ones_are_errors() {
        let read = |text: &str| read_answer(&mut text.as_bytes());
        let text = |text: &str| read(text).unwrap().unwrap().into_text();
        assert_eq!(text("+OK\r\n"), "OK");
        assert_eq!(text("$4\r\na\r\nb\r\n"), "a\r\nb");
        assert_eq!(text("$-1\r\n"), "");
        let Answer::List(list) = read("*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n").unwrap().unwrap()
        else {
            panic!("not a list");
        };
        assert_eq!(list.len(), 2);
        assert_eq!(read("-ERR no\r\n").unwrap().err().unwrap(), "ERR no");
        for broken in [
            "",
            "HTTP/1.1 400\r\n",
            "$5\r\nab",
            "$99999999999\r\n",
            "$x\r\n",
            "+OK",
            &"*1\r\n".repeat(100_000),
        ] {
            assert!(read(broken).is_err(), "{broken:?}");
        }
    }
}
