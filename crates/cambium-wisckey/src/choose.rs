//! Whether space calls for a collection, and of which segment.
//!
//! Tables tell exactly what they lead to, and some of it is hidden already by newer
//! entries further up, or by what no table holds yet. How much that is can be told
//! about, by samples of writes ([`crate::pace`]):
//!
//! ```text
//!  garbage  =  known  +  hidden by writes, by samples, and not told of by any job
//! ```
//!
//! Where it comes near what `space_limit` leaves, collection begins, and writers are
//! slowed the more the nearer it is.

use std::sync::Arc;

use crate::collect::Collector;
use crate::core::Core;
use crate::format::{self, SegmentKind};
use crate::ledger::{Account, LedgerState};
use crate::options::Policy;
use crate::seeded_bug::SeededBug;
use crate::segment::Segment;
use cambium_io::sync::atomic::Ordering;

/// Of [`crate::stats::Counters::space_pressure`]: the limit is reached.
pub(crate) const FULL_PRESSURE: u64 = 1000;

impl Core {
    /// The segment that is to be collected next, if space is beyond its limit.
    pub fn choose(&self, collector: &mut Collector) -> Option<u32> {
        if self.tuning.policy == Policy::Off {
            return None;
        }
        let state = self.ledger.state();
        collector
            .dropping
            .retain(|number| state.segments.contains_key(number));
        let worth_it = self.least_garbage(collector, &state)?;
        let head = state.head.segment;
        let kept = self.kept_segments(collector, &state);
        let candidates =
            kept.filter(|&(&number, account)| self.may_go(collector, head, number, account));
        match self.tuning.policy {
            Policy::Tail => candidates.map(|(&number, _)| number).min(),
            _ => candidates
                .map(|(&number, account)| (number, self.record_bytes(&state, number), account))
                .filter(|(_, bytes, account)| garbage_share(*bytes, account) > worth_it)
                .max_by_key(|&(number, bytes, account)| {
                    (garbage_share(bytes, account), u32::MAX - number)
                })
                .map(|(number, _, _)| number),
        }
    }

    /// Finds out anew how near the limit space is, while a run is under way.
    pub fn look_at_space(&self, collector: &Collector) {
        let state = self.ledger.state();
        _ = self.least_garbage(collector, &state);
    }

    /// The share of garbage, in a million parts, that a segment has to have to be worth a
    /// collection; `None` where space calls for none. Says how near the limit is.
    fn least_garbage(&self, collector: &Collector, state: &LedgerState) -> Option<u64> {
        // What no table holds yet takes space as well.
        let unflushed = self.unflushed_bytes(state);
        let kept = self.kept_segments(collector, state);
        let (total, told_live) = kept.fold((0u64, 0u64), |(total, live), (&number, account)| {
            let bytes = self.record_bytes(state, number);
            (total + bytes, live + account.live_bytes())
        });
        let hidden = self.hidden_bytes(state, told_live, unflushed);
        let live = (told_live + unflushed).saturating_sub(hidden);
        let garbage = (total + unflushed).saturating_sub(live);
        if garbage < self.segment_target(told_live) || !self.presses(garbage, live) {
            self.counters.space_pressure.store(0, Ordering::Relaxed);
            return None;
        }
        // What is hidden still is found out by the tree, not by moving all the rest.
        Some(garbage_share_of(total + unflushed, garbage) / 4)
    }

    /// Bytes of a segment's records, what went back of them left out. Its header is none
    /// of them: no collection frees it, another segment has one as well.
    fn record_bytes(&self, state: &LedgerState, number: u32) -> u64 {
        let header = format::geometry(&self.shape, &self.tuning).first_offset;
        let account = state.segments.get(&number);
        account.map_or(0, |account| {
            state.kept_bytes(number, account).saturating_sub(header)
        })
    }

    /// Segments that nothing leads into any more, and that cost nothing to drop.
    pub fn empty_segments(&self, collector: &Collector) -> Vec<u32> {
        if self.tuning.policy == Policy::Off {
            return Vec::new();
        }
        let state = self.ledger.state();
        let head = state.head.segment;
        let segments = self.kept_segments(collector, &state);
        let empty = segments.filter(|&(&number, account)| {
            account.live_bytes() == 0 && self.may_go(collector, head, number, account)
        });
        empty.map(|(&number, _)| number).collect()
    }

    /// Bytes that were logged and are in no table.
    fn unflushed_bytes(&self, state: &LedgerState) -> u64 {
        let segments = self.segments.load();
        let behind = segments.range(state.head.segment..);
        let logged = behind
            .filter(|(number, segment)| {
                segment.kind == SegmentKind::Written && !state.segments.contains_key(number)
            })
            .map(|(_, segment)| segment.log.end());
        logged.sum()
    }

    /// Bytes of what counts as live, in tables or in no table yet, that newer entries
    /// hide already, about: what writes were seen to hide and no job told of.
    fn hidden_bytes(&self, state: &LedgerState, told_live: u64, unflushed: u64) -> u64 {
        let unmerged = (told_live as f64 * self.tree.unmerged_share()) as u64;
        let most = unmerged + unflushed;
        self.hidden_by_samples(state.garbage_told, most)
    }

    /// True if there is so much garbage that collection has to work; says how much
    /// that is.
    fn presses(&self, garbage: u64, live: u64) -> bool {
        let room = live as f64 / 100.0 * (self.tuning.space_limit - 100) as f64;
        // Half of the room is left for what is written while it works.
        let pressure = (garbage as f64 / room.max(1.0) * 2.0 - 1.0).clamp(0.0, 4.0);
        let pressure = (pressure * FULL_PRESSURE as f64) as u64;
        self.counters
            .space_pressure
            .store(pressure, Ordering::Relaxed);
        pressure > 0
    }

    /// True if a segment can be collected: nothing more comes into it, and tables
    /// hold, and the ledger knows, everything in it.
    pub fn may_go(&self, collector: &Collector, head: u32, number: u32, account: &Account) -> bool {
        let is_output = collector
            .output
            .as_ref()
            .is_some_and(|output| output.number == number);
        let is_settled = |segment: Arc<Segment>| {
            segment.value_bytes.load(Ordering::Relaxed) == account.value_bytes
                && segment.log.end() == account.end
        };
        !is_output
            && !collector.damaged.contains(&number)
            && !collector.dropping.contains(&number)
            && (account.kind == SegmentKind::Moved || number < head)
            && self.segment(number).is_some_and(is_settled)
    }

    /// Segments that are not collected yet, and not held for consumers of changes or for named
    /// snapshots.
    pub fn kept_segments<'s>(
        &self,
        collector: &'s Collector,
        state: &'s LedgerState,
    ) -> impl Iterator<Item = (&'s u32, &'s Account)> + use<'s> {
        let held = self.held_history(state);
        let forgets_snapshots = self.has_bug(SeededBug::SnapshotSegmentDropped);
        let segments = state.segments.iter();
        segments.filter(move |&(&number, account)| {
            let is_free = !held.has(account) && (forgets_snapshots || !state.is_kept(number));
            is_free && !collector.dropping.contains(&number)
        })
    }
}

/// Garbage of a segment in a million parts of its bytes, everything that no table
/// points to included.
fn garbage_share(bytes: u64, account: &Account) -> u64 {
    garbage_share_of(bytes, bytes.saturating_sub(account.live_bytes()))
}

fn garbage_share_of(bytes: u64, garbage: u64) -> u64 {
    (u128::from(garbage) * 1_000_000 / u128::from(bytes.max(1))) as u64
}
