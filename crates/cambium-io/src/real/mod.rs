//! The real world: files, devices, threads, clock and random numbers of the
//! operating system.
//!
//! | module | what it holds |
//! |---|---|
//! | `file` | an open file or block device: positioned reads and writes, sync, space |
//! | `alignment` | what direct I/O demands of a handle |
//! | `lock` | advisory locks with the owner's process id |
//! | `parts` | clock, random numbers, [`crate::Environment::real`] |
//! | `executor` | one thread per task |
//! | `residency` | how much of a file lies in the cache |
//! | `queue` | batched reads through `pread`, Linux AIO and io_uring |
//!
//! Media assumptions, and what breaks where one is false:
//!
//! - `fdatasync` empties the device's volatile cache. A device that lies about
//!   it loses `Synced` writes in a power cut.
//! - A rename replaces the target atomically, and is durable once its folder
//!   is synced. Without it a manifest could be lost with both names.
//! - A 512-byte sector is written whole or not at all; nothing larger is taken
//!   for atomic.
//!
//! Space is counted as `st_blocks * 512`, what the file takes on the device,
//! never as its length.

mod alignment;
mod executor;
mod file;
mod lock;
mod parts;
mod queue;
mod residency;
mod window;
