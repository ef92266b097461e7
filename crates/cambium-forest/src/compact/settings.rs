//! What a compaction is told: the options of the opening, and what the caller
//! of `compact` sets beside them.

use cambium_api::CompactOptions;
use cambium_api::options::invalid_option;
use cambium_base::{Error, Result};
use cambium_io::{BatchOptions, ReadBackend};

use crate::options::{ENGINE, OPTIONS, Tuning};

/// In which order documents are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortRule {
    /// Read and written in key order, as the index gives them.
    None,
    /// As many as fit in memory are read in the order of their offsets, and
    /// written in key order.
    Window,
    /// As [`SortRule::Window`]. Documents that are small and lie scattered are
    /// dealt out to the windows first, in a scratch file: the old file is passed
    /// once from start to end in place of a read for each of them.
    Deal,
    /// [`SortRule::Deal`] where little of the old file is in the page cache and
    /// there is room for the scratch file, [`SortRule::Window`] elsewhere.
    Auto,
    /// All are read and written in the order of their offsets, as published.
    Global,
}

impl SortRule {
    /// Every one, with its name.
    const ALL: [(&str, SortRule); 5] = [
        ("auto", SortRule::Auto),
        ("deal", SortRule::Deal),
        ("window", SortRule::Window),
        ("none", SortRule::None),
        ("global", SortRule::Global),
    ];

    /// A window is read in the order of its documents' offsets.
    pub fn reads_by_offset(self) -> bool {
        matches!(self, SortRule::Window | SortRule::Deal | SortRule::Auto)
    }
}

/// What happens to a compaction of a store with named snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotRule {
    /// They go into the new file too.
    Carry,
    /// It is not begun: somebody drops them first.
    Refuse,
}

/// How a store compacts, unless a call says otherwise. The option of each
/// field is described in [`OPTIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionTuning {
    /// Percent of the file that is stale when a compaction begins by itself.
    pub threshold: u64,
    /// Stale space comes back by cleaning; else the file is rewritten.
    pub cleaning: bool,
    /// Bytes below which a file is left alone.
    pub least_bytes: u64,
    /// Reads under way at once; `None`: as many as suit.
    pub batch: Option<usize>,
    /// Bytes of memory for documents on their way.
    pub memory_bytes: u64,
    /// Bytes of the largest read of several documents; 0: each its own.
    pub coalesce_bytes: u64,
    /// Order of reading and writing.
    pub sort: SortRule,
    /// Reading goes on while documents are written.
    pub overlap: bool,
    /// Bytes a second, read and written together; 0: as fast as it goes.
    pub rate_bytes: u64,
    /// Percent of the live bytes that writers may add while one runs.
    pub slack: u64,
    /// What is done with named snapshots.
    pub snapshots: SnapshotRule,
}

impl CompactionTuning {
    /// Takes the options out of `options`; what is not there stays as in
    /// `before`.
    pub fn take(options: &mut cambium_api::OptionValues, before: &Self) -> Result<Self> {
        let most = 1 << 50;
        let sort = match options.take("sort") {
            None => before.sort,
            Some(given) => {
                let mut known = SortRule::ALL.iter();
                let expected = "auto, deal, window, none or global";
                let found = known.find(|(name, _)| *name == given);
                found
                    .ok_or_else(|| invalid_option("sort", &given, expected))?
                    .1
            }
        };
        let snapshots = match options.take("compaction_snapshots").as_deref() {
            None => before.snapshots,
            Some("carry") => SnapshotRule::Carry,
            Some("refuse") => SnapshotRule::Refuse,
            Some(other) => {
                let expected = "carry or refuse";
                return Err(invalid_option("compaction_snapshots", other, expected));
            }
        };
        let batch = match options.get("compaction_batch") {
            Some("auto") => {
                _ = options.take("compaction_batch");
                None
            }
            Some(_) => Some(options.take_ranged("compaction_batch", 1, 1, 1024)? as usize),
            None => before.batch,
        };
        let overlap = options.take_bool("overlap")?.unwrap_or(before.overlap);
        let cleaning = options.take_bool("cleaning")?.unwrap_or(before.cleaning);
        let mut ranged = |name, before, least, most| options.take_ranged(name, before, least, most);
        Ok(CompactionTuning {
            threshold: ranged("compaction_threshold", before.threshold, 1, 100)?,
            cleaning,
            least_bytes: ranged("compaction_least_bytes", before.least_bytes, 0, most)?,
            batch,
            memory_bytes: ranged(
                "compaction_memory_bytes",
                before.memory_bytes,
                LEAST_MEMORY_BYTES,
                1 << 40,
            )?,
            coalesce_bytes: ranged("coalesce_bytes", before.coalesce_bytes, 0, 1 << 30)?,
            rate_bytes: ranged("compaction_rate_bytes", before.rate_bytes, 0, most)?,
            slack: ranged("compaction_slack", before.slack, 1, 1000)?,
            overlap,
            sort,
            snapshots,
        })
    }
}

impl Default for CompactionTuning {
    fn default() -> Self {
        CompactionTuning {
            threshold: 18,
            cleaning: true,
            least_bytes: 16 << 20,
            batch: None,
            memory_bytes: 64 << 20,
            coalesce_bytes: 256 << 10,
            sort: SortRule::Auto,
            overlap: true,
            rate_bytes: 0,
            slack: 15,
            snapshots: SnapshotRule::Carry,
        }
    }
}

/// Less than this would be a read for a document whatever the batch.
const LEAST_MEMORY_BYTES: u64 = 4 << 10;

/// One compaction's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub tuning: CompactionTuning,
    pub reading: BatchOptions,
    /// Documents are read past the operating system's cache, and what is
    /// written is dropped from it.
    pub direct: bool,
    /// No caller waits for the compaction: it may keep to a pace.
    pub background: bool,
}

/// Reads under way at once where somebody waits for the compaction.
const BATCH_OF_CALL: usize = 128;
/// And where it began by itself: a read of a document waits for all reads that are under
/// way, and a quarter of them keeps the device nearly as busy.
const BATCH_BY_ITSELF: usize = 32;

impl Settings {
    /// Those of a compaction that begins by itself.
    pub fn of_background(tuning: &Tuning) -> Self {
        Settings {
            tuning: tuning.compaction,
            reading: BatchOptions {
                backend: tuning.backend,
                depth: tuning.compaction.batch.unwrap_or(BATCH_BY_ITSELF),
            },
            direct: false,
            background: true,
        }
    }

    /// Those of a call.
    pub fn of_call(tuning: &Tuning, options: &CompactOptions) -> Result<Self> {
        let mut settings = options.settings.clone();
        settings.refuse_fixed(OPTIONS)?;
        let backend: Option<ReadBackend> =
            settings.take("io").map(|text| text.parse()).transpose()?;
        let compaction = CompactionTuning::take(&mut settings, &tuning.compaction)?;
        let others = OPTIONS
            .iter()
            .find(|option| settings.get(option.name).is_some());
        if let Some(option) = others {
            return Err(Error::InvalidArgument(format!(
                "option {} is of an opening and says nothing to a compaction",
                option.name
            )));
        }
        settings.finish(ENGINE, OPTIONS)?;
        let reading = BatchOptions {
            backend: options.backend.or(backend).unwrap_or(tuning.backend),
            depth: options.batch.or(compaction.batch).unwrap_or(BATCH_OF_CALL),
        };
        reading.validate()?;
        Ok(Settings {
            tuning: compaction,
            reading,
            direct: options.direct,
            background: false,
        })
    }

    /// Bytes of a window: of two that are in memory at once where reading and
    /// writing overlap. The rest is for keys on their way into the index, and
    /// for the log's buffer.
    pub fn window_bytes(&self) -> u64 {
        let memory = self.tuning.memory_bytes;
        if self.tuning.overlap {
            memory / 8 * 3
        } else {
            memory / 4 * 3
        }
    }

    /// Of a window, what may lie between documents that are read together.
    pub fn gap_bytes(&self) -> u64 {
        self.window_bytes() / 4
    }

    /// Bytes of keys that go into the index together.
    pub fn keys_bytes(&self) -> u64 {
        self.tuning.memory_bytes / 16
    }

    /// Bytes of keys, caught up with, that wait to go into the index: windows are
    /// gone by then. The more go together, the fewer nodes are written twice.
    pub fn pending_bytes(&self) -> u64 {
        self.tuning.memory_bytes / 2
    }

    /// Bytes that an index may take while it takes in what has waited.
    pub fn applied_bytes(&self) -> u64 {
        self.tuning.memory_bytes / 4
    }

    /// Bytes that are written at once past the page cache.
    pub fn written_bytes(&self) -> usize {
        (self.tuning.memory_bytes / 16).clamp(4 << 10, 2 << 20) as usize
    }

    /// Bytes of the log that are carried over together.
    pub fn slice_bytes(&self) -> u64 {
        (self.tuning.memory_bytes / 4).min(8 << 20)
    }
}
