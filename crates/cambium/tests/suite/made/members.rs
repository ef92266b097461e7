//! Members of an `alphard` store that lie elsewhere while it is made.

use std::path::Path;
use std::sync::Arc;

use cambium::{Environment, engines};
use cambium_api::{Durability, EngineKind, Error, OptionValues};
use cambium_io::OpenOptions;
use cambium_io::simulated::{ErrorNumber, Fault, FaultRule, OperationClass, SimulatedDisk};

use super::{STORE, STYLES, contents, ending, open, repair, small, twenty};

fn alphard() -> Arc<dyn EngineKind> {
    let all = engines();
    let mut all = all.iter();
    all.find(|kind| kind.name() == "alphard").unwrap().clone()
}

#[test]
fn a_file_that_is_named_is_not_cut_off_without_force() {
    let alphard = alphard();
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let files = &environment.file_system;
    let path = Path::new("/file");
    let file = files.open(path, OpenOptions::CREATE_NEW).unwrap();
    file.write_at(b"somebody's", 300_000).unwrap();
    drop(file);
    let length = || files.metadata(path).unwrap().unwrap().length;
    let create = |pairs: &[(&'static str, &'static str)]| {
        let mut options = OptionValues::from([("device", "/file")]);
        for (name, value) in pairs {
            options.set(name, value);
        }
        alphard.create(&environment, Path::new(STORE), &options)
    };
    let refused = create(&[("size", "262144")]).map(|_| ());
    let error = refused.unwrap_err();
    assert!(error.to_string().contains("size=300010"), "{error}");
    assert_eq!(length(), 300_010);
    // As long as the file, in whole blocks, where nothing is said.
    let store = create(&[]).unwrap();
    let size = store.stats().unwrap().number("size_bytes").unwrap();
    assert!(size <= 300_010 && size > 300_010 - 4_096, "{size}");
    assert_eq!(length(), 300_010);
    store.close().unwrap();
    drop(store);
    files.remove(&Path::new(STORE).join("CAMBIUM")).unwrap();
    files.remove(&Path::new(STORE).join("members")).unwrap();
    create(&[("size", "131072"), ("force", "on")]).unwrap();
    assert_eq!(length(), 131_072);
}

#[test]
fn a_creation_with_a_mirror_elsewhere_can_be_made_again() {
    let alphard = alphard();
    let elsewhere = OptionValues::from([("size", "262144"), ("mirror", "/elsewhere/second")]);
    let mut was_made = 0;
    for left in 0.. {
        let source = SimulatedDisk::new(1);
        let files = Environment::simulated(&source, 1).file_system;
        files.create_directory(Path::new("/elsewhere")).unwrap();
        files.sync_directory(Path::new("/")).unwrap();
        let made = alphard.create(&ending(&source, left), Path::new(STORE), &elsewhere);
        let is_made = made.map(|_| ()).is_ok();
        for style in STYLES {
            let disk = source.crash(style, left);
            let environment = Environment::simulated(&disk, 2);
            let files = &environment.file_system;
            let marker = files.metadata(&Path::new(STORE).join("CAMBIUM")).unwrap();
            if marker.is_some() {
                continue;
            }
            let second = files.metadata(Path::new("/elsewhere/second")).unwrap();
            was_made += usize::from(second.is_some());
            let store = alphard.create(&environment, Path::new(STORE), &elsewhere);
            let store = store.unwrap_or_else(|error| panic!("{left}, {style:?}: {error}"));
            store.put(b"oak", b"kept", Durability::Synced).unwrap();
        }
        if is_made {
            break;
        }
    }
    assert!(was_made > 5, "{was_made}");
}

#[test]
fn a_member_of_a_store_is_not_taken_for_what_a_creation_left() {
    let alphard = alphard();
    let elsewhere = OptionValues::from([("size", "262144"), ("mirror", "/elsewhere")]);
    for left in 0..40 {
        let disk = SimulatedDisk::new(1);
        let environment = Environment::simulated(&disk, 1);
        let other = alphard.create(&environment, Path::new("/other"), &elsewhere);
        let other = other.unwrap();
        other.put(b"oak", b"kept", Durability::Synced).unwrap();
        other.close().unwrap();
        for environment in [ending(&disk, left), Environment::simulated(&disk, 2)] {
            let refused = alphard.create(&environment, Path::new(STORE), &elsewhere);
            assert!(refused.is_err(), "{left}: taken from another store");
        }
        let other = open(&*alphard, &disk, "/other").unwrap();
        assert_eq!(contents(&*other), [(b"oak".to_vec(), b"kept".to_vec())]);
    }
}

#[test]
fn a_store_that_is_written_over_in_vain_is_none() {
    let alphard = alphard();
    let mut options = small(&*alphard);
    options.set("force", "on");
    let (mut refused, mut spared) = (0, 0);
    // Some steps may fail; a creation has fewer than these.
    for nth in 1..80 {
        let disk = twenty(&*alphard);
        let whole = contents(&*open(&*alphard, &disk.fork(), STORE).unwrap());
        let environment = Environment::simulated(&disk, 2);
        let files = &environment.file_system;
        files.remove(&Path::new(STORE).join("CAMBIUM")).unwrap();
        disk.inject(FaultRule {
            class: OperationClass::Any,
            nth,
            forever: false,
            fault: Fault::Error(ErrorNumber::InputOutput),
        });
        let made = alphard.create(&environment, Path::new(STORE), &options);
        disk.clear_faults();
        let Err(_) = made.map(|store| store.close().unwrap()) else {
            assert!(contents(&*open(&*alphard, &disk, STORE).unwrap()).is_empty());
            continue;
        };
        refused += 1;
        match repair(&disk, STORE) {
            // Untouched, so it has all that it had.
            Ok(_) => {
                let store = open(&*alphard, &disk, STORE).unwrap();
                assert!(contents(&*store) == whole, "{nth}");
                spared += 1;
            }
            Err(error) => {
                let is_told = matches!(error, Error::NotAStore { .. });
                assert!(is_told, "{nth}: {error}");
                // The mirror may still have the superblock of the store that there was.
                let environment = Environment::simulated(&disk, 2);
                let made = alphard.create(&environment, Path::new(STORE), &options);
                made.unwrap().close().unwrap();
            }
        }
    }
    assert!(
        refused < 79 && refused > spared + 5 && spared > 0,
        "{refused}, {spared}"
    );
}

fn with(pairs: &[(&'static str, &'static str)]) -> OptionValues {
    let mut options = OptionValues::from([("size", "262144")]);
    for (name, value) in pairs {
        options.set(name, value);
    }
    options
}

/// The most changes after which making a store with these options still fails.
fn last_change(alphard: &dyn EngineKind, source: &SimulatedDisk, options: &OptionValues) -> u64 {
    let fails = |left: &u64| {
        let disk = source.fork();
        let made = alphard.create(&ending(&disk, *left), Path::new(STORE), options);
        made.is_err()
    };
    (0..).take_while(fails).last().unwrap()
}

/// A disk with a folder for a mirror.
fn with_elsewhere() -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    let files = Environment::simulated(&disk, 1).file_system;
    files.create_directory(Path::new("/elsewhere")).unwrap();
    files.sync_directory(Path::new("/")).unwrap();
    disk
}

#[test]
fn a_creation_can_be_cut_off_twice() {
    let alphard = alphard();
    for mirror in ["/elsewhere/second", "second", "./second"] {
        let options = with(&[("mirror", mirror)]);
        let source = with_elsewhere();
        let most = last_change(&*alphard, &source, &options);
        for first in 0..=most {
            for second in (0..=most).step_by(3) {
                let disk = source.fork();
                for left in [first, second] {
                    let world = ending(&disk, left);
                    _ = alphard.create(&world, Path::new(STORE), &options);
                }
                let environment = Environment::simulated(&disk, 2);
                let marker = Path::new(STORE).join("CAMBIUM");
                if environment.file_system.metadata(&marker).unwrap().is_some() {
                    continue;
                }
                let made = alphard.create(&environment, Path::new(STORE), &options);
                let store = made.unwrap_or_else(|e| panic!("{mirror}, {first}, {second}: {e}"));
                store.put(b"oak", b"kept", Durability::Synced).unwrap();
            }
        }
    }
}

#[test]
fn a_creation_that_fails_leaves_a_blank_place_blank() {
    let alphard = alphard();
    let options = with(&[("device", "/elsewhere/one"), ("mirror", "/elsewhere/two")]);
    for nth in 1..80 {
        let disk = with_elsewhere();
        let environment = Environment::simulated(&disk, 1);
        for place in ["/elsewhere/one", "/elsewhere/two"] {
            let file = environment
                .file_system
                .open(Path::new(place), OpenOptions::CREATE);
            file.unwrap().set_length(262_144).unwrap();
        }
        disk.inject(FaultRule {
            class: OperationClass::Any,
            nth,
            forever: false,
            fault: Fault::Error(ErrorNumber::InputOutput),
        });
        let made = alphard.create(&environment, Path::new(STORE), &options);
        disk.clear_faults();
        if made.map(|_| ()).is_err() {
            // Not by force.
            let again = alphard.create(&environment, Path::new(STORE), &options);
            again.unwrap_or_else(|error| panic!("{nth}: {error}"));
        }
    }
}

#[test]
fn whoever_is_refused_takes_nobody_elses_mirror_back() {
    let alphard = alphard();
    let options = with(&[("mirror", "/elsewhere/second")]);
    let disk = with_elsewhere();
    let environment = Environment::simulated(&disk, 1);
    let store = alphard.create(&environment, Path::new(STORE), &options);
    let store = store.unwrap();
    store.put(b"oak", b"kept", Durability::Synced).unwrap();
    for is_open in [true, false] {
        if !is_open {
            store.close().unwrap();
        }
        let refused = alphard.create(&environment, Path::new("/another"), &options);
        assert!(refused.is_err());
        assert!(disk.contents(Path::new("/elsewhere/second")).is_some());
    }
    let store = open(&*alphard, &disk, STORE).unwrap();
    assert!(store.check(&()).unwrap().is_sound());
}

#[test]
fn a_device_that_was_written_to_since_is_not_taken_for_what_a_creation_left() {
    let alphard = alphard();
    let options = with(&[("device", "/elsewhere/one")]);
    let disk = with_elsewhere();
    let environment = Environment::simulated(&disk, 1);
    let files = &environment.file_system;
    let file = files.open(Path::new("/elsewhere/one"), OpenOptions::CREATE);
    file.unwrap().set_length(262_144).unwrap();
    let most = last_change(&*alphard, &disk, &options);
    // All but the folder's last sync and the rename before it.
    let cut_off = alphard.create(&ending(&disk, most - 1), Path::new(STORE), &options);
    assert!(cut_off.is_err());
    // Somebody copies the folder; then making the store comes to its end after all.
    let said = Path::new(STORE).join("CAMBIUM.new");
    files.create_directory(Path::new("/copy")).unwrap();
    let copied = files.open(Path::new("/copy/CAMBIUM.new"), OpenOptions::CREATE);
    let copied = copied.unwrap();
    copied.write_at(&disk.contents(&said).unwrap(), 0).unwrap();
    files
        .rename(&said, &Path::new(STORE).join("CAMBIUM"))
        .unwrap();
    let store = open(&*alphard, &disk, STORE).unwrap();
    store.put(b"oak", b"kept", Durability::Synced).unwrap();
    store.close().unwrap();
    let refused = alphard.create(&environment, Path::new("/copy"), &options);
    let refused = refused.err().unwrap();
    assert!(matches!(refused, Error::AlreadyExists { .. }), "{refused}");
    let store = open(&*alphard, &disk, STORE).unwrap();
    assert!(store.get(b"oak").unwrap().is_some());
}

#[test]
fn members_under_names_that_the_store_has_are_refused() {
    let alphard = alphard();
    for name in [
        "CAMBIUM",
        "./members",
        "x/../LOCK",
        "/store/index-image",
        "./data",
    ] {
        let disk = with_elsewhere();
        let environment = Environment::simulated(&disk, 1);
        let mut options = with(&[]);
        options.set("mirror", name);
        let refused = alphard.create(&environment, Path::new(STORE), &options);
        let refused = refused.err().unwrap();
        assert!(
            matches!(refused, Error::InvalidArgument(_)),
            "{name}: {refused}"
        );
        assert!(disk.files().is_empty(), "{name}");
    }
}

#[test]
fn a_blank_file_in_the_folder_may_become_the_mirror() {
    let alphard = alphard();
    for mirror in ["second", "./second", "/store/second"] {
        let disk = SimulatedDisk::new(1);
        let environment = Environment::simulated(&disk, 1);
        let files = &environment.file_system;
        files.create_directory(Path::new(STORE)).unwrap();
        let second = files.open(&Path::new(STORE).join("second"), OpenOptions::CREATE);
        second.unwrap().set_length(262_144).unwrap();
        let mut options = with(&[]);
        options.set("mirror", mirror);
        let store = alphard.create(&environment, Path::new(STORE), &options);
        store.unwrap_or_else(|error| panic!("{mirror}: {error}"));
    }
}

#[test]
fn force_that_comes_to_nothing_gives_no_store_up() {
    let alphard = alphard();
    let disk = twenty(&*alphard);
    let whole = contents(&*open(&*alphard, &disk.fork(), STORE).unwrap());
    let environment = Environment::simulated(&disk, 2);
    let marker = Path::new(STORE).join("CAMBIUM");
    environment.file_system.remove(&marker).unwrap();
    let options = with(&[("force", "on"), ("mirror", "/nowhere/second")]);
    let refused = alphard.create(&environment, Path::new(STORE), &options);
    assert!(refused.is_err());
    repair(&disk, STORE).unwrap();
    let store = open(&*alphard, &disk, STORE).unwrap();
    assert!(contents(&*store) == whole);
}

#[test]
fn a_store_of_which_only_its_own_file_is_left_is_repaired() {
    let alphard = alphard();
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 2);
    let store = alphard.create(&environment, Path::new(STORE), &with(&[]));
    let store = store.unwrap();
    store.put(b"oak", b"kept", Durability::Synced).unwrap();
    store.close().unwrap();
    for lost in ["CAMBIUM", "members", "index-image"] {
        let lost = Path::new(STORE).join(lost);
        environment.file_system.remove(&lost).unwrap();
    }
    repair(&disk, STORE).unwrap();
    let store = open(&*alphard, &disk, STORE).unwrap();
    assert!(store.get(b"oak").unwrap().is_some());
}
