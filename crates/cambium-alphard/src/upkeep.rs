//! Upkeep: erasing stale headers so that tombstones can go, a bounded piece at a
//! time; closing.
//!
//! Entries that were written together become obsolete together, as a rule: between their
//! headers lie their bodies, free as well. Zeros go over all of it then, in few large
//! writes. In the background headers are left until many have gathered, or nobody writes:
//! entries that come to their places erase them for nothing, and every sync of the
//! background makes writers wait.

use std::sync::atomic::Ordering;

use cambium_api::{CompactOptions, CompactReport, PhaseSeconds, Progress, ProgressSink};
use cambium_base::{Error, Extent, Result};
use cambium_io::StepOutcome;

use crate::core::{Core, Writer, lock, write};
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
        let before = self.seen_idle.swap(sequence, Ordering::Relaxed);
        if before != sequence && may_wait && self.volume.stale().is_none() {
            let _one_at_a_time = lock(&self.maintenance);
            self.mend()?;
            return Ok(StepOutcome::Idle);
        }
        self.step(budget)
    }

    /// Erases some stale headers that tombstones wait for, and lets tombstones go.
    pub fn step(&self, budget: u64) -> Result<StepOutcome> {
        if self.health.is_closed() {
            return Ok(StepOutcome::Done);
        }
        if self.health.failure().is_some() {
            return Ok(StepOutcome::Idle);
        }
        let _one_at_a_time = lock(&self.maintenance);
        self.mend()?;
        if self.bring_up_to_date(budget)? == StepOutcome::Again {
            return Ok(StepOutcome::Again);
        }
        let most = (budget / u64::from(self.block_bytes)).clamp(1, MOST_A_STEP as u64) as usize;
        {
            let mut writer = lock(&self.writer);
            self.collect_unpinned(&mut writer);
            self.retire_tombstones(&mut writer);
        }
        let chosen = self.choose_headers(most);
        if chosen.is_empty() {
            return match self.discard_some(false)? {
                // Elsewhere a task of its own does it.
                StepOutcome::Idle if !self.environment.executor.runs_tasks() => {
                    Ok(self.zero_ahead())
                }
                outcome => Ok(outcome),
            };
        }
        let runs = self.runs_of(&chosen);
        let erased = self.erase(&runs, chosen.len());
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

    /// The oldest stale headers that a tombstone waits for, their blocks taken so
    /// that nobody writes there meanwhile. None where the oldest cannot be erased
    /// yet: those after it would let no tombstone go.
    fn choose_headers(&self, most: usize) -> Vec<(u64, u32)> {
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
                // Taken while a snapshot sees it.
                if !writer.allocator.take(Extent { block, blocks: 1 }) {
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

    /// Writes zeros over so many headers, durably.
    fn erase(&self, runs: &[Extent], headers: usize) -> Result<()> {
        write_zeros(&self.volume, runs).map_err(|error| self.unless_full(error))?;
        self.sync_members()?;
        let counters = &self.counters;
        counters.erased.fetch_add(headers as u64, Ordering::Relaxed);
        counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Frees tombstones that no stale header is left for. One that may be the
    /// newest entry that recovery finds stays.
    fn retire_tombstones(&self, writer: &mut Writer) {
        let early = self.has_bug(SeededBug::TombstoneTooEarly);
        let oldest = writer.stale.oldest().filter(|_| !early).unwrap_or(u64::MAX);
        while let Some(&(sequence, block)) = writer.tombstones.front() {
            if sequence >= oldest || sequence >= writer.marked {
                break;
            }
            writer.tombstones.pop_front();
            writer.allocator.free(Extent { block, blocks: 1 });
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
        let erased_before = self.counters.erased.load(Ordering::Relaxed);
        {
            let mut writer = lock(&self.writer);
            if writer.session_begun {
                self.settle(&mut writer)?;
            }
        }
        let mut done = 0;
        while self.step(1 << 20)? == StepOutcome::Again {
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
        {
            let _one_at_a_time = lock(&self.maintenance);
            while self.discard_some(true)? == StepOutcome::Again {}
        }
        let erased = self.counters.erased.load(Ordering::Relaxed) - erased_before;
        let seconds = (self.environment.clock.monotonic() - begin).as_secs_f64();
        Ok(CompactReport {
            phases: PhaseSeconds {
                flush_and_commit: seconds,
                ..PhaseSeconds::default()
            },
            total_seconds: seconds,
            bytes_written: erased * u64::from(self.block_bytes),
            documents: crate::core::read(&self.state).index.len() as u64,
            batch: 1,
            ..CompactReport::default()
        })
    }

    /// Makes everything durable, leaves an index image, and lets go.
    pub fn close(&self) -> Result<()> {
        if !self.health.close() {
            return Ok(());
        }
        let _one_at_a_time = lock(&self.maintenance);
        let _nobody_writes_zeros = lock(&self.zeroing);
        let mut writer = lock(&self.writer);
        self.land_all(&mut writer);
        let outcome = if self.health.failure().is_some() || !writer.session_begun {
            Ok(())
        } else {
            self.close_cleanly(&mut writer)
        };
        writer.outgoing = Outgoing::default();
        write(&self.pending).clear();
        lock(&self.locks).clear();
        outcome
    }

    fn close_cleanly(&self, writer: &mut Writer) -> Result<()> {
        self.settle(writer)?;
        // Without an image the next opening scans: a full folder is no failure.
        let image = match self.write_image(writer) {
            Ok(id) => id,
            Err(error) if error.is_no_space() => return Ok(()),
            Err(error) => return Err(error),
        };
        let state = crate::core::read(&self.state);
        writer.superblock.image_id = image;
        writer.superblock.clean = true;
        writer.superblock.sequence = writer.synced_through;
        writer.superblock.synced_through = writer.synced_through;
        writer.superblock.live_digest = state.live_digest;
        writer.superblock.live_entries = state.index.len() as u64;
        drop(state);
        self.write_superblock(writer)
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
    write_zeros(volume, &runs)
}

/// Writes zeros over extents, one write each; not synced.
fn write_zeros(volume: &crate::volume::Volume, runs: &[Extent]) -> Result<()> {
    let longest = runs.iter().map(|run| run.blocks).max().unwrap_or(0);
    let zeros = buffer(longest as usize * volume.block_bytes as usize);
    runs.iter().try_for_each(|run| {
        let bytes = run.blocks as usize * volume.block_bytes as usize;
        volume.write(run.block, &zeros[..bytes])
    })
}
