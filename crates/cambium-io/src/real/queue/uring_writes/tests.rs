//! Tests of writes through io_uring: every way, failures, several buffers.

use super::*;
use crate::file_system::{FileSystem, OpenOptions};
use crate::real::RealFileSystem;

fn block(byte: u8) -> Arc<AlignedBuffer> {
    let mut bytes = AlignedBuffer::new(4096, 4096);
    bytes.fill(byte);
    Arc::new(bytes)
}

#[test]
fn more_writes_than_the_queue_is_deep_reach_two_files() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let path = folder.path().join(name);
        RealFileSystem.open(&path, OpenOptions::CREATE).unwrap()
    };
    let files = [open("one"), open("two")];
    let Ok(mut queue) = UringWriteQueue::new(4) else {
        println!("SKIPPED: the kernel refuses io_uring");
        return;
    };
    for round in 0..3u8 {
        for number in 0..20u8 {
            for file in &files {
                queue.submit(WriteRequest::of(
                    file.clone(),
                    u64::from(number) * 4096,
                    block(number + round),
                ));
            }
        }
        let answers = queue.wait_all();
        assert_eq!(answers.len(), 40);
        assert!(answers.iter().all(Result::is_ok));
        assert!(queue.sync_all(&files).iter().all(Result::is_ok));
        let synced = files.iter().flat_map(|file| {
            [20, 21]
                .map(|at| WriteRequest::of(file.clone(), u64::from(at) * 4096, block(at + round)))
        });
        let answers = queue.write_synced(synced.collect());
        assert!(answers.len() == 4 && answers.iter().all(Result::is_ok));
        for file in &files {
            let mut found = vec![0; 22 * 4096];
            file.read_exact_at(&mut found, 0).unwrap();
            for (number, bytes) in (0u8..).zip(found.chunks(4096)) {
                assert!(bytes.iter().all(|&byte| byte == number + round));
            }
        }
    }
}

#[test]
fn a_write_that_fails_is_answered_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let file = RealFileSystem.open(&path, OpenOptions::CREATE).unwrap();
    let read_only = RealFileSystem.open(&path, OpenOptions::READ).unwrap();
    let Ok(mut queue) = UringWriteQueue::new(8) else {
        println!("SKIPPED: the kernel refuses io_uring");
        return;
    };
    for number in 0..6 {
        let file = if number == 3 { &read_only } else { &file };
        queue.submit(WriteRequest::of(file.clone(), number * 4096, block(1)));
    }
    let failed: Vec<bool> = queue.wait_all().iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, false, false, true, false, false]);
    assert_eq!(file.length().unwrap(), 6 * 4096);
    // What is dropped without being waited for is written all the same.
    queue.submit(WriteRequest::of(file.clone(), 6 * 4096, block(2)));
    drop(queue);
    assert_eq!(file.length().unwrap(), 7 * 4096);
}

#[test]
fn several_buffers_are_written_as_one_however_many_and_go_on_where_a_write_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let file = RealFileSystem.open(&path, OpenOptions::CREATE).unwrap();
    let Ok(mut queue) = UringWriteQueue::new(8) else {
        println!("SKIPPED: the kernel refuses io_uring");
        return;
    };
    let buffer = |number: usize| {
        let mut bytes = AlignedBuffer::new(number % 7, 8);
        bytes.fill(number as u8);
        Arc::new(bytes)
    };
    let whole = |count: usize| -> Vec<u8> { (0..count).flat_map(|n| buffer(n).to_vec()).collect() };
    for count in [0, 1, 2, 9, VECTOR_LIMIT, VECTOR_LIMIT + 1] {
        let request = WriteRequest {
            file: file.clone(),
            offset: 5,
            buffers: (0..count).map(buffer).collect(),
        };
        let wanted = whole(count);
        assert_eq!(request.byte_count(), wanted.len());
        let found = || {
            let mut found = vec![0; wanted.len()];
            file.read_exact_at(&mut found, 5).unwrap();
            file.write_at(&vec![0; wanted.len()], 5).unwrap();
            found
        };
        queue.submit(request.clone());
        assert!(queue.wait_all()[0].is_ok());
        assert_eq!(found(), wanted);
        assert!(queue.write_synced(vec![request.clone()])[0].is_ok());
        assert_eq!(found(), wanted);
        for done in 0..wanted.len().min(40) {
            let answer = i32::try_from(done).unwrap();
            file.write_at(&wanted[..done], 5).unwrap();
            let write = Handed {
                request: request.clone(),
                _vectors: Vec::new(),
            };
            finish(&Work::Write(write), answer).unwrap();
            assert_eq!(found(), wanted, "after {done} bytes");
        }
    }
}

/// Has so many writes to each file made durable, until every way was taken; says which
/// ways those were and what each answered. Each writes two buffers.
fn by_every_way(files: &[Arc<dyn File>], writes: u64) -> Vec<(Way, Vec<bool>)> {
    let Ok(mut queue) = UringWriteQueue::new(4) else {
        println!("SKIPPED: the kernel refuses io_uring");
        return Vec::new();
    };
    let mut answered: Vec<(Way, Vec<bool>)> = Vec::new();
    for round in 1..6u8 {
        let requests = files.iter().flat_map(|file| {
            (0..writes).map(|at| WriteRequest {
                file: file.clone(),
                offset: at * 8192,
                buffers: vec![block(round), block(round + 100)],
            })
        });
        let requests: Vec<_> = requests.collect();
        let shape = Shape::of_writes(&requests);
        let way = queue.chooser.next(shape);
        if answered.iter().any(|(taken, _)| *taken == way) {
            break;
        }
        let written = queue.write_synced(requests);
        answered.push((way, written.iter().map(Result::is_ok).collect()));
        let mut found = vec![0; writes as usize * 8192];
        files[0].read_exact_at(&mut found, 0).unwrap();
        for (number, bytes) in found.chunks(4096).enumerate() {
            let wanted = round + 100 * (number % 2) as u8;
            assert!(bytes.iter().all(|&byte| byte == wanted), "{way:?}");
        }
    }
    answered
}

#[test]
fn every_way_writes_all_and_blames_only_the_file_that_failed() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str, options| {
        let path = folder.path().join(name);
        RealFileSystem.open(&path, options).unwrap()
    };
    let files = [
        open("one", OpenOptions::CREATE),
        open("two", OpenOptions::CREATE),
    ];
    let halves = [files[0].clone(), open("two", OpenOptions::READ)];
    for (writes, ways) in [(1, [3, 4]), (2, [3, 3])] {
        for count in [1, 2] {
            let answered = by_every_way(&files[..count], writes);
            if answered.is_empty() {
                return;
            }
            assert_eq!(answered.len(), ways[count - 1], "{answered:?}");
            assert!(answered.iter().all(|(_, all)| all.iter().all(|&ok| ok)));
        }
        for (way, answers) in by_every_way(&halves, writes) {
            let (first, second) = answers.split_at(writes as usize);
            assert!(first.iter().all(|&ok| ok), "{way:?}");
            assert!(second.iter().all(|&ok| !ok), "{way:?}");
        }
    }
}
