//! Named snapshots that are made while a compaction runs: each has the state at which
//! it was made, and however many there are, the compaction ends.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::support::{Model, SMALL_NODES, contents, options};
use cambium_api::{CompactOptions, Durability, Engine, Progress, ProgressSink};
use cambium_forest::Forest;
use cambium_io::simulated::{CrashStyle, Moment, ProbePoints, SimulatedDisk};
use cambium_io::{Environment, SystemClock};
use cambium_testkit::stores;

/// So small that a compaction is many steps.
const TUNING: [(&str, &str); 6] = [
    ("write_buffer_entries", "50"),
    ("preallocate_bytes", "4096"),
    ("segment_bytes", "16KiB"),
    ("compaction_threshold", "100"),
    ("compaction_memory_bytes", "8192"),
    ("cache_bytes", "8192"),
];
const SIDE: &str = "side";

fn create(environment: &Environment, besides: &[(&str, &str)]) -> Arc<dyn Engine> {
    let options = stores::options(&[&TUNING, &SMALL_NODES, besides]);
    stores::create(&Forest, environment, &options)
}

/// What two namespaces should hold; the second one may not be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    main: Model,
    side: Option<Model>,
}

impl State {
    fn of(store: &dyn Engine) -> State {
        let names = store.snapshot().unwrap().namespaces().unwrap();
        let there = names.iter().any(|name| name == SIDE);
        let side = there.then(|| contents(&*store.namespace(SIDE).unwrap()));
        State {
            main: contents(store),
            // A rollback leaves what was made since, empty.
            side: side.filter(|side| !side.is_empty()),
        }
    }

    /// The first key that differs, and where.
    fn difference(&self, other: &State) -> Option<String> {
        let none = Model::new();
        let sides = [&self.side, &other.side].map(|side| side.as_ref().unwrap_or(&none));
        let pairs = [
            ("main", &self.main, &other.main),
            (SIDE, sides[0], sides[1]),
        ];
        pairs.into_iter().find_map(|(name, one, other)| {
            let mut keys = one.keys().chain(other.keys());
            let key = keys.find(|key| one.get(*key) != other.get(*key))?;
            let values = [one, other].map(|all| all.get(key).map(|value| (value.len(), value[0])));
            let key = String::from_utf8_lossy(key);
            Some(format!("{name} {key:?}: {values:?}"))
        })
    }

    /// Changes a few keys, and now and then makes or drops the other namespace.
    fn change(&mut self, store: &dyn Engine, round: u32) {
        for number in 0..8u32 {
            let key = format!("key {:03}", (number * 31 + round * 17) % 120).into_bytes();
            if (number + round) % 7 == 0 {
                store.delete(&key, Durability::Buffered).unwrap();
                self.main.remove(&key);
                continue;
            }
            let value = vec![round as u8; [5, 80, 900][number as usize % 3]];
            store.put(&key, &value, Durability::Buffered).unwrap();
            self.main.insert(key, value);
        }
        if round % 5 == 4 && self.side.take().is_some() {
            store.drop_namespace(SIDE).unwrap();
        } else {
            let key = round.to_be_bytes().to_vec();
            let side = store.namespace(SIDE).unwrap();
            side.put(&key, b"beside", Durability::Buffered).unwrap();
            let model = self.side.get_or_insert_default();
            model.insert(key, b"beside".to_vec());
        }
    }
}

/// Changes a store and keeps its state under a name whenever something is reported.
struct Keeper {
    store: Arc<dyn Engine>,
    state: Mutex<(State, Vec<State>)>,
}

/// With the code that began anew for each, no compaction came to its end.
const MOST: usize = 500;

impl ProgressSink for Keeper {
    fn report(&self, _: Progress) {
        let (state, kept) = &mut *self.state.lock().unwrap();
        if kept.len() < MOST {
            let round = kept.len() as u32;
            state.change(&*self.store, round);
            let name = format!("kept {round}");
            self.store.create_named_snapshot(&name).unwrap();
            kept.push(state.clone());
            // What comes now it does not have.
            state.change(&*self.store, round + 3);
        }
    }
}

/// Compacts while snapshots are made; answers where one of them has another state than
/// it was made of.
fn first_difference(besides: &[(&str, &str)]) -> Option<String> {
    let store = create(&Environment::memory(), besides);
    let mut state = State::default();
    for round in 0..60 {
        state.change(&*store, round);
    }
    let keeper = Keeper {
        store: store.clone(),
        state: Mutex::new((state, Vec::new())),
    };
    store.compact(&CompactOptions::default(), &keeper).unwrap();
    let (state, kept) = keeper.state.into_inner().unwrap();
    assert!(
        kept.len() > 3 && kept.len() < MOST,
        "{} are kept",
        kept.len()
    );
    if let Some(difference) = State::of(&*store).difference(&state) {
        return Some(difference);
    }
    assert!(store.check(&()).unwrap().is_sound());
    // Once more, with all of them there from the beginning.
    for _ in 0..2 {
        for (number, state) in kept.iter().enumerate() {
            store.rollback(&format!("kept {number}")).unwrap();
            if let Some(difference) = State::of(&*store).difference(state) {
                return Some(format!("kept {number}: {difference}"));
            }
        }
        store.compact(&CompactOptions::default(), &()).unwrap();
    }
    None
}

#[test]
fn snapshots_without_end_have_their_states_and_do_not_hold_a_compaction_up() {
    assert_eq!(first_difference(&[]), None);
}

#[test]
fn a_compaction_that_passes_a_snapshot_is_found() {
    let bug = ("seeded_bug", "compaction_passes_snapshot");
    assert_ne!(first_difference(&[bug]), None);
}

#[test]
fn a_writer_that_keeps_states_beside_compactions_finds_them() {
    // Two threads: time passes for both, so that the one can be slowed for the other.
    let environment = Environment {
        clock: Arc::new(SystemClock),
        ..Environment::memory()
    };
    let store = create(&environment, &[]);
    let (is_done, compactions) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let compacting = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                store.compact(&CompactOptions::default(), &()).unwrap();
                compactions.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut state = State::default();
        let mut kept = std::collections::VecDeque::new();
        for round in 0..20_000 {
            if round >= 200 && compactions.load(Ordering::Relaxed) >= 5 {
                break;
            }
            state.change(&*store, round);
            if round % 4 == 0 {
                let name = format!("kept {round}");
                store.create_named_snapshot(&name).unwrap();
                kept.push_back((name, state.clone()));
            }
            if kept.len() > 6 {
                let (name, _) = kept.pop_front().unwrap();
                store.drop_named_snapshot(&name).unwrap();
            }
        }
        is_done.store(true, Ordering::Relaxed);
        let ended = compactions.load(Ordering::Relaxed);
        compacting.join().unwrap();
        assert!(ended >= 5, "{ended} ended beside the writer");
        assert_eq!(State::of(&*store).difference(&state), None);
        for (name, state) in kept {
            store.rollback(&name).unwrap();
            assert_eq!(State::of(&*store).difference(&state), None, "{name}");
        }
    });
}

#[test]
fn a_crash_beside_a_snapshot_and_a_compaction_keeps_what_was_kept() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let store = create(&environment, &[]);
    let mut state = State::default();
    for round in 0..40 {
        state.change(&*store, round);
    }
    let images = Arc::new(Mutex::new(Vec::new()));
    let seen = images.clone();
    disk.set_crash_probe(ProbePoints::Operations, move |point| {
        if point.moment != Moment::BeforeOperation || point.operation % 7 == 0 {
            seen.lock().unwrap().push(point.disk);
        }
    });
    /// As the keeper, and looks at crashes of what was done up to then.
    struct Crashes(Keeper, Arc<Mutex<Vec<SimulatedDisk>>>, Mutex<usize>);
    impl ProgressSink for Crashes {
        fn report(&self, progress: Progress) {
            // Before: what is kept by now is kept in each of them.
            let kept = self.0.state.lock().unwrap().1.clone();
            let drained: Vec<SimulatedDisk> = self.1.lock().unwrap().drain(..).collect();
            let mut count = self.2.lock().unwrap();
            for image in drained {
                *count += 1;
                if kept.is_empty() {
                    continue;
                }
                let style = CrashStyle::ALL[*count % CrashStyle::ALL.len()];
                let environment = Environment::simulated(&image.crash(style, *count as u64), 7);
                let again = stores::open(&Forest, &environment, &options(&TUNING));
                // The last one may be on its way in the image.
                let named = again.list_named_snapshots().unwrap();
                assert!(named.len() + 1 >= kept.len(), "{style:?}");
                let place = *count % named.len().max(1);
                if let Some((name, _)) = named.get(place) {
                    again.rollback(name).unwrap();
                    let difference = State::of(&*again).difference(&kept[place]);
                    assert_eq!(difference, None, "{name}, {style:?}");
                }
            }
            if kept.len() < 12 {
                self.0.report(progress);
            }
        }
    }
    let sink = Crashes(
        Keeper {
            store: store.clone(),
            state: Mutex::new((state, Vec::new())),
        },
        images,
        Mutex::new(0),
    );
    store.compact(&CompactOptions::default(), &sink).unwrap();
    sink.report(Progress {
        phase: "",
        done: 0,
        total: None,
    });
    assert!(*sink.2.lock().unwrap() > 100);
}
