//! Writes and syncs through io_uring.
//!
//! Each write is submitted as it is taken, so that the device works while the caller
//! prepares the next; one call waits for all.
//!
//! Writes that are to be durable at once can be done in several ways ([`super::ways`]): by
//! plain calls, which wake nobody, or as operations of the ring, which several devices have
//! at the same time. Which takes the least time is found by measuring
//! ([`super::choice`]), for writes of about the same size and number each.
//!
//! What the kernel breaks off (a short write, `EAGAIN`, `ECANCELED`, and `EFAULT` once
//! the thread that submitted has ended) is finished by plain calls. If the ring itself
//! fails, nothing says when the kernel stops reading
//! the buffers: they are never freed, and every answer is the failure.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cambium_base::{Error, Result};
use io_uring::{IoUring, Probe, opcode, types};

use super::LONGEST_READ;
use super::ways::{Chooser, Shape, Way};
use crate::batch::ReadBackend;
use crate::file_system::File;
use crate::write_queue::{WriteQueue, WriteRequest, write_and_sync};

/// How often a kernel short of memory is asked again, and the pause between.
const BUSY_ATTEMPTS: u32 = 1000;
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// What the kernel works on; kept until it has answered.
enum Work {
    Write(WriteRequest),
    WriteSynced(WriteRequest),
    Sync(Arc<dyn File>),
}

enum Slot {
    Under(Work),
    Answered(Result<()>),
}

/// A ring and what is in it.
pub(super) struct UringWriteQueue {
    ring: ManuallyDrop<IoUring>,
    /// In the order in which they were taken; outlives the kernel's use, see `drop`.
    slots: ManuallyDrop<Vec<Slot>>,
    in_kernel: usize,
    depth: usize,
    chooser: Chooser,
    /// The ring is of no use any more.
    failure: Option<Error>,
}

impl UringWriteQueue {
    /// Sets a ring up, or says why the kernel refuses.
    pub(super) fn new(depth: usize) -> io::Result<Self> {
        let entries = u32::try_from(depth.next_power_of_two()).map_err(io::Error::other)?;
        let ring = match IoUring::builder().setup_coop_taskrun().build(entries) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries)?,
            other => other?,
        };
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Write::CODE, opcode::Fsync::CODE];
        if needed.iter().any(|&code| !probe.is_supported(code)) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        Ok(UringWriteQueue {
            ring: ManuallyDrop::new(ring),
            slots: ManuallyDrop::new(Vec::new()),
            in_kernel: 0,
            depth,
            chooser: Chooser::default(),
            failure: None,
        })
    }

    /// Hands an operation to the kernel; `work` is what it works on.
    fn start(&mut self, entry: io_uring::squeue::Entry, work: Work) {
        self.add(entry, work);
        self.enter(0);
    }

    /// Adds an operation, which the next [`UringWriteQueue::enter`] hands to the kernel.
    fn add(&mut self, entry: io_uring::squeue::Entry, work: Work) {
        while self.in_kernel >= self.depth && self.failure.is_none() {
            self.enter(1);
        }
        if let Some(error) = self.failure.clone() {
            return self.slots.push(Slot::Answered(Err(error)));
        }
        let entry = entry.user_data(self.slots.len() as u64);
        self.slots.push(Slot::Under(work));
        // SAFETY: the memory and the descriptor belong to `work`, which its slot keeps
        // until the kernel's answer; `drop` waits for every answer.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            // No more are added than the ring has room for.
            self.slots.pop();
            let full = io::Error::from_raw_os_error(libc::EBUSY);
            self.slots.push(Slot::Answered(Err(queue_failure(full))));
            return;
        }
        self.in_kernel += 1;
    }

    /// Submits what is in the ring, waits for `missing` answers, and takes what there is.
    fn enter(&mut self, missing: usize) {
        for _ in 0..BUSY_ATTEMPTS {
            match self.ring.submitter().submit_and_wait(missing) {
                Ok(_) => return self.reap(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                    self.reap();
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(error) => {
                    self.failure = Some(queue_failure(error));
                    return;
                }
            }
        }
        let busy = io::Error::from_raw_os_error(libc::EAGAIN);
        self.failure = Some(queue_failure(busy));
    }

    /// Takes the answers that are there.
    fn reap(&mut self) {
        for answer in self.ring.completion() {
            let number = usize::try_from(answer.user_data()).unwrap_or(usize::MAX);
            let Some(slot) = self.slots.get_mut(number) else {
                continue;
            };
            if let Slot::Under(work) = slot {
                self.in_kernel -= 1;
                *slot = Slot::Answered(finish(work, answer.result()));
            }
        }
    }

    /// Writes through the ring, and syncs each file when all of its writes are there.
    fn write_then_sync(&mut self, requests: Vec<WriteRequest>) -> Vec<Result<()>> {
        let first = self.slots.len();
        let files: Vec<_> = requests
            .iter()
            .map(|request| request.file.clone())
            .collect();
        for request in requests {
            match write_entry(&request) {
                Some(entry) => self.add(entry.build(), Work::Write(request)),
                None => self.submit(request),
            }
        }
        let mut answers = self.answers_from(first);
        let mut at = 0;
        for of_file in files.chunk_by(Arc::ptr_eq) {
            let own = &mut answers[at..at + of_file.len()];
            if own.iter().all(Result::is_ok) {
                own.fill(of_file[0].sync_data());
            }
            at += of_file.len();
        }
        answers
    }

    /// Writes that are synced by the kernel as they end: all through the ring, or the last
    /// one by a call meanwhile.
    fn write_each_synced(
        &mut self,
        requests: Vec<WriteRequest>,
        last_by_call: bool,
    ) -> Vec<Result<()>> {
        let first = self.slots.len();
        let in_ring = requests.len() - usize::from(last_by_call);
        for (number, request) in requests.into_iter().enumerate() {
            match write_entry(&request).filter(|_| number < in_ring) {
                Some(entry) => {
                    let entry = entry.rw_flags(libc::RWF_DSYNC).build();
                    self.add(entry, Work::WriteSynced(request));
                }
                None => {
                    // What was added begins first.
                    self.enter(0);
                    self.slots.push(Slot::Answered(write_synced(&request)));
                }
            }
        }
        self.answers_from(first)
    }

    /// Waits for everything that the kernel has, and answers all from `first` on.
    fn answers_from(&mut self, first: usize) -> Vec<Result<()>> {
        while self.in_kernel > 0 && self.failure.is_none() {
            self.enter(self.in_kernel);
        }
        let answered = self.slots.drain(first..).map(|slot| match slot {
            Slot::Answered(answer) => answer,
            Slot::Under(work) => {
                // Never freed: the kernel may still read it.
                std::mem::forget(work);
                Err(self.failure.clone().unwrap_or(Error::Closed))
            }
        });
        answered.collect()
    }
}

/// Makes an answer of the kernel's one of ours; finishes what it broke off.
fn finish(work: &Work, result: i32) -> Result<()> {
    let broken_off = [libc::EAGAIN, libc::EINTR, libc::ECANCELED, libc::EFAULT];
    let again = broken_off.contains(&-result);
    let failed = |operation, file: &Arc<dyn File>| {
        let error = io::Error::from_raw_os_error(-result);
        Err(Error::io(operation, file.path(), error))
    };
    let done = usize::try_from(result).unwrap_or(0);
    match work {
        Work::Write(request) if result >= 0 || again => match request.bytes.get(done..) {
            Some(rest) if !rest.is_empty() => {
                request.file.write_at(rest, request.offset + done as u64)
            }
            _ => Ok(()),
        },
        Work::Write(request) => failed("write", &request.file),
        Work::WriteSynced(request) if done == request.bytes.len() => Ok(()),
        // A part is as good as nothing.
        Work::WriteSynced(request) if result >= 0 || again => write_synced(request),
        Work::WriteSynced(request) => failed("sync of a write", &request.file),
        // Broken off before it was done: nothing is lost by doing it.
        Work::Sync(file) if again => file.sync_data(),
        Work::Sync(_) if result >= 0 => Ok(()),
        Work::Sync(file) => failed("sync", file),
    }
}

/// A write as an operation of the ring, where it can be one.
fn write_entry(request: &WriteRequest) -> Option<opcode::Write> {
    let length = request.bytes.len();
    let fits = length > 0 && length <= LONGEST_READ;
    let descriptor = request.file.raw_descriptor().filter(|_| fits)?;
    let memory = request.bytes.as_ptr();
    let entry = opcode::Write::new(types::Fd(descriptor), memory, length as u32);
    Some(entry.offset(request.offset))
}

/// One write and its sync, by a plain call.
fn write_synced(request: &WriteRequest) -> Result<()> {
    request.file.write_synced_at(&request.bytes, request.offset)
}

fn queue_failure(error: io::Error) -> Error {
    Error::io("io_uring_enter", "io_uring write queue", error)
}

impl WriteQueue for UringWriteQueue {
    fn backend(&self) -> ReadBackend {
        ReadBackend::IoUring
    }

    fn submit(&mut self, request: WriteRequest) {
        match write_entry(&request) {
            Some(entry) => self.start(entry.build(), Work::Write(request)),
            None => {
                let answer = request.file.write_at(&request.bytes, request.offset);
                self.slots.push(Slot::Answered(answer));
            }
        }
    }

    fn wait_all(&mut self) -> Vec<Result<()>> {
        self.answers_from(0)
    }

    fn sync_all(&mut self, files: &[Arc<dyn File>]) -> Vec<Result<()>> {
        let first = self.slots.len();
        let Some((own, others)) = files.split_last() else {
            return Vec::new();
        };
        let shape = Shape::of_syncs(files.len());
        let way = self.chooser.next(shape);
        let begin = Instant::now();
        for file in others {
            match file.raw_descriptor().filter(|_| way != Way::Calls) {
                Some(descriptor) => {
                    let entry = opcode::Fsync::new(types::Fd(descriptor))
                        .flags(types::FsyncFlags::DATASYNC)
                        .build();
                    self.start(entry, Work::Sync(file.clone()));
                }
                None => self.slots.push(Slot::Answered(file.sync_data())),
            }
        }
        self.slots.push(Slot::Answered(own.sync_data()));
        let answers = self.answers_from(first);
        self.chooser.took(shape, begin.elapsed());
        answers
    }

    fn write_synced(&mut self, requests: Vec<WriteRequest>) -> Vec<Result<()>> {
        let shape = Shape::of_writes(&requests);
        let way = self.chooser.next(shape);
        let begin = Instant::now();
        let answers = match way {
            Way::Calls => write_and_sync(&requests),
            Way::SyncedCalls => requests.iter().map(write_synced).collect(),
            Way::Ring => self.write_each_synced(requests, false),
            Way::RingAndCall => self.write_each_synced(requests, true),
            Way::RingThenSync => self.write_then_sync(requests),
        };
        self.chooser.took(shape, begin.elapsed());
        answers
    }
}

impl Drop for UringWriteQueue {
    fn drop(&mut self) {
        _ = self.answers_from(0);
        if self.failure.is_some() {
            // The kernel may still use the ring and the buffers: never freed.
            return;
        }
        // SAFETY: dropped once, here, and not used afterwards. Nothing is under way.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.slots) };
    }
}

impl fmt::Debug for UringWriteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringWriteQueue")
            .field("depth", &self.depth)
            .field("in_kernel", &self.in_kernel)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::buffer::AlignedBuffer;
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
                    queue.submit(WriteRequest {
                        file: file.clone(),
                        offset: u64::from(number) * 4096,
                        bytes: block(number + round),
                    });
                }
            }
            let answers = queue.wait_all();
            assert_eq!(answers.len(), 40);
            assert!(answers.iter().all(Result::is_ok));
            assert!(queue.sync_all(&files).iter().all(Result::is_ok));
            let synced = files.iter().flat_map(|file| {
                [20, 21].map(|at| WriteRequest {
                    file: file.clone(),
                    offset: u64::from(at) * 4096,
                    bytes: block(at + round),
                })
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
            queue.submit(WriteRequest {
                file: file.clone(),
                offset: number * 4096,
                bytes: block(1),
            });
        }
        let failed: Vec<bool> = queue.wait_all().iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, false, false, true, false, false]);
        assert_eq!(file.length().unwrap(), 6 * 4096);
        // What is dropped without being waited for is written all the same.
        queue.submit(WriteRequest {
            file: file.clone(),
            offset: 6 * 4096,
            bytes: block(2),
        });
        drop(queue);
        assert_eq!(file.length().unwrap(), 7 * 4096);
    }

    /// Has so many writes to each file made durable, until every way was taken; says which
    /// ways those were and what each answered.
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
                    offset: at * 4096,
                    bytes: block(round),
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
            let mut found = vec![0; writes as usize * 4096];
            files[0].read_exact_at(&mut found, 0).unwrap();
            assert!(found.iter().all(|&byte| byte == round), "{way:?}");
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
}
