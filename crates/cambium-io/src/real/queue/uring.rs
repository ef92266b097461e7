//! Reads through io_uring.
//!
//! Requests are collected until the next wait and reach the kernel in pieces
//! (see `piece_of`); the call that submits the last piece also waits. Answers that are already in the completion
//! ring cost no system call.
//!
//! Set-up flags. A [`ReadQueue`] may move between threads, also while reads
//! are under way (a compaction that is a state machine is stepped by whoever
//! comes). `single_issuer` and `defer_taskrun` bind a ring to one thread for
//! ever: no other may submit, or even wait for what was submitted, so a moved
//! queue could neither answer nor safely free its buffers. They are left out;
//! `coop_taskrun` alone saves the interrupts and works from every thread; what
//! that costs is measured in `docs/device.md`. Kernels that do not know it
//! (before 5.19) get a plain ring.
//!
//! A read whose submitting thread ended before its answer may come back as
//! `ECANCELED` or `EFAULT`; it is then read again, synchronously.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::time::Duration;

use cambium_base::{Error, Result};
use io_uring::{IoUring, Probe, opcode, types};

use super::piece_of;
use super::slots::{Part, Slots};
use crate::batch::{ReadBackend, ReadCompletion, ReadQueue, ReadQueueStatistics, ReadRequest};

/// How often a kernel short of memory is asked again, and the pause between.
const BUSY_ATTEMPTS: u32 = 1000;
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// A ring and the requests in it.
pub(super) struct UringReadQueue {
    ring: ManuallyDrop<IoUring>,
    /// Outlives the kernel's use of every buffer in it, see `drop`.
    slots: ManuallyDrop<Slots>,
}

impl UringReadQueue {
    /// Sets a ring up, or says why the kernel refuses.
    pub(super) fn new(depth: usize) -> io::Result<Self> {
        let entries = u32::try_from(depth.next_power_of_two()).map_err(io::Error::other)?;
        let ring = match IoUring::builder().setup_coop_taskrun().build(entries) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries)?,
            other => other?,
        };
        // Kernels before 5.6 have rings, but neither this operation nor the probe.
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        Ok(UringReadQueue {
            ring: ManuallyDrop::new(ring),
            slots: ManuallyDrop::new(Slots::new(depth)),
        })
    }

    /// Submits what waits, piece by piece; the last piece stays in the ring,
    /// to go with the call that waits.
    fn start(&mut self) -> Result<()> {
        let piece = piece_of(self.slots.depth());
        self.fill(piece);
        while self.slots.waiting() > 0 {
            self.enter(0)?;
            self.fill(piece);
        }
        Ok(())
    }

    /// Puts what waits into the submission ring, until that holds so many.
    fn fill(&mut self, most: usize) {
        let mut submission = self.ring.submission();
        while submission.len() < most && !submission.is_full() {
            let Some(part) = self.slots.next_waiting() else {
                break;
            };
            // SAFETY: the memory belongs to a request that its slot keeps
            // until the kernel's answer; `drop` waits for every answer.
            let pushed = unsafe { submission.push(&entry(part)) };
            if pushed.is_err() {
                self.slots.put_back(part.slot);
                break;
            }
        }
    }

    /// Submits what is in the ring and waits for `missing` answers.
    fn enter(&mut self, missing: usize) -> Result<()> {
        for _ in 0..BUSY_ATTEMPTS {
            self.slots.statistics.system_calls += 1;
            match self.ring.submitter().submit_and_wait(missing) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                    // Room comes back with the answers of earlier reads.
                    if self.reap() > 0 {
                        return Ok(());
                    }
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(error) => return Err(queue_failure(error)),
            }
        }
        Err(queue_failure(io::Error::from_raw_os_error(libc::EAGAIN)))
    }

    /// Takes the answers that are there; says how many.
    fn reap(&mut self) -> usize {
        let mut count = 0;
        for answer in self.ring.completion() {
            let number = u32::try_from(answer.user_data()).unwrap_or(u32::MAX);
            self.slots.answer(number, i64::from(answer.result()));
            count += 1;
        }
        count
    }

    /// Waits for everything that the kernel has.
    fn drain(&mut self) -> Result<()> {
        while self.slots.in_kernel() > 0 {
            self.enter(1)?;
            self.reap();
        }
        Ok(())
    }
}

fn entry(part: Part) -> io_uring::squeue::Entry {
    opcode::Read::new(types::Fd(part.descriptor), part.memory, part.length)
        .offset(part.offset)
        .build()
        .user_data(u64::from(part.slot))
}

fn queue_failure(error: io::Error) -> Error {
    Error::io("io_uring_enter", "io_uring read queue", error)
}

impl ReadQueue for UringReadQueue {
    fn backend(&self) -> ReadBackend {
        ReadBackend::IoUring
    }

    fn fallback_note(&self) -> Option<&str> {
        None
    }

    fn depth(&self) -> usize {
        self.slots.depth()
    }

    fn pending(&self) -> usize {
        self.slots.pending()
    }

    fn submit(&mut self, request: ReadRequest) {
        self.slots.take(request);
    }

    fn wait(&mut self, at_least: usize, completions: &mut Vec<ReadCompletion>) -> Result<()> {
        let goal = at_least.min(self.slots.pending());
        self.reap();
        let mut looked = at_least > 0;
        loop {
            self.start()?;
            let missing = goal.saturating_sub(self.slots.finished());
            let nothing_to_start = self.ring.submission().is_empty();
            if missing == 0 && nothing_to_start && (looked || self.slots.in_kernel() == 0) {
                break;
            }
            self.enter(missing)?;
            looked = true;
            self.reap();
        }
        self.slots.hand_out(completions);
        Ok(())
    }

    fn statistics(&self) -> ReadQueueStatistics {
        self.slots.statistics
    }
}

impl Drop for UringReadQueue {
    fn drop(&mut self) {
        if self.drain().is_err() {
            // The kernel may still write to the buffers, and nothing will say
            // when it stops: they must never be freed.
            return;
        }
        // SAFETY: dropped once, here, and not used afterwards. No read is
        // under way, so no buffer in the slots is written to any more.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.slots) };
    }
}

impl fmt::Debug for UringReadQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringReadQueue")
            .field("depth", &self.slots.depth())
            .field("pending", &self.slots.pending())
            .finish_non_exhaustive()
    }
}
