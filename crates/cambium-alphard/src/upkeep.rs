//! Upkeep: erasing stale headers so that tombstones can go, a bounded piece at a
//! time; closing.
//!
//! Entries that were written together become obsolete together, as a rule: between their
//! headers lie their bodies, free as well. Zeros go over all of it then, in few large
//! writes. In the background headers are left until many have gathered, or writers are idle:
//! entries that come to their places erase them for nothing, and every sync of the
//! background makes writers wait.

use cambium_api::{CompactOptions, CompactReport, PhaseSeconds, Progress, ProgressSink};
use cambium_base::{Error, Extent, Result};
use cambium_io::StepOutcome;
use cambium_io::sync::MutexGuard;
use cambium_io::sync::atomic::Ordering;

use crate::core::{Core, Writer, lock, read, write};
use crate::outgoing::Outgoing;
use crate::seeded_bug::SeededBug;
use crate::volume::buffer;

/// Most headers that a step erases, whatever its budget.
const MOST_A_STEP: usize = 4096;
/// Between headers so many free bytes are written over too: another write would cost more.
const MOST_BETWEEN: u32 = 8 << 10;
/// Most bytes of one write of zeros.
const MOST_TOGETHER: u32 = 256 << 10;
/// Of so many headers some are done under one hold of the writer lock.
const A_HOLD: usize = 256;
/// What is free between headers is left alone where no more is free than so many writes of
/// zeros are long.
const PLENTY: u32 = 64;
/// Obsolete entries stay in packs, and tombstones with them, while there is less than one in so
/// many entries.
const EACH_STALE: usize = 8;
/// Tombstones that may wait in the background while others write.
const MANY_TOMBSTONES: usize = 8192;

impl Core {
    /// A step of the background: as [`Core::step`], but while others write only if much
    /// has gathered.
    pub fn step_in_background(&self, budget: u64) -> Result<StepOutcome> {
        let (sequence, may_wait) = {
            let writer = lock(&self.writer);
            // Of a small store, a share of its space.
            let many = (writer.superblock.total_blocks / 64) as usize;
            let few = writer.tombstones.len() < many.min(MANY_TOMBSTONES);
            (writer.next_sequence, few && self.tuning.discard_bytes == 0)
        };
        if self.environment.is_background_ahead() {
            return Ok(StepOutcome::WaitIo);
        }
        let before = self.seen_idle.swap(sequence, Ordering::Relaxed);
        if before != sequence && may_wait && self.volume.stale().is_none() {
            return match self.begin_upkeep() {
                Ok(_one_at_a_time) => self.mend().map(|()| StepOutcome::Idle),
                Err(outcome) => Ok(outcome),
            };
        }
        let outcome = self.step(budget, false)?;
        if outcome == StepOutcome::Again {
            // The entries that this step moved have numbers, and they are no user's writes.
            let next = lock(&self.writer).next_sequence;
            self.seen_idle.store(next, Ordering::Relaxed);
        }
        Ok(outcome)
    }

    /// Keeps other upkeep away, and a close; an outcome where there is nothing to keep up.
    fn begin_upkeep(&self) -> std::result::Result<MutexGuard<'_, ()>, StepOutcome> {
        let one_at_a_time = lock(&self.maintenance);
        // Behind the lock, since a close waits for it: then the members are somebody else's.
        if self.health.is_closed() {
            return Err(StepOutcome::Done);
        }
        match self.health.check_sound() {
            Err(_) => Err(StepOutcome::Idle),
            Ok(()) => Ok(one_at_a_time),
        }
    }

    /// Moves some small entries together; if that gives back too little, erases some stale
    /// headers that tombstones wait for, and lets tombstones go. More gives back enough where
    /// a write or a compaction waits for it.
    pub fn step(&self, budget: u64, is_pressed: bool) -> Result<StepOutcome> {
        let _one_at_a_time = match self.begin_upkeep() {
            Ok(one_at_a_time) => one_at_a_time,
            Err(outcome) => return Ok(outcome),
        };
        self.mend()?;
        if self.bring_up_to_date(budget)? == StepOutcome::Again {
            return Ok(StepOutcome::Again);
        }
        let least_waste = match is_pressed {
            // Else letting tombstones go gives back more.
            true => lock(&self.writer).tombstones.len().max(1) as u64,
            false => self.waste_worth_cleaning(),
        };
        if self.clean_some(least_waste)? == StepOutcome::Again {
            return Ok(StepOutcome::Again);
        }
        let most = (budget / u64::from(self.block_bytes)).clamp(1, MOST_A_STEP as u64) as usize;
        {
            let mut writer = lock(&self.writer);
            self.collect_unpinned(&mut writer);
            self.retire_tombstones(&mut writer);
        }
        let chosen = self.choose_headers(most, is_pressed);
        if chosen.is_empty() {
            // Perhaps packs that tombstones wait for were found.
            let least_waste = if is_pressed { 1 } else { least_waste };
            return match self.clean_some(least_waste)? {
                StepOutcome::Again => Ok(StepOutcome::Again),
                _ => self.discard_some(false),
            };
        }
        let runs = self.runs_of(&chosen);
        let erased = self.erase(&runs, &chosen);
        for chosen in chosen.chunks(A_HOLD).filter(|_| erased.is_ok()) {
            let mut writer = lock(&self.writer);
            for &(sequence, block) in chosen {
                writer.stale.erased(sequence, block);
            }
        }
        let mut writer = lock(&self.writer);
        for run in runs {
            writer.allocator.free(run);
        }
        erased?;
        self.keep_members(&mut writer)?;
        self.retire_tombstones(&mut writer);
        Ok(StepOutcome::Again)
    }

    /// Takes the walk that cleans further, whatever it gives back; to its end where it cannot go
    /// on.
    fn walk_on(&self) -> Result<StepOutcome> {
        let outcome = match self.begin_upkeep() {
            Ok(_one_at_a_time) => self.clean_some(0)?,
            Err(outcome) => return Ok(outcome),
        };
        if outcome != StepOutcome::Again {
            lock(&self.writer).packs.walks += 1;
        }
        Ok(StepOutcome::Again)
    }

    /// The oldest stale headers that a tombstone waits for, their blocks taken so
    /// that no writer uses them meanwhile. None where the oldest cannot be erased
    /// yet: those after it would let no tombstone go.
    fn choose_headers(&self, most: usize, is_pressed: bool) -> Vec<(u64, u32)> {
        let mut chosen: Vec<(u64, u32)> = Vec::new();
        while chosen.len() < most {
            let mut writer = lock(&self.writer);
            let Some(&(newest, _)) = writer.tombstones.back() else {
                break;
            };
            let behind = chosen.last().copied();
            let stale = writer.stale.between(behind, newest.min(writer.marked));
            let some: Vec<(u64, u32)> = stale.take(A_HOLD.min(most - chosen.len())).collect();
            let count = some.len();
            for (sequence, block) in some {
                // Taken while a snapshot sees it, or other entries of its pack count.
                if !writer.allocator.take(Extent { block, blocks: 1 }) {
                    let stale = EACH_STALE * writer.stale.len();
                    let are_many = stale > read(&self.state).index.len();
                    if is_pressed || are_many {
                        self.want_stale_packs(&mut writer, newest);
                    }
                    return chosen;
                }
                chosen.push((sequence, block));
            }
            if count < A_HOLD {
                break;
            }
        }
        chosen
    }

    /// Entries shall leave the packs whose obsolete ones are the next that tombstones wait for.
    fn want_stale_packs(&self, writer: &mut Writer, newest: u64) {
        let stale = writer.stale.between(None, newest).take(A_HOLD);
        let blocks: Vec<u32> = stale.map(|(_, block)| block).collect();
        blocks
            .into_iter()
            .for_each(|block| writer.packs.want(block));
    }

    /// Where zeros go: headers that were taken, with what is free between them, which is
    /// taken as well.
    fn runs_of(&self, chosen: &[(u64, u32)]) -> Vec<Extent> {
        let mut blocks: Vec<u32> = chosen.iter().map(|(_, block)| *block).collect();
        blocks.sort_unstable();
        // Where holes are punched again, zeros between would only take space. And before an
        // opening has its epoch, numbers above what is said to be durable must have no gap:
        // headers in what is free by now may be some of them.
        let is_safe = lock(&self.writer).session_begun;
        let between = match self.tuning.discard_bytes {
            0 if is_safe => MOST_BETWEEN / self.block_bytes,
            _ => 0,
        };
        let most = MOST_TOGETHER / self.block_bytes;
        let mut runs: Vec<Extent> = Vec::new();
        for blocks in blocks.chunks(A_HOLD) {
            let mut writer = lock(&self.writer);
            // Writers need room meanwhile.
            let unused = writer.superblock.total_blocks - writer.allocator.limit();
            let free = writer.allocator.free_blocks() + u64::from(unused);
            let between = match free < u64::from(PLENTY * most) {
                true => 0,
                false => between,
            };
            for &block in blocks {
                let last = runs.last_mut().filter(|last| {
                    let gap = Extent {
                        block: last.block + last.blocks,
                        blocks: block - (last.block + last.blocks),
                    };
                    gap.blocks <= between
                        && last.blocks + gap.blocks < most
                        && (gap.blocks == 0 || writer.allocator.take(gap))
                });
                match last {
                    Some(last) => last.blocks = block + 1 - last.block,
                    None => runs.push(Extent { block, blocks: 1 }),
                }
            }
        }
        runs
    }

    /// Writes zeros over headers, and what else is in the runs of them, durably.
    fn erase(&self, runs: &[Extent], headers: &[(u64, u32)]) -> Result<()> {
        let together = runs.iter().try_for_each(|run| {
            let bytes = run.blocks as usize * self.block_bytes as usize;
            self.volume.write_zeros(run.block, bytes)
        });
        let written = match together {
            // There were holes between the headers, and no room is left to fill them.
            Err(error) if error.is_no_space() => {
                let mut blocks: Vec<u32> = headers.iter().map(|(_, block)| *block).collect();
                blocks.sort_unstable();
                erase_blocks(&self.volume, &blocks)
            }
            written => written,
        };
        written.map_err(|error| self.health.unless_full(error))?;
        self.sync_members()?;
        let counters = &self.counters;
        let blocks: u64 = runs.iter().map(|run| u64::from(run.blocks)).sum();
        let bytes = blocks * u64::from(self.block_bytes);
        counters.erased_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.environment.pay_for_background(bytes);
        let headers = headers.len() as u64;
        counters.erased.fetch_add(headers, Ordering::Relaxed);
        counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Frees tombstones that no stale header is left for. One that may be the
    /// newest entry that recovery finds stays.
    fn retire_tombstones(&self, writer: &mut Writer) {
        let early = self.has_bug(SeededBug::TombstoneTooEarly);
        let oldest = writer.stale.oldest().filter(|_| !early).unwrap_or(u64::MAX);
        while let Some(&(sequence, place)) = writer.tombstones.front() {
            if sequence >= oldest || sequence >= writer.marked {
                break;
            }
            writer.tombstones.pop_front();
            if let Some((extent, _)) = writer.packs.lose(place, sequence) {
                writer.allocator.free(extent);
            }
        }
    }

    /// Makes everything obsolete free, and lets all tombstones go that can.
    pub fn compact(
        &self,
        options: &CompactOptions,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        self.check_writable()?;
        let mut settings = options.settings.clone();
        let size = settings.take_u64("size")?;
        settings.finish("alphard (of a compaction)", &[])?;
        if let Some(size) = size {
            self.grow(&mut lock(&self.writer), size)?;
        }
        self.cancelled.store(false, Ordering::Release);
        let begin = self.environment.clock.monotonic();
        let erased_before = self.counters.erased_bytes.load(Ordering::Relaxed);
        {
            let mut writer = lock(&self.writer);
            if writer.superblock.history_lost.is_some() || writer.packs.waste() > 0 {
                self.begin_session(&mut writer)?;
            }
            writer.packs.next_block = 0;
            if writer.session_begun {
                self.settle(&mut writer)?;
            }
            self.release_beyond(&mut writer, 0);
        }
        let mut done = 0;
        let walks = || lock(&self.writer).packs.walks;
        let before = walks();
        loop {
            let outcome = match walks() == before {
                true => self.walk_on()?,
                false => self.step(1 << 20, true)?,
            };
            if outcome != StepOutcome::Again {
                break;
            }
            self.environment
                .wait_for_background(&|| self.cancelled.load(Ordering::Acquire));
            if self.cancelled.swap(false, Ordering::AcqRel) {
                return Err(Error::Cancelled);
            }
            done += 1;
            progress.report(Progress {
                phase: "erasing",
                done,
                total: None,
            });
        }
        if let Ok(_one_at_a_time) = self.begin_upkeep() {
            while self.discard_some(true)? == StepOutcome::Again {}
        }
        let erased = self.counters.erased_bytes.load(Ordering::Relaxed) - erased_before;
        let seconds = (self.environment.clock.monotonic() - begin).as_secs_f64();
        cambium_io::events::compacted("alphard", &self.path, erased);
        Ok(CompactReport {
            phases: PhaseSeconds {
                flush_and_commit: seconds,
                ..PhaseSeconds::default()
            },
            total_seconds: seconds,
            bytes_written: erased,
            documents: crate::core::read(&self.state).index.len() as u64,
            batch: 1,
            ..CompactReport::default()
        })
    }

    /// Makes everything durable, leaves an index image, and lets go. After a failure it lets
    /// go as well, and answers that failure: what was written since may be lost.
    pub fn close(&self) -> Result<()> {
        let Some(_closing) = self.health.close() else {
            return Ok(());
        };
        let _one_at_a_time = lock(&self.maintenance);
        let mut writer = lock(&self.writer);
        self.wait_for_zeros();
        self.land_all();
        let outcome = match self.health.check_sound() {
            _ if !writer.session_begun && self.health.failure().is_none() => Ok(()),
            Ok(()) => self.close_cleanly(&mut writer),
            failed => failed,
        };
        // A sync that began before, without the writer lock, ends before the locks go.
        drop(lock(&self.syncing));
        writer.outgoing = Outgoing::default();
        write(&self.pending).clear();
        writer.index_memory = None;
        if let Some(plan) = self.memory.get() {
            plan.give_back();
        }
        lock(&self.locks).clear();
        outcome
    }

    fn close_cleanly(&self, writer: &mut Writer) -> Result<()> {
        if writer.superblock.history_lost.is_some() {
            // Snapshots end here. What they kept is history in the image.
            let freed = write(&self.state).unpin_all();
            lock(&self.unpinned).extend(freed);
        }
        self.settle(writer)?;
        // Without an image the next opening scans: a full folder is no failure.
        let image = match self.write_image(writer) {
            Ok(id) => id,
            Err(error) if error.is_no_space() => return Ok(()),
            Err(error) => return Err(error),
        };
        let superblock = &mut writer.superblock;
        superblock.image_id = image;
        superblock.clean = true;
        superblock.describe(writer.synced_through, &crate::core::read(&self.state));
        self.write_superblock(writer)?;
        cambium_io::events::flushed("alphard", &self.path);
        Ok(())
    }
}

/// Writes zeros over blocks, which are sorted, neighbours together; not synced.
pub(crate) fn erase_blocks(volume: &crate::volume::Volume, blocks: &[u32]) -> Result<()> {
    let most = MOST_TOGETHER / volume.block_bytes;
    let mut runs: Vec<Extent> = Vec::new();
    for &block in blocks {
        let last = runs.last_mut();
        match last.filter(|last| last.end() == u64::from(block) && last.blocks < most) {
            Some(last) => last.blocks += 1,
            None => runs.push(Extent { block, blocks: 1 }),
        }
    }
    let longest = runs.iter().map(|run| run.blocks).max().unwrap_or(0);
    let zeros = buffer(longest as usize * volume.block_bytes as usize);
    runs.iter().try_for_each(|run| {
        let bytes = run.blocks as usize * volume.block_bytes as usize;
        volume.write(run.block, &zeros[..bytes])
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot go on has failed

    use std::path::Path;
    use std::sync::Arc;

    use cambium_api::{Durability, Engine, OptionValues, WriteBatch};
    use cambium_io::Environment;
    use cambium_io::simulated::SimulatedDisk;

    use super::*;
    use crate::engine::run;

    /// A store of which entries that were written together have been deleted.
    fn with_tombstones(disk: &SimulatedDisk) -> (Arc<Core>, Arc<dyn Engine>) {
        let environment = Environment::simulated(disk, 1);
        let options = OptionValues::from([("size", "64MiB"), ("cache_bytes", "0")]);
        let making = crate::create::make(&environment, Path::new("/store"), &options, 0).unwrap();
        let core = making.conclude().unwrap();
        let store = run(core.clone());
        let (mut puts, mut deletes) = (WriteBatch::new(), WriteBatch::new());
        for key in 0..20u8 {
            puts.put(&[key], &[key; 2000]);
            deletes.delete(&[key]);
        }
        store.write(puts, Durability::Synced).unwrap();
        store.write(deletes, Durability::Synced).unwrap();
        store.put(b"oak", b"Quercus", Durability::Synced).unwrap();
        store.put(b"ash", b"Fraxinus", Durability::Synced).unwrap();
        (core, store)
    }

    fn waiting(core: &Core) -> usize {
        lock(&core.writer).tombstones.len()
    }

    #[test]
    fn few_headers_are_erased_once_nobody_writes_and_in_few_writes() {
        let disk = SimulatedDisk::new(1);
        let (core, store) = with_tombstones(&disk);
        assert_eq!(waiting(&core), 20);
        let idle = core.step_in_background(1 << 20).unwrap();
        assert_eq!((idle, waiting(&core)), (StepOutcome::Idle, 20));
        // Nobody has written since.
        while core.step_in_background(1 << 20).unwrap() == StepOutcome::Again {}
        assert!(waiting(&core) <= 1, "{}", waiting(&core));
        let stats = store.stats().unwrap();
        let erased = stats.number("headers_erased").unwrap();
        assert_eq!(erased, 20);
        // The bodies between them too.
        assert!(stats.number("erased_bytes").unwrap() > 20 * 2000);
        assert_eq!(store.get(b"oak").unwrap().unwrap(), b"Quercus");
        store.close().unwrap();
    }

    #[test]
    fn nothing_is_kept_up_in_a_store_that_is_closed() {
        let disk = SimulatedDisk::new(1);
        let (core, store) = with_tombstones(&disk);
        store.close().unwrap();
        let before = disk.operation_count();
        for _ in 0..3 {
            let outcome = core.step_in_background(1 << 20).unwrap();
            assert_eq!(outcome, StepOutcome::Done);
        }
        assert_eq!(disk.operation_count(), before);
    }
}
