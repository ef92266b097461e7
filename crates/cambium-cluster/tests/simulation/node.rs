//! A simulated node with one partition: what the server does around a `Replica`.

use std::collections::BTreeMap;
use std::time::Duration;

use cambium_cluster::position::{Position, Resume};
use cambium_cluster::replica::{Appended, Refusal, Replica};
use cambium_cluster::topology::{Chain, Node, Report, State};

use crate::world::{Bug, LEASE, NODES};

/// A batch: one key, one value.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub position: Position,
    pub key: u64,
    pub value: u64,
}

#[derive(Clone, Debug)]
pub enum Body {
    Open,
    /// Position, whether it is whole, and what is committed from there on.
    Opened(Position, bool, u64),
    Append(Batch),
    Acked(u64),
    Copied(u64),
    CopyBegin,
    CopyEnd(Store),
    Refused,
}

#[derive(Clone, Debug)]
pub struct Message {
    pub from: usize,
    /// Since when the successor is that.
    pub since: u64,
    /// Of the connection: what is left of an older one is ignored.
    pub session: u64,
    pub body: Body,
}

/// What survives a crash.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Store {
    pub position: Position,
    pub is_whole: bool,
    pub entries: BTreeMap<u64, (u64, u64)>,
    /// The batches from the last copy on, or from the first.
    pub log: Vec<Batch>,
    /// All batches that led here, number and value: for the judge alone.
    pub ledger: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sending {
    Idle,
    Opening,
    Copying,
    Following(u64),
}

/// An answer that waits until a batch is committed.
pub struct Held {
    pub operation: usize,
    pub number: u64,
    pub saw: Option<u64>,
}

pub struct SimulatedNode {
    pub place: usize,
    pub name: String,
    pub registered: Node,
    pub replica: Replica,
    pub store: Store,
    pub valid_until: u64,
    pub held: Vec<Held>,
    bug: Option<Bug>,
    sending: Sending,
    session: u64,
    /// When the successor was last heard of, and when it was asked.
    heard: u64,
    asked: u64,
    /// The connection from the predecessor, and what it was told last.
    feeding: Option<(usize, u64, u64, u64)>,
    /// As it was synced last.
    pub durable: Store,
    outgoing: Vec<(usize, Message)>,
    pub reports: Vec<Report>,
}

pub fn name(place: usize) -> String {
    format!("n{place}")
}

fn moment(now: u64) -> Duration {
    Duration::from_millis(now)
}

impl SimulatedNode {
    pub fn start(place: usize, incarnation: u64, store: Store, bug: Option<Bug>) -> SimulatedNode {
        let name = name(place);
        let replica = Replica::new(&name, incarnation, store.position.clone(), store.is_whole);
        SimulatedNode {
            place,
            feeding: None,
            durable: store.clone(),
            registered: Node {
                incarnation,
                address: String::new(),
                thrift: None,
                version: String::new(),
                engine: String::new(),
                store: name.clone(),
            },
            name,
            replica,
            store,
            valid_until: 0,
            held: Vec::new(),
            bug,
            sending: Sending::Idle,
            session: incarnation << 32,
            heard: 0,
            asked: 0,
            outgoing: Vec::new(),
            reports: Vec::new(),
        }
    }

    pub fn take_messages(&mut self) -> Vec<(usize, Message)> {
        std::mem::take(&mut self.outgoing)
    }

    fn say(&mut self, to: usize, since: u64, session: u64, body: Body) {
        let message = Message {
            from: self.place,
            since,
            session,
            body,
        };
        self.outgoing.push((to, message));
    }

    fn token(&self) -> u64 {
        self.replica.outgoing().map_or(0, |(_, since)| since)
    }

    fn successor(&self) -> Option<usize> {
        let node = &self.replica.successor()?.node;
        (0..NODES).find(|place| name(*place) == *node)
    }

    pub fn learn(&mut self, chain: &Chain, valid_until: u64, now: u64) {
        self.valid_until = self.valid_until.max(valid_until);
        let wait = Duration::from_millis(LEASE / 2);
        let outgoing = |node: &Self| {
            let outgoing = node.replica.outgoing();
            outgoing.map(|(node, since)| (node.to_string(), since))
        };
        let (before, since) = (outgoing(self), self.replica.since());
        if self.replica.learn(chain, moment(now), wait) {
            if before != outgoing(self) {
                self.sending = Sending::Idle;
                self.heard = now;
            }
            if since != self.replica.since() {
                self.feeding = None;
            }
            if !self.replica.serves() {
                self.held.clear();
            }
        }
        self.tend(now);
    }

    /// Opens the connection to the successor, and gives up on one that does not answer.
    pub fn tend(&mut self, now: u64) {
        let Some(to) = self.successor() else {
            return;
        };
        let epoch = self.replica.chain().epoch;
        if now > self.heard.max(self.asked) + 120 {
            self.sending = Sending::Idle;
        }
        if now > self.heard + 400 {
            self.reports.push(Report {
                epoch,
                node: self.name.clone(),
                is_unreachable: true,
                ..Report::default()
            });
        }
        if self.sending == Sending::Idle {
            self.session += 1;
            self.sending = Sending::Opening;
            self.asked = now;
            let since = self.token();
            self.say(to, since, self.session, Body::Open);
        }
        if self.bug == Some(Bug::EarlyJoining) && self.replica.successor().is_some() {
            self.reports.push(Report {
                epoch,
                node: self.name.clone(),
                has_joined: true,
                ..Report::default()
            });
        }
        self.reports.extend(self.replica.report());
    }

    fn pump(&mut self) {
        let (Some(to), Sending::Following(next)) = (self.successor(), self.sending) else {
            return;
        };
        let epoch = self.token();
        let from = self
            .store
            .log
            .partition_point(|batch| batch.position.number < next);
        let stable = match self.bug {
            Some(Bug::EarlyForward) => u64::MAX,
            _ => self.replica.stable(),
        };
        let is_stable = |batch: &&Batch| batch.position.number <= stable;
        let batches: Vec<Batch> = self.store.log[from..]
            .iter()
            .take_while(is_stable)
            .cloned()
            .collect();
        for batch in batches {
            self.sending = Sending::Following(batch.position.number + 1);
            self.say(to, epoch, self.session, Body::Append(batch));
        }
    }

    fn has_log_from(&self, number: u64) -> bool {
        let first = self.store.log.first().map(|batch| batch.position.number);
        first.unwrap_or(self.store.position.number + 1) <= number
    }

    fn apply(&mut self, batch: Batch) {
        self.store.position = batch.position.clone();
        self.store
            .entries
            .insert(batch.key, (batch.value, batch.position.number));
        self.replica.wrote(batch.position.clone());
        self.store.ledger.push((batch.position.number, batch.value));
        self.store.log.push(batch);
        if self.bug == Some(Bug::EarlyForward) {
            self.pump();
        }
    }

    fn stays_head(&self, now: u64) -> bool {
        let makes_place = self.replica.chain().next_head.is_some() && self.replica.is_head();
        let serves = makes_place && moment(now) >= self.replica.serves_from();
        serves && self.bug == Some(Bug::NoPlace)
    }

    /// A client writes; the number of its batch.
    pub fn write(&mut self, key: u64, value: u64, now: u64) -> Option<u64> {
        let is_fresh = now < self.valid_until || self.bug == Some(Bug::NoLease);
        let may = self.replica.may_write(moment(now)).is_ok() || self.stays_head(now);
        if !is_fresh || !may {
            return None;
        }
        let position = self.replica.next();
        let number = position.number;
        self.apply(Batch {
            position,
            key,
            value,
        });
        Some(number)
    }

    /// A client reads; value and number of the batch that wrote it.
    pub fn read(&mut self, key: u64, anywhere: bool, now: u64) -> Option<(Option<u64>, u64)> {
        let is_fresh = now < self.valid_until || self.bug == Some(Bug::NoLease);
        let may = self.replica.may_read(anywhere, moment(now)).is_ok() || self.stays_head(now);
        if !is_fresh || !may {
            return None;
        }
        let entry = self.store.entries.get(&key);
        Some((entry.map(|entry| entry.0), entry.map_or(0, |entry| entry.1)))
    }

    /// Answers that need not wait any more.
    pub fn settled(&mut self, now: u64) -> Vec<Held> {
        let committed = match self.bug {
            Some(Bug::EarlyAnswer) => u64::MAX,
            _ if !self.replica.is_strong() => u64::MAX,
            _ => self.replica.committed(moment(now)),
        };
        let (ready, held) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|held| held.number <= committed);
        self.held = held;
        ready
    }

    pub fn receive(&mut self, message: Message, now: u64) -> Result<(), String> {
        let Message {
            from,
            since: epoch,
            session,
            body,
        } = message;
        match body {
            Body::Opened(..) | Body::Acked(_) | Body::Copied(_) | Body::Refused => {
                if session == self.session && epoch == self.token() {
                    self.hear_answer(epoch, body, now)?;
                }
            }
            body => {
                let answer = self.hear_request(from, epoch, session, body, now);
                if let Some(answer) = answer.unwrap_or(Some(Body::Refused)) {
                    self.say(from, epoch, session, answer);
                }
            }
        }
        Ok(())
    }

    fn hear_request(
        &mut self,
        from: usize,
        epoch: u64,
        session: u64,
        body: Body,
        now: u64,
    ) -> Result<Option<Body>, Refusal> {
        let name = name(from);
        if self.bug != Some(Bug::NoEpochs) {
            self.replica.hear(&name, epoch)?;
        }
        match body {
            Body::Open => {
                let committed = self.replica.committed(moment(now));
                self.feeding = Some((from, epoch, session, committed));
                let position = self.replica.position().clone();
                return Ok(Some(Body::Opened(
                    position,
                    self.replica.is_whole(),
                    committed,
                )));
            }
            Body::Append(batch) => {
                let is_next = batch.position.number == self.replica.position().number + 1;
                let appended = match self.bug {
                    Some(Bug::NoEpochs) if is_next => Appended::Apply,
                    _ => {
                        let first = batch.position.number;
                        self.replica.append(&name, epoch, first, &batch.position)?
                    }
                };
                if appended == Appended::Apply {
                    self.apply(batch);
                }
            }
            Body::CopyBegin => {
                self.replica.begin_copy();
                self.store = Store::default();
                self.feeding = Some((from, epoch, session, 0));
            }
            Body::CopyEnd(store) => {
                self.replica.end_copy(store.position.clone());
                let number = store.position.number;
                self.store = Store {
                    log: Vec::new(),
                    is_whole: true,
                    ..store
                };
                return Ok(Some(Body::Copied(number)));
            }
            _ => return Err(Refusal::Over),
        }
        Ok(None)
    }

    /// Everything up to now survives a crash.
    pub fn sync(&mut self) {
        self.durable = self.store.clone();
        self.replica.stabilized(self.store.position.number);
        self.pump();
    }

    /// Tells the predecessor what is committed.
    pub fn tell(&mut self, now: u64) {
        let committed = match self.bug {
            Some(Bug::EarlyAck) => self.replica.position().number,
            _ => self.replica.committed(moment(now)),
        };
        if let Some((from, epoch, session, told)) = self.feeding {
            if committed > told {
                self.feeding = Some((from, epoch, session, committed));
                self.say(from, epoch, session, Body::Acked(committed));
            }
        }
    }

    fn hear_answer(&mut self, epoch: u64, body: Body, now: u64) -> Result<(), String> {
        self.heard = now;
        match body {
            Body::Opened(theirs, is_whole, committed) => {
                let resume = match is_whole {
                    true => self.store.position.resume(&theirs),
                    false => Resume::Copy,
                };
                let is_serving = self
                    .replica
                    .successor()
                    .is_some_and(|member| member.state == State::Serving);
                match resume {
                    Resume::From(number) if self.has_log_from(number) => {
                        self.replica.acked(epoch, committed);
                        self.sending = Sending::Following(number);
                    }
                    _ if is_serving && self.bug.is_none() && resume == Resume::Copy => {
                        return Err(format!(
                            "{} would copy over a member that serves",
                            self.name
                        ));
                    }
                    _ => {
                        self.sending = Sending::Copying;
                        let to = self.successor().unwrap();
                        self.say(to, epoch, self.session, Body::CopyBegin);
                        let copy = Store {
                            log: Vec::new(),
                            ..self.durable.clone()
                        };
                        self.say(to, epoch, self.session, Body::CopyEnd(copy));
                    }
                }
                self.pump();
            }
            Body::Acked(number) => {
                self.replica.acked(epoch, number);
            }
            Body::Copied(number) => {
                self.sending = Sending::Following(number + 1);
                self.pump();
            }
            _ => self.sending = Sending::Idle,
        }
        let position = self.store.position.number;
        let behind = position.saturating_sub(self.replica.acked_number());
        if behind < 3 && matches!(self.sending, Sending::Following(_)) {
            self.replica.caught_up(epoch);
        }
        self.reports.extend(self.replica.report());
        Ok(())
    }
}
