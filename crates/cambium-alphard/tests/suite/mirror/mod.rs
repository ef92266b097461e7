//! Two members: crashed everywhere, either of them lost at any point, back again,
//! damaged, swapped, apart.

mod away;
mod files;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use away::{Forsaken, MEMBERS};
use cambium_alphard::Alphard;
use cambium_api::{Durability, Engine, EngineKind, Error, FindingKind, OptionValues, Result};
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_io::{Environment, File, FileLock, FileSystem, LockMode, OpenOptions, StepOutcome};
use cambium_testkit::crash::{FAULTS, POWER_CUTS};
use cambium_testkit::ending::{self, without};
use cambium_testkit::layer::{FileSystemLayer, Layered};
use cambium_testkit::stores::{entries as contents, number, threaded};
use cambium_testkit::{Conformance, CrashSuite, DamageSuite, each_bug_is_found};

const PATH: &str = "/store";

fn path() -> &'static Path {
    Path::new(PATH)
}

fn options(pairs: &[(&str, &str)]) -> OptionValues {
    OptionValues::from(pairs)
}

/// Two devices of 64 KiB.
fn disk(seed: u64, sector_bytes: u32) -> SimulatedDisk {
    let disk = SimulatedDisk::new(seed);
    for member in MEMBERS {
        disk.add_device(Path::new(member), 128 << 10, sector_bytes);
    }
    disk
}

fn create(disk: &SimulatedDisk) -> Arc<dyn Engine> {
    // Lookups ask the members.
    let uncached = ("cache_bytes", "0");
    let pair = options(&[("device", MEMBERS[0]), ("mirror", MEMBERS[1]), uncached]);
    let environment = Environment::simulated(disk, 1);
    Alphard.create(&environment, path(), &pair).unwrap()
}

fn open_in(environment: &Environment) -> Result<Arc<dyn Engine>> {
    let opening = options(&[("io", "sync"), ("extend_bytes", "16384")]);
    Alphard.open(environment, path(), &opening, &())
}

fn open(disk: &SimulatedDisk) -> Result<Arc<dyn Engine>> {
    open_in(&Environment::simulated(disk, 2))
}

/// Opens without one of the members.
fn open_without(disk: &SimulatedDisk, member: usize) -> Result<Arc<dyn Engine>> {
    let environment = Environment::simulated(disk, 2);
    open_in(&without(&environment, Path::new(MEMBERS[member]), 0))
}

fn bring_up_to_date(store: &dyn Engine) {
    while store.step(1 << 20).unwrap() == StepOutcome::Again {}
}

fn suite(test: &'static str) -> CrashSuite {
    over(&Alphard, test)
}

fn over(kind: &'static dyn EngineKind, test: &'static str) -> CrashSuite {
    CrashSuite::new(kind, env!("CARGO_PKG_NAME"), test)
        .creation("device", MEMBERS[0])
        .creation("mirror", MEMBERS[1])
        .opening("io", "sync")
}

fn on_devices(suite: CrashSuite, sector_bytes: u32) -> CrashSuite {
    // Little room and small steps, in blocks: freed and reused all the time.
    let unit = u64::from(sector_bytes);
    suite
        .device("device", MEMBERS[0], 256 * unit, sector_bytes)
        .device("mirror", MEMBERS[1], 256 * unit, sector_bytes)
        .opening("coalesce_bytes", &(8 * unit).max(4096).to_string())
        .opening("extend_bytes", &(32 * unit).to_string())
}

#[test]
fn a_pair_conforms() {
    Conformance::new(&Alphard)
        .creation("size", "64MiB")
        .creation("mirror", "mirror")
        .run();
}

/// Memory below, threads above: background work meets readers and writers.
#[test]
fn a_pair_with_background_work_conforms() {
    Conformance::new(&Alphard)
        .creation("size", "64MiB")
        .creation("mirror", "mirror")
        .opening("coalesce_bytes", "4096")
        .opening("extend_bytes", "65536")
        .environment(threaded)
        .run();
}

#[test]
fn any_crash_of_a_pair_leaves_a_prefix() {
    for sector_bytes in [512, 4096] {
        let suite = suite("any_crash_of_a_pair_leaves_a_prefix").states(15_000);
        on_devices(suite, sector_bytes).run().met(&POWER_CUTS);
    }
}

#[test]
fn either_member_can_be_away_at_any_opening() {
    for sector_bytes in [512, 4096] {
        let suite = over(&Forsaken, "either_member_can_be_away_at_any_opening")
            .without_failing_recoveries()
            .states(20_000);
        on_devices(suite, sector_bytes).run().met(&POWER_CUTS);
    }
}

#[test]
fn failing_operations_of_a_pair_lose_nothing() {
    let suite = suite("failing_operations_of_a_pair_lose_nothing").states(10_000);
    on_devices(suite, 512).run_faults().met(&FAULTS);
}

#[test]
fn every_seeded_bug_of_pairs_is_found() {
    let bugs = ["members_differ", "stale_believed", "loss_unsaid"];
    each_bug_is_found(bugs, |name| {
        let suite = over(&Forsaken, "every_seeded_bug_of_pairs_is_found")
            .without_failing_recoveries()
            .opening("seeded_bug", name)
            .states(20_000);
        on_devices(suite, 512).find_failure()
    });
}

#[test]
fn damage_of_either_member_is_found_or_does_no_harm() {
    let report = DamageSuite::new(&Alphard)
        .creation("size", "65536")
        .creation("block_bytes", "512")
        .creation("mirror", "mirror")
        .opening("extend_bytes", "16384")
        .opening("io", "sync")
        .stride(211)
        .run();
    assert!(report.harmless > 200, "{report:?}");
}

/// What a store is asked while one of its members fails.
fn work(store: &dyn Engine, model: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    for round in 0..6u8 {
        let key = [round % 3];
        let value = vec![round; 400 + 300 * usize::from(round)];
        store.put(&key, &value, Durability::Synced).unwrap();
        model.insert(key.to_vec(), value);
        if round == 3 {
            store.delete(&[0], Durability::Synced).unwrap();
            model.remove(&[0][..]);
            bring_up_to_date(store);
        }
        assert_eq!(contents(store), *model);
    }
}

#[test]
fn a_member_that_fails_at_any_operation_costs_nothing_and_comes_back() {
    for sector_bytes in [512, 4096] {
        for member in [0, 1] {
            let mut operations = 0;
            loop {
                let whole = fails_after(operations, member, sector_bytes);
                if whole {
                    break;
                }
                operations += 1;
            }
            assert!(operations > 20, "{operations}: it has failed at every one");
        }
    }
}

/// True if the member did not fail.
fn fails_after(operations: u64, member: usize, sector_bytes: u32) -> bool {
    let disk = disk(operations, sector_bytes);
    let mut model = BTreeMap::new();
    let store = create(&disk);
    store.put(b"oak", b"before", Durability::Synced).unwrap();
    model.insert(b"oak".to_vec(), b"before".to_vec());
    store.close().unwrap();
    drop(store);
    let environment = Environment::simulated(&disk, 2);
    let failing = without(&environment, Path::new(MEMBERS[member]), operations);
    let store = open_in(&failing).unwrap();
    work(&*store, &mut model);
    let is_whole = number(&*store, "members_current") == 2;
    for style in [CrashStyle::NothingUnsynced, CrashStyle::Everything] {
        // The one that did not fail has everything, alone.
        let alone = disk.crash(style, operations);
        let survivor = open_without(&alone, member).unwrap();
        assert_eq!(contents(&*survivor), model, "at {operations}");
        // Both are there again: in time each has everything, alone.
        let again = disk.crash(style, operations);
        let store = open(&again).unwrap();
        assert_eq!(contents(&*store), model, "at {operations}");
        store.put(b"elm", b"after", Durability::Synced).unwrap();
        let mut after = model.clone();
        after.insert(b"elm".to_vec(), b"after".to_vec());
        bring_up_to_date(&*store);
        assert_eq!(number(&*store, "members_current"), 2);
        for lost in [0, 1] {
            let alone = again.crash(CrashStyle::NothingUnsynced, operations);
            let store = open_without(&alone, lost).unwrap();
            assert_eq!(contents(&*store), after, "at {operations}, without {lost}");
            assert!(store.check(&()).unwrap().is_sound());
        }
    }
    is_whole
}

#[test]
fn a_member_that_was_left_behind_is_not_opened_alone() {
    let disk = disk(1, 512);
    create(&disk).close().unwrap();
    let store = open_without(&disk, 1).unwrap();
    store.put(b"oak", b"one", Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    let refused = open_without(&disk, 0).err().unwrap().to_string();
    assert!(
        refused.contains("/two") && refused.contains("stale"),
        "{refused}"
    );
    let environment = Environment::simulated(&disk, 3);
    let check = Alphard
        .check(&environment, path(), &Default::default(), &())
        .unwrap();
    assert!(check.is_sound() && check.is_degraded());
    let notes: Vec<&str> = check
        .findings
        .iter()
        .filter(|found| found.kind == FindingKind::Degraded)
        .map(|found| found.what.as_str())
        .collect();
    assert!(notes.iter().any(|note| note.contains("stale")), "{notes:?}");
    let mut text = Vec::new();
    Alphard.inspect(&environment, path(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("/one, current") && text.contains("/two, stale"),
        "{text}"
    );
}

#[test]
fn members_that_were_written_to_apart_are_refused() {
    let disk = disk(1, 512);
    create(&disk).close().unwrap();
    let said = disk.contents(Path::new("/store/members")).unwrap();
    for (lost, values) in [(1, &["one"][..]), (0, &["first", "two"])] {
        let store = open_without(&disk, lost).unwrap();
        for value in values {
            store
                .put(b"oak", value.as_bytes(), Durability::Synced)
                .unwrap();
        }
        store.close().unwrap();
        drop(store);
        // As if the folder had been restored from a backup between the two.
        assert!(disk.replace_contents(Path::new("/store/members"), &said));
    }
    let refused = open(&disk).err().unwrap().to_string();
    assert!(
        refused.contains("without the other") && refused.contains("/two has the newer writes"),
        "{refused}"
    );
    // What it says to do, done: the other one is a blank device then.
    let zeros = vec![0; 128 << 10];
    assert!(disk.replace_contents(Path::new(MEMBERS[0]), &zeros));
    let environment = Environment::simulated(&disk, 3);
    let report = Alphard
        .repair(&environment, path(), &Default::default(), &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
    let store = open_without(&disk, 1).unwrap();
    assert_eq!(store.get(b"oak").unwrap().unwrap(), b"two");
}

#[test]
fn a_blank_device_in_place_of_a_lost_one_is_made_a_mirror_by_repair() {
    let disk = disk(1, 4096);
    let store = create(&disk);
    store.put(b"oak", &[7; 5_000], Durability::Synced).unwrap();
    drop(store);
    assert!(disk.replace_contents(Path::new(MEMBERS[1]), &vec![0; 128 << 10]));
    let store = open(&disk).unwrap();
    assert_eq!(
        number(&*store, "members_current"),
        1,
        "a blank one is not taken by itself"
    );
    store.put(b"elm", b"two", Durability::Synced).unwrap();
    let check = store.check(&()).unwrap();
    assert!(check.is_sound() && check.is_degraded(), "{check:?}");
    store.close().unwrap();
    drop(store);
    let environment = Environment::simulated(&disk, 3);
    let check = Alphard
        .check(&environment, path(), &Default::default(), &())
        .unwrap();
    assert!(
        check
            .findings
            .iter()
            .any(|found| found.kind == FindingKind::Degraded && found.what.contains("missing"))
    );
    assert!(
        Alphard
            .repair(&environment, path(), &Default::default(), &())
            .unwrap()
            .is_sound()
    );
    let store = open_without(&disk, 0).unwrap();
    assert_eq!(store.get(b"oak").unwrap().unwrap(), [7; 5_000]);
    assert_eq!(store.get(b"elm").unwrap().unwrap(), b"two");
}

#[test]
fn swapped_and_foreign_members_are_refused() {
    let disk = disk(1, 512);
    create(&disk).close().unwrap();
    let bytes = MEMBERS.map(|member| disk.contents(Path::new(member)).unwrap());
    let put = |member: usize, bytes: &[u8]| {
        assert!(disk.replace_contents(Path::new(MEMBERS[member]), bytes));
    };
    put(0, &bytes[1]);
    put(1, &bytes[0]);
    let refused = open(&disk).err().unwrap().to_string();
    assert!(
        refused.contains("member 2") && refused.contains("swapped"),
        "{refused}"
    );
    // The same one twice.
    put(1, &bytes[1]);
    let refused = open(&disk).err().unwrap().to_string();
    assert!(refused.contains("there twice"), "{refused}");
    put(0, &bytes[0]);
    let store = open(&disk).unwrap();
    assert_eq!(number(&*store, "members_current"), 2);
    drop(store);
    // Another store's.
    let foreign = SimulatedDisk::new(9);
    for member in MEMBERS {
        foreign.add_device(Path::new(member), 128 << 10, 512);
    }
    let environment = Environment::simulated(&foreign, 77);
    let pair = options(&[("device", MEMBERS[0]), ("mirror", MEMBERS[1])]);
    Alphard.create(&environment, path(), &pair).unwrap();
    put(1, &foreign.contents(Path::new(MEMBERS[1])).unwrap());
    let refused = open(&disk).err().unwrap().to_string();
    assert!(refused.contains("this belongs to store"), "{refused}");
}

#[test]
fn pairs_that_do_not_fit_are_refused_when_made() {
    let disk = SimulatedDisk::new(1);
    disk.add_device(Path::new("/one"), 128 << 10, 512);
    disk.add_device(Path::new("/two"), 256 << 10, 512);
    let environment = Environment::simulated(&disk, 1);
    let make = |pairs: &[(&str, &str)]| Alphard.create(&environment, path(), &options(pairs));
    let unlike = make(&[("device", "/one"), ("mirror", "/two")]);
    let text = unlike.err().unwrap().to_string();
    assert!(text.contains("131072 and 262144"), "{text}");
    let same = make(&[("device", "/one"), ("mirror", "/one")]);
    let text = same.err().unwrap().to_string();
    assert!(text.contains("mirror") || text.contains("in use"), "{text}");
    let both = [
        ("device", "/one"),
        ("mirror", "/two"),
        ("size", "131072"),
        ("force", "on"),
    ];
    let store = make(&both).unwrap();
    store.put(b"oak", b"one", Durability::Synced).unwrap();
    assert_eq!(number(&*store, "size_bytes"), 128 << 10);
}

#[test]
fn a_damaged_entry_is_read_from_the_other_member_and_mended() {
    for member in [0, 1] {
        let disk = disk(1, 512);
        let store = create(&disk);
        let key = b"a key of more than seven bytes";
        store.put(key, &[7; 3_000], Durability::Synced).unwrap();
        store.put(b"elm", b"whole", Durability::Synced).unwrap();
        for offset in [20, 70, 600, 2_900] {
            let place = Path::new(MEMBERS[member]);
            assert!(disk.flip_bit(place, 8_192 + offset, 3));
            let check = store.check(&()).unwrap();
            let found: Vec<_> = check
                .findings
                .iter()
                .map(|found| found.file.as_path())
                .collect();
            assert_eq!(found, [place], "at {offset}");
            // Members are read in turn: two reads meet both.
            for _ in 0..2 {
                assert_eq!(store.get(key).unwrap().unwrap(), [7; 3_000]);
            }
            bring_up_to_date(&*store);
            assert!(store.check(&()).unwrap().is_sound(), "mended, at {offset}");
        }
        assert_eq!(number(&*store, "entries_mended"), 4);
        assert_eq!(number(&*store, "members_current"), 2);
    }
}

#[test]
fn repair_takes_what_either_member_has() {
    let disk = disk(1, 512);
    let store = create(&disk);
    for key in 0..20u8 {
        store.put(&[key], &[key; 900], Durability::Synced).unwrap();
    }
    let before = contents(&*store);
    // After a crash the last write may be on one of them only; not after a close.
    store.close().unwrap();
    drop(store);
    // Each block of two: the odd ones here, the even ones there.
    for key in 0..20u64 {
        let member = Path::new(MEMBERS[key as usize % 2]);
        assert!(disk.flip_bit(member, 8_192 + key * 1_024 + 700, 1));
    }
    let environment = Environment::simulated(&disk, 3);
    let damage = Alphard
        .check(&environment, path(), &Default::default(), &())
        .unwrap();
    let damaged = damage
        .findings
        .iter()
        .filter(|found| found.kind == FindingKind::Damage);
    assert_eq!(damaged.count(), 20);
    assert!(
        Alphard
            .repair(&environment, path(), &Default::default(), &())
            .unwrap()
            .is_sound()
    );
    for lost in [0, 1] {
        let store = open_without(&disk.fork(), lost).unwrap();
        assert_eq!(contents(&*store), before);
    }
}

#[test]
fn a_stale_member_is_brought_up_to_date_while_writes_go_on() {
    for seed in 0..40 {
        let disk = disk(seed, 512);
        let store = create(&disk);
        for key in 0..15u8 {
            store.put(&[key], &[1; 1_500], Durability::Synced).unwrap();
        }
        store.close().unwrap();
        drop(store);
        let mut model = BTreeMap::new();
        let store = open_without(&disk, 0).unwrap();
        for key in 0..15u8 {
            store.put(&[key], &[2; 1_400], Durability::Synced).unwrap();
            model.insert(vec![key], vec![2; 1_400]);
        }
        drop(store);
        let store = open(&disk).unwrap();
        let mut round = 0u8;
        while number(&*store, "members_current") < 2 {
            store.step(1_024).unwrap();
            let (key, value) = (vec![round % 15], vec![round; 700]);
            store.put(&key, &value, Durability::Synced).unwrap();
            model.insert(key, value);
            round = round.wrapping_add(1);
            if u64::from(round) == seed {
                // Half done, it is not opened alone.
                let alone = disk.crash(CrashStyle::Everything, seed);
                assert!(open_without(&alone, 1).is_err());
            }
        }
        assert!(round > 10, "{round}");
        let alone = disk.crash(CrashStyle::NothingUnsynced, seed);
        let store = open_without(&alone, 1).unwrap();
        assert_eq!(contents(&*store), model);
    }
}
