//! Upkeep: erasing stale headers so that tombstones can go, a bounded piece at a
//! time; closing.

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

impl Core {
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
        let chosen = {
            let mut writer = lock(&self.writer);
            self.collect_unpinned(&mut writer);
            self.retire_tombstones(&mut writer);
            self.choose_headers(&mut writer, most)
        };
        if chosen.is_empty() {
            return match self.discard_some(false)? {
                // Elsewhere a task of its own does it.
                StepOutcome::Idle if !self.environment.executor.runs_tasks() => {
                    Ok(self.zero_ahead())
                }
                outcome => Ok(outcome),
            };
        }
        let erased = self.erase(&chosen);
        let mut writer = lock(&self.writer);
        for &(sequence, block) in &chosen {
            writer.allocator.free(Extent { block, blocks: 1 });
            if erased.is_ok() {
                writer.stale.erased(sequence, block);
            }
        }
        erased?;
        self.keep_members(&mut writer)?;
        self.retire_tombstones(&mut writer);
        Ok(StepOutcome::Again)
    }

    /// The oldest stale headers that a tombstone waits for, their blocks taken so
    /// that nobody writes there meanwhile. None where the oldest cannot be erased
    /// yet: those after it would let no tombstone go.
    fn choose_headers(&self, writer: &mut Writer, most: usize) -> Vec<(u64, u32)> {
        let Some(&(newest, _)) = writer.tombstones.back() else {
            return Vec::new();
        };
        let stale = writer.stale.up_to(newest.min(writer.marked));
        let candidates: Vec<(u64, u32)> = stale.take(most).collect();
        let mut chosen = Vec::with_capacity(candidates.len());
        for (sequence, block) in candidates {
            // Taken while a snapshot sees it.
            if !writer.allocator.take(Extent { block, blocks: 1 }) {
                break;
            }
            chosen.push((sequence, block));
        }
        chosen
    }

    /// Writes zeros over headers, durably.
    fn erase(&self, chosen: &[(u64, u32)]) -> Result<()> {
        let mut blocks: Vec<u32> = chosen.iter().map(|(_, block)| *block).collect();
        blocks.sort_unstable();
        erase_blocks(&self.volume, &blocks).map_err(|error| self.unless_full(error))?;
        self.sync_members()?;
        let counters = &self.counters;
        counters
            .erased
            .fetch_add(blocks.len() as u64, Ordering::Relaxed);
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
    const MOST_TOGETHER: usize = 256;
    let zeros = buffer(MOST_TOGETHER * volume.block_bytes as usize);
    let mut rest = blocks;
    while let Some(&first) = rest.first() {
        let run = rest
            .iter()
            .zip(first..)
            .take(MOST_TOGETHER)
            .take_while(|(block, expected)| **block == *expected)
            .count();
        volume.write(first, &zeros[..run * volume.block_bytes as usize])?;
        rest = &rest[run..];
    }
    Ok(())
}
