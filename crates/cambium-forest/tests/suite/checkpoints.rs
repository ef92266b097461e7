//! Checkpoints by clones or links, and copies where the disk has neither: a store and its
//! backups stay apart.

use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_io::simulated::{Event, Sharing, SimulatedDisk};
use cambium_testkit::{Subject, checkpoints};

fn subject() -> Subject {
    Subject::new(&Forest)
        .creation("node_bytes", "512")
        .creation("block_bytes", "512")
        .opening("write_buffer_entries", "8")
        .opening("preallocate_bytes", "4096")
        .opening("segment_bytes", "8192")
        .opening("compaction_least_bytes", "0")
}

#[test]
fn a_store_and_its_backups_stay_apart() {
    let ways = [Sharing::Blocks, Sharing::Names, Sharing::Nothing];
    for (seed, way) in (0..18).zip(ways.into_iter().cycle()) {
        let disk = SimulatedDisk::new(seed);
        disk.set_sharing(way);
        let environment = Environment::simulated(&disk, seed);
        checkpoints::stay_apart(&subject(), &environment, "/".as_ref(), seed).unwrap();
        let made = [Event::CloneFile, Event::Link].map(|event| disk.event_count(event) > 0);
        assert_eq!(
            made,
            [way == Sharing::Blocks, way == Sharing::Names],
            "seed {seed}"
        );
    }
}

#[test]
fn a_write_into_a_segment_that_two_stores_have_is_found() {
    let subject = subject().opening("seeded_bug", "shared_segments_written");
    let found = (0..20).any(|seed| {
        let disk = SimulatedDisk::new(seed);
        disk.set_sharing(Sharing::Names);
        let environment = Environment::simulated(&disk, seed);
        checkpoints::stay_apart(&subject, &environment, "/".as_ref(), seed).is_err()
    });
    assert!(found);
}

#[test]
fn a_crash_leaves_a_whole_backup_or_none() {
    for seed in 0..6 {
        for way in [Sharing::Blocks, Sharing::Names] {
            checkpoints::survive_crashes(&subject(), way, seed).unwrap();
        }
    }
}

#[test]
fn stores_of_this_machine_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::real();
    checkpoints::stay_apart(&subject(), &environment, folder.path(), 1).unwrap();
}
