//! What every engine is held against.
//!
//! | module | what it holds |
//! |---|---|
//! | [`memory_engine`] | the model: an ordered map over a log of batches, itself an engine |
//! | [`conformance`] | every promise of `cambium-api`, case by case |
//! | [`crash`] | seeded runs, crashed everywhere and compared with an oracle |
//! | [`broken`] | file systems that break their contract, which the suites must notice |
//! | [`subject`] | an engine with the options it is tested under |
#![forbid(unsafe_code)]

pub mod broken;
pub mod conformance;
pub mod crash;
mod history;
pub mod memory_engine;
pub mod subject;
mod workload;

pub use broken::Breakage;
pub use conformance::Conformance;
pub use crash::{CrashReport, CrashSuite, Failure};
pub use subject::Subject;
