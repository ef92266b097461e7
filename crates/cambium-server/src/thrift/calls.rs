//! The methods of the service, on the executor's thread, over strings of database 0; in a
//! cluster, over those of the partition that a call's keys belong to.

use std::io;

use cambium::{Direction, Error, KeyRange};

use cambium_cluster::slots::slot;

use super::value::{Answer, Value};
use crate::executor::chaining::Unserved;
use crate::executor::server::Server;
use crate::keyspace::layout::{Entry, Kind, MOST_STRING_BYTES};
use crate::keyspace::overlay::Walk;
use crate::keyspace::{Keyspace, check_key};
use crate::password::is_same;

/// Entries of one page.
const MOST_ENTRIES: i32 = 10_000;
/// Bytes of one page.
const MOST_PAGE_BYTES: usize = 16 << 20;

/// Codes of `idl/cambium.thrift`.
const FAILED: i32 = 1;
const INVALID: i32 = 2;
const UNSUPPORTED: i32 = 3;
const NO_SPACE: i32 = 4;
const UNAUTHENTICATED: i32 = 5;
const WRONG_TYPE: i32 = 6;
const TRY_AGAIN: i32 = 8;

/// Methods that leave more than there was: a full disk refuses them.
const GROWING: [&str; 6] = [
    "put",
    "putInteger",
    "add",
    "update",
    "compareAndSet",
    "multiPut",
];

/// The other methods that change keys.
const REMOVING: [&str; 3] = ["remove", "removeInteger", "multiRemove"];

/// A method that has no result, or its result; or a code with a text.
type Outcome<T = Option<Value>> = Result<T, (i32, String)>;

/// One call of a client.
#[derive(Debug)]
pub struct Call {
    /// The method.
    pub name: String,
    /// Its arguments by their numbers.
    pub arguments: Vec<(i16, Value)>,
    /// The client has given the password.
    pub is_known: bool,
    /// The database of its keys: the first, which clients of Redis share, or a partition.
    pub database: u8,
}

/// The exception of a call that was forwarded to a node which has not the keys: nothing is
/// done. The text names the node that has them by this node's view.
pub fn forwarded_astray(text: &str) -> Answer {
    let text = format!("{text}, and a node with another view of the cluster forwarded the call");
    Answer::Failure(TRY_AGAIN, text)
}

/// The exception of a call that was to be forwarded: nothing is done.
pub fn unreached(address: &str, error: &io::Error) -> Answer {
    let text = format!("the keys are at {address}, which cannot be reached: {error}");
    Answer::Failure(TRY_AGAIN, text)
}

/// The exception of a call that was forwarded: it may be done or not.
pub fn unanswered(address: &str, error: &io::Error) -> Answer {
    let text = format!("{address} has not answered: {error}; the call may be done or not");
    Answer::Failure(FAILED, text)
}

/// The answer of a write whose chain goes on without this node: it may be done or not.
pub fn ceased() -> Answer {
    let text = "this node has ceased to serve the keys before the chain had the write: it may be \
                done or not";
    Answer::Failure(FAILED, text.to_string())
}

/// The exception of a write or read that failed.
pub fn failure(error: &Error) -> Answer {
    let code = match error {
        Error::NoSpace { .. } => NO_SPACE,
        Error::LimitExceeded(_) | Error::InvalidArgument(_) => INVALID,
        Error::Unsupported { .. } => UNSUPPORTED,
        _ => FAILED,
    };
    Answer::Failure(code, error.to_string())
}

fn failed(error: Error) -> (i32, String) {
    match failure(&error) {
        Answer::Failure(code, text) => (code, text),
        _ => (FAILED, error.to_string()),
    }
}

/// In a cluster: finds the partition of a call's keys.
///
/// # Errors
/// The answer that names the node which has them, or says why there is none.
pub fn route(server: &Server, call: &mut Call) -> Result<(), Answer> {
    let may = call.is_known || server.settings.password().is_none();
    let Some(chains) = server.chains.as_ref().filter(|_| may) else {
        return Ok(());
    };
    let failure = |(code, text)| Answer::Failure(code, text);
    let mut slots = call
        .all_keys()
        .map_err(failure)?
        .into_iter()
        .map(|key| slot(&key));
    let Some(slot) = slots.next() else {
        return Ok(());
    };
    if slots.any(|other| other != slot) {
        let text = "in a cluster the keys of a call belong to one slot, as by {braces}";
        return Err(failure((INVALID, text.to_string())));
    }
    let name = call.name.as_str();
    let is_write = GROWING.contains(&name) || REMOVING.contains(&name);
    match server.place(slot, is_write, false) {
        Ok(place) => {
            call.database = place;
            Ok(())
        }
        Err(Unserved::Elsewhere(node)) => {
            let text = format!("node {node} has the keys");
            Err(
                match chains.view.nodes.get(&node).map(|node| &node.thrift) {
                    Some(Some(address)) => Answer::Moved(text, address.clone()),
                    Some(None) => failure((FAILED, format!("{text}, and serves no Thrift"))),
                    // Its lease is over, and the chain has no other head yet.
                    None => failure((TRY_AGAIN, format!("{text}, and is not there"))),
                },
            )
        }
        Err(unserved) => Err(failure((TRY_AGAIN, unserved.text().to_string()))),
    }
}

/// Runs one call. Its writes wait in the round, like those of other clients.
pub fn run(server: &mut Server, call: &Call) -> Answer {
    let may = call.is_known || server.settings.password().is_none();
    let grows = may && GROWING.contains(&call.name.as_str());
    let refusal = grows.then(|| server.room.refusal()).flatten();
    let outcome = match call.name.as_str() {
        _ if refusal.is_some() => Err((NO_SPACE, refusal.unwrap_or_default())),
        "ping" => Ok(None),
        "auth" => call.auth(server),
        _ if !may => Err((UNAUTHENTICATED, "call auth with the password first".into())),
        "put" => call.put(server, Condition::Always).map(|_| None),
        "putInteger" => call.put(server, Condition::Always).map(|_| None),
        "add" => call.put(server, Condition::Absent).map(truth),
        "update" => call.put(server, Condition::Present).map(truth),
        "compareAndSet" => call.compare_and_set(server).map(truth),
        "multiPut" => call.multi_put(server),
        "get" | "getInteger" => {
            let found = call.key(1).and_then(|key| call.get(server, &key));
            found.map(Some)
        }
        "multiGet" => call.multi_get(server),
        "remove" | "removeInteger" => {
            let removed = call.key(1).and_then(|key| call.delete(server, &key));
            removed.map(truth)
        }
        "multiRemove" => call.multi_remove(server),
        name @ ("range" | "iterate" | "size") if server.chains.is_some() => {
            let instead = match name {
                "size" => "add up DBSIZE",
                _ => "call SCAN",
            };
            let text = format!(
                "{name} is for one node alone, as each node of a cluster has a part of the keys: \
                 {instead} of all nodes, by a client of Redis"
            );
            Err((UNSUPPORTED, text))
        }
        "range" => call.range(server),
        "iterate" => call.iterate(server),
        "size" => {
            server.keyspace.shows_pending();
            let keys = server.keyspace.count(call.database).keys;
            Ok(Some(Value::I64(keys as i64)))
        }
        "stats" => stats(server),
        _ => return Answer::Unknown,
    };
    match outcome {
        Ok(result) => Answer::Done(result),
        Err((code, text)) => Answer::Failure(code, text),
    }
}

/// When a put takes place.
#[derive(Clone, Copy, PartialEq)]
enum Condition {
    Always,
    Absent,
    Present,
}

fn truth(truth: bool) -> Option<Value> {
    Some(Value::Bool(truth))
}

/// `2: optional binary value` of an entry, or what `Found` holds.
fn found(value: Option<Entry>) -> Value {
    let field = value.map(|entry| (1, Value::Binary(entry.body.to_vec())));
    Value::Struct(field.into_iter().collect())
}

fn field(fields: &[(i16, Value)], number: i16) -> Option<&Value> {
    let found = fields.iter().find(|(id, _)| *id == number)?;
    Some(&found.1)
}

fn missing(number: i16, kind: &str) -> (i32, String) {
    (INVALID, format!("argument {number}: expected {kind}"))
}

impl Call {
    fn optional(&self, number: i16) -> Outcome<Option<&[u8]>> {
        match field(&self.arguments, number) {
            None => Ok(None),
            Some(Value::Binary(bytes)) => Ok(Some(bytes)),
            Some(_) => Err(missing(number, "bytes")),
        }
    }

    fn bytes(&self, number: i16) -> Outcome<&[u8]> {
        self.optional(number)?
            .ok_or_else(|| missing(number, "bytes"))
    }

    /// A key of bytes, or an integer as bytes that sort as integers do.
    fn key(&self, number: i16) -> Outcome<Vec<u8>> {
        match field(&self.arguments, number) {
            Some(Value::I64(key)) => Ok((key ^ i64::MIN).to_be_bytes().to_vec()),
            Some(Value::Binary(key)) => Ok(key.clone()),
            _ => Err(missing(number, "a key")),
        }
    }

    fn list(&self, number: i16) -> Outcome<&[Value]> {
        match field(&self.arguments, number) {
            Some(Value::List(values)) => Ok(values),
            _ => Err(missing(number, "a list")),
        }
    }

    fn keys(&self) -> Outcome<Vec<&[u8]>> {
        let keys = self.list(1)?.iter().map(|value| match value {
            Value::Binary(key) => Ok(&key[..]),
            _ => Err(missing(1, "a list of keys")),
        });
        keys.collect()
    }

    /// Every key that the call is about.
    fn all_keys(&self) -> Outcome<Vec<Vec<u8>>> {
        Ok(match self.name.as_str() {
            "multiGet" | "multiRemove" => self.keys()?.into_iter().map(<[u8]>::to_vec).collect(),
            "multiPut" => self
                .entries()?
                .into_iter()
                .map(|(key, _)| key.clone())
                .collect(),
            "get" | "getInteger" | "put" | "putInteger" | "add" | "update" | "compareAndSet"
            | "remove" | "removeInteger" => vec![self.key(1)?],
            _ => Vec::new(),
        })
    }

    /// Keys and values of `list<Entry>`.
    fn entries(&self) -> Outcome<Vec<(&Vec<u8>, &Vec<u8>)>> {
        let mut entries = Vec::new();
        for value in self.list(1)? {
            let parts = match value {
                Value::Struct(fields) => (field(fields, 1), field(fields, 2)),
                _ => (None, None),
            };
            let (Some(Value::Binary(key)), Some(Value::Binary(value))) = parts else {
                return Err(missing(1, "entries with a key and a value"));
            };
            entries.push((key, value));
        }
        Ok(entries)
    }

    fn limit(&self, number: i16) -> Outcome<usize> {
        match field(&self.arguments, number) {
            Some(Value::I32(limit)) if (1..=MOST_ENTRIES).contains(limit) => Ok(*limit as usize),
            _ => Err(missing(number, "a limit of 1 to 10,000")),
        }
    }

    fn auth(&self, server: &Server) -> Outcome {
        let given = self.bytes(1)?;
        match server.settings.password() {
            Some(password) if !is_same(given, password.as_bytes()) => {
                Err((UNAUTHENTICATED, "the password is wrong".into()))
            }
            _ => Ok(None),
        }
    }

    fn put(&self, server: &mut Server, condition: Condition) -> Outcome<bool> {
        let (key, value) = (self.key(1)?, self.bytes(2)?);
        let old = self.find(server, &key)?;
        let is_met = match condition {
            Condition::Always => true,
            Condition::Absent => old.is_none(),
            Condition::Present => old.is_some(),
        };
        if is_met {
            self.store(server, &key, old.as_ref(), value)?;
        }
        Ok(is_met)
    }

    fn compare_and_set(&self, server: &mut Server) -> Outcome<bool> {
        let (key, expected, value) = (self.key(1)?, self.optional(2)?, self.optional(3)?);
        let old = self.find(server, &key)?;
        if old.as_ref().map(|entry| &entry.body[..]) != expected {
            return Ok(false);
        }
        match (value, old) {
            (Some(value), old) => self.store(server, &key, old.as_ref(), value)?,
            (None, Some(old)) => server.keyspace.remove(self.database, &key, &old),
            (None, None) => {}
        }
        Ok(true)
    }

    /// All keys are checked before the first is written: the call is all or nothing.
    fn multi_put(&self, server: &mut Server) -> Outcome {
        let entries = self.entries()?;
        for (key, value) in &entries {
            check(key, value)?;
        }
        self.find_all(server, entries.iter().map(|(key, _)| &key[..]))?;
        for (key, value) in entries {
            let old = server.keyspace.find_replaced(self.database, key);
            self.store(server, key, old.map_err(failed)?.as_ref(), value)?;
        }
        Ok(None)
    }

    fn multi_get(&self, server: &mut Server) -> Outcome {
        let mut values = Vec::new();
        let look = |keyspace: &mut Keyspace, key| {
            values.push(keyspace.read(self.database, key)?);
            Ok(())
        };
        let keys = self.keys()?.into_iter();
        server.keyspace.each(keys, look).map_err(failed)?;
        let values = values.into_iter().map(|value| string(value).map(found));
        Ok(Some(Value::List(values.collect::<Outcome<_>>()?)))
    }

    fn multi_remove(&self, server: &mut Server) -> Outcome {
        let keys = self.keys()?;
        self.find_all(server, keys.iter().copied())?;
        let mut removed = 0;
        for key in keys {
            removed += i64::from(self.delete(server, key)?);
        }
        Ok(Some(Value::I64(removed)))
    }

    fn range(&self, server: &mut Server) -> Outcome {
        let range = KeyRange {
            from: self.optional(1)?.map(<[u8]>::to_vec),
            to: self.optional(2)?.map(<[u8]>::to_vec),
        };
        let is_reverse = matches!(field(&self.arguments, 3), Some(Value::Bool(true)));
        let direction = match is_reverse {
            true => Direction::Reverse,
            false => Direction::Forward,
        };
        page(server, range, direction, self.limit(4)?)
    }

    fn iterate(&self, server: &mut Server) -> Outcome {
        let range = KeyRange {
            from: self.optional(1)?.map(<[u8]>::to_vec),
            to: None,
        };
        page(server, range, Direction::Forward, self.limit(2)?)
    }
}

fn page(server: &mut Server, range: KeyRange, direction: Direction, limit: usize) -> Outcome {
    if !server.keyspace.view().is_ordered {
        return Err((UNSUPPORTED, server.keyspace.no_order()));
    }
    let (mut entries, mut bytes, mut next) = (Vec::new(), 0, None);
    let mut last = Vec::new();
    let visit = |key: &[u8], entry: Entry| {
        if entry.kind != Kind::String {
            return Walk::On;
        }
        if entries.len() >= limit || bytes >= MOST_PAGE_BYTES {
            // `to` is exclusive: the last key that was answered is where a reverse page ends.
            next = Some(match direction {
                Direction::Forward => key.to_vec(),
                Direction::Reverse => last.clone(),
            });
            return Walk::Enough;
        }
        bytes += key.len() + entry.body.len();
        last = key.to_vec();
        entries.push(Value::Struct(vec![
            (1, Value::Binary(key.to_vec())),
            (2, Value::Binary(entry.body.to_vec())),
        ]));
        Walk::On
    };
    server
        .keyspace
        .entries(0, &range, direction, visit)
        .map_err(failed)?;
    let next = next.map(|key| (2, Value::Binary(key)));
    let fields = [(1, Value::List(entries))].into_iter().chain(next);
    Ok(Some(Value::Struct(fields.collect())))
}

fn stats(server: &mut Server) -> Outcome {
    let statistics = server.keyspace.store().stats().map_err(failed)?;
    let metrics = statistics.metrics().into_iter();
    let numbers = metrics.map(|(name, value)| (name.to_string(), value));
    Ok(Some(Value::Numbers(numbers.collect())))
}

fn string(entry: Option<Entry>) -> Outcome<Option<Entry>> {
    match entry {
        Some(entry) if entry.kind != Kind::String => Err((
            WRONG_TYPE,
            "the key holds a hash, which Thrift's clients cannot read".into(),
        )),
        entry => Ok(entry),
    }
}

fn check(key: &[u8], value: &[u8]) -> Outcome<()> {
    check_key(key).map_err(failed)?;
    if value.len() > MOST_STRING_BYTES {
        let text = format!(
            "values have up to {MOST_STRING_BYTES} bytes, not {}",
            value.len()
        );
        return Err((INVALID, text));
    }
    Ok(())
}

impl Call {
    /// The string of a key.
    fn find(&self, server: &mut Server, key: &[u8]) -> Outcome<Option<Entry>> {
        string(server.keyspace.find(self.database, key).map_err(failed)?)
    }

    /// Looks whether all keys are free or strings.
    fn find_all<'a>(
        &self,
        server: &mut Server,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Outcome<()> {
        let mut are_strings = Ok(());
        let look = |keyspace: &mut Keyspace, key| {
            let entry = keyspace.find_replaced(self.database, key)?;
            if let Err(failure) = string(entry) {
                are_strings = Err(failure);
            }
            Ok(())
        };
        server.keyspace.each(keys, look).map_err(failed)?;
        are_strings
    }

    fn get(&self, server: &mut Server, key: &[u8]) -> Outcome<Value> {
        let entry = server.keyspace.read(self.database, key).map_err(failed)?;
        string(entry).map(found)
    }

    fn store(
        &self,
        server: &mut Server,
        key: &[u8],
        old: Option<&Entry>,
        value: &[u8],
    ) -> Outcome<()> {
        check(key, value)?;
        server
            .keyspace
            .put(self.database, key, old, (Kind::String, None), value)
            .map_err(failed)
    }

    fn delete(&self, server: &mut Server, key: &[u8]) -> Outcome<bool> {
        let old = server.keyspace.find_replaced(self.database, key);
        let old = string(old.map_err(failed)?)?;
        if let Some(old) = &old {
            server.keyspace.remove(self.database, key, old);
        }
        Ok(old.is_some())
    }
}
