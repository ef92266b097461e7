//! Options of engine `wisckey`: those fixed at creation ([`Shape`]), which the
//! header of each segment keeps, and those of each opening ([`Tuning`]).

use cambium_api::changes::HISTORY_BYTES;
use cambium_api::options::invalid_option;
use cambium_api::{OptionSpec, OptionValues, Seeded};
use cambium_base::Result;
use cambium_io::{BatchOptions, BlockCache, Environment, ReadBackend};

use crate::holes::HoleRule;
use crate::seeded_bug::SeededBug;
use crate::window::WINDOW_BYTES;

/// The engine's name.
pub const ENGINE: &str = "wisckey";

/// Every option, as `cambium options` prints it.
pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new(
        "block_bytes",
        "bytes, a power of two, 512 to 64KiB",
        "4096",
        true,
        "The value log goes on at a block of its own after a sync, so each synced commit takes at least one. The device's block or page size; leave it alone.",
    ),
    OptionSpec::new(
        "segment_bytes",
        "bytes, 1KiB to 16GiB",
        "128MiB",
        false,
        "Where a segment of the value log ends at most: those of small stores end at a sixteenth of what is live, from 4MiB on; a larger batch gets one of its own. Garbage collection frees whole segments: smaller ones come free sooner, larger ones make fewer files.",
    ),
    OptionSpec::new(
        "write_buffer_bytes",
        "bytes",
        "32MiB",
        false,
        "Keys and value pointers that gather in memory before they go into a table. Larger writes less of the tree for each, takes more memory, and makes opening after a crash slower.",
    ),
    OptionSpec::new(
        "replay_bytes",
        "bytes",
        "512MiB",
        false,
        "Most bytes of value log that end a write buffer as well, however few keys they are of; where writers overwrite, fewer do, so that garbage is known early. Smaller opens faster after a crash, since this is what is read then.",
    ),
    OptionSpec::new(
        "inline_bytes",
        "bytes, 0 to 4096",
        "256",
        false,
        "Values up to this length go into the tree itself, beside the key. Larger spares scans and lookups of small values a read, and takes less space; each compaction writes the values again. A change takes effect as entries are written.",
    ),
    OptionSpec::new(
        "buffer_bytes",
        "bytes",
        "1MiB",
        false,
        "Buffered writes are handed to the operating system when this much has gathered.",
    ),
    OptionSpec::new(
        "preallocate_bytes",
        "bytes",
        "64MiB",
        false,
        "Most space taken ahead of the value log's end, an eighth of the segment's length at a time: a sync then needs no new blocks, and a full disk is met before a byte is written.",
    ),
    OptionSpec::new(
        "cache_bytes",
        "bytes, or shared",
        "shared",
        false,
        "Cache of the tree's blocks. shared: one for all stores of the environment (64 MiB, unless it was given another). A size: the store's own; 0 switches it off. The tree of most stores fits; a lookup is then one read, that of its value.",
    ),
    OptionSpec::new(
        "filter_bits",
        "bits a key, 0 to 30",
        "10",
        false,
        "Bits of each key in the filters of new tables, which spare lookups of absent keys their reads. 0 writes none.",
    ),
    OptionSpec::new(
        "filter",
        "bloom or none",
        "bloom",
        false,
        "Filter policy of new tables, by name; tables keep the one that they were written with.",
    ),
    OptionSpec::new(
        "comparator",
        "bytes",
        "bytes",
        false,
        "The order of keys, by name: that of their bytes, which every engine has. leveldb.BytewiseComparator is another name for it; others are refused.",
    ),
    OptionSpec::new(
        "compression",
        "none, lz4 or zstd",
        "none",
        false,
        "Of the blocks of new tables, which hold keys, pointers and inline values; never of values in the log. zstd needs a program built with that feature.",
    ),
    OptionSpec::new(
        "table_bytes",
        "bytes",
        "16MiB",
        false,
        "Where a table of the tree ends. Leave it alone.",
    ),
    OptionSpec::new(
        "table_block_bytes",
        "bytes",
        "4096",
        false,
        "Of a table's blocks, before compression: what a lookup reads of the tree where the cache has it not.",
    ),
    OptionSpec::new(
        "level_base_bytes",
        "bytes",
        "64MiB",
        false,
        "Most bytes of the tree's first sorted level; each further one is ten times as large. A level above the lowest has a tenth of the next at most, so that little is stored twice. Smaller finds garbage sooner, larger writes less of the tree.",
    ),
    OptionSpec::new(
        "read_ahead",
        "values, 1 to 1024",
        "64",
        false,
        "Most values that a cursor fetches ahead once it has gone on for as many; up to eight times as many where they lie side by side. Larger keeps more reads under way, and reads more in vain for who stops early.",
    ),
    OptionSpec::new(
        "range_io",
        "io_uring, threads or sync",
        "io_uring",
        false,
        "How a cursor's values are read ahead once it has gone on for a few entries. io_uring and threads (the paper's) read many at once while the caller goes on; sync reads one after the other when it asks.",
    ),
    OptionSpec::new(
        "range_width",
        "reads, 1 to 256",
        "16",
        false,
        "Reads of a cursor under way at once; with threads, the threads of a pool that all cursors of the store share. 16 keep this kind of device busy; the paper's threads were 32.",
    ),
    OptionSpec::new(
        "io",
        "sync, aio or io_uring",
        "io_uring",
        false,
        "How batched reads (multi_get, garbage collection) reach the kernel.",
    ),
    OptionSpec::new(
        "batch",
        "reads, 1 to 1024",
        "16",
        false,
        "Batched reads under way at once.",
    ),
    OptionSpec::new(
        "collection",
        "live, tail or off",
        "live",
        false,
        "Which segment garbage collection takes. live: the one with the largest share of garbage. tail: the oldest, as published, which copies cold values again and again. off: none by itself; `cambium compact` still collects.",
    ),
    OptionSpec::new(
        "space_limit",
        "percent of live bytes, 110 to 1000",
        "200",
        false,
        "The value log is kept within this share of what is live in it: collection begins half way from 100, since tables hide some garbage, and writers are slowed from there on, the more the nearer the limit is. Smaller saves space and moves more values. Less garbage than one segment of a small store takes, 4MiB or segment_bytes, is let be.",
    ),
    OptionSpec::new(
        "direct",
        "on or off",
        "off",
        false,
        "The value log goes past the operating system's page cache, in both directions (O_DIRECT). Values are then read from the device each time, and a write that is neither batched nor Buffered is a write of the device: for large values, and where others need the memory.",
    ),
    OptionSpec::new(
        "open_files",
        "files, 1 to 1048576",
        "512",
        false,
        "Segments of the value log whose files are open, and as many tables at most; others are opened when they are read. More are open only while they are being written, or read by a cursor or a job. Keep twice this below what the system allows a process.",
    ),
    OptionSpec::new(
        "hole_bytes",
        "bytes, 0 = none",
        "0",
        false,
        "Freed values that fill so many bytes of whole blocks side by side give their space back at once, though their segment stays: by holes in its file, where the file system can. It spares moving what is live around them. Sensible from 16KiB on for stores of values as large, or where whole ranges are deleted; smaller ones make many holes, and files in many pieces.",
    ),
    OptionSpec::new(
        "reserve_bytes",
        "bytes, 0 = none",
        "64MiB",
        false,
        "Most space held back in a file of the store, so that a full disk still takes deletes and what makes room after them; puts then answer that there is no room. 256KiB are held while an eighth of the disk or sixteen times this is free, and three times this; below that as much as rewriting the tree and a segment takes, at most this and an eighth of the disk. Smaller leaves that space to values, and a full store may need room from elsewhere.",
    ),
    OptionSpec::new(
        "collection_rate",
        "bytes a second, 0 = no limit",
        "0",
        false,
        "Most that background garbage collection reads and writes, while space is within its limit; beyond it, collection hurries, and writers are slowed.",
    ),
    HISTORY_BYTES,
];

/// What is fixed when a store is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Unit of padding after a sync.
    pub block_bytes: u32,
}

impl Shape {
    /// Takes the options fixed at creation out of `options`.
    pub fn take(options: &mut OptionValues) -> Result<Self> {
        let value = options.take_ranged("block_bytes", 4096, 512, 64 << 10)?;
        if !value.is_power_of_two() {
            return Err(invalid_option(
                "block_bytes",
                &value.to_string(),
                "a power of two",
            ));
        }
        Ok(Shape {
            block_bytes: value as u32,
        })
    }

    /// The options that make a store of this shape.
    pub fn as_options(&self) -> OptionValues {
        let mut options = OptionValues::default();
        options.set("block_bytes", &self.block_bytes.to_string());
        options
    }
}

/// Which segment is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The one with the largest share of garbage.
    Live,
    /// The oldest (section 3.3.2).
    Tail,
    /// None by itself.
    Off,
}

/// How values of range queries are read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeIo {
    /// Batches of io_uring, or what the kernel has in its place.
    IoUring,
    /// A pool of threads (section 3.3.1).
    Threads,
    /// One after the other, by the thread that walks.
    Sync,
}

/// What each opening chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Where a segment ends.
    pub segment_bytes: u64,
    /// Keys and pointers that set off a flush.
    pub write_buffer_bytes: u64,
    /// Bytes of log that set off a flush.
    pub replay_bytes: u64,
    /// Values up to this length are inline.
    pub inline_bytes: usize,
    /// Buffered writes kept back.
    pub buffer_bytes: usize,
    /// Space taken ahead.
    pub preallocate_bytes: u64,
    /// The store's own cache of the tree's blocks; `None` for the environment's.
    pub cache_bytes: Option<u64>,
    /// Of new tables.
    pub filter_bits: u32,
    /// Of new tables' blocks.
    pub compression: Compression,
    /// Where a table ends.
    pub table_bytes: u64,
    /// Of a table's blocks.
    pub table_block_bytes: u32,
    /// Of the tree's first sorted level.
    pub level_base_bytes: u64,
    /// Values a cursor fetches ahead.
    pub read_ahead: usize,
    /// How it does.
    pub range_io: RangeIo,
    /// Its reads under way at once.
    pub range_width: usize,
    /// How batched reads are done.
    pub reading: BatchOptions,
    /// Which segment is collected.
    pub policy: Policy,
    /// Percent of live bytes at which collection begins.
    pub space_limit: u64,
    /// Most bytes a second of background collection.
    pub collection_rate: u64,
    /// The log goes past the page cache.
    pub direct: bool,
    /// Segments whose files are open.
    pub open_files: usize,
    /// Least bytes of a hole; 0 for none.
    pub hole_bytes: u64,
    /// Most space held back for a full disk; 0 for none.
    pub reserve_bytes: u64,
    /// Filters and indexes of open tables.
    pub table_cache_bytes: u64,
    /// Values that collection moves at a time.
    pub window_bytes: u64,
    /// Most garbage that stays only for consumers of changes.
    pub history_bytes: u64,
    /// A defect, in tests.
    pub seeded_bug: Seeded<SeededBug>,
}

/// Compression of the tree's blocks.
pub type Compression = cambium_lsm::Compression;

impl Tuning {
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
        const MOST: u64 = 1 << 50;
        take_comparator(options)?;
        let backend = match options.take("io") {
            None => ReadBackend::default(),
            Some(text) => text.parse()?,
        };
        Ok(Tuning {
            segment_bytes: options.take_ranged("segment_bytes", 128 << 20, 1 << 10, 16 << 30)?,
            write_buffer_bytes: options.take_ranged("write_buffer_bytes", 32 << 20, 1, MOST)?,
            replay_bytes: options.take_ranged("replay_bytes", 512 << 20, 1 << 10, MOST)?,
            inline_bytes: options.take_ranged("inline_bytes", 256, 0, 4096)? as usize,
            buffer_bytes: options.take_ranged("buffer_bytes", 1 << 20, 0, 1 << 30)? as usize,
            preallocate_bytes: options.take_ranged("preallocate_bytes", 64 << 20, 0, 1 << 40)?,
            cache_bytes: options.take_cache_bytes()?,
            filter_bits: take_filter(options)?,
            compression: take_compression(options)?,
            table_bytes: options.take_ranged("table_bytes", 16 << 20, 256, 1 << 40)?,
            table_block_bytes: options.take_ranged("table_block_bytes", 4096, 64, 1 << 20)? as u32,
            level_base_bytes: options.take_ranged("level_base_bytes", 64 << 20, 1, MOST)?,
            read_ahead: options.take_ranged("read_ahead", 64, 1, 1024)? as usize,
            range_io: take_range_io(options)?,
            range_width: options.take_ranged("range_width", 16, 1, 256)? as usize,
            reading: BatchOptions {
                backend,
                depth: options.take_ranged("batch", 16, 1, 1024)? as usize,
            },
            policy: take_policy(options)?,
            space_limit: options.take_ranged("space_limit", 200, 110, 1000)?,
            collection_rate: options.take_ranged("collection_rate", 0, 0, MOST)?,
            direct: options.take_bool("direct")?.unwrap_or(false),
            open_files: options.take_ranged("open_files", 512, 1, 1 << 20)? as usize,
            hole_bytes: options.take_ranged("hole_bytes", 0, 0, 1 << 30)?,
            reserve_bytes: options
                .take_ranged("reserve_bytes", 64 << 20, 0, 1 << 40)?
                .next_multiple_of(4096),
            table_cache_bytes: cambium_lsm::Options::default().table_cache_bytes,
            window_bytes: WINDOW_BYTES,
            history_bytes: options.take_ranged("history_bytes", 1 << 30, 0, MOST)?,
            seeded_bug: Seeded::take(options, ENGINE, &SeededBug::ALL)?,
        })
    }

    /// Which freed values become holes.
    pub(crate) fn hole_rule(&self, shape: &Shape) -> HoleRule {
        HoleRule {
            least: self.hole_bytes,
            unit: u64::from(shape.block_bytes),
            too_wide: self.seeded_bug.is(SeededBug::HoleTooWide),
        }
    }

    /// The options of the tree of keys.
    pub fn tree_options(&self, environment: &Environment) -> cambium_lsm::Options {
        cambium_lsm::Options {
            memtable_bytes: self.write_buffer_bytes,
            block_bytes: self.table_block_bytes,
            table_bytes: self.table_bytes,
            level_base_bytes: self.level_base_bytes,
            filter_bits_per_key: self.filter_bits,
            compression: self.compression,
            read: self.reading,
            open_tables: self.open_files,
            table_cache_bytes: self.table_cache_bytes,
            block_cache: match self.cache_bytes {
                Some(bytes) => BlockCache::new(bytes),
                None => environment.cache.clone(),
            },
            ..cambium_lsm::Options::default()
        }
    }
}

/// The order of keys is what the facade promises of every engine, so there is one.
fn take_comparator(options: &mut OptionValues) -> Result<()> {
    match options.take("comparator").as_deref() {
        None | Some("bytes" | "leveldb.BytewiseComparator") => Ok(()),
        Some(other) => Err(invalid_option(
            "comparator",
            other,
            "bytes: in every engine keys are in the order of their bytes; walk from the end for the \
             reverse of it, or store keys in a form whose bytes have the order",
        )),
    }
}

/// Bits a key of the filter policy that is named; 0 for none.
fn take_filter(options: &mut OptionValues) -> Result<u32> {
    let bits = options.take_ranged("filter_bits", 10, 0, 30)? as u32;
    match options.take("filter").as_deref() {
        None | Some("bloom") => Ok(bits),
        Some("none") => Ok(0),
        Some(other) => Err(invalid_option("filter", other, "bloom or none")),
    }
}

fn take_compression(options: &mut OptionValues) -> Result<Compression> {
    let name = options.take("compression");
    name.map_or(Ok(Compression::None), |name| Compression::parse(&name))
}

fn take_range_io(options: &mut OptionValues) -> Result<RangeIo> {
    match options.take("range_io").as_deref() {
        None | Some("io_uring") => Ok(RangeIo::IoUring),
        Some("threads") => Ok(RangeIo::Threads),
        Some("sync") => Ok(RangeIo::Sync),
        Some(other) => Err(invalid_option(
            "range_io",
            other,
            "io_uring, threads or sync",
        )),
    }
}

fn take_policy(options: &mut OptionValues) -> Result<Policy> {
    match options.take("collection").as_deref() {
        None | Some("live") => Ok(Policy::Live),
        Some("tail") => Ok(Policy::Tail),
        Some("off") => Ok(Policy::Off),
        Some(other) => Err(invalid_option("collection", other, "live, tail or off")),
    }
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
        assert_eq!(
            Shape::take(&mut spelled).unwrap(),
            Shape::take(&mut none).unwrap()
        );
        assert_eq!(
            Tuning::take(&mut spelled).unwrap(),
            Tuning::take(&mut none).unwrap()
        );
        spelled.finish(ENGINE, OPTIONS).unwrap();
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_was_expected() {
        for (name, value, expected) in [
            ("collection", "often", "live, tail or off"),
            ("range_io", "aio", "io_uring, threads or sync"),
            ("compression", "gzip", "none, lz4 or zstd"),
            ("space_limit", "100", "110 to 1000"),
            ("inline_bytes", "4097", "0 to 4096"),
            ("filter", "ribbon", "bloom or none"),
            (
                "comparator",
                "leveldb.ReverseBytewise",
                "order of their bytes",
            ),
        ] {
            let mut options = OptionValues::default();
            let error = Tuning::take(options.set(name, value)).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        let mut options = OptionValues::default();
        let named = options.set("filter", "none");
        let named = named.set("comparator", "leveldb.BytewiseComparator");
        assert_eq!(Tuning::take(named).unwrap().filter_bits, 0);
        let mut options = OptionValues::default();
        assert!(Shape::take(options.set("block_bytes", "1000")).is_err());
    }
}
