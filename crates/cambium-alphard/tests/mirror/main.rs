//! Two members: crashed everywhere, either of them lost at any point, back again,
//! damaged, swapped, apart.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod away;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use away::{Forsaken, MEMBERS, without};
use cambium_alphard::Alphard;
use cambium_api::{Durability, Engine, EngineKind, Error, FindingKind, OptionValues, Result};
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_io::{Environment, File, FileLock, FileSystem, LockMode, OpenOptions, StepOutcome};
use cambium_testkit::crash::{FAULTS, POWER_CUTS};
use cambium_testkit::layer::{FileSystemLayer, Layered};
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
    let pair = options(&[("device", MEMBERS[0]), ("mirror", MEMBERS[1])]);
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

fn contents(store: &dyn Engine) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut cursor = store.iterate(Default::default(), None).unwrap();
    let mut found = BTreeMap::new();
    while let Some(entry) = cursor.next().unwrap() {
        found.insert(entry.key.to_vec(), entry.value.to_vec());
    }
    found
}

fn number(store: &dyn Engine, name: &str) -> u64 {
    store.stats().unwrap().number(name).unwrap()
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
    let threaded = || Environment {
        executor: Environment::real().executor,
        ..Environment::memory()
    };
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
        let suite = over(&Forsaken, "either_member_can_be_away_at_any_opening").states(20_000);
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
    let check = Alphard.check(&environment, path(), &()).unwrap();
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
    for (lost, value) in [(1, b"one"), (0, b"two")] {
        let store = open_without(&disk, lost).unwrap();
        store.put(b"oak", value, Durability::Synced).unwrap();
        store.close().unwrap();
        drop(store);
        // As if the folder had been restored from a backup between the two.
        assert!(disk.replace_contents(Path::new("/store/members"), &said));
    }
    let refused = open(&disk).err().unwrap().to_string();
    assert!(refused.contains("without the other"), "{refused}");
    // What it says to do, done: the other one is a blank device then.
    let zeros = vec![0; 128 << 10];
    assert!(disk.replace_contents(Path::new(MEMBERS[0]), &zeros));
    let environment = Environment::simulated(&disk, 3);
    let report = Alphard.repair(&environment, path(), &()).unwrap();
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
    let check = Alphard.check(&environment, path(), &()).unwrap();
    assert!(
        check
            .findings
            .iter()
            .any(|found| found.kind == FindingKind::Degraded && found.what.contains("missing"))
    );
    assert!(
        Alphard
            .repair(&environment, path(), &())
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
    let damage = Alphard.check(&environment, path(), &()).unwrap();
    let damaged = damage
        .findings
        .iter()
        .filter(|found| found.kind == FindingKind::Damage);
    assert_eq!(damaged.count(), 20);
    assert!(
        Alphard
            .repair(&environment, path(), &())
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

/// A pair of files of 64 KiB with some entries, closed.
fn pair_of_files(disk: &SimulatedDisk) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let environment = Environment::simulated(disk, 1);
    let pair = options(&[("size", "65536"), ("mirror", "/mirror")]);
    let store = Alphard.create(&environment, path(), &pair).unwrap();
    for key in 0..20u8 {
        let value = vec![key; 1_500];
        store.put(&[key], &value, Durability::Synced).unwrap();
    }
    let written = contents(&*store);
    store.close().unwrap();
    written
}

#[test]
fn a_member_with_no_room_to_be_extended_is_as_good_as_before() {
    let disk = SimulatedDisk::new(1);
    let model = pair_of_files(&disk);
    let environment = Environment::simulated(&disk, 1);
    let lengths = || {
        ["/store/data", "/mirror"].map(|path| {
            let found = environment.file_system.metadata(Path::new(path)).unwrap();
            found.unwrap().length
        })
    };
    // Room for the one, and not for the other.
    disk.set_capacity(Some(512 << 10));
    let store = open(&disk).unwrap();
    let mut extended = cambium_api::CompactOptions::default();
    extended.settings.set("size", "327680");
    let error = store.compact(&extended, &()).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert_eq!(lengths(), [65_536; 2]);
    assert_eq!(number(&*store, "members_current"), 2);
    assert_eq!(number(&*store, "size_bytes"), 65_536);
    disk.set_capacity(None);
    store.compact(&extended, &()).unwrap();
    assert_eq!(number(&*store, "size_bytes"), 327_680);
    drop(store);
    let store = open(&disk.crash(CrashStyle::NothingUnsynced, 1)).unwrap();
    assert_eq!(number(&*store, "members_current"), 2);
    assert_eq!(contents(&*store), model);
}

#[test]
fn a_full_pair_makes_room_though_a_member_is_copied_first() {
    let disk = SimulatedDisk::new(1);
    pair_of_files(&disk);
    let away = without(&Environment::simulated(&disk, 1), Path::new("/mirror"), 0);
    let store = open_in(&away).unwrap();
    store.put(b"since", b"then", Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    let store = open(&disk).unwrap();
    assert_eq!(number(&*store, "members_current"), 1);
    for round in 0..600u32 {
        let key = (1_000 + round % 7).to_be_bytes();
        // No step is taken in between.
        let put = store.put(&key, &[round as u8; 700], Durability::Written);
        assert!(put.is_ok(), "{round}: {put:?}");
        store.delete(&key, Durability::Written).unwrap();
    }
    assert_eq!(number(&*store, "members_current"), 2);
    assert_eq!(contents(&*store).len(), 21);
}

#[test]
fn a_member_that_was_cut_off_is_missed_and_repair_makes_it_whole() {
    for cut in ["/store/data", "/mirror"] {
        let disk = SimulatedDisk::new(1);
        let model = pair_of_files(&disk);
        let environment = Environment::simulated(&disk, 1);
        let file = environment
            .file_system
            .open(Path::new(cut), cambium_io::OpenOptions::WRITE);
        file.unwrap().set_length(20_480).unwrap();
        let store = open(&disk).unwrap();
        assert_eq!(contents(&*store), model, "{cut}");
        store.put(b"since", b"then", Durability::Synced).unwrap();
        assert_eq!(number(&*store, "members_current"), 1);
        store.close().unwrap();
        drop(store);
        let report = Alphard.check(&environment, path(), &()).unwrap();
        assert!(report.is_degraded(), "{report:?}");
        let report = Alphard.repair(&environment, path(), &()).unwrap();
        assert!(report.is_sound(), "{report:?}");
        let store = open(&disk).unwrap();
        assert_eq!(number(&*store, "members_current"), 2);
        // The other one is lost, and nothing with it.
        let other = if cut == "/mirror" {
            "/store/data"
        } else {
            "/mirror"
        };
        drop(store);
        let alone = without(&environment, Path::new(other), 0);
        let store = open_in(&alone).unwrap();
        let mut expected = model.clone();
        expected.insert(b"since".to_vec(), b"then".to_vec());
        assert_eq!(contents(&*store), expected, "{cut}");
    }
}

/// A file system in which one file is there and fails whatever is asked of it.
#[derive(Debug)]
struct Fails(Arc<dyn FileSystem>, &'static str);

impl Fails {
    fn on(&self, path: &Path) -> Result<&dyn FileSystem> {
        match path == Path::new(self.1) {
            true => Err(Error::io("use", path, std::io::Error::from_raw_os_error(5))),
            false => Ok(&*self.0),
        }
    }
}

impl FileSystemLayer for Fails {
    fn below(&self) -> &dyn FileSystem {
        &*self.0
    }
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.on(path)?.open(path, options)
    }
    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        self.on(path)?.lock(path, mode)
    }
}

#[test]
fn a_member_of_which_the_file_fails_is_missed() {
    for failing in ["/store/data", "/mirror"] {
        let disk = SimulatedDisk::new(1);
        let model = pair_of_files(&disk);
        let environment = Environment::simulated(&disk, 1);
        let file_system = Arc::new(Layered(Fails(environment.file_system.clone(), failing)));
        let store = open_in(&Environment {
            file_system,
            ..environment
        });
        let store = store.unwrap();
        assert_eq!(number(&*store, "members_current"), 1);
        assert_eq!(contents(&*store), model, "{failing}");
    }
}

#[test]
fn a_member_that_is_there_under_two_names_is_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::real();
    let store = folder.path().join("store");
    let mirror = folder.path().join("mirror");
    let pair = options(&[("size", "65536"), ("mirror", mirror.to_str().unwrap())]);
    let made = Alphard.create(&environment, &store, &pair).unwrap();
    made.close().unwrap();
    drop(made);
    std::fs::remove_file(&mirror).unwrap();
    std::fs::hard_link(store.join("data"), &mirror).unwrap();
    let open = || Alphard.open(&environment, &store, &OptionValues::default(), &());
    let refused = open().err().unwrap().to_string();
    assert!(refused.contains("twice"), "{refused}");
}

#[test]
fn repair_of_a_pair_of_which_both_were_cut_off_keeps_what_either_has() {
    for lengths in [[32_768, 12_288], [12_288, 32_768], [20_480, 20_480]] {
        let disk = SimulatedDisk::new(1);
        let model = pair_of_files(&disk);
        let environment = Environment::simulated(&disk, 1);
        for (member, length) in ["/store/data", "/mirror"].into_iter().zip(lengths) {
            let file = environment
                .file_system
                .open(Path::new(member), cambium_io::OpenOptions::WRITE);
            file.unwrap().set_length(length).unwrap();
        }
        assert!(open(&disk).is_err(), "an opening takes what is whole");
        // What the longer one alone has: all that lies before its end.
        let expected = {
            let alone = disk.fork();
            let files = &Environment::simulated(&alone, 1).file_system;
            let longer = usize::from(lengths[1] > lengths[0]);
            let other = ["/mirror", "/store/data"][longer];
            files.remove(Path::new(other)).unwrap();
            Alphard
                .repair(&Environment::simulated(&alone, 1), path(), &())
                .unwrap();
            contents(&*open(&alone).unwrap())
        };
        assert!(expected.len() > 3 && expected.len() < model.len());
        let report = Alphard.repair(&environment, path(), &()).unwrap();
        assert!(!report.is_sound() && !report.is_degraded(), "{report:?}");
        let store = open(&disk).unwrap();
        assert_eq!(number(&*store, "members_current"), 2);
        assert_eq!(contents(&*store), expected, "{lengths:?}");
        drop(store);
        for away in ["/store/data", "/mirror"] {
            let alone = without(&Environment::simulated(&disk.fork(), 1), Path::new(away), 0);
            let store = open_in(&alone).unwrap();
            assert_eq!(contents(&*store), expected, "{lengths:?} without {away}");
        }
    }
}

#[test]
fn repair_says_which_member_it_could_not_take_and_takes_a_damaged_one_of_the_store() {
    let disk = disk(1, 512);
    let store = create(&disk);
    store.put(b"oak", &[7; 5_000], Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    let environment = Environment::simulated(&disk, 3);
    let member = Path::new(MEMBERS[1]);
    let sound = disk.contents(member).unwrap();
    // Somebody else's data: not for us to overwrite.
    assert!(disk.replace_contents(member, &vec![9; 128 << 10]));
    let report = Alphard.repair(&environment, path(), &()).unwrap();
    assert!(report.is_sound() && report.is_degraded(), "{report:?}");
    assert!(report.findings[0].what.contains("blank"), "{report:?}");
    assert_eq!(disk.contents(member).unwrap(), vec![9; 128 << 10]);
    // Ours, with both superblocks damaged.
    assert!(disk.replace_contents(member, &sound));
    assert!(disk.flip_bit(member, 60, 1) && disk.flip_bit(member, 4_156, 1));
    assert_eq!(number(&*open(&disk).unwrap(), "members_current"), 1);
    let report = Alphard.repair(&environment, path(), &()).unwrap();
    assert_eq!(report.findings, []);
    let store = open_without(&disk, 0).unwrap();
    assert_eq!(store.get(b"oak").unwrap().unwrap(), [7; 5_000]);
}

#[test]
fn a_stale_member_stands_for_the_store_only_once_a_blank_one_is_put_in_place_of_the_other() {
    let disk = disk(1, 512);
    let store = create(&disk);
    store.put(b"oak", b"both", Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    let store = open_without(&disk, 1).unwrap();
    store.put(b"elm", b"one", Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    let environment = Environment::simulated(&disk, 3);
    let repair = || Alphard.repair(&environment, path(), &());
    let member = Path::new(MEMBERS[0]);
    // Damaged is not gone: nothing of it is overwritten.
    assert!(disk.flip_bit(member, 60, 1) && disk.flip_bit(member, 4_156, 1));
    let damaged = disk.contents(member).unwrap();
    let refused = repair().unwrap_err().to_string();
    assert!(
        refused.contains("put a blank one in its place"),
        "{refused}"
    );
    assert_eq!(disk.contents(member).unwrap(), damaged);
    assert!(disk.replace_contents(member, &vec![0; 128 << 10]));
    assert!(open(&disk).is_err(), "an opening takes no blank one");
    let report = repair().unwrap();
    assert!(!report.is_sound() && !report.is_degraded(), "{report:?}");
    assert!(report.findings[0].what.contains("is lost"), "{report:?}");
    for away in [0, 1] {
        let store = open_without(&disk.fork(), away).unwrap();
        let expected = BTreeMap::from([(b"oak".to_vec(), b"both".to_vec())]);
        assert_eq!(contents(&*store), expected, "without {away}");
    }
    let store = open(&disk).unwrap();
    assert_eq!(number(&*store, "members_current"), 2);
}
