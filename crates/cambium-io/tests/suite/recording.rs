//! The recorder writes down and counts every operation, and changes none.

use std::path::Path;
use std::sync::Arc;

use cambium_io::batch::read_all;
use cambium_io::{
    Advice, AlignedBuffer, BatchOptions, FileSystem, IoCounters, LockMode, OpenOptions,
    ReadBackend, ReadRequest, RealFileSystem, Recorder, RecordingFileSystem,
};

fn recording(root: &Path) -> (RecordingFileSystem, Recorder) {
    RecordingFileSystem::new(Arc::new(RealFileSystem), root)
}

#[test]
fn every_operation_that_changes_something_leaves_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let (files, recorder) = recording(root);
    files.create_directory(&root.join("d")).unwrap();
    let lock = files.lock(&root.join("LOCK"), LockMode::Exclusive).unwrap();
    let file = files
        .open(&root.join("d/a"), OpenOptions::CREATE_NEW)
        .unwrap();
    file.allocate(0, 8192).unwrap();
    file.write_at(b"abc", 0).unwrap();
    file.write_vectored_at(&[b"de", b"fgh"], 3).unwrap();
    file.sync_data().unwrap();
    file.punch_hole(4096, 4096).unwrap();
    file.set_length(8).unwrap();
    file.advise(0, 8, Advice::DontNeed);
    file.read_at(&mut [0; 8], 0).unwrap();
    file.read_at(&mut [0; 8], 6).unwrap();
    files.rename(&root.join("d/a"), &root.join("d/b")).unwrap();
    files.sync_directory(&root.join("d")).unwrap();
    files.list(&root.join("d")).unwrap();
    files.remove(&root.join("d/b")).unwrap();
    files.remove_directory(&root.join("d")).unwrap();
    files.sync_directory(root).unwrap();
    drop(lock);
    let expected = "\
create-directory d
lock LOCK
open d/a write create-new
allocate d/a 0+8192
write d/a 0+3
write d/a 3+5 in 2 buffers
sync d/a
punch-hole d/a 4096+4096
set-length d/a 8
advise-dont-need d/a 0+8
read d/a 0+8
read d/a 6+8 -> 2
rename d/a d/b
sync-directory d
list d
remove d/b
remove-directory d
sync-directory .
";
    assert_eq!(recorder.take(), expected);
    assert_eq!(recorder.take(), "", "taken lines are gone");
    let expected = IoCounters {
        reads: 2,
        bytes_read: 10,
        writes: 2,
        bytes_written: 8,
        syncs: 1,
        directory_syncs: 2,
    };
    assert_eq!(recorder.counters(), expected);
}

#[test]
fn failures_are_recorded_with_their_reason() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let (files, recorder) = recording(root);
    files.open(&root.join("a"), OpenOptions::READ).unwrap_err();
    let text = recorder.take();
    assert!(
        text.starts_with("open a read -> failed: ") && text.contains("(os error 2)"),
        "{text}"
    );
}

#[test]
fn batched_reads_are_counted_once_by_every_back_end() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::write(root.join("a"), [7; 10_000]).unwrap();
    for backend in [ReadBackend::Sync, ReadBackend::Aio, ReadBackend::IoUring] {
        let (files, recorder) = recording(root);
        let file = files.open(&root.join("a"), OpenOptions::READ).unwrap();
        let mut queue = files
            .read_queue(BatchOptions { backend, depth: 2 })
            .unwrap();
        recorder.take();
        let requests = [0, 4096, 8192].map(|offset| ReadRequest {
            file: file.clone(),
            offset,
            buffer: AlignedBuffer::new(4096, 4096),
            tag: offset,
        });
        let mut bytes = 0;
        read_all(&mut *queue, requests, |completion| {
            bytes += completion.result?;
            Ok(())
        })
        .unwrap();
        assert_eq!(bytes, 10_000);
        assert_eq!(
            recorder.take(),
            "batched-read a 0+4096\nbatched-read a 4096+4096\nbatched-read a 8192+4096\n"
        );
        let counters = recorder.counters();
        assert_eq!(
            (counters.reads, counters.bytes_read),
            (3, 10_000),
            "{backend}"
        );
    }
}

#[test]
fn counting_alone_keeps_no_text_and_gives_differences() {
    let folder = tempfile::tempdir().unwrap();
    let (files, recorder) = RecordingFileSystem::counting(Arc::new(RealFileSystem));
    let file = files
        .open(&folder.path().join("a"), OpenOptions::CREATE_NEW)
        .unwrap();
    file.write_at(&[1; 100], 0).unwrap();
    let before = recorder.counters();
    file.read_at(&mut [0; 60], 50).unwrap();
    file.sync_data().unwrap();
    let difference = IoCounters {
        reads: 1,
        bytes_read: 50,
        syncs: 1,
        ..IoCounters::default()
    };
    assert_eq!(recorder.counters().since(before), difference);
    assert_eq!(recorder.take(), "");
}
