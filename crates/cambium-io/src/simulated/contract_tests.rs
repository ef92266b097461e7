//! The contract of file systems, with a device below the cache and without.

#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, Result};

use super::SimulatedDisk;
use crate::{Environment, FileSystem, LockMode, OpenOptions};

fn both(check: impl Fn(Arc<dyn FileSystem>)) {
    check(Arc::new(SimulatedDisk::memory()));
    check(Arc::new(SimulatedDisk::new(1)));
}

fn path(text: &str) -> &Path {
    Path::new(text)
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    match result {
        Err(Error::Io { source, .. }) => Some(source.kind()),
        _ => None,
    }
}

#[test]
fn opening_makes_what_it_is_told_to_and_nothing_else() {
    both(|files| {
        let open = |text, options| files.open(path(text), options);
        assert_eq!(
            kind(open("/a", OpenOptions::READ)),
            Some(ErrorKind::NotFound)
        );
        assert_eq!(
            kind(open("/d/a", OpenOptions::CREATE)),
            Some(ErrorKind::NotFound)
        );
        open("/a", OpenOptions::CREATE_NEW)
            .unwrap()
            .write_at(b"x", 0)
            .unwrap();
        let again = open("/a", OpenOptions::CREATE_NEW);
        assert_eq!(kind(again), Some(ErrorKind::AlreadyExists));
        assert_eq!(
            open("/a", OpenOptions::CREATE).unwrap().length().unwrap(),
            1
        );
        let cut = OpenOptions {
            truncate: true,
            ..OpenOptions::WRITE
        };
        assert_eq!(open("/a", cut).unwrap().length().unwrap(), 0);
        let reader = open("/a", OpenOptions::READ).unwrap();
        assert_eq!(
            kind(reader.write_at(b"x", 0)),
            Some(ErrorKind::PermissionDenied)
        );
    });
}

#[test]
fn reads_are_short_at_the_end_only_and_gaps_are_zeros() {
    both(|files| {
        let file = files.open(path("/a"), OpenOptions::CREATE).unwrap();
        file.write_at(b"oak", 10_000).unwrap();
        let mut buffer = vec![7; 20_000];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 10_003);
        assert!(buffer[..10_000].iter().all(|&byte| byte == 0));
        assert_eq!(&buffer[10_000..10_003], b"oak");
        assert_eq!(file.read_at(&mut buffer, 10_003).unwrap(), 0);
        assert!(
            file.read_exact_at(&mut buffer[..4], 10_000)
                .unwrap_err()
                .is_corruption()
        );
        assert!(file.write_at(b"x", u64::MAX - 3).is_err());
    });
}

#[test]
fn a_handle_outlives_its_name_and_a_rename_replaces() {
    both(|files| {
        let old = files.open(path("/a"), OpenOptions::CREATE).unwrap();
        old.write_at(b"old", 0).unwrap();
        let new = files.open(path("/b"), OpenOptions::CREATE).unwrap();
        new.write_at(b"new", 0).unwrap();
        files.rename(path("/b"), path("/a")).unwrap();
        let mut bytes = [0; 3];
        old.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"old");
        let named = files.open(path("/a"), OpenOptions::READ).unwrap();
        named.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"new");
        files.remove(path("/a")).unwrap();
        named.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"new");
        assert_eq!(kind(files.remove(path("/a"))), Some(ErrorKind::NotFound));
    });
}

#[test]
fn folders_hold_names_and_go_only_when_empty() {
    both(|files| {
        files.create_directory(path("/d")).unwrap();
        let again = files.create_directory(path("/d"));
        assert_eq!(kind(again), Some(ErrorKind::AlreadyExists));
        for name in ["/d/b", "/d/a"] {
            files.open(path(name), OpenOptions::CREATE).unwrap();
        }
        let names = files
            .list(path("/d"))
            .unwrap()
            .into_iter()
            .map(|entry| entry.name);
        assert_eq!(
            names.collect::<Vec<PathBuf>>(),
            [PathBuf::from("a"), "b".into()]
        );
        let full = files.remove_directory(path("/d"));
        assert_eq!(kind(full), Some(ErrorKind::DirectoryNotEmpty));
        files.remove(path("/d/a")).unwrap();
        files.remove(path("/d/b")).unwrap();
        files.remove_directory(path("/d")).unwrap();
        assert_eq!(files.metadata(path("/d")).unwrap(), None);
        assert_eq!(
            kind(files.sync_directory(path("/d"))),
            Some(ErrorKind::NotFound)
        );
    });
}

#[test]
fn a_lock_is_exclusive_or_shared_and_names_its_owner() {
    both(|files| {
        let lock = |mode| files.lock(path("/LOCK"), mode);
        let held = lock(LockMode::Exclusive).unwrap();
        for mode in [LockMode::Exclusive, LockMode::Shared] {
            let refused = lock(mode).unwrap_err();
            assert!(
                matches!(refused, Error::Locked { owner: Some(_), .. }),
                "{refused}"
            );
        }
        drop(held);
        let one = lock(LockMode::Shared).unwrap();
        let other = lock(LockMode::Shared).unwrap();
        assert!(lock(LockMode::Exclusive).is_err());
        assert!(lock(LockMode::Alone).is_err());
        drop((one, other));
        lock(LockMode::Exclusive).unwrap();
        let file = files.open(path("/data"), OpenOptions::CREATE).unwrap();
        file.write_at(b"entries", 0).unwrap();
        let alone = files.lock(path("/data"), LockMode::Alone).unwrap();
        assert!(files.lock(path("/data"), LockMode::Alone).is_err());
        assert!(files.lock(path("/data"), LockMode::Shared).is_err());
        drop(alone);
        files.lock(path("/data"), LockMode::Shared).unwrap();
        assert_eq!(file.read_vec_at(0, 20).unwrap(), b"entries");
    });
}

#[test]
fn allocated_space_is_counted_and_given_back() {
    both(|files| {
        let file = files.open(path("/a"), OpenOptions::CREATE).unwrap();
        file.allocate(0, 16_384).unwrap();
        assert_eq!(file.length().unwrap(), 16_384);
        assert_eq!(file.allocated_bytes().unwrap(), 16_384);
        file.write_at(&[1; 16_384], 0).unwrap();
        file.punch_hole(4_096, 8_192).unwrap();
        assert_eq!(file.allocated_bytes().unwrap(), 8_192);
        assert_eq!(file.length().unwrap(), 16_384);
    });
}

#[test]
fn a_simulated_world_advances_only_when_somebody_sleeps() {
    let environment = Environment::memory();
    let clock = &environment.clock;
    assert_eq!(clock.monotonic(), clock.monotonic());
    clock.sleep(std::time::Duration::from_secs(3));
    assert_eq!(clock.monotonic().as_secs(), 3);
    assert!(!environment.executor.runs_tasks());
    let same_again = Environment::memory().randomness.next_u64();
    assert_eq!(environment.randomness.next_u64(), same_again);
}

/// Threads that make a lock file at the same time make one.
#[test]
fn one_of_two_threads_gets_a_lock_whose_file_neither_finds() {
    both(|files| {
        for round in 0..500 {
            let path = std::path::PathBuf::from(format!("/lock{round}"));
            let start = std::sync::Barrier::new(2);
            let take = || {
                start.wait();
                files.lock(&path, LockMode::Exclusive).ok()
            };
            let locks = std::thread::scope(|scope| {
                let other = scope.spawn(take);
                [take(), other.join().unwrap()]
            });
            let taken = locks.iter().filter(|lock| lock.is_some()).count();
            assert_eq!(taken, 1, "round {round}");
        }
    });
}

#[test]
fn files_in_memory_are_gone_with_their_last_name_and_handle() {
    let disk = SimulatedDisk::memory();
    let path = Path::new("/file");
    for _ in 0..3 {
        let file = disk.open(path, OpenOptions::CREATE_NEW).unwrap();
        file.write_at(&[7; 10], 0).unwrap();
        disk.remove(path).unwrap();
        let mut found = [0; 10];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!((found, disk.kept_files()), ([7; 10], 1));
        drop(file);
        assert_eq!(disk.kept_files(), 0);
    }
}
