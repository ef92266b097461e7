//! What every engine is held against.
//!
//! | module | what it holds |
//! |---|---|
//! | [`memory_engine`] | the model: an ordered map over a log of batches, itself an engine |
//! | [`conformance`] | every promise of `cambium-api`, case by case |
//! | [`linearizability`] | whether a history of concurrent operations could have happened one at a time |
//! | [`crash`] | seeded runs, crashed everywhere and compared with an oracle |
//! | [`damage`] | a cut at every byte, a flip of every byte |
//! | [`checkpoints`] | a store and its backup, written, compacted and deleted apart, and crashed while one is made |
//! | [`seeded`] | bugs that are switched on, to be found |
//! | [`broken`] | file systems that break their contract, which the suites must notice |
//! | [`layer`] | file systems that hand every call on, but for those a test is about |
//! | [`ending`] | file systems that fail after so many operations |
//! | [`full_disk`] | a disk that is full, and has room again when entries are deleted |
//! | [`golden`] | golden files, traces of operations, fixtures of earlier formats |
//! | [`counted`] | what reaches the device |
//! | [`c_programs`] | C and C++ programs that use the shared libraries, under AddressSanitizer too |
//! | [`threads`] | several threads under a seeded scheduler, crashed anywhere |
//! | [`subject`] | an engine with the options it is tested under |
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "suites"), allow(rustdoc::broken_intra_doc_links))]
#![cfg(feature = "suites")]

pub mod broken;
#[cfg(unix)]
pub mod c_programs;
pub mod checkpoints;
pub mod conformance;
pub mod counted;
pub mod crash;
pub mod damage;
pub mod ending;
pub mod following;
pub mod full_disk;
pub mod golden;
mod history;
mod holding;
pub mod layer;
pub mod linearizability;
pub mod memory_engine;
pub mod mutation;
mod patience;
pub mod seeded;
mod space;
pub mod stores;
pub mod subject;
pub mod threads;
mod unwritable;
mod walking;
mod workload;

pub use broken::Breakage;
pub use conformance::Conformance;
pub use crash::{CrashReport, CrashSuite, Failure};
pub use damage::{DamageReport, DamageSuite};
pub use seeded::{each_breach_is_found, each_bug_is_found, find_bug};
pub use subject::Subject;
