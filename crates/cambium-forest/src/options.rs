//! Options of engine `forest`: those fixed at creation ([`Shape`]), which the
//! header of each database file keeps, and those of each opening ([`Tuning`]).

use std::sync::Arc;

use cambium_api::options::invalid_option;
use cambium_api::{OptionSpec, OptionValues};
use cambium_base::{Error, Result};
use cambium_io::{BlockCache, Environment, ReadBackend};

pub use crate::compact::settings::{CompactionTuning, SnapshotRule, SortRule};
use crate::seeded_bug::SeededBug;

/// The engine's name.
pub const ENGINE: &str = "forest";

/// Every option, as `cambium options` prints it.
pub const OPTIONS: &[OptionSpec] = &[
    spec(
        "node_bytes",
        "bytes, a power of two, 512 to 64KiB",
        "4096",
        true,
        "Size of an index node, and what a lookup reads of the device for each. Larger makes a flatter index and writes more for each change of it; the device's page is right for most.",
    ),
    spec(
        "chunk_bytes",
        "bytes, 1 to 32",
        "8",
        true,
        "Bytes of a key that one level of the trie looks at. Larger suits keys that differ late, and packs fewer entries into a node; leave it alone.",
    ),
    spec(
        "index",
        "hbtrie, prefix_btree or btree",
        "hbtrie",
        true,
        "The index over keys. hbtrie: the engine's own, small and shallow for long keys. The others hold whole keys, with and without prefix compression: for comparison.",
    ),
    spec(
        "leaf_extension",
        "mended, paper or off",
        "mended",
        true,
        "When a leaf tree of the HB+-trie becomes a branch of the trie. paper: the published rule, which misses keys whose next chunks are all different. off: no leaf trees, a level for each chunk that differs.",
    ),
    spec(
        "block_bytes",
        "bytes, a power of two, 512 to 64KiB",
        "4096",
        true,
        "The log goes on at a block of its own after a sync, so each synced commit takes at least one. The device's block or page size; leave it alone.",
    ),
    spec(
        "write_buffer_entries",
        "writes, 1 to 2^32",
        "131072",
        false,
        "Writes that gather in memory before they go into the index together. Larger writes less of the index for each, takes more memory, and makes opening after a crash slower.",
    ),
    spec(
        "write_buffer_bytes",
        "bytes",
        "16MiB",
        false,
        "Memory of the write buffer's keys that sets off a flush as well; up to three times as much is in use while one runs.",
    ),
    spec(
        "write_buffer_log_bytes",
        "bytes",
        "256MiB",
        false,
        "Bytes of log that set off a flush as well, however few keys they are of. Smaller opens faster after a crash, since this is what is read then.",
    ),
    spec(
        "flush_bytes",
        "bytes",
        "4MiB",
        false,
        "Memory that a flush works in, beside the write buffer and the caches: it goes into the index in pieces of this much. Smaller writes the nodes between pieces more than once; leave it alone.",
    ),
    spec(
        "cache_bytes",
        "bytes, or shared",
        "shared",
        false,
        "Cache of index nodes and of blocks of documents. shared: one for all stores of the environment (64 MiB, unless it was given another). A size: the store's own; 0 switches it off. The index of most stores fits; a lookup is then one read, that of its document, or none.",
    ),
    spec(
        "read_ahead",
        "documents, 1 to 1024",
        "32",
        false,
        "Most documents a cursor reads together once it has gone on for a while. Larger suits long scans of documents that lie apart.",
    ),
    spec(
        "buffer_bytes",
        "bytes",
        "1MiB",
        false,
        "Buffered writes are handed to the operating system when this much has gathered.",
    ),
    spec(
        "preallocate_bytes",
        "bytes",
        "16MiB",
        false,
        "Most space taken ahead of the log's end, an eighth of its length at a time: a sync then needs no new blocks, and a full disk is met before a byte is written.",
    ),
    spec(
        "compaction_threshold",
        "percent stale, 1 to 100, 100 = never by itself",
        "30",
        false,
        "The store is rewritten in the background when this share of its file is stale. Smaller saves space and writes more. What a store is made with stays with it, unless an opening says otherwise.",
    ),
    spec(
        "compaction_least_bytes",
        "bytes",
        "16MiB",
        false,
        "A file smaller than this is not rewritten by itself.",
    ),
    spec(
        "compaction_batch",
        "reads, 1 to 1024",
        "128",
        false,
        "Reads of a compaction under way at once. Larger keeps more of the device busy, and readers beside it wait longer.",
    ),
    spec(
        "compaction_memory_bytes",
        "bytes, from 4KiB",
        "64MiB",
        false,
        "Memory of a compaction, whatever the store's size: documents on their way and keys on their way into the index. Larger sorts more reads at a time, so more of them lie together.",
    ),
    spec(
        "coalesce_bytes",
        "bytes, 0 = every document its own read",
        "256KiB",
        false,
        "Largest read of a compaction that brings several documents that lie together. Larger makes fewer reads where little is stale. 1 joins none either, and lets the kernel read ahead.",
    ),
    spec(
        "sort",
        "none, window or global",
        "window",
        false,
        "Order of a compaction's reads. window: by offset, as many as fit in its memory, written in key order. none: in key order. global: all by offset, and written so, as published; it keeps 8 bytes a document, and scans afterwards are not sequential.",
    ),
    spec(
        "overlap",
        "on or off",
        "on",
        false,
        "Reads of a compaction go on while documents are written. off: phase after phase, to measure each by itself.",
    ),
    spec(
        "compaction_rate_bytes",
        "bytes a second, 0 = as fast as it goes",
        "0",
        false,
        "What a compaction reads and writes a second at most. Too small for what writers overwrite, it holds them back.",
    ),
    spec(
        "compaction_slack",
        "percent of what is live, 1 to 1000",
        "15",
        false,
        "What writers may add while a compaction runs by itself, before it holds them back. Larger lets it go slower, and takes more space meanwhile.",
    ),
    spec(
        "compaction_snapshots",
        "carry or refuse",
        "carry",
        false,
        "Named snapshots of a store that is compacted. carry: they go into the new file too, and keep their space. refuse: there is no compaction while there are any.",
    ),
    spec(
        "direct",
        "on or off",
        "off",
        false,
        "Documents and nodes go past the operating system's page cache, in both directions (O_DIRECT). All memory for reading is then the store's own cache: give it what there is. off suits a machine whose memory others need as well.",
    ),
    spec(
        "io",
        "sync, aio or io_uring",
        "io_uring",
        false,
        "How batched reads (multi_get, cursors) reach the kernel.",
    ),
    spec(
        "batch",
        "reads, 1 to 1024",
        "64",
        false,
        "Batched reads under way at once.",
    ),
];

const fn spec(
    name: &'static str,
    unit: &'static str,
    default: &'static str,
    at_creation: bool,
    effect: &'static str,
) -> OptionSpec {
    OptionSpec {
        name,
        unit,
        default,
        effect,
        at_creation,
    }
}

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
    /// Percent stale at which the store is compacted by itself, if whoever made
    /// it chose one.
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
    /// Space taken ahead.
    pub preallocate_bytes: u64,
    /// How the store compacts.
    pub compaction: CompactionTuning,
    /// When it does by itself was said at this opening.
    pub threshold_chosen: bool,
    /// Past the page cache.
    pub direct: bool,
    /// Back end of batched reads.
    pub backend: ReadBackend,
    /// Batched reads under way.
    pub batch: usize,
    /// A defect, in tests.
    pub seeded_bug: Option<SeededBug>,
}

impl Tuning {
    /// The cache of a store that is opened with these.
    pub(crate) fn cache_of(&self, environment: &Environment) -> Arc<BlockCache> {
        match self.cache_bytes {
            Some(bytes) => BlockCache::new(bytes),
            None => environment.cache.clone(),
        }
    }

    /// Takes the options of an opening out of `options`.
    pub fn take(options: &mut OptionValues) -> Result<Self> {
        let backend = match options.take("io") {
            None => ReadBackend::default(),
            Some(text) => text.parse()?,
        };
        let most = 1 << 50;
        Ok(Tuning {
            write_buffer_entries: options.take_ranged(
                "write_buffer_entries",
                1 << 17,
                1,
                1 << 32,
            )?,
            write_buffer_bytes: options.take_ranged("write_buffer_bytes", 16 << 20, 1, most)?,
            write_buffer_log_bytes: options.take_ranged(
                "write_buffer_log_bytes",
                256 << 20,
                1 << 10,
                most,
            )?,
            flush_bytes: options.take_ranged("flush_bytes", 4 << 20, 1, most)?,
            cache_bytes: take_cache(options, most)?,
            read_ahead: options.take_ranged("read_ahead", 32, 1, 1024)? as usize,
            buffer_bytes: options.take_ranged("buffer_bytes", 1 << 20, 0, 1 << 30)? as usize,
            preallocate_bytes: options.take_ranged("preallocate_bytes", 16 << 20, 0, 1 << 40)?,
            threshold_chosen: options.get("compaction_threshold").is_some(),
            compaction: CompactionTuning::take(options, &CompactionTuning::default())?,
            direct: options.take_bool("direct")?.unwrap_or(false),
            backend,
            batch: options.take_ranged("batch", 64, 1, 1024)? as usize,
            seeded_bug: crate::seeded_bug::take(options)?,
        })
    }
}

fn take_cache(options: &mut OptionValues, most: u64) -> Result<Option<u64>> {
    match options.take("cache_bytes") {
        None => Ok(None),
        Some(text) if text == "shared" => Ok(None),
        Some(text) => {
            options.set("cache_bytes", &text);
            options.take_ranged("cache_bytes", 0, 0, most).map(Some)
        }
    }
}

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
