//! Space held back for a full disk, so that room can be made on it.
//!
//! To give space back a store has to write: deletes go to the log, tables are written
//! anew without what was deleted, and the manifest says so before a file goes. On a disk
//! that is full to its last block none of that can begin. So a file of the store,
//! `reserve`, holds space that nothing is in.
//!
//! ```text
//!  a delete, a flush, a compaction finds no room
//!     └─▶ half of the reserve is opened, and it goes on; all, if that is too little;
//!         what it leaves is held again
//!  a put finds that the reserve is not whole
//!     └─▶ it is made whole first: without room for that, the put answers NoSpace
//! ```
//!
//! A part is opened for tables alone: deletes and moved values fill what they get, and
//! make no room until a flush has brought them into tables. A small reserve is held
//! always. Once the disk is nearly full it is as much as rewriting the
//! tree takes, and a segment of values beside it.
//!
//! Nothing reads the file, and a crash can take no more of it than its length.

use std::path::Path;
use std::sync::Arc;

use cambium_base::{Error, Result};
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use cambium_io::sync::{Mutex, lock};
use cambium_io::{File, OpenOptions};

use crate::core::Core;

/// The file's name.
pub(crate) const RESERVE_NAME: &str = "reserve";
/// Held while there is much room: tables of a few thousand keys, the manifest, and the
/// block that each new file begins with. A larger one grows by as much.
const LEAST_BYTES: u64 = 256 << 10;
/// The reserve is no larger than this share of the disk, and a disk is nearly full when
/// less than this share of it is free.
const SHARE_OF_DISK: u64 = 8;
/// With so many times the largest reserve free, no disk is nearly full, however large it is.
const TIMES_FREE: u64 = 16;
/// Deletes get this share of what is opened, and so do tables alone.
const SHARE: u64 = 4;
/// Room is made by itself for this part of the tree's bytes, at least.
const WORTH: u64 = 8;
const BLOCK_BYTES: u64 = 4096;

/// How much of the reserve some work may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// What leaves enough for a flush.
    Most,
    All,
}

/// The space held back.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    held: Mutex<Held>,
    /// It was opened, and is not whole again.
    is_broken: AtomicBool,
    /// Bytes of log that deletes may still take of what was opened.
    for_deletes: AtomicU64,
    /// The log has begun a segment since it was looked at.
    is_due: AtomicBool,
    /// Compactions on request, which share it out: background work gets none meanwhile,
    /// since what that opens for tables would be filled with moved values.
    compactions: AtomicUsize,
    /// What there was when background work found all of it too little.
    too_little: Mutex<Option<(u64, u64)>>,
    /// The number of the next write when one was refused for lack of room, and when room was
    /// made for such a one.
    refused_at: AtomicU64,
    made_at: AtomicU64,
    bytes: AtomicU64,
    times: AtomicU64,
}

#[derive(Debug, Default)]
struct Held {
    file: Option<Arc<dyn File>>,
    bytes: u64,
    /// Who works with what was opened.
    users: usize,
    /// Opened for tables alone.
    last: u64,
}

impl Held {
    /// Bytes that some work may not have.
    fn stays_for(&self, part: Part) -> u64 {
        match part {
            Part::Most => self.last,
            Part::All => 0,
        }
    }
}

impl Reserve {
    /// Bytes held now.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How often it was opened since the store was.
    pub fn times(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }

    /// True while what was held is for those alone who make room.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// True while a compaction on request shares it out.
    pub fn is_shared_out(&self) -> bool {
        self.compactions.load(Ordering::Acquire) > 0
    }

    /// A compaction on request begins; it ends with what this answers.
    pub fn begin_compaction(&self) -> SharedOut<'_> {
        self.compactions.fetch_add(1, Ordering::AcqRel);
        SharedOut(self)
    }

    /// Tells that the log has taken space.
    pub fn look_again(&self) {
        self.is_due.store(true, Ordering::Relaxed);
    }

    /// Takes the bytes of a group of deletes; false if what is left is for tables. One
    /// group at a time: under the writer lock.
    fn take_for_deletes(&self, bytes: u64) -> bool {
        let left = self.for_deletes.load(Ordering::Relaxed);
        if bytes <= left {
            self.for_deletes.store(left - bytes, Ordering::Relaxed);
        }
        bytes <= left
    }

    fn set_broken(&self, bytes: u64) {
        let share = bytes / SHARE;
        self.for_deletes.store(share, Ordering::Relaxed);
        self.is_broken.store(true, Ordering::Release);
    }

    fn set_held(&self, held: &mut Held, bytes: u64) {
        held.bytes = bytes;
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Opens half of it, since others may take what is open; false if there is nothing to
    /// open.
    fn open(&self, part: Part) -> bool {
        let mut held = lock(&self.held);
        if !self.is_broken() {
            held.last = held.bytes / SHARE / BLOCK_BYTES * BLOCK_BYTES;
        }
        let stays = held.stays_for(part);
        if held.bytes <= stays {
            // Somebody else has opened it, and holds again what both leave.
            held.users += usize::from(held.users > 0);
            return held.users > 0;
        }
        let before = held.bytes;
        let half = (before / 2).next_multiple_of(BLOCK_BYTES);
        if !self.let_go_beyond(&mut held, half.max(stays)) {
            return false;
        }
        if !self.is_broken() {
            self.set_broken(before);
        }
        self.times.fetch_add(1, Ordering::Relaxed);
        held.users += 1;
        true
    }

    /// Opens the rest for somebody who had half of it; false if there is none.
    fn open_rest(&self, part: Part) -> bool {
        let mut held = lock(&self.held);
        let stays = held.stays_for(part);
        self.let_go_beyond(&mut held, stays)
    }

    /// Gives back what is held beyond so many bytes; false if that is nothing.
    fn let_go_beyond(&self, held: &mut Held, wanted: u64) -> bool {
        let file = held.file.as_ref().filter(|_| held.bytes > wanted);
        let done = file.is_some_and(|file| file.set_length(wanted).is_ok());
        if done {
            self.set_held(held, wanted);
        }
        done
    }
}

/// Work with what was opened; however it ends, what it has left is held again.
struct Opened<'c>(&'c Core);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.close_reserve();
    }
}

/// A compaction on request, until it ends.
#[derive(Debug)]
pub(crate) struct SharedOut<'r>(&'r Reserve);

impl Drop for SharedOut<'_> {
    fn drop(&mut self) {
        self.0.compactions.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Core {
    /// Finds what an earlier opening holds.
    pub fn find_reserve(&self) -> Result<()> {
        let path = self.path.join(RESERVE_NAME);
        let file_system = &self.environment.file_system;
        let Some(found) = file_system.metadata(&path)? else {
            return Ok(());
        };
        if self.tuning.reserve_bytes == 0 {
            return file_system.remove(&path);
        }
        {
            let mut held = lock(&self.reserve.held);
            let file = file_system.open(&path, OpenOptions::WRITE)?;
            let mut bytes = space_of(&*file, found.length);
            if bytes < found.length && file.set_length(bytes).is_err() {
                bytes = 0;
            }
            self.reserve.set_held(&mut held, bytes);
            held.file = Some(file);
        }
        if found.length < self.least_reserve() {
            self.set_broken_by_space();
        }
        Ok(())
    }

    /// Holds as much as should be held now, if there is room: a store without it works
    /// until the disk is full.
    pub fn keep_reserve(&self) {
        if self.tuning.reserve_bytes == 0 {
            return;
        }
        let wanted = self.wanted_reserve();
        let mut held = lock(&self.reserve.held);
        // While the reserve is in use, its users need the space; the last one holds it again.
        if held.users == 0 && !self.reserve.is_broken() {
            self.hold_what_there_is(&mut held, wanted);
            self.reserve.let_go_beyond(&mut held, wanted);
        }
    }

    /// Does [`Core::keep_reserve`] where the log has taken space since. Takes locks of the
    /// tree: not under the writer's.
    pub fn keep_reserve_where_due(&self) {
        if self.reserve.is_due.load(Ordering::Relaxed) {
            // A close waits for this, and none of it comes after a close. The caller can be
            // one that a close waits for already: it must not wait for the close.
            if let Ok(_under_way) = self.stepping.try_read() {
                self.keep_due_reserve();
            }
        }
    }

    /// The same, for a caller that a close waits for.
    pub fn keep_due_reserve(&self) {
        if self.reserve.is_due.swap(false, Ordering::Relaxed) && !self.health.is_closed() {
            self.keep_reserve();
        }
    }

    /// Makes the reserve whole where it was opened.
    ///
    /// # Errors
    /// `NoSpace`, where there is no room yet.
    pub fn mend_reserve(&self) -> Result<()> {
        if !self.reserve.is_broken() {
            return Ok(());
        }
        let wanted = self.wanted_reserve();
        let mut held = lock(&self.reserve.held);
        if held.users > 0 {
            return Err(self.no_space("room is being made with the reserve"));
        }
        self.hold(&mut held, wanted)?;
        self.reserve.is_broken.store(false, Ordering::Release);
        Ok(())
    }

    /// Does work that makes room on a full disk, or has to be done before any is made: the
    /// reserve is opened for it, half of it first, and it is done again, to its end: then what
    /// it has left is held again.
    pub fn with_reserve<T>(&self, part: Part, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(full) if full.is_no_space() => {
                if self.check_sound().is_err() || !self.reserve.open(part) {
                    return Err(full);
                }
                let _opened = Opened(self);
                match work() {
                    Err(full) if full.is_no_space() && self.reserve.open_rest(part) => work(),
                    other => other,
                }
            }
            other => other,
        }
    }

    /// Holds again what the work has left, so that no other program gets it.
    fn close_reserve(&self) {
        let wanted = self.wanted_reserve();
        let mut held = lock(&self.reserve.held);
        held.users -= 1;
        if held.users > 0 {
            return;
        }
        self.hold_what_there_is(&mut held, wanted);
        if held.bytes >= wanted {
            self.reserve.is_broken.store(false, Ordering::Release);
        }
    }

    /// What background work has to go by on a full disk: bytes free or held, and bytes that
    /// wait to be flushed.
    fn room_and_work(&self) -> (u64, u64) {
        let sealed = self.tree.statistics().sealed_bytes;
        (self.reserve.bytes() + self.available(), sealed)
    }

    /// True where background work had all of it in vain, and nothing has come since: it
    /// need not be opened again.
    pub fn is_known_too_little(&self) -> bool {
        let before = *lock(&self.reserve.too_little);
        before.is_some_and(|(room, sealed)| {
            let now = self.room_and_work();
            now.0 <= room && now.1 == sealed
        })
    }

    /// Remembers whether background work had enough.
    pub fn note_background_room(&self, found_too_little: bool) {
        let now = found_too_little.then(|| self.room_and_work());
        *lock(&self.reserve.too_little) = now;
    }

    /// A write was refused: what was written since the last one of them may have made room.
    pub fn note_refused(&self, next_sequence: u64) {
        self.reserve
            .refused_at
            .store(next_sequence, Ordering::Relaxed);
        self.notify_background();
    }

    /// True once after writes were refused, if those since room was made may have made more
    /// stale than a part of the tree: all of that is written anew.
    pub fn takes_refused(&self) -> bool {
        let refused_at = self.reserve.refused_at.load(Ordering::Relaxed);
        let made_at = self.reserve.made_at.load(Ordering::Relaxed);
        if refused_at <= made_at {
            return false;
        }
        let entries = self.tree.table_entries();
        let tree = self.tree.statistics().table_bytes();
        let bytes = self.ledger.state().total_and_live().0 + tree;
        let is_worth = match bytes.checked_div(entries) {
            Some(of_one) => {
                let stale = (refused_at - made_at).saturating_mul(of_one);
                stale >= LEAST_BYTES.max(tree / WORTH)
            }
            // Nothing was flushed, so nothing is known.
            None => true,
        };
        if is_worth {
            self.reserve.made_at.store(refused_at, Ordering::Relaxed);
        }
        is_worth
    }

    /// Lets a group of deletes into the log while the reserve is not whole.
    ///
    /// # Errors
    /// `NoSpace`: what is left is for bringing those before into tables.
    pub fn admit_deletes(&self, bytes: u64) -> Result<()> {
        let admitted = !self.reserve.is_broken() || self.reserve.take_for_deletes(bytes);
        if admitted || self.mend_reserve().is_ok() {
            return Ok(());
        }
        Err(self.no_space(
            "what is left of the reserve is for a compaction, which makes room of what was deleted",
        ))
    }

    /// Makes the reserve whole where there is room by now, or looks what there is for
    /// deletes.
    pub fn after_making_room(&self) {
        if self.mend_reserve().is_err() {
            self.set_broken_by_space();
        }
    }

    /// It is not whole: what is free and what is held are to be shared.
    fn set_broken_by_space(&self) {
        let free = self.available();
        let mut held = lock(&self.reserve.held);
        if held.users == 0 {
            let found = held.bytes + free;
            held.last = found / SHARE / BLOCK_BYTES * BLOCK_BYTES;
            self.reserve.set_broken(found);
        }
    }

    fn no_space(&self, what: &str) -> Error {
        Error::NoSpace {
            path: self.path.join(RESERVE_NAME),
            what: what.to_string(),
        }
    }

    fn available(&self) -> u64 {
        let space = self.environment.file_system.space(&self.path);
        space.map_or(0, |space| space.available)
    }

    fn least_reserve(&self) -> u64 {
        let space = self.environment.file_system.space(&self.path);
        let share = space.map_or(u64::MAX, |space| space.total / SHARE_OF_DISK);
        LEAST_BYTES.min(self.tuning.reserve_bytes).min(share) / BLOCK_BYTES * BLOCK_BYTES
    }

    /// The most to hold, where the disk is nearly full.
    fn most_reserve_where_scarce(&self) -> Option<u64> {
        let space = self.environment.file_system.space(&self.path).ok()?;
        let most = self.tuning.reserve_bytes;
        let share = space.total / SHARE_OF_DISK;
        let free = space.available + self.reserve.bytes();
        let nearly_full = share.min(TIMES_FREE * most).max(3 * most);
        (free < nearly_full).then(|| most.min(share))
    }

    /// True where memtables have to be flushed as they are sealed: on a disk that is nearly
    /// full the reserve has room for the tables of a few, and values that are moved would
    /// take what the others need.
    pub fn must_flush_early(&self) -> bool {
        self.reserve.is_broken() || self.most_reserve_where_scarce().is_some()
    }

    /// Bytes to hold: little while there is much room.
    fn wanted_reserve(&self) -> u64 {
        let least = self.least_reserve();
        let Some(most) = self.most_reserve_where_scarce() else {
            return least;
        };
        let tree = self.tree.statistics();
        let buffers = tree.memtable_bytes + tree.sealed_bytes;
        let (total, live) = self.ledger.state().total_and_live();
        let segment = self.segment_target(live).min(total);
        let needed = (tree.table_bytes() + buffers + segment).next_multiple_of(LEAST_BYTES);
        let wanted = (needed + LEAST_BYTES).min(most);
        (wanted / BLOCK_BYTES * BLOCK_BYTES).max(least)
    }

    /// Holds so many bytes, or as many as there are: free space need not be to be had, some
    /// of it is the file system's own.
    fn hold_what_there_is(&self, held: &mut Held, wanted: u64) {
        let free = (held.bytes + self.available()) / BLOCK_BYTES * BLOCK_BYTES;
        let mut part = wanted.min(free);
        while part > held.bytes && self.hold(held, part).is_err() {
            let more = (part - held.bytes) * 7 / 8;
            part = held.bytes + more / BLOCK_BYTES * BLOCK_BYTES;
        }
    }

    /// Holds at least so many bytes, and makes that durable; what is held already stays.
    fn hold(&self, held: &mut Held, wanted: u64) -> Result<()> {
        if wanted <= held.bytes {
            return Ok(());
        }
        let file = match &held.file {
            Some(file) => {
                file.allocate(held.bytes, wanted - held.bytes)?;
                file.clone()
            }
            None => self.make_reserve(&self.path.join(RESERVE_NAME), wanted)?,
        };
        held.file = Some(file.clone());
        // Space that a power cut takes back others would have. Nothing is lost where this
        // fails, and what is written is synced apart.
        _ = file.sync_data();
        self.reserve.set_held(held, space_of(&*file, wanted));
        Ok(())
    }

    /// The file, with its first space: an empty one would count as opened.
    fn make_reserve(&self, path: &Path, wanted: u64) -> Result<Arc<dyn File>> {
        let file_system = &self.environment.file_system;
        let was_there = file_system.metadata(path)?.is_some();
        let file = file_system.open(path, OpenOptions::CREATE)?;
        if let Err(error) = file.allocate(0, wanted) {
            drop(file);
            if !was_there {
                _ = file_system.remove(path);
            }
            return Err(error);
        }
        if was_there {
            file.set_length(wanted)?;
        }
        Ok(file)
    }
}

/// Bytes of a file of so many that have space on the device: a copy may have left them out,
/// and not every file system takes space ahead.
fn space_of(file: &dyn File, length: u64) -> u64 {
    let there = file.allocated_bytes().unwrap_or(0);
    length.min(there / BLOCK_BYTES * BLOCK_BYTES)
}
