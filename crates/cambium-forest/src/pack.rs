//! Where a full buffer goes: into the sorted run, or into the tries.
//!
//! A flush writes each node that it changes. Where a buffer has few keys for each node of
//! the tries, it is merged into the view's sorted run ([`crate::sorted_run`]) instead,
//! which costs no write at all, and the run goes into the tries when
//! - it takes the memory of a write buffer,
//! - the buffers that it was made of took [`PACKED_TIMES`] as much, which is what
//!   recovery would need, or
//! - the writes or the log after the newest header come to their bounds.
//!
//! Where buffers are packed they are sealed when they are a quarter full, so that buffer
//! and run together take no more memory than two buffers.
//!
//! 1. **Seal** as in a flush.
//! 2. **Merge** the sealed buffer's newest versions with the run, in key order.
//! 3. **Install** a view with the new run and without the sealed buffer.
//!
//! Replay still begins where the newest header says. A merge that fails leaves the sealed
//! buffer where it is, and is tried again later.

use std::sync::Arc;
use std::time::Duration;

use cambium_base::Result;
use cambium_io::events;
use cambium_io::sync::atomic::Ordering;

use crate::buffer::Buffer;
use crate::core::{Core, Maintenance, lock};
use crate::counters::of;
use crate::flush::SealPoint;
use crate::pieces::Source;
use crate::seeded_bug::SeededBug;
use crate::sorted_run::{MadeOf, Merge, SortedRun};
use crate::view::View;

/// Of the memory of a write buffer, at most, what the buffers of a run took.
const PACKED_TIMES: u64 = 16;

/// A buffer goes straight into the tries where it has this many keys for each of their
/// nodes.
const KEYS_A_NODE: u64 = 32;

/// Where so many of a thousand bytes replace others, the log outside the tries is bounded by
/// this part of what is live.
const MOSTLY_REPLACED: u64 = 250;
const PART_LOGGED: u64 = 6;

/// A buffer with so many deleted ranges is full: lookups compare keys with each of them.
const MOST_DELETED_RANGES: u64 = 1024;

/// How long a writer that can go no further sleeps before it looks again.
const STALL: Duration = Duration::from_millis(1);

/// A buffer that will be packed is sealed at this part of its bounds.
const PARTS: u64 = 4;

impl MadeOf {
    fn of(buffer: &Buffer) -> Self {
        MadeOf {
            writes: buffer.writes(),
            bytes: buffer.bytes(),
            logged: buffer.logged(),
        }
    }
}

impl Core {
    /// Takes a full buffer out of the way, into the run or the tries.
    pub fn relieve(&self, maintenance: &mut Maintenance) -> Result<()> {
        self.carry(maintenance, false)
    }

    /// Carries everything that is buffered into the tries.
    pub fn flush_locked(&self, maintenance: &mut Maintenance) -> Result<()> {
        self.carry(maintenance, true)
    }

    fn carry(&self, maintenance: &mut Maintenance, into_tries: bool) -> Result<()> {
        self.check_sound()?;
        self.flush_due.store(false, Ordering::Release);
        let before = self.flushed_bytes();
        let outcome = self.carry_sealed(maintenance, into_tries);
        self.give_tail_back();
        self.environment
            .pay_for_background(self.flushed_bytes() - before);
        if let Err(error) = &outcome {
            self.flush_due.store(true, Ordering::Release);
            self.flush_put_off.begin(&*self.environment.clock);
            let counters = &self.counters;
            counters.failed_flushes.fetch_add(1, Ordering::Relaxed);
            *lock(&counters.last_failed_flush) = Some(error.to_string());
            events::put_off("forest", &self.path, "flush", error);
        }
        outcome
    }

    /// Bytes that flushes have written since the store was opened.
    fn flushed_bytes(&self) -> u64 {
        of(&self.counters.node_bytes) + of(&self.counters.header_bytes)
    }

    fn carry_sealed(&self, maintenance: &mut Maintenance, into_tries: bool) -> Result<()> {
        let sealed = self.seal(maintenance)?;
        let view = self.view.load_full();
        let mut into_tries = into_tries;
        if let Some((sealed, point)) = sealed {
            if sealed.deleted_ranges() > 0 {
                // A run has no ranges, so what is older goes before.
                self.flush_run(maintenance)?;
                return self.flush_source(maintenance, Source::Buffer(&sealed), point);
            }
            let besides = MadeOf::of(&sealed);
            into_tries |= !self.is_worth_packing(sealed.keys() as u64, 1)
                || self.is_run_full(&view.run, besides);
            if into_tries && view.run.is_empty() {
                return self.flush_source(maintenance, Source::Buffer(&sealed), point);
            }
            self.pack(maintenance, &view, &sealed, point)?;
        }
        if into_tries || self.is_run_full(&self.view.load().run, MadeOf::default()) {
            self.flush_run(maintenance)?;
        }
        Ok(())
    }

    /// Carries the run into the tries, if there is one.
    fn flush_run(&self, maintenance: &mut Maintenance) -> Result<()> {
        let run = self.view.load().run.clone();
        match maintenance.packed_at {
            Some(point) => self.flush_source(maintenance, Source::Run(&run), point),
            None => Ok(()),
        }
    }

    /// Merges a sealed buffer into the run.
    fn pack(
        &self,
        maintenance: &mut Maintenance,
        view: &View,
        sealed: &Buffer,
        point: SealPoint,
    ) -> Result<()> {
        let run = self.merged(view, sealed)?;
        {
            let _writer = lock(&self.writer);
            self.change_view(|view| View {
                sealed: None,
                run: Arc::new(run),
                ..view.clone()
            });
        }
        maintenance.sealed_at = None;
        maintenance.packed_at = Some(point);
        self.counters.packs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn merged(&self, view: &View, sealed: &Buffer) -> Result<SortedRun> {
        let keys = self.keys(&view.database);
        let source = Source::Buffer(sealed);
        let mut namespaces: Vec<u16> = view.run.namespaces().collect();
        namespaces.extend(source.namespaces());
        namespaces.sort_unstable();
        namespaces.dedup();
        let mut merge = Merge::new(&view.run, MadeOf::of(sealed));
        for namespace in namespaces {
            if !view.names.has(namespace) {
                continue;
            }
            let mut part = merge.part(namespace);
            let mut pieces = source.pieces(namespace, self.tuning.flush_bytes);
            loop {
                let mut piece = pieces.next(&keys)?;
                if piece.is_empty() {
                    break;
                }
                if self.has_bug(SeededBug::PackLosesRemovals) {
                    piece.retain(|(_, document)| document.is_some());
                }
                part.apply(piece, |unclear| keys.of(unclear))?;
            }
            merge.take(part);
        }
        Ok(merge.finish())
    }

    /// True where so many keys, times a factor, are few for the tries.
    fn is_worth_packing(&self, keys: u64, times: u64) -> bool {
        let nodes = self.nodes_of_tries.load(Ordering::Relaxed);
        keys.saturating_mul(times) < nodes.saturating_mul(KEYS_A_NODE)
    }

    /// True if a run, with what else a buffer has, has come to a bound.
    fn is_run_full(&self, run: &SortedRun, besides: MadeOf) -> bool {
        let tuning = &self.tuning;
        let most_bytes = tuning.write_buffer_bytes.saturating_mul(PACKED_TIMES);
        run.bytes() >= tuning.write_buffer_bytes
            || run.made_of.bytes + besides.bytes >= most_bytes
            || run.made_of.writes + besides.writes >= tuning.write_buffer_entries
            || run.made_of.logged + besides.logged >= self.most_logged()
    }

    /// The active buffer is full: wakes the background, or does the work here
    /// where there is none.
    pub fn on_flush_due(&self) {
        if self.environment.executor.runs_tasks() {
            self.notify_background();
            return;
        }
        self.environment
            .wait_for_background(&|| self.health.is_closed());
        // What fails here has poisoned the store or will be tried again; the
        // write itself has succeeded.
        let mut maintenance = lock(&self.maintenance);
        if !self.health.is_closed() {
            _ = self.relieve(&mut maintenance);
        }
    }

    /// Both buffers are full: a writer waits until the background has relieved it; where
    /// there is none, or it has failed, the writer does the work itself.
    pub fn hold_back(&self) -> Result<()> {
        if !self.is_overfull() {
            return Ok(());
        }
        self.environment
            .wait_for_background(&|| self.health.is_closed());
        self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        events::stalled("forest", &self.path);
        let clock = &*self.environment.clock;
        while self.environment.executor.runs_tasks() && !self.flush_put_off.lasts(clock) {
            self.health.check_open()?;
            // After a failure that stops all writes nobody relieves it.
            self.check_sound()?;
            if !self.is_overfull() {
                return Ok(());
            }
            self.flush_due.store(true, Ordering::Release);
            self.notify_background();
            clock.sleep(STALL);
        }
        let mut maintenance = lock(&self.maintenance);
        self.health.check_open()?;
        match self.is_overfull() {
            true => self.relieve(&mut maintenance),
            false => Ok(()),
        }
    }

    fn is_overfull(&self) -> bool {
        self.has_come_to(&self.view.load().active, 2 * PARTS)
    }

    /// How full the active buffer is, in thousandths of what it may hold while another one
    /// is being carried.
    pub fn fullness(&self) -> u64 {
        let bounds = self.bounds_of(&self.view.load().active);
        let of = |(has, bound): (u64, u64)| has.saturating_mul(500) / bound.max(1);
        bounds.map(of).into_iter().max().unwrap_or(0)
    }

    /// True if a buffer is to be taken out of the way.
    pub fn is_full(&self, buffer: &Buffer) -> bool {
        self.has_come_to(buffer, PARTS)
            || self.has_come_to(buffer, 1) && self.is_worth_packing(buffer.keys() as u64, PARTS)
    }

    /// True if a buffer has come to so many parts of a bound. Writes are counted that
    /// later ones have replaced too: they are in the log, which recovery reads.
    fn has_come_to(&self, buffer: &Buffer, parts: u64) -> bool {
        let of = |bound: u64| (bound.saturating_mul(parts) / PARTS).max(1);
        let mut bounds = self.bounds_of(buffer).into_iter();
        bounds.any(|(has, bound)| has >= of(bound))
    }

    /// Writes, bytes of memory and bytes of log that a buffer has, each with its bound.
    fn bounds_of(&self, buffer: &Buffer) -> [(u64, u64); 4] {
        let tuning = &self.tuning;
        [
            (buffer.writes(), tuning.write_buffer_entries),
            (buffer.bytes(), tuning.write_buffer_bytes),
            (buffer.logged(), self.most_logged()),
            (buffer.deleted_ranges(), MOST_DELETED_RANGES),
        ]
    }

    /// Bytes of the log that may lie outside the tries. Where writes replace documents, the
    /// log has stale ones that no cleaning finds before a flush: then it is a part of what
    /// is live.
    fn most_logged(&self) -> u64 {
        let most = self.tuning.write_buffer_log_bytes;
        let compaction = &self.tuning.compaction;
        let replaced = self.pressure.replaced.load(Ordering::Relaxed);
        if !compaction.cleaning || compaction.threshold >= 100 || replaced < MOSTLY_REPLACED {
            return most;
        }
        let live = self.bytes_of_tries.load(Ordering::Relaxed);
        most.min((live / PART_LOGGED).max(compaction.least_bytes))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot go on has failed

    use std::path::Path;

    use cambium_api::{Operation, OptionValues};
    use cambium_base::Durability;
    use cambium_io::Environment;
    use cambium_storage::creation::Making;

    use super::*;
    use crate::write::WriteRequest;

    fn put(core: &Arc<Core>, namespace: u16, numbers: std::ops::Range<u32>) {
        let put = |number: u32| {
            let (key, value) = (number.to_be_bytes().to_vec(), vec![1; 40]);
            (namespace, Operation::Put { key, value })
        };
        let request = WriteRequest::new(numbers.map(put).collect(), Durability::Written);
        core.write_request(request).unwrap();
    }

    /// Where replay begins after each of three flushes; the first packs nothing but the
    /// keys of a namespace that was dropped.
    fn places_of_replay(bug: Option<&str>) -> Vec<(u64, u64)> {
        let mut options = OptionValues::from([("node_bytes", "512"), ("block_bytes", "512")]);
        bug.into_iter()
            .for_each(|bug| _ = options.set("seeded_bug", bug));
        let making = crate::open::make(&Environment::memory(), Path::new("/s"), &options);
        let core = making.and_then(Making::conclude).unwrap();
        put(&core, 0, 0..1_000);
        core.flush().unwrap();
        let namespace = core.namespace_number("short").unwrap();
        put(&core, namespace, 0..3);
        core.drop_namespace("short").unwrap();
        let mut maintenance = lock(&core.maintenance);
        let mut places = Vec::new();
        let mut note = |maintenance: &Maintenance| {
            places.push((maintenance.header.sequence, maintenance.header.replay_from));
        };
        core.relieve(&mut maintenance).unwrap();
        let view = core.view.load_full();
        assert!(
            view.run.is_empty() && view.sealed.is_none(),
            "it was packed"
        );
        note(&maintenance);
        drop(maintenance);
        put(&core, 0, 0..30_000);
        let mut maintenance = lock(&core.maintenance);
        core.relieve(&mut maintenance).unwrap();
        note(&maintenance);
        core.flush_locked(&mut maintenance).unwrap();
        note(&maintenance);
        places
    }

    #[test]
    fn replay_never_begins_earlier_than_before() {
        let places = places_of_replay(None);
        assert!(places.is_sorted(), "{places:?}");
        assert!(
            places[0] < places[1],
            "the second flush went into the tries"
        );
        let places = places_of_replay(Some("packed_place_kept"));
        assert!(!places.is_sorted(), "the seeded bug would not be found");
    }
}
