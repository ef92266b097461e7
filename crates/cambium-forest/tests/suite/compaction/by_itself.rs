//! When a compaction begins by itself, and what that does to space.

use super::*;

#[test]
fn a_store_keeps_the_threshold_it_was_made_with() {
    let environment = Environment::memory();
    let compacts = |tuning: &[(&str, &str)]| {
        let store = Forest
            .open(&environment, Path::new(PATH), &options(tuning), &())
            .unwrap();
        for _ in 0..40 {
            store.put(b"key", &[7; 1000], Durability::Written).unwrap();
        }
        // What is in the buffer counts as live.
        store.create_named_snapshot("flushes").unwrap();
        store.drop_named_snapshot("flushes").unwrap();
        while store.step(1 << 20).unwrap() == StepOutcome::Again {}
        let compactions = store.stats().unwrap().number("compactions").unwrap();
        store.close().unwrap();
        compactions
    };
    drop(create(&environment));
    let least = [("compaction_least_bytes", "1000"), ("cleaning", "off")];
    assert_eq!(compacts(&least), 0, "made with 100: never by itself");
    let chosen = [least[0], least[1], ("compaction_threshold", "30")];
    assert!(compacts(&chosen) > 0);
    assert_eq!(compacts(&least), 0);
}

#[test]
fn stores_of_one_environment_take_turns() {
    let environment = Environment {
        background: BackgroundLimits::new(1, 0),
        ..Environment::memory()
    };
    let mut tuning = TUNING.to_vec();
    tuning[2] = ("compaction_threshold", "10");
    tuning.push(("compaction_least_bytes", "1000"));
    tuning.push(("cleaning", "off"));
    let stores: Vec<Arc<dyn Engine>> = ["/one", "/two"]
        .map(|path| {
            let made = Forest.create(&environment, Path::new(path), &options(&tuning));
            let store = made.unwrap();
            let mut model = Model::new();
            for round in 0..4 {
                change(&*store, &mut model, round);
            }
            store
        })
        .into();
    let compacting = |store: &dyn Engine| store.stats().unwrap().number("compactions").unwrap();
    // The first begins and is not done; the second finds no turn.
    while stores[0].step(100).unwrap() == StepOutcome::Again
        && environment.background.begin().is_some()
    {}
    assert_eq!(compacting(&*stores[0]), 0);
    while stores[1].step(100).unwrap() == StepOutcome::Again {}
    assert_eq!(compacting(&*stores[1]), 0);
    while stores[0].step(100).unwrap() == StepOutcome::Again {}
    assert_eq!(compacting(&*stores[0]), 1);
    while stores[1].step(100).unwrap() == StepOutcome::Again {}
    assert_eq!(compacting(&*stores[1]), 1);
}

/// Overwriting for ten times the size of the data, a step of the background for
/// each few writes: both files together stay bounded, and do not grow.
#[test]
fn steady_overwriting_takes_bounded_space() {
    const KEYS: u64 = 8_000;
    let environment = Environment::memory();
    let tuning = [
        ("write_buffer_entries", "2000"),
        ("preallocate_bytes", "256KiB"),
        ("segment_bytes", "1MiB"),
        ("compaction_least_bytes", "1MiB"),
        ("cleaning", "off"),
    ];
    let path = Path::new(PATH);
    let store = Forest
        .create(&environment, path, &options(&tuning))
        .unwrap();
    let value = |number: u64| vec![number as u8; 4000];
    for key in 0..KEYS {
        let bytes = value(key);
        store
            .put(&key.to_be_bytes(), &bytes, Durability::Written)
            .unwrap();
    }
    let live = store.stats().unwrap().number("file_bytes").unwrap() as f64;
    let space = || -> (usize, f64) {
        let files = environment.file_system.list(path).unwrap();
        let bytes: u64 = files
            .iter()
            .filter_map(|entry| {
                environment
                    .file_system
                    .metadata(&path.join(&entry.name))
                    .unwrap()
            })
            .map(|metadata| metadata.length)
            .sum();
        (database_files(&environment), bytes as f64 / live)
    };
    let mut peaks = Vec::new();
    let mut number = 0u64;
    for _ in 0..10 {
        let (mut between, mut peak) = (0f64, 0f64);
        for write in 0..KEYS {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let key = (number >> 33) % KEYS;
            let bytes = value(number);
            store
                .put(&key.to_be_bytes(), &bytes, Durability::Written)
                .unwrap();
            if write % 8 == 0 {
                // 32 KB were written: as fast a device as that of the writers,
                // eight times over.
                store.step(256 << 10).unwrap();
                let (files, amplification) = space();
                peak = peak.max(amplification);
                if files == 1 {
                    between = between.max(amplification);
                }
            }
        }
        peaks.push((between, peak));
    }
    let compactions = store.stats().unwrap().number("compactions").unwrap();
    println!("{compactions} compactions, between and peak: {peaks:.2?}");
    assert!(compactions >= 10, "{compactions}");
    for (between, peak) in &peaks {
        assert!(*between <= 1.6 && *peak <= 2.8, "{peaks:.2?}");
    }
    let first = peaks[1].1.max(peaks[2].1);
    assert!(peaks[9].1 <= first + 0.15, "it grows: {peaks:.2?}");
}

#[test]
fn steps_come_to_rest_however_much_a_flush_wrote_behind_its_seal() {
    // Nodes of a flush lie behind where replay begins. With an empty buffer no flush makes
    // them fewer: a compaction that waits for one would wait for ever, and busily.
    for threshold in ["20", "30", "40", "50", "60"] {
        let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
        let pairs = [
            ("compaction_threshold", threshold),
            ("compaction_least_bytes", "65536"),
        ];
        let path = Path::new(PATH);
        let store = Forest.create(&environment, path, &options(&pairs)).unwrap();
        let (mut random, mut keys) = (1_u64, 1_u64);
        for look in 0..600 {
            for put in 0..500 {
                // Half of them are new: with a flush more turns out to live.
                keys += put % 2;
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let key = if put % 2 == 1 {
                    keys
                } else {
                    (random >> 33) % keys
                };
                let key = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let key = [key.to_be_bytes(), (!key).to_be_bytes()].concat();
                store.put(&key, &[7; 20], Durability::Buffered).unwrap();
            }
            let ends = (0..10_000).any(|_| store.step(1 << 20).unwrap() != StepOutcome::Again);
            assert!(ends, "threshold {threshold}, look {look}: no rest");
        }
    }
}
