//! What a compaction keeps of the old file for consumers, and the removal of what none of
//! them needs.
//!
//! An old file of which consumers need only the end is not kept whole: what lies before the
//! newest header that is not past the slowest consumer is given back by a hole, as soon as no
//! reader of an earlier view has the file open.

use cambium_base::{Error, Result};
use cambium_io::sync::atomic::Ordering;
use cambium_io::{LockMode, OpenOptions};

use super::history::open_kept;
use crate::core::Core;
use crate::database::Database;
use crate::format::{self, KeptFile};
use crate::recovery::header_at;
use crate::seeded_bug::SeededBug;

/// What a compaction would keep of the old file, and the position for which it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    kept: Option<KeptFile>,
    needed_after: Option<u64>,
}

impl Core {
    /// Plans what to keep of the old file, and syncs what consumers need of it: the new file
    /// has the state, and only the old one has how it came about.
    pub fn plan_history(&self, old: &Database) -> Result<Plan> {
        let needed_after = self.history.needed_after();
        let kept = match needed_after {
            None => None,
            Some(needed) => {
                if !self.has_bug(SeededBug::HistoryUnsynced) {
                    self.sync_log(old)?;
                }
                self.part_to_keep(old, needed)?
            }
        };
        Ok(Plan { kept, needed_after })
    }

    /// The part of a file behind the newest header that is not past a position, or as much of
    /// its end as may be kept; `None` where that is nothing.
    fn part_to_keep(&self, old: &Database, needed_after: u64) -> Result<Option<KeptFile>> {
        let from = self.history.current_from();
        let (newest, end) = (
            old.newest_header.load(Ordering::Acquire),
            old.log.written_end(),
        );
        let begin = old.log.begin();
        let mut part = None;
        let mut offset = newest;
        while let Some((_, _, header)) = header_at(old, offset)? {
            let is_before = header.sequence <= needed_after;
            let is_oldest = header.previous < begin || header.previous >= offset;
            let place = header.replay_from.min(offset);
            let is_at_begin = !is_before && is_oldest && from < header.sequence;
            let (from, start) = match is_at_begin || place < begin {
                // Between two headers.
                true => (from, begin),
                false => (header.sequence, place),
            };
            if end.saturating_sub(start) > self.tuning.history_bytes {
                break;
            }
            part = Some(KeptFile {
                file: old.file,
                from,
                to: header.sequence,
                header: newest,
                start,
                end,
            });
            if is_before || is_oldest {
                break;
            }
            offset = header.previous;
        }
        Ok(part)
    }

    /// Settles what is kept where the old file ends with write `to`. Writers wait, so a plan
    /// is made anew only where a consumer came in between that needs more.
    pub fn settle_history(&self, old: &Database, mut plan: Plan, to: u64) -> Result<Vec<KeptFile>> {
        let most = self.tuning.history_bytes;
        loop {
            let kept = plan.kept.map(|kept| KeptFile {
                to,
                end: old.log.end(),
                ..kept
            });
            let planned = (kept, plan.needed_after);
            if let Some(all) = self.history.keep(planned, to, most, self.tuning.seeded_bug) {
                if !all.is_empty() && !self.has_bug(SeededBug::HistoryUnsynced) {
                    self.sync_log(old)?;
                }
                return Ok(all);
            }
            plan = self.plan_history(old)?;
        }
    }

    /// Gives back what no consumer needs: whole files, and beginnings of files. What cannot be
    /// given back now is given back after the next opening.
    pub fn give_history_back(&self) -> Result<()> {
        self.history.is_due.store(false, Ordering::Release);
        self.remove_unneeded();
        while let Some(file) = self.history.untrimmed() {
            let trimmed = self.trim(&file);
            if let Err(Error::Locked { .. }) = trimmed {
                let clock = &*self.environment.clock;
                self.history.trimming_put_off.begin(clock);
                return Ok(());
            }
            self.history.note_trimmed(&file);
            match trimmed {
                // Unless another thread has removed the file meanwhile.
                Err(error) if self.history.has(&file) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes files that no consumer needs. One that another process reads stays until that
    /// has met all of it; what stays at a close is removed by the next opening.
    pub fn remove_unneeded(&self) {
        let file_system = &*self.environment.file_system;
        for number in self.history.take_unneeded() {
            let path = format::database_path(&self.path, number);
            let locked = file_system.lock(&path, LockMode::Alone);
            if matches!(locked, Err(Error::Locked { .. })) {
                self.history.discard(number);
                self.history
                    .trimming_put_off
                    .begin(&*self.environment.clock);
                continue;
            }
            drop(locked);
            _ = file_system.remove(&path);
        }
    }

    /// Gives back what lies before and behind the part of a file that is kept.
    ///
    /// # Errors
    /// `Locked` while another process reads the file as it was before it was replaced.
    fn trim(&self, file: &KeptFile) -> Result<()> {
        let (first, block) = {
            let shape = open_kept(self, file)?.shape;
            (shape.first_offset(), u64::from(shape.block_bytes))
        };
        let path = format::database_path(&self.path, file.file.number);
        let file_system = &self.environment.file_system;
        let beside_readers = self.has_bug(SeededBug::HistoryFreedBesideReaders);
        if !beside_readers {
            // The superblock names another file: no process locks this one from now on.
            drop(file_system.lock(&path, LockMode::Alone)?);
        }
        let handle = file_system.open(&path, OpenOptions::WRITE)?;
        // What was taken ahead of the log's end, too.
        handle.set_length(file.end)?;
        let hole = (file.start / block * block).saturating_sub(first);
        if hole > 0 {
            handle.punch_hole(first, hole)?;
        }
        Ok(())
    }
}
