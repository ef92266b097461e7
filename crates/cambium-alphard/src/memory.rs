//! The memory of an open store, in parts, and the index, which grows with the entries.

use cambium_api::{MemoryPart, MemoryPlan, OptionValues};
use cambium_base::Result;
use cambium_io::Environment;

use crate::change_log::ChangeLog;
use crate::core::{Core, Writer, lock, read};
use crate::options::{ENGINE, OPTIONS, Tuning};
use crate::recovery::Recovered;

const FLIGHTS: &str = "writes_under_way_limit_bytes";
const SUBMITTED: &str = "submitted_limit_bytes";

/// Parts that are counted in KiB, with a quarter beside: of writes under way, buffers that
/// are used again; of submitted requests, those that workers have taken.
const KIB_AND_A_QUARTER: u64 = 1024 + 256;

const PARTS: &[MemoryPart] = &[
    MemoryPart::cache("the cache of values; of all stores that share it"),
    MemoryPart::of_option(
        "key_cache_limit_bytes",
        "hashes of keys of more than 7 bytes",
        "key_cache_bytes",
        0,
        1,
    ),
    MemoryPart::of_option(
        "snapshots_limit_bytes",
        "changes that open snapshots and cursors keep",
        "snapshot_limit",
        10_000,
        100,
    ),
    // Four times as much may wait, and one is being put together.
    MemoryPart::of_option(
        "waiting_limit_bytes",
        "entries that wait to be written",
        "coalesce_bytes",
        64 << 10,
        5,
    ),
    MemoryPart::planned(
        FLIGHTS,
        "entries that are being written, and buffers for the next",
        (64 << 10, 1 << 10),
        KIB_AND_A_QUARTER,
    ),
    MemoryPart::planned(
        SUBMITTED,
        "submitted requests that are not done",
        (64 << 10, 1 << 10),
        KIB_AND_A_QUARTER,
    ),
    // Recent writes for transactions take up to 4 MiB.
    MemoryPart::fixed(
        "other_limit_bytes",
        "recent writes for transactions, the map of free space, and buffers of upkeep",
        8 << 20,
    ),
];

/// What an entry takes in the index, with the room that segments have.
const INDEX_ENTRY_BYTES: u64 = 24;
/// What a stale header takes in the lists that it is in.
const STALE_HEADER_BYTES: u64 = 64;
/// What a change takes in the change log, with the room that it has.
const LOGGED_CHANGE_BYTES: u64 = 16;
/// The reservation of the index grows by this at least.
const LEAST_GROWTH: u64 = 256 << 10;

/// Fits the store into the environment's memory budget, with room for an index of so many
/// bytes.
pub(crate) fn plan(
    environment: &Environment,
    options: &mut OptionValues,
    index_bytes: u64,
) -> Result<MemoryPlan> {
    let growing = match index_bytes {
        0 => 0,
        _ => with_room_ahead(index_bytes),
    };
    MemoryPlan::fit_beside(environment, ENGINE, (OPTIONS, PARTS), options, growing)
}

/// Bytes of an index of so many entries, with stale headers and a change log.
pub(crate) fn index_bytes(entries: u64, stale: u64, changes: u64) -> u64 {
    entries * INDEX_ENTRY_BYTES + stale * STALE_HEADER_BYTES + changes * LOGGED_CHANGE_BYTES
}

fn with_room_ahead(bytes: u64) -> u64 {
    bytes + (bytes / 8).max(LEAST_GROWTH)
}

impl Recovered {
    /// Bytes that its index takes.
    pub fn index_bytes(&self) -> u64 {
        let state = &self.state;
        let changes = state.log.as_ref().map_or(0, ChangeLog::len) as u64;
        index_bytes(state.index.len() as u64, self.stale.len() as u64, changes)
    }
}

impl Tuning {
    /// Bounds what no option does by a plan.
    pub fn within(self, plan: &MemoryPlan) -> Self {
        Tuning {
            flight_bytes: (plan.limit(FLIGHTS) << 10) as usize,
            submitted_bytes: plan.limit(SUBMITTED) << 10,
            ..self
        }
    }
}

impl Core {
    /// Keeps the plan for as long as the store is open, and reserves the memory of the index.
    ///
    /// # Errors
    /// `LimitExceeded` where the budget has too little left for the entries that are there.
    pub fn keep_within(&self, plan: MemoryPlan) -> Result<()> {
        let plan = self.memory.get_or_init(|| plan);
        let mut writer = lock(&self.writer);
        writer.index_memory = Some(plan.reserve(0)?);
        self.reserve_index(&mut writer, 0)
    }

    /// Reserves memory for so many more entries in the index.
    ///
    /// # Errors
    /// `LimitExceeded` where the budget has too little left; nothing has changed then.
    pub fn reserve_index(&self, writer: &mut Writer, more: u64) -> Result<()> {
        let state = read(&self.state);
        let entries = state.index.len() as u64 + more;
        let changes = state.log.as_ref().map_or(0, ChangeLog::len) as u64;
        drop(state);
        let stale = writer.stale.len() as u64;
        let Some(reserved) = &mut writer.index_memory else {
            return Ok(());
        };
        let bytes = index_bytes(entries, stale, changes);
        if bytes <= reserved.bytes() {
            return Ok(());
        }
        let ahead = with_room_ahead(bytes);
        reserved.resize(ahead).or_else(|_| reserved.resize(bytes))
    }
}
