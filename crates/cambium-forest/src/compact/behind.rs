//! Large writes in a task, while the caller fills the next buffer.
//!
//! While one buffer goes to the device, the next one is filled. Where the
//! environment runs tasks, a task writes. If the task has not begun to write a
//! buffer when it is needed, the caller writes it ([`Crew`]): so nothing depends on
//! the task, and a simulation takes the same steps from the same seed.

use std::sync::Arc;

use cambium_base::Result;
use cambium_io::sync::Mutex;
use cambium_io::{AlignedBuffer, Crew, Environment, File};

use crate::core::lock;

/// A full buffer, and where it belongs.
#[derive(Debug)]
struct Part {
    buffer: AlignedBuffer,
    start: u64,
}

/// Writes buffers of one size to a file, one after the other.
#[derive(Debug)]
pub(super) struct WriteBehind {
    file: Arc<dyn File>,
    /// Writes parts, and answers their buffers. One part at a time is there.
    crew: Crew<Part, Result<AlignedBuffer>>,
    overlap: bool,
    /// The buffer that was written last; a failure stays for good.
    spare: Mutex<Result<Option<AlignedBuffer>>>,
}

impl WriteBehind {
    /// Writes to `file`; in a task only with `overlap`.
    pub fn new(environment: &Environment, file: Arc<dyn File>, overlap: bool) -> Self {
        let written = file.clone();
        let write = move |part: Part| {
            written.write_at(&part.buffer, part.start)?;
            Ok(part.buffer)
        };
        let executor = &*environment.executor;
        WriteBehind {
            file,
            crew: Crew::new(executor, "forest-write", usize::from(overlap), write),
            overlap,
            spare: Mutex::new(Ok(None)),
        }
    }

    /// The file under it.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Has a buffer written, and answers one of the same size to fill. Waits for
    /// the one before it; its failure is answered here, or by what comes next.
    pub fn write(&self, buffer: AlignedBuffer, start: u64) -> Result<AlignedBuffer> {
        let (size, alignment) = (buffer.len(), buffer.alignment());
        self.finish()?;
        let mut spare = self.take_spare();
        self.crew.add(Part { buffer, start });
        if !self.overlap {
            self.finish()?;
            spare = self.take_spare();
        }
        Ok(spare.unwrap_or_else(|| AlignedBuffer::new(size, alignment)))
    }

    /// Waits until everything handed over is in the file.
    pub fn finish(&self) -> Result<()> {
        let mut spare = lock(&self.spare);
        spare.as_ref().map_err(Clone::clone)?;
        match self.crew.next().and_then(Option::transpose) {
            Ok(None) => {}
            written => *spare = written,
        }
        spare.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    fn take_spare(&self) -> Option<AlignedBuffer> {
        lock(&self.spare).as_mut().ok()?.take()
    }
}
