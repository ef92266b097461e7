//! The requests of an asynchronous queue, between submission and completion.
//!
//! A slot is a small number that travels through the kernel as user data and
//! comes back with the answer. While the kernel may write to a request's
//! buffer, its slot holds the request, and nothing else can reach the buffer.
//!
//! ```text
//!   take ──▶ waiting ──next_waiting──▶ in the kernel ──answer──▶ finished
//!               ▲                            │
//!               └───────── short read ───────┘
//! ```

use std::collections::VecDeque;

use cambium_base::Error;

use super::LONGEST_READ;
use crate::batch::{ReadCompletion, ReadQueueStatistics, ReadRequest};

/// A request with what has been read of it.
#[derive(Debug)]
struct Slot {
    request: ReadRequest,
    descriptor: i32,
    /// Bytes read so far.
    done: usize,
    /// Short of the alignment, a direct read has met the end of the file.
    unit: usize,
}

/// What the kernel is asked for next: (part of) one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) slot: u32,
    pub(super) descriptor: i32,
    pub(super) memory: *mut u8,
    pub(super) length: u32,
    pub(super) offset: u64,
    /// Past the operating system's cache.
    pub(super) direct: bool,
}

/// All requests of a queue.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Not yet in the kernel; in the caller's order, which may be the order
    /// on the device.
    waiting: VecDeque<u32>,
    finished: Vec<ReadCompletion>,
    in_kernel: usize,
    pub(super) statistics: ReadQueueStatistics,
}

impl Slots {
    /// Room for `depth` requests; nothing is allocated after this.
    pub(super) fn new(depth: usize) -> Self {
        let count = u32::try_from(depth).expect("the depth was validated: at most 1,024");
        Slots {
            slots: (0..depth).map(|_| None).collect(),
            free: (0..count).rev().collect(),
            waiting: VecDeque::with_capacity(depth),
            finished: Vec::with_capacity(depth),
            in_kernel: 0,
            statistics: ReadQueueStatistics::default(),
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Taken and not yet handed out.
    pub(super) fn pending(&self) -> usize {
        self.slots.len() - self.free.len() + self.finished.len()
    }

    pub(super) fn in_kernel(&self) -> usize {
        self.in_kernel
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn finished(&self) -> usize {
        self.finished.len()
    }

    /// Takes a request. One that the kernel cannot serve, since the file is no
    /// file of its, or one of no bytes, is served at once.
    pub(super) fn take(&mut self, request: ReadRequest) {
        assert!(self.pending() < self.depth(), "the queue is full");
        let unit = request.file.alignment().offset;
        let Some(descriptor) = request.file.raw_descriptor() else {
            return self.finish_here(request, 0);
        };
        if request.buffer.is_empty() {
            return self.finish(request, Ok(0));
        }
        let number = self
            .free
            .pop()
            .expect("fewer are pending than there are slots");
        self.slots[number as usize] = Some(Slot {
            request,
            descriptor,
            done: 0,
            unit,
        });
        self.waiting.push_back(number);
    }

    /// Next part to hand to the kernel; it counts as being there from now on.
    pub(super) fn next_waiting(&mut self) -> Option<Part> {
        let number = self.waiting.pop_front()?;
        let slot = self.slots[number as usize]
            .as_mut()
            .expect("a waiting slot holds its request");
        let rest = &mut slot.request.buffer[slot.done..];
        let length = rest.len().min(LONGEST_READ);
        self.in_kernel += 1;
        Some(Part {
            slot: number,
            descriptor: slot.descriptor,
            memory: rest.as_mut_ptr(),
            length: u32::try_from(length).expect("LONGEST_READ fits"),
            offset: slot.request.offset.saturating_add(slot.done as u64),
            direct: slot.unit > 1,
        })
    }

    /// The kernel did not take the part after all; it will be asked again.
    pub(super) fn put_back(&mut self, number: u32) {
        self.in_kernel -= 1;
        self.waiting.push_front(number);
    }

    /// The kernel's answer to a part: a count, or an error number below zero.
    pub(super) fn answer(&mut self, number: u32, answer: i64) {
        let Some(mut slot) = self.slots.get_mut(number as usize).and_then(Option::take) else {
            // Only a kernel that answers twice comes here; the request of this
            // slot was finished by its first answer.
            return;
        };
        self.in_kernel -= 1;
        match usize::try_from(answer) {
            Ok(count) => {
                slot.done = slot.request.buffer.len().min(slot.done + count);
                let whole = slot.done == slot.request.buffer.len();
                let at_end = count == 0 || count % slot.unit != 0;
                if !whole && !at_end {
                    self.slots[number as usize] = Some(slot);
                    self.waiting.push_back(number);
                    return;
                }
                self.free.push(number);
                self.finish(slot.request, Ok(slot.done));
            }
            Err(_) => {
                self.free.push(number);
                self.failed(slot, answer);
            }
        }
    }

    fn failed(&mut self, slot: Slot, answer: i64) {
        let number = i32::try_from(-answer).unwrap_or(libc::EIO);
        match number {
            // Broken off (a signal, the end of the thread that submitted, for which
            // the kernel says EFAULT as well: the buffer is ours, and there) or short
            // of resources: a plain read serves it without a second try.
            libc::EINTR | libc::EAGAIN | libc::ECANCELED | libc::EFAULT => {
                self.finish_here(slot.request, slot.done);
            }
            _ => {
                let source = std::io::Error::from_raw_os_error(number);
                let error = Error::io("read", slot.request.file.path(), source);
                self.finish(slot.request, Err(error));
            }
        }
    }

    /// Reads what is missing right now.
    fn finish_here(&mut self, mut request: ReadRequest, done: usize) {
        let offset = request.offset.saturating_add(done as u64);
        let result = request.file.read_at(&mut request.buffer[done..], offset);
        self.statistics.system_calls += 1;
        self.finish(request, result.map(|count| done + count));
    }

    fn finish(&mut self, request: ReadRequest, result: cambium_base::Result<usize>) {
        self.statistics.reads += 1;
        self.statistics.bytes += result.as_ref().map_or(0, |&count| count as u64);
        self.finished.push(ReadCompletion {
            tag: request.tag,
            buffer: request.buffer,
            result,
        });
    }

    /// Hands out everything that is finished.
    pub(super) fn hand_out(&mut self, completions: &mut Vec<ReadCompletion>) {
        completions.append(&mut self.finished);
    }
}
