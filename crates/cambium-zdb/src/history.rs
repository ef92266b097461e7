//! Old positions: what snapshots and cursors need.
//!
//! A slot holds the newest position only. While a snapshot is open, a writer
//! that changes a slot keeps where it pointed before, with the sequence number
//! that replaced it. The version at sequence V is then: the first kept one
//! that was replaced after V, or the slot's own.
//!
//! The table is bounded by an option. Past it writers are refused, readers
//! never get a wrong answer.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::table::Location;
use cambium_io::sync::atomic::{AtomicU64, Ordering};
use cambium_io::sync::{Mutex, MutexGuard, lock};

/// Old versions of keys, and the snapshots that need them.
#[derive(Debug, Default)]
pub(crate) struct History {
    state: Mutex<State>,
    /// How many versions are kept; readers look here before they lock.
    held: AtomicU64,
    /// How many snapshots and cursors are open; writers look here.
    open: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// By key, each key's in the order of their replacement.
    versions: Versions,
    /// Sequence number and key of every replacement in `versions`, in order: the
    /// first ones are the first that no snapshot needs.
    replaced: VecDeque<(u64, u64)>,
    /// Open snapshots by sequence number, with how many share it.
    snapshots: BTreeMap<u64, u64>,
}

type Versions = HashMap<u64, VecDeque<OldVersion>, foldhash::fast::FixedState>;

#[derive(Clone, Debug)]
struct OldVersion {
    /// The sequence number of the entry that replaced it.
    replaced_at: u64,
    /// Where it lies; `None` if the key had no entry.
    location: Option<Location>,
}

impl History {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// How many old versions are kept.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    /// How many snapshots and cursors are open.
    pub fn open_snapshots(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Registers a snapshot. The caller holds the lock under which writers
    /// apply, so that no change falls between.
    pub fn open_snapshot(&self, sequence: u64) {
        let mut state = self.state();
        *state.snapshots.entry(sequence).or_insert(0) += 1;
        self.open.fetch_add(1, Ordering::AcqRel);
    }

    /// Lets a snapshot go, with the versions that only it needed.
    pub fn close_snapshot(&self, sequence: u64) {
        let mut state = self.state();
        let Some(count) = state.snapshots.get_mut(&sequence) else {
            return;
        };
        *count -= 1;
        self.open.fetch_sub(1, Ordering::AcqRel);
        if *count > 0 {
            return;
        }
        state.snapshots.remove(&sequence);
        let given_up = self.prune(&mut state);
        // Many versions take a while to free, and writers need the lock.
        drop(state);
        drop(given_up);
    }

    /// Takes out what no snapshot needs. Each version is taken out once; nothing
    /// is looked at that stays, since this runs at the end of every `multi_get`.
    fn prune(&self, state: &mut State) -> Versions {
        let mut given_up = Versions::default();
        match state.snapshots.first_key_value().map(|(&oldest, _)| oldest) {
            None => {
                state.replaced = VecDeque::new();
                std::mem::swap(&mut given_up, &mut state.versions);
            }
            Some(oldest) => {
                while let Some(&(replaced_at, key)) = state.replaced.front() {
                    if replaced_at > oldest {
                        break;
                    }
                    state.replaced.pop_front();
                    if let Some(versions) = state.versions.get_mut(&key) {
                        versions.pop_front();
                        if versions.is_empty() {
                            state.versions.remove(&key);
                        }
                    }
                }
            }
        }
        self.held
            .store(state.replaced.len() as u64, Ordering::Release);
        given_up
    }

    /// Keeps the version of `key` that the entry `replaced_at` is about to replace.
    pub fn keep(&self, key: u64, replaced_at: u64, location: Option<Location>) {
        let mut state = self.state();
        let version = OldVersion {
            replaced_at,
            location,
        };
        state.versions.entry(key).or_default().push_back(version);
        state.replaced.push_back((replaced_at, key));
        self.held.fetch_add(1, Ordering::Release);
    }

    /// The version of `key` at sequence `at`, if it was replaced since:
    /// `Some(None)` if the key had no entry then.
    pub fn version_at(&self, key: u64, at: u64) -> Option<Option<Location>> {
        if self.held() == 0 {
            return None;
        }
        let state = self.state();
        let versions = state.versions.get(&key)?;
        let first = versions.partition_point(|version| version.replaced_at <= at);
        Some(versions.get(first)?.location.clone())
    }

    /// Keys of old versions from `first` to `last`, sorted: a snapshot may see
    /// entries whose slots say deleted by now.
    pub fn keys_between(&self, first: u64, last: u64) -> Vec<u64> {
        if self.held() == 0 {
            return Vec::new();
        }
        let state = self.state();
        let keys = state.versions.keys().copied();
        let mut keys: Vec<u64> = keys.filter(|key| (first..=last).contains(key)).collect();
        keys.sort_unstable();
        keys
    }
}
