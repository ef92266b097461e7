//! Backups: all entries are copied, and a crash leaves a whole backup or none.

use cambium_alphard::Alphard;
use cambium_io::Environment;
use cambium_io::simulated::{Sharing, SimulatedDisk};
use cambium_testkit::{Subject, checkpoints};

fn subject() -> Subject {
    Subject::new(&Alphard)
        .creation("size", "4MiB")
        .opening("coalesce_bytes", "4096")
        .opening("extend_bytes", "65536")
        .opening("cache_bytes", "16384")
        .opening("io", "sync")
}

#[test]
fn a_store_and_its_backups_stay_apart() {
    for seed in 0..6 {
        let environment = Environment::simulated(&SimulatedDisk::new(seed), seed);
        checkpoints::stay_apart(&subject(), &environment, "/".as_ref(), seed).unwrap();
    }
}

#[test]
fn a_crash_leaves_a_whole_backup_or_none() {
    for seed in 0..6 {
        checkpoints::survive_crashes(&subject(), Sharing::Nothing, seed).unwrap();
    }
}
