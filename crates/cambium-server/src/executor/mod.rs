//! Runs commands.
//!
//! The executor takes everything that has arrived, runs it in order, and writes what all of
//! it changed as one batch: a *round*. Answers leave behind the batch. With durability
//! `synced` those that depend on the round go through the syncer, and leave behind the sync.
//!
//! One thread at a time runs commands, so a command sees the writes of those before it, and
//! MULTI needs no locks. What takes long runs on helper threads, and only its client waits.
//!
//! The network thread runs a round itself, without handing it over. If rounds take long, as
//! where they read the disk, it leaves them for some time to the executor's own thread, and
//! goes on with its sockets. That thread also runs what comes from elsewhere, and what is due.

pub mod called;
pub mod chaining;
pub mod jobs;
pub mod pubsub;
pub mod server;
pub mod session;
pub mod syncer;

use std::sync::Arc;
use std::time::Duration;

use cambium::{Error, Store, Value};
use cambium_io::sync::Mutex;

use crate::clock::now_millis;
use crate::cluster::chains::Answered;
use crate::commands::WRITE_FAILED;
use crate::keyspace::expiring::{COMMANDS_A_KEY, MOST_EXPIRED_A_STEP};
use crate::mailbox::Mailbox;
use crate::messages::{Event, Handle, Input, Next, Output, Waiter};
use crate::network::Outbox;
use called::Called;
use jobs::{Jobs, Work};
use server::{MOST_FETCHES, Server};
use session::{Answers, Session};
use syncer::{Held, Round, Syncing};

/// Bytes of pending writes from which on a round is written before it ends.
const MOST_PENDING_BYTES: usize = 8 << 20;
/// Bytes of answers from which on a client has to read before its next commands run.
const MOST_ANSWER_BYTES: usize = 1 << 20;
/// Keys of a client from which on it gets a fetch of its own.
const MOST_KEYS_OF_SHORT_FETCH: usize = 256;
/// Keys of a fetch whose values are read together: more than the queue of a device takes.
const KEYS_READ_TOGETHER: usize = 4096;
/// Bytes that a fetch may bring. The executor itself reads what a command lacks then.
const MOST_FETCHED_BYTES: usize = 256 << 20;
/// Values of a fetch that are shorter are copied.
const LEAST_SHARED_BYTES: usize = 1 << 10;
/// Longest time between two looks for keys that have expired.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(100);
/// A round that takes longer has probably waited for the disk, and not for a processor.
const SLOW_ROUND: Duration = Duration::from_millis(20);
/// How long the network thread then leaves rounds to the executor's thread.
const SLOW_SPELL: Duration = Duration::from_millis(100);

/// Runs commands.
pub struct Executor {
    /// What they work on.
    pub server: Server,
    /// From the network and the helper threads.
    pub inbox: Arc<Mailbox<Event>>,
    /// To the network.
    pub outbox: Arc<Outbox>,
    /// With durability `synced`.
    pub syncing: Option<Syncing>,
    /// The helper threads.
    pub jobs: Jobs,
    /// The requests that a round has taken from the inbox; empty between rounds.
    pub events: Vec<Event>,
    /// Until then rounds are left to the executor's own thread.
    pub slow_until: Duration,
    /// The executor's own thread looks again by itself.
    pub is_timed: bool,
}

/// The thread of the executor: runs rounds until the server stops; closes nothing.
pub fn run(executor: &Mutex<Executor>, inbox: &Mailbox<Event>) {
    // A round that panics on the network thread poisons the lock, and the server ends.
    let Ok(mut patience) = executor.lock().map(|mut executor| executor.patience()) else {
        return;
    };
    loop {
        inbox.wait(patience);
        let Ok(mut executor) = executor.lock() else {
            return;
        };
        if executor.round() {
            return executor.stop();
        }
        patience = executor.patience();
    }
}

impl Executor {
    /// The network thread runs a round, unless rounds are slow: then false.
    pub fn run_inline(&mut self, events: &mut Vec<Event>) -> bool {
        if self.server.environment.clock.monotonic() < self.slow_until {
            return false;
        }
        self.inbox.put(events.drain(..));
        self.round();
        if !self.is_timed && self.patience().is_some() {
            // The executor's thread waits without an end: it has to look at the time now.
            self.inbox.send([Event::Timed]);
        }
        true
    }

    /// Runs everything that has arrived; true if the server is to stop.
    fn round(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.events);
        let mut is_over = false;
        self.inbox.take(&mut events);
        self.server.keyspace.now = now_millis();
        self.server.round_begun = self.server.environment.clock.monotonic();
        self.begin_round();
        let commands = self.server.statistics.commands;
        for event in events.drain(..) {
            is_over |= matches!(event, Event::Stop);
            self.take(event);
            if self.server.keyspace.pending_bytes() > MOST_PENDING_BYTES {
                _ = self.commit();
            }
        }
        self.events = events;
        if is_over {
            self.finish_fetches();
        }
        self.expire(commands);
        if self.commit().is_err_and(|error| error.is_no_space()) {
            // Expired keys give a full store room, and were refused with the round's writes.
            self.expire(commands);
            _ = self.commit();
        }
        self.settle();
        self.answer();
        self.start_jobs();
        if self.server.is_stopping && self.step_down() {
            self.server.is_stopping = false;
            self.outbox.stop();
        }
        is_over
    }

    fn stop(&mut self) {
        if let Some(syncing) = &self.syncing {
            syncing.held.send([Held::Over]);
        }
        if let Some(chains) = &mut self.server.chains {
            chains.stop();
        }
        self.server.keyspace.store().cancel();
        self.jobs.stop();
    }

    /// How long nothing may arrive before keys that expire are looked for.
    fn patience(&mut self) -> Option<Duration> {
        let chains = self
            .server
            .chains
            .as_ref()
            .map(|_| chaining::CHAIN_PATIENCE);
        let patience = match (self.until_expiry(), chains) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.is_timed = patience.is_some();
        patience
    }

    fn until_expiry(&self) -> Option<Duration> {
        let next = self
            .server
            .keyspace
            .next_expiry()
            .filter(|_| self.server.expires_actively)?;
        let wait = Duration::from_millis(next.saturating_sub(now_millis()));
        // Until then at least, so that clients that come without a break do not hold it up.
        Some(wait.clamp(Duration::from_millis(1), EXPIRY_INTERVAL))
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Opened {
                handle,
                peer,
                local,
                certificate,
            } => {
                let is_stranger = self.server.settings.password().is_some();
                let mut session =
                    Session::new(handle, peer, local, is_stranger, self.server.keyspace.now);
                session.certificate = certificate;
                let place = handle.slot as usize;
                if self.server.sessions.len() <= place {
                    self.server.sessions.resize_with(place + 1, || None);
                }
                self.server.sessions[place] = Some(Box::new(session));
                self.server.statistics.connections += 1;
            }
            Event::Commands(handle, input) => self.run_input(handle, input),
            Event::Finished(handle, answer) => {
                let Some(session) = self.session(handle) else {
                    return;
                };
                let job = session.job.take();
                if session.answers != Answers::Off {
                    session.reply.bytes.extend_from_slice(&answer);
                }
                let rest = session.waiting.take();
                if let Some((command, begun)) = job {
                    let time = self.server.round_begun.saturating_sub(begun);
                    self.server.metrics.record_one(command, time, 1);
                }
                self.run_input(handle, rest.unwrap_or_default());
            }
            Event::Fetched(fetch, waiters, values) => {
                let is_whole = values.iter().all(|(_, value)| value.is_ok());
                self.server.keyspace.end_fetch(fetch, values);
                for waiter in waiters {
                    match waiter {
                        Waiter::Client(handle) => {
                            let input = self.session(handle).and_then(|session| {
                                if !is_whole {
                                    // Another fetch would not bring more.
                                    session.fetches = MOST_FETCHES;
                                }
                                session.waiting.take()
                            });
                            self.run_input(handle, input.unwrap_or_default());
                        }
                        Waiter::Call(call, sender) => self.server.call(call, sender),
                    }
                }
                self.server.keyspace.forget_fetched();
            }
            Event::Closed(handle) => {
                if let Some(mut session) = self.take_session(handle) {
                    crate::commands::unwatch_all(&mut self.server, &mut session);
                    self.server.pubsub.forget(&mut session);
                }
            }
            Event::Refused => {
                let refused = &mut self.server.statistics.refused;
                *refused += 1;
                // Told each time that the number has doubled.
                if refused.is_power_of_two() {
                    tracing::warn!(
                        refused,
                        "clients are refused: there are maxclients, or too few descriptors are left"
                    );
                }
            }
            Event::Call(call, sender) => {
                self.server.call_or_fetch(call, sender);
            }
            // The HTTP port may have stopped waiting.
            Event::Report(asker) => _ = asker.send(self.server.report()),
            Event::Chain(event) => self.take_chain(event),
            Event::Synced(round) => self.take_synced(round),
            Event::StepDown => self.server.is_stopping = true,
            Event::Timed | Event::Stop => {}
        }
    }

    fn session(&mut self, handle: Handle) -> Option<&mut Box<Session>> {
        let session = self.server.sessions.get_mut(handle.slot as usize)?.as_mut();
        session.filter(|session| session.handle == handle)
    }

    fn take_session(&mut self, handle: Handle) -> Option<Box<Session>> {
        self.session(handle)?;
        self.server.sessions.get_mut(handle.slot as usize)?.take()
    }

    /// Runs the commands of a client, up to one that a helper thread answers, or as many as
    /// it may have unread answers of.
    fn run_input(&mut self, handle: Handle, mut input: Input) {
        let Some(mut session) = self.take_session(handle) else {
            return;
        };
        while let Some(arguments) = input.commands.arguments(&input.buffer, input.next) {
            if session.is_closing() {
                break;
            }
            if session.reply.bytes.len() > MOST_ANSWER_BYTES {
                session.next = Some(Next::Resume(input));
                return self.put_back(session);
            }
            input.next += 1;
            let jobs = self.server.jobs.len();
            if let Some(missing) = self.server.execute(&mut session, arguments) {
                input.next -= 1;
                self.server.fetch(&mut session, &input, missing);
                session.waiting = Some(input);
                return self.put_back(session);
            }
            session.fetched = Vec::new();
            session.fetches = 0;
            if self.server.jobs.len() > jobs {
                session.waiting = Some(input);
                return self.put_back(session);
            }
            if self.server.keyspace.pending_bytes() > MOST_PENDING_BYTES {
                self.put_back(session);
                _ = self.commit();
                let Some(same) = self.take_session(handle) else {
                    return;
                };
                session = same;
            }
        }
        if let Some(violation) = input.violation.filter(|_| !session.is_closing()) {
            session
                .reply
                .error(&format!("ERR Protocol error: {violation}"));
            session.next = Some(Next::Close);
        }
        session.spent = Some(input.buffer);
        session.next.get_or_insert(Next::Read);
        self.put_back(session);
    }

    fn put_back(&mut self, mut session: Box<Session>) {
        self.server.list(&mut session);
        let place = session.handle.slot as usize;
        self.server.sessions[place] = Some(session);
    }

    /// Deletes some expired keys, few beside clients: `commands` were counted before this round.
    fn expire(&mut self, commands: u64) {
        if !self.server.expires_actively {
            return;
        }
        // An error of the store shows again when a client reads or writes.
        let commands = self.server.statistics.commands.saturating_sub(commands) as usize;
        let step = match commands {
            0 => MOST_EXPIRED_A_STEP,
            _ => commands.div_ceil(COMMANDS_A_KEY),
        };
        _ = self.server.keyspace.expire_step(step);
        self.server.deliver_expired();
    }

    /// Writes the round. If that fails, the answers that depend on it become errors.
    fn commit(&mut self) -> cambium::Result<()> {
        let synced = self.syncing.as_ref().map_or(0, Syncing::synced);
        let server = &mut self.server;
        let begun = (!server.keyspace.is_committed()).then(|| server.environment.clock.monotonic());
        let is_written = self.server.keyspace.commit(self.server.round, synced);
        if let Some(begun) = begun {
            let time = self.server.environment.clock.monotonic() - begun;
            let metrics = &self.server.metrics;
            metrics.commits.record(time, 1);
            metrics.write_ended(is_written.as_ref().err());
            self.server.room.look();
        }
        for called in &mut self.server.called {
            called.settle(&is_written);
        }
        for place in &self.server.listed {
            let Some(Some(session)) = self.server.sessions.get_mut(*place as usize) else {
                continue;
            };
            match &is_written {
                Ok(()) => session.pending.clear(),
                Err(error) => {
                    session.replace_pending(&failed(error));
                    session.needs.clear();
                }
            }
        }
        match is_written {
            Ok(()) => self.hand_on(),
            Err(_) => self.refuse_predecessors(),
        }
        self.server.round += 1;
        is_written
    }

    /// Hands answers to the network, or to the syncer those that wait for a sync.
    fn answer(&mut self) {
        let (mut ready, mut held) = (Vec::new(), Vec::new());
        let synced = self.syncing.as_ref().map(Syncing::synced);
        for place in std::mem::take(&mut self.server.listed) {
            let Some(Some(session)) = self.server.sessions.get_mut(place as usize) else {
                continue;
            };
            session.is_listed = false;
            let output = Output {
                handle: session.handle,
                bytes: std::mem::take(&mut session.reply.bytes),
                spent: session.spent.take(),
                next: session.next.take().unwrap_or(Next::More),
                is_stranger: session.is_stranger,
                is_subscriber: session.subscriptions() > 0,
            };
            let (needs, waits_for) = (std::mem::take(&mut session.needs), session.waits_for);
            match synced {
                _ if self.server.chains.is_some() => {
                    match self.hold(needs, Answered::Client(output)) {
                        Some(Answered::Client(output)) => ready.push(output),
                        Some(Answered::Call(_)) | None => {}
                    }
                }
                Some(synced) if waits_for > synced => held.push(output),
                _ => ready.push(output),
            }
        }
        if self.server.chains.is_some() {
            for mut called in std::mem::take(&mut self.server.called) {
                let needs = called.needs.take().into_iter().collect();
                match self.hold(needs, Answered::Call(called)) {
                    Some(Answered::Call(called)) => called.send(&Ok(())),
                    Some(Answered::Client(_)) | None => {}
                }
            }
        }
        let server = &mut self.server;
        let waits = |called: &Called| synced.is_some_and(|synced| called.waits_for > synced);
        let (called, answered): (Vec<Called>, Vec<Called>) =
            server.called.drain(..).partition(waits);
        for called in answered {
            called.send(&Ok(()));
        }
        let is_empty = held.is_empty() && called.is_empty();
        if let (Some(syncing), false) = (&self.syncing, is_empty) {
            let round = Round {
                number: server.round - 1,
                answers: held,
                called,
                calls: server.calls.take_writes(),
                begun: server.round_begun,
            };
            syncing.held.send([Held::Round(round)]);
        }
        let ended = server.environment.clock.monotonic();
        let time = ended - server.round_begun;
        if time > SLOW_ROUND {
            self.slow_until = ended + SLOW_SPELL;
        }
        server.metrics.record(&server.calls, time);
        server.calls.clear();
        self.outbox.send(ready);
    }

    /// Jobs begin behind the batch, so that they see the writes before them.
    fn start_jobs(&mut self) {
        for (handle, is_resp3, work, job) in self.server.jobs.drain(..) {
            let task = move || Event::Finished(handle, jobs::answer(job, is_resp3));
            self.jobs.give(work, Box::new(task));
        }
        self.start_fetches();
    }

    /// The server stops: what waits for values reads them itself.
    fn finish_fetches(&mut self) {
        self.server.may_fetch = false;
        for (waiter, _) in std::mem::take(&mut self.server.fetches) {
            if let Waiter::Call(call, sender) = waiter {
                self.server.call(call, sender);
            }
        }
        for place in 0..self.server.sessions.len() {
            let session = self.server.sessions[place].as_mut();
            let waiting = session
                .filter(|session| session.job.is_none())
                .and_then(|session| Some((session.handle, session.waiting.take()?)));
            if let Some((handle, input)) = waiting {
                self.run_input(handle, input);
            }
        }
    }

    /// One fetch reads what the clients of the round lack; a client that lacks much gets one of
    /// its own, on other threads, so that the others do not wait for it.
    fn start_fetches(&mut self) {
        let fetches = std::mem::take(&mut self.server.fetches);
        let (long, short): (Vec<_>, Vec<_>) = fetches
            .into_iter()
            .partition(|(_, keys)| keys.len() > MOST_KEYS_OF_SHORT_FETCH);
        for fetch in long {
            self.start_fetch(Work::Walk, vec![fetch]);
        }
        if !short.is_empty() {
            self.start_fetch(Work::Fetch, short);
        }
    }

    fn start_fetch(&mut self, work: Work, fetches: Vec<(Waiter, Vec<Vec<u8>>)>) {
        let (waiters, keys): (Vec<Waiter>, Vec<Vec<Vec<u8>>>) = fetches.into_iter().unzip();
        let mut keys: Vec<Vec<u8>> = keys.into_iter().flatten().collect();
        keys.sort_unstable();
        keys.dedup();
        let keyspace = &mut self.server.keyspace;
        let (fetch, store) = (keyspace.begin_fetch(&keys), keyspace.store().clone());
        let server = &self.server;
        let (metrics, clock) = (server.metrics.clone(), server.environment.clock.clone());
        let task = move || {
            let begun = clock.monotonic();
            let values = read_values(&store, &keys);
            let time = clock.monotonic() - begun;
            metrics.fetches.record(time, keys.len() as u64);
            Event::Fetched(fetch, waiters, keys.into_iter().zip(values).collect())
        };
        self.jobs.give(work, Box::new(task));
    }
}

/// Reads values for one fetch, up to [`MOST_FETCHED_BYTES`].
fn read_values(store: &Store, keys: &[Vec<u8>]) -> Vec<cambium::Result<Option<Value>>> {
    let mut values = Vec::with_capacity(keys.len());
    let mut bytes = 0;
    for part in keys.chunks(KEYS_READ_TOGETHER) {
        let wanted: Vec<&[u8]> = part.iter().map(Vec::as_slice).collect();
        let read = match bytes < MOST_FETCHED_BYTES {
            true => store.multi_get(&wanted),
            false => Err(Error::LimitExceeded(format!(
                "a command whose values take more than {MOST_FETCHED_BYTES} bytes"
            ))),
        };
        match read {
            Ok(read) => {
                let lengths = read.iter().flatten().map(|value| value.len());
                bytes += lengths.sum::<usize>();
                values.extend(read.into_iter().map(|value| Ok(value.map(alone))));
            }
            Err(error) => values.extend(part.iter().map(|_| Err(error.clone()))),
        }
    }
    values
}

/// A small value without the block that it was read with.
fn alone(value: Value) -> Value {
    match value.len() < LEAST_SHARED_BYTES {
        true => Value::copy_of(&value),
        false => value,
    }
}

fn failed(error: &Error) -> String {
    match error {
        Error::LimitExceeded(text) => format!("ERR {text}"),
        Error::NoSpace { .. } => format!("{WRITE_FAILED}No space left on device"),
        error => format!("{WRITE_FAILED}{error}"),
    }
}
