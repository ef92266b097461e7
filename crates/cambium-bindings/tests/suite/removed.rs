//! A store that is taken off the disk is whole or is none, wherever that ends.

use std::path::Path;

use cambium::{Environment, Options, comparator};
use cambium_bindings::remove::remove;
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_testkit::ending::after_changes;

const STORE: &str = "/store";

#[test]
fn a_store_of_which_nothing_could_be_removed_is_one_and_folders_of_others_stay() {
    let environment = || Environment::memory();
    for (engine, folder) in [("wisckey", "keys/mine"), ("forest", "keys")] {
        let world = environment();
        let options = Options::new().environment(world.clone());
        let store = options.create(STORE, engine).unwrap();
        store.put(b"oak", b"kept").unwrap();
        store.close().unwrap();
        drop(store);
        let files = &world.file_system;
        let theirs = Path::new(STORE).join(folder);
        files.create_directory(&theirs).unwrap();
        let removed = remove(&options, Path::new(STORE));
        assert!(removed.is_err(), "the folder is not empty");
        assert!(files.metadata(&theirs).unwrap().is_some());
        if engine == "wisckey" {
            let error = removed.unwrap_err().to_string();
            assert!(error.contains("no store has this folder"), "{error}");
            let store = options.open(STORE).unwrap();
            assert!(store.get(b"oak").unwrap().is_some());
        }
    }
}

#[test]
fn a_removal_that_ends_half_way_leaves_a_store_or_room_for_one() {
    for engine in ["forest", "wisckey", "zdb", "alphard"] {
        let (mut whole, mut gone) = (0, 0);
        for left in 0.. {
            let disk = SimulatedDisk::new(1);
            let create = |disk: &SimulatedDisk| {
                let options = Options::new().environment(Environment::simulated(disk, 1));
                match engine {
                    "alphard" => options.set("size", "262144").create(STORE, engine),
                    _ => options.create(STORE, engine),
                }
            };
            let store = create(&disk).unwrap();
            store.put(b"oak", b"kept").unwrap();
            store.close().unwrap();
            let files = Environment::simulated(&disk, 1).file_system;
            comparator::store_name(&*files, Path::new(STORE), "by age").unwrap();
            let world = after_changes(&Environment::simulated(&disk, 2), left);
            let removed = remove(&Options::new().environment(world), Path::new(STORE));
            for style in [CrashStyle::NothingUnsynced, CrashStyle::Everything] {
                let disk = disk.crash(style, left);
                let at = format!("{engine}, {left}, {style:?}");
                let environment = Environment::simulated(&disk, 3);
                match Options::new().environment(environment).open(STORE) {
                    Ok(store) => {
                        assert!(store.get(b"oak").unwrap().is_some(), "{at}");
                        whole += 1;
                    }
                    Err(_) => {
                        let store = create(&disk).unwrap_or_else(|e| panic!("{at}: {e}"));
                        assert!(store.get(b"oak").unwrap().is_none(), "{at}");
                        gone += 1;
                    }
                }
            }
            if removed.is_ok() {
                break;
            }
            // Asked for again, it goes on.
            let environment = Environment::simulated(&disk, 4);
            let files = environment.file_system.clone();
            let again = Options::new().environment(environment);
            remove(&again, Path::new(STORE)).unwrap_or_else(|e| panic!("{engine}, {left}: {e}"));
            let rest = files.metadata(Path::new(STORE)).unwrap();
            let rest = rest.map(|_| files.list(Path::new(STORE)).unwrap().len());
            assert!(rest.is_none_or(|count| count <= 1), "{engine}, {left}");
        }
        assert!(whole > 0 && gone > 4, "{engine}: {whole}, {gone}");
    }
}
