//! The threads that bring frames to a successor: one writes, one reads.
//!
//! A link is a connection to the successor's port for clients. It carries all partitions
//! whose successor that node is:
//!
//! ```text
//! CAMBIUM.CHAIN HELLO cluster node             +OK
//! CAMBIUM.CHAIN OPEN partition since           opened partition since is-whole committed position
//! CAMBIUM.CHAIN APPEND partition since frame   acked partition since number, when it is committed
//! CAMBIUM.CHAIN COPY partition since BEGIN
//! CAMBIUM.CHAIN COPY partition since DATA key value [key value ...]
//! CAMBIUM.CHAIN COPY partition since END record  copied partition since number
//! CAMBIUM.CHAIN LEFT partition epoch position  left partition epoch is-known number
//!                                              refused partition since why, in place of any
//! ```
//!
//! LEFT is what a node asks the head of a chain that it has left, before it removes its copy:
//! which is the last batch that both have.
//!
//! Answers come when there is something to say, and not one for each request: a middle member
//! acknowledges what its own successor has acknowledged.

mod bringing_up;
mod handle;
mod left;
mod reader;
mod secured;
mod silence;

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use cambium_cluster::position::{Position, Resume};
use cambium_foreign::redis::Connection;
use cambium_io::environment::Clock;
use cambium_io::sync::Mutex;
use std::thread;

use super::ChainEvent;
use super::agent;
use super::catch_up::{Copy, Feed, History};
use super::window::{Pulled, Window};
use crate::keyspace::partitions::Frame;
use crate::mailbox::Mailbox;
use crate::messages::Event;
use crate::tls::Tls;
pub use handle::{Carried, LinkHandle, Word};
pub use left::Left;
use reader::read;
pub use silence::Accusations;

/// Bytes that one turn sends of a partition, and of a copy.
const TURN_BYTES: usize = 1 << 20;
/// Longest answer of a successor.
const MOST_ANSWER_BYTES: u64 = 1 << 16;
/// A turn without anything to do.
const IDLE: Duration = Duration::from_millis(250);
/// Frames that nothing waits for leave so long after those before them: one message wakes
/// the successor, and one of its batches writes them.
const GATHERING: Duration = Duration::from_millis(2);
/// Between two attempts at what has failed.
const PAUSE: Duration = Duration::from_millis(20);

/// The parts that all links of a node share.
#[derive(Clone)]
pub struct Shared {
    /// This node's name.
    pub me: String,
    /// The id of its cluster.
    pub cluster: String,
    /// The certificate that nodes show each other.
    pub tls: Option<Arc<Tls>>,
    /// The password of every node.
    pub password: Option<String>,
    /// To the executor.
    pub inbox: Arc<Mailbox<Event>>,
    /// To the agent.
    pub agent: Arc<Mailbox<agent::Word>>,
    /// The latest frames.
    pub window: Arc<Window>,
    /// The store's change feed, and copies.
    pub history: Arc<History>,
    /// The monotonic clock.
    pub clock: Arc<dyn Clock>,
    /// By successor. They outlive its link, which ends while another member is brought up.
    pub accusations: Arc<Mutex<BTreeMap<String, Accusations>>>,
    /// A node that is silent for longer is not there.
    pub lease: Duration,
}

/// The progress of the successor with one partition.
#[derive(Debug, PartialEq)]
enum State {
    /// The successor has to be asked, not before a moment.
    Closed(Duration),
    /// It was asked.
    Opening,
    /// It gets batches from a number on, from the feed.
    Feeding(u64),
    /// The same from the window; whether the executor knows.
    Following(u64, bool),
    /// It gets a copy, or waits for its turn.
    Copying,
}

#[derive(Debug)]
struct Way {
    of: Carried,
    /// The position of this node's copy, and the head's `since`, when the successor was asked.
    own: (Position, u64),
    state: State,
}

/// The writing thread.
pub struct Link {
    shared: Shared,
    to: String,
    address: String,
    words: Arc<Mailbox<Word>>,
    ways: BTreeMap<u8, Way>,
    left: BTreeMap<u8, Left>,
    connection: Option<(Connection, TcpStream)>,
    /// The number of the connection.
    number: u64,
    feed: Option<Feed>,
    copy: Option<(Copy, u64)>,
    /// Bringing up goes on from this moment on: it leaves half of the time to live work.
    rests_until: Duration,
    /// There is more to bring up.
    has_more: bool,
    /// Since when there is no connection that greets.
    failing: Option<Duration>,
    /// The last reason why.
    failure: String,
    /// No connection is made before: the successor has answered an error.
    connects_from: Duration,
    /// Since when the successor answers errors, and the last time that it did.
    refusing: Option<(Duration, Duration)>,
    pinged: Duration,
    /// The last turn that began with frames that were gathered.
    gathered: Duration,
}

type Lost = cambium_foreign::redis::Error;

impl Link {
    fn run(mut self) {
        let mut words = Vec::new();
        let mut is_busy = false;
        loop {
            let rest = self.rests_until.saturating_sub(self.now());
            let patience = match is_busy {
                true => Duration::ZERO,
                false if self.has_more => rest,
                false if self.waits_for_successor() => PAUSE,
                false => IDLE,
            };
            self.words.wait(Some(patience));
            self.gather();
            self.words.take(&mut words);
            for word in words.drain(..) {
                if matches!(word, Word::Stop) {
                    self.disconnect();
                    return;
                }
                self.hear(word);
            }
            if self.ways.is_empty() && self.left.is_empty() {
                self.disconnect();
                is_busy = false;
                continue;
            }
            is_busy = match self.turn() {
                Ok(is_busy) => is_busy,
                Err(error) => {
                    tracing::info!(to = self.to, %error, "the connection to the successor is lost");
                    self.disconnect();
                    false
                }
            };
            self.report_silence();
        }
    }

    fn now(&self) -> Duration {
        self.shared.clock.monotonic()
    }

    /// Waits for more frames where nothing waits for any.
    fn gather(&mut self) {
        if self.ways.values().any(|way| way.of.is_awaited) {
            return;
        }
        thread::sleep(GATHERING.saturating_sub(self.now().saturating_sub(self.gathered)));
        self.gathered = self.now();
    }

    fn disconnect(&mut self) {
        if let Some((_, stream)) = self.connection.take() {
            // The reading thread ends with it.
            _ = stream.shutdown(std::net::Shutdown::Both);
        }
        self.feed = None;
        self.copy = None;
        self.has_more = false;
        for way in self.ways.values_mut() {
            way.state = State::Closed(Duration::ZERO);
        }
    }

    fn hear(&mut self, word: Word) {
        let now = self.now();
        match word {
            Word::Chains(chains) => self.take_chains(chains),
            Word::Left(left) => self.take_left(left),
            Word::Frames | Word::Stop => {}
            Word::Opened(partition, since, is_whole, committed, position) => {
                if self.is_current(partition, since) {
                    let state = self.opened(partition, since, is_whole, committed, &position);
                    self.set(partition, state);
                }
            }
            Word::Copied(partition, since, number) if self.is_current(partition, since) => {
                self.set(partition, self.after(partition, number + 1));
            }
            Word::Refused(partition, since) if self.is_current(partition, since) => {
                if self
                    .copy
                    .as_ref()
                    .is_some_and(|(copy, _)| copy.partition == partition)
                {
                    self.copy = None;
                }
                self.set(partition, State::Closed(now + PAUSE));
            }
            Word::Copied(..) | Word::Refused(..) => {}
            Word::Broken(number, why) if number == self.number => {
                self.disconnect();
                self.fail(why);
            }
            Word::Greeted(number) if number == self.number => {
                self.failing = None;
                self.failure.clear();
            }
            Word::Refusing => {
                self.connects_from = now + self.shared.lease / 8;
                let recent = self.refusing.filter(|(_, last)| !self.is_long_ago(*last));
                self.refusing = Some((recent.map_or(now, |(since, _)| since), now));
            }
            Word::Broken(..) | Word::Greeted(_) => {}
        }
    }

    /// True if the successor has to be asked again soon.
    fn waits_for_successor(&self) -> bool {
        let is_closed = |way: &Way| matches!(way.state, State::Closed(_));
        self.ways.values().any(is_closed)
    }

    fn is_current(&self, partition: u8, since: u64) -> bool {
        self.ways
            .get(&partition)
            .is_some_and(|way| way.of.since == since)
    }

    fn set(&mut self, partition: u8, state: State) {
        if let Some(way) = self.ways.get_mut(&partition) {
            let was_feeding = matches!(way.state, State::Feeding(_));
            if matches!(state, State::Feeding(_)) && !was_feeding {
                // It may need an older part of the log than the others.
                self.feed = None;
            }
            way.state = state;
        }
    }

    fn take_chains(&mut self, chains: BTreeMap<u8, Carried>) {
        self.ways
            .retain(|partition, _| chains.contains_key(partition));
        for (partition, of) in chains {
            if let Some(way) = self.ways.get_mut(&partition) {
                if way.of.since == of.since {
                    way.of = of;
                    continue;
                }
            }
            let state = State::Closed(Duration::ZERO);
            let own = (Position::default(), 0);
            self.ways.insert(partition, Way { of, own, state });
            let is_copied = |(copy, _): &(Copy, u64)| copy.partition == partition;
            if self.copy.as_ref().is_some_and(is_copied) {
                self.copy = None;
            }
        }
    }

    fn opened(
        &mut self,
        partition: u8,
        since: u64,
        is_whole: bool,
        committed: u64,
        theirs: &Position,
    ) -> State {
        let own = match self.shared.history.record(partition) {
            Ok(record) => record.position,
            Err(error) => {
                tracing::error!(%error, partition, "no position of this node's own copy");
                return State::Closed(self.now() + PAUSE);
            }
        };
        if let Some(way) = self.ways.get_mut(&partition) {
            way.own = (own.clone(), way.of.head_since);
        }
        let resume = match is_whole {
            true => own.resume(theirs),
            false => Resume::Copy,
        };
        match resume {
            Resume::From(next) => {
                self.say(ChainEvent::Acked {
                    partition,
                    since,
                    number: committed,
                });
                self.after(partition, next)
            }
            Resume::Copy => {
                tracing::info!(partition, to = self.to, ?theirs, ?own, "other batches");
                self.report_discarded(partition, is_whole, &own, theirs);
                self.needs_copy(partition)
            }
        }
    }

    /// A copy takes the place of batches that the chain went on without: on an `async` or
    /// `local` chain clients may have been answered that they are written.
    fn report_discarded(&self, partition: u8, is_whole: bool, own: &Position, theirs: &Position) {
        if !is_whole {
            return;
        }
        let Some(last) = own.last_in_common(theirs) else {
            tracing::warn!(partition, of = self.to, "discards a copy of unknown age");
            return;
        };
        let batches = theirs.number.saturating_sub(last);
        if batches > 0 {
            tracing::warn!(
                partition,
                of = self.to,
                batches,
                "discards batches that the chain went on without"
            );
            self.say(ChainEvent::Discarded(batches));
        }
    }

    /// The successor cannot be brought up by batches. One that serves counts as whole, and is
    /// never copied over: first the controller has to take it for what it is.
    fn needs_copy(&self, partition: u8) -> State {
        match self.ways.get(&partition) {
            Some(way) if way.of.is_serving => {
                tracing::error!(
                    partition,
                    to = self.to,
                    "a member that serves lacks batches"
                );
                self.accuse(partition, way.of.epoch);
                State::Closed(self.now() + self.shared.lease)
            }
            _ => State::Copying,
        }
    }

    /// How a successor gets the batches from a number on.
    fn after(&self, partition: u8, next: u64) -> State {
        match self.shared.window.pull(partition, next, 0) {
            Pulled::Frames(frames) if !frames.is_empty() => State::Following(next, false),
            _ => State::Feeding(next),
        }
    }

    fn say(&self, event: ChainEvent) {
        self.shared.inbox.send([Event::Chain(event)]);
    }

    /// Sends what there is to send; true if there is more.
    fn turn(&mut self) -> Result<bool, Lost> {
        if self.connection.is_none() {
            if self.now() < self.connects_from {
                return Ok(false);
            }
            if let Err(error) = self.connect() {
                self.fail(error.to_string());
                return Ok(false);
            }
        }
        let now = self.now();
        let mut is_busy = false;
        let partitions: Vec<u8> = self.ways.keys().copied().collect();
        for partition in &partitions {
            let way = &self.ways[partition];
            match way.state {
                State::Closed(not_before) if not_before <= now => {
                    self.request(b"OPEN", *partition, way.of.since, &[]);
                    self.set(*partition, State::Opening);
                }
                State::Following(next, is_told) => {
                    is_busy |= self.follow(*partition, next, is_told)
                }
                _ => {}
            }
        }
        self.ask_of_left(now);
        let brings_up = self.rests_until <= now;
        if brings_up {
            self.has_more = self.feed() | self.copy();
        }
        if now.saturating_sub(self.pinged) > self.shared.lease / 4 {
            self.pinged = now;
            if let Some((connection, _)) = &mut self.connection {
                connection.push(&[b"PING"]);
            }
        }
        if let Some((connection, _)) = &mut self.connection {
            connection.flush()?;
        }
        if brings_up && self.has_more {
            let ended = self.now();
            self.rests_until = ended + ended.saturating_sub(now);
        }
        Ok(is_busy)
    }

    fn connect(&mut self) -> Result<(), Lost> {
        let stream = cambium_foreign::redis::connect_tcp(&self.address, self.shared.lease / 2)?;
        stream.set_nodelay(true)?;
        let (reading, mut connection) = match &self.shared.tls {
            None => (
                Connection::over(stream.try_clone()?, MOST_ANSWER_BYTES),
                Connection::over(stream.try_clone()?, MOST_ANSWER_BYTES),
            ),
            Some(tls) => {
                let (reading, writing) =
                    secured::open(tls, &self.address, &stream, self.shared.lease / 2)?;
                (
                    Connection::over(reading, MOST_ANSWER_BYTES),
                    Connection::over(writing, MOST_ANSWER_BYTES),
                )
            }
        };
        stream.set_read_timeout(Some(self.shared.lease * 2))?;
        stream.set_write_timeout(Some(self.shared.lease * 2))?;
        if let Some(password) = &self.shared.password {
            connection.push(&[b"AUTH", password.as_bytes()]);
        }
        let (cluster, me) = (self.shared.cluster.clone(), self.shared.me.clone());
        connection.push(&[
            b"CAMBIUM.CHAIN",
            b"HELLO",
            cluster.as_bytes(),
            me.as_bytes(),
        ]);
        self.number += 1;
        let (number, words, inbox) = (self.number, self.words.clone(), self.shared.inbox.clone());
        let (to, answers) = (
            self.to.clone(),
            1 + usize::from(self.shared.password.is_some()),
        );
        thread::Builder::new()
            .name(format!("from {to}"))
            .spawn(move || read(reading, answers, number, &words, &inbox))?;
        self.connection = Some((connection, stream));
        Ok(())
    }

    /// Sends a request about a partition; `number` is a `since` or an epoch.
    fn request(&mut self, word: &[u8], partition: u8, number: u64, rest: &[&[u8]]) {
        if let Some((connection, _)) = &mut self.connection {
            let (place, number) = (partition.to_string(), number.to_string());
            let mut all = vec![b"CAMBIUM.CHAIN", word, place.as_bytes(), number.as_bytes()];
            all.extend(rest);
            connection.push(&all);
        }
    }

    fn append(&mut self, frame: &Frame) {
        if let Some(way) = self.ways.get(&frame.partition) {
            self.request(b"APPEND", frame.partition, way.of.since, &[&frame.bytes]);
        }
    }

    /// Partitions that the feed brings up, and the number that each needs next.
    fn feeding(&self) -> Vec<(u8, u64)> {
        let next = |(partition, way): (&u8, &Way)| match way.state {
            State::Feeding(next) => Some((*partition, next)),
            _ => None,
        };
        self.ways.iter().filter_map(next).collect()
    }

    fn follow(&mut self, partition: u8, next: u64, is_told: bool) -> bool {
        let frames = match self.shared.window.pull(partition, next, TURN_BYTES) {
            Pulled::Frames(frames) => frames,
            Pulled::Gone => {
                self.set(partition, State::Feeding(next));
                return true;
            }
        };
        let Some(last) = frames.last().map(|frame| frame.numbers.1) else {
            if !is_told {
                let since = self.ways[&partition].of.since;
                self.say(ChainEvent::CaughtUp { partition, since });
                self.set(partition, State::Following(next, true));
            }
            return false;
        };
        frames.iter().for_each(|frame| self.append(frame));
        self.set(partition, State::Following(last + 1, is_told));
        true
    }
}
