//! A compaction that writes its file past the page cache, failed and crashed
//! everywhere, with a writer and a snapshot beside it, held against a model.

use std::sync::{Arc, Mutex};

use crate::support::{Model, SMALL_NODES, contents};
use cambium_api::{
    CompactOptions, CompactReport, Durability, Engine, Error, OptionValues, Progress, ProgressSink,
};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Fault, FaultRule, OperationClass, ProbePoints, SimulatedDisk,
};
use cambium_testkit::stores;

/// So small that a store of some kilobytes is many windows and many writes.
const TUNING: [(&str, &str); 6] = [
    ("write_buffer_entries", "50"),
    ("preallocate_bytes", "4096"),
    ("segment_bytes", "16KiB"),
    ("compaction_threshold", "100"),
    ("compaction_memory_bytes", "8192"),
    ("cache_bytes", "8192"),
];

fn options(more: &[(&str, &str)]) -> OptionValues {
    stores::options(&[&TUNING, more])
}

fn open(environment: &Environment) -> Arc<dyn Engine> {
    stores::open(&Forest, environment, &options(&[]))
}

/// A store of which half is stale, and what is in it.
fn filled(environment: &Environment) -> (Arc<dyn Engine>, Model) {
    let store = stores::create(&Forest, environment, &options(&SMALL_NODES));
    let mut model = Model::new();
    for number in 0..240u32 {
        let key = format!("key {:03}", number * 7 % 120).into_bytes();
        let bytes = [0, 10, 100, 700, 2000][number as usize % 5];
        let mut value = vec![number as u8; bytes];
        value.extend_from_slice(&number.to_be_bytes());
        store.put(&key, &value, Durability::Buffered).unwrap();
        model.insert(key, value);
    }
    store.sync().unwrap();
    (store, model)
}

fn call() -> CompactOptions {
    CompactOptions {
        direct: true,
        ..CompactOptions::default()
    }
}

/// Writes at every report of progress, and remembers each state.
struct Writing<'a> {
    store: &'a dyn Engine,
    states: &'a Mutex<Vec<Model>>,
}

impl ProgressSink for Writing<'_> {
    fn report(&self, _: Progress) {
        let mut states = self.states.lock().unwrap();
        let number = states.len() as u32;
        let mut model = states.last().unwrap().clone();
        let key = format!("key {:03}", number * 11 % 130).into_bytes();
        let value = vec![number as u8; 300];
        let durability = [Durability::Written, Durability::Synced][number as usize % 2];
        // Told before: a crash inside the write may keep it.
        model.insert(key.clone(), value.clone());
        states.push(model);
        drop(states);
        self.store.put(&key, &value, durability).unwrap();
    }
}

fn compact(store: &dyn Engine) -> Result<CompactReport, Error> {
    store.compact(&call(), &())
}

#[test]
fn an_error_of_any_operation_stops_it_and_loses_nothing() {
    for class in [
        OperationClass::Read,
        OperationClass::Write,
        OperationClass::Sync,
        OperationClass::Allocate,
        OperationClass::Name,
    ] {
        let mut failures = 0;
        for nth in 1.. {
            let disk = SimulatedDisk::new(1);
            let environment = Environment::simulated(&disk, 1);
            let (store, model) = filled(&environment);
            disk.inject(FaultRule {
                class,
                nth,
                forever: class == OperationClass::Allocate,
                fault: Fault::Error(ErrorNumber::InputOutput),
            });
            let outcome = compact(&*store);
            disk.clear_faults();
            assert_eq!(contents(&*store), model, "{class:?} {nth}");
            drop(store);
            let store = open(&environment);
            assert_eq!(contents(&*store), model, "{class:?} {nth}");
            match outcome {
                Ok(_) if nth > 2 * failures + 20 => break,
                Ok(_) => {}
                Err(_) => failures += 1,
            }
        }
        println!("{class:?}: {failures} stopped it");
        assert!(failures > 0, "{class:?}");
    }
}

#[test]
fn a_disk_that_is_full_before_it_ends_loses_nothing() {
    let disk = SimulatedDisk::new(1);
    let (store, model) = filled(&Environment::simulated(&disk, 1));
    store.close().unwrap();
    let (mut failed, mut done) = (0, 0);
    for room in (0..1200 << 10).step_by(24 << 10) {
        let disk = disk.fork();
        let environment = Environment::simulated(&disk, 1);
        let store = open(&environment);
        disk.set_capacity(Some(disk.used_bytes() + room));
        match compact(&*store) {
            Ok(_) => done += 1,
            Err(error) => {
                assert!(error.is_no_space(), "{room}: {error}");
                failed += 1;
            }
        }
        assert_eq!(contents(&*store), model, "{room}");
        disk.set_capacity(None);
        compact(&*store).unwrap();
        assert_eq!(contents(&*store), model, "{room}");
    }
    assert!(failed > 2 && done > 2, "{failed} {done}");
}

#[test]
fn a_crash_at_any_operation_beside_a_writer_leaves_either_file() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let (store, model) = filled(&environment);
    let snapshot = store.snapshot().unwrap();
    let states = Arc::new(Mutex::new(vec![model.clone()]));
    let points = Arc::new(Mutex::new(Vec::new()));
    let (seen, known) = (points.clone(), states.clone());
    disk.set_crash_probe(ProbePoints::Operations, move |point| {
        let count = known.lock().map_or(0, |states| states.len());
        seen.lock().unwrap().push((point.disk, count));
    });
    let sink = Writing {
        store: &*store,
        states: &states,
    };
    let report = store.compact(&call(), &sink).unwrap();
    assert!(report.direct && report.documents == model.len() as u64);
    assert_eq!(contents(&*snapshot), model);
    let states = states.lock().unwrap();
    assert_eq!(contents(&*store), *states.last().unwrap());
    assert!(states.len() > 10, "{}", states.len());
    let points = std::mem::take(&mut *points.lock().unwrap());
    let images = points.len();
    for (number, (image, count)) in points.into_iter().enumerate() {
        let style = CrashStyle::ALL[number % CrashStyle::ALL.len()];
        let environment = Environment::simulated(&image.crash(style, number as u64), 7);
        let found = contents(&*open(&environment));
        // Every other write is synced. The last one known may be under way.
        let possible = &states[..count];
        let least = if count < 3 {
            0
        } else {
            (count - 3) / 2 * 2 + 1
        };
        assert!(
            possible[least..].contains(&found),
            "{number}, {style:?}: {} entries are no state of {count}",
            found.len()
        );
    }
    assert!(images > 100, "{images}");
}
