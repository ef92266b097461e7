//! What the simulated disk keeps and what a crash takes, fault class by fault
//! class.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::{Arc, Mutex};

use super::*;
use crate::{
    AlignedBuffer, BatchOptions, File, FileSystem, LockMode, OpenOptions, ReadRequest, WriteRequest,
};

fn path(text: &str) -> &Path {
    Path::new(text)
}

/// A disk with one durable file `/a` of `bytes`.
fn disk_with(bytes: &[u8]) -> (SimulatedDisk, Arc<dyn File>) {
    let disk = SimulatedDisk::new(1);
    let file = disk.open(path("/a"), OpenOptions::CREATE).unwrap();
    disk.sync_directory(path("/")).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    (disk, file)
}

fn after(disk: &SimulatedDisk, style: CrashStyle, seed: u64) -> Option<Vec<u8>> {
    disk.crash(style, seed).contents(path("/a"))
}

#[test]
fn a_file_is_lost_until_its_folder_is_synced_and_empty_until_it_is_synced() {
    let disk = SimulatedDisk::new(1);
    let file = disk.open(path("/a"), OpenOptions::CREATE).unwrap();
    file.write_at(b"oak", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(after(&disk, CrashStyle::NothingUnsynced, 1), None);
    disk.sync_directory(path("/")).unwrap();
    assert_eq!(
        after(&disk, CrashStyle::NothingUnsynced, 1).unwrap(),
        b"oak"
    );
    assert_eq!(disk.process_crash().contents(path("/a")).unwrap(), b"oak");
}

#[test]
fn each_style_keeps_what_its_name_says() {
    let (disk, file) = disk_with(&[1; 1024]);
    file.write_at(&[2; 2048], 512).unwrap();
    let old = vec![1; 1024];
    let mut new = vec![1; 512];
    new.extend([2; 2048]);
    assert_eq!(after(&disk, CrashStyle::NothingUnsynced, 1).unwrap(), old);
    assert_eq!(after(&disk, CrashStyle::Everything, 1).unwrap(), new);
    let mut zeros = old.clone();
    zeros.resize(2560, 0);
    assert_eq!(
        after(&disk, CrashStyle::LengthsWithoutData, 1).unwrap(),
        zeros
    );
    assert_eq!(
        after(&disk, CrashStyle::DataWithoutLengths, 1).unwrap(),
        new[..1024]
    );
    assert_eq!(disk.process_crash().contents(path("/a")).unwrap(), new);
}

#[test]
fn a_prefix_is_cut_everywhere_and_torn_at_sectors() {
    let (disk, file) = disk_with(b"");
    for (index, value) in [1u8, 2, 3].into_iter().enumerate() {
        file.write_at(&[value; 1024], 1024 * index as u64).unwrap();
    }
    let mut lengths: Vec<usize> = (0..200)
        .map(|seed| after(&disk, CrashStyle::Prefix, seed).unwrap().len())
        .collect();
    lengths.sort_unstable();
    lengths.dedup();
    assert_eq!(lengths, [0, 512, 1024, 1536, 2048, 2560, 3072]);
}

#[test]
fn any_subset_of_sectors_can_survive() {
    let (disk, file) = disk_with(&[1; 1536]);
    file.write_at(&[2; 1536], 0).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let bytes = after(&disk, CrashStyle::Sectors, seed).unwrap();
        assert!(
            bytes
                .chunks(512)
                .all(|sector| sector.iter().all(|&b| b == sector[0]))
        );
        seen.insert([bytes[0], bytes[512], bytes[1024]]);
    }
    assert_eq!(seen.len(), 8, "all subsets of three sectors: {seen:?}");
    assert!(disk.event_count(Event::TornWrite) > 0);
    assert!(disk.event_count(Event::WriteLost) > 0);
}

#[test]
fn names_survive_in_any_subset_and_a_rename_replaces_atomically() {
    let (disk, _file) = disk_with(b"old");
    let new = disk.open(path("/new"), OpenOptions::CREATE).unwrap();
    new.write_at(b"new", 0).unwrap();
    new.sync_data().unwrap();
    disk.rename(path("/new"), path("/a")).unwrap();
    disk.create_directory(path("/d")).unwrap();
    drop(disk.open(path("/d/x"), OpenOptions::CREATE).unwrap());
    let mut folder_lost = 0;
    for seed in 0..100 {
        let crashed = disk.crash(CrashStyle::Names, seed);
        let bytes = crashed.contents(path("/a")).unwrap();
        assert!(
            bytes == b"old" || bytes == b"new" || bytes.is_empty(),
            "{bytes:?}"
        );
        let folder = crashed.metadata(path("/d")).unwrap().is_some();
        let inside = crashed.contents(path("/d/x")).is_some();
        assert!(folder || !inside, "a file without its folder");
        folder_lost += u32::from(!folder);
    }
    assert!((20..80).contains(&folder_lost));
    // Syncing what is in a folder does not make the folder's own name durable.
    disk.sync_directory(path("/d")).unwrap();
    let crashed = disk.crash(CrashStyle::NothingUnsynced, 0);
    assert!(crashed.metadata(path("/d")).unwrap().is_none());
    assert!(crashed.contents(path("/d/x")).is_none());
}

#[test]
fn a_discard_leaves_zeros_or_what_was_there() {
    let (disk, file) = disk_with(&[7; 32 * 512]);
    let mut met = [false; 2];
    for number in 0..32 {
        let offset = number % 4 * 8 * 512;
        file.write_at(&[7; 8 * 512], offset).unwrap();
        assert!(file.discard(offset, 8 * 512).unwrap());
        let mut bytes = [1; 8 * 512];
        file.read_at(&mut bytes, offset).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0 || byte == 7));
        met[usize::from(bytes[0] == 0)] = true;
    }
    assert_eq!(met, [true, true]);
    assert!(disk.event_count(Event::PunchHole) > 0);
}

#[test]
fn holes_are_punched_by_halves() {
    let (disk, file) = disk_with(&[7; 16 * 512]);
    file.punch_hole(0, 16 * 512).unwrap();
    let bytes = after(&disk, CrashStyle::Holes, 3).unwrap();
    let zeros = bytes.iter().filter(|&&byte| byte == 0).count();
    assert!(zeros > 0 && zeros < bytes.len());
    assert!(disk.event_count(Event::HoleHalfDone) > 0);
}

#[test]
fn a_crash_leaves_the_disk_itself_alone_and_frees_locks() {
    let (disk, file) = disk_with(b"one");
    let lock = disk.lock(path("/lock"), LockMode::Exclusive).unwrap();
    assert!(disk.lock(path("/lock"), LockMode::Shared).is_err());
    let crashed = disk.process_crash();
    crashed.lock(path("/lock"), LockMode::Exclusive).unwrap();
    let other = crashed.open(path("/a"), OpenOptions::WRITE).unwrap();
    other.write_at(b"two", 0).unwrap();
    let mut bytes = [0; 3];
    file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"one");
    drop(lock);
    disk.lock(path("/lock"), LockMode::Shared).unwrap();
}

#[test]
fn the_nth_operation_fails_once_or_for_ever() {
    let (disk, file) = disk_with(b"");
    let rule = FaultRule {
        class: OperationClass::Write,
        nth: 2,
        forever: false,
        fault: Fault::Error(ErrorNumber::InputOutput),
    };
    disk.inject(rule);
    let outcomes = |count: u64| -> Vec<bool> {
        (0..count)
            .map(|at| file.write_at(b"x", at).is_ok())
            .collect()
    };
    assert_eq!(outcomes(4), [true, false, true, true]);
    disk.inject(FaultRule {
        forever: true,
        ..rule
    });
    assert_eq!(outcomes(4), [true, false, false, false]);
    assert_eq!(disk.event_count(Event::ErrorInjected), 4);
    disk.clear_faults();
    assert_eq!(outcomes(1), [true]);
}

#[test]
fn a_failed_sync_drops_pages_and_a_lying_one_keeps_nothing() {
    let (disk, file) = disk_with(b"good");
    let sync_fault = |fault| FaultRule {
        class: OperationClass::Sync,
        nth: 1,
        forever: false,
        fault,
    };
    file.write_at(b"evil", 0).unwrap();
    disk.inject(sync_fault(Fault::SyncDropsPages(ErrorNumber::InputOutput)));
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    assert_eq!(disk.contents(path("/a")).unwrap(), b"good");

    file.write_at(b"lies", 0).unwrap();
    disk.inject(sync_fault(Fault::SyncLies));
    file.sync_data().unwrap();
    assert_eq!(disk.contents(path("/a")).unwrap(), b"lies");
    assert_eq!(
        after(&disk, CrashStyle::NothingUnsynced, 1).unwrap(),
        b"good"
    );
}

#[test]
fn a_failed_sync_can_keep_pages_that_no_later_sync_writes() {
    let (disk, file) = disk_with(&[1; 2048]);
    file.write_at(&[2; 1024], 512).unwrap();
    file.write_at(&[2; 100], 2048).unwrap();
    disk.inject(FaultRule {
        class: OperationClass::Sync,
        nth: 1,
        forever: false,
        fault: Fault::SyncKeepsPages(ErrorNumber::InputOutput),
    });
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    let kept = disk.process_crash();
    let seen = kept.contents(path("/a")).unwrap();
    assert_eq!((seen[512], seen[1024], seen[2048]), (2, 2, 2));
    // A read past the cache sees what the device has.
    let direct = kept.open(path("/a"), OpenOptions::READ.direct()).unwrap();
    let mut buffer = AlignedBuffer::new(512, 512);
    assert_eq!(direct.read_at(&mut buffer, 512).unwrap(), 512);
    assert_eq!(buffer[0], 1);
    // Writing to a part of a sector takes the rest of it along, and no other.
    let again = kept.open(path("/a"), OpenOptions::WRITE).unwrap();
    again.write_at(b"x", 600).unwrap();
    again.sync_data().unwrap();
    let durable = after(&kept, CrashStyle::NothingUnsynced, 1).unwrap();
    assert_eq!(durable.len(), 2148, "the journal keeps the length");
    assert_eq!((durable[512], durable[600], durable[1023]), (2, b'x', 2));
    assert_eq!((durable[1024], durable[2048]), (1, 0));
    assert_eq!(disk.event_count(Event::SyncKeptPages), 1);
}

#[test]
fn a_sector_that_cannot_be_read_stays_so_until_it_is_written_whole() {
    let (disk, file) = disk_with(&[1; 2048]);
    assert!(disk.make_unreadable(path("/a"), 700));
    assert!(!disk.make_unreadable(path("/a"), 2048));
    let mut buffer = [0; 512];
    assert!(file.read_at(&mut buffer, 100).is_err());
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 512);
    assert_eq!(file.read_at(&mut buffer, 1024).unwrap(), 512);
    let after = disk.crash(CrashStyle::Everything, 1);
    let again = after.open(path("/a"), OpenOptions::WRITE).unwrap();
    assert!(again.read_at(&mut buffer, 1000).is_err());
    assert!(again.write_at(b"part", 600).is_err());
    again.write_at(&[3; 512], 512).unwrap();
    assert_eq!(again.read_at(&mut buffer, 512).unwrap(), 512);
    assert_eq!(buffer, [3; 512]);
    assert!(disk.event_count(Event::SectorUnreadable) >= 3);
}

#[test]
fn a_synced_write_makes_no_other_write_durable() {
    let (disk, file) = disk_with(&[1; 4096]);
    file.write_at(&[2; 1536], 512).unwrap();
    file.write_at(&[3; 512], 3072).unwrap();
    let mut bytes = AlignedBuffer::new(512, 512);
    bytes.fill(4);
    let mut queue = disk.write_queue(BatchOptions::default()).unwrap();
    let request = WriteRequest::of(file.clone(), 1024, Arc::new(bytes));
    let answers = queue.write_synced(vec![request]);
    assert!(answers.iter().all(Result::is_ok));
    let firsts = |bytes: &[u8]| [bytes[512], bytes[1024], bytes[1536], bytes[3072]];
    let nothing = after(&disk, CrashStyle::NothingUnsynced, 1).unwrap();
    assert_eq!(firsts(&nothing), [1, 4, 1, 1]);
    let everything = after(&disk, CrashStyle::Everything, 1).unwrap();
    assert_eq!(firsts(&everything), [2, 4, 2, 3]);
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..512 {
        let found = firsts(&after(&disk, CrashStyle::Sectors, seed).unwrap());
        assert_eq!(found[1], 4, "the older write under it never comes back");
        seen.insert([found[0], found[2], found[3]]);
    }
    assert_eq!(seen.len(), 8, "the others reach the disk in any subset");
    file.sync_data().unwrap();
    let synced = after(&disk, CrashStyle::NothingUnsynced, 1).unwrap();
    assert_eq!(firsts(&synced), [2, 4, 2, 3]);
}

#[test]
fn phantom_and_misdirected_writes_show_after_the_crash_only() {
    for fault in [Fault::PhantomWrite, Fault::MisdirectedWrite] {
        let (disk, file) = disk_with(&[1; 8192]);
        disk.inject(FaultRule {
            class: OperationClass::Write,
            nth: 1,
            forever: false,
            fault,
        });
        file.write_at(&[2; 512], 4096).unwrap();
        file.sync_data().unwrap();
        file.sync_data().unwrap();
        let cached = disk.contents(path("/a")).unwrap();
        assert_eq!(cached[4096..4608], [2; 512]);
        let durable = after(&disk, CrashStyle::Everything, 1).unwrap();
        assert_eq!(durable[4096..4608], [1; 512]);
        let elsewhere = durable.iter().filter(|&&byte| byte == 2).count();
        assert_eq!(elsewhere > 0, fault == Fault::MisdirectedWrite);
    }
}

#[test]
fn a_full_disk_refuses_new_blocks_and_takes_overwrites() {
    let (disk, file) = disk_with(&[1; 4096]);
    disk.set_capacity(Some(3 * 4096));
    assert!(file.write_at(&[2; 4 * 4096], 0).unwrap_err().is_no_space());
    file.set_length(4096).unwrap();
    file.write_at(&[3; 4096], 0).unwrap();
    file.allocate(4096, 8192).unwrap();
    assert!(file.allocate(12288, 1).unwrap_err().is_no_space());
    assert_eq!(disk.space(path("/")).unwrap().available, 0);
    let other = disk.open(path("/b"), OpenOptions::CREATE).unwrap();
    assert!(other.write_at(b"x", 0).unwrap_err().is_no_space());
    drop(file);
    disk.remove(path("/a")).unwrap();
    other.write_at(b"x", 0).unwrap();
    assert!(disk.event_count(Event::DiskFull) >= 3);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let run = |seed: u64| {
        let disk = SimulatedDisk::new(seed);
        disk.set_short_transfers(true);
        let mut generator = Generator::new(seed);
        let file = disk.open(path("/a"), OpenOptions::CREATE).unwrap();
        disk.sync_directory(path("/")).unwrap();
        for _ in 0..50 {
            match generator.below(4) {
                0 => file.sync_data().unwrap(),
                1 => file.set_length(generator.below(9000)).unwrap(),
                _ => {
                    let mut bytes = vec![0; generator.below(3000) as usize];
                    generator.fill(&mut bytes);
                    file.write_at(&bytes, generator.below(9000)).unwrap();
                }
            }
        }
        let crashed = disk.crash(CrashStyle::Sectors, seed);
        let transfers = disk.event_count(Event::ShortTransfer);
        (
            transfers,
            [&disk, &crashed].map(|disk| disk.contents(path("/a"))),
        )
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn a_probe_sees_each_sync_from_both_sides() {
    let (disk, file) = disk_with(b"a");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = seen.clone();
    disk.set_crash_probe(ProbePoints::Operations, move |point| {
        let bytes = point.disk.crash(CrashStyle::NothingUnsynced, 1);
        let bytes = bytes.contents(path("/a")).unwrap();
        sink.lock().unwrap().push((point.moment, bytes));
    });
    file.write_at(b"b", 0).unwrap();
    file.sync_data().unwrap();
    disk.clear_crash_probe();
    file.sync_data().unwrap();
    let seen = seen.lock().unwrap();
    let expected = [
        (Moment::BeforeOperation, b"a".to_vec()),
        (Moment::BeforeSync, b"a".to_vec()),
        (Moment::AfterSync, b"b".to_vec()),
    ];
    assert_eq!(seen[..], expected);
}

#[test]
fn rot_changes_one_bit_for_good() {
    let (disk, _file) = disk_with(&[0; 100]);
    assert!(disk.flip_bit(path("/a"), 50, 3));
    assert!(!disk.flip_bit(path("/a"), 100, 0));
    let bytes = after(&disk, CrashStyle::NothingUnsynced, 1).unwrap();
    assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    assert_eq!(bytes[50], 8);
}

#[test]
fn queued_reads_complete_out_of_order_and_once_each() {
    let bytes: Vec<u8> = (0..=255).collect();
    let (disk, file) = disk_with(&bytes);
    let mut queue = disk.read_queue(BatchOptions::default()).unwrap();
    let requests = (0..100u64).map(|tag| ReadRequest {
        file: file.clone(),
        offset: tag,
        buffer: AlignedBuffer::new(1, 1),
        tag,
    });
    let mut order = Vec::new();
    crate::batch::read_all(&mut *queue, requests, |completion| {
        assert_eq!(u64::from(completion.buffer[0]), completion.tag);
        order.push(completion.tag);
        Ok(())
    })
    .unwrap();
    assert_ne!(order, (0..100).collect::<Vec<_>>());
    order.sort_unstable();
    assert_eq!(order, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_direct_handle_refuses_what_is_off_the_grid() {
    let (disk, _file) = disk_with(&[1; 1024]);
    let file = disk.open(path("/a"), OpenOptions::WRITE.direct()).unwrap();
    let mut buffer = AlignedBuffer::new(512, 512);
    assert_eq!(file.read_at(&mut buffer, 512).unwrap(), 512);
    assert!(file.read_at(&mut buffer, 1).is_err());
    assert!(file.write_at(&buffer[..100], 0).is_err());
}

/// The suites lean on crash images being cheap: this is far above what is
/// needed and fails only if a copy of whole files creeps in.
#[test]
fn crash_images_share_what_did_not_change() {
    let (disk, file) = disk_with(&vec![1; 16 << 20]);
    file.write_at(&[2; 4096], 0).unwrap();
    let started = std::time::Instant::now();
    for seed in 0..2_000 {
        let crashed = disk.crash(CrashStyle::Mixed, seed);
        assert_eq!(crashed.used_bytes(), 16 << 20);
    }
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
}
