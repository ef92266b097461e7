//! Ctrl-C, or a polite request of the system to end: what was measured so far
//! is kept, the worker that runs is ended, and the folders go away.
//!
//! The second Ctrl-C ends the program at once, with what is left on the disk;
//! the next run in that folder removes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvzone_core::error::{Error, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Exit status of a run that was stopped: as shells report it.
pub(crate) const STOPPED: u8 = 130;

/// Set once somebody wants the run to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn listen() -> Result<Stop> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset, sets it, and
            // only the second ends the program.
            let ends = signal_hook::flag::register_conditional_shutdown(
                signal,
                i32::from(STOPPED),
                Arc::clone(&stop.0),
            );
            let sets = signal_hook::flag::register(signal, Arc::clone(&stop.0));
            if let Err(error) = ends.and(sets) {
                return Err(Error::machine("listen to", "signals", error));
            }
        }
        Ok(stop)
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
