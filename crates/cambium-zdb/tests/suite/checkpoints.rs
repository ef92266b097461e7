//! Checkpoints by clones, and copies where the disk shares no blocks: a store and its
//! backups stay apart.

use cambium_io::Environment;
use cambium_io::simulated::{Event, Sharing, SimulatedDisk};
use cambium_testkit::{Subject, checkpoints};
use cambium_zdb::Zdb;

fn subject() -> Subject {
    Subject::new(&Zdb)
        .creation("keys", "string")
        .opening("checkpoint_bytes", "256KiB")
}

#[test]
fn a_store_and_its_backups_stay_apart() {
    for seed in 0..12 {
        let disk = SimulatedDisk::new(seed);
        disk.set_sharing(match seed % 4 {
            0 => Sharing::Nothing,
            _ => Sharing::Blocks,
        });
        let environment = Environment::simulated(&disk, seed);
        checkpoints::stay_apart(&subject(), &environment, "/".as_ref(), seed).unwrap();
        let cloned = disk.event_count(Event::CloneFile);
        assert_eq!(cloned > 0, seed % 4 != 0, "{cloned} clones, seed {seed}");
    }
}

#[test]
fn a_crash_leaves_a_whole_backup_or_none() {
    for seed in 0..3 {
        checkpoints::survive_crashes(&subject(), Sharing::Blocks, seed).unwrap();
    }
}

#[test]
fn stores_of_this_machine_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::real();
    checkpoints::stay_apart(&subject(), &environment, folder.path(), 1).unwrap();
}
