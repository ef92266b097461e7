//! A disk that is full to its last block: deletes and a compaction make room on it, with
//! what the store held back, alone, after a crash and in the middle of one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use cambium_api::{CompactOptions, Durability, Engine, EngineKind, OptionValues, WriteBatch};
use cambium_base::Result;
use cambium_io::simulated::{CrashStyle, IdleExecutor, ProbePoints, SimulatedDisk};
use cambium_io::{Environment, FileSystem, OpenOptions, Space, StepOutcome};
use cambium_testkit::Subject;
use cambium_testkit::full_disk::fill_and_empty_with_patience;
use cambium_testkit::golden::contents;
use cambium_testkit::layer::{FileSystemLayer, Layered};
use cambium_testkit::stores;
use cambium_wisckey::Wisckey;

use crate::support::number;

const FOLDER: &str = "/store";

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn small() -> OptionValues {
    OptionValues::from([
        ("segment_bytes", "128KiB"),
        ("preallocate_bytes", "16KiB"),
        ("write_buffer_bytes", "16KiB"),
        ("inline_bytes", "8"),
        ("table_bytes", "16KiB"),
        ("level_base_bytes", "64KiB"),
    ])
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    let mut bytes = vec![number as u8; 600 + number as usize % 300];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Puts until the disk refuses one, and smaller ones until it refuses those.
fn fill_with_puts(store: &dyn Engine, state: &mut State) {
    let mut put = |key: Vec<u8>, value: Vec<u8>| {
        let written = store.put(&key, &value, Durability::Written);
        let is_full = written.as_ref().is_err_and(|error| error.is_no_space());
        assert!(is_full || written.is_ok(), "{written:?}");
        if !is_full {
            state.insert(key, value);
        }
        !is_full
    };
    let mut numbers = 0..;
    while numbers
        .next()
        .is_some_and(|number| put(key(number), value(number)))
    {}
    let mut numbers = 0u32..;
    let small = |number: u32| number.to_be_bytes().to_vec();
    while numbers
        .next()
        .is_some_and(|number| put(small(number), small(number)))
    {}
    assert!(state.len() > 100, "{}", state.len());
}

/// Takes whatever the disk still has, to the last block.
fn take_the_rest(environment: &Environment, path: &Path) {
    let file = environment
        .file_system
        .open(path, OpenOptions::CREATE)
        .unwrap();
    let mut end = file.length().unwrap();
    for bytes in [64 << 10, 4096, 512] {
        while file.write_at(&vec![0xa5; bytes], end).is_ok() {
            end += bytes as u64;
            assert!(end < 1 << 30, "the disk is not full");
        }
    }
    file.sync_data().unwrap();
}

/// Every key but one in four is deleted, and the store compacted; where the disk takes no
/// more deletes, in between too.
fn delete_most(store: &dyn Engine, state: &mut State) -> Result<()> {
    let doomed = state.keys().enumerate().filter(|(place, _)| place % 4 != 0);
    let doomed: Vec<Vec<u8>> = doomed.map(|(_, key)| key.clone()).collect();
    let mut is_compacted = false;
    let mut rest = doomed.iter().peekable();
    while let Some(&key) = rest.peek() {
        match store.delete(key, Durability::Written) {
            Err(error) if error.is_no_space() && !is_compacted => {
                store.compact(&CompactOptions::default(), &())?;
                is_compacted = true;
            }
            deleted => {
                deleted?;
                (is_compacted, _) = (false, rest.next());
                state.remove(key);
            }
        }
    }
    store.compact(&CompactOptions::default(), &())?;
    Ok(())
}

fn assert_same(store: &dyn Engine, state: &State) {
    let found = contents(store);
    let expected = state
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()));
    assert!(found.into_iter().eq(expected), "entries differ");
}

/// Room is made on a full disk, and is there for new values then.
fn make_room(store: &dyn Engine, state: &mut State) {
    delete_most(store, state).unwrap();
    assert_same(store, state);
    for number in 0..state.len() as u32 / 2 {
        let key = [b"new ".as_slice(), &number.to_be_bytes()].concat();
        store
            .put(&key, &value(number), Durability::Written)
            .unwrap();
        state.insert(key, value(number));
    }
    assert_same(store, state);
    assert!(number(store, "reserve_bytes") > 0, "it was not taken again");
}

fn full(seed: u64) -> (SimulatedDisk, Environment, Arc<dyn Engine>, State) {
    let disk = SimulatedDisk::new(seed);
    disk.set_capacity(Some(6 << 20));
    let environment = Environment::simulated(&disk, seed);
    let store = stores::create(&Wisckey, &environment, &small());
    let mut state = State::new();
    fill_with_puts(&*store, &mut state);
    take_the_rest(&environment, Path::new("/filler"));
    (disk, environment, store, state)
}

fn open(environment: &Environment) -> Arc<dyn Engine> {
    stores::open(&Wisckey, environment, &small())
}

fn is_sound(environment: &Environment) {
    let report = Wisckey
        .check(environment, Path::new(FOLDER), &Default::default(), &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn a_full_disk_takes_deletes_and_a_compaction_and_has_room_again() {
    let (_disk, environment, store, mut state) = full(1);
    assert!(number(&*store, "reserve_bytes") > 0);
    make_room(&*store, &mut state);
    assert!(number(&*store, "reserve_opened") > 0);
    store.close().unwrap();
    is_sound(&environment);
    assert_same(&*open(&environment), &state);
}

/// A second and a third compaction find a tree and a reserve of other sizes. In the first
/// capacity merged tables took the reserve until all were merged; in the others, write
/// buffers that pointers of moved values filled were more than the reserve could flush.
#[test]
fn a_disk_that_is_full_again_and_again_has_room_each_time() {
    for kibibytes in [24_656, 24_068, 28_104] {
        let disk = SimulatedDisk::new(7);
        disk.set_capacity(Some(kibibytes << 10));
        let environment = Environment::simulated(&disk, 7);
        let store = stores::create(&Wisckey, &environment, &small());
        let mut state = State::new();
        fill_with_puts(&*store, &mut state);
        for _ in 0..3 {
            take_the_rest(&environment, Path::new("/filler"));
            make_room(&*store, &mut state);
        }
    }
}

#[test]
fn without_a_reserve_a_full_disk_takes_no_delete() {
    let disk = SimulatedDisk::new(1);
    disk.set_capacity(Some(6 << 20));
    let environment = Environment::simulated(&disk, 1);
    let mut options = small();
    options.set("reserve_bytes", "0");
    let store = stores::create(&Wisckey, &environment, &options);
    let mut state = State::new();
    fill_with_puts(&*store, &mut state);
    take_the_rest(&environment, Path::new("/filler"));
    assert!(delete_most(&*store, &mut state).unwrap_err().is_no_space());
    assert_same(&*store, &state);
}

#[test]
fn puts_do_not_get_what_was_opened_for_making_room() {
    let (_disk, environment, store, mut state) = full(2);
    let before = number(&*store, "reserve_opened");
    let mut deleted = 0;
    while number(&*store, "reserve_opened") == before {
        store.delete(&key(deleted), Durability::Written).unwrap();
        state.remove(&key(deleted));
        deleted += 1;
    }
    // What that left is held again, all of it.
    let space = environment.file_system.space(Path::new(FOLDER)).unwrap();
    assert!(space.available < 16 << 10, "{}", space.available);
    for number in 0..3 {
        let refused = store.put(
            &key(number),
            b"a value that is not inline",
            Durability::Written,
        );
        assert!(refused.unwrap_err().is_no_space());
    }
    assert_same(&*store, &state);
    make_room(&*store, &mut state);
}

#[test]
fn a_full_store_that_is_opened_again_has_its_reserve_still() {
    for killed in [false, true] {
        let (disk, environment, store, mut state) = full(3);
        let environment = if killed {
            drop(store);
            Environment::simulated(&disk.process_crash(), 4)
        } else {
            store.close().unwrap();
            drop(store);
            environment
        };
        take_the_rest(&environment, Path::new("/filler"));
        let store = open(&environment);
        assert_same(&*store, &state);
        make_room(&*store, &mut state);
        store.close().unwrap();
        is_sound(&environment);
    }
}

#[test]
fn power_may_fail_at_any_point_while_room_is_made() {
    let (disk, _environment, store, mut state) = full(5);
    let doomed = state.keys().enumerate().filter(|(place, _)| place % 4 != 0);
    let doomed: Vec<Vec<u8>> = doomed.map(|(_, key)| key.clone()).collect();
    for key in &doomed[..1_000] {
        store.delete(key, Durability::Written).unwrap();
        state.remove(key);
    }
    store.sync().unwrap();
    let crashed: Arc<Mutex<Vec<SimulatedDisk>>> = Arc::default();
    let (copies, mut moments) = (crashed.clone(), 0);
    disk.set_crash_probe(ProbePoints::Operations, move |point| {
        moments += 1;
        if moments % 7 == 0 {
            let style = [CrashStyle::NothingUnsynced, CrashStyle::Mixed][moments % 2];
            let crashed = point.disk.crash(style, moments as u64);
            copies.lock().unwrap().push(crashed);
        }
    });
    store.compact(&CompactOptions::default(), &()).unwrap();
    disk.clear_crash_probe();
    let crashed = std::mem::take(&mut *crashed.lock().unwrap());
    assert!(crashed.len() > 5, "{}", crashed.len());
    for disk in crashed {
        let environment = Environment::simulated(&disk, 9);
        take_the_rest(&environment, Path::new("/filler"));
        let store = open(&environment);
        assert_same(&*store, &state);
        make_room(&*store, &mut state.clone());
        store.close().unwrap();
        is_sound(&environment);
    }
}

#[test]
fn a_reserve_that_a_copy_has_left_out_is_no_reserve() {
    let disk = SimulatedDisk::new(6);
    let environment = Environment::simulated(&disk, 6);
    let store = stores::create(&Wisckey, &environment, &small());
    store.put(b"oak", b"acorn", Durability::Synced).unwrap();
    let held = number(&*store, "reserve_bytes");
    assert!(held > 0);
    store.close().unwrap();
    drop(store);
    let path = Path::new(FOLDER).join("reserve");
    let file = environment.file_system.open(&path, OpenOptions::WRITE);
    let file = file.unwrap();
    file.set_length(0).unwrap();
    file.set_length(held).unwrap();
    let store = open(&environment);
    assert_eq!(number(&*store, "reserve_bytes"), 0, "it has a length only");
    store.put(b"elm", b"samara", Durability::Synced).unwrap();
    assert_eq!(number(&*store, "reserve_bytes"), held, "it is held anew");
    let file = environment.file_system.open(&path, OpenOptions::READ);
    assert!(file.unwrap().allocated_bytes().unwrap() >= held);
}

#[test]
fn a_full_store_flushes_by_itself_where_deletes_fill_write_buffers() {
    let (disk, _environment, store, mut state) = full(5);
    let doomed: Vec<Vec<u8>> = state.keys().step_by(3).cloned().collect();
    let mut batch = WriteBatch::new();
    for key in &doomed[..1_400] {
        batch.delete(key);
        state.remove(key);
    }
    store.write(batch, Durability::Synced).unwrap();
    let disk = disk.crash(CrashStyle::NothingUnsynced, 1);
    let environment = Environment::simulated(&disk, 9);
    take_the_rest(&environment, Path::new("/filler"));
    let store = open(&environment);
    assert_same(&*store, &state);
    make_room(&*store, &mut state);
}

/// A mounted file system that is unmounted when dropped.
struct SmallDisk {
    mount: PathBuf,
    // Dropped after the unmount: the image lies in it.
    _folder: tempfile::TempDir,
}

impl SmallDisk {
    fn new() -> std::result::Result<SmallDisk, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (image, mount) = (folder.path().join("image"), folder.path().join("mount"));
        std::fs::create_dir(&mount).map_err(|error| error.to_string())?;
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(32 << 20))
            .map_err(|error| error.to_string())?;
        run(Command::new("mkfs.ext4")
            .args(["-q", "-m", "0"])
            .arg(&image))?;
        let mut command = Command::new("mount");
        run(command.args(["-o", "loop"]).args([&image, &mount]))?;
        Ok(SmallDisk {
            mount,
            _folder: folder,
        })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("umount").arg(&self.mount)) {
            println!("{} stays mounted: {error}", self.mount.display());
        }
    }
}

fn run(command: &mut Command) -> std::result::Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    }
}

#[test]
fn a_real_disk_that_is_full_has_room_again_too() {
    // While background work has the reserve open, the filler would have it.
    fill_a_real_disk(&Environment {
        executor: Arc::new(IdleExecutor),
        ..Environment::real()
    });
}

#[test]
fn a_real_disk_has_room_again_with_background_work_too() {
    fill_a_real_disk(&Environment::real());
}

/// Waits until nothing takes or gives space, so that the reserve is held.
fn wait_for_quiet(environment: &Environment, path: &Path) {
    let mut same = 0;
    let mut before = 0;
    for _ in 0..400 {
        let now = environment.file_system.space(path).unwrap().available;
        same = if now == before { same + 1 } else { 0 };
        before = now;
        if same == 25 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn fill_a_real_disk(environment: &Environment) {
    let disk = match SmallDisk::new() {
        Ok(disk) => disk,
        Err(reason) => {
            println!("SKIPPED: no small disk to fill: {reason}");
            return;
        }
    };
    let path = disk.mount.join("store");
    let store = Wisckey.create(environment, &path, &small()).unwrap();
    let mut state = State::new();
    fill_with_puts(&*store, &mut state);
    wait_for_quiet(environment, &disk.mount);
    take_the_rest(environment, &disk.mount.join("filler"));
    make_room(&*store, &mut state);
    wait_for_quiet(environment, &disk.mount);
    take_the_rest(environment, &disk.mount.join("filler"));
    store.close().unwrap();
    drop(store);
    let store = Wisckey.open(environment, &path, &small(), &()).unwrap();
    make_room(&*store, &mut state);
    for number in 0..5_000 {
        let key = key(number);
        store
            .put(&key, &value(number), Durability::Written)
            .unwrap();
        state.insert(key, value(number));
    }
    assert_same(&*store, &state);
    store.close().unwrap();
    drop(store);
    let report = Wisckey
        .check(environment, &path, &Default::default(), &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn a_store_that_has_filled_its_disk_opens_deletes_and_gives_space_back() {
    let subject = Subject::new(&Wisckey).opening("segment_bytes", "1MiB");
    fill_and_empty_with_patience(&subject, 0..10).unwrap();
}

/// A large disk of which little is free, as shares go.
#[derive(Debug)]
struct LargeDisk(Arc<dyn FileSystem>, u64);

impl FileSystemLayer for LargeDisk {
    fn below(&self) -> &dyn FileSystem {
        &*self.0
    }

    fn space(&self, _path: &Path) -> Result<Space> {
        Ok(Space {
            available: self.1,
            total: 256 << 30,
        })
    }
}

#[test]
fn a_large_disk_is_nearly_full_by_its_free_bytes() {
    let held_with = |free: u64| {
        let environment = Environment::memory();
        let disk = Layered(LargeDisk(environment.file_system.clone(), free));
        let environment = Environment {
            file_system: Arc::new(disk),
            ..environment
        };
        let store = stores::create(&Wisckey, &environment, &small());
        for round in 0..2_000 {
            let (key, value) = (key(round), value(round));
            store.put(&key, &value, Durability::Written).unwrap();
        }
        while store.step(1 << 20).unwrap() == StepOutcome::Again {}
        number(&*store, "reserve_bytes")
    };
    assert!(held_with(18 << 30) <= 256 << 10);
    assert!(held_with(512 << 20) > 256 << 10);
}
