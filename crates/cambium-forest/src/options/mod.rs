//! Options of engine `forest`: those fixed at creation ([`Shape`]), which the
//! header of each database file keeps, and those of each opening ([`Tuning`]).

use std::sync::Arc;

use cambium_api::options::invalid_option;
use cambium_api::{OptionValues, Seeded};
use cambium_base::{Error, Result};
use cambium_io::segmented::Defect;
use cambium_io::{BlockCache, Environment, ReadBackend, SegmentedFileSystem};

mod list;

pub use list::OPTIONS;

pub use crate::compact::settings::{CompactionTuning, SnapshotRule, SortRule};
use crate::seeded_bug::SeededBug;

/// The engine's name.
pub const ENGINE: &str = "forest";

/// The index over keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexShape {
    /// Trees in a trie, with or without leaf trees.
    HbTrie(LeafExtension),
    /// One tree of whole keys, prefixes compressed.
    PrefixBTree,
    /// One tree of whole keys.
    BTree,
}

/// When a leaf tree is extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafExtension {
    /// There are none.
    Off,
    /// By the two conditions of section 3.2.3.
    Paper,
    /// Also where space and height are estimated to be no worse.
    Mended,
}

/// What is fixed when a store is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a node.
    pub node_bytes: u32,
    /// Bytes of a chunk.
    pub chunk_bytes: u8,
    /// The index over keys.
    pub index: IndexShape,
    /// Unit of padding after a sync.
    pub block_bytes: u32,
    /// Percent stale at which the store is compacted by itself, if the creation of
    /// the store set it.
    pub compaction_threshold: Option<u8>,
}

impl Shape {
    /// Takes the options fixed at creation out of `options`.
    pub fn take(options: &mut OptionValues) -> Result<Self> {
        let leaves = options.take("leaf_extension");
        let extension = match leaves.as_deref() {
            None | Some("mended") => LeafExtension::Mended,
            Some("paper") => LeafExtension::Paper,
            Some("off") => LeafExtension::Off,
            Some(other) => {
                return Err(invalid_option(
                    "leaf_extension",
                    other,
                    "mended, paper or off",
                ));
            }
        };
        let index = match options.take("index").as_deref() {
            None | Some("hbtrie") => IndexShape::HbTrie(extension),
            Some("prefix_btree") => IndexShape::PrefixBTree,
            Some("btree") => IndexShape::BTree,
            Some(other) => {
                return Err(invalid_option(
                    "index",
                    other,
                    "hbtrie, prefix_btree or btree",
                ));
            }
        };
        if !matches!(index, IndexShape::HbTrie(_)) && extension != LeafExtension::Mended {
            return Err(Error::InvalidArgument(
                "option leaf_extension: only index=hbtrie has leaf trees to extend".to_string(),
            ));
        }
        Ok(Shape {
            node_bytes: power_of_two(options, "node_bytes")?,
            chunk_bytes: options.take_ranged("chunk_bytes", 8, 1, 32)? as u8,
            index,
            block_bytes: power_of_two(options, "block_bytes")?,
            // Left there: it is of this opening too.
            compaction_threshold: match options.get("compaction_threshold") {
                None => None,
                Some(_) => {
                    let mut copy = options.clone();
                    Some(copy.take_ranged("compaction_threshold", 0, 1, 100)? as u8)
                }
            },
        })
    }

    /// The shape in the first parameter of a file's header.
    pub fn pack(&self) -> u64 {
        let (kind, extension) = match self.index {
            IndexShape::HbTrie(LeafExtension::Off) => (0, 0),
            IndexShape::HbTrie(LeafExtension::Paper) => (0, 1),
            IndexShape::HbTrie(LeafExtension::Mended) => (0, 2),
            IndexShape::PrefixBTree => (1, 0),
            IndexShape::BTree => (2, 0),
        };
        u64::from(self.node_bytes)
            | u64::from(self.chunk_bytes) << 32
            | kind << 40
            | extension << 48
            | u64::from(self.compaction_threshold.unwrap_or(0)) << 56
    }

    /// The shape that was packed; `None` for what no shape packs to.
    pub fn unpack(packed: u64, block_bytes: u32) -> Option<Self> {
        let byte = |position: u32| (packed >> position) as u8;
        let index = match (byte(40), byte(48)) {
            (0, 0) => IndexShape::HbTrie(LeafExtension::Off),
            (0, 1) => IndexShape::HbTrie(LeafExtension::Paper),
            (0, 2) => IndexShape::HbTrie(LeafExtension::Mended),
            (1, 0) => IndexShape::PrefixBTree,
            (2, 0) => IndexShape::BTree,
            _ => return None,
        };
        let shape = Shape {
            node_bytes: packed as u32,
            chunk_bytes: byte(32),
            index,
            block_bytes,
            compaction_threshold: Some(byte(56)).filter(|&percent| percent > 0),
        };
        let is_block = |bytes: u32| bytes.is_power_of_two() && (512..=64 << 10).contains(&bytes);
        let sound = is_block(shape.node_bytes)
            && is_block(shape.block_bytes)
            && (1..=32).contains(&shape.chunk_bytes)
            && shape
                .compaction_threshold
                .is_none_or(|percent| percent <= 100)
            && shape.pack() == packed;
        sound.then_some(shape)
    }

    /// The options that make a store of this shape.
    pub fn as_options(&self) -> OptionValues {
        let mut options = OptionValues::default();
        options.set("node_bytes", &self.node_bytes.to_string());
        options.set("chunk_bytes", &self.chunk_bytes.to_string());
        options.set("block_bytes", &self.block_bytes.to_string());
        if let Some(percent) = self.compaction_threshold {
            options.set("compaction_threshold", &percent.to_string());
        }
        let (index, extension) = self.index_words();
        options.set("index", index);
        if let Some(extension) = extension {
            options.set("leaf_extension", extension);
        }
        options
    }

    /// The words of the options `index` and `leaf_extension`.
    pub fn index_words(&self) -> (&'static str, Option<&'static str>) {
        match self.index {
            IndexShape::HbTrie(LeafExtension::Off) => ("hbtrie", Some("off")),
            IndexShape::HbTrie(LeafExtension::Paper) => ("hbtrie", Some("paper")),
            IndexShape::HbTrie(LeafExtension::Mended) => ("hbtrie", Some("mended")),
            IndexShape::PrefixBTree => ("prefix_btree", None),
            IndexShape::BTree => ("btree", None),
        }
    }

    /// Where the first record of a database file begins.
    pub fn first_offset(&self) -> u64 {
        u64::from(self.node_bytes.max(self.block_bytes))
    }
}

/// What each opening chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Writes that set off a flush.
    pub write_buffer_entries: u64,
    /// Bytes that set off a flush.
    pub write_buffer_bytes: u64,
    /// Bytes of log that set off a flush.
    pub write_buffer_log_bytes: u64,
    /// What a flush works in.
    pub flush_bytes: u64,
    /// The store's own cache; `None` for the environment's.
    pub cache_bytes: Option<u64>,
    /// Documents a cursor reads together.
    pub read_ahead: usize,
    /// Buffered writes kept back.
    pub buffer_bytes: usize,
    /// Length of the log's files.
    pub segment_bytes: u64,
    /// Space taken ahead.
    pub preallocate_bytes: u64,
    /// How the store compacts.
    pub compaction: CompactionTuning,
    /// When it does by itself was said at this opening.
    pub threshold_chosen: bool,
    /// Most bytes of log that are kept for consumers alone.
    pub history_bytes: u64,
    /// Past the page cache.
    pub direct: bool,
    /// Back end of batched reads.
    pub backend: ReadBackend,
    /// Batched reads under way.
    pub batch: usize,
    /// A defect, in tests.
    pub seeded_bug: Seeded<SeededBug>,
}

impl Tuning {
    /// The environment with database files in segments ([`cambium_io::segmented`]).
    pub(crate) fn segmented(&self, environment: &Environment) -> Environment {
        let files = &environment.file_system;
        // Backups pass the environment of an open store, which has segments already.
        let below = files.below().unwrap_or(files).clone();
        let defects = [
            (SeededBug::SegmentNamesUnsynced, Defect::NamesUnsynced),
            (SeededBug::SharedSegmentsWritten, Defect::SharedWritten),
        ];
        let defect = defects
            .into_iter()
            .find(|(bug, _)| self.seeded_bug.is(*bug));
        let defect = defect.map(|(_, defect)| defect);
        let segmented =
            SegmentedFileSystem::new(below, crate::format::is_segmented, self.segment_bytes)
                .with_defect(defect);
        Environment {
            file_system: Arc::new(segmented),
            ..environment.clone()
        }
    }

    /// The cache of a store that is opened with these.
    pub(crate) fn cache_of(&self, environment: &Environment) -> Arc<BlockCache> {
        match self.cache_bytes {
            Some(bytes) => BlockCache::new(bytes),
            None => environment.cache.clone(),
        }
    }

    /// The options of an opening, and apart from them those that were fixed at creation.
    ///
    /// # Errors
    /// `InvalidArgument` for an option that does not exist or is out of range.
    pub fn of_opening(options: &OptionValues) -> Result<(Self, OptionValues)> {
        let mut options = options.clone();
        let tuning = Tuning::take(&mut options)?;
        let fixed = options.take_fixed(OPTIONS);
        options.finish(ENGINE, OPTIONS)?;
        Ok((tuning, fixed))
    }

    /// Takes the options of an opening out of `options`.
    pub fn take(options: &mut OptionValues) -> Result<Self> {
        let backend = match options.take("io") {
            None => ReadBackend::default(),
            Some(text) => text.parse()?,
        };
        let most = 1 << 50;
        let write_buffer_bytes = options.take_ranged("write_buffer_bytes", 32 << 20, 1, most)?;
        // Who has little memory for writes has little for flushes.
        let flush_bytes = (write_buffer_bytes / 4).clamp(LEAST_FLUSH_BYTES, 4 << 20);
        Ok(Tuning {
            write_buffer_entries: options.take_ranged(
                "write_buffer_entries",
                1 << 20,
                1,
                1 << 32,
            )?,
            write_buffer_bytes,
            write_buffer_log_bytes: options.take_ranged(
                "write_buffer_log_bytes",
                256 << 20,
                1 << 10,
                most,
            )?,
            flush_bytes: options.take_ranged("flush_bytes", flush_bytes, 1, most)?,
            cache_bytes: options.take_cache_bytes()?,
            read_ahead: options.take_ranged("read_ahead", 32, 1, 1024)? as usize,
            buffer_bytes: options.take_ranged("buffer_bytes", 1 << 20, 0, 1 << 30)? as usize,
            segment_bytes: options.take_ranged("segment_bytes", 128 << 20, 4 << 10, 1 << 40)?,
            preallocate_bytes: options.take_ranged("preallocate_bytes", 16 << 20, 0, 1 << 40)?,
            threshold_chosen: options.get("compaction_threshold").is_some(),
            compaction: CompactionTuning::take(options, &CompactionTuning::default())?,
            history_bytes: options.take_ranged("history_bytes", 1 << 30, 0, most)?,
            direct: options.take_bool("direct")?.unwrap_or(false),
            backend,
            batch: options.take_ranged("batch", 64, 1, 1024)? as usize,
            seeded_bug: Seeded::take(options, ENGINE, &SeededBug::ALL)?,
        })
    }
}

/// What a flush works in by itself, however small the write buffer is.
const LEAST_FLUSH_BYTES: u64 = 256 << 10;

fn power_of_two(options: &mut OptionValues, name: &str) -> Result<u32> {
    let value = options.take_ranged(name, 4096, 512, 64 << 10)?;
    if value.is_power_of_two() {
        return Ok(value as u32);
    }
    Err(invalid_option(name, &value.to_string(), "a power of two"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_api::options::parse_bytes;

    #[test]
    fn every_documented_default_is_the_real_one() {
        let mut spelled = OptionValues::default();
        for option in OPTIONS {
            spelled.set(option.name, option.default);
        }
        let mut none = OptionValues::default();
        let shape = Shape::take(&mut spelled).unwrap();
        assert_eq!(
            Shape {
                compaction_threshold: None,
                ..shape
            },
            Shape::take(&mut none).unwrap()
        );
        assert_eq!(
            Tuning::take(&mut spelled).unwrap(),
            Tuning {
                threshold_chosen: true,
                ..Tuning::take(&mut none).unwrap()
            }
        );
        spelled.finish(ENGINE, OPTIONS).unwrap();
    }

    #[test]
    fn every_range_of_bytes_is_the_one_that_is_told() {
        let of_bytes = |option: &&cambium_api::OptionSpec| option.unit.starts_with("bytes");
        for option in OPTIONS.iter().filter(of_bytes) {
            let (least, most) = option.unit.split_once(" to ").unwrap();
            let least = least.rsplit(' ').next().and_then(parse_bytes).unwrap();
            let most = most.split([',', ';']).next().and_then(parse_bytes).unwrap();
            let takes = |value: u64| {
                let mut options = OptionValues::default();
                options.set(option.name, &value.to_string());
                let taken = Shape::take(&mut options).and_then(|_| Tuning::take(&mut options));
                taken.is_ok()
            };
            assert!(takes(least) && takes(most), "{}", option.name);
            assert!(!takes(most + 1), "{}", option.name);
            assert!(least == 0 || !takes(least - 1), "{}", option.name);
        }
    }

    #[test]
    fn a_shape_survives_packing_and_its_own_options() {
        for (index, extension) in [
            ("hbtrie", Some("off")),
            ("hbtrie", Some("paper")),
            ("hbtrie", Some("mended")),
            ("prefix_btree", None),
            ("btree", None),
        ] {
            let mut options = OptionValues::default();
            options.set("index", index).set("chunk_bytes", "3");
            options.set("node_bytes", "512").set("block_bytes", "1024");
            options.set("compaction_threshold", "100");
            if let Some(extension) = extension {
                options.set("leaf_extension", extension);
            }
            let shape = Shape::take(&mut options).unwrap();
            assert_eq!(Shape::unpack(shape.pack(), shape.block_bytes), Some(shape));
            assert_eq!(Shape::take(&mut shape.as_options()).unwrap(), shape);
        }
        assert_eq!(Shape::unpack(0, 4096), None);
    }

    #[test]
    fn what_makes_no_sense_together_is_refused() {
        let mut options = OptionValues::default();
        options.set("index", "btree").set("leaf_extension", "off");
        assert!(Shape::take(&mut options).is_err());
        let mut options = OptionValues::default();
        assert!(Shape::take(options.set("node_bytes", "1000")).is_err());
    }
}
