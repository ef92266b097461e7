//! Particular states: deleted values through crash after crash, full devices, values
//! that imitate entries, devices of others, repair.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_alphard::Alphard;
use cambium_api::{CompactOptions, Durability, Engine, EngineKind, Error, OptionValues};
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_io::{Environment, FileSystem, OpenOptions};
use cambium_testkit::stores::{self, entries as contents};

const PATH: &str = "/store";
const DATA: &str = "/store/data";

fn options(pairs: &[(&str, &str)]) -> OptionValues {
    OptionValues::from(pairs)
}

fn create(disk: &SimulatedDisk, pairs: &[(&str, &str)]) -> Arc<dyn Engine> {
    let environment = Environment::simulated(disk, 1);
    stores::create(&Alphard, &environment, &options(pairs))
}

fn try_open(disk: &SimulatedDisk) -> cambium_api::Result<Arc<dyn Engine>> {
    let environment = Environment::simulated(disk, 2);
    Alphard.open(
        &environment,
        Path::new(PATH),
        &options(&[("io", "sync")]),
        &(),
    )
}

fn open(disk: &SimulatedDisk) -> Arc<dyn Engine> {
    try_open(disk).unwrap()
}

#[test]
fn put_put_delete_crash_reopen_crash_reopen() {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, &[("size", "65536")]);
    store.put(b"oak", b"one", Durability::Synced).unwrap();
    store.put(b"oak", b"two", Durability::Synced).unwrap();
    store.delete(b"oak", Durability::Synced).unwrap();
    let disk = disk.crash(CrashStyle::NothingUnsynced, 1);
    let store = open(&disk);
    assert_eq!(store.get(b"oak").unwrap(), None);
    let disk = disk.crash(CrashStyle::NothingUnsynced, 2);
    let store_again = open(&disk);
    assert_eq!(store_again.get(b"oak").unwrap(), None);
    drop(store);
}

/// What the relatives of that sequence are made of: writes of either of two keys, and
/// what befalls a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Put(usize),
    Delete(usize),
    /// Erases and retires all it can.
    Upkeep,
    Crash,
    Close,
}

const STEPS: [Step; 7] = [
    Step::Put(0),
    Step::Put(1),
    Step::Delete(0),
    Step::Delete(1),
    Step::Upkeep,
    Step::Crash,
    Step::Close,
];

/// False for a sequence that is another one with its keys renamed: the first key that
/// it writes is the first.
fn is_first_of_its_kind(steps: &[Step]) -> bool {
    let mut keys = steps.iter().filter_map(|step| match step {
        Step::Put(key) | Step::Delete(key) => Some(*key),
        _ => None,
    });
    keys.next().is_none_or(|first| first == 0)
}

fn run(steps: &[Step], style: CrashStyle, keys: [&[u8]; 2]) {
    let mut disk = SimulatedDisk::new(3);
    let mut store = create(&disk, &[("size", "65536"), ("extend_bytes", "8192")]);
    let mut model = BTreeMap::new();
    let mut number = 0;
    // Whatever came before, it ends with crash, reopen, crash, reopen.
    for step in steps.iter().chain(&[Step::Crash, Step::Crash]) {
        number += 1;
        let value = vec![number as u8; 700];
        match *step {
            Step::Put(key) => {
                store.put(keys[key], &value, Durability::Synced).unwrap();
                model.insert(keys[key].to_vec(), value);
            }
            Step::Delete(key) => {
                store.delete(keys[key], Durability::Synced).unwrap();
                model.remove(keys[key]);
            }
            Step::Upkeep => {
                store.compact(&Default::default(), &()).unwrap();
            }
            Step::Crash => {
                disk = disk.crash(style, number);
                store = open(&disk);
            }
            Step::Close => {
                store.close().unwrap();
                store = open(&disk);
            }
        }
        assert_eq!(contents(&*store), model, "{steps:?} at {number}");
        assert!(store.check(&()).unwrap().is_sound(), "{steps:?}");
    }
}

/// Four steps, unless `CAMBIUM_STEPS` says more, as `make soak` does.
#[test]
fn every_relative_of_up_to_four_steps_keeps_what_was_deleted_deleted() {
    let steps = std::env::var("CAMBIUM_STEPS").ok();
    let longest = steps.and_then(|text| text.parse().ok()).unwrap_or(4);
    let mut tried = 0;
    for length in 1..=longest {
        for number in 0..STEPS.len().pow(length) {
            let steps: Vec<Step> = (0..length)
                .map(|place| STEPS[number / STEPS.len().pow(place) % STEPS.len()])
                .collect();
            if !is_first_of_its_kind(&steps) {
                continue;
            }
            tried += 1;
            run(&steps, CrashStyle::NothingUnsynced, [b"oak", b"elm"]);
            let longer: [&[u8]; 2] = [b"a key beyond seven bytes", b"another one of those"];
            run(&steps, CrashStyle::Everything, longer);
        }
    }
    // Of 7^n sequences, 3^n write nothing; of the others half are new.
    let expected: usize = (1..=longest)
        .map(|length| (7usize.pow(length) + 3usize.pow(length)) / 2)
        .sum();
    assert_eq!(tried, expected);
}

#[test]
fn a_reused_extent_never_takes_synced_writes_with_it() {
    // Extents freed by a synced write lie between its sync and the first entry that
    // says so; a crash while they are written over must not cost what was synced.
    for bug in [None, Some("released_unmarked"), Some("freed_too_early")] {
        let mut lost = 0;
        for seed in 0..400 {
            let disk = SimulatedDisk::new(seed);
            let store = create(&disk, &[("size", "65536"), ("extend_bytes", "65536")]);
            drop(store);
            let mut opening = options(&[("io", "sync")]);
            if let Some(bug) = bug {
                opening.set("seeded_bug", bug);
            }
            let environment = Environment::simulated(&disk, 2);
            let store = stores::open(&Alphard, &environment, &opening);
            // Little is free: what is freed is reused at once.
            for number in 0..7u8 {
                store
                    .put(&[number], &[number; 5_000], Durability::Synced)
                    .unwrap();
            }
            let mut last = BTreeMap::new();
            for round in 0..1 + (seed % 4) as u8 {
                let key = [round % 3];
                // The first of them is obsolete before any entry calls it durable.
                store
                    .put(&key, &[50 + round; 5_000], Durability::Written)
                    .unwrap();
                store
                    .put(&key, &[100 + round; 5_000], Durability::Written)
                    .unwrap();
                store
                    .put(&[3], &[150 + round; 5_000], Durability::Synced)
                    .unwrap();
                last.insert(key, 100 + round);
                last.insert([3], 150 + round);
            }
            // Not synced: torn by the crash.
            for key in 0..3u8 {
                store
                    .put(&[key], &[200; 5_000], Durability::Written)
                    .unwrap();
            }
            let crashed = disk.crash(CrashStyle::Sectors, seed);
            let right = try_open(&crashed).is_ok_and(|store| {
                last.iter().all(|(key, &byte)| {
                    let found = store.get(key).ok().flatten();
                    found.is_some_and(|found| found[0] == byte || found[0] >= 200)
                })
            });
            lost += u32::from(!right);
        }
        assert_eq!(lost > 0, bug.is_some(), "{bug:?}: {lost} of 400");
    }
}

#[test]
fn a_full_device_still_takes_deletes_and_then_writes_again() {
    for block_bytes in ["512", "4096"] {
        let disk = SimulatedDisk::new(1);
        let store = create(&disk, &[("size", "262144"), ("block_bytes", block_bytes)]);
        let mut count = 0u32;
        let full = loop {
            match store.put(&count.to_be_bytes(), &[1; 100], Durability::Written) {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(full.is_no_space(), "{full}");
        assert_eq!(contents(&*store).len(), count as usize);
        for number in 0..count {
            store
                .delete(&number.to_be_bytes(), Durability::Written)
                .unwrap();
        }
        store.compact(&Default::default(), &()).unwrap();
        // Cleaning makes room for more or less of what comes one by one.
        let again = count * 9 / 10;
        for number in 0..again {
            store
                .put(&number.to_be_bytes(), &[2; 100], Durability::Written)
                .unwrap();
        }
        store.sync().unwrap();
        let store = open(&disk.crash(CrashStyle::NothingUnsynced, 1));
        assert_eq!(contents(&*store).len(), again as usize);
    }
}

#[test]
fn tombstones_never_fill_a_store_that_nobody_tidies() {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, &[("size", "65536"), ("block_bytes", "512")]);
    for round in 0..600u32 {
        let key = (round % 7).to_be_bytes();
        let durability = match round % 10 {
            0 => Durability::Synced,
            _ => Durability::Written,
        };
        // No step is taken in between.
        let put = store.put(&key, &[round as u8; 700], durability);
        assert!(put.is_ok(), "{round}: {put:?}");
        store.delete(&key, Durability::Written).unwrap();
    }
    store.put(b"oak", b"last", Durability::Synced).unwrap();
    let store = open(&disk.crash(CrashStyle::NothingUnsynced, 1));
    let expected = BTreeMap::from([(b"oak".to_vec(), b"last".to_vec())]);
    assert_eq!(contents(&*store), expected);
}

#[test]
fn a_file_that_was_cut_off_among_its_superblocks_has_lost_its_entries() {
    for (cut, is_closed) in [(1_705, true), (4_096, false), (8_191, true), (1_705, false)] {
        let disk = SimulatedDisk::new(1);
        let store = create(&disk, &[("size", "262144"), ("block_bytes", "4096")]);
        store.put(b"oak", b"Quercus", Durability::Synced).unwrap();
        let crashed = disk.crash(CrashStyle::NothingUnsynced, 1);
        store.close().unwrap();
        drop(store);
        let disk = if is_closed { disk } else { crashed };
        let file = disk.open(Path::new(DATA), OpenOptions::WRITE).unwrap();
        file.set_length(cut).unwrap();
        let environment = Environment::simulated(&disk, 1);
        if let Ok(report) = Alphard.repair(&environment, Path::new(PATH), &Default::default(), &())
        {
            assert!(!report.is_sound(), "cut at {cut}: {report:?}");
            assert_eq!(contents(&*open(&disk)).len(), 0);
        }
    }
}

#[test]
fn a_file_of_a_killed_store_that_was_cut_off_has_lost_its_newest_entries() {
    // The superblock is older than the entries, and no entry that is left names those behind
    // the cut.
    for cut in [8_192, 12_288, 12_289, 16_384] {
        let disk = SimulatedDisk::new(1);
        let store = create(&disk, &[("size", "262144"), ("block_bytes", "4096")]);
        store.put(b"oak", b"Quercus", Durability::Synced).unwrap();
        store.put(b"elm", b"Ulmus", Durability::Synced).unwrap();
        store.put(b"ash", b"Fraxinus", Durability::Synced).unwrap();
        let disk = disk.crash(CrashStyle::NothingUnsynced, 1);
        let file = disk.open(Path::new(DATA), OpenOptions::WRITE).unwrap();
        file.set_length(cut).unwrap();
        let environment = Environment::simulated(&disk, 1);
        let report = Alphard
            .repair(&environment, Path::new(PATH), &Default::default(), &())
            .unwrap();
        assert!(!report.is_sound(), "cut at {cut}: {report:?}");
        assert!(contents(&*open(&disk)).len() < 3);
    }
}

#[test]
fn a_file_that_was_cut_off_keeps_what_lies_before_the_cut() {
    for cut in [1, 20_000] {
        let disk = SimulatedDisk::new(1);
        let store = create(&disk, &[("size", "65536"), ("block_bytes", "512")]);
        for key in 0..50u8 {
            store.put(&[key], &[key; 700], Durability::Synced).unwrap();
        }
        store.close().unwrap();
        drop(store);
        let environment = Environment::simulated(&disk, 3);
        let file = environment
            .file_system
            .open(Path::new(DATA), OpenOptions::WRITE);
        file.unwrap().set_length(65_536 - cut).unwrap();
        assert!(try_open(&disk).is_err());
        let report = Alphard
            .repair(&environment, Path::new(PATH), &Default::default(), &())
            .unwrap();
        assert_eq!(report.is_sound(), cut == 1, "{report:?}");
        let found = contents(&*open(&disk));
        let kept = if cut == 1 { 50 } else { 36 };
        assert!(found.len() >= kept, "{}", found.len());
        assert!(found.iter().all(|(key, value)| *value == [key[0]; 700]));
    }
}

#[test]
fn repair_finds_the_entries_again_where_what_names_them_is_damaged() {
    let members = Path::new("/store/members");
    let disk = SimulatedDisk::new(1);
    disk.add_device(Path::new("/device"), 1 << 20, 512);
    for pairs in [
        &[("size", "65536")][..],
        &[("device", "/device"), ("force", "on")],
    ] {
        for damaged in 0..5 {
            let disk = disk.fork();
            let store = create(&disk, pairs);
            store.put(b"oak", b"kept", Durability::Synced).unwrap();
            store.close().unwrap();
            drop(store);
            let environment = Environment::simulated(&disk, 3);
            let on_device = pairs[0].0 == "device";
            match damaged {
                0 => assert!(disk.flip_bit(members, 20, 0)),
                1 => assert!(disk.flip_bit(members, 45, 0)),
                2 => assert!(disk.flip_bit(Path::new("/store/CAMBIUM"), 40, 0)),
                4 => {
                    let marker = Path::new("/store/CAMBIUM");
                    environment.file_system.remove(marker).unwrap();
                }
                _ => environment.file_system.remove(members).unwrap(),
            }
            assert!(try_open(&disk).is_err());
            let repaired = Alphard.repair(&environment, Path::new(PATH), &Default::default(), &());
            if on_device && damaged == 3 {
                assert!(repaired.is_err(), "nothing says where the device is");
                continue;
            }
            assert!(repaired.unwrap().is_sound(), "{damaged}");
            assert_eq!(open(&disk).get(b"oak").unwrap().unwrap(), b"kept");
        }
    }
}

#[test]
fn two_folders_that_name_one_file_do_not_have_it_open_at_once() {
    for named in ["device", "mirror"] {
        let disk = SimulatedDisk::new(1);
        let environment = Environment::simulated(&disk, 1);
        let files = &environment.file_system;
        let entries = Path::new("/entries");
        files.open(entries, OpenOptions::CREATE).unwrap();
        let store = create(&disk, &[("size", "65536"), (named, "/entries")]);
        store.put(b"oak", b"one", Durability::Synced).unwrap();
        store.close().unwrap();
        // The folder, copied.
        let copy = Path::new("/copy");
        files.create_directory(copy).unwrap();
        for entry in files.list(Path::new(PATH)).unwrap() {
            let from = files.open(&Path::new(PATH).join(&entry.name), OpenOptions::READ);
            let from = from.unwrap();
            let bytes = from
                .read_vec_at(0, from.length().unwrap() as usize)
                .unwrap();
            let to = files
                .open(&copy.join(&entry.name), OpenOptions::CREATE)
                .unwrap();
            to.write_at(&bytes, 0).unwrap();
        }
        let open_copy = || Alphard.open(&environment, copy, &OptionValues::default(), &());
        let store = open(&disk);
        let refused = open_copy().err().unwrap();
        assert!(matches!(refused, Error::Locked { .. }), "{refused}");
        assert!(
            Alphard
                .repair(&environment, copy, &Default::default(), &())
                .is_err()
        );
        store.put(b"oak", b"two", Durability::Synced).unwrap();
        store.close().unwrap();
        let store = open_copy().unwrap();
        assert_eq!(store.get(b"oak").unwrap().unwrap(), b"two", "{named}");
        assert!(try_open(&disk).is_err());
    }
}

#[test]
fn a_store_that_could_not_be_made_leaves_nothing() {
    let refused: [&[(&str, &str)]; 3] = [
        &[("size", "1048576")],
        &[("size", "65536"), ("mirror", "data")],
        &[("size", "262144"), ("mirror", "/mirror")],
    ];
    for pairs in refused {
        let disk = SimulatedDisk::new(1);
        disk.set_capacity(Some(400 << 10));
        let environment = Environment::simulated(&disk, 1);
        let files = &environment.file_system;
        let made = Alphard.create(&environment, Path::new(PATH), &options(pairs));
        assert!(made.is_err(), "{pairs:?}");
        assert!(files.metadata(Path::new(PATH)).unwrap().is_none());
        assert!(files.metadata(Path::new("/mirror")).unwrap().is_none());
        // And is no hindrance.
        drop(create(&disk, &[("size", "65536")]));
        assert!(try_open(&disk).is_ok());
    }
}

#[test]
fn a_store_that_could_not_be_made_removes_no_file_that_was_there() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let files = &environment.file_system;
    // The entries of another store, which is open.
    files.create_directory(Path::new(PATH)).unwrap();
    let data = Path::new(PATH).join("data");
    files.open(&data, OpenOptions::CREATE).unwrap();
    let pairs = options(&[("size", "65536"), ("device", "/store/data")]);
    let other = Path::new("/other");
    let store = Alphard.create(&environment, other, &pairs).unwrap();
    store.put(b"oak", b"kept", Durability::Synced).unwrap();
    let make = |pairs| Alphard.create(&environment, Path::new(PATH), &options(pairs));
    let made = make(&[("size", "65536")]).err().unwrap();
    assert!(matches!(made, Error::AlreadyExists { .. }), "{made}");
    let made = make(&[("size", "65536"), ("force", "on")]).err().unwrap();
    assert!(matches!(made, Error::Locked { .. }), "{made}");
    store.close().unwrap();
    drop(store);
    let store = Alphard.open(&environment, other, &OptionValues::default(), &());
    assert_eq!(store.unwrap().get(b"oak").unwrap().unwrap(), b"kept");
}

#[test]
fn a_full_store_can_be_extended_and_stays_so() {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, &[("size", "65536"), ("block_bytes", "512")]);
    let mut count = 0u32;
    while store
        .put(&count.to_be_bytes(), &[1; 900], Durability::Written)
        .is_ok()
    {
        count += 1;
    }
    let mut options = CompactOptions::default();
    options.settings.set("size", "32768");
    assert!(store.compact(&options, &()).is_err(), "smaller");
    options.settings.set("size", "131072");
    store.compact(&options, &()).unwrap();
    for number in count..2 * count {
        store
            .put(&number.to_be_bytes(), &[1; 900], Durability::Synced)
            .unwrap();
    }
    let store = open(&disk.crash(CrashStyle::NothingUnsynced, 1));
    assert_eq!(contents(&*store).len(), 2 * count as usize);
    assert_eq!(store.stats().unwrap().number("size_bytes"), Some(131_072));
}

#[test]
fn a_value_that_is_a_copy_of_the_device_is_a_value() {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, &[("size", "262144"), ("block_bytes", "512")]);
    store.put(b"oak", b"genuine", Durability::Synced).unwrap();
    store.put(b"elm", &[9; 3_000], Durability::Synced).unwrap();
    store.delete(b"elm", Durability::Synced).unwrap();
    store.compact(&Default::default(), &()).unwrap();
    // All that was ever written, at every shift that could align it with blocks.
    let image = disk.contents(Path::new(DATA)).unwrap()[..32 << 10].to_vec();
    for shift in [0, 1, 68, 71, 440, 444, 512 - 71] {
        let mut value = vec![0; shift];
        value.extend_from_slice(&image);
        let mut expected = contents(&*store);
        store.put(b"copy", &value, Durability::Synced).unwrap();
        expected.insert(b"copy".to_vec(), value);
        let crashed = open(&disk.crash(CrashStyle::NothingUnsynced, 1));
        assert_eq!(contents(&*crashed), expected, "shift {shift}");
        // What is left of it when its start was written over.
        store.put(b"copy", b"small", Durability::Synced).unwrap();
        store.put(b"more", b"small", Durability::Synced).unwrap();
        let crashed = open(&disk.crash(CrashStyle::NothingUnsynced, 1));
        assert_eq!(contents(&*crashed), contents(&*store), "shift {shift}");
    }
}

#[test]
fn a_device_that_carries_something_is_refused_unless_forced() {
    let disk = SimulatedDisk::new(1);
    let device = disk
        .open(Path::new("/device"), OpenOptions::CREATE)
        .unwrap();
    device.set_length(1 << 20).unwrap();
    device.write_at(&[0x53, 0xef], 1080).unwrap();
    let environment = Environment::simulated(&disk, 1);
    let plain = options(&[("device", "/device"), ("size", "1MiB")]);
    let refused = Alphard.create(&environment, Path::new(PATH), &plain);
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("ext4") && text.contains("force=on"), "{text}");
    let mut forced = plain.clone();
    forced.set("force", "on");
    let store = stores::create(&Alphard, &environment, &forced);
    store.put(b"oak", b"one", Durability::Synced).unwrap();
    store.close().unwrap();
    let refused = Alphard.create(&environment, Path::new("/second"), &plain);
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("an alphard store"), "{text}");
    // Formatted anew, nothing of the old store comes back, and that one knows.
    let second = Alphard
        .create(&environment, Path::new("/second"), &forced)
        .unwrap();
    drop(second);
    let crashed = disk.crash(CrashStyle::Everything, 1);
    let environment = Environment::simulated(&crashed, 1);
    let second = Alphard.open(&environment, Path::new("/second"), &options(&[]), &());
    assert_eq!(contents(&*second.unwrap()).len(), 0);
    let first = Alphard.open(&environment, Path::new(PATH), &options(&[]), &());
    assert!(matches!(first.err(), Some(Error::Corruption { .. })));
}

#[test]
fn repair_keeps_what_can_be_read_and_brings_nothing_older_back() {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, &[("size", "262144"), ("block_bytes", "512")]);
    for number in 0..50u32 {
        let key = number.to_be_bytes();
        store.put(&key, b"older", Durability::Written).unwrap();
        store.put(&key, b"newer", Durability::Synced).unwrap();
    }
    drop(store);
    // The newest entry of one key loses its header, another's a byte of its value.
    let image = disk.contents(Path::new(DATA)).unwrap();
    let starts: Vec<usize> = (8_192..image.len())
        .step_by(512)
        .filter(|&at| {
            image[at..at + 512]
                .windows(5)
                .any(|bytes| bytes == b"newer")
        })
        .collect();
    assert!(starts.len() >= 50);
    disk.flip_bit(Path::new(DATA), starts[10] as u64 + 20, 1);
    let value = image[starts[20]..]
        .windows(5)
        .position(|bytes| bytes == b"newer");
    disk.flip_bit(Path::new(DATA), (starts[20] + value.unwrap()) as u64, 1);
    let environment = Environment::simulated(&disk, 1);
    let refused = try_open(&disk).err().unwrap();
    assert!(refused.is_corruption() && refused.to_string().contains("repair"));
    let check = Alphard
        .check(&environment, Path::new(PATH), &Default::default(), &())
        .unwrap();
    assert!(!check.is_sound());
    let report = Alphard
        .repair(&environment, Path::new(PATH), &Default::default(), &())
        .unwrap();
    assert!(!report.findings.is_empty());
    let store = open(&disk);
    let found = contents(&*store);
    // Of the header that is gone nothing says that it was newer.
    assert!(found.len() == 49, "{}", found.len());
    let older = found.values().filter(|value| *value == b"older").count();
    assert!(older <= 1, "{older}");
    assert!(store.check(&()).unwrap().is_sound());
    store.put(b"oak", b"after", Durability::Synced).unwrap();
    let again = open(&disk.crash(CrashStyle::NothingUnsynced, 1));
    assert_eq!(contents(&*again).len(), 50);
    let check = Alphard.check(
        &Environment::simulated(&disk.fork(), 1),
        Path::new(PATH),
        &Default::default(),
        &(),
    );
    assert!(check.unwrap().is_sound());
}
