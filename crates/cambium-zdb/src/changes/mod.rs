//! The change feed: the data files together are the log, read in the order of sequence
//! numbers.
//!
//! ```text
//! data file 0   1 │ 4 │ 5 │ 9 │          ┐
//! data file 1   2 │ 6 │ 8 │              ├─ merge ─▶ batch 1 │ 2..3 │ 4 │ 5..6 │ …
//! data file 2   3 │ 7 │ 10 │ 11 │        ┘
//! ```
//!
//! Every committed entry lies in one data file, with its sequence number and its place in
//! its batch, and the numbers of a file ascend. So a feed reads each file in large pieces
//! ([`reader`]) and takes the smallest number each time ([`feed`]). Writers do nothing for
//! it. The commit logs are not read: their entries are in the data files too.
//!
//! Entries of a data file that are no changes, and how the feed leaves them out:
//!
//! - *Copies* that a compaction made. The file notes the last sequence number before the
//!   switch; its entries up to that number are copies.
//! - *What a recovery cut off*. The catalog lists these ranges of the data files.
//! - *Splits of buckets*, by their flag. A bucket names the keys that its write changed.
//!
//! A compaction replaces a file. With consumers that still need the old one, it is kept
//! ([`past`]); otherwise it goes, and the changes in it are lost.
//!
//! Numbers follow one another without a gap, but for the jump to the next epoch after a
//! crash. A gap is thus a loss: of history where files were removed, else damage.

mod feed;
pub(crate) mod past;
mod reader;

use std::sync::Arc;

use cambium_api::{ChangeFeed, ChangeOptions};
use cambium_base::{Durability, Error, Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;

use crate::core::{Core, lock};
use crate::write::WriteRequest;
use feed::Feed;

impl Core {
    /// A feed of the batches after a sequence number.
    pub fn change_feed(
        self: &Arc<Self>,
        after: SequenceNumber,
        options: ChangeOptions,
    ) -> Result<Box<dyn ChangeFeed>> {
        self.check_open()?;
        self.require_change(after)?;
        Ok(Box::new(Feed::new(self.clone(), after.0, options)?))
    }

    /// Refuses a number that no reader has seen yet, or whose successors are lost.
    fn require_change(&self, after: SequenceNumber) -> Result<()> {
        let visible = self.visible.load(Ordering::Acquire);
        if after.0 > visible {
            return Err(Error::InvalidArgument(format!(
                "changes after {after}: the last change of the store is {visible}"
            )));
        }
        let lost = lock(&self.past).lost;
        match after.0 < lost {
            true => Err(Error::HistoryLost {
                oldest: SequenceNumber(lost),
            }),
            false => Ok(()),
        }
    }

    /// Names of consumers, and their positions.
    pub fn list_consumers(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.check_open()?;
        Ok(self.consumers.list())
    }

    /// Makes, moves or (`None`) takes away a consumer.
    pub fn move_consumer(&self, name: &str, to: Option<SequenceNumber>) -> Result<()> {
        self.check_writable()?;
        if let Some(to) = to {
            self.require_change(to)?;
            if to.0 > self.synced.load(Ordering::Acquire) {
                self.write_request(WriteRequest::new(Vec::new(), Durability::Synced))?;
            }
        }
        {
            // No checkpoint removes files between the two.
            let _maintenance = lock(&self.maintenance);
            self.check_writable()?;
            to.map_or(Ok(()), |to| self.require_change(to))?;
            self.consumers
                .set(&*self.environment.file_system, name, to)?;
        }
        self.announce_obsolete_history();
        Ok(())
    }

    /// Lets the next step remove files that no consumer needs any more.
    pub fn announce_obsolete_history(&self) {
        if self.has_obsolete_history() {
            self.index_due.store(true, Ordering::Release);
            self.on_checkpoint_due();
        }
    }
}
