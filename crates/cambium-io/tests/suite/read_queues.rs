//! The three back ends of batched reads answer alike, and as the file does.

use std::path::Path;
use std::sync::Arc;

use cambium_io::batch::read_all;
use cambium_io::simulated::Generator;
use cambium_io::{
    AlignedBuffer, BatchOptions, File, FileSystem, OpenOptions, ReadBackend, ReadQueue,
    ReadRequest, RealFileSystem,
};

const BACKENDS: [ReadBackend; 3] = [ReadBackend::Sync, ReadBackend::Aio, ReadBackend::IoUring];

/// Not a multiple of any sector, so that reads cross the end.
const FILE_BYTES: usize = (1 << 20) + 777;

fn content() -> Vec<u8> {
    let mut random = Generator::new(0x9E37_79B9_7F4A_7C15);
    (0..FILE_BYTES).map(|_| random.below(256) as u8).collect()
}

fn queue(backend: ReadBackend, depth: usize) -> Box<dyn ReadQueue> {
    let queue = RealFileSystem
        .read_queue(BatchOptions { backend, depth })
        .unwrap();
    if queue.backend() != backend {
        println!("SKIPPED: {backend}: {}", queue.fallback_note().unwrap());
    }
    queue
}

fn open(path: &Path, direct: bool) -> Option<Arc<dyn File>> {
    let options = if direct {
        OpenOptions::READ.direct()
    } else {
        OpenOptions::READ
    };
    match RealFileSystem.open(path, options) {
        Ok(file) => Some(file),
        Err(error) if direct => {
            println!("SKIPPED: direct reads: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Random places and lengths in units of what the handle demands, some of them
/// across the end of the file and some beyond it.
fn random_requests(file: &Arc<dyn File>, count: usize) -> Vec<ReadRequest> {
    let unit = file.alignment().offset as u64;
    let mut random = Generator::new(count as u64 + unit);
    (0..count)
        .map(|tag| {
            let (offset, length) = if unit == 1 {
                let offset = random.below(FILE_BYTES as u64 + 5000);
                (offset, random.below(20_000) as usize)
            } else {
                let offset = random.below(FILE_BYTES as u64 / unit + 4) * unit;
                (offset, ((1 + random.below(8)) * unit) as usize)
            };
            ReadRequest {
                file: file.clone(),
                offset,
                buffer: AlignedBuffer::new(length, file.alignment().memory.max(512)),
                tag: tag as u64,
            }
        })
        .collect()
}

fn expected(content: &[u8], request: &ReadRequest) -> Vec<u8> {
    let start = (request.offset as usize).min(content.len());
    let end = (start + request.buffer.len()).min(content.len());
    content[start..end].to_vec()
}

#[test]
fn every_back_end_reads_the_same_bytes_at_every_depth() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let content = content();
    std::fs::write(&path, &content).unwrap();
    let written = RealFileSystem.open(&path, OpenOptions::WRITE);
    written.unwrap().sync_data().unwrap();
    for direct in [false, true] {
        let Some(file) = open(&path, direct) else {
            continue;
        };
        for backend in BACKENDS {
            for depth in [1, 7, 128, 1024] {
                let requests = random_requests(&file, 1500);
                let expected: Vec<_> = requests.iter().map(|r| expected(&content, r)).collect();
                let mut seen = vec![false; requests.len()];
                let mut queue = queue(backend, depth);
                read_all(&mut *queue, requests, |completion| {
                    let tag = completion.tag as usize;
                    let count = completion.result?;
                    let context = format!("{backend} depth {depth} direct {direct} read {tag}");
                    assert_eq!(&completion.buffer[..count], expected[tag], "{context}");
                    assert!(!std::mem::replace(&mut seen[tag], true), "{context} twice");
                    Ok(())
                })
                .unwrap();
                assert!(seen.iter().all(|&seen| seen), "every read was answered");
                assert_eq!(queue.pending(), 0);
                let bytes: usize = expected.iter().map(Vec::len).sum();
                assert_eq!(queue.statistics().reads, 1500);
                assert_eq!(queue.statistics().bytes, bytes as u64);
            }
        }
    }
}

#[test]
fn a_failed_read_is_in_its_completion_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    std::fs::write(&path, content()).unwrap();
    let file = open(&path, false).unwrap();
    for backend in BACKENDS {
        let mut queue = queue(backend, 8);
        for tag in 0..8 {
            queue.submit(ReadRequest {
                file: file.clone(),
                // The kernel takes no offset past 2^63: EINVAL.
                offset: if tag == 3 { 1 << 63 } else { tag * 100 },
                buffer: AlignedBuffer::new(100, 512),
                tag,
            });
        }
        let mut completions = Vec::new();
        queue.wait(8, &mut completions).unwrap();
        completions.sort_by_key(|completion| completion.tag);
        assert_eq!(completions.len(), 8, "{backend}");
        for completion in completions {
            match completion.result {
                Ok(count) => assert_eq!((count, completion.tag != 3), (100, true), "{backend}"),
                Err(error) => {
                    assert_eq!(completion.tag, 3, "{backend}: {error}");
                    assert!(error.to_string().contains("data"), "{backend}: {error}");
                }
            }
        }
    }
}

#[test]
fn looking_without_waiting_comes_to_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    std::fs::write(&path, content()).unwrap();
    let file = open(&path, false).unwrap();
    for backend in BACKENDS {
        let mut queue = queue(backend, 64);
        for request in random_requests(&file, 64) {
            queue.submit(request);
        }
        let mut completions = Vec::new();
        let start = std::time::Instant::now();
        while queue.pending() > 0 {
            queue.wait(0, &mut completions).unwrap();
            assert!(start.elapsed().as_secs() < 30, "{backend} does not get on");
        }
        assert_eq!(completions.len(), 64);
        // With nothing under way a wait answers at once.
        queue.wait(1, &mut completions).unwrap();
        assert_eq!(completions.len(), 64);
    }
}

#[test]
fn a_queue_may_move_between_threads_with_reads_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let content = content();
    std::fs::write(&path, &content).unwrap();
    let written = RealFileSystem.open(&path, OpenOptions::WRITE);
    written.unwrap().sync_data().unwrap();
    for direct in [false, true] {
        let Some(file) = open(&path, direct) else {
            continue;
        };
        file.advise(0, FILE_BYTES as u64, cambium_io::Advice::DontNeed);
        for backend in BACKENDS {
            let mut queue = queue(backend, 128);
            let requests = random_requests(&file, 512);
            let expected: Vec<_> = requests.iter().map(|r| expected(&content, r)).collect();
            let mut requests = requests.into_iter();
            let mut completions = Vec::new();
            let mut answered = 0;
            while answered < expected.len() {
                // Each round runs on a thread of its own, which then ends.
                let batch: Vec<_> = requests.by_ref().take(64).collect();
                let worker = std::thread::spawn(move || {
                    for request in batch {
                        queue.submit(request);
                    }
                    let mut completions = Vec::new();
                    let surplus = queue.pending().saturating_sub(64);
                    queue.wait(surplus.max(1), &mut completions).unwrap();
                    (queue, completions)
                });
                let (back, mut some) = worker.join().unwrap();
                queue = back;
                completions.append(&mut some);
                for completion in completions.drain(..) {
                    let count = completion.result.unwrap();
                    let tag = completion.tag as usize;
                    assert_eq!(
                        &completion.buffer[..count],
                        expected[tag],
                        "{backend} {tag}"
                    );
                    answered += 1;
                }
            }
            assert_eq!(queue.pending(), 0);
        }
    }
}

#[test]
fn a_queue_that_is_dropped_waits_for_what_is_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    std::fs::write(&path, content()).unwrap();
    let written = RealFileSystem.open(&path, OpenOptions::WRITE);
    written.unwrap().sync_data().unwrap();
    let Some(file) = open(&path, true) else {
        return;
    };
    for backend in BACKENDS {
        for _ in 0..20 {
            let mut queue = queue(backend, 256);
            for request in random_requests(&file, 256) {
                queue.submit(request);
            }
            queue.wait(1, &mut Vec::new()).unwrap();
            drop(queue);
        }
        // The requests held the only other references to the file.
        assert_eq!(Arc::strong_count(&file), 1, "{backend} kept a request");
    }
}

#[test]
fn a_depth_out_of_bounds_is_refused() {
    for backend in BACKENDS {
        for depth in [0, 1025] {
            let options = BatchOptions { backend, depth };
            assert!(RealFileSystem.read_queue(options).is_err());
        }
    }
}

#[test]
fn batches_cost_few_system_calls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    std::fs::write(&path, content()).unwrap();
    let written = RealFileSystem.open(&path, OpenOptions::WRITE);
    written.unwrap().sync_data().unwrap();
    let Some(file) = open(&path, true) else {
        return;
    };
    for backend in [ReadBackend::Aio, ReadBackend::IoUring] {
        let mut queue = queue(backend, 128);
        if queue.backend() != backend {
            continue;
        }
        for request in random_requests(&file, 128) {
            queue.submit(request);
        }
        let mut completions = Vec::new();
        queue.wait(128, &mut completions).unwrap();
        assert_eq!(completions.len(), 128);
        // Eight submissions and the waits; a few more for short reads.
        let calls = queue.statistics().system_calls;
        assert!(calls <= 40, "{backend} took {calls} system calls");
    }
}
