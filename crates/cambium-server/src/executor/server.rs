//! What commands work on, beside the client that sent them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cambium_io::Environment;
use cambium_io::sync::atomic::Ordering;

use super::called::Called;
use super::jobs::{Job, Work};
use super::pubsub::PubSub;
use super::session::{Answers, Session};
use crate::cluster::chains::Chains;
use crate::commands::{self, Call, Command, Failure, Outcome, READ, UNQUEUED, WRITE, WRITE_FAILED};
use crate::keyspace::{Footprint, Keyspace, layout};
use crate::messages::{Handle, Input, Next, Report, Waiter};
use crate::metrics::{Calls, Metrics};
use crate::resp::{Arguments, OwnedArguments};
use crate::room::Room;
use crate::settings::Settings;

/// Memory that the queue of one transaction may take.
const MOST_QUEUED_BYTES: usize = 1 << 30;

/// How often a command may run again: then it waits for the device.
pub const MOST_FETCHES: usize = 8;
/// Commands of a pipeline behind the one that lacks values, and keys of each, whose values are
/// fetched with those.
const MOST_FETCHED_AHEAD: usize = 16;

/// Counters of INFO.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Connections that were made.
    pub connections: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Connections that sent HTTP, and were cut.
    pub http_requests: u64,
    /// Commands that ran.
    pub commands: u64,
    /// Commands that answered an error.
    pub errors: u64,
}

/// The state of the executor.
pub struct Server {
    /// Clock and random numbers.
    pub environment: Environment,
    /// The databases.
    pub keyspace: Keyspace,
    /// In a cluster.
    pub chains: Option<Chains>,
    /// Watches the free space of the disk.
    pub room: Room,
    /// Clients, by the places of their connections. The one whose command runs is not here.
    pub sessions: Vec<Option<Box<Session>>>,
    /// Who listens to what.
    pub pubsub: PubSub,
    /// CONFIG.
    pub settings: Settings,
    /// Counters of INFO.
    pub statistics: Counters,
    /// Counters of `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Calls of this round whose answers have not left.
    pub calls: Calls,
    /// When this round began, by the monotonic clock.
    pub round_begun: Duration,
    /// Places of clients that have something to be sent.
    pub listed: Vec<u32>,
    /// Answers of Thrift calls of this round.
    pub called: Vec<Called>,
    /// Jobs that begin when the round is written.
    pub jobs: Vec<(Handle, bool, Work, Job)>,
    /// Clients and calls that wait for values, with the keys of those.
    pub fetches: Vec<(Waiter, Vec<Vec<u8>>)>,
    /// The round: the number of the batch that is collected.
    pub round: u64,
    /// Names this run of the server.
    pub run_id: String,
    /// Milliseconds since 1970 when it started.
    pub started: u64,
    /// How safe writes are when they are answered.
    pub durability: &'static str,
    /// Where backups go.
    pub backups: Option<PathBuf>,
    /// Expired keys are deleted in the background.
    pub expires_actively: bool,
    /// Commands may wait for values that threads fetch.
    pub may_fetch: bool,
    /// The keys of the values that the command under way lacks.
    pub missing: Option<Vec<Vec<u8>>>,
    /// The server is to stop.
    pub is_stopping: bool,
}

impl Server {
    /// A random number.
    pub fn random(&self) -> u64 {
        self.environment.randomness.next_u64()
    }

    /// Counters begin at 0 again.
    pub fn reset_statistics(&mut self) {
        self.statistics = Counters::default();
        self.keyspace.hits = (0, 0);
        self.keyspace.expired = 0;
    }

    /// The client at a place has something to be sent.
    pub fn list(&mut self, session: &mut Session) {
        if !session.is_listed {
            session.is_listed = true;
            self.listed.push(session.handle.slot);
        }
    }

    /// Ends the connections of all clients that are meant, and says how many. Answers that
    /// they have not read go first.
    pub fn end_sessions(&mut self, is_meant: &dyn Fn(&Session) -> bool) -> i64 {
        let mut ended = 0;
        for session in self.sessions.iter_mut().flatten() {
            if is_meant(session) && !session.is_closing() {
                session.next = Some(Next::Close);
                ended += 1;
                if !session.is_listed {
                    session.is_listed = true;
                    self.listed.push(session.handle.slot);
                }
            }
        }
        ended
    }

    /// The state of the server at this moment.
    pub fn report(&self) -> Report {
        let databases = 0..self.settings.databases() as u8;
        Report {
            cluster: self.chain_status(),
            store: self.keyspace.store().clone(),
            password: self.settings.password().map(str::to_string),
            databases: match &self.chains {
                Some(_) => vec![self.keyspace.count_all()],
                None => databases
                    .map(|number| self.keyspace.count(number))
                    .collect(),
            },
            clients: self.sessions.iter().flatten().count(),
            connections: self.statistics.connections,
            refused: self.statistics.refused,
            hits: self.keyspace.hits.0,
            misses: self.keyspace.hits.1,
            expired: self.keyspace.expired,
            uptime_seconds: self.keyspace.now.saturating_sub(self.started) / 1000,
        }
    }

    /// Runs one command of a client, or queues it. Answers the keys whose values have to be
    /// fetched first, if any: the command has done nothing then, and runs again.
    pub fn execute(
        &mut self,
        session: &mut Session,
        arguments: Arguments<'_>,
    ) -> Option<Vec<Vec<u8>>> {
        session.active = self.keyspace.now;
        self.statistics.commands += 1;
        let from = session.reply.bytes.len();
        self.keyspace.footprint = Footprint::default();
        let answers = session.answers;
        let hits = self.keyspace.hits;
        let outcome = self.admit_and_run(session, arguments);
        if let Some(missing) = self.missing.take() {
            session.reply.bytes.truncate(from);
            self.statistics.commands -= 1;
            self.keyspace.hits = hits;
            self.keyspace.notices.take();
            return Some(missing);
        }
        if outcome.is_err() && commands::is_of_http(&arguments[0]) {
            session.reply.bytes.truncate(from);
            session.next = Some(Next::Close);
            let requests = &mut self.statistics.http_requests;
            *requests += 1;
            // Told each time that the number has doubled.
            if requests.is_power_of_two() {
                let peer = &session.peer;
                tracing::warn!(
                    requests,
                    peer,
                    "HTTP requests to the port of Redis are cut off"
                );
            }
            return None;
        }
        if let Err(failure) = outcome {
            session.reply.bytes.truncate(from);
            session.reply.error(&failure.text());
            self.statistics.errors += 1;
        }
        match (answers, session.answers) {
            // Confirmations of subscriptions are messages, and no answers.
            _ if session.last_command.ends_with("subscribe") => {}
            // CLIENT REPLY SKIP is about the command behind it.
            (Answers::SkipNext, Answers::SkipNext) => {
                session.reply.bytes.truncate(from);
                session.answers = Answers::On;
            }
            (_, Answers::Off) => session.reply.bytes.truncate(from),
            _ => {}
        }
        self.note_footprint(session, from);
        self.deliver(session);
        None
    }

    /// The commands of a client from `input.next` on wait for values. Values of those behind the
    /// first are fetched together with its own.
    pub fn fetch(&mut self, session: &mut Session, input: &Input, missing: Vec<Vec<u8>>) {
        session.fetches += 1;
        session.fetched.extend(missing);
        let mut keys = session.fetched.clone();
        let behind =
            (input.next..).map_while(|place| input.commands.arguments(&input.buffer, place));
        for arguments in behind.take(MOST_FETCHED_AHEAD) {
            let command = commands::find(&arguments[0]);
            for key in command
                .filter(|command| command.flags & READ != 0)
                .into_iter()
                .flat_map(|command| command.keys_of(arguments))
                .take(MOST_FETCHED_AHEAD)
            {
                keys.push(layout::entry_key(session.database, key));
            }
        }
        self.fetches.push((Waiter::Client(session.handle), keys));
    }

    fn admit_and_run(&mut self, session: &mut Session, arguments: Arguments<'_>) -> Outcome {
        let admitted = commands::admit(arguments, session);
        let command = match admitted.and_then(|command| self.find_room(command)) {
            Ok(command) => command,
            Err(failure) => {
                self.metrics.rejected.fetch_add(1, Ordering::Relaxed);
                if arguments[0].eq_ignore_ascii_case(b"exec") {
                    return Err(commands::abort(self, session, &failure));
                }
                if let Some(queue) = &mut session.queue {
                    queue.is_aborted = true;
                }
                return Err(failure);
            }
        };
        if let Err(failure) = self.route(session, command, arguments) {
            if let Some(queue) = &mut session.queue {
                queue.is_aborted = true;
            }
            return Err(failure);
        }
        session.last_command = command.name;
        if let Some(queue) = &mut session.queue {
            if command.flags & UNQUEUED == 0 {
                let kept = OwnedArguments::copy_from(arguments, 0);
                queue.bytes += kept.bytes();
                if queue.bytes > MOST_QUEUED_BYTES {
                    queue.is_aborted = true;
                    queue.commands = Vec::new();
                    return Err(commands::Failure::Known(
                        "OOM command not allowed when used memory > 'maxmemory'.",
                    ));
                }
                queue.commands.push(kept);
                session.reply.simple("QUEUED");
                return Ok(());
            }
        }
        let mut call = Call {
            server: self,
            session,
            arguments,
            command,
            job: None,
        };
        let is_undoable = command.flags & (READ | WRITE) != 0
            && command.flags & UNQUEUED == 0
            && call.session.fetches < MOST_FETCHES
            && call.server.may_fetch;
        if is_undoable {
            call.server.keyspace.begin_undoable();
        }
        let outcome = command.call(&mut call);
        let job = call.job.take();
        self.missing = self.keyspace.end_undoable();
        if self.missing.is_some() {
            return Ok(());
        }
        self.calls.note(command);
        if outcome.is_err() {
            self.metrics.failed(command);
        } else if let Some((work, job)) = job {
            self.calls.withdraw(command);
            session.job = Some((command, self.round_begun));
            let task = (session.handle, session.reply.is_resp3, work, job);
            self.jobs.push(task);
        }
        outcome
    }

    /// Refuses a command that the disk has no room for.
    fn find_room(&mut self, command: &'static Command) -> Outcome<&'static Command> {
        let refusal = command.grows().then(|| self.room.refusal()).flatten();
        match refusal {
            Some(why) => Err(Failure::Text(format!("{WRITE_FAILED}{why}"))),
            None => Ok(command),
        }
    }

    /// Runs one command of a transaction. Jobs run at once: the transaction is one moment.
    pub fn run_queued(&mut self, session: &mut Session, arguments: Arguments<'_>) {
        let from = session.reply.bytes.len();
        let outcome = commands::admit(arguments, session).and_then(|command| {
            self.route(session, command, arguments)?;
            session.last_command = command.name;
            let mut call = Call {
                server: self,
                session,
                arguments,
                command,
                job: None,
            };
            let mut outcome = command.call(&mut call);
            if let (Ok(()), Some((_, job))) = (&outcome, call.job.take()) {
                outcome = job(&mut session.reply);
            }
            self.calls.note(command);
            if outcome.is_err() {
                self.metrics.failed(command);
            }
            outcome
        });
        if let Err(failure) = outcome {
            session.reply.bytes.truncate(from);
            session.reply.error(&failure.text());
            self.statistics.errors += 1;
        }
    }

    /// Notes on what the answer from `from` on depends.
    fn note_footprint(&mut self, session: &mut Session, from: usize) {
        let Footprint {
            is_pending,
            waits_for,
            ..
        } = self.keyspace.footprint;
        let need = self.need(session.database);
        if let Some((partition, number)) = need.filter(|_| session.link.is_none()) {
            match session.needs.iter_mut().find(|(of, _)| *of == partition) {
                Some((_, needed)) => *needed = number.max(*needed),
                None => session.needs.push((partition, number)),
            }
        }
        session.waits_for = session.waits_for.max(waits_for);
        if is_pending {
            session.waits_for = self.round;
            session.pending.push((from, session.reply.bytes.len()));
        }
    }

    /// Publishes the events of the command, and gives messages to those who listen.
    fn deliver(&mut self, own: &mut Session) {
        if !self.keyspace.notices.is_empty() {
            for (channel, payload) in self.keyspace.notices.take() {
                self.pubsub.publish(&channel, &payload);
            }
        }
        for (slot, message) in self.pubsub.take_messages() {
            if slot == own.handle.slot {
                message.write(&mut own.reply);
                continue;
            }
            let Some(Some(mut session)) = self.sessions.get_mut(slot as usize).map(Option::take)
            else {
                continue;
            };
            message.write(&mut session.reply);
            self.list(&mut session);
            self.sessions[slot as usize] = Some(session);
        }
    }

    /// Publishes the events of keys that have expired in the background.
    pub fn deliver_expired(&mut self) {
        if self.keyspace.notices.is_empty() {
            return;
        }
        let nobody = Handle {
            slot: u32::MAX,
            id: 0,
        };
        let mut nobody = Session::new(nobody, String::new(), String::new(), false, 0);
        self.deliver(&mut nobody);
    }
}
