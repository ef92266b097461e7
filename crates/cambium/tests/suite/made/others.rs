//! Files of somebody else's where stores are made and repaired.

use std::path::Path;

use cambium::{Environment, engines};
use cambium_api::{Durability, Error, OptionValues};
use cambium_io::OpenOptions;
use cambium_io::simulated::SimulatedDisk;

use super::{STORE, contents, create, ending, open, repair, small, twenty};

/// Names of which each engine has some, with somebody's bytes.
const STRAYS: [&str; 5] = [
    "keys",
    "members-old",
    "data-backup",
    "00000007.values",
    "000007.forest",
];

#[test]
fn strays_of_another_engines_names_decide_nothing() {
    for kind in engines().iter() {
        for stray in STRAYS.into_iter().chain(["keys/"]) {
            if kind.owns_file(stray) {
                // Its own to remove.
                continue;
            }
            let disk = twenty(&**kind);
            let whole = contents(&*open(&**kind, &disk.fork(), STORE).unwrap());
            let files = Environment::simulated(&disk, 1).file_system;
            let folder = Path::new(STORE);
            files.remove(&folder.join("CAMBIUM")).unwrap();
            let mine = match stray.strip_suffix('/') {
                Some(stray) => {
                    let made = files.create_directory(&folder.join(stray));
                    // A store of this engine has one.
                    assert!(made.is_ok() || kind.name() == "wisckey");
                    folder.join(stray).join("mine")
                }
                None if files.metadata(&folder.join(stray)).unwrap().is_some() => continue,
                None => folder.join(stray),
            };
            let file = files.open(&mine, OpenOptions::CREATE).unwrap();
            file.write_at(b"mine", 0).unwrap();
            let at = format!("{}, {stray}", kind.name());
            // An engine may refuse what it cannot tell apart; it must not write.
            match repair(&disk, STORE) {
                Ok(_) => {
                    let store = open(&**kind, &disk, STORE).unwrap();
                    assert!(contents(&*store) == whole, "{at}");
                }
                Err(error) => {
                    files.remove(&mine).unwrap();
                    repair(&disk, STORE).unwrap();
                    let store = open(&**kind, &disk, STORE).unwrap();
                    assert!(contents(&*store) == whole, "{at}: {error}");
                    continue;
                }
            }
            let bytes = disk.contents(&mine);
            assert_eq!(bytes.as_deref(), Some(&b"mine"[..]), "{at}");
        }
    }
}

#[test]
fn what_is_somebody_elses_in_the_folder_of_an_unfinished_creation_stays() {
    let somebodys = [
        "keys/mine",
        "keys/sub/mine",
        "data-2024.csv",
        "index-of-photos",
        "second",
        "superblock-old",
    ];
    for kind in engines().iter() {
        for name in somebodys {
            // Ended when it had said that it makes a store.
            for left in [4, 8, 1_000] {
                let disk = SimulatedDisk::new(1);
                let files = Environment::simulated(&disk, 1).file_system;
                _ = kind.create(&ending(&disk, left), Path::new(STORE), &small(&**kind));
                let folder = Path::new(STORE);
                let marker = files.metadata(&folder.join("CAMBIUM")).unwrap();
                let mine = folder.join(name);
                if marker.is_some() || files.metadata(&mine).unwrap().is_some() {
                    continue;
                }
                for parent in [
                    mine.parent().unwrap().parent().unwrap(),
                    mine.parent().unwrap(),
                ] {
                    _ = files.create_directory(parent);
                }
                let file = files.open(&mine, OpenOptions::CREATE).unwrap();
                file.write_at(b"mine", 0).unwrap();
                let made = create(&**kind, &disk);
                let at = format!("{}, {name}, {left}", kind.name());
                assert!(made.is_err(), "{at}");
                assert_eq!(disk.contents(&mine).as_deref(), Some(&b"mine"[..]), "{at}");
            }
        }
    }
}

/// Of an environment in which stores get other ids.
const OTHER_SEED: u64 = 77;

/// Writes a file with somebody's bytes.
fn write_mine(disk: &SimulatedDisk, path: &Path) {
    let files = Environment::simulated(disk, 1).file_system;
    let file = files.open(path, OpenOptions::CREATE).unwrap();
    file.write_at(b"mine", 0).unwrap();
}

#[test]
fn a_lock_that_is_somebody_elses_is_in_the_way() {
    for kind in engines().iter() {
        let disk = SimulatedDisk::new(1);
        let files = Environment::simulated(&disk, 1).file_system;
        files.create_directory(Path::new(STORE)).unwrap();
        let lock = Path::new(STORE).join("LOCK");
        write_mine(&disk, &lock);
        let refused = create(&**kind, &disk).err().unwrap().to_string();
        assert!(
            refused.contains("it holds \"LOCK\""),
            "{}: {refused}",
            kind.name()
        );
        assert_eq!(disk.contents(&lock).as_deref(), Some(&b"mine"[..]));
    }
}

#[test]
fn what_says_of_an_unfinished_creation_and_cannot_be_read_is_in_the_way() {
    for kind in engines().iter() {
        let disk = SimulatedDisk::new(1);
        let files = Environment::simulated(&disk, 1).file_system;
        files.create_directory(Path::new(STORE)).unwrap();
        let said = Path::new(STORE).join("CAMBIUM.new");
        write_mine(&disk, &said);
        let refused = create(&**kind, &disk).err().unwrap();
        assert!(matches!(refused, Error::Corruption { .. }), "{refused}");
        assert_eq!(disk.contents(&said).as_deref(), Some(&b"mine"[..]));
    }
}

#[test]
fn what_another_engines_creation_left_is_told() {
    let all = engines();
    for kind in all.iter() {
        let source = SimulatedDisk::new(1);
        // The last change is the folder's sync, that before it the marker's rename.
        let last = (0..)
            .find(|&left| {
                let disk = source.fork();
                let options = small(&**kind);
                let made = kind.create(&ending(&disk, left), Path::new(STORE), &options);
                made.is_ok()
            })
            .unwrap();
        let options = small(&**kind);
        let made = kind.create(&ending(&source, last - 2), Path::new(STORE), &options);
        assert!(made.map(|_| ()).is_err());
        for other in all.iter().filter(|other| other.name() != kind.name()) {
            let refused = other.create(
                &Environment::simulated(&source, 2),
                Path::new(STORE),
                &OptionValues::default(),
            );
            let refused = refused.err().unwrap().to_string();
            let told = format!("a store of engine {}", kind.name());
            assert!(refused.contains(&told), "{}: {refused}", other.name());
        }
        create(&**kind, &source).unwrap();
    }
}

#[test]
fn a_file_of_another_store_does_not_say_whose_a_store_is() {
    for kind in engines().iter() {
        let disk = twenty(&**kind);
        let whole = contents(&*open(&**kind, &disk.fork(), STORE).unwrap());
        let environment = Environment::simulated(&disk, OTHER_SEED);
        let files = &environment.file_system;
        let other = Path::new("/other");
        let options = small(&**kind);
        kind.create(&environment, other, &options)
            .unwrap()
            .close()
            .unwrap();
        for entry in files.list(other).unwrap() {
            let name = entry.name.to_string_lossy();
            if !kind.owns_file(&name) || name == "keys" {
                continue;
            }
            // Before all others, and after them.
            for stray in [format!("0-{name}"), format!("z-{name}")] {
                let bytes = disk.contents(&other.join(&entry.name)).unwrap();
                let file = files.open(&Path::new(STORE).join(stray), OpenOptions::CREATE);
                file.unwrap().write_at(&bytes, 0).unwrap();
            }
        }
        for lost in ["CAMBIUM", "superblock-0", "superblock-1"] {
            let path = Path::new(STORE).join(lost);
            if files.metadata(&path).unwrap().is_some() {
                files.remove(&path).unwrap();
            }
        }
        repair(&disk, STORE).unwrap();
        let store = open(&**kind, &disk, STORE).unwrap();
        assert!(contents(&*store) == whole, "{}", kind.name());
    }
}

#[test]
fn where_files_of_two_stores_lie_a_marker_tells_which_is_meant() {
    let all = engines();
    let wisckey = all.iter().find(|kind| kind.name() == "wisckey").unwrap();
    for says in [true, false] {
        let disk = twenty(&**wisckey);
        let whole = contents(&*open(&**wisckey, &disk.fork(), STORE).unwrap());
        let environment = Environment::simulated(&disk, OTHER_SEED);
        let files = &environment.file_system;
        let other = Path::new("/other");
        let made = wisckey.create(&environment, other, &OptionValues::default());
        let made = made.unwrap();
        made.put(b"elm", b"Ulmus", Durability::Synced).unwrap();
        made.close().unwrap();
        let stray = Path::new(STORE).join("00000999.values");
        let bytes = disk.contents(&other.join("00000001.values")).unwrap();
        let file = files.open(&stray, OpenOptions::CREATE).unwrap();
        file.write_at(&bytes, 0).unwrap();
        for copy in ["superblock-0", "superblock-1"] {
            files.remove(&Path::new(STORE).join(copy)).unwrap();
        }
        let marker = Path::new(STORE).join("CAMBIUM");
        match says {
            true => {
                // Its checksum, and not what it says.
                let file = files.open(&marker, OpenOptions::WRITE).unwrap();
                file.write_at(b"?", file.length().unwrap() - 2).unwrap();
                repair(&disk, STORE).unwrap();
                let store = open(&**wisckey, &disk, STORE).unwrap();
                assert!(contents(&*store) == whole);
            }
            false => {
                files.remove(&marker).unwrap();
                let before = disk.files();
                assert!(repair(&disk, STORE).is_err());
                assert_eq!(disk.files(), before, "nothing is written");
            }
        }
    }
}
