//! Moments that are held: what snapshots and cursors stand on.
//!
//! A pin keeps the tree from dropping what is seen at its moment, and the
//! collector from letting go of a segment that it may be led to. A segment whose
//! file is gone already stays open as long: its space comes back with the last pin
//! from before.

use std::sync::Arc;

use cambium_base::Result;

use crate::core::Core;

/// A moment that is kept: dropping it lets it go.
#[derive(Debug)]
pub(crate) struct Pin {
    pub core: Arc<Core>,
    /// The last write that is seen.
    pub moment: u64,
}

impl Core {
    /// Keeps what is visible now.
    pub fn pin(self: &Arc<Self>) -> Result<Pin> {
        self.check_open()?;
        Ok(Pin {
            moment: self.ledger.pin_visible(),
            core: self.clone(),
        })
    }
}

impl Pin {
    /// Keeps the same moment once more.
    pub fn again(&self) -> Result<Pin> {
        self.core.check_open()?;
        self.core.ledger.pin_again(self.moment);
        Ok(Pin {
            core: self.core.clone(),
            moment: self.moment,
        })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.core.ledger.unpin(self.moment);
    }
}
