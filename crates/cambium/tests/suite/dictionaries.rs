//! The dictionary by which zstd compresses the small values of a store.
#![cfg(feature = "zstd")]

use std::path::Path;
use std::sync::{Arc, Mutex};

use cambium::CompactOptions;
use cambium::prelude::*;
use cambium_io::Environment;
use cambium_io::simulated::{CrashStyle, ProbePoints, SimulatedDisk};
use cambium_io::step::StepOutcome;

const ENGINES: [(&str, &[(&str, &str)]); 4] = [
    ("forest", &[]),
    ("wisckey", &[]),
    ("zdb", &[]),
    ("alphard", &[("size", "64MiB")]),
];
/// Values from which a dictionary is trained, and some more.
const VALUES: u32 = 6_000;

fn key(number: u32) -> [u8; 8] {
    u64::from(number).to_be_bytes()
}

fn value(number: u32) -> String {
    let n = number.wrapping_mul(0x9e37_79b1);
    format!(
        "{{\"number\":{n},\"name\":\"tree {}\",\"height\":{},\"planted\":\"19{:02}-05-01\",\
         \"kind\":\"{}\",\"place\":{{\"row\":{},\"column\":{}}}}}",
        n % 9973,
        n % 31,
        n % 97,
        ["oak", "elm", "ash", "fir"][(n % 4) as usize],
        n % 801,
        n % 353,
    )
}

fn options(environment: &Environment, compression: &str) -> Options {
    let options = Options::new().environment(environment.clone());
    options.set("compression", compression)
}

fn create(
    environment: &Environment,
    path: &Path,
    (engine, more): (&str, &[(&str, &str)]),
) -> Store {
    let options = more
        .iter()
        .fold(options(environment, "zstd"), |options, (name, value)| {
            options.set(name, value)
        });
    options.create(path, engine).unwrap()
}

/// Fills a store, and does its background work. What is written afterwards is compressed by
/// the dictionary.
fn fill(store: &Store) {
    for number in 0..VALUES {
        store.put(key(number), value(number)).unwrap();
    }
    work(store);
    for number in VALUES..VALUES + 100 {
        store.put(key(number), value(number)).unwrap();
    }
    store.sync().unwrap();
}

fn work(store: &Store) {
    for _ in 0..1_000 {
        if store.engine().step(1 << 20).unwrap() != StepOutcome::Again {
            return;
        }
    }
    panic!("background work goes on for ever");
}

fn check(store: &Store) {
    for number in 0..VALUES + 100 {
        let found = store.get(key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(value(number).as_bytes()), "{number}");
    }
}

#[test]
fn each_engine_reads_what_a_dictionary_made_smaller_and_so_do_its_copies() {
    for engine in ENGINES {
        let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
        let store = create(&environment, Path::new("/store"), engine);
        fill(&store);
        let files = &environment.file_system;
        let is_there = |path: &str| files.metadata(Path::new(path)).unwrap().is_some();
        assert!(is_there("/store/DICTIONARY"), "{engine:?}");
        check(&store);
        // Twice: the second time from memory.
        check(&store);
        let hits = store.stats().unwrap().metrics()["decompressed_hits"];
        assert!(hits >= 100.0, "{engine:?} {hits}");

        store.backup(Path::new("/copy"), &()).unwrap();
        store.close().unwrap();
        for path in ["/store", "/copy"] {
            // Reading needs no option.
            for compression in ["none", "zstd"] {
                let store = options(&environment, compression).open(path).unwrap();
                check(&store);
                store.close().unwrap();
            }
            let store = options(&environment, "none").open_read_only(path).unwrap();
            check(&store);
            store.close().unwrap();
        }
    }
}

#[test]
fn a_dictionary_makes_values_smaller_that_zstd_alone_leaves_as_they_are() {
    let bytes = |trains: bool| {
        let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
        let store = create(&environment, Path::new("/store"), ENGINES[0]);
        if trains {
            fill(&store);
        }
        let stored = |store: &Store| {
            let statistics = store.stats().unwrap();
            let metrics = statistics.metrics();
            let of = |name| metrics.get(name).copied().unwrap_or(0.0);
            (
                of("values_before_compression"),
                of("values_after_compression"),
            )
        };
        let before = stored(&store);
        for number in 0..1_000 {
            store.put(key(number), value(number + 9_999)).unwrap();
        }
        let after = stored(&store);
        (after.1 - before.1) / (after.0 - before.0).max(1.0)
    };
    let (without, with) = (bytes(false), bytes(true));
    assert!(
        without == 0.0 && with > 0.0 && with < 0.45,
        "{with} and {without}"
    );
}

#[test]
fn no_crash_takes_the_dictionary_from_a_value_that_needs_it() {
    for engine in ENGINES {
        let disk = SimulatedDisk::new(7);
        let environment = Environment::simulated(&disk, 1);
        let path = Path::new("/store");
        let store = create(&environment, path, engine);
        for number in 0..VALUES {
            store.put(key(number), value(number)).unwrap();
        }
        store.sync().unwrap();
        let images = Arc::new(Mutex::new(Vec::new()));
        let taken = images.clone();
        disk.set_crash_probe(ProbePoints::Operations, move |point| {
            let mut images = taken.lock().unwrap();
            let seed = images.len() as u64;
            // Every style at the first operations, which are those of the dictionary.
            let styles = CrashStyle::ALL.iter();
            if images.len() < 120 {
                images.extend(styles.map(|style| point.disk.crash(*style, seed)));
            }
        });
        work(&store);
        for number in 0..20 {
            let durable = store.with_durability(Durability::Synced);
            durable.put(key(number), value(number + 50_000)).unwrap();
        }
        disk.clear_crash_probe();
        store.close().unwrap();

        let mut with = 0;
        for image in images.lock().unwrap().iter() {
            let environment = Environment::simulated(image, 1);
            let store = options(&environment, "zstd").open(path).unwrap();
            for number in (0..VALUES).step_by(101).chain(0..20) {
                let found = store.get(key(number)).unwrap().unwrap();
                let (old, new) = (value(number), value(number + 50_000));
                assert!(
                    *found == *old.as_bytes() || *found == *new.as_bytes(),
                    "{number}"
                );
            }
            store.close().unwrap();
            let dictionary = environment.file_system.metadata(&path.join("DICTIONARY"));
            with += usize::from(dictionary.unwrap().is_some());
        }
        let all = images.lock().unwrap().len();
        assert!(with > 0 && with < all, "{engine:?}: {with} of {all} images");
    }
}

#[test]
fn a_dictionary_that_is_damaged_or_gone_is_named() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let store = create(&environment, Path::new("/store"), ENGINES[0]);
    fill(&store);
    store.close().unwrap();

    let dictionary = Path::new("/store/DICTIONARY");
    for offset in [0, 9, 13, 400] {
        let damaged = disk.fork();
        assert!(damaged.flip_bit(dictionary, offset, 3));
        let environment = Environment::simulated(&damaged, 1);
        let error = options(&environment, "zstd").open("/store").err().unwrap();
        assert!(
            matches!(&error, cambium::Error::Corruption { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("DICTIONARY"), "{error}");
    }

    environment.file_system.remove(dictionary).unwrap();
    let store = options(&environment, "none").open("/store").unwrap();
    // What was written before there was a dictionary is there.
    assert!(store.get(key(0)).unwrap().is_some());
    let error = store.get(key(VALUES + 50)).unwrap_err();
    assert!(error.to_string().contains("DICTIONARY is gone"), "{error}");
    store.compact(&CompactOptions::default(), &()).unwrap();
    store.close().unwrap();
}

#[test]
fn values_that_have_nothing_in_common_get_no_dictionary() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let store = create(&environment, Path::new("/store"), ENGINES[0]);
    let mut state = 1_u64;
    for number in 0..2_000_u32 {
        let random: Vec<u8> = (0..400)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        store.put(key(number), random).unwrap();
    }
    work(&store);
    let files = &environment.file_system;
    assert!(
        files
            .metadata(Path::new("/store/DICTIONARY"))
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_reader_beside_a_writer_gets_the_dictionary_when_it_is_refreshed() {
    let environment = Environment::memory();
    let path = Path::new("/store");
    let store = create(&environment, path, ("forest", &[]));
    let reader = options(&environment, "none").open_read_only(path).unwrap();
    fill(&store);
    assert!(store.get(key(0)).unwrap().is_some());
    reader.refresh().unwrap();
    check(&reader);
    reader.close().unwrap();
    store.close().unwrap();
}
