//! The memory of an open store, in parts.

use cambium_api::{MemoryPart, MemoryPlan, OptionValues};
use cambium_base::Result;
use cambium_io::Environment;

use crate::options::{ENGINE, OPTIONS};

const PARTS: &[MemoryPart] = &[
    MemoryPart::cache("the cache of nodes and documents; of all stores that share it"),
    MemoryPart::of_option(
        "write_buffer_limit_bytes",
        "write buffers: the active one, the sealed one and what is packed",
        "write_buffer_bytes",
        512 << 10,
        3,
    ),
    MemoryPart::of_option(
        "flush_limit_bytes",
        "working memory of a flush",
        "flush_bytes",
        256 << 10,
        1,
    ),
    MemoryPart::of_option(
        "log_buffer_limit_bytes",
        "buffered writes of the database file, and of the new file of a compaction",
        "buffer_bytes",
        64 << 10,
        2,
    ),
    MemoryPart::of_option(
        "compaction_limit_bytes",
        "working memory of a compaction",
        "compaction_memory_bytes",
        1 << 20,
        1,
    ),
    // Recent writes for transactions take up to 4 MiB, reads of a flush 1 MiB.
    MemoryPart::fixed(
        "other_limit_bytes",
        "recent writes for transactions, and read buffers",
        8 << 20,
    ),
];

/// Fits the store into the environment's memory budget.
pub(crate) fn plan(environment: &Environment, options: &mut OptionValues) -> Result<MemoryPlan> {
    MemoryPlan::fit(environment, ENGINE, (OPTIONS, PARTS), options)
}
