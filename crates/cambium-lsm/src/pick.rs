//! Which tables are compacted next (LevelDB's scores, and what came after).
//!
//! Each level has a score: of level 0 the number of tables by the number that is
//! wanted, of others bytes by the target. The highest score of 1 or more goes
//! first, if its tables are free; so a deep level does not wait for a shallow
//! one that is being compacted already.

use std::sync::Arc;

use cambium_io::sync::atomic::Ordering;

use crate::compact::Plan;
use crate::format::LEVELS;
use crate::job::{Claim, Jobs};
use crate::seeded_bug::SeededBug;
use crate::tree::Tree;
use crate::version::{TableFile, Version, bytes_of, range_of};

impl Tree {
    /// Bytes that a level below 0 should have at most. What levels above the lowest hold, the
    /// lowest holds an older entry of, mostly: so they stay in proportion to it.
    pub(crate) fn level_target(&self, version: &Version, level: usize) -> u64 {
        let options = &self.context.options;
        let ratio = u64::from(options.level_ratio);
        let times = ratio.saturating_pow(level as u32 - 1);
        let most = options.level_base_bytes.saturating_mul(times);
        let lowest = version.levels.iter().rposition(|files| !files.is_empty());
        match lowest {
            Some(lowest) if level < lowest => {
                let share = ratio.saturating_pow((lowest - level) as u32);
                (version.level_bytes(lowest) / share).clamp(most / ratio, most)
            }
            _ => most,
        }
    }

    /// Of what tables hold, the share that has not come to the lowest level: as many
    /// entries further down may be hidden by it. 0.0 to 1.0.
    pub fn unmerged_share(&self) -> f64 {
        let version = self.view.load().version.clone();
        let levels = (0..LEVELS).map(|level| version.level_bytes(level));
        let bytes: Vec<u64> = levels.collect();
        let merged = match bytes.iter().rposition(|&bytes| bytes > 0) {
            None => return 0.0,
            Some(0) => {
                let tables = version.levels[0].iter().map(|file| file.metadata.bytes);
                tables.max().unwrap_or(0)
            }
            Some(lowest) => bytes[lowest],
        };
        1.0 - merged as f64 / bytes.iter().sum::<u64>().max(1) as f64
    }

    fn score(&self, version: &Version, level: usize) -> f64 {
        match level {
            0 => version.levels[0].len() as f64 / self.context.options.l0_trigger as f64,
            _ => version.level_bytes(level) as f64 / self.level_target(version, level) as f64,
        }
    }

    /// The most urgent compaction that can run beside those that do.
    pub(crate) fn pick(&self, jobs: &Jobs) -> Option<(Plan, Claim)> {
        let version = self.view.load().version.clone();
        let mut levels: Vec<(f64, usize)> = (0..LEVELS - 1)
            .map(|level| (self.score(&version, level), level))
            .filter(|&(score, _)| score >= 1.0)
            .collect();
        levels.sort_by(|one, other| other.0.total_cmp(&one.0));
        levels
            .into_iter()
            .find_map(|(_, level)| self.pick_at(&version, level, jobs))
            .or_else(|| self.pick_overlapping(&version, jobs))
            .or_else(|| self.pick_versions(&version, jobs))
            .or_else(|| self.pick_tombstones(&version, jobs))
    }

    /// A compaction of level 0 while nobody writes: every scan looks at each of its tables,
    /// and too few of them for its score would stay as long as no write comes.
    fn pick_overlapping(&self, version: &Arc<Version>, jobs: &Jobs) -> Option<(Plan, Claim)> {
        let is_resting = self.resting.load(Ordering::Relaxed) && !jobs.any() && !self.has_sealed();
        let overlap = version.levels[0].len() > 1;
        (is_resting && overlap).then(|| self.pick_at(version, 0, jobs))?
    }

    /// A compaction of tables that are mostly tombstones, one level further down, where no
    /// reader needs what they hide; while nobody writes, also of tables that may hide half of
    /// what lies below them. In a tree that is deleted or written over and then left alone, no
    /// other compaction would ever bring them to what they hide. Not at any time: a merge of
    /// more tables costs less for each.
    fn pick_tombstones(&self, version: &Arc<Version>, jobs: &Jobs) -> Option<(Plan, Claim)> {
        if !self.sweeping.load(Ordering::Relaxed) || jobs.any() || self.has_sealed() {
            return None;
        }
        let hides_most = |files: &[Arc<TableFile>]| {
            let all = files.iter().map(|file| &file.metadata);
            let (deletes, entries, ranges) = all.fold((0, 0, 0), |(d, e, r), table| {
                (
                    d + table.deletes,
                    e + table.entries,
                    r + table.range_tombstones,
                )
            });
            ranges > 0 || deletes > 0 && deletes * 2 >= entries
        };
        let is_resting = self.resting.load(Ordering::Relaxed);
        let entries = |files: &[Arc<TableFile>]| -> u64 {
            files.iter().map(|file| file.metadata.entries).sum()
        };
        let may_hide_half = |level: usize, files: &[Arc<TableFile>]| {
            let range = range_of(files).filter(|_| is_resting);
            let below = range.map_or(0, |range| {
                let levels = level + 1..LEVELS;
                levels
                    .map(|level| entries(&version.overlapping(level, &range)))
                    .sum()
            });
            below > 0 && below <= 2 * entries(files)
        };
        let heads = version
            .levels
            .iter()
            .enumerate()
            .flat_map(|(level, files)| {
                let step = if level == 0 { files.len().max(1) } else { 1 };
                files.chunks(step).map(move |files| (level, files))
            });
        let mut wanted = heads
            .filter(|(level, files)| hides_most(files) || may_hide_half(*level, files))
            .peekable();
        wanted.peek()?;
        let oldest = self.owner.protected_moments().into_iter().min()?;
        let is_past = |file: &Arc<TableFile>| file.metadata.largest_sequence <= oldest;
        wanted
            .filter(|(_, files)| files.iter().all(is_past))
            .find_map(|(level, files)| {
                let below = (level + 1).min(LEVELS - 1);
                admitted(plan(version, level, below, files.to_vec(), true)?, jobs)
            })
    }

    /// A compaction of a table alone, for versions of its keys that readers saw when it was
    /// written, and that nobody can ask for any more. Nothing else might ever come by where
    /// keys are not written again.
    fn pick_versions(&self, version: &Arc<Version>, jobs: &Jobs) -> Option<(Plan, Claim)> {
        let below = version.files().filter(|&(level, _)| level > 0);
        let mut held = below
            .filter(|(_, file)| file.metadata.has_versions)
            .peekable();
        held.peek()?;
        // Whoever reads from now on sees the newest entry of each of its keys.
        let oldest = self.owner.protected_moments().into_iter().min()?;
        held.filter(|(_, file)| file.metadata.largest_sequence <= oldest)
            .find_map(|(level, file)| {
                admitted(plan(version, level, level, vec![file.clone()], true)?, jobs)
            })
    }

    fn pick_at(&self, version: &Arc<Version>, level: usize, jobs: &Jobs) -> Option<(Plan, Claim)> {
        let pick = |files: Vec<Arc<TableFile>>| {
            let mut plan = plan(version, level, level + 1, files, false)?;
            if self.context.options.has_bug(SeededBug::OverlapForgotten) {
                plan.lower.clear();
            }
            admitted(plan, jobs)
        };
        if level == 0 {
            return pick(version.levels[0].clone());
        }
        let files = &version.levels[level];
        let mut order: Vec<&Arc<TableFile>> = files.iter().collect();
        let turn = &jobs.turns[level];
        // From where the last one ended, and round.
        let begins = files.partition_point(|file| file.metadata.range.smallest <= *turn);
        order.rotate_left(begins.min(files.len()));
        // The one that overlaps the least of the next level for its size writes the least.
        let cost = |file: &&Arc<TableFile>| {
            let below = bytes_of(&version.overlapping(level + 1, &file.metadata.range));
            // In thousandths, so that it can be ordered.
            below.saturating_mul(1000) / file.metadata.bytes.max(1)
        };
        // Stable: among equals turns are taken.
        order.sort_by_cached_key(cost);
        order.into_iter().find_map(|file| pick(vec![file.clone()]))
    }
}

/// A compaction of these tables of `level` into `output_level`.
pub(crate) fn plan(
    version: &Arc<Version>,
    level: usize,
    output_level: usize,
    upper: Vec<Arc<TableFile>>,
    rewrite: bool,
) -> Option<Plan> {
    let range = range_of(&upper)?;
    let lower = match level == output_level {
        true => Vec::new(),
        false => version.overlapping(output_level, &range),
    };
    let range = range_of(&lower).map_or(range.clone(), |lower| lower.and(&range));
    Some(Plan {
        version: version.clone(),
        level,
        upper,
        output_level,
        lower,
        range,
        rewrite,
    })
}

/// The compaction with what it keeps others from, if it can run beside those that do.
pub(crate) fn admitted(plan: Plan, jobs: &Jobs) -> Option<(Plan, Claim)> {
    let claim = claim_of(&plan);
    jobs.admits(&claim).then_some((plan, claim))
}

/// What a compaction keeps others from.
fn claim_of(plan: &Plan) -> Claim {
    Claim {
        files: plan
            .inputs()
            .map(|(_, file)| file.metadata.number)
            .collect(),
        output_level: plan.output_level,
        range: plan.range.clone(),
    }
}
