//! Compaction on request: what `cambium compact` does (the paper's offline mode).
//!
//! The write buffer is flushed and the tree compacted into its lowest level, which
//! drops every entry that is hidden: from then on the ledger knows all garbage.
//! Values that lie scattered are brought into the order of their keys
//! ([`crate::sorting`]). Then every segment in which there is garbage is collected.
//! Readers and writers go on. On a full disk it takes the reserve ([`crate::reserve`]).

use std::sync::Arc;
use std::time::Duration;

use cambium_api::{CompactOptions, CompactReport, PhaseSeconds, Progress, ProgressSink};
use cambium_base::{Error, Result};
use cambium_io::ReadBackend;
use cambium_io::sync::atomic::Ordering;

use crate::collect::Work;
use crate::core::{Core, lock};
use crate::options::ENGINE;
use crate::reserve::Part;

/// On a full disk, rounds that free nothing until collection gives up.
const MOST_FRUITLESS: u32 = 5;
const PATIENCE: Duration = Duration::from_millis(10);

impl Core {
    /// Compacts now.
    pub fn compact(
        self: &Arc<Self>,
        options: &CompactOptions,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        // A close waits for the end, which comes soon: it cancels this.
        let _under_way = self.stepping.read();
        self.check_writable()?;
        let cancels = self.cancels.load(Ordering::Acquire);
        options
            .settings
            .clone()
            .finish("wisckey (of a compaction)", &[])?;
        refuse_what_is_not_chosen(options)?;
        self.begin_session()?;
        self.with_reserve_shared_out(|| self.compact_now(cancels, progress))
    }

    /// Gives back what deleted entries take, where a write was refused for lack of room. Until
    /// their pointers meet in a compaction of the tree, nobody knows of that garbage.
    ///
    /// # Errors
    /// `NoSpace` where the room is too little for that.
    pub fn make_room(self: &Arc<Self>) -> Result<()> {
        let cancels = self.cancels.load(Ordering::Acquire);
        self.begin_session()?;
        self.with_reserve_shared_out(|| {
            self.flush_now()?;
            self.compact_tree(cancels)?;
            self.collect_within_room(cancels, &mut Work::default(), &())?;
            self.give_collected_back()
        })
    }

    /// Makes durable where moved values lie, and removes the segments that they have left.
    fn give_collected_back(&self) -> Result<()> {
        self.flush_now()?;
        self.remove_dropped()?;
        while self.punch_holes() {}
        Ok(())
    }

    fn with_reserve_shared_out<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let shared_out = self.reserve.begin_compaction();
        let outcome = work();
        drop(shared_out);
        while self.close_one_gone() {}
        self.after_making_room();
        outcome
    }

    fn compact_now(
        self: &Arc<Self>,
        cancels: u64,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        let clock = &self.environment.clock;
        let started = clock.monotonic();
        let mut work = Work::default();
        self.flush_now()?;
        progress.report(Progress {
            phase: "tree",
            done: 0,
            total: None,
        });
        self.compact_tree(cancels)?;
        let tree_done = clock.monotonic();
        let sorted = self.sort_values(&mut work, |done, total| {
            self.environment
                .wait_for_background(&|| self.refuse_cancelled(cancels).is_err());
            self.refuse_cancelled(cancels)?;
            progress.report(Progress {
                phase: "sort",
                done,
                total: Some(total),
            });
            Ok(())
        })?;
        if sorted {
            let started = clock.monotonic();
            self.flush_now()?;
            // What the old pointers led to is garbage when they are gone.
            self.compact_tree(cancels)?;
            work.flush += self.since(started);
        }
        self.collect_within_room(cancels, &mut work, progress)?;
        self.refuse_cancelled(cancels)?;
        let collected = clock.monotonic();
        self.give_collected_back()?;
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

    /// Brings what was written so far into tables.
    pub(crate) fn flush_now(&self) -> Result<()> {
        self.with_reserve(Part::All, || {
            self.seal(&mut lock(&self.writer))?;
            self.tree.flush()
        })
    }

    fn compact_tree(&self, cancels: u64) -> Result<()> {
        let is_cancelled = || self.refuse_cancelled(cancels).is_err();
        let compacted = self.with_reserve(Part::All, || self.tree.compact(&is_cancelled));
        self.refuse_cancelled(cancels)?;
        compacted
    }

    /// Collects all there is. On a full disk, the segments that were emptied so far go in
    /// between: their room is what the next ones are moved into.
    fn collect_within_room(
        self: &Arc<Self>,
        cancels: u64,
        work: &mut Work,
        progress: &dyn ProgressSink,
    ) -> Result<()> {
        let mut fruitless = 0;
        loop {
            let freed = self.traffic().freed_bytes;
            let collected = self.with_reserve(Part::Most, || {
                self.collect_all(work, |done, total| {
                    self.environment
                        .wait_for_background(&|| self.refuse_cancelled(cancels).is_err());
                    self.refuse_cancelled(cancels)?;
                    if self.must_flush_early() {
                        self.tree.flush()?;
                    }
                    progress.report(Progress {
                        phase: "collect",
                        done,
                        total: Some(total),
                    });
                    Ok(())
                })
            });
            match collected {
                Err(full) if full.is_no_space() => {
                    self.flush_now()?;
                    self.remove_dropped()?;
                    while self.close_one_gone() {}
                    fruitless = match self.traffic().freed_bytes == freed {
                        true => fruitless + 1,
                        false => 0,
                    };
                    if fruitless > MOST_FRUITLESS {
                        return Err(full);
                    }
                    // Background work may have the room for a moment.
                    self.pause(PATIENCE * fruitless);
                }
                other => return other,
            }
        }
    }

    /// Ends a compaction that was cancelled since it began, or whose store is being closed.
    fn refuse_cancelled(&self, cancels: u64) -> Result<()> {
        self.check_open()?;
        match self.cancels.load(Ordering::Acquire) == cancels {
            true => Ok(()),
            false => Err(Error::Cancelled),
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
