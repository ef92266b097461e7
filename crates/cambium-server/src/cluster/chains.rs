//! The executor's part of the chains beside their replicas: answers that wait until a batch is
//! committed, predecessors that wait for acknowledgements, and links.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cambium_cluster::replica::Replica;
use cambium_cluster::topology::{Acknowledgement, Progress, State, View};
use cambium_io::sync::atomic::Ordering;

use super::agent;
use super::link::{Carried, Left, LinkHandle, Shared, Word};
use super::status::Ages;
use super::{ChainEvent, Unstable};
use crate::executor::called::Called;
use crate::keyspace::partitions::{Frame, Partitions};
use crate::messages::{Handle, Output};

/// Batches of a partition that the head may be ahead where writes do not wait for the others:
/// what a loss of the head can cost at most.
pub const MOST_LAG: u64 = 10_000;

/// Least time between two acknowledgements where nothing waits for them.
const ACK_INTERVAL: Duration = Duration::from_millis(10);

/// Least time between two reports of how far successors are brought up.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// A predecessor that waits for acknowledgements.
#[derive(Clone, Copy, Debug)]
pub struct Feeding {
    /// Its connection.
    pub handle: Handle,
    /// Since when it is the predecessor.
    pub since: u64,
    /// The last number that it was told, and when.
    pub told: (u64, Duration),
}

/// An answer of either protocol.
#[derive(Debug)]
pub enum Answered {
    /// The answer to a client of Redis.
    Client(Output),
    /// The answer to a call of Thrift.
    Call(Called),
}

/// An answer that waits for batches: partitions and numbers.
#[derive(Debug)]
struct Waiting {
    needs: Vec<(u8, u64)>,
    answer: Answered,
}

/// The executor's part of the cluster.
pub struct Chains {
    /// The cluster as this node knows it.
    pub view: Arc<View>,
    /// Until when this node may serve by it.
    pub fresh_until: Duration,
    /// By partition.
    pub feeding: Vec<Option<Feeding>>,
    /// Connections that other ones have taken the place of, with their partitions.
    pub displaced: Vec<(u8, Feeding)>,
    shared: Shared,
    links: HashMap<String, LinkHandle>,
    waiting: Vec<Waiting>,
    unstable: VecDeque<Unstable>,
    /// Batches are stable behind a sync.
    is_synced: bool,
    /// When batches were made.
    pub(super) ages: Ages,
    /// Changes of chains that it has learned of.
    pub(super) reconfigurations: u64,
    /// Batches of former heads that copies have replaced.
    pub(super) discarded: u64,
    /// By partition: the epoch whose report the agent has.
    reported: Vec<u64>,
    /// By partition: a copy that the successor of an epoch gets, and its entries.
    pub(super) copying: Vec<Option<(u64, (u64, u64))>>,
    /// How far successors are brought up, as the agent knows, and since when it does.
    progress: (BTreeMap<u16, Progress>, Duration),
    /// The server is to stop, at this moment at the latest.
    stops_by: Option<Duration>,
}

/// The consequences of a new view.
#[derive(Debug, Default)]
pub struct Learned {
    /// Answers of partitions that this node no longer serves.
    pub lost: Vec<Answered>,
    /// This node has become the head of some partition.
    pub has_won: bool,
}

impl Chains {
    /// Chains of a node that has not heard of the cluster yet.
    pub fn new(shared: Shared, partitions: usize, is_synced: bool) -> Chains {
        Chains {
            view: Arc::default(),
            fresh_until: Duration::ZERO,
            feeding: vec![None; partitions],
            displaced: Vec::new(),
            shared,
            links: HashMap::new(),
            waiting: Vec::new(),
            unstable: VecDeque::new(),
            is_synced,
            ages: Ages::new(partitions),
            reconfigurations: 0,
            discarded: 0,
            reported: vec![0; partitions],
            copying: vec![None; partitions],
            progress: Default::default(),
            stops_by: None,
        }
    }

    /// This node's name.
    pub fn me(&self) -> &str {
        &self.shared.me
    }

    /// The cluster's id.
    pub fn id(&self) -> &str {
        &self.shared.cluster
    }

    /// True if nodes prove by certificates who they are.
    pub fn is_secured(&self) -> bool {
        self.shared.tls.is_some()
    }

    /// The address of a node.
    pub fn address(&self, node: &str) -> Option<&str> {
        self.view.nodes.get(node).map(|node| node.address.as_str())
    }

    /// A connection of the predecessor feeds a partition. What an older connection has sent may
    /// arrive later, so the one that is displaced may be the live one: it is refused, and asks
    /// again. An older one is at its end, and does not.
    pub fn feed(&mut self, partition: u8, feeding: Feeding) {
        let before = self.feeding[usize::from(partition)].replace(feeding);
        let displaced = before.filter(|before| before.handle != feeding.handle);
        self.displaced
            .extend(displaced.map(|displaced| (partition, displaced)));
    }

    /// Asks the agent for a new view.
    pub fn refresh(&self) {
        self.shared.agent.send([agent::Word::Refresh]);
    }

    /// A view has come.
    pub fn learn(
        &mut self,
        view: Arc<View>,
        fresh_until: Duration,
        partitions: &mut Partitions,
    ) -> Learned {
        let mut learned = Learned::default();
        let (now, wait) = (self.shared.clock.monotonic(), self.shared.lease / 2);
        self.fresh_until = self.fresh_until.max(fresh_until);
        for (place, chain) in view.chains.iter().enumerate() {
            let Some(replica) = partitions.replicas.get_mut(place) else {
                break;
            };
            let (was_head, since) = (replica.is_head(), replica.since());
            if !replica.learn(chain, now, wait) {
                continue;
            }
            self.reconfigurations += 1;
            if replica.since() != since {
                self.feeding[place] = None;
            }
            learned.has_won |= replica.is_head() && !was_head;
            self.report(place as u8, partitions);
            let state = chain
                .place(self.me())
                .map(|place| chain.members[place].state);
            tracing::info!(
                partition = place,
                epoch = chain.epoch,
                head = chain.head().map_or("none", |head| head.node.as_str()),
                own = state.map_or("none".to_string(), |state| state.to_string()),
                "chain"
            );
        }
        let is_serving = |place: u8| {
            let replica = partitions.replicas.get(usize::from(place));
            replica.is_some_and(Replica::serves)
        };
        let (kept, lost): (Vec<Waiting>, Vec<Waiting>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| waiting.needs.iter().all(|(place, _)| is_serving(*place)));
        self.waiting = kept;
        learned.lost = lost.into_iter().map(|waiting| waiting.answer).collect();
        self.view = view;
        self.lay_links(partitions);
        self.tell_progress(now, partitions);
        learned
    }

    /// Tells the agent how far successors are brought up, if that has changed.
    fn tell_progress(&mut self, now: Duration, partitions: &Partitions) {
        let (told, at) = &self.progress;
        if now < *at + PROGRESS_INTERVAL {
            return;
        }
        let replicas = (0..).zip(&partitions.replicas);
        let progress = replicas
            .filter_map(|(place, replica)| {
                Some((u16::from(place), self.progress_of(place, replica)?))
            })
            .collect();
        if *told != progress {
            let word = agent::Word::Progress(progress.clone());
            self.shared.agent.send([word]);
            self.progress = (progress, now);
        }
    }

    /// Gives each link the partitions that it carries; ends those that carry none.
    fn lay_links(&mut self, partitions: &Partitions) {
        let mut carried: HashMap<String, BTreeMap<u8, Carried>> = HashMap::new();
        for (place, replica) in (0..).zip(&partitions.replicas) {
            if let Some(successor) = replica.successor() {
                let of = carried.entry(successor.node.clone()).or_default();
                let way = Carried {
                    since: successor.since,
                    epoch: replica.chain().epoch,
                    head_since: replica.chain().head().map_or(0, |head| head.since),
                    is_serving: successor.state == State::Serving,
                    is_awaited: replica.is_strong() || successor.state != State::Serving,
                };
                of.insert(place, way);
            }
        }
        let mut left = self.left(partitions);
        for node in left.keys() {
            carried.entry(node.clone()).or_default();
        }
        self.links.retain(|node, link| {
            let address = self.view.nodes.get(node).map(|node| &node.address);
            carried.contains_key(node) && address.is_none_or(|address| *address == link.address)
        });
        for (node, of) in carried {
            if !self.links.contains_key(&node) {
                let Some(address) = self.view.nodes.get(&node).map(|node| &node.address) else {
                    continue;
                };
                match LinkHandle::start(self.shared.clone(), &node, address) {
                    Ok(link) => _ = self.links.insert(node.clone(), link),
                    Err(error) => tracing::error!(%error, "cannot start the threads of a link"),
                }
            }
            if let Some(link) = self.links.get(&node) {
                let left = left.remove(&node).unwrap_or_default();
                link.words.send([Word::Chains(of), Word::Left(left)]);
            }
        }
        let all_serve = self.view.chains.iter().all(|chain| {
            let is_own = chain.place(&self.shared.me).is_some();
            !is_own
                || chain
                    .members
                    .iter()
                    .all(|member| member.state == State::Serving)
        });
        self.shared
            .history
            .all_serve
            .store(all_serve, Ordering::Relaxed);
    }

    /// By head: the partitions that this node has a copy of, and has left. It keeps its copy
    /// until every member of the chain serves.
    fn left(&self, partitions: &Partitions) -> HashMap<String, BTreeMap<u8, Left>> {
        let mut left: HashMap<String, BTreeMap<u8, Left>> = HashMap::new();
        for (place, replica) in (0..).zip(&partitions.replicas) {
            if let Some(head) = replica.left() {
                let copy = Left {
                    epoch: replica.chain().epoch,
                    position: replica.position().clone(),
                    ask_from: Duration::ZERO,
                };
                left.entry(head.node.clone())
                    .or_default()
                    .insert(place, copy);
            }
        }
        left
    }

    /// Reports what the chain of a partition that this node has left went on without; `common`
    /// is the last batch that both have. False if this node has joined it again.
    pub fn leave(&mut self, partition: u8, common: Option<u64>, partitions: &Partitions) -> bool {
        let replica = &partitions.replicas[usize::from(partition)];
        if replica.left().is_none() {
            return false;
        }
        let number = replica.position().number;
        match common.map(|last| number.saturating_sub(last)) {
            Some(0) => tracing::info!(partition, "removes a copy that has moved"),
            Some(batches) => {
                tracing::warn!(
                    partition,
                    batches,
                    "discards batches that the chain went on without"
                );
                self.discarded += batches;
            }
            None => tracing::warn!(partition, "discards a copy of unknown age"),
        }
        true
    }

    /// Frames of a round are written. True if they wait for a sync.
    pub fn take_frames(&mut self, round: u64, partitions: &mut Partitions) -> bool {
        let frames = std::mem::take(&mut partitions.frames);
        if frames.is_empty() {
            return false;
        }
        if self.is_synced {
            self.unstable.push_back(Unstable { round, frames });
            return true;
        }
        self.stabilize(frames, partitions);
        false
    }

    /// The rounds up to one are synced.
    pub fn synced(&mut self, round: u64, partitions: &mut Partitions) {
        let is_synced = |unstable: &Unstable| unstable.round <= round;
        while self.unstable.front().is_some_and(is_synced) {
            if let Some(unstable) = self.unstable.pop_front() {
                self.stabilize(unstable.frames, partitions);
            }
        }
    }

    /// Frames are stable: they may be handed on.
    fn stabilize(&mut self, frames: Vec<Frame>, partitions: &mut Partitions) {
        for frame in &frames {
            self.ages
                .note(frame.partition, frame.numbers.0, partitions.now);
            let replica = partitions.replica(frame.partition);
            replica
                .into_iter()
                .for_each(|replica| replica.stabilized(frame.numbers.1));
        }
        let (copies, frames): (Vec<Frame>, Vec<Frame>) =
            frames.into_iter().partition(Frame::is_copy);
        for copy in copies {
            self.shared.window.forget(copy.partition);
        }
        self.shared.window.push(frames);
        for link in self.links.values() {
            link.words.send([Word::Frames]);
        }
    }

    /// The successor of a partition is heard of.
    pub fn hear(&mut self, event: &ChainEvent, partitions: &mut Partitions) {
        match *event {
            ChainEvent::View(..) | ChainEvent::Left { .. } => {}
            ChainEvent::Discarded(batches) => self.discarded += batches,
            ChainEvent::Copying {
                partition,
                since,
                entries,
            } => self.copying[usize::from(partition)] = entries.map(|entries| (since, entries)),
            ChainEvent::Acked {
                partition,
                since,
                number,
            } => {
                if let Some(replica) = partitions.replica(partition) {
                    replica.acked(since, number);
                    self.ages.acknowledge(partition, replica.acked_number());
                    self.report(partition, partitions);
                }
            }
            ChainEvent::CaughtUp { partition, since } => {
                if let Some(replica) = partitions.replica(partition) {
                    replica.caught_up(since);
                    self.report(partition, partitions);
                }
            }
        }
    }

    /// Tells the controller once an epoch that the successor has joined.
    fn report(&mut self, partition: u8, partitions: &Partitions) {
        let place = usize::from(partition);
        let report = partitions.replicas[place].report();
        if let Some(report) = report.filter(|report| report.epoch > self.reported[place]) {
            self.reported[place] = report.epoch;
            let word = agent::Word::Report(u16::from(partition), report);
            self.shared.agent.send([word]);
        }
    }

    /// True if an answer that depends on a batch may leave.
    fn is_settled(replica: &Replica, number: u64, now: Duration) -> bool {
        let is_near = !replica.awaits_successor() || number <= replica.acked_number() + MOST_LAG;
        match replica.chain().acknowledgement {
            Acknowledgement::Async => is_near,
            Acknowledgement::Local => is_near && number <= replica.stable(),
            Acknowledgement::Strong => number <= replica.committed(now),
        }
    }

    fn are_settled(needs: &[(u8, u64)], partitions: &Partitions) -> bool {
        needs.iter().all(|(partition, number)| {
            let replica = partitions.replicas.get(usize::from(*partition));
            replica.is_none_or(|replica| Self::is_settled(replica, *number, partitions.now))
        })
    }

    /// Holds an answer back, or returns it if it may leave.
    pub fn hold(
        &mut self,
        needs: Vec<(u8, u64)>,
        answer: Answered,
        partitions: &Partitions,
    ) -> Option<Answered> {
        if Self::are_settled(&needs, partitions) {
            return Some(answer);
        }
        self.waiting.push(Waiting { needs, answer });
        None
    }

    /// Answers that need not wait any more.
    pub fn release(&mut self, partitions: &Partitions) -> Vec<Answered> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let (ready, waiting): (Vec<Waiting>, Vec<Waiting>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| Self::are_settled(&waiting.needs, partitions));
        self.waiting = waiting;
        ready.into_iter().map(|waiting| waiting.answer).collect()
    }

    /// Predecessors that have to be told of a new number: their connections, partitions, since
    /// when they are that, and numbers. Where nothing waits for it, one number stands for the
    /// batches of some rounds.
    pub fn news(&mut self, partitions: &Partitions) -> Vec<(Handle, u8, u64, u64)> {
        let mut news = Vec::new();
        let fed = (0..).zip(&mut self.feeding).zip(&partitions.replicas);
        for ((partition, feeding), replica) in fed {
            let (committed, now) = (replica.committed(partitions.now), partitions.now);
            let is_due = |feeding: &&mut Feeding| {
                let (told, at) = feeding.told;
                // A member that is brought up joins when it is near, and another head waits too.
                let changes = !replica.serves() || replica.chain().next_head.is_some();
                let is_awaited = replica.is_strong() || changes;
                let is_much = committed > told + MOST_LAG / 10;
                told < committed && (is_awaited || is_much || now >= at + ACK_INTERVAL)
            };
            if let Some(feeding) = feeding.as_mut().filter(is_due) {
                feeding.told = (committed, now);
                news.push((feeding.handle, partition, feeding.since, committed));
            }
        }
        news
    }

    /// Bytes of the frames behind a batch, as far as the window has them.
    pub(super) fn bytes_behind(&self, partition: u8, number: u64) -> u64 {
        self.shared.window.bytes_behind(partition, number)
    }

    /// The server is to stop, and the chains that it is the head of go to other members first.
    /// True once they have, or half a lease later: the chains then go on as after a failure.
    pub fn step_down(&mut self, partitions: &Partitions) -> bool {
        let is_handed_over =
            |replica: &Replica| !replica.is_head() || replica.chain().serving().nth(1).is_none();
        if partitions.replicas.iter().all(is_handed_over) || !partitions.is_fresh {
            return true;
        }
        let (now, agent) = (partitions.now, &self.shared.agent);
        let stops_by = *self.stops_by.get_or_insert_with(|| {
            agent.send([agent::Word::StepDown]);
            now + self.shared.lease / 2
        });
        now >= stops_by
    }

    /// The server stops.
    pub fn stop(&mut self) {
        self.links.clear();
        self.shared.agent.send([agent::Word::Stop]);
    }
}
