//! Checkpoints: what a store shares with its backup, neither of the two changes.

use cambium_io::Environment;
use cambium_io::simulated::{Sharing, SimulatedDisk};
use cambium_testkit::{Subject, checkpoints};
use cambium_wisckey::Wisckey;

/// Small files, and holes as soon as there is a block to give back.
fn subject() -> Subject {
    Subject::new(&Wisckey)
        .opening("segment_bytes", "256KiB")
        .opening("replay_bytes", "64KiB")
        .opening("preallocate_bytes", "0")
        .opening("inline_bytes", "8")
        .opening("table_bytes", "4096")
        .opening("table_block_bytes", "512")
        .opening("level_base_bytes", "8192")
        .opening("hole_bytes", "4096")
}

fn on_simulated_disks(subject: &Subject, seeds: u64, sharing: Sharing) -> Result<(), String> {
    (0..seeds).try_for_each(|seed| {
        let disk = SimulatedDisk::new(seed);
        disk.set_sharing(sharing);
        let environment = Environment::simulated(&disk, seed);
        checkpoints::stay_apart(subject, &environment, "/".as_ref(), seed)
    })
}

#[test]
fn a_store_and_its_backups_stay_apart() {
    on_simulated_disks(&subject(), 20, Sharing::Blocks).unwrap();
    on_simulated_disks(&subject(), 3, Sharing::Nothing).unwrap();
}

#[test]
fn a_hole_in_a_file_that_two_stores_have_is_found() {
    let subject = subject().opening("seeded_bug", "hole_in_shared");
    on_simulated_disks(&subject, 20, Sharing::Blocks).unwrap_err();
}

#[test]
fn a_crash_leaves_a_whole_backup_or_none() {
    for seed in 0..8 {
        checkpoints::survive_crashes(&subject(), Sharing::Blocks, seed).unwrap();
    }
}

#[test]
fn stores_of_this_machine_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::real();
    checkpoints::stay_apart(&subject(), &environment, folder.path(), 1).unwrap();
}
