//! A Redis server as a source of entries: its keys that hold strings, of one of its
//! databases, by `SCAN`, `TYPE`, `PTTL` and `GET`.
//!
//! An entry expires when the server's key does, by this machine's clock. Keys of other types
//! are counted and left out. A `SCAN` that runs while others write gives what is there from its
//! beginning to its end; what comes or goes meanwhile may be missing. Its place is
//! the server's cursor, which means something to that run of the server alone.
//! Memory holds the keys of a page, and one value.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use cambium::hexdump::readable;
use cambium::{KeyKind, UnixMillis, limits};
use cambium_foreign::redis::{Address, Answer, Connection, Error};

use crate::failure::Failure;
use crate::import::foreign::item;
use crate::import::position::Position;
use crate::import::source::{Item, Source, elsewhere};
use crate::progress::Meter;

/// Keys asked for at once.
const PAGE_KEYS: &str = "500";
/// The longest answer that is read: the largest value and some.
const MOST_BYTES: u64 = limits::MAX_VALUE_BYTES as u64 + 1024;
const ANSWERING: Duration = Duration::from_secs(60);
/// The password, where the server wants one, as `redis-cli` takes it.
const PASSWORD: &str = "REDISCLI_AUTH";

/// A server's strings.
pub struct RedisSource {
    name: String,
    connection: Connection,
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

impl RedisSource {
    /// Connects to `HOST:PORT` or `HOST:PORT/DATABASE`.
    pub fn connect(place: &str, keys: KeyKind) -> Result<Self, Failure> {
        let (address, database) = place.split_once('/').unwrap_or((place, "0"));
        if !address.contains(':') || database.parse::<u32>().is_err() {
            return Err(Failure::usage(format!(
                "--from redis:{place}: expected redis:HOST:PORT or redis:HOST:PORT/DATABASE"
            )));
        }
        let server = Address::Tcp(address.to_string());
        let connection = Connection::connect(&server, MOST_BYTES, ANSWERING).map_err(|error| {
            Failure::failed(format!("redis {address}: {error}; expected a server there"))
        })?;
        let mut source = RedisSource {
            name: format!("redis {address}"),
            connection,
            keys,
            run: String::new(),
            page: None,
            next: "0".to_string(),
            asked: VecDeque::new(),
            others: BTreeMap::new(),
            left_out: 0,
        };
        let password = std::env::var(PASSWORD).ok();
        if let Some(password) = password.filter(|password| !password.is_empty()) {
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
        let answer = self.connection.call(words);
        answer.map_err(|error| self.refused(error))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let sent = self.connection.flush();
        sent.map_err(|error| self.refused(error))
    }

    fn answer(&mut self) -> Result<Answer, Failure> {
        let answer = self.connection.receive().and_then(Answer::accepted);
        answer.map_err(|error| self.refused(error))
    }

    fn refused(&self, error: Error) -> Failure {
        match error {
            Error::Refused(words) if words.starts_with("NOAUTH") => self.failed(format!(
                "{words}; put the password into the environment variable {PASSWORD}"
            )),
            error => self.failed(error),
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
        for key in &found {
            self.connection.push(&[b"TYPE", key]);
        }
        self.flush()?;
        for key in found {
            match self.answer()?.into_text().as_str() {
                "string" => {
                    self.connection.push(&[b"PTTL", &key]);
                    self.connection.push(&[b"GET", &key]);
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
        self.flush()
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
