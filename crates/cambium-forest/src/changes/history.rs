//! Which files feeds read, and which of them consumers need.
//!
//! The lock of this state is held across no I/O. Where a compaction decides what it keeps, the
//! decision ([`History::keep`]) counts before the new file does, so that a consumer that is
//! made meanwhile is refused, or is reckoned with.

use std::sync::{Arc, Weak};

use cambium_api::Seeded;
use cambium_base::{Error, FileNumber, Result, SequenceNumber};
use cambium_io::environment::Clock;
use cambium_io::sync::Mutex;
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use cambium_storage::consumers::Consumers;

use super::feed::lost;
use crate::core::{Core, lock};
use crate::database::{Database, Home};
use crate::format::{self, DatabaseHeader, KeptFile};
use crate::seeded_bug::SeededBug;
use crate::upkeep::PutOff;

/// The files of the change feed.
#[derive(Debug)]
pub(crate) struct History {
    /// Held while a consumer is moved.
    pub consumers: Mutex<Consumers>,
    files: Mutex<Files>,
    /// The number of the last rollback: no feed goes past it.
    rolled_back: AtomicU64,
    /// Another process reads a file of which the beginning is to be given back.
    pub(super) trimming_put_off: PutOff,
    /// There may be files to give back.
    pub(super) is_due: AtomicBool,
}

#[derive(Debug)]
struct Files {
    /// Oldest first. Each begins where the one before it ends.
    kept: Vec<Kept>,
    current: Arc<Database>,
    /// The current file has every change after this write.
    current_from: u64,
    /// The oldest position of a new feed or consumer.
    oldest: u64,
    /// Positions of consumers, and one that a consumer is about to take.
    positions: Vec<u64>,
    moving: Option<u64>,
    /// Files that no consumer needs any more.
    unneeded: Vec<FileNumber>,
}

/// An older file.
#[derive(Clone, Debug)]
struct Kept {
    file: KeptFile,
    /// The file as readers of earlier views have it open: they need all of it.
    readers: Weak<Database>,
    is_trimmed: bool,
}

impl Files {
    /// The position behind which every change is needed. A consumer whose history is lost
    /// needs none.
    fn needed_after(&self) -> Option<u64> {
        let all = self.positions.iter().chain(&self.moving);
        all.copied().filter(|&at| at >= self.oldest).min()
    }

    /// History begins after a write of the current file; no older file is needed.
    fn begin_after(&mut self, write: u64) {
        let before = std::mem::take(&mut self.kept);
        let numbers = before.iter().map(|known| known.file.file.number);
        self.unneeded.extend(numbers);
        self.current_from = write;
        self.oldest = write;
    }
}

impl History {
    /// What an opening finds: the consumers, and the files that the newest header lists and
    /// that are there.
    pub fn open(home: &Home, header: &DatabaseHeader, current: Arc<Database>) -> Result<History> {
        let consumers = Consumers::read(&*home.file_system, &home.folder, home.store)?;
        let (kept, oldest) = kept_by(home, header)?;
        let positions = positions_of(&consumers);
        Ok(History {
            is_due: AtomicBool::new(!kept.is_empty()),
            consumers: Mutex::new(consumers),
            files: Mutex::new(Files {
                kept,
                current,
                current_from: header.changes_from,
                oldest,
                positions,
                moving: None,
                unneeded: Vec::new(),
            }),
            rolled_back: AtomicU64::new(0),
            trimming_put_off: PutOff::default(),
        })
    }

    /// Takes what a newer header of another process says: for a reader.
    pub fn follow(
        &self,
        home: &Home,
        header: &DatabaseHeader,
        current: Arc<Database>,
    ) -> Result<()> {
        let read = Consumers::read(&*home.file_system, &home.folder, home.store)?;
        let (kept, oldest) = kept_by(home, header)?;
        let mut consumers = lock(&self.consumers);
        let mut files = lock(&self.files);
        let is_same_file = Arc::ptr_eq(&files.current, &current);
        if is_same_file && header.changes_from > files.current_from {
            self.rolled_back
                .store(header.changes_from, Ordering::Release);
        }
        files.positions = positions_of(&read);
        *consumers = read;
        files.kept = kept;
        files.current = current;
        files.current_from = header.changes_from;
        files.oldest = oldest;
        Ok(())
    }

    /// The file with what came right after a number, and the offset of its newest header.
    pub fn file_after(&self, core: &Core, after: u64) -> Result<(Arc<Database>, u64)> {
        loop {
            let file = {
                let files = lock(&self.files);
                if after >= files.current_from {
                    let newest = files.current.newest_header.load(Ordering::Acquire);
                    return Ok((files.current.clone(), newest));
                }
                let mut kept = files.kept.iter().map(|kept| kept.file);
                kept.find(|file| file.from <= after && after < file.to)
                    .ok_or_else(|| lost(files.oldest))?
            };
            match open_kept(core, &file) {
                Ok(database) => return Ok((Arc::new(database), file.header)),
                Err(error) if self.has(&file) => return Err(error),
                // It was given back meanwhile.
                Err(_) => {}
            }
        }
    }

    /// True while a file is kept.
    pub(super) fn has(&self, file: &KeptFile) -> bool {
        let files = lock(&self.files);
        files.kept.iter().any(|kept| kept.file == *file)
    }

    /// Refuses a feed whose changes a rollback has undone.
    pub fn refuse_rolled_back(&self, last: u64) -> Result<()> {
        if last >= self.rolled_back.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(lost(self.oldest()))
    }

    /// The oldest position at which a feed can begin.
    pub fn oldest(&self) -> u64 {
        lock(&self.files).oldest
    }

    /// The position behind which consumers need every change.
    pub fn needed_after(&self) -> Option<u64> {
        lock(&self.files).needed_after()
    }

    /// Bytes of log that are kept for consumers alone.
    pub fn kept_bytes(&self) -> u64 {
        let files = lock(&self.files);
        files.kept.iter().map(|kept| kept.file.bytes()).sum()
    }

    /// Older files, oldest first.
    pub fn kept_files(&self) -> Vec<KeptFile> {
        lock(&self.files)
            .kept
            .iter()
            .map(|kept| kept.file)
            .collect()
    }

    /// The write after which the current file has every change.
    pub fn current_from(&self) -> u64 {
        lock(&self.files).current_from
    }

    /// Keeps what comes behind a position, while a consumer is moved there; `None` where one
    /// is taken away.
    pub fn begin_move(&self, to: Option<u64>) -> Result<()> {
        let mut files = lock(&self.files);
        match to {
            Some(to) if to < files.oldest => Err(lost(files.oldest)),
            to => {
                files.moving = to;
                Ok(())
            }
        }
    }

    /// A consumer was moved, or could not be.
    pub fn end_move(&self, consumers: &Consumers) {
        let mut files = lock(&self.files);
        files.positions = positions_of(consumers);
        files.moving = None;
        self.is_due.store(true, Ordering::Release);
    }

    /// Decides what stays where the current file ends at write `to`: `planned` of it, which was
    /// found with `needed_after`, and of older files what fits into `most_bytes` beside it.
    /// From now on this is the oldest history. `None` where consumers need more than was known.
    pub fn keep(
        &self,
        (planned, needed_after): (Option<KeptFile>, Option<u64>),
        to: u64,
        most_bytes: u64,
        bug: Seeded<SeededBug>,
    ) -> Option<Vec<KeptFile>> {
        let mut files = lock(&self.files);
        let mut needed = files.needed_after();
        if needed.is_some_and(|now| needed_after.is_none_or(|then| now < then)) {
            return None;
        }
        if bug.is(SeededBug::HistoryDroppedEarly) {
            needed = files.positions.iter().max().copied();
        }
        let mut all = Vec::new();
        let needed = needed.filter(|&needed| needed < to);
        if let (Some(needed), Some(planned)) = (needed, planned) {
            let mut bytes = planned.bytes();
            let mut oldest = planned.from;
            all.push(planned);
            for kept in files.kept.iter().rev() {
                bytes += kept.file.bytes();
                if kept.file.to != oldest || kept.file.to <= needed || bytes > most_bytes {
                    break;
                }
                oldest = kept.file.from;
                all.insert(0, kept.file);
            }
        }
        files.oldest = all.first().map_or(to, |first| first.from);
        Some(all)
    }

    /// Decides that history begins after a write; false if a consumer needs more, unless it
    /// is kept too long.
    pub fn give_up_before(&self, after: u64, is_kept_too_long: bool) -> bool {
        let mut files = lock(&self.files);
        if after <= files.current_from {
            return true;
        }
        let is_needed = files.needed_after().is_some_and(|needed| needed < after);
        if is_needed && !is_kept_too_long {
            return false;
        }
        files.begin_after(after);
        self.is_due.store(true, Ordering::Release);
        true
    }

    /// A compaction that had decided ends without its file.
    pub fn keep_all(&self) {
        let mut files = lock(&self.files);
        let first = files.kept.first().map(|kept| kept.file.from);
        files.oldest = first.unwrap_or(files.current_from);
    }

    /// A compaction has put another file in the place of the current one.
    pub fn switch(&self, kept: &[KeptFile], current: Arc<Database>, from: u64) {
        let mut files = lock(&self.files);
        let readers = Arc::downgrade(&files.current);
        let before = std::mem::take(&mut files.kept);
        for known in &before {
            if !kept.contains(&known.file) {
                files.unneeded.push(known.file.file.number);
            }
        }
        let known = |file: &KeptFile| before.iter().find(|known| known.file == *file).cloned();
        let all = kept.iter();
        files.kept = all
            .map(|file| known(file).unwrap_or_else(|| kept_file(*file, readers.clone())))
            .collect();
        files.current = current;
        files.current_from = from;
        self.is_due.store(true, Ordering::Release);
    }

    /// A rollback ends history.
    pub fn roll_back(&self, to: u64) {
        let mut files = lock(&self.files);
        files.begin_after(to);
        self.rolled_back.store(to, Ordering::Release);
        self.is_due.store(true, Ordering::Release);
    }

    /// A file is to be removed that no consumer needs.
    pub fn discard(&self, number: FileNumber) {
        lock(&self.files).unneeded.push(number);
    }

    /// Takes out the files that no consumer needs.
    pub(super) fn take_unneeded(&self) -> Vec<FileNumber> {
        let mut files = lock(&self.files);
        let needed = files.needed_after();
        while let Some(first) = files.kept.first() {
            let end = first.file.to;
            if needed.is_some_and(|needed| needed < end) {
                break;
            }
            let passed = files.kept.remove(0);
            files.oldest = end;
            files.unneeded.push(passed.file.file.number);
        }
        std::mem::take(&mut files.unneeded)
    }

    /// A file whose beginning nobody reads any more, and that was not given back yet.
    pub(super) fn untrimmed(&self) -> Option<KeptFile> {
        let files = lock(&self.files);
        let mut kept = files.kept.iter();
        let found = kept.find(|kept| !kept.is_trimmed && kept.readers.strong_count() == 0);
        found.map(|kept| kept.file)
    }

    /// The beginning of a file was given back.
    pub(super) fn note_trimmed(&self, file: &KeptFile) {
        let mut files = lock(&self.files);
        let mut kept = files.kept.iter_mut();
        if let Some(kept) = kept.find(|kept| kept.file == *file) {
            kept.is_trimmed = true;
        }
    }

    /// True if there may be something to give back.
    pub fn is_due(&self, clock: &dyn Clock) -> bool {
        let is_any = || !lock(&self.files).unneeded.is_empty() || self.untrimmed().is_some();
        let is_late = || is_any() && !self.trimming_put_off.lasts(clock);
        self.is_due.load(Ordering::Acquire) || is_late()
    }
}

/// The kept files that a header lists and that are there, and the write after which they
/// have every change.
fn kept_by(home: &Home, header: &DatabaseHeader) -> Result<(Vec<Kept>, u64)> {
    let mut kept = Vec::new();
    let mut oldest = header.changes_from;
    for file in header.kept_files.iter().rev() {
        let path = format::database_path(&home.folder, file.file.number);
        if file.to != oldest || home.file_system.metadata(&path)?.is_none() {
            break;
        }
        oldest = file.from;
        kept.insert(0, kept_file(*file, Weak::new()));
    }
    Ok((kept, oldest))
}

fn kept_file(file: KeptFile, readers: Weak<Database>) -> Kept {
    Kept {
        file,
        readers,
        is_trimmed: false,
    }
}

fn positions_of(consumers: &Consumers) -> Vec<u64> {
    let all = consumers.list();
    all.into_iter().map(|(_, SequenceNumber(at))| at).collect()
}

/// Opens an older file for reading.
pub(super) fn open_kept(core: &Core, file: &KeptFile) -> Result<Database> {
    let home = Home {
        writable: false,
        ..core.home.clone()
    };
    let database = Database::open(&home, file.file, &core.tuning, Some(file.end), None)?;
    database.log.begin_at(file.start);
    database.changes_from.store(file.from, Ordering::Release);
    database.end_with(file.to);
    Ok(database)
}

/// The answer to a number that the store has not given out.
pub(super) fn not_given_out(what: &str, number: u64, newest: u64) -> Error {
    Error::InvalidArgument(format!("{what} {number}: the newest write is {newest}"))
}
