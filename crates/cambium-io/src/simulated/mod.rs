//! A disk that can be crashed anywhere, from a seed.
//!
//! # What it simulates
//!
//! Of each file a [`SimulatedDisk`] keeps a *durable* image, a *cached* image,
//! and the ordered list of changes (writes, lengths, allocations, punched
//! holes) that lie between the two. [`File::sync_data`] empties the list into
//! the durable image. Names have the same two lives: what was created, renamed
//! or removed is pending until [`FileSystem::sync_directory`] of the folder it
//! lies in; syncing a file does not make its name durable. That is the least
//! POSIX promises, and less than any one file system gives, on purpose.
//!
//! [`SimulatedDisk::crash`] makes a new disk out of what a power cut could have
//! left: any [`CrashStyle`] chooses which pending changes survived.
//! [`SimulatedDisk::process_crash`] is `kill -9`: everything written stays.
//! Either leaves the old disk as it was, so that one run yields thousands of
//! crash images; images share their unchanged chunks.
//!
//! Faults at run time ([`FaultRule`]) fail the n-th operation of a class, drop
//! the pages of a failed sync or keep them as if they were written, lie about a
//! sync, lose or misdirect a write; [`SimulatedDisk::set_capacity`] makes the
//! disk full, [`SimulatedDisk::flip_bit`] lets it rot, and
//! [`SimulatedDisk::make_unreadable`] makes a sector fail. What was met is counted
//! ([`Event`]), so that a test can assert that its faults really happened.
//!
//! # What it promises
//!
//! - The same seed and the same calls give the same bytes, faults and trace.
//!   No clock, thread, address or hash order has a part in it.
//! - Crash images cost in proportion to what is pending, not to what is stored.
//!
//! | module | what it holds |
//! |---|---|
//! | `disk` | [`SimulatedDisk`]: names, locks, faults, probes |
//! | `file` | handles |
//! | `lock` | locks of files |
//! | `image` | the bytes of a file, copied on write |
//! | `tree` | names of files and folders |
//! | `node` | a file's two images and the changes between them |
//! | `crash` | [`CrashStyle`] and the images it leaves |
//! | `faults` | [`FaultRule`] and operation classes |
//! | `events` | counters |
//! | `environment` | clock, randomness and executor of a simulation |
//!
//! [`SimulatedDisk::memory`] is the same without a device below the cache, for all who
//! want files in memory and no crash.
//!
//! [`File::sync_data`]: crate::File::sync_data
//! [`FileSystem::sync_directory`]: crate::FileSystem::sync_directory

mod control;
mod crash;
mod disk;
mod environment;
mod events;
mod faults;
mod file;
mod image;
mod lock;
mod node;
mod random;
mod state;
mod tree;

#[cfg(test)]
mod contract_tests;
#[cfg(test)]
mod tests;

pub use control::{CrashPoint, Moment, ProbePoints, Sharing};
pub use crash::CrashStyle;
pub use disk::SimulatedDisk;
pub use environment::{IdleExecutor, SteppedClock};
pub use events::Event;
pub use faults::{ErrorNumber, Fault, FaultRule, OperationClass};
pub use random::{Generator, SeededRandomness};
