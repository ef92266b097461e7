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
use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::super::file::VECTOR_LIMIT;
use super::LONGEST_READ;
use super::ways::{Chooser, Shape, Way};
use crate::batch::ReadBackend;
use crate::buffer::AlignedBuffer;
use crate::file_system::File;
use crate::write_queue::{WriteQueue, WriteRequest, write_and_sync};

/// How often a kernel short of memory is asked again, and the pause between.
const BUSY_ATTEMPTS: u32 = 1000;
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// What the kernel works on; kept until it has answered.
enum Work {
    Write(Handed),
    WriteSynced(Handed),
    Sync(Arc<dyn File>),
}

/// A write that the kernel has.
struct Handed {
    request: WriteRequest,
    /// Where its buffers lie, if they are several: the kernel's to read.
    _vectors: Vec<libc::iovec>,
}

// SAFETY: nobody writes through these addresses; they are those of buffers which the request
// shares, and which any thread may read and let go.
unsafe impl Send for Handed {}

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
        let needed = [
            opcode::Write::CODE,
            opcode::Writev::CODE,
            opcode::Fsync::CODE,
        ];
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
    fn start(&mut self, entry: squeue::Entry, work: Work) {
        self.add(entry, work);
        self.enter(0);
    }

    /// Adds an operation, which the next [`UringWriteQueue::enter`] hands to the kernel.
    fn add(&mut self, entry: squeue::Entry, work: Work) {
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
            match write_entry(request, 0) {
                Ok((entry, write)) => self.add(entry, Work::Write(write)),
                Err(request) => self.submit(request),
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
            let entry = match number < in_ring {
                true => write_entry(request, libc::RWF_DSYNC),
                false => Err(request),
            };
            match entry {
                Ok((entry, write)) => self.add(entry, Work::WriteSynced(write)),
                Err(request) => {
                    // What was added begins first.
                    self.enter(0);
                    self.slots.push(Slot::Answered(request.write_synced()));
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
    let error = || io::Error::from_raw_os_error(-result);
    let done = usize::try_from(result).unwrap_or(0);
    match work {
        Work::Write(Handed { request, .. }) => match done < request.byte_count() {
            true if result >= 0 || again => request.write_rest(done),
            true => Err(Error::io("write", request.file.path(), error())),
            false => Ok(()),
        },
        Work::WriteSynced(Handed { request, .. }) => match done == request.byte_count() {
            true => Ok(()),
            // A part is as good as nothing.
            false if result >= 0 || again => request.write_synced(),
            // The kernel does not say whether the write or its sync has failed.
            false => Err(Error::sync("write and sync", request.file.path(), error())),
        },
        // Broken off before it was done: nothing is lost by doing it.
        Work::Sync(file) if again => file.sync_data(),
        Work::Sync(_) if result >= 0 => Ok(()),
        Work::Sync(file) => Err(Error::sync("sync", file.path(), error())),
    }
}

/// A write as an operation of the ring, and what must stay meanwhile; the request itself
/// where it cannot be one.
fn write_entry(
    request: WriteRequest,
    flags: i32,
) -> std::result::Result<(squeue::Entry, Handed), WriteRequest> {
    let length = request.byte_count();
    let fits = length > 0 && length <= LONGEST_READ && request.buffers.len() <= VECTOR_LIMIT;
    let Some(descriptor) = request.file.raw_descriptor().filter(|_| fits) else {
        return Err(request);
    };
    let descriptor = types::Fd(descriptor);
    let handed = |request, vectors| Handed {
        request,
        _vectors: vectors,
    };
    if let [bytes] = &request.buffers[..] {
        let entry = opcode::Write::new(descriptor, bytes.as_ptr(), length as u32);
        let entry = entry.offset(request.offset).rw_flags(flags).build();
        return Ok((entry, handed(request, Vec::new())));
    }
    let vector = |bytes: &Arc<AlignedBuffer>| libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let vectors: Vec<_> = request.buffers.iter().map(vector).collect();
    let count = request.buffers.len() as u32;
    let entry = opcode::Writev::new(descriptor, vectors.as_ptr(), count);
    let entry = entry.offset(request.offset).rw_flags(flags).build();
    Ok((entry, handed(request, vectors)))
}

fn queue_failure(error: io::Error) -> Error {
    Error::io("io_uring_enter", "io_uring write queue", error)
}

impl WriteQueue for UringWriteQueue {
    fn backend(&self) -> ReadBackend {
        ReadBackend::IoUring
    }

    fn submit(&mut self, request: WriteRequest) {
        match write_entry(request, 0) {
            Ok((entry, write)) => self.start(entry, Work::Write(write)),
            Err(request) => self.slots.push(Slot::Answered(request.write())),
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
            Way::SyncedCalls => requests.iter().map(WriteRequest::write_synced).collect(),
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
mod tests;
