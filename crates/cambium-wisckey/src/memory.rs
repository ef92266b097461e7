//! The memory of an open store, in parts.

use cambium_api::{MemoryPart, MemoryPlan, OptionValues};
use cambium_base::Result;
use cambium_io::Environment;

use crate::options::{ENGINE, OPTIONS, Tuning};

const TABLES: &str = "open_tables_limit_bytes";
const WINDOW: &str = "collection_limit_bytes";

const PARTS: &[MemoryPart] = &[
    MemoryPart::cache("the cache of the tree's blocks; of all stores that share it"),
    // The active one, four that wait for a flush, and the order of the one that is flushed.
    MemoryPart::of_option(
        "write_buffer_limit_bytes",
        "write buffers: the active one and those that wait for a flush",
        "write_buffer_bytes",
        512 << 10,
        6,
    ),
    MemoryPart::of_option(
        "log_buffer_limit_bytes",
        "buffered writes of the value log, and of the segment that collection fills",
        "buffer_bytes",
        64 << 10,
        2,
    ),
    // A flush and two compactions: the filters and indexes of the tables that they write.
    MemoryPart::of_option(
        "tree_jobs_limit_bytes",
        "tables that a flush and compactions of the tree are writing",
        "table_bytes",
        1 << 20,
        2,
    ),
    MemoryPart::planned(
        TABLES,
        "filters and indexes of open tables",
        (256 << 20, 1 << 20),
        1,
    ),
    // A buffer doubles as it grows.
    MemoryPart::planned(
        WINDOW,
        "values that garbage collection, or the sorting of values, moves at a time",
        (16 << 20, 1 << 20),
        2,
    ),
    // Recent writes for transactions take up to 4 MiB.
    MemoryPart::fixed(
        "other_limit_bytes",
        "recent writes for transactions, and buffers of the tree's jobs",
        10 << 20,
    ),
];

/// Fits the store into the environment's memory budget.
pub(crate) fn plan(environment: &Environment, options: &mut OptionValues) -> Result<MemoryPlan> {
    MemoryPlan::fit(environment, ENGINE, (OPTIONS, PARTS), options)
}

impl Tuning {
    /// Bounds what no option does by a plan.
    pub(crate) fn within(self, plan: &MemoryPlan) -> Self {
        Tuning {
            table_cache_bytes: plan.limit(TABLES),
            window_bytes: plan.limit(WINDOW),
            ..self
        }
    }
}
