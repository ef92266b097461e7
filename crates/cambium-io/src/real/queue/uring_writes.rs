//! Writes and syncs through io_uring.
//!
//! Each write is submitted as it is taken, so that the device works while the caller
//! prepares the next; one call waits for all.
//!
//! Several files are *written and synced* by one call that submits an operation for each
//! and waits once: a device that takes requests without blocking has all of them before it
//! is waited for, and its flush follows the write without this thread. Of several files that
//! are *synced*, all but the last are an operation of the ring each, which the kernel does
//! on threads of its own; the last one is a plain call meanwhile, which wakes nobody. Where
//! that takes less time than to wake a thread, all are plain calls. One write to a single
//! file is synced by plain calls too.
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
use crate::batch::ReadBackend;
use crate::file_system::File;
use crate::write_queue::{WriteQueue, WriteRequest, write_and_sync};

/// How often a kernel short of memory is asked again, and the pause between.
const BUSY_ATTEMPTS: u32 = 1000;
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// A call that takes less is done by the one who waits: handing it to a thread of the
/// kernel, and hearing of it, takes about as long.
const QUICK: Duration = Duration::from_micros(30);

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
    /// The last sync, and the last synced writes, took no longer than [`QUICK`] each.
    quick: (bool, bool),
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
            quick: (false, false),
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

    /// Writes to one file, and syncs it when all are there.
    fn write_and_sync_one(&mut self, requests: Vec<WriteRequest>) -> Vec<Result<()>> {
        let first = self.slots.len();
        let file = requests[0].file.clone();
        requests
            .into_iter()
            .for_each(|request| self.submit(request));
        let mut answers = self.answers_from(first);
        if answers.iter().all(Result::is_ok) {
            answers.fill(file.sync_data());
        }
        answers
    }

    /// Writes to several files, each synced by the kernel as it ends.
    fn write_each_synced(&mut self, requests: Vec<WriteRequest>) -> Vec<Result<()>> {
        let first = self.slots.len();
        for request in requests {
            match write_entry(&request) {
                Some(entry) => {
                    let entry = entry.rw_flags(libc::RWF_DSYNC).build();
                    self.add(entry, Work::WriteSynced(request));
                }
                None => self.slots.push(Slot::Answered(write_synced(&request))),
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

/// One write and its sync, by plain calls.
fn write_synced(request: &WriteRequest) -> Result<()> {
    request.file.write_at(&request.bytes, request.offset)?;
    request.file.sync_data()
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
        for file in others {
            match file.raw_descriptor().filter(|_| !self.quick.0) {
                Some(descriptor) => {
                    let entry = opcode::Fsync::new(types::Fd(descriptor))
                        .flags(types::FsyncFlags::DATASYNC)
                        .build();
                    self.start(entry, Work::Sync(file.clone()));
                }
                None => self.slots.push(Slot::Answered(file.sync_data())),
            }
        }
        let begin = Instant::now();
        self.slots.push(Slot::Answered(own.sync_data()));
        self.quick.0 = begin.elapsed() < QUICK;
        self.answers_from(first)
    }

    fn write_synced(&mut self, requests: Vec<WriteRequest>) -> Vec<Result<()>> {
        let is_one_file = requests
            .windows(2)
            .all(|pair| Arc::ptr_eq(&pair[0].file, &pair[1].file));
        let begin = Instant::now();
        if self.quick.1 || requests.len() < 2 {
            let answers = write_and_sync(&requests);
            self.quick.1 = begin.elapsed() < QUICK * answers.len() as u32;
            return answers;
        }
        let answers = match is_one_file {
            true => self.write_and_sync_one(requests),
            false => self.write_each_synced(requests),
        };
        // As quick as one alone would be, threads and all.
        self.quick.1 = begin.elapsed() < QUICK;
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
            // As one that is slow, and as one that is quick.
            queue.quick = (round > 0, round > 0);
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
}
