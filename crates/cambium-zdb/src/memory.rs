//! The memory of an open store, in parts.

use cambium_api::options::parse_bytes;
use cambium_api::{MemoryPart, MemoryPlan, OptionValues};
use cambium_base::Result;
use cambium_io::Environment;

use crate::options::{ENGINE, OPTIONS, Shape};

/// Buffer of a data file in a limited budget, unless the option is set.
const SMALL_BUFFER: &str = "64KiB";

/// Fits a store of this shape into the environment's memory budget.
pub(crate) fn plan(
    environment: &Environment,
    shape: &Shape,
    options: &mut OptionValues,
) -> Result<MemoryPlan> {
    const BUFFER: &str = "buffer_bytes";
    if environment.memory.limit().is_some() && options.get(BUFFER).is_none() {
        options.set(BUFFER, SMALL_BUFFER);
    }
    let default = OPTIONS.iter().find(|option| option.name == BUFFER);
    let buffer = options
        .get(BUFFER)
        .or(default.map(|option| option.default))
        .and_then(parse_bytes)
        .unwrap_or(0);
    let index = shape
        .keys_per_table
        .saturating_mul(shape.slots.bytes() as u64);
    let buffers = u64::from(shape.data_files).saturating_mul(buffer);
    let table = index.saturating_add(buffers);
    let parts = [
        MemoryPart::cache("the cache of entries"),
        // Before writers make a checkpoint, a quarter more tables may be open.
        MemoryPart::of_option(
            "open_tables_limit_bytes",
            "open tables: the pieces of their index, and buffered writes of their data files",
            "open_tables",
            1,
            table.saturating_add(table / 4),
        ),
        MemoryPart::of_option(
            "snapshots_limit_bytes",
            "old positions for open snapshots and cursors",
            "snapshot_limit",
            10_000,
            100,
        ),
        // Where entries of a data file lay and lie, in a table that doubles.
        MemoryPart::fixed(
            "compaction_limit_bytes",
            "places of the entries of a data file while it is compacted",
            (shape.keys_per_table / u64::from(shape.data_files)).saturating_mul(50),
        ),
        // Recent writes for transactions take up to 4 MiB.
        MemoryPart::fixed(
            "other_limit_bytes",
            "recent writes for transactions, and buffers of compaction",
            8 << 20,
        ),
    ];
    MemoryPlan::fit(environment, ENGINE, (OPTIONS, &parts), options)
}
