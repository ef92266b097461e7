//! Named snapshots that are made while a compaction runs.
//!
//! A snapshot is the state at a place of the old log. The new file passes through that
//! very state while it catches up, and is append-only as well: so catching up **stops**
//! at the place, notes the roots that the new index has there, and goes on. Nothing is
//! copied for it, and no snapshot makes a compaction begin anew.
//!
//! ```text
//! old log  ──┬───────────────┬──────────────▶
//!            hold            stop
//! ```
//!
//! Where that place is, is known when the snapshot's flush has ended; until then catching
//! up is **held** where the log ended when the snapshot was begun. Both happen under the
//! maintenance lock, which begin and switch of a compaction take too.

use std::collections::{BTreeMap, VecDeque};

use cambium_base::Result;
use cambium_io::sync::Mutex;

use super::Compaction;
use crate::core::{Core, Maintenance, lock};
use crate::format::{NamedSnapshot, NamespaceRoot};
use crate::seeded_bug::SeededBug;

/// A place in the old log.
#[derive(Debug)]
struct Stop {
    position: u64,
    /// The last write that the snapshot sees.
    sequence: u64,
    /// Namespaces that were there: one that is dropped since is carried over up to here.
    namespaces: Vec<u16>,
}

#[derive(Debug, Default)]
struct Places {
    hold: Option<Stop>,
    stops: VecDeque<Stop>,
}

/// What a compaction that runs has to know of them; `None` while none runs.
#[derive(Debug, Default)]
pub(crate) struct Meanwhile(Mutex<Option<Places>>);

/// The roots that the new file had at a stop.
#[derive(Debug)]
pub(super) struct Passed {
    sequence: u64,
    roots: BTreeMap<u16, NamespaceRoot>,
}

/// Lets a compaction go on when the snapshot that it is held for is made, or failed.
#[derive(Debug)]
pub(crate) struct Hold<'a>(&'a Meanwhile);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if let Some(places) = &mut *lock(&self.0.0) {
            places.hold = None;
        }
    }
}

impl Meanwhile {
    /// A compaction begins, or none runs any more.
    pub(super) fn set_running(&self, runs: bool) {
        *lock(&self.0) = runs.then(Places::default);
    }

    /// Catching up goes no further than to `position`, where the log ends: a snapshot is
    /// being made. To be called under the locks of maintenance and of writers.
    pub fn hold(&self, position: u64, namespaces: Vec<u16>) -> Hold<'_> {
        if let Some(places) = &mut *lock(&self.0) {
            places.hold = Some(Stop {
                position,
                sequence: 0,
                namespaces,
            });
        }
        Hold(self)
    }

    /// The snapshot that is made sees every write up to `sequence`; after `position`
    /// lies the first that it does not see, if any does.
    pub fn stop(&self, hold: Hold<'_>, snapshot: &NamedSnapshot, position: u64) {
        if let Some(places) = &mut *lock(&self.0) {
            if let Some(held) = places.hold.take() {
                let namespaces = snapshot.namespaces.iter().map(|(number, _)| *number);
                places.stops.push_back(Stop {
                    // Where nothing was written before the flush there was none.
                    position: position.max(held.position),
                    sequence: snapshot.sequence,
                    namespaces: namespaces.collect(),
                });
            }
        }
        drop(hold);
    }

    /// How far one may catch up whose log ends at `end`.
    fn limit(&self, end: u64) -> u64 {
        let places = lock(&self.0);
        let held = places.as_ref().and_then(|places| places.hold.as_ref());
        let stop = places.as_ref().and_then(|places| places.stops.front());
        let positions = held.into_iter().chain(stop).map(|stop| stop.position);
        positions.fold(end, u64::min)
    }

    /// True while a snapshot is being made that begins at or before `position`.
    fn is_held_at(&self, position: u64) -> bool {
        let places = lock(&self.0);
        let held = places.as_ref().and_then(|places| places.hold.as_ref());
        held.is_some_and(|held| held.position <= position)
    }

    /// True if a snapshot sees a namespace of which something may be caught up with.
    pub(super) fn keeps(&self, namespace: u16) -> bool {
        let places = lock(&self.0);
        places.as_ref().is_some_and(|places| {
            let mut all = places.hold.iter().chain(&places.stops);
            all.any(|stop| stop.namespaces.contains(&namespace))
        })
    }

    fn take_at(&self, position: u64) -> Option<u64> {
        let mut places = lock(&self.0);
        let stops = &mut places.as_mut()?.stops;
        if stops.front()?.position > position {
            return None;
        }
        stops.pop_front().map(|stop| stop.sequence)
    }
}

impl Core {
    /// How far a compaction may catch up now whose log ends at `end`, stops at which it
    /// is passed.
    pub(super) fn pass_stops(&self, compaction: &mut Compaction, end: u64) -> Result<u64> {
        if self.has_bug(SeededBug::CompactionPassesSnapshot) {
            while let Some(sequence) = self.meanwhile.take_at(u64::MAX) {
                self.note_stop(compaction, sequence)?;
            }
        }
        while let Some(sequence) = self.meanwhile.take_at(compaction.caught_up) {
            self.note_stop(compaction, sequence)?;
        }
        Ok(self.meanwhile.limit(end))
    }

    fn note_stop(&self, compaction: &mut Compaction, sequence: u64) -> Result<()> {
        self.apply_pending(compaction)?;
        compaction.passed.push(Passed {
            sequence,
            roots: compaction.roots.clone(),
        });
        Ok(())
    }

    /// True while a compaction can do nothing until a snapshot is made.
    pub(super) fn is_held(&self, compaction: &Compaction) -> bool {
        compaction.copying.is_none() && self.meanwhile.is_held_at(compaction.caught_up)
    }

    /// The named snapshots that there are now, as the new file has them. Those that were
    /// dropped meanwhile are left out.
    pub(super) fn carried_snapshots(
        &self,
        maintenance: &Maintenance,
        compaction: &mut Compaction,
    ) -> Result<Vec<NamedSnapshot>> {
        let carried = std::mem::take(&mut compaction.snapshots);
        let wanted = &maintenance.header.snapshots;
        let same = |one: &NamedSnapshot, other: &NamedSnapshot| {
            (&one.name, one.sequence) == (&other.name, other.sequence)
        };
        let is_wanted = |kept| wanted.iter().any(|one| same(one, kept));
        if !carried.iter().all(is_wanted) {
            // What only those kept that are left is not known.
            compaction.kept = 0;
        }
        let find = |one: &NamedSnapshot| {
            // One that was dropped and made again may lack a namespace by now.
            let kept = carried.iter().find(|kept| same(one, kept));
            let kept = kept.map(|kept| kept.namespaces.iter().copied().collect());
            let roots: BTreeMap<u16, NamespaceRoot> = match kept {
                Some(roots) => roots,
                None => {
                    let mut passed = compaction.passed.iter();
                    let passed = passed.find(|passed| passed.sequence == one.sequence)?;
                    passed.roots.clone()
                }
            };
            let root = |&(number, _): &(u16, NamespaceRoot)| {
                let root = roots.get(&number);
                (number, root.copied().unwrap_or_default())
            };
            Some(NamedSnapshot {
                name: one.name.clone(),
                sequence: one.sequence,
                namespaces: one.namespaces.iter().map(root).collect(),
            })
        };
        let lacking = |one: &NamedSnapshot| {
            let from = &compaction.source.view.database;
            let what = format!("a compaction lacks the named snapshot {:?}", one.name);
            from.damage(0, what)
        };
        let all = wanted.iter();
        all.map(|one| find(one).ok_or_else(|| lacking(one)))
            .collect()
    }
}
