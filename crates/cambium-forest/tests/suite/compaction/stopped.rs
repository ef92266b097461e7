//! Compactions that do not come to their end: cancelled, without room, with operations that
//! fail, crashed. The store is as it was, or compacted.

use super::*;

#[test]
fn a_compaction_can_be_cancelled_at_every_step() {
    let mut cancelled = 0;
    for overlap in ["on", "off"] {
        for number in 0.. {
            let disk = SimulatedDisk::new(1);
            let environment = Environment::simulated(&disk, 1);
            let (store, model) = filled(&environment);
            let call = CompactOptions {
                settings: options(&[("overlap", overlap)]),
                ..CompactOptions::default()
            };
            let canceller = store.clone();
            let sink = At {
                number,
                seen: AtomicU64::new(0),
                act: move || canceller.cancel(),
            };
            let outcome = store.compact(&call, &sink);
            let ended = sink.seen.load(Ordering::Relaxed) <= number;
            assert_eq!(contents(&*store), model);
            assert_eq!(database_files(&environment), 1);
            if ended {
                outcome.unwrap();
                break;
            }
            // A step later it looks; a compaction that was done by then is done.
            if let Err(error) = outcome {
                assert!(matches!(error, Error::Cancelled), "{error}");
                cancelled += 1;
            }
            compact(&*store, &[]).unwrap();
            assert_eq!(contents(&*store), model);
        }
    }
    assert!(cancelled > 20, "only {cancelled} steps were cancelled");
}

#[test]
fn a_disk_with_too_little_room_is_refused_or_left_as_it_was() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let (store, model) = filled(&environment);
    store.close().unwrap();
    drop(store);
    let needs = {
        let fork = disk.fork();
        let store = open(&Environment::simulated(&fork, 1));
        store
            .stats()
            .unwrap()
            .number("compaction_needs_bytes")
            .unwrap()
    };
    let (mut refused, mut full, mut done) = (0, 0, 0);
    for room in (0..needs * 3 / 2).step_by(1024) {
        let disk = disk.fork();
        let environment = Environment::simulated(&disk, 1);
        let store = open(&environment);
        disk.set_capacity(Some(disk.used_bytes() + room));
        match compact(&*store, &[]) {
            Ok(_) => done += 1,
            Err(error) => {
                assert!(error.is_no_space(), "{room}: {error}");
                assert!(room < needs * 5 / 4, "{room} of {needs}: {error}");
                if error.to_string().contains("are free") {
                    refused += 1;
                } else {
                    full += 1;
                }
            }
        }
        assert_eq!(contents(&*store), model);
        disk.set_capacity(None);
        store.put(b"new", b"value", Durability::Synced).unwrap();
        compact(&*store, &[]).unwrap();
        assert_eq!(contents(&*store).len(), model.len() + 1);
        assert_eq!(database_files(&environment), 1);
    }
    println!("{refused} refused, {full} found the disk full, {done} done");
    assert!(refused > 5 && done > 5, "{refused} {done}");
}

/// The room that was there at the beginning is taken by others at some moment.
#[test]
fn a_disk_that_is_filled_by_others_meanwhile_loses_nothing() {
    let mut failed = 0;
    for number in 0..60 {
        let disk = SimulatedDisk::new(1);
        let environment = Environment::simulated(&disk, 1);
        let (store, model) = filled(&environment);
        let full = disk.clone();
        let sink = At {
            number,
            seen: AtomicU64::new(0),
            act: move || full.set_capacity(Some(full.used_bytes())),
        };
        match store.compact(&CompactOptions::default(), &sink) {
            Ok(_) => {}
            Err(error) => {
                assert!(error.is_no_space(), "{error}");
                failed += 1;
            }
        }
        assert_eq!(contents(&*store), model);
        disk.set_capacity(None);
        compact(&*store, &[]).unwrap();
        assert_eq!(contents(&*store), model);
        assert_eq!(database_files(&environment), 1);
    }
    assert!(failed > 5, "{failed}");
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
        let (mut failures, mut poisoned) = (0, 0);
        for nth in 1.. {
            let disk = SimulatedDisk::new(1);
            let environment = Environment::simulated(&disk, 1);
            let (store, mut model) = filled(&environment);
            store.sync().unwrap();
            disk.inject(FaultRule {
                class,
                nth,
                // Space that cannot be taken ahead is taken as it is needed.
                forever: class == OperationClass::Allocate,
                fault: Fault::Error(ErrorNumber::InputOutput),
            });
            let outcome = compact(&*store, &[]);
            disk.clear_faults();
            // Reads go on whatever happened; writes unless the store is poisoned.
            assert_eq!(contents(&*store), model, "{class:?} {nth}");
            match store.put(b"after", b"value", Durability::Written) {
                Ok(_) => _ = model.insert(b"after".to_vec(), b"value".to_vec()),
                Err(_) => poisoned += 1,
            }
            drop(store);
            let store = open(&environment);
            assert_eq!(contents(&*store), model, "{class:?} {nth}");
            assert_eq!(database_files(&environment), 1, "{class:?} {nth}");
            match outcome {
                Ok(_) if nth > 200 || failures > 0 && nth > 2 * failures + 20 => break,
                Ok(_) => {}
                Err(_) => failures += 1,
            }
        }
        println!("{class:?}: {failures} stopped it, {poisoned} stopped writes");
        assert!(failures > 0, "{class:?}");
        if class == OperationClass::Read {
            assert_eq!(poisoned, 0, "a read that fails stops no writes");
        }
    }
}

/// Writers and a snapshot between all steps; a crash image before and after
/// every sync and before every change of names.
#[test]
fn a_crash_at_any_sync_with_writers_and_snapshots_leaves_either_file() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let mut all = TUNING.to_vec();
    all[2] = ("compaction_threshold", "1");
    all.extend([("node_bytes", "512"), ("block_bytes", "512")]);
    all.push(("compaction_least_bytes", "20000"));
    all.push(("cleaning", "off"));
    let store = Forest
        .create(&environment, Path::new(PATH), &options(&all))
        .unwrap();
    let mut model = Model::new();
    let points = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = points.clone();
    disk.set_crash_probe(ProbePoints::Operations, move |point| {
        if point.moment != Moment::BeforeOperation || point.operation % 3 == 0 {
            seen.lock().unwrap().push(point.disk);
        }
    });
    let mut snapshots = Vec::new();
    let mut images = 0;
    let mut states: Vec<Model> = vec![model.clone()];
    for round in 0..6 {
        change(&*store, &mut model, round);
        store.sync().unwrap();
        states = vec![model.clone()];
        points.lock().unwrap().clear();
        snapshots.push((store.snapshot().unwrap(), model.clone()));
        for step in 0..400u32 {
            if store.step(2000).unwrap() != StepOutcome::Again {
                break;
            }
            if step % 5 == 0 {
                let key = format!("key {:03}", step % 90).into_bytes();
                let value = format!("step {round} {step}").into_bytes();
                let durability = [Durability::Written, Durability::Synced][step as usize / 5 % 2];
                store.put(&key, &value, durability).unwrap();
                model.insert(key, value);
                states.push(model.clone());
            }
            for image in points.lock().unwrap().drain(..) {
                images += 1;
                let style = CrashStyle::ALL[images % CrashStyle::ALL.len()];
                let image = image.crash(style, images as u64);
                let environment = Environment::simulated(&image, 7);
                let again = open(&environment);
                let found = contents(&*again);
                assert!(
                    states.contains(&found),
                    "round {round}, step {step}, {style:?}: {} entries are no state",
                    found.len()
                );
                assert_eq!(database_files(&environment), 1);
            }
        }
        for (snapshot, state) in &snapshots {
            assert_eq!(contents(&**snapshot), *state, "round {round}");
        }
        assert_eq!(contents(&*store), model);
    }
    let compactions = store.stats().unwrap().number("compactions").unwrap();
    assert!(compactions >= 3 && images > 250, "{compactions} {images}");
}
