//! The commands, by what they are about.
//!
//! A command is a row of a table: name, arity, flags, where its keys are, and the function
//! that runs it. [`Call`] is what that function sees.

mod bits;
mod cambium_commands;
mod chain;
mod cluster;
mod connection;
mod expiry;
mod hashes;
mod introspection;
mod keys;
mod lcs;
mod numbers;
mod pubsub;
mod server;
mod settings;
mod strings;
mod transactions;

use std::borrow::Cow;
use std::collections::HashMap;

use cambium::Error;
use cambium_io::sync::OnceLock;
use foldhash::fast::RandomState;

use crate::executor::jobs::{Job, Work};
use crate::executor::server::Server;
use crate::executor::session::Session;
use crate::keyspace::Keyspace;
use crate::keyspace::layout::{Entry, Kind};
use crate::keyspace::notices::Class;
use crate::resp::Arguments;
use crate::resp::numbers::parse_integer;
use crate::resp::reply::Reply;

pub use transactions::{abort, unwatch_all};

/// A command's row.
#[derive(Debug)]
pub struct Command {
    /// In lower case.
    pub name: &'static str,
    /// Arguments with the name; negative: at least so many.
    pub arity: i32,
    /// See the constants.
    pub flags: u32,
    /// Places of the first and the last key, and from one to the next; the last counts from
    /// the end if negative.
    pub keys: (i32, i32, i32),
    /// Runs it.
    pub run: fn(&mut Call<'_>) -> Outcome,
    /// One line for people.
    pub summary: &'static str,
}

/// It writes keys.
pub const WRITE: u32 = 1;
/// It reads keys.
pub const READ: u32 = 1 << 1;
/// It takes time that does not depend on how much there is.
pub const FAST: u32 = 1 << 2;
/// It is for those who run the server.
pub const ADMIN: u32 = 1 << 3;
/// A stranger may call it.
pub const NO_AUTH: u32 = 1 << 4;
/// It is about channels.
pub const PUBSUB: u32 = 1 << 5;
/// A client of RESP2 with subscriptions may call it.
pub const WHILE_SUBSCRIBED: u32 = 1 << 6;
/// It runs at once within MULTI.
pub const UNQUEUED: u32 = 1 << 7;
/// It is refused within MULTI.
pub const NO_MULTI: u32 = 1 << 8;
/// It writes, and leaves less than there was: a full disk does not refuse it.
pub const FREES: u32 = 1 << 9;

/// The beginning of the answer of a write that failed.
pub const WRITE_FAILED: &str = "MISCONF Errors writing to the AOF file: ";

/// Why a command answers an error.
#[derive(Debug)]
pub enum Failure {
    /// In these words.
    Known(&'static str),
    /// In words made for it.
    Text(String),
    /// The store has failed.
    Store(Error),
}

/// What a command ends with; its answer is in the session.
pub type Outcome<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}

impl Failure {
    /// The line of the answer.
    pub fn text(&self) -> String {
        match self {
            Failure::Known(text) => (*text).to_string(),
            Failure::Text(text) => text.clone(),
            Failure::Store(Error::LimitExceeded(text)) => format!("ERR {text}"),
            Failure::Store(error) => format!("ERR {error}"),
        }
    }
}

/// The errors that many commands answer.
pub const SYNTAX: Failure = Failure::Known("ERR syntax error");
/// See [`SYNTAX`].
pub const NOT_AN_INTEGER: Failure = Failure::Known("ERR value is not an integer or out of range");
/// See [`SYNTAX`].
pub const WRONG_TYPE: Failure =
    Failure::Known("WRONGTYPE Operation against a key holding the wrong kind of value");
/// See [`SYNTAX`].
pub const NOT_A_FLOAT: Failure = Failure::Known("ERR value is not a valid float");
/// See [`SYNTAX`].
pub const NO_SUCH_KEY: Failure = Failure::Known("ERR no such key");

/// One command that runs.
pub struct Call<'a> {
    /// The server.
    pub server: &'a mut Server,
    /// The client.
    pub session: &'a mut Session,
    /// The arguments.
    pub arguments: Arguments<'a>,
    /// Its row.
    pub command: &'static Command,
    /// Work for a helper thread, which answers in the command's place.
    pub job: Option<(Work, Job)>,
}

impl<'a> Call<'a> {
    /// An argument; the arity has been checked.
    pub fn argument(&self, place: usize) -> &'a [u8] {
        self.arguments.get(place).unwrap_or_default()
    }

    /// How many arguments there are, with the name.
    pub fn count(&self) -> usize {
        self.arguments.count()
    }

    /// True if an argument is this word, which is in lower case.
    pub fn is(&self, place: usize, word: &str) -> bool {
        self.argument(place).eq_ignore_ascii_case(word.as_bytes())
    }

    /// An argument that is an integer.
    pub fn integer(&self, place: usize) -> Outcome<i64> {
        parse_integer(self.argument(place)).ok_or(NOT_AN_INTEGER)
    }

    /// The answer.
    pub fn reply(&mut self) -> &mut Reply {
        &mut self.session.reply
    }

    /// The databases.
    pub fn keyspace(&mut self) -> &mut Keyspace {
        &mut self.server.keyspace
    }

    /// The client's database.
    pub fn database(&self) -> u8 {
        self.session.database
    }

    /// The string of a key, for a command that reads.
    pub fn read_string(&mut self, key: &[u8]) -> Outcome<Option<Entry>> {
        let database = self.database();
        of_kind(self.keyspace().read(database, key)?, Kind::String)
    }

    /// The string of a key, for a command that writes.
    pub fn find_string(&mut self, key: &[u8]) -> Outcome<Option<Entry>> {
        let database = self.database();
        of_kind(self.keyspace().find(database, key)?, Kind::String)
    }

    /// Gives a key a string in place of its old entry.
    pub fn put_string(
        &mut self,
        key: &[u8],
        old: Option<&Entry>,
        expires: Option<u64>,
        value: &[u8],
    ) -> Outcome {
        let database = self.database();
        let kind = (Kind::String, expires);
        Ok(self.keyspace().put(database, key, old, kind, value)?)
    }

    /// Gives a key a string that expires when its old entry would, and tells those who listen.
    pub fn change_string(
        &mut self,
        key: &[u8],
        old: Option<&Entry>,
        value: &[u8],
        event: &'static str,
    ) -> Outcome {
        self.put_string(key, old, old.and_then(|old| old.expires), value)?;
        self.notice(Class::String, event, key);
        Ok(())
    }

    /// Removes a key, and tells those who listen.
    pub fn delete(&mut self, key: &[u8], old: &Entry) {
        let database = self.database();
        self.keyspace().remove(database, key, old);
        self.notice(Class::Generic, "del", key);
    }

    /// Tells those who listen what happened to a key.
    pub fn notice(&mut self, class: Class, event: &'static str, key: &[u8]) {
        let database = self.database();
        self.keyspace().notices.add(class, event, database, key);
    }

    /// The error of a subcommand with too many arguments.
    pub fn wrong_count(&self) -> Failure {
        let subcommand = String::from_utf8_lossy(self.argument(1)).to_lowercase();
        wrong_count(&format!("{}|{subcommand}", self.command.name))
    }
}

/// The entry, if it is of the kind or not there.
pub fn of_kind(entry: Option<Entry>, kind: Kind) -> Outcome<Option<Entry>> {
    match entry {
        Some(entry) if entry.kind != kind => Err(WRONG_TYPE),
        entry => Ok(entry),
    }
}

/// Every row.
pub fn all() -> impl Iterator<Item = &'static Command> {
    [
        strings::COMMANDS,
        numbers::COMMANDS,
        bits::COMMANDS,
        lcs::COMMANDS,
        keys::COMMANDS,
        expiry::COMMANDS,
        hashes::COMMANDS,
        transactions::COMMANDS,
        pubsub::COMMANDS,
        connection::COMMANDS,
        introspection::COMMANDS,
        server::COMMANDS,
        settings::COMMANDS,
        cluster::COMMANDS,
        chain::COMMANDS,
        cambium_commands::COMMANDS,
    ]
    .into_iter()
    .flatten()
}

/// Longest name of a command, and more.
const MOST_NAME_BYTES: usize = 32;

/// The row of a name.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    static TABLE: OnceLock<HashMap<&'static [u8], &'static Command, RandomState>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        all()
            .map(|command| (command.name.as_bytes(), command))
            .collect()
    });
    let mut lower = [0; MOST_NAME_BYTES];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    table.get(&*lower).copied()
}

fn is_of_arity(arity: i32, count: usize) -> bool {
    let least = arity.unsigned_abs() as usize;
    count == least || (arity < 0 && count > least)
}

fn wrong_count(name: &str) -> Failure {
    Failure::Text(format!(
        "ERR wrong number of arguments for '{name}' command"
    ))
}

impl Command {
    /// True if the store grows by it.
    pub fn grows(&self) -> bool {
        self.flags & (WRITE | FREES) == WRITE
    }

    /// True if it may have so many arguments.
    pub fn takes(&self, count: usize) -> bool {
        is_of_arity(self.arity, count)
    }

    /// The words that may follow its name, in lower case, each with the arity of the whole;
    /// empty if any may.
    fn subcommands(&self) -> &'static [(&'static str, i32)] {
        match self.name {
            "client" => &[
                ("getname", 2),
                ("getredir", 2),
                ("help", 2),
                ("id", 2),
                ("info", 2),
                ("kill", -3),
                ("list", -2),
                ("no-evict", 3),
                ("reply", 3),
                ("setname", 3),
                ("trackinginfo", 2),
                ("unblock", -3),
                ("unpause", 2),
            ],
            "cluster" => &[
                ("countkeysinslot", 3),
                ("getkeysinslot", 4),
                ("help", 2),
                ("info", 2),
                ("keyslot", 3),
                ("myid", 2),
                ("nodes", 2),
                ("shards", 2),
                ("slots", 2),
            ],
            "command" => &[
                ("count", 2),
                ("docs", -2),
                ("getkeys", -4),
                ("help", 2),
                ("info", -2),
                ("list", -2),
            ],
            "config" => &[
                ("get", -3),
                ("help", 2),
                ("resetstat", 2),
                ("rewrite", 2),
                ("set", -4),
            ],
            "debug" => &[
                ("change-repl-id", -2),
                ("error", 3),
                ("help", 2),
                ("jmap", -2),
                ("loadaof", -2),
                ("object", 3),
                ("quicklist-packed-threshold", -2),
                ("reload", -2),
                ("replicate", -2),
                ("set-active-expire", 3),
                ("set-disable-deny-scripts", -2),
                ("sleep", 3),
                ("stringmatch-len", -2),
            ],
            "function" => &[("flush", -2), ("help", 2), ("list", -2)],
            "latency" => &[
                ("doctor", 2),
                ("graph", 3),
                ("help", 2),
                ("histogram", -2),
                ("history", 3),
                ("latest", 2),
                ("reset", -2),
            ],
            "memory" => &[
                ("doctor", 2),
                ("help", 2),
                ("malloc-stats", 2),
                ("purge", 2),
                ("stats", 2),
                ("usage", -3),
            ],
            "object" => &[
                ("encoding", 3),
                ("freq", 3),
                ("help", 2),
                ("idletime", 3),
                ("refcount", 3),
            ],
            "pubsub" => &[
                ("channels", -2),
                ("help", 2),
                ("numpat", 2),
                ("numsub", -2),
                ("shardchannels", -2),
                ("shardnumsub", -2),
            ],
            "script" => &[("flush", -2), ("help", 2)],
            "slowlog" => &[("get", -2), ("help", 2), ("len", 2), ("reset", 2)],
            _ => &[],
        }
    }

    /// Runs it, or names its subcommands.
    pub fn call(&self, call: &mut Call<'_>) -> Outcome {
        let known = match call.is(1, "help") {
            true => self.subcommands(),
            false => &[],
        };
        if known.is_empty() {
            return (self.run)(call);
        }
        let name = self.name.to_uppercase();
        let reply = call.reply();
        reply.array(known.len() + 1);
        reply.simple(&format!(
            "{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
        ));
        for (word, _) in known {
            reply.simple(&word.to_uppercase());
        }
        Ok(())
    }

    /// The keys among the arguments of a command.
    pub fn keys_of<'a>(
        &self,
        arguments: Arguments<'a>,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (first, last, step) = self.keys;
        let last = match last {
            last if last < 0 => arguments.count() as i32 + last,
            last => last,
        };
        let count = if first > 0 { last - first + 1 } else { 0 };
        arguments
            .from(first.max(0) as usize)
            .take(count.max(0) as usize)
            .step_by(step.max(1) as usize)
    }
}

/// The command that a client asks for, or why it does not run.
pub fn admit(arguments: Arguments<'_>, session: &Session) -> Outcome<&'static Command> {
    let Some(command) = find(&arguments[0]) else {
        return Err(unknown(arguments));
    };
    if !command.takes(arguments.count()) {
        return Err(wrong_count(command.name));
    }
    let known = command.subcommands();
    if let Some(asked) = arguments.get(1).filter(|_| !known.is_empty()) {
        let mut known = known.iter();
        let Some((word, arity)) =
            known.find(|(word, _)| asked.eq_ignore_ascii_case(word.as_bytes()))
        else {
            return Err(Failure::Text(format!(
                "ERR unknown subcommand '{}'. Try {} HELP.",
                shown(asked, MOST_SHOWN_BYTES),
                command.name.to_uppercase()
            )));
        };
        if !is_of_arity(*arity, arguments.count()) {
            return Err(wrong_count(&format!("{}|{word}", command.name)));
        }
    }
    if session.is_stranger && command.flags & NO_AUTH == 0 {
        return Err(Failure::Known("NOAUTH Authentication required."));
    }
    let is_listening = session.subscriptions() > 0 && !session.reply.is_resp3;
    if is_listening && command.flags & WHILE_SUBSCRIBED == 0 {
        return Err(Failure::Text(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context",
            command.name
        )));
    }
    if session.queue.is_some() && command.flags & NO_MULTI != 0 {
        return Err(Failure::Known(
            "ERR Command not allowed inside a transaction",
        ));
    }
    Ok(command)
}

/// True for the beginning of a request of HTTP. A web page can make a browser send one here,
/// with commands of Redis in its body.
pub fn is_of_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Bytes of what a client sent that an error repeats.
const MOST_SHOWN_BYTES: usize = 128;

/// An argument in an error. As in Redis, it ends at a zero byte.
fn shown(argument: &[u8], most: usize) -> Cow<'_, str> {
    let argument = &argument[..argument.len().min(most)];
    let end = argument.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&argument[..end.unwrap_or(argument.len())])
}

fn unknown(arguments: Arguments<'_>) -> Failure {
    let mut rest = String::new();
    for argument in arguments.from(1) {
        if rest.len() >= MOST_SHOWN_BYTES {
            break;
        }
        rest += &format!("'{}' ", shown(argument, MOST_SHOWN_BYTES - rest.len()));
    }
    let name = shown(&arguments[0], MOST_SHOWN_BYTES);
    Failure::Text(format!(
        "ERR unknown command '{name}', with args beginning with: {rest}"
    ))
}
