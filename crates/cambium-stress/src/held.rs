//! Snapshots and cursors that a thread holds while it goes on writing. They must show its
//! keys as they were when it took them, however long that is ago.

use cambium::{Direction, Entries, Error, KeyRange, Snapshot};

use crate::actor::{Actor, Step, Stop, violation};
use crate::content::Version;

/// Most that a thread holds.
const MOST_HELD: usize = 6;

/// A view of the past, and what it must show.
pub struct Held {
    view: View,
    model: Vec<Option<Version>>,
    /// Steps until it is let go.
    left: u64,
}

enum View {
    Snapshot(Snapshot),
    /// A cursor over the whole store or over the thread's range, and the keys it has shown.
    Entries {
        entries: Box<Entries>,
        shown: Vec<bool>,
        /// The id that was shown last, where the order of ids is kept.
        last: Option<u32>,
        direction: Option<Direction>,
    },
}

impl Actor<'_> {
    /// Takes a snapshot or a cursor.
    pub fn hold(&mut self) -> Step {
        if self.held.len() >= MOST_HELD {
            return Ok(());
        }
        let view = match self.take_view() {
            Ok(view) => view,
            // Old versions are bounded where an option says so.
            Err(Error::SnapshotLimit { .. }) => return Ok(()),
            Err(error) => return Err(self.judge("taking a view", error)),
        };
        let left = self.random.magnitude(1, 3000);
        self.held.push(Held {
            view,
            model: self.model.clone(),
            left,
        });
        Ok(())
    }

    fn take_view(&mut self) -> Result<View, Error> {
        let store = self.store((self.thread, 0));
        if self.random.chance(40) {
            // As of one moment of all namespaces.
            return Ok(View::Snapshot(store.snapshot()?));
        }
        let ordered = self.shared.abilities.ordered && self.random.chance(70);
        let direction =
            ordered.then(|| *self.random.pick(&[Direction::Forward, Direction::Reverse]));
        let entries = match direction {
            None if self.random.chance(50) => store.snapshot()?.iterate()?,
            None => store.iterate()?,
            Some(_) => {
                let end = self.key((self.thread, self.shared.shape().keys));
                let range = KeyRange::between(&self.key((self.thread, 0)), &end);
                store.scan(range)?
            }
        };
        let shown = vec![false; self.model.len()];
        Ok(View::Entries {
            entries: Box::new(entries),
            shown,
            last: None,
            direction,
        })
    }

    /// Reads on in one of the views that are held.
    pub fn go_on_with_held(&mut self) -> Step {
        if self.held.is_empty() {
            return self.hold();
        }
        let at = self.random.below(self.held.len() as u64) as usize;
        let mut held = self.held.swap_remove(at);
        held.left -= 1;
        let is_done = match &mut held.view {
            View::Snapshot(snapshot) => self.read_snapshot(snapshot, &held.model)?,
            View::Entries {
                entries,
                shown,
                last,
                direction,
            } => self.read_entries(entries, shown, last, *direction, &held.model)?,
        };
        if !is_done && held.left > 0 {
            self.held.push(held);
        }
        Ok(())
    }

    fn read_snapshot(
        &mut self,
        snapshot: &Snapshot,
        model: &[Option<Version>],
    ) -> Result<bool, Stop> {
        for _ in 0..self.random.between(1, 8) {
            let id = self.pick();
            let value = snapshot
                .get(self.key((self.thread, id)))
                .map_err(|error| self.judge("get of a snapshot", error))?;
            self.expect(
                "get of a snapshot",
                id,
                model[id as usize],
                value.as_deref(),
            )?;
        }
        Ok(false)
    }

    fn read_entries(
        &mut self,
        entries: &mut Entries,
        shown: &mut [bool],
        last: &mut Option<u32>,
        direction: Option<Direction>,
        model: &[Option<Version>],
    ) -> Result<bool, Stop> {
        for _ in 0..self.random.magnitude(1, 60) {
            let step = direction.unwrap_or_default();
            let Some(entry) = step.advance(entries) else {
                let missed = (0..model.len()).find(|&id| model[id].is_some() && !shown[id]);
                return match missed {
                    Some(id) => violation(format!(
                        "a cursor ends and has not shown key {id}, which was there when it was made"
                    )),
                    None => Ok(true),
                };
            };
            let entry = entry.map_err(|error| self.judge("a cursor", error))?;
            let key = self.shared.shape().shown("a cursor", &entry.key);
            let (thread, id) = key.map_err(Stop::Violation)?;
            match direction {
                _ if thread == self.thread => {}
                None => continue,
                Some(_) => {
                    let what = format!("a cursor shows key {id} of thread {thread}");
                    return violation(what + ", which is out of its bounds");
                }
            }
            let in_order = match (direction, *last) {
                (Some(Direction::Forward), Some(last)) => last < id,
                (Some(Direction::Reverse), Some(last)) => last > id,
                _ => !shown[id as usize],
            };
            if !in_order {
                return violation(format!("a cursor shows key {id} again or out of order"));
            }
            self.expect("a cursor", id, model[id as usize], Some(&entry.value))?;
            shown[id as usize] = true;
            *last = Some(id);
        }
        Ok(false)
    }
}
