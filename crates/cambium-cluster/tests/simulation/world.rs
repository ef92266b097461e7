//! Time, faults, clients, and what is asked at the end.

use std::collections::{BTreeMap, BTreeSet};

use cambium_cluster::control::{Changes, add, decide, drain, promote, relocate, remove};
use cambium_cluster::topology::{Acknowledgement, Chain, Meta, Report, State, VERSION, View};
use cambium_io::simulated::Generator;
use cambium_testkit::linearizability::{self, Observation, Operation};

use crate::etcd::{Etcd, Registered};
use crate::node::{Held, Message, SimulatedNode, Store};

pub const NODES: usize = 4;
/// etcd's place where cuts are meant.
const ETCD: usize = NODES;
/// Milliseconds.
pub const LEASE: u64 = 1_000;
const TICK: u64 = 50;
const FAULTS_UNTIL: u64 = 12_000;
const END: u64 = 20_000;
const CLIENTS: usize = 4;
const KEYS: u64 = 3;

/// A mistake that others have made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bug {
    /// A node serves without a fresh view.
    NoLease,
    /// A write is answered before the chain has it.
    EarlyAnswer,
    /// A controller acts on a stale view, after it has lost its election.
    StaleController,
    /// A member serves that has not caught up.
    EarlyServing,
    /// A member is said to have joined while writes do not wait for it.
    EarlyJoining,
    /// A node that was gone registers again, and a change does not see it that counts on that.
    UnseenReturn,
    /// A change is in effect while a node serves that does not know of it.
    NoWaiting,
    /// Messages of former heads are accepted.
    NoEpochs,
    /// A member in the middle answers before those behind it.
    EarlyAck,
    /// A batch is handed on that a crash may take from the member.
    EarlyForward,
    /// A head that makes place for another one goes on serving.
    NoPlace,
}

impl Bug {
    pub const ALL: [Bug; 11] = [
        Bug::NoLease,
        Bug::EarlyAnswer,
        Bug::StaleController,
        Bug::EarlyServing,
        Bug::EarlyJoining,
        Bug::NoWaiting,
        Bug::UnseenReturn,
        Bug::NoEpochs,
        Bug::EarlyAck,
        Bug::EarlyForward,
        Bug::NoPlace,
    ];
}

enum Event {
    Tick(usize),
    Learn(usize, u64, View, u64, Option<Registered>),
    Change(usize, u64, (u64, Registered), Chain),
    Report(usize, Report),
    Message(usize, Message),
    /// A client goes on, unless it has since.
    Client(usize, Option<usize>),
    Give(usize, usize),
    Fault,
    Command,
    Sync(usize, u64),
}

/// What a client asked for.
struct Asked {
    begun: u64,
    key: u64,
    /// `None`: it reads.
    value: Option<u64>,
    anywhere: bool,
    client: usize,
    answered: Option<(u64, u64, Option<u64>)>,
}

pub struct World {
    now: u64,
    order: u64,
    queue: BTreeMap<(u64, u64), Event>,
    random: Generator,
    bug: Option<Bug>,
    etcd: Etcd,
    nodes: Vec<Option<SimulatedNode>>,
    stores: Vec<Store>,
    paused: Vec<u64>,
    cut: BTreeSet<(usize, usize)>,
    incarnations: u64,
    /// Connections keep order.
    last_arrival: BTreeMap<(usize, usize), u64>,
    asked: Vec<Asked>,
    /// What each client waits for.
    waiting: Vec<Option<usize>>,
    values: u64,
    /// Members that served as a command removed one that did not: they stay until the next one.
    kept: Vec<String>,
}

impl World {
    /// An `async` chain, and commands in place of faults.
    pub fn planned(seed: u64) -> World {
        World::with(seed, None, Acknowledgement::Async)
    }

    /// A `strong` chain, and faults.
    pub fn new(seed: u64, bug: Option<Bug>) -> World {
        World::with(seed, bug, Acknowledgement::Strong)
    }

    fn with(seed: u64, bug: Option<Bug>, acknowledgement: Acknowledgement) -> World {
        let meta = Meta {
            version: VERSION,
            id: "simulated".into(),
            partitions: 1,
            replicas: 3,
            nodes: 3,
            acknowledgement,
            lease_seconds: 1,
            seed: 0,
        };
        let view = View {
            meta: Some(meta),
            chains: vec![Chain::unmade()],
            ..View::default()
        };
        let empty = Store {
            is_whole: true,
            ..Store::default()
        };
        let mut world = World {
            now: 0,
            order: 0,
            queue: BTreeMap::new(),
            random: Generator::new(seed),
            bug,
            etcd: Etcd::new(view, bug),
            nodes: (0..NODES).map(|_| None).collect(),
            stores: vec![empty; NODES],
            paused: vec![0; NODES],
            cut: BTreeSet::new(),
            incarnations: 0,
            last_arrival: BTreeMap::new(),
            asked: Vec::new(),
            waiting: vec![None; CLIENTS],
            values: 0,
            kept: Vec::new(),
        };
        for place in 0..NODES {
            world.start(place);
            world.at(place as u64, Event::Tick(place));
        }
        for client in 0..CLIENTS {
            world.at(500, Event::Client(client, None));
        }
        if acknowledgement == Acknowledgement::Strong {
            world.at(1_000, Event::Fault);
        }
        world.at(1_500, Event::Command);
        world
    }

    fn at(&mut self, delay: u64, event: Event) {
        self.order += 1;
        self.queue.insert((self.now + delay, self.order), event);
    }

    fn start(&mut self, place: usize) {
        if self.nodes[place].is_none() {
            self.incarnations += 1;
            let store = self.stores[place].clone();
            let node = SimulatedNode::start(place, self.incarnations, store, self.bug);
            self.nodes[place] = Some(node);
            self.at(0, Event::Sync(place, self.incarnations));
        }
    }

    fn kill(&mut self, place: usize) {
        if let Some(node) = self.nodes[place].take() {
            // The process is killed, or the machine.
            self.stores[place] = match self.random.chance(1, 2) {
                true => node.store,
                false => node.durable,
            };
        }
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut.contains(&(from, to))
    }

    fn delay(&mut self) -> u64 {
        match self.random.below(20) {
            0 if self.now < FAULTS_UNTIL => self.random.below(120),
            _ => 1 + self.random.below(8),
        }
    }

    pub fn run(mut self) -> Result<(), String> {
        while let Some(((time, _), event)) = self.queue.pop_first() {
            if time > END {
                break;
            }
            self.now = time;
            self.etcd.expire(time);
            self.step(event)?;
        }
        self.judge()
    }

    /// A paused node does nothing now; what it should do waits.
    fn is_paused(&mut self, place: usize, event: impl FnOnce() -> Event) -> bool {
        let left = self.paused[place].saturating_sub(self.now);
        if left > 0 && self.nodes[place].is_some() {
            self.at(left, event());
            return true;
        }
        false
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Tick(place) => {
                self.tick(place);
                self.at(TICK, Event::Tick(place));
            }
            Event::Learn(place, incarnation, view, until, decides) => {
                let again = (view.clone(), decides.clone());
                if self.is_paused(place, || {
                    Event::Learn(place, incarnation, again.0, until, again.1)
                }) {
                    return Ok(());
                }
                let now = self.now;
                let node = self.nodes[place].as_mut();
                let Some(node) = node.filter(|node| node.registered.incarnation == incarnation)
                else {
                    return Ok(());
                };
                node.learn(&view.chains[0], until, now);
                if let Some(registered) = decides {
                    for (_, chain) in decide(&view) {
                        let seen = (view.chains[0].epoch, registered.clone());
                        // A controller may be slow, and another one be elected meanwhile.
                        let delay = match self.random.chance(1, 8) && now < FAULTS_UNTIL {
                            true => self.random.below(2 * LEASE),
                            false => self.delay(),
                        };
                        self.at(delay, Event::Change(place, incarnation, seen, chain));
                    }
                }
                self.flush(place);
            }
            Event::Change(place, incarnation, seen, chain) => {
                if !self.is_cut(place, ETCD) {
                    let name = crate::node::name(place);
                    let seen = (seen.0, &seen.1);
                    self.etcd.change((&name, incarnation), seen, chain);
                    self.check_kept()?;
                }
            }
            Event::Report(place, report) => {
                if !self.is_cut(place, ETCD) {
                    self.etcd.report(report);
                }
            }
            Event::Message(to, message) => {
                let again = message.clone();
                if self.is_cut(message.from, to) || self.is_paused(to, || Event::Message(to, again))
                {
                    return Ok(());
                }
                let now = self.now;
                if let Some(node) = &mut self.nodes[to] {
                    node.receive(message, now)?;
                    self.flush(to);
                }
            }
            Event::Client(client, operation) if self.waiting[client] == operation => {
                self.ask(client)
            }
            Event::Client(..) => {}
            Event::Give(place, operation) => {
                if !self.is_paused(place, || Event::Give(place, operation)) {
                    self.give(place, operation);
                }
            }
            Event::Fault => self.fault(),
            Event::Command => self.command(),
            Event::Sync(place, incarnation) => {
                let again = Event::Sync(place, incarnation);
                if self.is_paused(place, || again) {
                    return Ok(());
                }
                let node = self.nodes[place].as_mut();
                let node = node.filter(|node| node.registered.incarnation == incarnation);
                if let Some(node) = node {
                    node.sync();
                    self.flush(place);
                    let delay = 1 + self.random.below(60);
                    self.at(delay, Event::Sync(place, incarnation));
                }
            }
        }
        Ok(())
    }

    fn tick(&mut self, place: usize) {
        if self.paused[place] > self.now {
            return;
        }
        let now = self.now;
        let Some(node) = &mut self.nodes[place] else {
            return;
        };
        node.tend(now);
        let (name, registered) = (node.name.clone(), node.registered.clone());
        if !self.cut.contains(&(place, ETCD)) {
            let (view, decides) = self.etcd.renew(&name, &registered, now);
            if !self.is_cut(ETCD, place) {
                let delay = self.delay();
                let until = now + LEASE / 2;
                let learn = Event::Learn(place, registered.incarnation, view, until, decides);
                self.at(delay, learn);
            }
        }
        self.flush(place);
    }

    /// Sends what a node has to say.
    fn flush(&mut self, place: usize) {
        let now = self.now;
        let Some(node) = &mut self.nodes[place] else {
            return;
        };
        node.tell(now);
        let (messages, reports) = (node.take_messages(), std::mem::take(&mut node.reports));
        for Held {
            operation,
            number,
            saw,
        } in node.settled(now)
        {
            let asked = &mut self.asked[operation];
            asked.answered = Some((now, number, saw));
            let client = asked.client;
            self.order += 1;
            let next = (now + 1, self.order);
            self.queue
                .insert(next, Event::Client(client, Some(operation)));
        }
        for (to, message) in messages {
            let delay = self.delay();
            let last = self.last_arrival.entry((place, to)).or_default();
            *last = (*last).max(now + delay);
            let arrival = *last - now;
            if self.random.below(200) > 0 || now > FAULTS_UNTIL {
                self.at(arrival, Event::Message(to, message));
            }
        }
        for report in reports {
            let delay = self.delay();
            self.at(delay, Event::Report(place, report));
        }
    }

    fn ask(&mut self, client: usize) {
        if self.now > END - 4_000 {
            return;
        }
        let key = self.random.below(KEYS);
        let value = self.random.chance(1, 2).then(|| {
            self.values += 1;
            self.values
        });
        let head = self.etcd.view.chains[0]
            .head()
            .map(|head| head.node.clone());
        let place = match head {
            Some(head) if self.random.chance(2, 3) => (0..NODES)
                .find(|place| crate::node::name(*place) == head)
                .unwrap(),
            _ => self.random.below(NODES as u64) as usize,
        };
        let operation = self.asked.len();
        self.asked.push(Asked {
            begun: self.now,
            key,
            value,
            anywhere: self.random.chance(1, 2),
            client,
            answered: None,
        });
        let delay = self.delay();
        self.at(delay, Event::Give(place, operation));
        self.waiting[client] = Some(operation);
        // It waits no longer than this, and goes on as another client: what it wrote may come.
        self.at(400, Event::Client(client, Some(operation)));
    }

    fn give(&mut self, place: usize, operation: usize) {
        let now = self.now;
        let asked = &self.asked[operation];
        let (key, value, anywhere, client) = (asked.key, asked.value, asked.anywhere, asked.client);
        let outcome = self.nodes[place].as_mut().and_then(|node| match value {
            Some(value) => Some((node.write(key, value, now)?, None)),
            None => {
                let (saw, number) = node.read(key, anywhere, now)?;
                Some((number, saw))
            }
        });
        match (outcome, self.nodes[place].as_mut()) {
            (Some((number, saw)), Some(node)) => {
                node.held.push(Held {
                    operation,
                    number,
                    saw,
                });
                self.flush(place);
            }
            _ => self.at(20, Event::Client(client, Some(operation))),
        }
    }

    fn fault(&mut self) {
        if self.now >= FAULTS_UNTIL {
            self.cut.clear();
            self.paused.fill(0);
            (0..NODES).for_each(|place| self.start(place));
            return;
        }
        let place = self.random.below(NODES as u64) as usize;
        let other = self.random.below(NODES as u64 + 1) as usize;
        match self.random.below(11) {
            0 | 1 => self.kill(place),
            2 | 3 => (0..NODES).for_each(|place| {
                if self.random.chance(1, 2) {
                    self.start(place);
                }
            }),
            4 | 5 => self.paused[place] = self.now + self.random.below(3 * LEASE),
            6 => _ = self.cut.insert((place, other)),
            7 => self.cut.extend([(place, other), (other, place)]),
            8 => self.cut.clear(),
            // The machine of all of them stops.
            9 => {
                let until = self.now + LEASE + self.random.below(LEASE);
                self.paused.fill(until);
            }
            _ => {
                // All at once.
                for place in 0..NODES {
                    self.kill(place);
                    if self.random.chance(3, 4) {
                        self.start(place);
                    }
                }
            }
        }
        let next = 50 + self.random.below(1_000);
        self.at(next, Event::Fault);
    }

    /// Another member becomes the head, a copy moves to another node, a node comes or goes.
    fn command(&mut self) {
        if self.now >= FAULTS_UNTIL {
            // As `add` of each.
            self.etcd.view.retired.clear();
            return;
        }
        let view = &self.etcd.view;
        let chain = &view.chains[0];
        let name = |place| crate::node::name(place as usize);
        let one = name(self.random.below(NODES as u64));
        let other = name(self.random.below(NODES as u64));
        let serving: Vec<String> = chain.serving().map(|member| member.node.clone()).collect();
        let serves = serving.contains(&one);
        let only = |chain| vec![(0, chain)];
        let number = self.random.below(12);
        let changed = match number {
            0..6 => promote(chain, &one).map(only),
            6 | 7 => relocate(view, 0, &one, &other).map(only),
            8 => drain(view, &one),
            9 => add(view, &one),
            // Removing an `async` head would lose the batches that it alone has.
            _ if serves && chain.acknowledgement == Acknowledgement::Async => Ok(Changes::new()),
            _ => remove(view, &one, false),
        };
        if let Ok(changes) = changed {
            match number {
                9 => _ = self.etcd.view.retired.remove(&one),
                8 | 10.. => _ = self.etcd.view.retired.insert(one),
                _ => {}
            }
            self.kept = match number >= 10 && !serves {
                true => serving,
                false => Vec::new(),
            };
            for (_, chain) in changes {
                self.etcd.view.chains[0] = chain;
            }
        }
        let next = 300 + self.random.below(1_500);
        self.at(next, Event::Command);
    }

    /// The removal of a member that does not serve costs the chain none that does.
    fn check_kept(&self) -> Result<(), String> {
        let chain = &self.etcd.view.chains[0];
        match self.kept.iter().find(|node| chain.place(node).is_none()) {
            None => Ok(()),
            Some(node) => Err(format!("a removal took the copy of {node} too: {chain:?}")),
        }
    }

    /// Nothing that was answered is lost, reads fit between the writes, and all copies are one.
    fn judge(self) -> Result<(), String> {
        let chain = &self.etcd.view.chains[0];
        let is_mended = chain
            .members
            .iter()
            .all(|member| member.state == State::Serving);
        if !is_mended || chain.members.len() != 3 {
            return Err(format!("the chain does not mend: {chain:?}"));
        }
        let head = chain.head().unwrap();
        let stores: Vec<&SimulatedNode> = self.nodes.iter().flatten().collect();
        let of = |name: &str| stores.iter().find(|node| node.name == *name).unwrap();
        let last = &of(&head.node).store;
        for member in &chain.members {
            let store = &of(&member.node).store;
            if store.entries != last.entries || store.position != last.position {
                return Err(format!("{} and {} differ", member.node, head.node));
            }
        }
        // Values are never written twice, so they tell which writes survived.
        let ledger = last.ledger.iter();
        let numbers: BTreeMap<u64, u64> = ledger.map(|(number, value)| (*value, *number)).collect();
        if chain.acknowledgement == Acknowledgement::Async {
            let is_lost = |asked: &&Asked| {
                let written = asked.value.filter(|_| asked.answered.is_some());
                written.is_some_and(|value| !numbers.contains_key(&value))
            };
            let lost = self.asked.iter().filter(is_lost).count();
            return match lost {
                0 => Ok(()),
                _ => Err(format!("{lost} of {} answers are lost", self.asked.len())),
            };
        }
        let mut history = Vec::new();
        for asked in &self.asked {
            let (end, observation) = match (asked.value, asked.answered) {
                (Some(value), answered) => {
                    let answered = answered.map(|(end, number, _)| (end, number));
                    let survived = numbers.get(&value).map(|number| (END, *number));
                    let Some((end, sequence)) = answered.or(survived) else {
                        continue;
                    };
                    let changes = vec![(asked.key, Some(value))];
                    let saw = Vec::new();
                    (
                        end,
                        Observation::Wrote {
                            sequence,
                            changes,
                            saw,
                        },
                    )
                }
                (None, Some((end, _, saw))) => {
                    let saw = vec![(asked.key, saw)];
                    (end, Observation::Read { saw })
                }
                (None, None) => continue,
            };
            history.push(Operation {
                time: asked.begun..end + 1,
                observation,
            });
        }
        let written: BTreeSet<u64> = history
            .iter()
            .filter_map(|operation| match operation.observation {
                Observation::Wrote { sequence, .. } => Some(sequence),
                _ => None,
            })
            .collect();
        if let Some(lost) = last
            .entries
            .values()
            .find(|(_, number)| !written.contains(number))
        {
            return Err(format!("{lost:?} was written by nobody"));
        }
        self.check_final(last, &history)?;
        linearizability::check(&history)
    }

    /// The last write of each key is what is there.
    fn check_final(&self, last: &Store, history: &[Operation]) -> Result<(), String> {
        let mut latest: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for operation in history {
            if let Observation::Wrote {
                sequence, changes, ..
            } = &operation.observation
            {
                let (key, value) = (changes[0].0, changes[0].1.unwrap());
                let at = latest.entry(key).or_insert((value, *sequence));
                if at.1 < *sequence {
                    *at = (value, *sequence);
                }
            }
        }
        match latest == last.entries {
            true => Ok(()),
            false => Err(format!("answered: {latest:?}; there: {:?}", last.entries)),
        }
    }
}
