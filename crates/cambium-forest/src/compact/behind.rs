//! Large writes in a task, while the caller fills the next buffer.
//!
//! Bytes gather in a buffer. While a full one goes to the device, the next one is filled. Where
//! the environment runs tasks, a task writes. If the task has not begun to write a
//! buffer when it is needed, the caller writes it ([`Crew`]): so nothing depends on
//! the task, and a simulation takes the same steps from the same seed.

use std::sync::Arc;

use cambium_base::Result;
use cambium_io::{AlignedBuffer, Crew, Environment, File};

/// A full buffer, and where it belongs.
#[derive(Debug)]
struct Part {
    buffer: AlignedBuffer,
    start: u64,
}

/// Writes bytes to a file in ascending order, in whole buffers of one size.
#[derive(Debug)]
pub(super) struct WriteBehind {
    file: Arc<dyn File>,
    /// Offsets and lengths of writes are multiples of this.
    unit: usize,
    /// Writes parts, and answers their buffers. One part at a time is there.
    crew: Crew<Part, Result<AlignedBuffer>>,
    overlap: bool,
    /// The buffer that was written last; a failure stays for good.
    spare: Result<Option<AlignedBuffer>>,
    /// Bytes that were not handed over yet. `None` once a write has failed, or the caller ends it.
    pub buffer: Option<AlignedBuffer>,
    /// Offset in the file of the buffer's first byte.
    pub start: u64,
    pub filled: usize,
}

impl WriteBehind {
    /// Writes to `file` from `start` on, a multiple of its unit, and about so many bytes at
    /// once; in a task only with `overlap`.
    pub fn new(
        environment: &Environment,
        file: Arc<dyn File>,
        overlap: bool,
        (start, bytes): (u64, usize),
    ) -> Self {
        let written = file.clone();
        let write = move |part: Part| {
            written.write_at(&part.buffer, part.start)?;
            Ok(part.buffer)
        };
        let executor = &*environment.executor;
        let alignment = file.alignment();
        let unit = alignment.offset.max(1);
        let size = bytes.next_multiple_of(unit);
        WriteBehind {
            file,
            unit,
            crew: Crew::new(executor, "forest-write", usize::from(overlap), write),
            overlap,
            spare: Ok(None),
            buffer: Some(AlignedBuffer::new(size, alignment.memory.max(1))),
            start,
            filled: 0,
        }
    }

    /// Offsets and lengths of writes are multiples of this.
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// Offset in the file of the buffer's end.
    pub fn end(&self) -> u64 {
        self.start + self.filled as u64
    }

    /// Takes bytes in at the end.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.fill(self.filled, Some(bytes), bytes.len())
    }

    /// Takes bytes in at a place that lies in the buffer, or right after its end; zeros where
    /// there are none.
    pub fn fill(&mut self, mut place: usize, bytes: Option<&[u8]>, count: usize) -> Result<()> {
        let mut taken = 0;
        while taken < count {
            let Some(mut buffer) = self.buffer.take() else {
                // A write failed, and says so again.
                return self.finish();
            };
            if place == buffer.len() {
                buffer = self.hand_over(buffer)?;
                place = 0;
            }
            let now = (buffer.len() - place).min(count - taken);
            let to = &mut buffer[place..place + now];
            match bytes {
                Some(bytes) => to.copy_from_slice(&bytes[taken..taken + now]),
                None => to.fill(0),
            }
            self.buffer = Some(buffer);
            place += now;
            taken += now;
            self.filled = self.filled.max(place);
        }
        Ok(())
    }

    /// Has a full buffer written, and answers one of the same size to fill. Waits for
    /// the one before it; its failure is answered here, or by what comes next.
    fn hand_over(&mut self, buffer: AlignedBuffer) -> Result<AlignedBuffer> {
        let (size, alignment) = (buffer.len(), buffer.alignment());
        self.finish()?;
        let mut spare = self.take_spare();
        let start = self.start;
        self.crew.add(Part { buffer, start });
        if !self.overlap {
            self.finish()?;
            spare = self.take_spare();
        }
        (self.start, self.filled) = (start + size as u64, 0);
        Ok(spare.unwrap_or_else(|| AlignedBuffer::new(size, alignment)))
    }

    /// Waits until everything handed over is in the file.
    pub fn finish(&mut self) -> Result<()> {
        self.spare.as_ref().map_err(Clone::clone)?;
        match self.crew.next().and_then(Option::transpose) {
            Ok(None) => {}
            written => self.spare = written,
        }
        self.spare.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Brings everything into the file; what fills no unit stays in the buffer too, to
    /// be written again with what follows it.
    pub fn write_all(&mut self) -> Result<()> {
        self.finish()?;
        let Some(buffer) = &mut self.buffer else {
            return Ok(());
        };
        if self.filled == 0 {
            return Ok(());
        }
        let padded = self.filled.next_multiple_of(self.unit);
        buffer[self.filled..padded].fill(0);
        self.file.write_at(&buffer[..padded], self.start)?;
        let whole = self.filled / self.unit * self.unit;
        buffer.copy_within(whole..self.filled, 0);
        self.start += whole as u64;
        self.filled -= whole;
        Ok(())
    }

    fn take_spare(&mut self) -> Option<AlignedBuffer> {
        self.spare.as_mut().ok()?.take()
    }
}
