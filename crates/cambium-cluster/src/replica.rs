//! One member of one chain: what it accepts, what it serves, and what is committed.
//!
//! It holds no data and sends nothing. Its owner asks it before each step and tells it of each
//! outcome; the store and the sockets are the owner's. Four rules keep a chain right:
//!
//! - **A batch is accepted from the predecessor alone**, while both know it as that since the
//!   same epoch, and only the next one by number. So a member has a prefix of what its predecessor has.
//! - **A batch is handed on when it is stable**, as safe on this member as the node's durability
//!   asks for. So whoever goes on after a crash of all has what any of them showed.
//! - **A batch is committed when every member behind has it.** A successor that is syncing
//!   counts from the moment its predecessor has seen it caught up (*joining*), which is before
//!   the controller may let it serve.
//! - **A member serves while its view of the cluster is fresh**, for half a lease since the
//!   request that brought it. Where a change may have taken the right to serve from a node that
//!   is alive, the others wait that long first ([`Chain::fence`]).
//! - **A head that makes place serves nothing**, and says when the others have its batches
//!   ([`Chain::next_head`]). It serves again by a later view alone.

use std::time::Duration;

use crate::position::Position;
use crate::topology::{Acknowledgement, Chain, Member, Report, State};

/// Why a member does not do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The node that clients should ask, if the chain has one.
    Elsewhere(Option<String>),
    /// It will serve soon: another node may do so still. Or the next head will.
    NotYet,
    /// The message is of an epoch that this member has not learned of.
    Unknown,
    /// The message is of a time that is over, or not from the predecessor.
    Over,
    /// The next batch is not this one: the predecessor has to ask for the position again.
    Gap,
}

/// The outcome of a batch from the predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It is the next one: apply it.
    Apply,
    /// This member has it.
    Known,
}

/// Batches that a successor may lack when it joins: so many wait for it.
const MOST_BEHIND: u64 = 16;

/// The successor on its way to serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joining {
    /// It is behind.
    No,
    /// It gets batches as they are made, and has yet to apply what it was sent.
    Following,
    /// Every batch waits for it. It has everything once it has this number.
    At(u64),
}

/// One member of one chain.
#[derive(Clone, Debug)]
pub struct Replica {
    me: String,
    incarnation: u64,
    chain: Chain,
    position: Position,
    /// The last batch that is as safe here as the node's durability asks for.
    stable: u64,
    /// False between the first and the last part of a copy.
    is_whole: bool,
    /// The last batch that the successor has acknowledged since it became the successor.
    acked: u64,
    joining: Joining,
    /// Nothing is served before.
    serves_from: Duration,
}

impl Replica {
    /// The member of node `me` at a position; it knows of no chain yet.
    pub fn new(me: &str, incarnation: u64, position: Position, is_whole: bool) -> Replica {
        Replica {
            me: me.to_string(),
            incarnation,
            chain: Chain::unmade(),
            stable: position.number,
            position,
            is_whole,
            acked: 0,
            joining: Joining::No,
            serves_from: Duration::ZERO,
        }
    }

    /// The chain as this member knows it.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// How far it has come.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// False while a copy is under way: what is stored is part of a partition.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Learns of the chain at a moment; true if it has changed. `wait` is half a lease.
    pub fn learn(&mut self, chain: &Chain, now: Duration, wait: Duration) -> bool {
        if chain.epoch <= self.chain.epoch {
            return false;
        }
        if chain.fence > self.chain.epoch {
            self.serves_from = now + wait;
        }
        let before = self
            .outgoing()
            .map(|(node, since)| (node.to_string(), since));
        self.chain = chain.clone();
        let after = self
            .outgoing()
            .map(|(node, since)| (node.to_string(), since));
        if before != after {
            self.acked = 0;
            self.joining = Joining::No;
        }
        true
    }

    /// This member, if the chain's record is about this start of the node.
    fn own(&self) -> Option<&Member> {
        let member = &self.chain.members[self.chain.place(&self.me)?];
        (member.incarnation == self.incarnation).then_some(member)
    }

    /// True if it serves, by the chain that it knows.
    pub fn serves(&self) -> bool {
        self.own()
            .is_some_and(|member| member.state == State::Serving)
            && self.is_whole
    }

    /// True if it is the head.
    pub fn is_head(&self) -> bool {
        self.serves() && self.chain.head().is_some_and(|head| head.node == self.me)
    }

    /// The member that it hands batches to.
    pub fn successor(&self) -> Option<&Member> {
        self.serves().then(|| self.chain.successor(&self.me))?
    }

    /// The successor's node, and since when it has been behind this member.
    pub fn outgoing(&self) -> Option<(&str, u64)> {
        let successor = self.successor()?;
        Some((&successor.node, successor.since))
    }

    /// The head of the chain, if this node has left it, still has a copy, and every member
    /// serves: then the copy may be removed.
    pub fn left(&self) -> Option<&Member> {
        let is_needed = (self.chain.members.iter())
            .any(|member| member.node == self.me || member.state != State::Serving);
        self.chain.head().filter(|_| self.has_copy() && !is_needed)
    }

    /// True if it has stored a copy, or a part of one.
    pub fn has_copy(&self) -> bool {
        self.position.number > 0 || !self.is_whole
    }

    /// Since when this member has had its place.
    pub fn since(&self) -> u64 {
        self.own().map_or(0, |own| own.since)
    }

    fn elsewhere(&self) -> Refusal {
        let head = self.chain.head().filter(|head| head.node != self.me);
        Refusal::Elsewhere(head.map(|head| head.node.clone()))
    }

    /// Whether a client may write here. The caller has found its view of the cluster fresh.
    ///
    /// # Errors
    /// `Elsewhere`, `NotYet`.
    pub fn may_write(&self, now: Duration) -> Result<(), Refusal> {
        match self.is_head() {
            true => self.may_serve(now),
            false => Err(self.elsewhere()),
        }
    }

    /// True if it is the head, and makes place for another one.
    fn makes_place(&self) -> bool {
        self.is_head() && self.chain.next_head.is_some()
    }

    /// Whether a client may read here; `anywhere` if one that is not the head will do.
    ///
    /// # Errors
    /// `Elsewhere`, `NotYet`.
    pub fn may_read(&self, anywhere: bool, now: Duration) -> Result<(), Refusal> {
        match self.is_head() || (anywhere && self.serves()) {
            true => self.may_serve(now),
            false => Err(self.elsewhere()),
        }
    }

    fn may_serve(&self, now: Duration) -> Result<(), Refusal> {
        match now < self.serves_from || self.makes_place() {
            true => Err(Refusal::NotYet),
            false => Ok(()),
        }
    }

    /// The position behind the batch that the head makes next.
    pub fn next(&self) -> Position {
        self.position.next(self.since())
    }

    /// A batch was written, and this is the position that was written with it.
    pub fn wrote(&mut self, position: Position) {
        self.position = position;
    }

    /// The last batch that may be handed on: the members behind never have what a crash takes
    /// from this one.
    pub fn stable(&self) -> u64 {
        self.stable
    }

    /// The batches up to a number are as safe here as the node's durability asks for.
    pub fn stabilized(&mut self, number: u64) {
        self.stable = self.stable.max(number.min(self.position.number));
    }

    /// Whether a message of the predecessor is accepted.
    ///
    /// # Errors
    /// `Unknown`, `Over`.
    pub fn hear(&self, from: &str, since: u64) -> Result<(), Refusal> {
        if since > self.chain.epoch {
            return Err(Refusal::Unknown);
        }
        let predecessor = self.own().and_then(|_| self.chain.predecessor(&self.me));
        let is_from = predecessor.is_some_and(|member| member.node == from);
        match is_from && since == self.since() {
            true => Ok(()),
            false => Err(Refusal::Over),
        }
    }

    /// Whether batches of the predecessor are to be applied, which come as one: those from
    /// `first` on, up to the one that `position` is behind. Applying a batch again that lies
    /// between changes nothing, as the later ones come with it.
    ///
    /// # Errors
    /// `Unknown`, `Over`, `Gap`.
    pub fn append(
        &self,
        from: &str,
        since: u64,
        first: u64,
        position: &Position,
    ) -> Result<Appended, Refusal> {
        self.hear(from, since)?;
        let own = self.position.number;
        match self.is_whole && first <= own + 1 {
            true if position.number > own => Ok(Appended::Apply),
            true => Ok(Appended::Known),
            false => Err(Refusal::Gap),
        }
    }

    /// A copy begins: what is stored is no partition until it ends.
    pub fn begin_copy(&mut self) {
        self.is_whole = false;
        self.position = Position::default();
        self.stable = 0;
    }

    /// A copy has ended, as of a position. It is not stable yet.
    pub fn end_copy(&mut self, position: Position) {
        self.is_whole = true;
        self.position = position;
    }

    /// The successor of that time has everything up to a number.
    pub fn acked(&mut self, since: u64, number: u64) {
        if self.is_outgoing(since) {
            self.acked = self.acked.max(number);
            self.join();
        }
    }

    fn join(&mut self) {
        let is_near = self.position.number.saturating_sub(self.acked) <= MOST_BEHIND;
        if self.joining == Joining::Following && is_near {
            self.joining = Joining::At(self.position.number);
        }
    }

    fn is_outgoing(&self, since: u64) -> bool {
        self.outgoing().is_some_and(|(_, of)| of == since)
    }

    /// The last batch that the successor has acknowledged.
    pub fn acked_number(&self) -> u64 {
        self.acked
    }

    /// True if batches wait for the successor.
    pub fn awaits_successor(&self) -> bool {
        let successor = self.successor().map(|member| member.state);
        let is_joining = matches!(self.joining, Joining::At(_));
        match successor {
            Some(State::Serving) => true,
            Some(State::Syncing) => is_joining,
            _ => false,
        }
    }

    /// The last batch that every member from here on has. While another node may serve still,
    /// nothing is.
    pub fn committed(&self, now: Duration) -> u64 {
        match (now < self.serves_from, self.awaits_successor()) {
            (true, _) => 0,
            (false, true) => self.acked.min(self.stable),
            (false, false) => self.stable,
        }
    }

    /// The moment from which it serves, by the chain that it knows.
    pub fn serves_from(&self) -> Duration {
        self.serves_from
    }

    /// True if answers wait for what is committed.
    pub fn is_strong(&self) -> bool {
        self.chain.acknowledgement == Acknowledgement::Strong
    }

    /// The successor of that time, which is syncing, gets batches as they are made: it joins as
    /// soon as it has applied nearly all of what it was sent.
    pub fn caught_up(&mut self, since: u64) {
        let is_syncing = self
            .successor()
            .is_some_and(|member| member.state == State::Syncing);
        if self.is_outgoing(since) && is_syncing && self.joining == Joining::No {
            self.joining = Joining::Following;
            self.join();
        }
    }

    /// The report to the controller that the successor has joined, once it has, or that this
    /// head has handed everything on.
    pub fn report(&self) -> Option<Report> {
        let successor = self.successor()?.state;
        let (has_joined, is_drained) = match (successor, self.joining) {
            (State::Syncing, Joining::At(number)) => (self.acked >= number, false),
            (State::Serving, _) if self.makes_place() => {
                (false, self.acked >= self.position.number)
            }
            _ => (false, false),
        };
        (has_joined || is_drained).then(|| Report {
            epoch: self.chain.epoch,
            node: self.me.clone(),
            has_joined,
            is_drained,
            is_unreachable: false,
        })
    }
}
