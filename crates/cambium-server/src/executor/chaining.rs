//! The executor as a member of chains.

use std::time::Duration;

use cambium_cluster::replica::Refusal;
use cambium_cluster::slots::{partition, slot};

use super::called::Called;
use super::server::Server;
use super::session::Session;
use super::syncer::{Held, Round};
use super::{Executor, Output};
use crate::cluster::ChainEvent;
use crate::cluster::chains::{Answered, Chains, Feeding};
use crate::cluster::status::ChainStatus;
use crate::commands::{Command, Failure, Outcome, WRITE};
use crate::keyspace::partitions::{Partitions, Record};
use crate::messages::{Handle, Next};
use crate::resp::Arguments;
use crate::resp::reply::Reply;

/// In a cluster a round begins at least this often: answers may have waited for a moment.
pub const CHAIN_PATIENCE: Duration = Duration::from_millis(50);

impl Executor {
    /// Decides once a round what the node may serve, before its commands: they came earlier.
    pub(super) fn begin_round(&mut self) {
        let now = self.server.round_begun;
        if let Some((chains, partitions)) = self.server.member() {
            partitions.now = now;
            partitions.is_fresh = now < chains.fresh_until;
        }
    }

    /// The cluster has changed, or a successor is heard of.
    pub(super) fn take_chain(&mut self, event: ChainEvent) {
        if matches!(event, ChainEvent::View(..)) {
            // Writes before it are those of a head, and those behind it may not be.
            _ = self.commit();
        }
        let Some((chains, partitions)) = self.server.member() else {
            return;
        };
        let (view, fresh_until) = match event {
            ChainEvent::View(view, fresh_until) => (view, fresh_until),
            ChainEvent::Left { partition, common } => {
                if chains.leave(partition, common, partitions) {
                    self.remove_copy(partition);
                }
                return;
            }
            event => return chains.hear(&event, partitions),
        };
        let learned = chains.learn(view, fresh_until, partitions);
        if learned.has_won {
            self.server.keyspace.forget_remembered();
        }
        self.begin_round();
        let lost = self.sort(learned.lost, Called::give_up).into_iter();
        let lost = lost.map(|mut output| {
            let mut reply = Reply::default();
            reply.error(
                "CLUSTERDOWN This node has ceased to serve the key before the chain had the \
                 write: it may be done or not",
            );
            output.bytes = reply.bytes;
            output.next = Next::Close;
            output
        });
        self.outbox.send(lost.collect());
    }

    /// This node has left the chain of a partition: its copy goes.
    fn remove_copy(&mut self, partition: u8) {
        let keyspace = &mut self.server.keyspace;
        match keyspace.begin_copy(partition) {
            Ok(()) => keyspace.end_copy(partition, Record::of_nothing()),
            Err(error) => {
                tracing::error!(%error, partition, "cannot remove a copy that has moved")
            }
        }
        _ = self.commit();
    }

    /// A round is written: its frames go on, now or behind the sync.
    pub(super) fn hand_on(&mut self) {
        let round = self.server.round;
        let Some((chains, partitions)) = self.server.member() else {
            return;
        };
        let waits = chains.take_frames(round, partitions);
        if let (true, Some(syncing)) = (waits, &self.syncing) {
            let round = Round {
                number: round,
                answers: Vec::new(),
                called: Vec::new(),
                calls: Default::default(),
                begun: self.server.round_begun,
            };
            syncing.held.send([Held::Round(round)]);
        }
    }

    /// A round is not written: what predecessors sent in it has to come again.
    pub(super) fn refuse_predecessors(&mut self) {
        let fed = self
            .server
            .chains
            .iter_mut()
            .flat_map(|chains| &mut chains.feeding);
        let fed: Vec<(u8, Feeding)> = (0..)
            .zip(fed)
            .filter_map(|(partition, feeding)| Some((partition, feeding.take()?)))
            .collect();
        self.refuse(fed);
    }

    /// Lets connections of predecessors ask again.
    fn refuse(&mut self, fed: Vec<(u8, Feeding)>) {
        for (partition, feeding) in fed {
            let number = feeding.since as i64;
            self.push_news(feeding.handle, "refused", partition, &[number]);
        }
    }

    fn push_news(&mut self, handle: Handle, kind: &str, partition: u8, numbers: &[i64]) {
        let Some(mut session) = self.take_session(handle) else {
            return;
        };
        let reply = &mut session.reply;
        reply.array(2 + numbers.len());
        reply.bulk(kind);
        reply.integer(i64::from(partition));
        numbers.iter().for_each(|number| reply.integer(*number));
        self.put_back(session);
    }

    /// The rounds up to one are synced.
    pub(super) fn take_synced(&mut self, round: u64) {
        if let Some((chains, partitions)) = self.server.member() {
            chains.synced(round, partitions);
        }
    }

    /// The server is to stop. True if it may: no chain waits for this node to hand it over.
    pub(super) fn step_down(&mut self) -> bool {
        let member = self.server.member();
        member.is_none_or(|(chains, partitions)| chains.step_down(partitions))
    }

    /// Tells predecessors what is committed, and lets answers go that waited for it.
    pub(super) fn settle(&mut self) {
        let Some((chains, partitions)) = self.server.member() else {
            return;
        };
        let displaced = std::mem::take(&mut chains.displaced);
        let news = chains.news(partitions);
        let ready = chains.release(partitions);
        partitions.clean();
        self.refuse(displaced);
        for (handle, partition, since, number) in news {
            self.push_news(handle, "acked", partition, &[since as i64, number as i64]);
        }
        let ready = self.sort(ready, |called| called.send(&Ok(())));
        self.outbox.send(ready);
    }

    /// Ends the calls among answers; the others are for clients of Redis.
    fn sort(&self, answers: Vec<Answered>, end: impl Fn(Called)) -> Vec<Output> {
        let client = |answer| match answer {
            Answered::Client(output) => Some(output),
            Answered::Call(called) => {
                end(called);
                None
            }
        };
        answers.into_iter().filter_map(client).collect()
    }

    /// An answer leaves, unless the chain has to have a batch first.
    pub(super) fn hold(&mut self, needs: Vec<(u8, u64)>, answer: Answered) -> Option<Answered> {
        match self.server.member() {
            Some((chains, partitions)) if !needs.is_empty() => {
                chains.hold(needs, answer, partitions)
            }
            _ => Some(answer),
        }
    }
}

/// Why this node does not serve a slot.
#[derive(Debug)]
pub enum Unserved {
    /// It has no fresh view.
    Stale,
    /// A node has it.
    Elsewhere(String),
    /// It changes hands.
    NotYet,
    /// No node does.
    Nobody,
}

impl Unserved {
    /// For people.
    pub fn text(&self) -> &'static str {
        match self {
            Unserved::Stale => "this node has no fresh view of the cluster",
            Unserved::Elsewhere(_) => "another node has the keys",
            Unserved::NotYet => "the head of the chain is changing",
            Unserved::Nobody => "no node serves the keys",
        }
    }
}

impl Server {
    /// In a cluster: the chains, and the partitions of this node.
    fn member(&mut self) -> Option<(&mut Chains, &mut Partitions)> {
        Some((self.chains.as_mut()?, self.keyspace.partitions.as_mut()?))
    }

    /// In a cluster: how this node stands.
    pub fn chain_status(&self) -> Option<ChainStatus> {
        let partitions = self.keyspace.partitions.as_ref()?;
        Some(self.chains.as_ref()?.status(partitions))
    }

    /// Finds the partition of a command's keys, and whether this node runs the command.
    ///
    /// # Errors
    /// `MOVED` and the other errors of Redis Cluster.
    pub fn route(
        &self,
        session: &mut Session,
        command: &Command,
        arguments: Arguments<'_>,
    ) -> Outcome {
        let Some(chains) = &self.chains else {
            return Ok(());
        };
        let mut slots = command.keys_of(arguments).map(slot);
        let Some(slot) = slots.next() else {
            return Ok(());
        };
        if slots.any(|other| other != slot) {
            return Err(Failure::Known(
                "CROSSSLOT Keys in request don't hash to the same slot",
            ));
        }
        let is_write = command.flags & WRITE != 0;
        let unserved = match self.place(slot, is_write, session.is_readonly && !is_write) {
            Ok(place) => {
                session.database = place;
                return Ok(());
            }
            Err(unserved) => unserved,
        };
        Err(Failure::Known(match unserved {
            Unserved::Elsewhere(node) => match chains.address(&node) {
                Some(address) => return Err(Failure::Text(format!("MOVED {slot} {address}"))),
                None => "CLUSTERDOWN The head of the chain is not there",
            },
            Unserved::Stale => "CLUSTERDOWN This node has no fresh view of the cluster",
            Unserved::NotYet => "TRYAGAIN The head of the chain is changing",
            Unserved::Nobody => "CLUSTERDOWN Hash slot not served",
        }))
    }

    /// The partition of a slot, if this node serves it; `anywhere` if a member that is not the
    /// head will do.
    ///
    /// # Errors
    /// Why it does not.
    pub fn place(&self, slot: u16, is_write: bool, anywhere: bool) -> Result<u8, Unserved> {
        let partitions = self.keyspace.partitions.as_ref().ok_or(Unserved::Nobody)?;
        let place = partition(slot, partitions.replicas.len() as u16) as u8;
        let replica = &partitions.replicas[usize::from(place)];
        let may = match is_write {
            true => replica.may_write(partitions.now),
            false => replica.may_read(anywhere, partitions.now),
        };
        match may {
            Ok(()) if partitions.is_fresh => Ok(place),
            Ok(()) => Err(Unserved::Stale),
            Err(Refusal::Elsewhere(Some(node))) => Err(Unserved::Elsewhere(node)),
            Err(Refusal::NotYet) => Err(Unserved::NotYet),
            Err(_) => Err(Unserved::Nobody),
        }
    }

    /// The batch that an answer has to wait for, if its chain has more members.
    pub(super) fn need(&self, database: u8) -> Option<(u8, u64)> {
        let partitions = self.keyspace.partitions.as_ref()?;
        let replica = partitions.replicas.get(usize::from(database))?;
        let footprint = self.keyspace.footprint;
        let number = match footprint.is_pending {
            true => replica.position().number + 1,
            false => footprint.number,
        };
        (number > 0).then_some((database, number))
    }

    /// Databases that a command without keys is about: in a cluster those that this node is
    /// the head of, or all that it serves if the client reads anywhere.
    pub fn databases_of(&self, session: &Session) -> Vec<u8> {
        let Some(partitions) = &self.keyspace.partitions else {
            return vec![session.database];
        };
        let anywhere = session.is_readonly;
        let serves = |place: &u8| {
            let replica = &partitions.replicas[usize::from(*place)];
            partitions.is_fresh && replica.may_read(anywhere, partitions.now).is_ok()
        };
        let all = 0..partitions.replicas.len() as u8;
        all.filter(serves).collect()
    }
}
