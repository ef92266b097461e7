//! Options of engine `zdb`: those fixed at creation ([`Shape`]), which the
//! superblock keeps, and those of each opening ([`Tuning`]).

use cambium_api::options::invalid_option;
use cambium_api::{OptionSpec, OptionValues, Seeded};
use cambium_base::Result;
use cambium_base::coding::Decoder;
use cambium_index::SlotFormat;
use cambium_io::ReadBackend;

use crate::seeded_bug::SeededBug;

/// The engine's name.
pub const ENGINE: &str = "zdb";

/// Every option, as `cambium options` prints it.
pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new(
        "keys",
        "string or integer",
        "string",
        true,
        "What keys are. integer: unsigned 64-bit, ordered, one slot each, the least memory there is; for dense keys such as row numbers. string: any bytes, unordered, through hashed buckets.",
    ),
    OptionSpec::new(
        "slot_bytes",
        "4 to 8 bytes",
        "8",
        true,
        "Memory of the index a key of the range. Smaller saves memory and bounds each data file to (2^(8*slot_bytes)-2)*alignment bytes: 32 GiB for 4 bytes at alignment 8.",
    ),
    OptionSpec::new(
        "alignment",
        "bytes, a power of two to 4096",
        "8",
        true,
        "Entries begin at multiples of it. Larger lets small slots reach further and wastes half of it an entry.",
    ),
    OptionSpec::new(
        "data_files",
        "files a table, 1 to 256",
        "4",
        true,
        "Key k lies in file k mod data_files of its table. More files compact in smaller pieces; each costs a handle.",
    ),
    OptionSpec::new(
        "keys_per_table",
        "keys",
        "1000000",
        true,
        "Keys a flat table covers. Larger suits dense keys; smaller wastes less on the last table.",
    ),
    OptionSpec::new(
        "piece_bytes",
        "bytes, 256 to 16MiB",
        "64KiB",
        true,
        "Unit in which the index is read, verified and written. Smaller reads less on first touch; leave it alone.",
    ),
    OptionSpec::new(
        "block_bytes",
        "bytes, a power of two, 256 to 64KiB",
        "4096",
        true,
        "A log goes on at a block of its own after a sync. The device's block or page size; leave it alone.",
    ),
    OptionSpec::new(
        "buckets",
        "buckets, a power of two to 2^27",
        "65536",
        true,
        "String keys: buckets to begin with; the table grows online as keys pass buckets. The paper begins with 2^27.",
    ),
    OptionSpec::new(
        "commit_log_bytes",
        "bytes",
        "8MiB",
        true,
        "Size of each of the two commit logs. When one is full, the data files are synced; larger means fewer of these syncs under small synced writes.",
    ),
    OptionSpec::new(
        "commit_group_bytes",
        "bytes",
        "64KiB",
        false,
        "Synced groups up to this size go to the commit log with one sync; larger ones sync the data files themselves. 0: never the commit log.",
    ),
    OptionSpec::new(
        "checkpoint_bytes",
        "bytes",
        "128MiB",
        false,
        "Bytes written between two checkpoints of the index. Smaller opens faster after a crash; larger writes the index less often.",
    ),
    OptionSpec::new(
        "open_tables",
        "tables",
        "128",
        false,
        "Tables with their files and index in memory; the least recently used are closed first.",
    ),
    OptionSpec::new(
        "max_tables",
        "tables",
        "65536",
        false,
        "Most tables a store may have: a bound on what keys far apart can cost.",
    ),
    OptionSpec::new(
        "sparse_tables",
        "tables",
        "16",
        false,
        "Nearly empty tables that are allowed before a key that would make another one is refused. Raise it only for keys that will become dense.",
    ),
    OptionSpec::new(
        "read_guess_bytes",
        "bytes",
        "4096",
        false,
        "Bytes read at once for an entry: entries up to it cost one read, larger ones two.",
    ),
    OptionSpec::new(
        "buffer_bytes",
        "bytes",
        "1MiB",
        false,
        "Buffered writes are handed to the operating system when this much has gathered in a data file.",
    ),
    OptionSpec::new(
        "cache_bytes",
        "bytes",
        "8MiB",
        false,
        "Cache: values of integer keys, hot buckets of string keys. Larger answers more reads from memory; dense small values take 16 bytes each. 0 switches it off.",
    ),
    OptionSpec::new(
        "snapshot_limit",
        "entries",
        "1000000",
        false,
        "Old positions kept for open snapshots and cursors; beyond it writers get an error, readers never a wrong answer.",
    ),
    OptionSpec::new(
        "compaction_threshold",
        "percent stale, 100 = never by itself",
        "50",
        false,
        "A data file is compacted in the background when this share of its entries is stale.",
    ),
    OptionSpec::new(
        "compaction_least_bytes",
        "bytes",
        "1MiB",
        false,
        "Data files smaller than this are not compacted by themselves.",
    ),
    cambium_api::changes::HISTORY_BYTES,
    OptionSpec::new(
        "io",
        "sync, aio or io_uring",
        "io_uring",
        false,
        "How batched reads (multi_get) reach the kernel.",
    ),
    OptionSpec::new(
        "batch",
        "reads, 1 to 1024",
        "64",
        false,
        "Batched reads under way at once.",
    ),
];

/// What keys are in this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Unsigned 64-bit integers, ordered.
    Integer,
    /// Any bytes, through hashed buckets.
    String,
}

/// What is fixed when a store is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What keys are.
    pub keys: Keys,
    /// Bytes a slot, and the unit of positions.
    pub slots: SlotFormat,
    /// Entries begin at multiples of this.
    pub alignment: u64,
    /// Data files a table.
    pub data_files: u32,
    /// Keys a table.
    pub keys_per_table: u64,
    /// Bytes of index in one piece.
    pub piece_bytes: u32,
    /// Unit of padding after a sync.
    pub block_bytes: u32,
    /// Buckets to begin with.
    pub buckets: u64,
    /// Bytes of each commit log.
    pub commit_log_bytes: u64,
}

impl Shape {
    /// Takes the options fixed at creation out of `options`.
    pub fn take(options: &mut OptionValues) -> Result<Self> {
        let keys = match options.take("keys").as_deref() {
            None | Some("string") => Keys::String,
            Some("integer") => Keys::Integer,
            Some(other) => return Err(invalid_option("keys", other, "string or integer")),
        };
        let slot_bytes = options.take_ranged("slot_bytes", 8, 4, 8)?;
        let alignment = options.take_ranged("alignment", 8, 1, 4096)?;
        let shape = Shape {
            keys,
            slots: SlotFormat::new(slot_bytes as usize, alignment)?,
            alignment,
            data_files: options.take_ranged("data_files", 4, 1, 256)? as u32,
            keys_per_table: options.take_ranged("keys_per_table", 1_000_000, 1, 1 << 32)?,
            piece_bytes: options.take_ranged("piece_bytes", 64 << 10, 256, 16 << 20)? as u32,
            block_bytes: options.take_ranged("block_bytes", 4096, 256, 64 << 10)? as u32,
            buckets: options.take_ranged("buckets", 1 << 16, 1, 1 << 27)?,
            commit_log_bytes: options.take_ranged("commit_log_bytes", 8 << 20, 1 << 10, 1 << 30)?,
        };
        if !shape.block_bytes.is_power_of_two() || u64::from(shape.block_bytes) < alignment {
            return Err(invalid_option(
                "block_bytes",
                &shape.block_bytes.to_string(),
                "a power of two, no smaller than the alignment",
            ));
        }
        if !shape.buckets.is_power_of_two() {
            return Err(invalid_option(
                "buckets",
                &shape.buckets.to_string(),
                "a power of two",
            ));
        }
        Ok(shape)
    }

    /// The options that make a store of this shape, with so many buckets.
    pub fn as_options(&self, buckets: u64) -> OptionValues {
        let keys = match self.keys {
            Keys::Integer => "integer",
            Keys::String => "string",
        };
        let mut options = OptionValues::default();
        options.set("keys", keys);
        for (name, value) in [
            ("slot_bytes", self.slots.bytes() as u64),
            ("alignment", self.alignment),
            ("data_files", u64::from(self.data_files)),
            ("keys_per_table", self.keys_per_table),
            ("piece_bytes", u64::from(self.piece_bytes)),
            ("block_bytes", u64::from(self.block_bytes)),
            ("buckets", buckets.next_power_of_two().min(1 << 27)),
            ("commit_log_bytes", self.commit_log_bytes),
        ] {
            options.set(name, &value.to_string());
        }
        options
    }

    /// Appends the shape to a superblock's payload.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.push(match self.keys {
            Keys::Integer => 1,
            Keys::String => 2,
        });
        into.push(self.slots.bytes() as u8);
        into.extend_from_slice(&(self.alignment as u32).to_le_bytes());
        into.extend_from_slice(&self.data_files.to_le_bytes());
        into.extend_from_slice(&self.keys_per_table.to_le_bytes());
        into.extend_from_slice(&self.piece_bytes.to_le_bytes());
        into.extend_from_slice(&self.block_bytes.to_le_bytes());
        into.extend_from_slice(&self.buckets.to_le_bytes());
        into.extend_from_slice(&self.commit_log_bytes.to_le_bytes());
    }

    /// Reads it back, or `None` where it makes no sense.
    pub fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let keys = match decoder.u8()? {
            1 => Keys::Integer,
            2 => Keys::String,
            _ => return None,
        };
        let slot_bytes = usize::from(decoder.u8()?);
        let alignment = u64::from(decoder.u32()?);
        let shape = Shape {
            keys,
            slots: SlotFormat::new(slot_bytes, alignment).ok()?,
            alignment,
            data_files: decoder.u32()?,
            keys_per_table: decoder.u64()?,
            piece_bytes: decoder.u32()?,
            block_bytes: decoder.u32()?,
            buckets: decoder.u64()?,
            commit_log_bytes: decoder.u64()?,
        };
        let sensible = (1..=256).contains(&shape.data_files)
            && (1..=1 << 32).contains(&shape.keys_per_table)
            && (256..=16 << 20).contains(&shape.piece_bytes)
            && (256..=64 << 10).contains(&shape.block_bytes)
            && shape.block_bytes.is_power_of_two()
            && (1..=1 << 27).contains(&shape.buckets);
        sensible.then_some(shape)
    }

    /// Slots in one piece of the index.
    pub fn slots_per_piece(&self) -> usize {
        (self.piece_bytes as usize - crate::format::PIECE_HEADER_BYTES) / self.slots.bytes()
    }

    /// Pieces of a table.
    pub fn pieces(&self) -> usize {
        (self.keys_per_table as usize).div_ceil(self.slots_per_piece())
    }
}

/// What each opening may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Largest synced group that goes to the commit log, bytes.
    pub commit_group_bytes: u64,
    /// Bytes written between checkpoints.
    pub checkpoint_bytes: u64,
    /// Tables open at once.
    pub open_tables: usize,
    /// Tables in all.
    pub max_tables: usize,
    /// Nearly empty tables allowed.
    pub sparse_tables: usize,
    /// First read of an entry, bytes.
    pub read_guess_bytes: usize,
    /// Bytes buffered a data file.
    pub buffer_bytes: usize,
    /// Bytes of entry cache.
    pub cache_bytes: u64,
    /// Old positions kept for snapshots.
    pub snapshot_limit: u64,
    /// Percent stale at which a data file is compacted.
    pub compaction_threshold: u64,
    /// Smallest data file compacted by itself, bytes.
    pub compaction_least_bytes: u64,
    /// Most bytes of data files that are kept for consumers of the change feed alone.
    pub history_bytes: u64,
    /// Back end of batched reads.
    pub backend: ReadBackend,
    /// Batched reads under way.
    pub batch: usize,
    /// A defect to be seeded, so that the suites prove that they find it.
    pub seeded_bug: Seeded<SeededBug>,
}

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
        let most = u64::MAX;
        let backend = match options.take("io") {
            None => ReadBackend::default(),
            Some(text) => text.parse()?,
        };
        let tuning = Tuning {
            commit_group_bytes: options.take_ranged("commit_group_bytes", 64 << 10, 0, 1 << 30)?,
            checkpoint_bytes: options.take_ranged("checkpoint_bytes", 128 << 20, 1 << 10, most)?,
            open_tables: options.take_ranged("open_tables", 128, 1, 1 << 20)? as usize,
            max_tables: options.take_ranged("max_tables", 65_536, 1, 1 << 24)? as usize,
            sparse_tables: options.take_ranged("sparse_tables", 16, 1, 1 << 24)? as usize,
            read_guess_bytes: options.take_ranged("read_guess_bytes", 4096, 64, 64 << 20)? as usize,
            buffer_bytes: options.take_ranged("buffer_bytes", 1 << 20, 0, 1 << 30)? as usize,
            cache_bytes: options.take_ranged("cache_bytes", 8 << 20, 0, most)?,
            snapshot_limit: options.take_ranged("snapshot_limit", 1_000_000, 1, most)?,
            compaction_threshold: options.take_ranged("compaction_threshold", 50, 1, 100)?,
            compaction_least_bytes: options.take_ranged(
                "compaction_least_bytes",
                1 << 20,
                0,
                most,
            )?,
            history_bytes: options.take_ranged("history_bytes", 1 << 30, 0, most)?,
            backend,
            batch: options.take_ranged("batch", 64, 1, 1024)? as usize,
            seeded_bug: Seeded::take(options, ENGINE, &SeededBug::ALL)?,
        };
        Ok(tuning)
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
    fn a_shape_survives_its_encoding() {
        let shape = Shape::take(
            OptionValues::default()
                .set("keys", "integer")
                .set("slot_bytes", "5"),
        )
        .unwrap();
        let mut bytes = Vec::new();
        shape.encode(&mut bytes);
        assert_eq!(Shape::decode(&mut Decoder::new(&bytes)), Some(shape));
    }
}
