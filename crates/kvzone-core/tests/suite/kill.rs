//! What was acknowledged held against what is there after a kill, with stores that
//! keep all, and with stores that do not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cambium_base::Durability;
use kvzone_core::adapter::{
    Adapter, Capabilities, Change, DurabilityName, OpenRequest, OpenStore, Session, one_by_one,
};
use kvzone_core::driver::{PhaseResult, run_job};
use kvzone_core::error::{Error, Result};
use kvzone_core::job::{After, Job, Load, SizeChoice, Until};
use kvzone_core::record::Phase;

/// What becomes of entries when the store is opened again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Memory {
    KeepsAll,
    /// Every tenth key is as it was when the load had ended.
    KeepsOlder,
    /// Every tenth key is not there.
    Loses,
    /// What was deleted is there again.
    BringsBack,
    /// A byte of one value is another.
    Damages,
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Default)]
struct State {
    entries: Entries,
    /// Of the first sync, which ends the load.
    loaded: Option<Entries>,
    deleted: Entries,
    opened: u32,
}

#[derive(Clone)]
struct Store {
    memory: Memory,
    state: Arc<Mutex<State>>,
}

impl Store {
    fn of(memory: Memory) -> Store {
        let state = Arc::default();
        Store { memory, state }
    }

    fn wake(&self, state: &mut State) {
        let loaded = state.loaded.clone().unwrap_or_default();
        let tenth: Vec<Vec<u8>> = state.entries.keys().step_by(10).cloned().collect();
        match self.memory {
            Memory::KeepsAll => {}
            Memory::KeepsOlder => {
                for key in tenth {
                    let older = loaded.get(&key).cloned().unwrap();
                    state.entries.insert(key, older);
                }
            }
            Memory::Loses => state.entries.retain(|key, _| !tenth.contains(key)),
            Memory::BringsBack => {
                let back = std::mem::take(&mut state.deleted);
                state.entries.extend(back);
            }
            Memory::Damages => {
                *state
                    .entries
                    .values_mut()
                    .next()
                    .unwrap()
                    .last_mut()
                    .unwrap() ^= 1
            }
        }
    }
}

impl Adapter for Store {
    fn name(&self) -> &'static str {
        "forgetful"
    }

    fn summary(&self) -> &'static str {
        "forgets in one way"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            atomic_batches: true,
            concurrent_writers: true,
            durabilities: &[Durability::Buffered, Durability::Synced],
            persistent: true,
            ..Capabilities::BARE
        }
    }

    fn open(&self, _: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        let mut state = self.state.lock().unwrap();
        state.opened += 1;
        if state.opened == 2 {
            self.wake(&mut state);
        }
        drop(state);
        Ok(Arc::new(self.clone()))
    }
}

impl OpenStore for Store {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new((*self).clone()))
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.loaded.is_none() {
            state.loaded = Some(state.entries.clone());
        }
        Ok(())
    }

    fn close(self: Arc<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for Store {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let state = self.state.lock().unwrap();
        let found = state.entries.get(key);
        value.extend_from_slice(found.map_or(&[], Vec::as_slice));
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.deleted.remove(key);
        state.entries.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        if let Some(value) = state.entries.remove(key) {
            state.deleted.insert(key.to_vec(), value);
        }
        Ok(())
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        one_by_one(self, changes)
    }
}

/// Both halves of a job with a kill between them, in this process: its writes end, and
/// the store is opened a second time.
fn after_kill(memory: Memory, change: impl Fn(&mut Job)) -> PhaseResult {
    let folder = tempfile::tempdir().unwrap();
    let load = Load {
        workload: "overwrite".to_string(),
        keys: 500,
        value_bytes: SizeChoice::Uniform(30, 90),
        until: Until::Operations(2_000),
        ..Load::default()
    };
    let mut job = Job {
        durability: DurabilityName::Synced,
        reopen: Some(After::Kill),
        ..Job::new("forgetful", folder.path(), load)
    };
    change(&mut job);
    let store = Store::of(memory);
    let before = run_job(&store, &job, &()).unwrap();
    assert!(before.iter().all(|phase| phase.failure.is_none()));
    assert!(before.iter().all(|phase| phase.phase != Phase::Reopen));
    job.after_kill = true;
    let mut after = run_job(&store, &job, &()).unwrap();
    assert_eq!(after.len(), 1);
    after.remove(0)
}

fn number(result: &PhaseResult, name: &str) -> u64 {
    result.extra["after_kill"][name].as_u64().unwrap()
}

fn words(result: &PhaseResult) -> String {
    match &result.failure {
        Some(Error::WrongData { what, .. }) => what.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_that_keeps_what_it_acknowledged_is_in_order() {
    for (workload, threads, batch) in [
        ("overwrite", 1, 1),
        ("fill-random", 2, 1),
        ("overwrite", 3, 20),
        ("churn-read", 2, 1),
    ] {
        let result = after_kill(Memory::KeepsAll, |job| {
            job.load.workload = workload.to_string();
            (job.load.threads, job.load.batch) = (threads, batch);
        });
        assert!(result.failure.is_none(), "{workload}: {:?}", result.failure);
        assert_eq!((result.phase, result.operations), (Phase::Reopen, 1));
        assert!(number(&result, "acknowledged") >= 500, "{workload}");
        assert_eq!(number(&result, "survived"), number(&result, "acknowledged"));
        assert_eq!(number(&result, "lost") + number(&result, "damaged"), 0);
    }
    let inserted = after_kill(Memory::KeepsAll, |job| {
        job.load.workload = "ycsb-d".to_string();
    });
    assert!(number(&inserted, "acknowledged") > 550, "inserts count");
}

#[test]
fn keys_inserted_and_deleted_again_must_stay_away() {
    let result = after_kill(Memory::BringsBack, |job| {
        job.load.workload = "churn".to_string();
        job.load.lifetime = Some(SizeChoice::Uniform(5, 50));
    });
    assert!(words(&result).contains("as it was deleted"), "{result:?}");
}

#[test]
fn what_was_acknowledged_and_is_not_there_is_a_loss() {
    for memory in [Memory::Loses, Memory::KeepsOlder] {
        let result = after_kill(memory, |_| {});
        let lost = number(&result, "lost");
        assert!((20..=50).contains(&lost), "{memory:?}: {lost} of 500");
        assert_eq!(number(&result, "damaged"), 0);
        let words = words(&result);
        assert!(
            words.contains("acknowledged as synced were lost"),
            "{words}"
        );
        let came = match memory {
            Memory::Loses => "came nothing",
            _ => "whole, of key number",
        };
        assert!(words.contains(came), "{words}");
    }
}

#[test]
fn what_was_only_buffered_may_be_lost_and_is_counted() {
    let buffered = |job: &mut Job| job.durability = DurabilityName::Buffered;
    for memory in [Memory::Loses, Memory::KeepsOlder] {
        let result = after_kill(memory, buffered);
        assert!(result.failure.is_none(), "{:?}", result.failure);
        assert!(number(&result, "lost") > 0);
    }
    let damaged = after_kill(Memory::Damages, buffered);
    assert_eq!(number(&damaged, "damaged"), 1);
    assert!(words(&damaged).contains("1 keys held what nobody wrote"));
}
