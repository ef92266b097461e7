//! A store that is taken off the disk is whole or is none, wherever that ends.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::path::Path;

use cambium::{Durability, Environment, Options};
use cambium_bindings::remove::remove;
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_testkit::ending::after_changes;

const STORE: &str = "/store";

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
            store.put(b"oak", b"kept", Durability::Synced).unwrap();
            store.close().unwrap();
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
        }
        assert!(whole > 0 && gone > 4, "{engine}: {whole}, {gone}");
    }
}
