//! The only road to the disk.
//!
//! Everything above this crate reaches files, devices, clocks, random numbers
//! and threads through the traits here, so that a simulated disk can stand in
//! for the real one and crash it anywhere.
//!
//! | module | what it holds |
//! |---|---|
//! | [`file_system`] | the traits [`FileSystem`] and [`File`] |
//! | [`batch`] | batched reads: [`ReadQueue`] and its back ends |
//! | [`background`] | what background work of all stores may take together |
//! | [`buffer`] | memory aligned for direct I/O |
//! | [`direct_file`] | a direct handle that is read and written at any place |
//! | [`cache`] | one cache of blocks for all stores of an environment |
//! | [`counter`] | counting in many threads |
//! | [`mod@crc32c`] | CRC-32C at the processor's full width |
//! | [`crew`] | jobs of one kind, done by threads and whoever waits |
//! | [`environment`] | clock, randomness, executor, memory budget: one for all stores of a process |
//! | [`memory_budget`] | the memory that all stores of an environment share |
//! | [`kept_queue`] | a read queue that each thread keeps |
//! | [`read_pool`] | threads that read for queues |
//! | [`simulated`] | a disk in memory that crashes and fails from a seed |
//! | [`segmented`] | one long file kept as a row of shorter ones |
//! | [`spans`] | reads that bring several wanted places of a file |
//! | [`step`] | background work as steps |
//! | [`sync`] | locks, atomics and threads |
//! | [`waiting`] | reads that end in place of waiting for a device |
//! | [`write_queue`] | several writes at once |
//! | [`recording`] | a wrapper that writes down and counts every operation |
//! | [`real`] | the operating system's files, devices, threads and clock |
#![deny(unsafe_op_in_unsafe_fn)]

pub mod background;
pub mod batch;
pub mod buffer;
pub mod cache;
pub mod counter;
pub mod crc32c;
pub mod crew;
pub mod direct_file;
pub mod environment;
pub mod events;
pub mod file_system;
mod inline_queue;
pub mod kept_queue;
pub mod memory_budget;
mod pipeline;
pub mod read_pool;
pub mod real;
pub mod recording;
pub mod segmented;
pub mod simulated;
pub mod spans;
pub mod step;
pub mod sync;
pub mod waiting;
pub mod write_queue;

pub use background::{BackgroundLimits, BackgroundTurn};
pub use batch::{BatchOptions, ReadBackend, ReadCompletion, ReadQueue, ReadRequest};
pub use buffer::AlignedBuffer;
pub use cache::BlockCache;
pub use crc32c::{crc32c, crc32c_append};
pub use crew::Crew;
pub use direct_file::DirectFile;
pub use environment::Environment;
pub use file_system::{
    Advice, Alignment, AppendWindow, DirectoryEntry, File, FileKind, FileLock, FilePart,
    FileSystem, LockMode, Metadata, OpenOptions, Space,
};
pub use kept_queue::{KeptQueue, read_all_kept};
pub use pipeline::pipeline;
pub use read_pool::ReadPool;
pub use real::{
    PortableFileSystem, RealFileSystem, SystemClock, SystemRandomness, ThreadExecutor,
    resident_pages,
};
pub use recording::{IoCounters, Recorder, RecordingFileSystem};
pub use segmented::SegmentedFileSystem;
pub use step::{Executor, StepOutcome, Task};
pub use waiting::without_waiting;
pub use write_queue::{SyncWriteQueue, WriteQueue, WriteRequest};
