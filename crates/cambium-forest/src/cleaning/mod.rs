//! Cleaning: the space of stale documents and nodes comes back piece by piece, from the
//! oldest end of the log.
//!
//! ```text
//!  first block     begin           until                       replay_from        end
//!  ┌──────────────┬───────────────┬───────────────────────────┬──────────────────┐
//!  │     hole     │     tail      │  documents, nodes, …      │ not in the tries │ moved
//!  └──────────────┴───────┬───────┴───────────────────────────┴──────────────────┘  ▲
//!                         └── what is live, in key order, packed ───────────────────┘
//! ```
//!
//! 1. **Choose.** A flush that finds more of the file stale than `compaction_threshold`
//!    allows chooses a *tail*, the log's oldest part ([`Core::plan_cleaning`]). Where it may
//!    end, [`tails`] says.
//! 2. **Move.** The flush walks the tries beside its changes. A live document in the tail
//!    becomes a change as well: it is appended to the log, packed with its neighbours, and
//!    its trie gets the new address ([`moving::Moves`]). A flush rewrites most leaves anyway,
//!    so moving costs few nodes more. A node in the tail is written anew with a document
//!    below it.
//! 3. **Header.** The flush's header says that the log begins at the tail's end, in two
//!    copies, and both copies of the superblock name it: nothing on the device leads into the
//!    tail any more.
//! 4. **Give back.** When no view from before the flush is left, the tail becomes a hole of
//!    the file ([`Core::give_tail_back`]).
//!
//! A crash before 3 leaves documents that nothing leads to, and the old header, whose tail is
//! whole. A crash before 4 leaves a tail that the next opening gives back.
//!
//! # Promises
//! - A tail ends where no flush was at work (before one sealed its buffers, or after its
//!   header), or where it had met no tombstone ([`marks`]). A flush moves documents whose
//!   tombstones writers append meanwhile; both are given back together. So repair and check,
//!   which read the log, never bring a deleted entry back.
//! - A named snapshot, a compaction that runs, and a process that reads the store keep the
//!   tail: there is no cleaning then, and `compact` (or a rewriting that begins by itself,
//!   [`crate::compact`]) gives the space back.
//! - Consumers of the change feed keep what they have before them, up to `history_bytes`.

mod fitting;
mod marks;
mod moving;
mod tails;

use std::sync::{Arc, Weak};
use std::time::Duration;

use cambium_base::Result;
use cambium_io::LockMode;
use cambium_io::sync::Mutex;
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::core::{Core, Maintenance, lock};
use crate::counters::of;
use crate::database::Database;
use crate::document::OFFSET_LIMIT;
use crate::format::DatabaseHeader;
use crate::pieces::Source;
use crate::seeded_bug::SeededBug;
use crate::sorted_run::SortedRun;
use crate::upkeep::PutOff;
use crate::view::{Era, View};

pub(crate) use marks::{Marks, Place};
pub(crate) use moving::Moves;

/// A cleaning moves about this part of what is live, at most.
const MOST_MOVED: u64 = 4;
/// A tail may always be this part of the log.
const LONGEST_TAIL: u64 = 8;
/// A tail that is shorter than this part of the least file that is cleaned is not worth the
/// work.
pub(crate) const PART_OF_LEAST: u64 = 16;
/// And on a disk that is nearly full one that is shorter than this.
const LEAST_WHERE_SCARCE: u64 = 32 << 10;
/// A cleaned log may use this part of the offsets that can be addressed; then the store is
/// rewritten, and offsets begin anew.
const PART_OF_OFFSETS: u64 = 2;

/// A buffer that hides much is flushed when nothing was written for so long.
const LONG_REST: Duration = Duration::from_secs(5);

/// The part of the log that a flush cleans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    /// Where it ends.
    pub until: u64,
    /// Every later change lies behind it.
    pub changes_from: u64,
    bytes: u64,
    /// A consumer needs it, and more lies behind it than is kept for consumers.
    is_kept_too_long: bool,
}

/// A cleaning without a flush frees this part of the file at least; if not, the next one
/// waits until writers have logged as much.
const LEAST_GAIN: u64 = 64;
/// Or this part of its tail, where there is room for a short one alone.
const LEAST_OF_TAIL: u64 = 32;

impl Tail {
    /// The header of the flush that cleans it.
    pub fn mark(&self, mut header: DatabaseHeader) -> DatabaseHeader {
        header.begin = self.until;
        if self.changes_from > header.changes_from {
            header.changes_from = self.changes_from;
            header.kept_files.clear();
        }
        header
    }
}

/// The state of cleaning: the tail that is still to be freed, and estimates for the next one.
#[derive(Debug, Default)]
pub(crate) struct Cleaning {
    /// The tail that nothing on the device leads to.
    cleaned: Mutex<Option<Cleaned>>,
    /// Stale bytes in a thousand bytes of the last tail; 0: not known.
    stale: AtomicU64,
    /// A cleaning without a flush has freed too little: the next one waits until writers
    /// have logged so many bytes in all.
    apart_from: AtomicU64,
    /// Bytes that writers have logged in all, and where the log ended when they had come to
    /// that.
    round: Mutex<Option<(u64, u64)>>,
    /// Where the log ended when it was last looked whether writers rest.
    end: AtomicU64,
    /// The end of the log when `writers_rest_long` last looked, and the monotonic time, in
    /// nanoseconds, from which on the log has ended there.
    rested_at: AtomicU64,
    rests_since: AtomicU64,
    /// The log's beginning, the newest header and the consumers' position when a search of the
    /// log found no tail.
    searched: Mutex<Option<(u64, u64, Option<u64>)>>,
    /// Begin and end of the log, and the room, when no tail was worth its cleaning.
    fits_none: Mutex<Option<((u64, u64), u64)>>,
    /// A write was refused for lack of room, or a delete has found little.
    refused: AtomicBool,
    /// The last write that took space found little of it.
    pub is_scarce: AtomicBool,
    /// Bytes of the disk that the caller keeps free: it refuses writes where there are fewer.
    pub kept_by_caller: AtomicU64,
    /// A call of `compact` cleans: a few percent of stale space are worth it.
    pub is_called: AtomicBool,
    /// Bytes that the last flush and the writes before it added to the file.
    grown: AtomicU64,
    put_off: PutOff,
    /// A flush with a cleaning has not come to its end: the log may have blocks that no sync
    /// covers, and nothing repeats it.
    pub unfinished: AtomicBool,
    /// The file system writes zeros instead.
    makes_no_holes: AtomicBool,
}

/// Smaller holes do not tell whether the file system makes any: it counts in blocks.
const LEAST_JUDGED: u64 = 1 << 20;

#[derive(Debug)]
struct Cleaned {
    database: Arc<Database>,
    until: u64,
    /// Views from before the flush that cleaned it.
    readers: Weak<Era>,
    /// Another process reads the file, or making the hole failed.
    is_stuck: bool,
}

impl Core {
    /// True if stale space comes back by cleaning.
    pub fn cleans(&self, header: &DatabaseHeader) -> bool {
        let tuning = &self.tuning.compaction;
        let is_stuck = || {
            let cleaned = lock(&self.cleaning.cleaned);
            cleaned.as_ref().is_some_and(|cleaned| cleaned.is_stuck)
        };
        tuning.cleaning
            && tuning.threshold < 100
            && header.snapshots.is_empty()
            && self.view.load().database.log.end() < OFFSET_LIMIT / PART_OF_OFFSETS
            && !self.cleaning.makes_no_holes.load(Ordering::Relaxed)
            && !is_stuck()
    }

    /// Chooses the tail that a flush cleans; `None` where too little is stale, or the tail
    /// must stay.
    pub fn plan_cleaning(&self, maintenance: &Maintenance, view: &View) -> Result<Option<Tail>> {
        let header = &maintenance.header;
        self.give_tail_back();
        if self.owes_hole()
            || !self.cleans(header)
            || self.pressure.runs.load(Ordering::Relaxed)
            || self.cleaning.put_off.lasts(&*self.environment.clock)
        {
            return Ok(None);
        }
        self.look_for_room(view)?;
        let Some(wanted) = self.bytes_to_clean(header, view) else {
            return Ok(None);
        };
        // Less, where there is little room for what is moved.
        let room = self.room(view)?;
        let has_room = |bytes: u64| {
            let moved = self.live_bytes(view).min(bytes);
            moved + self.most_of_flush(view) <= room
        };
        let tail = match has_room(wanted) {
            true => self.tail_of(maintenance, &view.database, wanted)?,
            false => None,
        };
        let tail = match tail.filter(|tail| has_room(tail.bytes)) {
            Some(tail) => Some(tail),
            None => self.tail_that_fits(maintenance, view, (wanted, room))?,
        };
        let Some(tail) = tail else {
            return Ok(None);
        };
        // From now on no feed begins before it.
        let is_given_up = self
            .history
            .give_up_before(tail.changes_from, tail.is_kept_too_long);
        Ok(is_given_up.then_some(tail))
    }

    /// Length of a tail that brings the stale share below its bound; `None` if the share is
    /// below.
    fn bytes_to_clean(&self, header: &DatabaseHeader, view: &View) -> Option<u64> {
        let tuning = &self.tuning.compaction;
        let used = view.database.log.used_bytes();
        let behind = view.database.log.end().saturating_sub(header.replay_from);
        // Writes that are not in the tries yet replace as large a share as the last flush did.
        let replaced = self.pressure.replaced.load(Ordering::Relaxed).min(1000);
        let live = self.live_bytes(view) + behind / 1000 * (1000 - replaced);
        let stale = used.saturating_sub(live);
        let threshold = self.cleaning_threshold();
        let is_called = self.cleaning.is_called.load(Ordering::Relaxed);
        if used < tuning.least_bytes && !is_called || stale <= used / 100 * threshold {
            return None;
        }
        // Live bytes are moved: they are used as before. As much will come until the next
        // flush as came until the last one.
        let allowed = live * threshold / (100 - threshold).max(1);
        let grown = self.cleaning.grown.load(Ordering::Relaxed);
        let excess = (stale + grown).saturating_sub(allowed);
        let known = self.cleaning.stale.load(Ordering::Relaxed);
        let share = known.max(stale.saturating_mul(1000) / used.max(1)).max(50);
        let wanted = (excess / share).saturating_mul(1000);
        // A flush shall not take long.
        let most = (live / MOST_MOVED / (1001 - share.min(1000))).saturating_mul(1000);
        // Where next to nothing lives, no cleaning takes long.
        let most = most.max(used / LONGEST_TAIL);
        Some(wanted.min(most).max(self.least_tail()))
    }

    /// True where a few percent of stale space are worth a cleaning.
    pub fn cleans_most(&self) -> bool {
        self.cleaning.is_scarce.load(Ordering::Relaxed)
            || self.cleaning.is_called.load(Ordering::Relaxed)
    }

    pub fn least_tail(&self) -> u64 {
        let least = self.tuning.compaction.least_bytes / PART_OF_LEAST;
        let most = match self.cleans_most() {
            true => LEAST_WHERE_SCARCE,
            false => u64::MAX,
        };
        least.min(most).max(u64::from(self.shape.block_bytes))
    }

    /// Cleans where nothing is buffered that a flush would carry; false where nothing can be
    /// cleaned.
    pub fn clean_apart(&self, maintenance: &mut Maintenance) -> Result<bool> {
        let logged = of(&self.counters.log_bytes);
        let is_early = logged < self.cleaning.apart_from.load(Ordering::Relaxed);
        if is_early && !self.is_worth_a_round(logged) {
            return Ok(false);
        }
        self.begin_session_locked(maintenance)?;
        let point = {
            let writer = lock(&self.writer);
            let view = self.view.load();
            if view.is_buffered() {
                return Ok(false);
            }
            self.seal_point(&writer, &view.database)?
        };
        let tail = self.plan_cleaning(maintenance, &self.view.load())?;
        if let Some(cleaned) = tail {
            let nothing = SortedRun::default();
            let database = self.view.load().database.clone();
            let before = database.log.used_bytes();
            self.flush_cleaning(maintenance, Source::Run(&nothing), point, tail)?;
            self.give_tail_back();
            let now = database.log.used_bytes();
            let least = (before / LEAST_GAIN).min(cleaned.bytes / LEAST_OF_TAIL);
            if now > before - least {
                // It has written about as much as it gave back.
                let next = logged + now / LEAST_GAIN;
                self.cleaning.apart_from.store(next, Ordering::Relaxed);
            }
        }
        Ok(tail.is_some())
    }

    /// Flushes what is buffered, or cleans a tail; false where neither can give anything back.
    pub fn give_space_back(&self) -> bool {
        let mut maintenance = lock(&self.maintenance);
        if self.health.is_closed() || self.flush_put_off.lasts(&*self.environment.clock) {
            return false;
        }
        let view = self.view.load_full();
        let end = view.database.log.end();
        let behind = end.saturating_sub(maintenance.header.replay_from);
        let is_worth = !view.is_buffered() || self.flush_may_make_room(&view, behind);
        let done = match view.is_buffered() {
            _ if !is_worth => Ok(false),
            true => self.flush_locked(&mut maintenance).map(|()| true),
            false => self.clean_apart(&mut maintenance),
        };
        done.unwrap_or(false)
    }

    /// True on a disk that is nearly full, and for a call of `compact`, until all that writers
    /// have logged was cleaned once: what is stale may lie at the end, and puts wait for it.
    fn is_worth_a_round(&self, logged: u64) -> bool {
        let mut round = lock(&self.cleaning.round);
        let log = &self.view.load().database.log;
        let until = match *round {
            Some((before, until)) if before == logged => until,
            _ => log.end(),
        };
        *round = Some((logged, until));
        self.cleans_most() && log.begin() < until
    }

    /// True if nothing was written since this was asked before.
    pub fn writers_rest(&self, view: &View) -> bool {
        let end = view.database.log.end();
        self.cleaning.end.swap(end, Ordering::Relaxed) == end
    }

    /// True if nothing was written for some seconds.
    pub fn writers_rest_long(&self, view: &View) -> bool {
        let now = self.environment.clock.monotonic().as_nanos() as u64;
        let since = &self.cleaning.rests_since;
        let end = view.database.log.end();
        if self.cleaning.rested_at.swap(end, Ordering::Relaxed) != end {
            since.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(since.load(Ordering::Relaxed)) >= LONG_REST.as_nanos() as u64
    }

    /// True if a write was refused for lack of room since this was asked before.
    pub fn was_refused(&self) -> bool {
        self.cleaning.refused.swap(false, Ordering::Relaxed)
    }

    /// A write was refused for lack of room: it is worth a look whether there can be some.
    pub fn note_refused(&self) {
        self.cleaning.refused.store(true, Ordering::Relaxed);
        self.notify_background();
    }

    /// The caller has refused a write, and does so while fewer bytes of the disk are free.
    pub fn note_refused_by_caller(&self, kept_free: u64) {
        let cleaning = &self.cleaning;
        cleaning.kept_by_caller.store(kept_free, Ordering::Relaxed);
        cleaning.is_scarce.store(true, Ordering::Relaxed);
        self.note_refused();
    }

    /// A flush with a cleaning has failed: the next one goes without.
    pub fn put_cleaning_off(&self) {
        self.cleaning.put_off.begin(&*self.environment.clock);
    }

    /// Takes the result of a flush: the tail that it cleaned, the bytes that it moved, the view
    /// from before, which readers may still hold, and the bytes that the flush and the writes
    /// in it added to the log.
    pub fn note_cleaned(
        &self,
        (tail, moved): (Option<&Tail>, u64),
        (header, before): (&DatabaseHeader, &View),
        grown: u64,
    ) {
        self.cleaning.grown.store(grown, Ordering::Relaxed);
        let Some(tail) = tail else {
            return;
        };
        let reclaimed = tail.bytes.saturating_sub(moved);
        let stale = reclaimed.saturating_mul(1000) / tail.bytes.max(1);
        self.cleaning.stale.store(stale.max(1), Ordering::Relaxed);
        self.counters.cleanings.fetch_add(1, Ordering::Relaxed);
        let database = &before.database;
        let changes_from = header.changes_from;
        database.changes_from.store(changes_from, Ordering::Release);
        database.log.begin_at(tail.until);
        database.marks.forget_before(tail.until);
        self.owe_hole(database.clone(), tail.until, &before.era);
    }

    /// Notes a part of a file that is freed when all views of an era are gone.
    pub fn owe_hole(&self, database: Arc<Database>, until: u64, readers: &Arc<Era>) {
        *lock(&self.cleaning.cleaned) = Some(Cleaned {
            database,
            until,
            readers: Arc::downgrade(readers),
            is_stuck: false,
        });
    }

    /// Notes the tail that an earlier opening cleaned; it may not have freed it.
    pub fn owe_what_was_cleaned(&self) {
        let view = self.view.load();
        let (database, begin) = (&view.database, view.database.log.begin());
        if begin > database.shape.first_offset() {
            self.owe_hole(database.clone(), begin, &Arc::default());
        }
    }

    /// True while a cleaned tail waits for readers.
    pub fn owes_hole(&self) -> bool {
        lock(&self.cleaning.cleaned).is_some()
    }

    /// Gives a cleaned tail back, unless it may still be read.
    pub fn give_tail_back(&self) {
        let mut cleaned = lock(&self.cleaning.cleaned);
        let Some(one) = cleaned.as_mut() else {
            return;
        };
        let is_current = one.database.file == self.view.load().database.file;
        let is_read = one.readers.strong_count() > 0;
        if is_current && is_read && !self.has_bug(SeededBug::TailFreedBesideReaders) {
            return;
        }
        match is_current.then(|| self.punch(&one.database, one.until)) {
            Some(Err(_)) => one.is_stuck = true,
            Some(Ok(false)) => {
                // From now on compactions give space back.
                self.cleaning.makes_no_holes.store(true, Ordering::Relaxed);
                *cleaned = None;
            }
            Some(Ok(true)) | None => *cleaned = None,
        }
    }

    /// Makes a hole of the log before an offset; false where the file system made none and
    /// zeros lie there.
    ///
    /// # Errors
    /// `Locked` while another process reads the file.
    pub fn punch(&self, database: &Database, until: u64) -> Result<bool> {
        let file_system = &self.environment.file_system;
        // A process that locks the file from now on reads the superblock again, which names a
        // header that does not reach the hole: it need not wait until that is made.
        drop(file_system.lock(database.path(), LockMode::Alone)?);
        let first = database.shape.first_offset();
        let file = database.log.file();
        let hole = until.saturating_sub(first);
        file.punch_hole(first, hole)?;
        let rest = file.length()?.saturating_sub(hole / 2);
        Ok(hole < LEAST_JUDGED || file.allocated_bytes()? <= rest)
    }
}
