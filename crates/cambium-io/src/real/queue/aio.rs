//! Reads through Linux AIO (`io_submit`), not the POSIX AIO of the C library,
//! which is threads in user space.
//!
//! It is asynchronous for direct files alone; a buffered read is done inside
//! `io_submit`, correctly but one after the other. The structures are the
//! kernel's own, from `linux/aio_abi.h`, little-endian:
//!
//! ```text
//! control block, 64 bytes            event, 32 bytes
//!  0  data: slot number       u64     0  data: slot number        u64
//!  8  key (kernel's)          u32     8  address of the block     u64
//! 12  flags of pwritev2       i32    16  result: count or -errno  i64
//! 16  operation: 0 = pread    u16    24  second result, unused    i64
//! 18  priority                i16
//! 20  descriptor              u32
//! 24  address of the memory   u64
//! 32  length                  u64
//! 40  offset                  i64
//! 48  reserved                u64
//! 56  flags                   u32
//! 60  eventfd                 u32
//! ```

use std::io;
use std::mem::{ManuallyDrop, size_of};

use cambium_base::{Error, Result};

use super::piece_of;
use super::slots::{Part, Slots};
use crate::batch::{ReadBackend, ReadCompletion, ReadQueue, ReadQueueStatistics, ReadRequest};

/// Most blocks in one `io_submit` where reads are buffered. From three on the
/// kernel plugs the device for the call, and each buffered read inside it then
/// waits until a kernel worker gets a processor to unplug it: milliseconds a
/// read on a busy machine (measured: 400 reads a second instead of 17,000).
const BUFFERED_BATCH: usize = 2;

/// `IOCB_CMD_PREAD`.
const OPERATION_READ: u16 = 0;

#[cfg(not(target_endian = "little"))]
compile_error!("the control block's first words are laid out for little-endian machines");

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct ControlBlock {
    data: u64,
    key: u32,
    rw_flags: i32,
    operation: u16,
    priority: i16,
    descriptor: u32,
    memory: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}
const _: () = assert!(size_of::<ControlBlock>() == 64);

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    data: u64,
    block: u64,
    result: i64,
    second_result: i64,
}
const _: () = assert!(size_of::<Event>() == 32);

/// An AIO context of the kernel.
#[derive(Debug)]
struct Context(libc::c_ulong);

impl Context {
    fn new(depth: usize) -> io::Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: io_setup(2) writes one word to the pointer it gets.
        let answer = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
        checked(answer)?;
        Ok(Context(context))
    }

    /// Hands blocks to the kernel; it may take fewer.
    ///
    /// # Safety
    /// The memory named in the blocks stays allocated, and is not used, until
    /// the event of each block that was taken.
    unsafe fn submit(&self, blocks: &mut [*mut ControlBlock]) -> io::Result<usize> {
        // SAFETY: the pointers name control blocks that outlive the call; the
        // kernel copies them. The memory is the caller's promise.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_io_submit,
                self.0,
                blocks.len(),
                blocks.as_mut_ptr(),
            )
        };
        checked(answer)
    }

    /// Waits for at least so many events; none at all is a look.
    fn events(&self, at_least: usize, events: &mut [Event]) -> io::Result<usize> {
        let mut at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let timeout: *mut libc::timespec = if at_least == 0 {
            &raw mut at_once
        } else {
            std::ptr::null_mut()
        };
        // SAFETY: the kernel writes at most `events.len()` events, and reads
        // the timeout, which outlives the call.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.0,
                at_least,
                events.len(),
                events.as_mut_ptr(),
                timeout,
            )
        };
        checked(answer)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours and is destroyed once; the call waits
        // for whatever is still under way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

fn checked(answer: libc::c_long) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// An AIO context and the requests in it.
#[derive(Debug)]
pub(super) struct AioReadQueue {
    context: ManuallyDrop<Context>,
    /// Outlives the kernel's use of every buffer in it, see `drop`.
    slots: ManuallyDrop<Slots>,
    /// Scratch, one for each slot, kept so that a read allocates nothing.
    blocks: Vec<ControlBlock>,
    events: Vec<Event>,
    note: Option<String>,
}

impl AioReadQueue {
    /// Sets a context up. `EAGAIN` means that the system-wide bound
    /// `/proc/sys/fs/aio-max-nr` is reached.
    pub(super) fn new(depth: usize, note: Option<String>) -> io::Result<Self> {
        Ok(AioReadQueue {
            context: ManuallyDrop::new(Context::new(depth)?),
            slots: ManuallyDrop::new(Slots::new(depth)),
            blocks: Vec::with_capacity(depth),
            events: vec![Event::default(); depth],
            note,
        })
    }

    /// Hands everything that waits to the kernel.
    fn start(&mut self) -> Result<()> {
        self.blocks.clear();
        let mut most = piece_of(self.slots.depth());
        while let Some(part) = self.slots.next_waiting() {
            if !part.direct {
                most = BUFFERED_BATCH;
            }
            self.blocks.push(control_block(part));
        }
        let mut started = 0;
        while started < self.blocks.len() {
            let end = self.blocks.len().min(started + most);
            let mut rest: Vec<*mut ControlBlock> = Vec::with_capacity(end - started);
            rest.extend(self.blocks[started..end].iter_mut().map(std::ptr::from_mut));
            self.slots.statistics.system_calls += 1;
            // SAFETY: each block's memory belongs to a request that its slot
            // keeps until the event; `drop` waits for every event.
            match unsafe { self.context.submit(&mut rest) } {
                Ok(0) => started += self.refused(started, libc::EAGAIN),
                Ok(count) => started += count,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    number => started += self.refused(started, number.unwrap_or(libc::EIO)),
                },
            }
        }
        Ok(())
    }

    /// The kernel refused the first block it was given: that request ends
    /// here, by a plain read (`EAGAIN`) or with the error.
    fn refused(&mut self, position: usize, number: i32) -> usize {
        let slot = u32::try_from(self.blocks[position].data).unwrap_or(u32::MAX);
        self.slots.answer(slot, -i64::from(number));
        1
    }

    /// Takes events, at least so many.
    fn reap(&mut self, at_least: usize) -> Result<()> {
        loop {
            self.slots.statistics.system_calls += 1;
            match self.context.events(at_least, &mut self.events) {
                Ok(count) => {
                    for event in &self.events[..count] {
                        let number = u32::try_from(event.data).unwrap_or(u32::MAX);
                        self.slots.answer(number, event.result);
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("io_getevents", "aio read queue", error)),
            }
        }
    }
}

fn control_block(part: Part) -> ControlBlock {
    ControlBlock {
        data: u64::from(part.slot),
        operation: OPERATION_READ,
        descriptor: part.descriptor as u32,
        memory: part.memory as u64,
        length: u64::from(part.length),
        // Past the largest offset the kernel answers EINVAL, as for pread.
        offset: i64::try_from(part.offset).unwrap_or(-1),
        ..ControlBlock::default()
    }
}

impl ReadQueue for AioReadQueue {
    fn backend(&self) -> ReadBackend {
        ReadBackend::Aio
    }

    fn fallback_note(&self) -> Option<&str> {
        self.note.as_deref()
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
        let mut looked = at_least > 0;
        loop {
            self.start()?;
            let missing = goal.saturating_sub(self.slots.finished());
            let in_kernel = self.slots.in_kernel();
            if in_kernel == 0 || (missing == 0 && looked) {
                break;
            }
            self.reap(missing.min(in_kernel))?;
            looked = true;
            if self.slots.waiting() == 0 && self.slots.finished() >= goal {
                break;
            }
        }
        self.slots.hand_out(completions);
        Ok(())
    }

    fn statistics(&self) -> ReadQueueStatistics {
        self.slots.statistics
    }
}

impl Drop for AioReadQueue {
    fn drop(&mut self) {
        while self.slots.in_kernel() > 0 {
            if self.reap(1).is_err() {
                // The kernel may still write to the buffers, and nothing will
                // say when it stops: they must never be freed.
                return;
            }
        }
        // SAFETY: dropped once, here, and not used afterwards. No read is
        // under way, so no buffer in the slots is written to any more.
        unsafe { ManuallyDrop::drop(&mut self.context) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.slots) };
    }
}
