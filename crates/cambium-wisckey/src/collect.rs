//! Garbage collection of the value log (section 3.3.2), online.
//!
//! The paper copies what is live from the tail of one log to its head. That copies
//! cold values for ever, and a value that is written again as if it were new races
//! with deletes. Here a *segment* is collected, by default the one with the largest
//! share of garbage:
//!
//! 1. **Read.** The segment is read from start to end, a window of values at a time
//!    ([`crate::window`]).
//! 2. **Ask and move.** For each value of a window, in the order of keys, the tree is
//!    asked whether it still leads to this record. What is live is appended to a *moved*
//!    segment, with the sequence numbers it was written with. Scans of those keys are
//!    sequential from then on.
//! 3. **Relocate.** The tree exchanges old pointers for new ones, each only if the
//!    entry is still the newest of its key and has the old pointer. No key is
//!    inserted: a delete or an overwrite that comes meanwhile has a higher number
//!    and wins. Only memory says so yet.
//! 4. **Sync.** The flush that brings the new pointers into tables makes the moved
//!    values durable before those tables count.
//! 5. **Drop.** When the tables that hold the new pointers are on the device, the
//!    same edit of the manifest drops the segment; then its file is removed.
//!
//! A crash before 5 leaves old segment and old pointers; a moved segment that no
//! edit speaks of is removed by the next open. What only snapshots see is not moved:
//! the segment's file loses its name and stays open until they are gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cambium_base::Result;
use cambium_io::sync::atomic::Ordering;
use cambium_io::{Advice, StepOutcome};
use cambium_lsm::{Lookup, Seen, WritePressure};
use cambium_storage::scan::Scanned;

use crate::choose::FULL_PRESSURE;
use crate::core::{Core, lock};
use crate::format::{SegmentKind, Stored, ValuePointer, kind};
use crate::ledger::Account;
use crate::moving::LiveValue;
use crate::note::{self, NoteItem};
use crate::options::Policy;
use crate::seeded_bug::SeededBug;
use crate::segment::Segment;
use crate::value_log::MANY_DELETES;
use crate::window::{LOOKED_UP_AT_ONCE, Window};

/// Bytes of a step that a writer takes where no task collects.
const STEP_BYTES: u64 = 1 << 20;
/// Of collection with a limited rate.
const PAUSES_A_SECOND: u64 = 8;
/// The least that a step reads, bytes.
const LEAST_STEP_BYTES: u64 = 64 << 10;
/// Segments without a name that may wait for somebody who closes them.
const MOST_GONE: usize = 4;

/// Fewer deletes than [`MANY_DELETES`] are worth a flush if they hide so many bytes.
const MUCH_HIDDEN: u64 = 4 << 20;
/// While others write, deletes get their turn as often, for so long.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
const SWEEP_FOR: Duration = Duration::from_secs(1);
/// Garbage at the end of an earlier opening's log that is left alone, bytes.
const LITTLE_GARBAGE: u64 = 256 << 10;

/// What the collection lock guards.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    run: Option<Run>,
    /// What the run has read and not moved; its memory is used again.
    window: Window,
    /// The moved segment that is being filled.
    pub output: Option<Arc<Segment>>,
    /// Collected, and still known to the manifest.
    pub dropping: BTreeSet<u32>,
    /// Segments with damage: what is live in them cannot be told.
    pub damaged: BTreeSet<u32>,
    /// Bytes of segments that no flush was asked to drop yet.
    undropped: u64,
    /// The visible sequence number at the last step that found no work.
    quiet_since: u64,
    /// When deletes had their last turn.
    swept: Option<Duration>,
    /// Before this time the rate limit holds.
    not_before: Duration,
}

/// The collection of one segment.
#[derive(Debug)]
struct Run {
    victim: Arc<Segment>,
    /// Where its records end.
    until: u64,
    position: u64,
    /// Bytes of records that were found alive.
    live_bytes: u64,
    highest_session: u32,
}

/// Busy time of each phase, and what was moved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub search: Duration,
    pub sort: Duration,
    pub read: Duration,
    pub write: Duration,
    pub flush: Duration,
    pub read_operations: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub values: u64,
}

impl Work {
    /// Bytes read and written.
    pub fn moved_bytes(&self) -> u64 {
        self.bytes_read + self.bytes_written
    }
}

impl Core {
    /// A bounded piece of background collection.
    pub fn collection_step(self: &Arc<Self>, budget: u64) -> Result<StepOutcome> {
        if self.health.is_closed() {
            return Ok(StepOutcome::Done);
        }
        if self.check_sound().is_err() {
            return Ok(StepOutcome::Idle);
        }
        self.remove_dropped()?;
        if self.takes_refused() {
            return self.make_room().map(|()| StepOutcome::Again);
        }
        // Others do it where they have time; a full disk waits for it.
        let is_stuck = lock(&self.stuck).is_some();
        if is_stuck || lock(&self.gone).len() > MOST_GONE {
            self.close_one_gone();
        }
        if self.punch_holes() {
            return Ok(StepOutcome::Again);
        }
        let mut collector = lock(&self.collection);
        let now = self.environment.clock.monotonic();
        let mut work = Work::default();
        let mut empty = self.empty_segments(&collector);
        if let Some(run) = &collector.run {
            // It goes when the run ends.
            empty.retain(|&number| number != run.victim.number);
        }
        if !empty.is_empty() {
            self.begin_session()?;
            return self.drop_empty(&empty).map(|()| StepOutcome::Again);
        }
        // Where the tree cannot get on for lack of space, what is collected may give some.
        if !is_stuck && self.waits_for_tree() {
            return Ok(StepOutcome::Idle);
        }
        if collector.run.is_some() {
            // It may have paused for long, and writers have gone on.
            self.look_at_space(&collector);
        } else {
            let Some(number) = self.choose(&mut collector) else {
                if collector.undropped > 0 {
                    // Nothing else will make the flush that drops them.
                    return self
                        .drop_collected(&mut collector)
                        .map(|()| StepOutcome::Again);
                }
                collector.window = Window::default();
                return Ok(match self.rest(&mut collector)? || self.close_one_gone() {
                    true => StepOutcome::Again,
                    false => StepOutcome::Idle,
                });
            };
            self.begin_session()?;
            self.begin_run(&mut collector, number)?;
        }
        let pressure = self.counters.space_pressure.load(Ordering::Relaxed);
        if now < collector.not_before && pressure < FULL_PRESSURE {
            return Ok(StepOutcome::Idle);
        }
        let budget = match self.tuning.collection_rate {
            0 => budget,
            // Short pauses, each after a little.
            rate => budget.min((rate / PAUSES_A_SECOND).max(LEAST_STEP_BYTES)),
        };
        self.advance(&mut collector, budget, &mut work)?;
        if self.tuning.collection_rate > 0 {
            let moved = work.moved_bytes() as f64;
            let pause = moved / self.tuning.collection_rate as f64;
            collector.not_before = now + Duration::from_secs_f64(pause);
        }
        Ok(StepOutcome::Again)
    }

    /// Frees what deletes hide if there was no write since the last idle step, and now and then
    /// while there are: seals a write buffer with many deletes, or behind a segment that is
    /// garbage, and lets the tree merge tables of tombstones. If there was no write, it does so
    /// too with entries that may hide half of what is live. Without that the space would stay
    /// taken until a write buffer is full. True if there is work.
    fn rest(&self, collector: &mut Collector) -> Result<bool> {
        let visible = self.ledger.visible();
        let is_quiet = std::mem::replace(&mut collector.quiet_since, visible) == visible;
        let now = self.environment.clock.monotonic();
        let swept = collector.swept.get_or_insert(now);
        let waited = now.saturating_sub(*swept);
        let is_turn = waited >= SWEEP_EVERY;
        if waited >= SWEEP_EVERY + SWEEP_FOR {
            *swept = now;
        }
        if !(is_quiet || is_turn) || self.has_bug(SeededBug::DeletesRest) {
            self.tree.set_resting(false, false);
            return Ok(false);
        }
        self.tree.set_resting(is_quiet, is_turn);
        let ends_in_garbage = is_quiet && self.is_end_garbage();
        if ends_in_garbage {
            self.begin_session()?;
        }
        let entries = self.tree.table_entries().max(1);
        let (_, live) = self.ledger.state().total_and_live();
        let mut writer = lock(&self.writer);
        let mean_bytes = (live + writer.logged) / entries;
        let enough = (MUCH_HIDDEN / mean_bytes.max(1)).min(MANY_DELETES);
        let hides_half = is_quiet && live >= MUCH_HIDDEN && writer.entries >= entries / 2;
        let deletes_many = writer.deletes > 0 && writer.deletes >= enough;
        let is_due = deletes_many || hides_half || ends_in_garbage;
        if is_due {
            self.seal(&mut writer)?;
        }
        drop(writer);
        if is_due || self.tree.step_due() {
            self.notify_background();
        }
        Ok(is_due)
    }

    /// True if the segment in which an earlier opening left the end of the log is garbage,
    /// and enough of it: it can be dropped once the log goes on elsewhere.
    fn is_end_garbage(&self) -> bool {
        let state = self.ledger.state();
        let head = state.head;
        let Some(account) = state.segments.get(&head.segment) else {
            return false;
        };
        let (_, live) = state.total_and_live();
        self.tuning.policy != Policy::Off
            && account.live_bytes() == 0
            && account.end == head.offset
            && account.end >= LITTLE_GARBAGE.min(self.segment_target(live) / 2)
    }

    /// Begins the collection of a segment, unless a consumer came to need it.
    fn begin_run(&self, collector: &mut Collector, number: u32) -> Result<()> {
        if self.take_from_history(&[number]).is_empty() {
            return Ok(());
        }
        let account = self.ledger.state().segments.get(&number).copied();
        let (Some(account), Some(victim)) = (account, self.segment(number)) else {
            return Ok(());
        };
        if account.live_bytes() == 0 {
            return self.drop_empty(&[number]);
        }
        let position = victim.log.geometry().first_offset;
        collector.window.clear(self.tuning.window_bytes);
        self.counters.collections.fetch_add(1, Ordering::Relaxed);
        collector.run = Some(Run {
            victim,
            until: account.end,
            position,
            live_bytes: 0,
            highest_session: 0,
        });
        Ok(())
    }

    /// Drops segments that no table points into: nothing is to be read.
    fn drop_empty(&self, numbers: &[u32]) -> Result<()> {
        let numbers = self.take_from_history(numbers);
        if numbers.is_empty() {
            return Ok(());
        }
        let bytes: u64 = {
            let state = self.ledger.state();
            let accounts = numbers
                .iter()
                .filter_map(|number| state.segments.get(number));
            accounts.map(|account| account.end).sum()
        };
        let mut items: Vec<_> = numbers.iter().copied().map(NoteItem::Dropped).collect();
        items.push(NoteItem::Synced(self.ledger.synced()));
        self.tree.commit_note(&note::encode(&items))?;
        self.counters
            .freed_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        self.remove_dropped()
    }

    /// True while the tree has more to flush than writers may add to: so do collections,
    /// each of which seals a write buffer in its turn.
    fn waits_for_tree(&self) -> bool {
        let stopped = || matches!(self.tree.write_pressure(), WritePressure::Stop);
        if !stopped() {
            return false;
        }
        self.collection_waits.store(true, Ordering::SeqCst);
        // The last flush may have ended since.
        stopped()
    }

    /// Goes on with the run, by about `budget` bytes.
    fn advance(
        self: &Arc<Self>,
        collector: &mut Collector,
        budget: u64,
        work: &mut Work,
    ) -> Result<()> {
        let before = work.moved_bytes();
        let advanced = self.advance_run(collector, budget, work);
        self.environment
            .pay_for_background(work.moved_bytes() - before);
        advanced
    }

    fn advance_run(
        self: &Arc<Self>,
        collector: &mut Collector,
        budget: u64,
        work: &mut Work,
    ) -> Result<()> {
        let Some(mut run) = collector.run.take() else {
            return Ok(());
        };
        let until = run.position.saturating_add(budget.max(1)).min(run.until);
        let mut window = std::mem::take(&mut collector.window);
        if !self.read_part(&mut run, until, &mut window, work)? {
            collector.damaged.insert(run.victim.number);
            return Ok(());
        }
        let ended = run.position >= run.until;
        if ended || window.is_full(self.tuning.window_bytes) {
            self.move_live(collector, &mut run, &mut window, work)?;
        }
        collector.window = window;
        if ended {
            self.finish_run(collector, &run, work)
        } else {
            collector.run = Some(run);
            Ok(())
        }
    }

    /// Reads records up to about `until`, or until the window is full. False: there is
    /// damage.
    fn read_part(
        self: &Arc<Self>,
        run: &mut Run,
        until: u64,
        window: &mut Window,
        work: &mut Work,
    ) -> Result<bool> {
        let victim = run.victim.clone();
        // What becomes a hole from now on is not one before this is done.
        let _pin = self.pin()?;
        let ahead = until - run.position;
        if !self.tuning.direct {
            let file = victim.log.file();
            file.advise(run.position, ahead, Advice::WillNeed);
        }
        let mut scanner = victim.scan(run.position, run.until)?;
        scanner.resume_sessions(run.highest_session);
        scanner.step_over(self.ledger.holes_of(victim.number));
        let started = self.environment.clock.monotonic();
        let begin = run.position;
        while scanner.position() < until && !window.is_full(self.tuning.window_bytes) {
            let record = match scanner.next()? {
                None => {
                    run.position = run.until;
                    break;
                }
                Some(Scanned::Fault(_)) => return Ok(false),
                Some(Scanned::Record(record)) => record,
            };
            run.position = scanner.position();
            let key_bytes = record.header.auxiliary as usize;
            let value_bytes = (record.header.payload_bytes as usize).checked_sub(key_bytes);
            let (kind::PUT, Some(value_bytes)) = (record.header.kind, value_bytes) else {
                continue;
            };
            if never_pointed_to(&victim, value_bytes, self.tuning.inline_bytes) {
                continue;
            }
            let pointer = ValuePointer {
                segment: victim.number,
                offset: record.offset,
                value_bytes: value_bytes as u32,
                header_bytes: record.header.header_bytes,
            };
            let sequence = record.header.sequence.0;
            match scanner.payload_at_hand(&record) {
                Some(payload) => window.add(payload, key_bytes, sequence, pointer),
                None => window.add(&scanner.payload(&record)?, key_bytes, sequence, pointer),
            }
        }
        run.highest_session = scanner.highest_session();
        work.read += self.since(started);
        work.read_operations += 1;
        work.bytes_read += run.position - begin;
        Ok(true)
    }

    pub fn since(&self, started: Duration) -> Duration {
        let now = self.environment.clock.monotonic();
        now.saturating_sub(started)
    }

    /// Looks up which records of the window the tree leads to, moves those, and empties
    /// the window.
    fn move_live(
        self: &Arc<Self>,
        collector: &mut Collector,
        run: &mut Run,
        window: &mut Window,
        work: &mut Work,
    ) -> Result<()> {
        let started = self.environment.clock.monotonic();
        // Neighbours are found in the same blocks.
        window.sort();
        work.sort += self.since(started);
        let started = self.environment.clock.monotonic();
        let (live, seen) = self.live_values(window)?;
        run.live_bytes += live.iter().map(LiveValue::record_bytes).sum::<u64>();
        work.search += self.since(started);
        self.move_window(collector, &live, seen.as_ref(), work)?;
        window.clear(self.tuning.window_bytes);
        Ok(())
    }

    /// The values of a window that the tree leads to, in the order of their keys, and up to
    /// where the first lookup has looked.
    fn live_values<'w>(&self, window: &'w Window) -> Result<(Vec<LiveValue<'w>>, Option<Seen>)> {
        let all = self.has_bug(SeededBug::CollectionReinserts);
        let (mut live, mut first_seen) = (Vec::new(), None);
        for values in window.parts(LOOKED_UP_AT_ONCE) {
            let keys: Vec<&[u8]> = values.iter().map(|value| value.full_key).collect();
            let (lookups, seen) = self.tree.look_up_newest(&keys, || self.ledger.visible())?;
            first_seen.get_or_insert(seen);
            let leads = |value: &LiveValue<'_>, lookup: &Lookup| match lookup {
                Lookup::Found {
                    sequence,
                    value: stored,
                } => {
                    *sequence == value.sequence
                        && Stored::decode(stored) == Some(Stored::Pointer(value.pointer))
                }
                _ => false,
            };
            let found = values.iter().zip(&lookups);
            let found = found.filter(|(value, lookup)| all || leads(value, lookup));
            live.extend(found.map(|(value, _)| *value));
        }
        Ok((live, first_seen))
    }

    /// Everything live has been moved: the segment goes with the next flush.
    fn finish_run(&self, collector: &mut Collector, run: &Run, work: &mut Work) -> Result<()> {
        let number = run.victim.number;
        let started = self.environment.clock.monotonic();
        self.counters
            .freed_bytes
            .fetch_add(run.until, Ordering::Relaxed);
        cambium_io::events::compacted("wisckey", &self.path, run.live_bytes);
        collector.dropping.insert(number);
        if self.has_bug(SeededBug::SegmentRemovedEarly) {
            let dropped = note::encode(&[NoteItem::Dropped(number)]);
            self.tree.commit_note(&dropped)?;
            return self.remove_dropped();
        }
        lock(&self.writer).pending.push(NoteItem::Dropped(number));
        collector.undropped += run.until;
        let live = {
            let mut state = self.ledger.state();
            // The rest was hidden: once the segment is dropped no job tells of it.
            let counted = state.segments.get(&number).map(Account::live_bytes);
            state.garbage_told += counted.unwrap_or(0).saturating_sub(run.live_bytes);
            state.total_and_live().1
        };
        let room = live / 100 * (self.tuning.space_limit - 100);
        if collector.undropped >= room / 8 {
            self.drop_collected(collector)?;
        }
        work.flush += self.since(started);
        Ok(())
    }

    /// Has the segments that were collected go with the next flush.
    fn drop_collected(&self, collector: &mut Collector) -> Result<()> {
        collector.undropped = 0;
        self.seal(&mut lock(&self.writer))?;
        self.notify_background();
        Ok(())
    }

    /// Lets the run go, for a close; what was moved and is pointed to stays.
    pub fn abandon_collection(&self) {
        // The close meets a failure again.
        _ = self.end_run(&mut lock(&self.collection));
    }

    /// Lets the run go, and ends the moved segment; what was moved and is pointed to stays.
    pub fn end_run(&self, collector: &mut Collector) -> Result<()> {
        collector.run = None;
        collector.window = Window::default();
        let Some(output) = collector.output.take() else {
            return Ok(());
        };
        // Space that was taken ahead goes back.
        let cut = output.log.cut_back(output.log.end());
        lock(&self.writer).moved.finished(&output);
        cut.map_err(|error| self.health.poison(error))
    }

    /// Slows a writer while space is far beyond its limit.
    pub fn wait_for_space(self: &Arc<Self>) -> Result<()> {
        let pressure = self.counters.space_pressure.load(Ordering::Relaxed);
        if pressure == 0 {
            return Ok(());
        }
        if self.environment.executor.runs_tasks() {
            self.slow_down((pressure as f64 / FULL_PRESSURE as f64).min(1.0));
        } else if pressure >= FULL_PRESSURE {
            self.environment
                .wait_for_background(&|| self.health.is_closed());
            // The background reports the failure of a step.
            _ = self.collection_step(STEP_BYTES);
        }
        Ok(())
    }

    /// Collects every segment in which there is garbage, oldest first.
    pub fn collect_all(
        self: &Arc<Self>,
        work: &mut Work,
        mut report: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let victims: Vec<u32> = {
            let collector = lock(&self.collection);
            let state = self.ledger.state();
            // Its header is no garbage: another segment has one as well.
            let slack = crate::format::geometry(&self.shape, &self.tuning).first_offset;
            let head = state.head.segment;
            let segments = self.kept_segments(&collector, &state);
            let chosen = segments.filter(|&(&number, account)| {
                account.live_bytes() + slack < account.end
                    && self.may_go(&collector, head, number, account)
            });
            chosen.map(|(&number, _)| number).collect()
        };
        for (done, &number) in victims.iter().enumerate() {
            let mut collector = lock(&self.collection);
            // One that was begun in the background comes first; it may be this one.
            while collector.run.is_some() {
                self.advance(&mut collector, self.tuning.window_bytes, work)?;
            }
            if !collector.dropping.contains(&number) {
                self.begin_run(&mut collector, number)?;
            }
            while collector.run.is_some() {
                self.advance(&mut collector, self.tuning.window_bytes, work)?;
                report(done as u64, victims.len() as u64)?;
            }
        }
        Ok(())
    }
}

/// True if a value went into the tree itself: then nothing ever led to its record. Other
/// openings may have had another limit, and moved what was none of theirs.
fn never_pointed_to(segment: &Segment, value_bytes: usize, inline_bytes: usize) -> bool {
    segment.is_new && segment.kind == SegmentKind::Written && value_bytes <= inline_bytes
}
