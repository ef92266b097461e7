//! Keys, values and operations out of a seed.
//!
//! Few keys, so that overwrites, deletes and reinsertions of one key meet; a
//! number in every value, so that an older value is never taken for a newer
//! one.

use cambium_api::{Capabilities, Durability, KeyKind, KeyRange, WriteBatch};
use cambium_io::simulated::Generator;

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
    Write(WriteBatch, Durability),
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
}

/// Sizes around the borders of sectors, small blocks and pages.
const VALUE_SIZES: [u64; 12] = [0, 1, 9, 20, 60, 200, 470, 500, 512, 600, 1100, 4090];

impl Workload {
    pub(crate) fn new(seed: u64, capabilities: Capabilities) -> Self {
        Workload {
            generator: Generator::new(seed),
            capabilities,
            writes: 0,
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

    fn change(&mut self, batch: &mut WriteBatch) {
        match self.generator.below(10) {
            0..=6 => {
                let (key, value) = (self.key(), self.value());
                batch.put(&key, &value);
            }
            7 if self.capabilities.ordered => {
                let range = self.range();
                batch.delete_range(range);
            }
            _ => {
                let key = self.key();
                batch.delete(&key);
            }
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

    /// The next thing to do.
    pub(crate) fn action(&mut self) -> Action {
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
