//! Requests in flight: as many as asked for, answered in any order, looked at in theirs.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvzone_core::adapter::{
    Adapter, Capabilities, Change, Done, DurabilityName, OpenRequest, OpenStore, Queue, Request,
    Session,
};
use kvzone_core::calibration::Memory;
use kvzone_core::driver::{PhaseResult, run_job};
use kvzone_core::error::{Error, Result};
use kvzone_core::job::{Job, Load, Until};

/// A map whose requests wait until as many have gathered as should be in flight; then
/// they are answered, the last first.
struct Gathering {
    depth: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The most that waited at once.
    most: usize,
    /// Requests that fail.
    failing: bool,
}

type Held = (Done, Result<Option<Vec<u8>>>);

impl Gathering {
    fn new(depth: usize, failing: bool) -> Gathering {
        let state = State {
            failing,
            ..State::default()
        };
        Gathering {
            depth,
            state: Arc::new(Mutex::new(state)),
        }
    }
}

impl Adapter for Gathering {
    fn name(&self) -> &'static str {
        "gathering"
    }

    fn summary(&self) -> &'static str {
        "answers requests together"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durabilities: &[DurabilityName::Written],
            ..Capabilities::BARE
        }
    }

    fn open(&self, _: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        Ok(Arc::new(Open {
            depth: self.depth,
            state: self.state.clone(),
        }))
    }
}

struct Open {
    depth: usize,
    state: Arc<Mutex<State>>,
}

impl OpenStore for Open {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(OneThread(self.state.clone())))
    }

    fn queue(self: Arc<Self>) -> Result<Option<Box<dyn Queue>>> {
        let (sender, requests) = channel::<Held>();
        let (depth, state) = (self.depth, self.state.clone());
        std::thread::spawn(move || {
            let mut held: Vec<Held> = Vec::new();
            loop {
                // The last few never make a whole group: their time ends it.
                let next = requests.recv_timeout(Duration::from_millis(50));
                match &next {
                    Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                let is_late = next.is_err();
                held.extend(next);
                let mut all = state.lock().unwrap();
                all.most = all.most.max(held.len());
                drop(all);
                if held.len() >= depth || is_late {
                    for (done, outcome) in held.drain(..).rev() {
                        done(
                            outcome.as_ref().map(Option::as_deref).map_err(Clone::clone),
                            None,
                        );
                    }
                }
            }
        });
        let state = self.state.clone();
        Ok(Some(Box::new(Requests { state, sender })))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Arc<Self>) -> Result<()> {
        Ok(())
    }
}

struct Requests {
    state: Arc<Mutex<State>>,
    sender: Sender<Held>,
}

impl Queue for Requests {
    fn submit(&mut self, request: Request<'_>, done: Done) {
        let mut state = self.state.lock().unwrap();
        let outcome = match request {
            _ if state.failing => Err(Error::store("gathering", "submit", "no more")),
            Request::Get { key } => Ok(state.entries.get(key).cloned()),
            Request::Put { key, value } => {
                state.entries.insert(key.to_vec(), value.to_vec());
                Ok(None)
            }
            Request::Delete { key } => {
                state.entries.remove(key);
                Ok(None)
            }
        };
        self.sender.send((done, outcome)).unwrap();
    }
}

struct OneThread(Arc<Mutex<State>>);

impl Session for OneThread {
    fn get(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<bool> {
        panic!("reads go through the queue")
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut state = self.0.lock().unwrap();
        state.entries.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, _: &[u8]) -> Result<()> {
        panic!("deletions go through the queue")
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        for change in changes {
            if let Change::Put { key, value } = change {
                self.put(key, value)?;
            }
        }
        Ok(())
    }
}

fn run(adapter: &dyn Adapter, load: Load) -> Result<PhaseResult> {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::new(adapter.name(), folder.path(), load);
    Ok(run_job(adapter, &job, &())?.pop().unwrap())
}

fn load(workload: &str, queue: Option<u32>) -> Load {
    Load {
        queue,
        ..crate::load(workload)
    }
}

#[test]
fn as_many_are_in_flight_as_asked_for_and_answers_are_those_of_calls() {
    for (workload, depth) in [("read-random", 16), ("ycsb-b", 4), ("churn-read", 8)] {
        let store = Gathering::new(depth, false);
        let found = run(&store, load(workload, Some(depth as u32))).unwrap();
        assert!(found.failure.is_none(), "{workload}: {:?}", found.failure);
        assert_eq!(found.operations, 4_000);
        assert_eq!(found.extra["in_flight"], depth);
        let called = run(&Memory, load(workload, None)).unwrap();
        assert_eq!(found.result_hash, called.result_hash, "{workload}");
        assert!(found.result_hash.is_some());
        assert_eq!(found.user_bytes_written, called.user_bytes_written);
        assert_eq!(found.user_bytes_read, called.user_bytes_read);
        assert_eq!(found.live_user_bytes, called.live_user_bytes);
        let most = store.state.lock().unwrap().most;
        assert!(most <= depth, "{most} of {depth}");
        // A key that is written twice waits; reads alone do not.
        if workload == "read-random" {
            assert_eq!(most, depth);
        }
    }
}

/// A map whose every call takes a while, and whose deletions panic.
struct Slow;

const SLOW: Duration = Duration::from_millis(1);

impl Adapter for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn summary(&self) -> &'static str {
        "takes its time"
    }

    fn capabilities(&self) -> Capabilities {
        Memory.capabilities()
    }

    fn open(&self, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        Ok(Arc::new(OpenSlow(Memory.open(request)?)))
    }
}

struct OpenSlow(Arc<dyn OpenStore>);

impl OpenStore for OpenSlow {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(SlowSession(self.0.clone().session()?)))
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn close(self: Arc<Self>) -> Result<()> {
        Ok(())
    }
}

struct SlowSession(Box<dyn Session>);

impl Session for SlowSession {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        std::thread::sleep(SLOW);
        self.0.get(key, value)
    }

    fn delete(&mut self, _: &[u8]) -> Result<()> {
        panic!("no deletions")
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        self.0.write(changes)
    }
}

#[test]
fn workers_call_a_store_without_a_queue_and_answers_are_those_of_calls() {
    for (workload, threads, workers) in [
        ("ycsb-b", 1, None),
        ("churn-read", 1, Some(1)),
        ("ycsb-d", 1, Some(7)),
        ("read-random", 3, Some(2)),
    ] {
        let load = |queue, workers| Load {
            threads,
            workers,
            ..load(workload, queue)
        };
        let found = run(&Memory, load(Some(16), workers)).unwrap();
        assert!(found.failure.is_none(), "{workload}: {:?}", found.failure);
        assert_eq!(found.extra["workers"], workers.unwrap_or(4));
        let called = run(&Memory, load(None, None)).unwrap();
        assert!(found.result_hash.is_some(), "{workload}");
        assert_eq!(found.result_hash, called.result_hash, "{workload}");
        assert_eq!(found.operations, called.operations);
        assert_eq!(found.live_user_bytes, called.live_user_bytes);
    }
}

#[test]
fn the_time_in_a_workers_queue_is_queueing_and_not_the_stores() {
    let load = Load {
        keys: 100,
        until: Until::Operations(60),
        workers: Some(1),
        ..load("read-random", Some(20))
    };
    let found = run(&Slow, load.clone()).unwrap();
    let (whole, native) = (found.latency.unwrap(), found.native_latency.unwrap());
    assert!(native.p50 as u128 >= SLOW.as_nanos(), "{native:?}");
    // With twenty in flight a request waits for nineteen before it.
    assert!(whole.p50 > 4 * native.p50, "{whole:?} {native:?}");
    // Four of them are served at once.
    let four = run(
        &Slow,
        Load {
            workers: None,
            ..load.clone()
        },
    )
    .unwrap();
    assert!(
        four.seconds < found.seconds,
        "{} {}",
        four.seconds,
        found.seconds
    );
    // Arrivals by Poisson go through the same queues.
    let poisson = Load {
        rate: Some(500.0),
        poisson: true,
        ..load
    };
    let found = run(&Slow, poisson).unwrap();
    assert!(
        found.failure.is_none() && found.operations == 60,
        "{found:?}"
    );
    assert!(found.latency.unwrap().max > found.native_latency.unwrap().max);
}

#[test]
fn a_panic_of_a_store_in_a_worker_ends_the_phase() {
    let found = run(&Slow, load("churn-read", Some(4))).unwrap();
    let failure = found.failure.unwrap().to_string();
    assert!(failure.contains("panicked"), "{failure}");
}

#[test]
fn an_open_loop_keeps_what_waits_apart_from_what_the_store_takes() {
    let store = Gathering::new(8, false);
    let load = Load {
        until: Until::Operations(200),
        rate: Some(20_000.0),
        ..load("read-random", Some(8))
    };
    let found = run(&store, load).unwrap();
    assert_eq!(found.operations, 200);
    let native = found.native_latency.unwrap();
    let whole = found.latency.unwrap();
    assert!(whole.mean >= native.mean, "{whole:?} {native:?}");
    assert!(found.extra.contains_key("queueing_latency_ns"));
}

#[test]
fn an_error_of_a_completion_ends_the_phase() {
    let failing = Gathering::new(4, true);
    let found = run(&failing, load("ycsb-a", Some(4))).unwrap();
    assert!(found.failure.unwrap().to_string().contains("no more"));
}

#[test]
fn what_cannot_be_in_flight_is_refused() {
    let workers = Load {
        workers: Some(2),
        ..load("read-random", None)
    };
    assert!(run(&Memory, workers).is_err(), "workers without a queue");
    for (workload, queue) in [
        ("ycsb-e", 4),
        ("ycsb-f", 4),
        ("ycsb-a", 0),
        ("ycsb-a", 5_000),
    ] {
        let store = Gathering::new(4, false);
        let refused = run(&store, load(workload, Some(queue)));
        assert!(
            matches!(refused, Err(Error::Usage(_))),
            "{workload} {queue}"
        );
    }
}
