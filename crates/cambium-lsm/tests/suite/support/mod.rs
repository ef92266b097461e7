//! A tree with an owner whose log is never lost, and the model it is held
//! against.
//!
//! Every value has a number of its own, which begins it. So the accounts of
//! drops can be checked exactly: each number that was written is either in the
//! tree once or was reported dropped once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use cambium_base::{Error, Result, StoreId};
use cambium_io::Environment;
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_lsm::{
    Compression, DropObserver, DumpItem, EntryKind, EntryRef, JobKind, Lookup, Options, Owner,
    Relocation, Replaced, Tree,
};

pub const FOLDER: &str = "/tree";
pub const STORE: StoreId = StoreId([7; 16]);

/// What the owner's log holds.
#[derive(Clone, Debug)]
pub enum Operation {
    Put(u64, Vec<u8>, Vec<u8>),
    Delete(u64, Vec<u8>),
    DeleteRange(u64, Vec<u8>, Option<Vec<u8>>),
    /// Key, sequence number, old value, new value.
    Relocate(Vec<u8>, u64, Vec<u8>, Vec<u8>),
}

/// What the owner knows by its notes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Operations of the log that are in tables.
    pub position: u64,
    /// Numbers of values that were dropped, ascending.
    pub dropped: Vec<u64>,
}

impl Accounts {
    fn encode(&self) -> Vec<u8> {
        let numbers = std::iter::once(&self.position).chain(&self.dropped);
        numbers.flat_map(|number| number.to_le_bytes()).collect()
    }

    fn decode(note: &[u8]) -> Self {
        let numbers = note
            .chunks_exact(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        let mut numbers = numbers.collect::<Vec<u64>>().into_iter();
        Accounts {
            position: numbers.next().unwrap(),
            dropped: numbers.collect(),
        }
    }
}

#[derive(Debug, Default)]
pub struct OwnerState {
    /// Flushes that were announced.
    pub announced: u64,
    /// The owner's own disk is full: flushes are refused.
    pub refuses_flushes: bool,
    pub accounts: Accounts,
    pub pinned: BTreeMap<u64, usize>,
    pub visible: u64,
}

#[derive(Debug, Default)]
pub struct TestOwner {
    pub state: Mutex<OwnerState>,
}

#[derive(Debug)]
struct Observer {
    job: JobKind,
    dropped: Vec<u64>,
}

/// The number that begins a value.
pub fn number_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

impl DropObserver for Observer {
    fn dropped(&mut self, dropped: EntryRef<'_>) {
        match dropped.kind {
            EntryKind::Value => self.dropped.push(number_of(dropped.value)),
            EntryKind::Delete => assert_eq!(dropped.value, b""),
        }
    }

    fn into_note(self: Box<Self>, sealed: &[Vec<u8>]) -> Vec<u8> {
        assert_eq!(sealed.len(), usize::from(self.job == JobKind::Flush));
        let sealed = sealed.first().map(|note| Accounts::decode(note).position);
        Accounts {
            position: sealed.unwrap_or(0),
            dropped: self.dropped,
        }
        .encode()
    }
}

impl Owner for TestOwner {
    fn protected_moments(&self) -> Vec<u64> {
        let state = self.state.lock().unwrap();
        let pinned = state.pinned.keys().copied();
        pinned
            .filter(|&moment| moment < state.visible)
            .chain([state.visible])
            .collect()
    }

    fn begin_job(&self, job: JobKind) -> Box<dyn DropObserver> {
        Box::new(Observer {
            job,
            dropped: Vec::new(),
        })
    }

    fn before_flush(&self, sealed: &[Vec<u8>]) -> Result<()> {
        assert_eq!(sealed.len(), 1);
        let mut state = self.state.lock().unwrap();
        if state.refuses_flushes {
            return Err(Error::NoSpace {
                path: FOLDER.into(),
                what: "the owner's log".to_owned(),
            });
        }
        state.announced += 1;
        Ok(())
    }

    fn committed(&self, note: &[u8], full: bool) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let delta = Accounts::decode(note);
        if full {
            state.accounts = delta;
            return Ok(());
        }
        state.accounts.position = state.accounts.position.max(delta.position);
        for number in delta.dropped {
            let at = state.accounts.dropped.binary_search(&number);
            let at = at.expect_err("a value is dropped once");
            state.accounts.dropped.insert(at, number);
        }
        Ok(())
    }

    fn full_note(&self) -> Vec<u8> {
        self.state.lock().unwrap().accounts.encode()
    }
}

/// Constants so small that every path is met, in one of several shapes.
pub fn tiny_options(shape: u64) -> Options {
    Options {
        memtable_bytes: 300,
        block_bytes: if shape % 2 == 0 { 256 } else { 64 },
        restart_interval: 1 + (shape % 4) as u16,
        table_bytes: 1024,
        level_base_bytes: 2048,
        level_ratio: 2,
        l0_trigger: 2,
        l0_slow: 4,
        l0_stop: 8,
        filter_bits_per_key: if shape % 5 == 4 { 0 } else { 10 },
        compression: if shape % 3 == 1 {
            Compression::Lz4
        } else {
            Compression::None
        },
        table_cache_bytes: if shape % 3 == 2 { 3000 } else { 1 << 20 },
        open_tables: if shape % 4 == 1 { 2 } else { 512 },
        block_cache: cambium_io::BlockCache::new(if shape % 4 == 3 { 0 } else { 1 << 16 }),
        ..Options::default()
    }
}

pub fn environment(disk: &SimulatedDisk) -> Environment {
    Environment::simulated(disk, 5)
}

/// The tree's state by definition: at a moment, after a part of the log.
pub fn model(log: &[Operation], moment: u64) -> BTreeMap<Vec<u8>, (u64, Vec<u8>)> {
    let mut entries = BTreeMap::new();
    for operation in log {
        match operation {
            Operation::Put(sequence, key, value) if *sequence <= moment => {
                entries.insert(key.clone(), (*sequence, value.clone()));
            }
            Operation::Delete(sequence, key) if *sequence <= moment => {
                entries.remove(key);
            }
            Operation::DeleteRange(sequence, from, to) if *sequence <= moment => {
                entries.retain(|key, _| key < from || to.as_ref().is_some_and(|to| key >= to));
            }
            Operation::Relocate(key, sequence, _, new) => {
                if let Some(entry) = entries.get_mut(key).filter(|entry| entry.0 == *sequence) {
                    entry.1.clone_from(new);
                }
            }
            _ => {}
        }
    }
    entries
}

/// A tree, its owner and its log.
#[derive(Debug)]
pub struct World {
    pub disk: SimulatedDisk,
    pub options: Options,
    pub owner: Arc<TestOwner>,
    pub tree: Arc<Tree>,
    pub log: Vec<Operation>,
    pub sequence: u64,
    pub next_value: u64,
}

impl World {
    pub fn create(disk: SimulatedDisk, options: Options) -> World {
        let owner = Arc::new(TestOwner::default());
        let tree = Tree::create(
            &environment(&disk),
            FOLDER.as_ref(),
            STORE,
            &options,
            owner.clone(),
        )
        .unwrap();
        // The name of the folder is its owner's business.
        disk_sync_root(&disk);
        World {
            disk,
            options,
            owner,
            tree,
            log: Vec::new(),
            sequence: 0,
            next_value: 0,
        }
    }

    /// Opens what lies on a disk, with a log up to there, and writes what was
    /// not flushed again.
    pub fn open(disk: SimulatedDisk, options: Options, log: &[Operation]) -> Result<World> {
        let owner = Arc::new(TestOwner::default());
        let tree = Tree::open(
            &environment(&disk),
            FOLDER.as_ref(),
            STORE,
            &options,
            owner.clone(),
        )?;
        let mut world = World {
            disk,
            options,
            owner,
            tree,
            log: log.to_vec(),
            sequence: 0,
            next_value: 0,
        };
        let position = world.owner.state.lock().unwrap().accounts.position as usize;
        for (at, operation) in log.iter().enumerate() {
            world.note_numbers(operation);
            if at >= position {
                world.publish();
                world.apply(operation)?;
            }
        }
        world.publish();
        Ok(world)
    }

    fn note_numbers(&mut self, operation: &Operation) {
        let value = match operation {
            Operation::Put(sequence, _, value) => {
                self.sequence = *sequence;
                value
            }
            Operation::Relocate(.., new) => new,
            Operation::Delete(sequence, _) | Operation::DeleteRange(sequence, ..) => {
                self.sequence = *sequence;
                return;
            }
        };
        self.next_value = self.next_value.max(number_of(value) + 1);
    }

    /// Everything written is visible.
    pub fn publish(&self) {
        self.owner.state.lock().unwrap().visible = self.sequence;
    }

    fn apply(&self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::Put(sequence, key, value) => self.tree.writer().put(*sequence, key, value),
            Operation::Delete(sequence, key) => self.tree.writer().delete(*sequence, key),
            Operation::DeleteRange(sequence, from, to) => {
                self.tree
                    .writer()
                    .delete_range(*sequence, from, to.as_deref());
            }
            Operation::Relocate(key, sequence, old, new) => {
                let done = relocate(&self.tree, key, *sequence, old, new)?;
                assert_eq!(done, Relocation::Done, "{operation:?} again");
            }
        }
        Ok(())
    }

    pub fn new_value(&mut self, generator: &mut Generator) -> Vec<u8> {
        let mut value = self.next_value.to_le_bytes().to_vec();
        self.next_value += 1;
        value.resize(8 + generator.below(20) as usize, 0x76);
        value
    }

    fn write(&mut self, operation: Operation) {
        self.apply(&operation).unwrap();
        self.log.push(operation);
        self.publish();
    }

    pub fn put(&mut self, key: &[u8], generator: &mut Generator) {
        self.sequence += 1;
        let value = self.new_value(generator);
        self.write(Operation::Put(self.sequence, key.to_vec(), value));
    }

    pub fn delete(&mut self, key: &[u8]) {
        self.sequence += 1;
        self.write(Operation::Delete(self.sequence, key.to_vec()));
    }

    pub fn delete_range(&mut self, from: &[u8], to: Option<&[u8]>) {
        self.sequence += 1;
        let to = to.map(<[u8]>::to_vec);
        self.write(Operation::DeleteRange(self.sequence, from.to_vec(), to));
    }

    /// Relocates the newest entry of a key, if it has one.
    pub fn relocate(&mut self, key: &[u8], generator: &mut Generator) -> Result<()> {
        let Some((sequence, old)) = model(&self.log, u64::MAX).remove(key) else {
            return Ok(());
        };
        let new = self.new_value(generator);
        let wrong = relocate(&self.tree, key, sequence, b"something else", &new)?;
        assert_eq!(wrong, Relocation::Changed);
        let later = relocate(&self.tree, key, sequence + 1, &old, &new)?;
        assert_eq!(later, Relocation::Superseded);
        let done = relocate(&self.tree, key, sequence, &old, &new)?;
        assert_eq!(done, Relocation::Done);
        self.log
            .push(Operation::Relocate(key.to_vec(), sequence, old, new));
        Ok(())
    }

    pub fn seal(&self) {
        let accounts = Accounts {
            position: self.log.len() as u64,
            dropped: Vec::new(),
        };
        self.tree.seal(accounts.encode());
    }

    pub fn pin(&self) -> u64 {
        let mut state = self.owner.state.lock().unwrap();
        let moment = state.visible;
        *state.pinned.entry(moment).or_default() += 1;
        moment
    }

    pub fn unpin(&self, moment: u64) {
        let mut state = self.owner.state.lock().unwrap();
        let count = state.pinned.get_mut(&moment).unwrap();
        *count -= 1;
        if *count == 0 {
            state.pinned.remove(&moment);
        }
    }

    /// Holds all ways of reading at a moment against the model.
    pub fn check_reads(&self, moment: u64, keys: &[Vec<u8>]) -> Result<()> {
        let expected = model(&self.log, moment);
        let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let many = self.tree.multi_get(&slices, moment)?;
        for (key, from_many) in keys.iter().zip(many) {
            let found = self.tree.get(key, moment)?;
            match expected.get(key) {
                Some((sequence, value)) => {
                    let value = value.as_slice().into();
                    let sequence = *sequence;
                    assert_eq!(
                        found,
                        Lookup::Found { sequence, value },
                        "{key:?} at {moment}"
                    );
                }
                None => assert!(
                    !matches!(found, Lookup::Found { .. }),
                    "{key:?} at {moment}: {found:?}"
                ),
            }
            assert_eq!(found, from_many, "{key:?} at {moment}");
        }
        self.check_scan(None, None, moment)
    }

    /// Holds a scan, forward and backward, against the model.
    pub fn check_scan(&self, from: Option<&[u8]>, to: Option<&[u8]>, moment: u64) -> Result<()> {
        let mut expected = model(&self.log, moment);
        expected.retain(|key, _| {
            from.is_none_or(|from| key.as_slice() >= from)
                && to.is_none_or(|to| key.as_slice() < to)
        });
        let mut cursor = self.tree.cursor(from, to, moment)?;
        let owned = |cursor: &cambium_lsm::Cursor| {
            let entry = cursor.entry()?;
            Some((entry.key.to_vec(), (entry.sequence, entry.value.to_vec())))
        };
        let mut forward = BTreeMap::new();
        cursor.seek_first()?;
        while let Some((key, entry)) = owned(&cursor) {
            assert!(forward.last_key_value().is_none_or(|(last, _)| *last < key));
            forward.insert(key, entry);
            cursor.next()?;
        }
        assert_eq!(forward, expected, "forward, at {moment}");
        let mut backward = BTreeMap::new();
        cursor.seek_last()?;
        while let Some((key, entry)) = owned(&cursor) {
            assert!(
                backward
                    .first_key_value()
                    .is_none_or(|(first, _)| *first > key)
            );
            backward.insert(key, entry);
            cursor.previous()?;
        }
        assert_eq!(backward, expected, "backward, at {moment}");
        Ok(())
    }

    /// Every value that was written into tables is in them, or was reported.
    pub fn check_accounts(&self) {
        let accounts = self.owner.state.lock().unwrap().accounts.clone();
        let mut expected = BTreeSet::new();
        for operation in &self.log[..accounts.position as usize] {
            if let Operation::Put(.., value) | Operation::Relocate(.., value) = operation {
                expected.insert(number_of(value));
            }
        }
        let mut found = BTreeSet::new();
        self.tree
            .dump(&mut |item| {
                if let DumpItem::Entry(entry) = item {
                    if entry.kind == EntryKind::Value {
                        let is_new = found.insert(number_of(entry.value));
                        assert!(is_new, "a value is in tables once");
                    }
                }
                Ok(())
            })
            .unwrap();
        for &number in &accounts.dropped {
            assert!(
                found.insert(number),
                "a value that was dropped is in a table"
            );
        }
        assert_eq!(
            found, expected,
            "values in tables and dropped, and values written"
        );
    }

    pub fn check_tables(&self) {
        let mut findings = Vec::new();
        self.tree
            .check(&mut |finding| findings.push(finding))
            .unwrap();
        assert!(findings.is_empty(), "{findings:?}");
    }
}

/// Gives one entry a new value.
pub fn relocate(
    tree: &Tree,
    key: &[u8],
    sequence: u64,
    old_value: &[u8],
    new_value: &[u8],
) -> Result<Relocation> {
    let entry = Replaced {
        key,
        sequence,
        old_value,
        new_value,
    };
    Ok(tree.relocate_all(&[entry], None)?[0])
}

/// Makes the names at the root durable.
pub fn disk_sync_root(disk: &SimulatedDisk) {
    use cambium_io::FileSystem;
    disk.sync_directory("/".as_ref()).unwrap();
}

/// Keys of few bytes, so that prefixes, empty keys and repeats are common.
pub fn key(generator: &mut Generator, keys: u64) -> Vec<u8> {
    let number = generator.below(keys);
    match number {
        0 => Vec::new(),
        1..=5 => vec![0x61; number as usize],
        _ => format!("key{number:04}").into_bytes(),
    }
}

pub fn all_keys(keys: u64) -> Vec<Vec<u8>> {
    (0..keys)
        .map(|number| match number {
            0 => Vec::new(),
            1..=5 => vec![0x61; number as usize],
            _ => format!("key{number:04}").into_bytes(),
        })
        .chain([b"zz".to_vec(), vec![0]])
        .collect()
}
