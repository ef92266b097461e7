//! Options of engine `alphard`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::changes::HISTORY_BYTES;
use cambium_api::options::{invalid_option, parse_bytes};
use cambium_api::{OptionSpec, OptionValues, Seeded};
use cambium_base::Result;
use cambium_io::{BatchOptions, BlockCache, Environment, ReadBackend};
use cambium_storage::creation::clean;

use crate::flights::MOST_FLIGHT_BYTES;
use crate::format::{DATA_START, Superblock};
use crate::members::Members;
use crate::seeded_bug::SeededBug;
use crate::submit::QUEUED_BYTES;
use crate::volume::Access;

/// The engine's name.
pub const ENGINE: &str = "alphard";

/// Everything that `cambium options` prints.
pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "device",
        unit: "path of a block device or file",
        default: "",
        effect: "Where the entries lie; empty is a preallocated file in the store's folder. A device is refused if it carries a file system, another store or anything else, unless `force` is on.",
        at_creation: true,
    },
    OptionSpec {
        name: "mirror",
        unit: "path of a block device or file",
        default: "",
        effect: "A second place for the same bytes: either of the two can be lost. Both are written at once; one that was away is brought up to date while the store serves. A file is made where nothing is; a relative path lies in the store's folder; empty is no mirror.",
        at_creation: true,
    },
    OptionSpec {
        name: "size",
        unit: "bytes",
        default: "1GiB",
        effect: "Space for entries, all of it taken at once; of a device, the part that is used (0 is all of it). A file that is there is used as far as it goes where nothing is said, and not cut off without `force`. `compact --set size=...` extends it later.",
        at_creation: true,
    },
    OptionSpec {
        name: "block_bytes",
        unit: "auto, 512 or 4096",
        default: "auto",
        effect: "Unit of space: each entry takes whole blocks, with 68 bytes of header. auto is the smallest the device takes; 4096 halves the work for large values on disks of 4 KiB sectors.",
        at_creation: true,
    },
    OptionSpec {
        name: "fill",
        unit: "on or off",
        default: "off",
        effect: "Write zeros to all of a file when it is made, and to what `compact --set size=...` adds, where else the space is only reserved. That takes as long as writing so much; afterwards no write waits for the file system to take note of new space, whatever its size. Nothing is done on devices.",
        at_creation: true,
    },
    OptionSpec {
        name: "force",
        unit: "on or off",
        default: "off",
        effect: "Format a device or file that is named whatever it carries; all of that is lost. Without a device named: make the store also where one lies that has lost its file CAMBIUM, which is lost too.",
        at_creation: true,
    },
    OptionSpec {
        name: "history",
        unit: "on or off",
        default: "off",
        effect: "Keep history for the change feed: entries that were overwritten or deleted keep their space until consumers have read the changes, up to `history_bytes`. The place of each change that can be read takes 8 bytes of memory. off costs nothing, and the store has no change feed.",
        at_creation: true,
    },
    OptionSpec {
        name: "direct",
        unit: "auto, on or off",
        default: "auto",
        effect: "Bypass the operating system's cache; auto does where the file system can, and takes transfers of the store's blocks. off is for file systems in memory, and for reads that repeat.",
        at_creation: false,
    },
    OptionSpec {
        name: "coalesce_bytes",
        unit: "bytes",
        default: "1MiB",
        effect: "Most bytes that one write carries, and most that buffered writes keep in memory; smaller gives lower latency to those who come last, larger more throughput.",
        at_creation: false,
    },
    OptionSpec {
        name: "extend_bytes",
        unit: "bytes",
        default: "64MiB",
        effect: "Space is taken into use in such steps, each with a sync; a scan after a crash reads what is in use. With `zero_ahead` the first steps are smaller: an eighth of what is in use, and 4 MiB at least.",
        at_creation: false,
    },
    OptionSpec {
        name: "io",
        unit: "sync, aio or io_uring",
        default: "io_uring",
        effect: "How writes, reads of several entries, and the scan after a crash reach the kernel; sync where the kernel refuses the others. With io_uring several writes are under way at once.",
        at_creation: false,
    },
    OptionSpec {
        name: "batch",
        unit: "reads or writes under way",
        default: "32",
        effect: "How many of those are under way at once, 1 to 1024.",
        at_creation: false,
    },
    OptionSpec {
        name: "queues",
        unit: "queues, 1 to 64",
        default: "2",
        effect: "Submitted requests are spread over so many queues by their keys, each with a worker; more serve more reads at once, fewer gather more writes into one.",
        at_creation: false,
    },
    OptionSpec {
        name: "key_cache_bytes",
        unit: "bytes",
        default: "16MiB",
        effect: "Memory for hashes of keys of more than 7 bytes, about 50 bytes a key: writing over a key that is there costs no read of its entry. 0 saves the memory.",
        at_creation: false,
    },
    OptionSpec {
        name: "cache_bytes",
        unit: "bytes, 0 to 1024TiB, or shared",
        default: "shared",
        effect: "Cache of values that lookups have read: those are answered from memory, without an access to the device. shared: one for all stores of the environment (64 MiB, unless it was given another). A size: the store's own; 0 switches it off. The memory is taken as it fills; values of more than a sixteenth of it are not kept.",
        at_creation: false,
    },
    OptionSpec {
        name: "discard_bytes",
        unit: "bytes",
        default: "0",
        effect: "When so much has become free, the device is told that nobody needs it (a discard), or a hole in the file gives the space back; 0 is never. A flash device stays fast while it is full; a file then takes no more space than its entries, and writes can meet a full file system.",
        at_creation: false,
    },
    OptionSpec {
        name: "zero_ahead",
        unit: "on or off",
        default: "on",
        effect: "While small synced writes take new space of a file, write zeros in the background to the space that follows, up to `extend_bytes`: the first write to a place makes the file system commit its journal with the sync. Nothing is done on devices, with direct=off, with discard_bytes, or in a store made with fill=on.",
        at_creation: false,
    },
    OptionSpec {
        name: "snapshot_limit",
        unit: "changes",
        default: "1000000",
        effect: "Most changes that open snapshots and cursors keep in memory, some 100 bytes each; beyond it writers get an error.",
        at_creation: false,
    },
    HISTORY_BYTES,
];

/// What is fixed when a store is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Creation {
    pub device: Option<PathBuf>,
    pub mirror: Option<PathBuf>,
    /// Bytes; `None` where nothing was said.
    pub size: Option<u64>,
    pub block_bytes: Option<u32>,
    /// Zeros are written to all of a file.
    pub fill: bool,
    pub force: bool,
    /// The store keeps history for the change feed.
    pub history: bool,
}

/// What each opening may choose.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    pub access: Access,
    pub coalesce_bytes: usize,
    pub extend_bytes: u64,
    pub read_queue: BatchOptions,
    pub queues: usize,
    pub key_cache_bytes: u64,
    /// The store's own cache of values; `None` for the environment's.
    pub cache_bytes: Option<u64>,
    pub snapshot_limit: u64,
    /// The most log that is kept for consumers of changes.
    pub history_bytes: u64,
    /// 0 where nothing is discarded.
    pub discard_bytes: u64,
    /// Zeros are written ahead of small synced writes.
    pub zero_ahead: bool,
    /// Bytes of entries that are being written.
    pub flight_bytes: usize,
    /// Bytes of submitted requests that wait.
    pub submitted_bytes: u64,
    pub seeded_bug: Seeded<SeededBug>,
}

impl Tuning {
    /// The cache of a store that is opened with these.
    pub fn cache_of(&self, environment: &Environment) -> Arc<BlockCache> {
        self.cache_bytes
            .map_or_else(|| environment.cache.clone(), crate::kept::own_cache)
    }
}

/// Smallest store: two superblocks and a little.
pub(crate) const LEAST_SIZE: u64 = 64 << 10;
const _: () = assert!(LEAST_SIZE > DATA_START);

pub(crate) fn creation(options: &mut OptionValues) -> Result<Creation> {
    let device = options.take("device").filter(|path| !path.is_empty());
    let mirror = options.take("mirror").filter(|path| !path.is_empty());
    let size = options.take_u64("size")?;
    if let Some(size) = size.filter(|&size| size < LEAST_SIZE && (size > 0 || device.is_none())) {
        return Err(invalid_option(
            "size",
            &size.to_string(),
            &format!("{LEAST_SIZE} bytes or more"),
        ));
    }
    let block_bytes = match options.take("block_bytes").as_deref() {
        None | Some("auto") => None,
        Some("512") => Some(512),
        Some("4096") => Some(4096),
        Some(other) => return Err(invalid_option("block_bytes", other, "auto, 512 or 4096")),
    };
    Ok(Creation {
        device: device.map(PathBuf::from),
        mirror: mirror.map(PathBuf::from),
        size,
        block_bytes,
        fill: options.take_bool("fill")?.unwrap_or(false),
        force: options.take_bool("force")?.unwrap_or(false),
        history: options.take_bool("history")?.unwrap_or(false),
    })
}

/// The options of an opening, a check or a repair, and those among them that are fixed when a
/// store is created ([`check_fixed`]).
pub(crate) fn tuning_of_opening(options: &OptionValues) -> Result<(Tuning, OptionValues)> {
    let mut options = options.clone();
    let fixed = options.take_fixed(OPTIONS);
    Ok((tuning(options)?, fixed))
}

/// Refuses options of an opening that differ from what the store was created with. `fill` and
/// `force` say how it is made, and a store that was extended since may be told its first size.
///
/// # Errors
/// `InvalidArgument`, with both values.
pub(crate) fn check_fixed(
    mut fixed: OptionValues,
    folder: &Path,
    members: &Members,
    superblock: &Superblock,
) -> Result<()> {
    for name in ["fill", "force"] {
        fixed.take_bool(name)?;
    }
    let mut stored = OptionValues::default();
    let keeps_history = if superblock.history_lost.is_some() {
        "on"
    } else {
        "off"
    };
    if let Some(asked) = fixed.take_bool("history")? {
        fixed.set("history", if asked { "on" } else { "off" });
        stored.set("history", keeps_history);
    }
    let size = u64::from(superblock.total_blocks) * u64::from(superblock.block_bytes);
    // `compact --set size` may have extended the store since.
    let is_within = |asked: u64| asked < size + u64::from(superblock.block_bytes);
    match fixed.get("size").and_then(parse_bytes) {
        Some(asked) if is_within(asked) => _ = fixed.take("size"),
        _ => _ = stored.set("size", &size.to_string()),
    }
    match fixed.get("block_bytes") {
        Some("auto") => _ = fixed.take("block_bytes"),
        _ => _ = stored.set("block_bytes", &superblock.block_bytes.to_string()),
    }
    for (member, name) in ["device", "mirror"].into_iter().enumerate() {
        let recorded = members.paths.get(member);
        // By default a file of the folder, and no mirror.
        let is_recorded = |asked: &str| match recorded {
            Some(_) if asked.is_empty() => member == 0,
            Some(path) => clean(&folder.join(path)) == clean(&folder.join(asked)),
            None => asked.is_empty(),
        };
        if fixed.get(name).is_some_and(is_recorded) {
            fixed.take(name);
        } else {
            let path = recorded.map(|path| path.display().to_string());
            stored.set(name, &path.unwrap_or_else(|| "none".to_string()));
        }
    }
    fixed.check_fixed(&stored)
}

pub(crate) fn tuning(mut options: OptionValues) -> Result<Tuning> {
    let access = match options.take("direct").as_deref() {
        None | Some("auto") => Access::Either,
        Some("on") => Access::Direct,
        Some("off") => Access::Buffered,
        Some(other) => return Err(invalid_option("direct", other, "auto, on or off")),
    };
    let backend: Option<ReadBackend> = options.take("io").map(|text| text.parse()).transpose()?;
    let read_queue = BatchOptions {
        backend: backend.unwrap_or_default(),
        depth: options.take_ranged("batch", 32, 1, BatchOptions::MAX_DEPTH as u64)? as usize,
    };
    let tuning = Tuning {
        access,
        coalesce_bytes: options.take_ranged("coalesce_bytes", 1 << 20, 4096, 1 << 30)? as usize,
        extend_bytes: options.take_ranged("extend_bytes", 64 << 20, 4096, 1 << 40)?,
        read_queue,
        queues: options.take_ranged("queues", 2, 1, 64)? as usize,
        key_cache_bytes: options.take_ranged("key_cache_bytes", 16 << 20, 0, 1 << 40)?,
        cache_bytes: options.take_cache_bytes()?,
        discard_bytes: options.take_ranged("discard_bytes", 0, 0, 1 << 40)?,
        zero_ahead: options.take_bool("zero_ahead")?.unwrap_or(true),
        snapshot_limit: options.take_ranged("snapshot_limit", 1_000_000, 1, u64::MAX)?,
        history_bytes: options.take_ranged("history_bytes", 1 << 30, 0, 1 << 50)?,
        flight_bytes: MOST_FLIGHT_BYTES,
        submitted_bytes: QUEUED_BYTES,
        seeded_bug: Seeded::take(&mut options, ENGINE, &SeededBug::ALL)?,
    };
    options.finish(ENGINE, OPTIONS)?;
    Ok(tuning)
}
