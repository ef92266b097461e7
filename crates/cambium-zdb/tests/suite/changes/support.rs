//! Settings, random batches, and what feeds and stores hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    ChangeBatch, ChangeFeed, ChangeOptions, CompactOptions, Durability, Engine, EngineKind,
    KeyRange, Operation, OptionValues, SequenceNumber, WriteBatch,
};
use cambium_io::Environment;
use cambium_io::simulated::Generator;
pub(super) use cambium_testkit::following::lead_to;
use cambium_testkit::stores;
use cambium_zdb::Zdb;

pub(super) const PATH: &str = "/store";
pub(super) const ALL: ChangeOptions = ChangeOptions { synced_only: false };
pub(super) const SYNCED: ChangeOptions = ChangeOptions { synced_only: true };
pub(super) const KINDS: [&str; 2] = ["integer", "string"];

pub(super) const DURABILITIES: [Durability; 3] = [
    Durability::Buffered,
    Durability::Written,
    Durability::Synced,
];

pub(super) type Outcome = Result<(), String>;
pub(super) type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Tables of 64 keys in 3 files each, splits after 2 keys, checkpoints every 4 KiB.
pub(super) const SMALL: [(&str, &str); 9] = [
    ("keys_per_table", "64"),
    ("piece_bytes", "256"),
    ("block_bytes", "256"),
    ("data_files", "3"),
    ("commit_log_bytes", "2048"),
    ("buckets", "2"),
    ("open_tables", "2"),
    ("compaction_least_bytes", "0"),
    ("checkpoint_bytes", "4096"),
];

#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) keys: &'static str,
    pub(super) is_small: bool,
    pub(super) bug: Option<&'static str>,
}

impl Setting {
    pub(super) fn new(keys: &'static str, is_small: bool) -> Self {
        Setting {
            keys,
            is_small,
            bug: None,
        }
    }

    pub(super) fn options(&self) -> OptionValues {
        let small = match self.is_small {
            true => &SMALL[..],
            false => &[],
        };
        let mut options = OptionValues::from(small);
        options.set("keys", self.keys);
        options.set("sparse_tables", "100000");
        if let Some(bug) = self.bug {
            options.set("seeded_bug", bug);
        }
        options
    }

    pub(super) fn create(&self, environment: &Environment) -> Arc<dyn Engine> {
        stores::create(&Zdb, environment, &self.options())
    }

    pub(super) fn open(&self, environment: &Environment) -> Result<Arc<dyn Engine>, String> {
        let opened = Zdb.open(environment, Path::new(PATH), &self.options(), &());
        opened.map_err(|error| format!("open: {error}"))
    }

    pub(super) fn key(&self, number: u64) -> Vec<u8> {
        match self.keys {
            "integer" => number.to_be_bytes().to_vec(),
            _ => format!("key {number}").into_bytes(),
        }
    }
}

/// All settings without a bug.
pub(super) fn settings() -> impl Iterator<Item = Setting> {
    KINDS
        .into_iter()
        .flat_map(|keys| [true, false].map(|is_small| Setting::new(keys, is_small)))
}

pub(super) fn text<T>(result: cambium_api::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// Everything that a feed has now, in order.
pub(super) fn drain(feed: &mut dyn ChangeFeed) -> Result<Vec<ChangeBatch>, String> {
    let mut batches: Vec<ChangeBatch> = Vec::new();
    while let Some(batch) = text(feed.next())? {
        let before = batches.last().map_or(0, |batch| batch.last.0);
        if batch.first.0 <= before || batch.last < batch.first {
            return Err(format!(
                "batch {}..{} after {before}",
                batch.first, batch.last
            ));
        }
        batches.push(batch);
    }
    Ok(batches)
}

pub(super) fn changes(store: &dyn Engine, after: u64) -> Result<Vec<ChangeBatch>, String> {
    drain(&mut *text(store.changes(SequenceNumber(after), ALL))?)
}

/// The batches without the mark of what is synced, which changes.
pub(super) fn unmarked(batches: &[ChangeBatch]) -> Vec<ChangeBatch> {
    let unmarked = |batch: &ChangeBatch| ChangeBatch {
        synced: false,
        ..batch.clone()
    };
    batches.iter().map(unmarked).collect()
}

pub(super) fn compact(store: &dyn Engine) -> Outcome {
    text(store.compact(&CompactOptions::default(), &())).map(|_| ())
}

/// Writes a random batch of puts and deletes, of ranges too, over several tables and files;
/// answers its last number and the final change of each key.
pub(super) fn write_random(
    setting: &Setting,
    store: &dyn Engine,
    random: &mut Generator,
    (keys, durabilities): (u64, &[Durability]),
) -> Result<(u64, Contents), String> {
    let mut batch = WriteBatch::new();
    let mut expected = Contents::new();
    for _ in 0..1 + random.below(6) {
        let number = random.below(keys);
        let key = setting.key(number);
        if setting.keys == "integer" && random.chance(1, 12) {
            let end = number + 1 + random.below(keys / 4);
            batch.delete_range(KeyRange::between(&key, &setting.key(end)));
            expected.extend((number..end).map(|number| (setting.key(number), b"deleted".to_vec())));
        } else if random.chance(1, 4) {
            batch.delete(&key);
            expected.insert(key, b"deleted".to_vec());
        } else {
            let value = vec![random.below(256) as u8; random.below(90) as usize];
            batch.put(&key, &value);
            expected.insert(key, [b"put", &value[..]].concat());
        }
    }
    let last = text(store.write(batch, *random.pick(durabilities)))?;
    Ok((last.0, expected))
}

/// The final change of each key of a batch.
pub(super) fn final_changes(batch: &ChangeBatch) -> Contents {
    let mut changes = Contents::new();
    for change in &batch.changes {
        match &change.operation {
            Operation::Put { key, value } => {
                changes.insert(key.clone(), [b"put", &value[..]].concat());
            }
            Operation::Delete { key } => _ = changes.insert(key.clone(), b"deleted".to_vec()),
            Operation::DeleteRange { range } => {
                let number = |key: &[u8]| u64::from_be_bytes(key.try_into().unwrap());
                let [from, to] = [&range.from, &range.to].map(|key| number(key.as_ref().unwrap()));
                changes.extend(
                    (from..to).map(|key| (key.to_be_bytes().to_vec(), b"deleted".to_vec())),
                );
            }
        }
    }
    changes
}
