//! Keys, values and operations out of a seed.
//!
//! Few keys, so that overwrites, deletes and reinsertions of one key meet; a
//! number in every value, so that an older value is never taken for a newer
//! one.

use std::sync::Arc;
use std::time::Duration;

use cambium_api::{
    Capabilities, Durability, Expiry, KeyKind, KeyRange, Operation, Special, WriteBatch,
    batch::Namespace,
};
use cambium_io::simulated::Generator;

use crate::holding::{Change, State};

/// Keys the suites write; reads look for two more that are never there.
pub(crate) const KEY_COUNT: u64 = 12;

/// The n-th key of the small space.
pub(crate) fn key(kind: KeyKind, number: u64) -> Vec<u8> {
    match kind {
        // Dense, with the borders of a byte among them.
        KeyKind::Integer => (250 + number).to_be_bytes().to_vec(),
        KeyKind::Bytes => match number {
            0 => Vec::new(),
            1 => vec![0],
            2 => vec![0, 0],
            3 => vec![0xff; 3],
            4 => vec![b'k'; 300],
            _ => format!("key-{number:02}").into_bytes(),
        },
    }
}

/// All keys of the small space, and some that are never written.
pub(crate) fn key_space(kind: KeyKind) -> Vec<Vec<u8>> {
    (0..KEY_COUNT + 2).map(|number| key(kind, number)).collect()
}

/// One thing a run does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A batch; the namespaces that it names are made first.
    Write(WriteBatch, Durability),
    /// Something of namespaces or named snapshots, which may have to be refused.
    Change(Change),
    Sync,
    Step(u64),
    Compact,
    OpenSnapshot,
    CloseSnapshot,
    Read,
    /// Close and open.
    Reopen,
    /// The process dies; the disk goes on.
    Kill,
    /// The machine stops; the run goes on with what is left.
    PowerCut,
}

/// Draws actions for one engine.
#[derive(Debug)]
pub(crate) struct Workload {
    generator: Generator,
    capabilities: Capabilities,
    writes: u64,
    /// Namespaces and named snapshots are among what is drawn, as far as the
    /// engine has them.
    rich: bool,
    /// The store has the value layer: expiring puts and merges are among what is drawn.
    has_layer: bool,
}

/// After this time no run is under way any more.
const FOR_EVER: Expiry = Expiry::After(Duration::from_secs(1_000_000_000));

/// Names of namespaces beside the default one.
pub(crate) const NAMESPACES: [&str; 2] = ["people", "trees"];
/// Names of named snapshots.
pub(crate) const KEPT: [&str; 2] = ["first", "second"];

/// Sizes around the borders of sectors, small blocks and pages.
const VALUE_SIZES: [u64; 12] = [0, 1, 9, 20, 60, 200, 470, 500, 512, 600, 1100, 4090];

impl Workload {
    pub(crate) fn new(seed: u64, capabilities: Capabilities) -> Self {
        let mut generator = Generator::new(seed);
        // Every other run: what has neither is faster, and is met more often.
        let able = capabilities.namespaces || capabilities.named_snapshots;
        let rich = able && generator.chance(1, 2);
        Workload {
            generator,
            capabilities,
            writes: 0,
            rich,
            has_layer: false,
        }
    }

    /// The same with expiring puts and merges, for a store that has the value layer.
    pub(crate) fn with_layer(mut self, has_layer: bool) -> Self {
        self.has_layer = has_layer;
        self
    }

    /// One with namespaces and named snapshots, as far as the engine has them.
    pub(crate) fn rich(seed: u64, capabilities: Capabilities) -> Self {
        Workload {
            rich: capabilities.namespaces || capabilities.named_snapshots,
            ..Workload::new(seed, capabilities)
        }
    }

    fn key(&mut self) -> Vec<u8> {
        key(self.capabilities.keys, self.generator.below(KEY_COUNT))
    }

    /// A value that no other write of the run has, unless it is empty.
    fn value(&mut self) -> Vec<u8> {
        self.writes += 1;
        // Small ones most of the time: more writes before a file is full.
        let largest = if self.generator.chance(3, 4) { 6 } else { 12 };
        let size = *self.generator.pick(&VALUE_SIZES[..largest]) as usize;
        let mut value = format!("{:06}.", self.writes).into_bytes();
        let filler = b'a' + (self.writes % 26) as u8;
        value.resize(size.max(if size > 0 { 7 } else { 0 }), filler);
        value
    }

    fn durability(&mut self) -> Durability {
        match self.generator.below(8) {
            0..=2 => Durability::Buffered,
            3..=5 => Durability::Written,
            _ => Durability::Synced,
        }
    }

    fn range(&mut self) -> KeyRange {
        let from = self.generator.below(KEY_COUNT);
        let to = from + 1 + self.generator.below(4);
        let kind = self.capabilities.keys;
        let (mut from, mut to) = (key(kind, from), key(kind, to));
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        KeyRange::between(&from, &to)
    }

    fn namespace(&mut self) -> Namespace {
        let elsewhere = self.rich && self.capabilities.namespaces && self.generator.chance(1, 2);
        elsewhere.then(|| Arc::from(*self.generator.pick(&NAMESPACES)))
    }

    fn change(&mut self, batch: &mut WriteBatch) {
        let namespace = self.namespace();
        let operation = match self.generator.below(10) {
            0..=6 => Operation::Put {
                key: self.key(),
                value: self.value(),
            },
            7 if self.capabilities.ordered => Operation::DeleteRange {
                range: self.range(),
            },
            _ => Operation::Delete { key: self.key() },
        };
        match operation {
            Operation::Put { key, value } if self.has_layer && self.generator.chance(1, 2) => {
                self.special(batch, namespace, (key, value));
            }
            operation => _ = batch.push(namespace, operation),
        }
    }

    /// A put that expires, or a merge. Every merge succeeds, whatever the key has.
    fn special(
        &mut self,
        batch: &mut WriteBatch,
        namespace: Namespace,
        (key, value): (Vec<u8>, Vec<u8>),
    ) {
        let mut push = |special: Special, value: Vec<u8>| {
            let key = key.clone();
            batch.push(namespace.clone(), Operation::Put { key, value });
            batch.make_special(special);
        };
        match self.generator.below(6) {
            0..=1 => push(Special::Expires(FOR_EVER), value),
            2..=3 => push(Special::Merge("append".into()), value),
            4 => push(Special::Merge("maximum".into()), value),
            _ => {
                // Two operands for one key, which the value layer must not lose.
                batch.push(namespace.clone(), Operation::Delete { key: key.clone() });
                for _ in 0..2 {
                    let operand = (self.generator.next_u64() as i64) >> 2;
                    let value = operand.to_le_bytes().to_vec();
                    let key = key.clone();
                    batch.push(namespace.clone(), Operation::Put { key, value });
                    batch.make_special(Special::Merge("add".into()));
                }
            }
        }
    }

    /// Something of namespaces or named snapshots.
    fn rich_change(&mut self) -> Change {
        let space = self.generator.pick(&NAMESPACES).to_string();
        let name = self.generator.pick(&KEPT).to_string();
        match self.generator.below(12) {
            0 if self.capabilities.namespaces => Change::MakeNamespace(space),
            1..=3 if self.capabilities.droppable_namespaces => Change::DropNamespace(space),
            _ if !self.capabilities.named_snapshots => Change::MakeNamespace(space),
            0..=6 => Change::Keep(name),
            7..=8 => Change::LetGo(name),
            _ => Change::Rollback(name),
        }
    }

    /// A write of one change, or of several.
    pub(crate) fn write(&mut self) -> (WriteBatch, Durability) {
        let mut batch = WriteBatch::new();
        let count = if self.generator.chance(1, 4) {
            2 + self.generator.below(4)
        } else {
            1
        };
        for _ in 0..count {
            self.change(&mut batch);
        }
        let durability = self.durability();
        (batch, durability)
    }

    /// A change that a store in this state takes.
    pub(crate) fn next_change(&mut self, state: &State) -> (Change, Durability) {
        if self.rich && self.generator.chance(1, 4) {
            let change = self.rich_change();
            if change.is_possible(state) {
                return (change, Durability::Synced);
            }
        }
        let (batch, durability) = self.write();
        (Change::Write(batch), durability)
    }

    /// The next thing to do.
    pub(crate) fn action(&mut self) -> Action {
        if self.rich && self.generator.chance(1, 10) {
            return Action::Change(self.rich_change());
        }
        match self.generator.below(100) {
            0..=59 => {
                let (batch, durability) = self.write();
                Action::Write(batch, durability)
            }
            60..=65 => Action::Sync,
            66..=74 => Action::Step(1 + self.generator.below(4096)),
            75..=78 => Action::Compact,
            79..=82 => Action::OpenSnapshot,
            83..=85 => Action::CloseSnapshot,
            86..=92 => Action::Read,
            93..=95 => Action::Reopen,
            96..=97 => Action::Kill,
            _ => Action::PowerCut,
        }
    }
}
