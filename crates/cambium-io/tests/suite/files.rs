//! A file system of the machine keeps the promises of the traits: the one that the module
//! around this one names.

use std::io::ErrorKind;
#[cfg(unix)]
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, Result};
use cambium_io::{Advice, File, FileKind, FileSystem, LockMode, OpenOptions, without_waiting};

use super::FS;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn io_kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    match result {
        Err(Error::Io { source, .. }) => source.kind(),
        other => panic!("expected an I/O error, got {other:?}"),
    }
}

fn written(path: &Path, content: &[u8]) -> Arc<dyn File> {
    let file = FS.open(path, OpenOptions::CREATE).unwrap();
    file.write_at(content, 0).unwrap();
    file
}

#[test]
fn what_was_written_is_read_and_reads_are_short_only_at_the_end() {
    let folder = folder();
    let file = written(&folder.path().join("a"), b"0123456789");
    let mut buffer = [0; 8];
    assert_eq!(file.read_at(&mut buffer, 2).unwrap(), 8);
    assert_eq!(&buffer, b"23456789");
    assert_eq!(file.read_at(&mut buffer, 7).unwrap(), 3);
    assert_eq!(&buffer[..3], b"789");
    assert_eq!(file.read_at(&mut buffer, 10).unwrap(), 0);
    assert_eq!(file.read_at(&mut buffer, 1 << 40).unwrap(), 0);
    let error = file.read_exact_at(&mut buffer, 7).unwrap_err();
    assert!(error.is_corruption(), "{error}");
}

#[test]
fn what_is_in_memory_is_read_as_it_is_up_to_the_first_byte_that_is_not() {
    let folder = folder();
    let content: Vec<u8> = (0..10_000u32).map(|place| (place % 251) as u8).collect();
    let file = written(&folder.path().join("a"), &content);
    for (offset, length) in [(0, 10_000), (17, 4_097), (9_990, 64), (10_000, 9), (5, 0)] {
        let mut buffer = vec![0xee; length];
        let count = file.read_cached_at(&mut buffer, offset as u64);
        assert!(offset + count <= content.len());
        assert_eq!(buffer[..count], content[offset..offset + count]);
    }
    let options = OpenOptions::READ.direct();
    if let Ok(direct) = FS.open(&folder.path().join("a"), options) {
        assert_eq!(direct.read_cached_at(&mut [0; 512], 0), 0, "past the cache");
    }
}

#[test]
fn a_read_that_may_not_wait_is_whole_or_says_that_it_would_wait() {
    let folder = folder();
    let path = folder.path().join("a");
    let content: Vec<u8> = (0..10_000u32).map(|place| (place % 251) as u8).collect();
    let file = written(&path, &content);
    file.sync_data().unwrap();
    for is_cached in [true, false] {
        if !is_cached {
            file.advise(0, 10_000, Advice::DontNeed);
        }
        let whole = without_waiting(|| file.read_vec_at(17, 9_000));
        let part = without_waiting(|| file.read_at(&mut [0; 9_000], 17));
        match (whole, part) {
            (Ok(bytes), Ok(count)) => assert_eq!((&*bytes, count), (&content[17..9_017], 9_000)),
            // The kernel may have given cached pages back already.
            (whole, part) => {
                for error in whole.err().into_iter().chain(part.err()) {
                    assert!(error.would_wait(), "{error}");
                }
            }
        }
    }
    if let Ok(direct) = FS.open(&path, OpenOptions::READ.direct()) {
        let error = without_waiting(|| direct.read_vec_at(0, 512)).unwrap_err();
        assert!(error.would_wait(), "{error}");
    }
    // Reads wait again after the call.
    assert_eq!(file.read_vec_at(0, 10_000).unwrap(), content);
}

#[test]
fn memory_of_its_own_holds_what_was_read_and_no_more() {
    let folder = folder();
    let content: Vec<u8> = (0..10_000u32).map(|place| (place % 251) as u8).collect();
    let file = written(&folder.path().join("a"), &content);
    for (offset, length) in [
        (0, 10_000),
        (1, 1),
        (17, 4_097),
        (9_990, 64),
        (10_000, 9),
        (5, 0),
    ] {
        let end = content.len().min(offset + length);
        let read = file.read_vec_at(offset as u64, length).unwrap();
        assert_eq!(read, content[offset..end], "{length} bytes at {offset}");
    }
}

#[test]
fn vectored_writes_of_more_buffers_than_one_call_takes_land_in_order() {
    let folder = folder();
    let file = FS
        .open(&folder.path().join("a"), OpenOptions::CREATE_NEW)
        .unwrap();
    let pieces: Vec<Vec<u8>> = (0..2500_usize)
        .map(|n| vec![(n % 251) as u8; n % 7])
        .collect();
    let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    file.write_vectored_at(&slices, 5).unwrap();
    let expected = pieces.concat();
    let mut found = vec![0; expected.len()];
    file.read_exact_at(&mut found, 5).unwrap();
    assert_eq!(found, expected);
    assert_eq!(file.length().unwrap(), 5 + expected.len() as u64);
}

#[test]
fn open_options_decide_about_creating_and_cutting() {
    let folder = folder();
    let path = folder.path().join("a");
    assert_eq!(
        io_kind(FS.open(&path, OpenOptions::READ)),
        ErrorKind::NotFound
    );
    assert_eq!(
        io_kind(FS.open(&path, OpenOptions::WRITE)),
        ErrorKind::NotFound
    );
    written(&path, b"content");
    assert_eq!(
        io_kind(FS.open(&path, OpenOptions::CREATE_NEW)),
        ErrorKind::AlreadyExists
    );
    let kept = FS.open(&path, OpenOptions::CREATE).unwrap();
    assert_eq!(kept.length().unwrap(), 7);
    let truncate = OpenOptions {
        truncate: true,
        ..OpenOptions::WRITE
    };
    assert_eq!(FS.open(&path, truncate).unwrap().length().unwrap(), 0);
    let read_only = FS.open(&path, OpenOptions::READ).unwrap();
    assert!(matches!(
        read_only.write_at(b"x", 0),
        Err(Error::Io {
            operation: "write",
            ..
        })
    ));
    assert!(FS.open(folder.path(), OpenOptions::READ).is_err());
}

#[test]
fn lengths_change_and_new_bytes_are_zeros() {
    let folder = folder();
    let file = written(&folder.path().join("a"), b"abcdef");
    file.set_length(3).unwrap();
    file.set_length(6).unwrap();
    let mut buffer = [1; 6];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"abc\0\0\0");
}

#[test]
fn allocated_space_keeps_what_was_there() {
    let folder = folder();
    let file = written(&folder.path().join("a"), b"abc");
    file.allocate(0, 1 << 20).unwrap();
    assert_eq!(file.length().unwrap(), 1 << 20);
    let mut buffer = [1; 8];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"abc\0\0\0\0\0");
    assert!(file.allocate(u64::MAX, 2).is_err());
    file.allocate(0, 0).unwrap();
}

#[test]
fn a_hole_reads_as_zeros_and_leaves_what_lies_beside_it() {
    let folder = folder();
    let file = written(&folder.path().join("a"), &vec![7; 1 << 20]);
    file.punch_hole(4096, 700_000).unwrap();
    file.punch_hole(2 << 20, 4096).unwrap();
    let mut found = vec![1; 1 << 20];
    file.read_exact_at(&mut found, 0).unwrap();
    let mut expected = vec![7; 1 << 20];
    expected[4096..704_096].fill(0);
    assert!(found == expected);
    assert_eq!(file.length().unwrap(), 1 << 20);
}

#[test]
fn folders_are_listed_sorted_with_kinds() {
    let folder = folder();
    let root = folder.path();
    for name in ["b", "a.2", "a", "c"] {
        written(&root.join(name), b"");
    }
    FS.create_directory(&root.join("d")).unwrap();
    #[cfg(unix)]
    symlink("nowhere", root.join("e")).unwrap();
    let found: Vec<_> = FS
        .list(root)
        .unwrap()
        .into_iter()
        .map(|entry| (entry.name, entry.kind))
        .collect();
    let expected = [
        ("a", FileKind::File),
        ("a.2", FileKind::File),
        ("b", FileKind::File),
        ("c", FileKind::File),
        ("d", FileKind::Directory),
        #[cfg(unix)]
        ("e", FileKind::Other),
    ];
    assert_eq!(
        found,
        expected.map(|(name, kind)| (PathBuf::from(name), kind))
    );
    assert_eq!(io_kind(FS.list(&root.join("x"))), ErrorKind::NotFound);
}

#[test]
fn metadata_follows_links_and_answers_none_where_nothing_stands() {
    let folder = folder();
    let root = folder.path();
    written(&root.join("a"), &[1; 5000]).sync_data().unwrap();
    #[cfg(unix)]
    symlink("a", root.join("link")).unwrap();
    #[cfg(windows)]
    assert!(FS.link(&root.join("a"), &root.join("link")).unwrap());
    let found = FS.metadata(&root.join("link")).unwrap().unwrap();
    assert_eq!((found.kind, found.length), (FileKind::File, 5000));
    assert!(found.allocated >= 5000);
    let found = FS.metadata(root).unwrap().unwrap();
    assert_eq!(found.kind, FileKind::Directory);
    assert_eq!(FS.metadata(&root.join("x")).unwrap(), None);
    assert_eq!(FS.metadata(&root.join("a/below-a-file")).unwrap(), None);
}

#[test]
fn rename_replaces_and_removed_files_stay_readable_through_open_handles() {
    let folder = folder();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    written(&a, b"new");
    let old = written(&b, b"old");
    FS.rename(&a, &b).unwrap();
    FS.sync_directory(folder.path()).unwrap();
    let mut buffer = [0; 3];
    let file = FS.open(&b, OpenOptions::READ).unwrap();
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"new");
    old.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"old");
    FS.remove(&b).unwrap();
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"new");
    assert_eq!(io_kind(FS.remove(&b)), ErrorKind::NotFound);
    assert_eq!(io_kind(FS.rename(&a, &b)), ErrorKind::NotFound);
}

#[test]
fn folders_are_made_synced_and_removed_when_empty() {
    let folder = folder();
    let path = folder.path().join("d");
    FS.create_directory(&path).unwrap();
    assert_eq!(
        io_kind(FS.create_directory(&path)),
        ErrorKind::AlreadyExists
    );
    written(&path.join("a"), b"");
    assert_eq!(
        io_kind(FS.remove_directory(&path)),
        ErrorKind::DirectoryNotEmpty
    );
    FS.remove(&path.join("a")).unwrap();
    FS.remove_directory(&path).unwrap();
    assert_eq!(io_kind(FS.sync_directory(&path)), ErrorKind::NotFound);
}

#[test]
fn an_exclusive_lock_names_its_owner_and_ends_when_dropped() {
    let folder = folder();
    let path = folder.path().join("LOCK");
    let lock = FS.lock(&path, LockMode::Exclusive).unwrap();
    for mode in [LockMode::Exclusive, LockMode::Shared] {
        match FS.lock(&path, mode) {
            Err(Error::Locked { owner, .. }) => assert_eq!(owner, Some(std::process::id())),
            other => panic!("expected a refused lock, got {other:?}"),
        }
    }
    drop(lock);
    let first = FS.lock(&path, LockMode::Shared).unwrap();
    let second = FS.lock(&path, LockMode::Shared).unwrap();
    assert!(matches!(
        FS.lock(&path, LockMode::Exclusive),
        Err(Error::Locked { owner: None, .. })
    ));
    drop((first, second));
    FS.lock(&path, LockMode::Exclusive).unwrap();
}

#[test]
fn a_lock_is_refused_to_another_process_and_freed_by_its_death() {
    let folder = folder();
    let path = folder.path().join("LOCK");
    // `flock` of util-linux holds the lock while it runs its command; its end
    // of input says when to stop.
    let child = std::process::Command::new("flock")
        .arg(&path)
        .args(["-c", "echo held; read line"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("SKIPPED: no flock command (package util-linux)");
        return;
    };
    let mut said = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert!(matches!(
        FS.lock(&path, LockMode::Exclusive),
        Err(Error::Locked { .. })
    ));
    drop(child.stdin.take());
    child.wait().unwrap();
    FS.lock(&path, LockMode::Exclusive).unwrap();
}

#[test]
fn a_stale_owner_left_by_a_crash_is_not_blamed() {
    let folder = folder();
    let path = folder.path().join("LOCK");
    std::fs::write(&path, "4194305\n").unwrap(); // above any process id of Linux
    let _reader = FS.lock(&path, LockMode::Shared).unwrap();
    let Err(Error::Locked { owner, .. }) = FS.lock(&path, LockMode::Exclusive) else {
        panic!("a reader has it");
    };
    // Elsewhere nothing tells which processes run.
    let is_told = cfg!(target_os = "linux") && Path::new("/proc/self").exists();
    assert_eq!(owner.is_none(), is_told);
}

#[test]
fn space_is_told_and_advice_never_fails() {
    let folder = folder();
    let space = FS.space(folder.path()).unwrap();
    assert!(space.total > 0 && space.available <= space.total);
    let file = written(&folder.path().join("a"), &[3; 10_000]);
    for advice in [
        Advice::Normal,
        Advice::Random,
        Advice::Sequential,
        Advice::WillNeed,
        Advice::DontNeed,
    ] {
        file.advise(0, 10_000, advice);
        file.advise(5, 0, advice);
        file.advise(1 << 50, 7, advice);
    }
    let mut buffer = [0; 10_000];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(buffer, [3; 10_000]);
}

#[test]
fn threads_share_a_handle_without_disturbing_each_other() {
    let folder = folder();
    let file = FS
        .open(&folder.path().join("a"), OpenOptions::CREATE_NEW)
        .unwrap();
    std::thread::scope(|scope| {
        for number in 0..4_u8 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..50 {
                    let offset = (round * 4 + u64::from(number)) * 100;
                    file.write_at(&[number; 100], offset).unwrap();
                    let mut buffer = [9; 100];
                    file.read_exact_at(&mut buffer, offset).unwrap();
                    assert_eq!(buffer, [number; 100]);
                }
            });
        }
    });
    assert_eq!(file.length().unwrap(), 20_000);
}
