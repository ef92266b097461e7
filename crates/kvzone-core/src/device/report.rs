//! What `kvzone device` found, as it goes into JSON.
//!
//! Units stand in the names: bytes, seconds, nanoseconds; rates are per second.

use serde::{Deserialize, Serialize};

use crate::record::LatencySummary;

pub const SCHEMA: &str = "kvzone-device/1";

/// Everything one run found. A list is empty where it was not measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeviceReport {
    pub schema: String,
    pub machine: Machine,
    pub directory: String,
    pub file_bytes: u64,
    pub seconds_per_measurement: f64,
    /// What could not be measured, and fallbacks, in words.
    pub notes: Vec<String>,
    pub random_reads: Vec<RandomReads>,
    pub sequential: Vec<Sequential>,
    /// Small writes, each followed by a sync.
    pub synced_writes: Vec<SyncedWrites>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Release of the kernel.
    pub kernel: Option<String>,
    pub processors: Option<usize>,
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
    pub block_bytes: usize,
    pub reads: u64,
    pub seconds: f64,
    pub reads_per_second: f64,
    pub system_calls: u64,
    /// From submission to completion.
    pub latency_ns: Option<LatencySummary>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sequential {
    /// `read` or `write`.
    pub operation: String,
    /// Past the operating system's cache.
    pub direct: bool,
    pub block_bytes: usize,
    pub bytes: u64,
    pub seconds: f64,
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
    pub block_bytes: usize,
    pub writes: u64,
    pub seconds: f64,
    pub writes_per_second: f64,
    /// Of a write with its sync.
    pub latency_ns: Option<LatencySummary>,
}
