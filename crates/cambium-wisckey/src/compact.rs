//! Compaction on request: what `cambium compact` does (the paper's offline mode).
//!
//! The write buffer is flushed and the tree compacted into its lowest level, which
//! drops every entry that is hidden: from then on the ledger knows all garbage.
//! Values that lie scattered are brought into the order of their keys
//! ([`crate::sorting`]). Then every segment in which there is garbage is collected.
//! Readers and writers go on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cambium_api::{CompactOptions, CompactReport, PhaseSeconds, Progress, ProgressSink};
use cambium_base::{Error, Result};
use cambium_io::ReadBackend;

use crate::collect::Work;
use crate::core::Core;
use crate::options::ENGINE;

impl Core {
    /// Compacts now.
    pub fn compact(
        self: &Arc<Self>,
        options: &CompactOptions,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        self.check_writable()?;
        options
            .settings
            .clone()
            .finish("wisckey (of a compaction)", &[])?;
        refuse_what_is_not_chosen(options)?;
        self.cancelled.store(false, Ordering::Release);
        self.begin_session()?;
        let clock = &self.environment.clock;
        let started = clock.monotonic();
        let mut work = Work::default();
        self.seal_now()?;
        self.tree.flush()?;
        progress.report(Progress {
            phase: "tree",
            done: 0,
            total: None,
        });
        self.tree
            .compact(&|| self.cancelled.load(Ordering::Acquire))?;
        let tree_done = clock.monotonic();
        let sorted = self.sort_values(&mut work, |done, total| {
            self.refuse_cancelled()?;
            progress.report(Progress {
                phase: "sort",
                done,
                total: Some(total),
            });
            Ok(())
        })?;
        if sorted {
            let started = clock.monotonic();
            self.seal_now()?;
            self.tree.flush()?;
            // What the old pointers led to is garbage when they are gone.
            self.tree
                .compact(&|| self.cancelled.load(Ordering::Acquire))?;
            work.flush += self.since(started);
        }
        self.collect_all(&mut work, |done, total| {
            self.refuse_cancelled()?;
            progress.report(Progress {
                phase: "collect",
                done,
                total: Some(total),
            });
            Ok(())
        })?;
        self.refuse_cancelled()?;
        let collected = clock.monotonic();
        self.seal_now()?;
        self.tree.flush()?;
        self.remove_dropped()?;
        while self.punch_holes() {}
        let ended = clock.monotonic();
        let flush = work.flush + (tree_done - started) + (ended - collected);
        Ok(CompactReport {
            phases: PhaseSeconds {
                tree_search: work.search.as_secs_f64(),
                sort: work.sort.as_secs_f64(),
                read: work.read.as_secs_f64(),
                write: work.write.as_secs_f64(),
                flush_and_commit: flush.as_secs_f64(),
            },
            total_seconds: (ended - started).as_secs_f64(),
            read_operations: work.read_operations,
            bytes_read: work.bytes_read,
            bytes_written: work.bytes_written,
            documents: work.values,
            backend: ReadBackend::Sync,
            batch: 1,
            direct: false,
        })
    }

    fn refuse_cancelled(&self) -> Result<()> {
        self.check_open()?;
        match self.cancelled.load(Ordering::Acquire) {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }
}

/// Segments are read from start to end, so there is nothing to choose.
fn refuse_what_is_not_chosen(options: &CompactOptions) -> Result<()> {
    let unsupported = |what| {
        Err(Error::Unsupported {
            engine: ENGINE,
            what,
            instead: "it reads segments from start to end; engine forest reads documents apart",
        })
    };
    if options.direct {
        return unsupported("compaction past the operating system's cache");
    }
    let other = |backend: ReadBackend| backend != ReadBackend::Sync;
    if options.backend.is_some_and(other) || options.batch.is_some_and(|batch| batch > 1) {
        return unsupported("batched reads in compaction");
    }
    Ok(())
}
