//! The real world: files, devices, threads, clock and random numbers of the
//! operating system.
//!
//! | module | what it holds |
//! |---|---|
//! | `linux` | [`RealFileSystem`] on Linux |
//! | `file` | an open file or block device of Linux: positioned reads and writes, sync, space |
//! | `portable` | [`PortableFileSystem`]: files through the standard library; [`RealFileSystem`] elsewhere |
//! | `common` | folders, names and lengths, for both |
//! | `alignment` | what direct I/O demands of a handle |
//! | `lock` | advisory locks with the owner's process id; `flock` and `windows` take them |
//! | `parts` | clock, random numbers, [`crate::Environment::real`] |
//! | `executor` | one thread per task |
//! | `share` | hard links, and files that share blocks |
//! | `residency` | how much of a file lies in the cache |
//! | `queue` | batched reads through `pread`, Linux AIO and io_uring; several writes at once through io_uring |
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

// Modules for Linux alone.
#[cfg(target_os = "linux")]
mod alignment;
#[cfg(target_os = "linux")]
mod file;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod queue;
#[cfg(target_os = "linux")]
mod residency;
#[cfg(target_os = "linux")]
mod share;
#[cfg(target_os = "linux")]
mod sigbus;
#[cfg(target_os = "linux")]
mod window;

mod common;
mod executor;
#[cfg(unix)]
mod flock;
mod lock;
mod parts;
mod portable;
mod positioned;
#[cfg(windows)]
mod windows;

pub use executor::ThreadExecutor;
#[cfg(target_os = "linux")]
pub use linux::RealFileSystem;
pub(crate) use parts::machine_memory;
pub use parts::{SystemClock, SystemRandomness};
pub use portable::PortableFileSystem;
#[cfg(not(target_os = "linux"))]
pub use portable::PortableFileSystem as RealFileSystem;
#[cfg(target_os = "linux")]
pub use residency::resident_pages;

/// Pages of an open file that lie in the operating system's cache: unknown on this system.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn resident_pages(_file: &dyn crate::File) -> cambium_base::Result<Option<u64>> {
    Ok(None)
}
