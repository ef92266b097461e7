//! What `kvzone device` found, as it goes into JSON.
//!
//! Units stand in the names: bytes, seconds, nanoseconds; rates are per second.

use serde::{Deserialize, Serialize};

use crate::latency::Latency;

/// The `schema` of the JSON.
pub const SCHEMA: &str = "kvzone-device/1";

/// Everything one run found. A list is empty where it was not measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Where it was measured.
    pub machine: Machine,
    /// The folder the test file was in.
    pub directory: String,
    /// Length of the test file.
    pub file_bytes: u64,
    /// Bound of each measurement.
    pub seconds_per_measurement: f64,
    /// What could not be measured, and fallbacks, in words.
    pub notes: Vec<String>,
    /// Random reads.
    pub random_reads: Vec<RandomReads>,
    /// Sequential reads and writes.
    pub sequential: Vec<Sequential>,
    /// Small writes, each followed by a sync.
    pub synced_writes: Vec<SyncedWrites>,
}

/// The machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Processors this process may use.
    pub processors: Option<usize>,
    /// Memory.
    pub memory_bytes: Option<u64>,
}

/// One measurement of random reads; every block is read at most once before
/// all have been, so a buffered read is a miss of the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RandomReads {
    /// The back end asked for: `sync`, `aio`, `io_uring`.
    pub backend: String,
    /// The back end that served, after any fallback.
    pub served_by: String,
    /// Past the operating system's cache.
    pub direct: bool,
    /// Reads kept under way (`sync` has one under way at any depth).
    pub depth: usize,
    /// Bytes a read.
    pub block_bytes: usize,
    /// Reads completed.
    pub reads: u64,
    /// Time they took.
    pub seconds: f64,
    /// `reads / seconds`.
    pub reads_per_second: f64,
    /// System calls made for them.
    pub system_calls: u64,
    /// From submission to completion.
    pub latency_ns: Latency,
}

/// One measurement of sequential reads or writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sequential {
    /// `read` or `write`.
    pub operation: String,
    /// Past the operating system's cache.
    pub direct: bool,
    /// Bytes an operation.
    pub block_bytes: usize,
    /// Bytes in all.
    pub bytes: u64,
    /// Time, for writes with the final sync.
    pub seconds: f64,
    /// `bytes / seconds`.
    pub bytes_per_second: f64,
}

/// One measurement of small writes, each made durable before the next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SyncedWrites {
    /// `append` (the file grows: each sync writes metadata too) or `overwrite`
    /// (blocks that were written before).
    pub pattern: String,
    /// Past the operating system's cache.
    pub direct: bool,
    /// Bytes a write.
    pub block_bytes: usize,
    /// Writes, and syncs, completed.
    pub writes: u64,
    /// Time they took.
    pub seconds: f64,
    /// `writes / seconds`.
    pub writes_per_second: f64,
    /// Of a write with its sync.
    pub latency_ns: Latency,
}
