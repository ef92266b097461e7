//! Large writes in a task, while the caller fills the next buffer.
//!
//! While one buffer goes to the device, the next one is filled. Where the
//! environment runs tasks, a task writes. If the task has not begun to write a
//! buffer when it is needed, the caller writes it: so nothing depends on the task,
//! and a simulation takes the same steps from the same seed.
//!
//! ```text
//! Idle ──write──▶ Wanted ──task──▶ Writing ──▶ Idle, or Failed for good
//!                    └────────finish────────────┘
//! ```

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cambium_base::{Error, Result};
use cambium_io::step::BackgroundTask;
use cambium_io::sync::{Condvar, Mutex};
use cambium_io::{AlignedBuffer, Environment, File, StepOutcome};

use crate::core::lock;

/// How often the one who waits looks whether the task is alive.
const LOOK: Duration = Duration::from_millis(200);

/// A full buffer, and where it belongs.
#[derive(Debug)]
struct Part {
    buffer: AlignedBuffer,
    start: u64,
}

#[derive(Debug)]
enum State {
    /// With the buffer that was written last.
    Idle(Option<AlignedBuffer>),
    Wanted(Part),
    Writing,
    Failed(Error),
}

#[derive(Debug)]
struct Shared {
    file: Arc<dyn File>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Writes buffers of one size to a file, one after the other.
#[derive(Debug)]
pub(super) struct WriteBehind {
    shared: Arc<Shared>,
    /// `None`: each is written when it is handed over.
    task: Option<Box<dyn BackgroundTask>>,
}

impl WriteBehind {
    /// Writes to `file`; in a task only with `overlap`.
    pub fn new(environment: &Environment, file: Arc<dyn File>, overlap: bool) -> Self {
        let shared = Arc::new(Shared {
            file,
            state: Mutex::new(State::Idle(None)),
            changed: Condvar::new(),
        });
        let for_task = shared.clone();
        let task = overlap.then(|| {
            environment.executor.spawn(
                "forest-write",
                Box::new(move || match for_task.work() {
                    true => StepOutcome::Again,
                    false => StepOutcome::Idle,
                }),
            )
        });
        WriteBehind { shared, task }
    }

    /// The file under it.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.shared.file
    }

    /// Has a buffer written, and answers one of the same size to fill. Waits for
    /// the one before it; its failure is answered here, or by what comes next.
    pub fn write(&self, buffer: AlignedBuffer, start: u64) -> Result<AlignedBuffer> {
        let (size, alignment) = (buffer.len(), buffer.alignment());
        let spare = self.wait()?;
        *lock(&self.shared.state) = State::Wanted(Part { buffer, start });
        match &self.task {
            Some(task) => {
                task.notify();
                Ok(spare.unwrap_or_else(|| AlignedBuffer::new(size, alignment)))
            }
            None => {
                let spare = self.wait()?;
                Ok(spare.unwrap_or_else(|| AlignedBuffer::new(size, alignment)))
            }
        }
    }

    /// Waits until everything handed over is in the file.
    pub fn finish(&self) -> Result<()> {
        let buffer = self.wait()?;
        *lock(&self.shared.state) = State::Idle(buffer);
        Ok(())
    }

    /// The same; answers the buffer that was written last.
    fn wait(&self) -> Result<Option<AlignedBuffer>> {
        let mut state = lock(&self.shared.state);
        loop {
            match std::mem::replace(&mut *state, State::Writing) {
                State::Idle(buffer) => {
                    *state = State::Idle(None);
                    return Ok(buffer);
                }
                State::Wanted(part) => {
                    drop(state);
                    self.shared.put(part);
                    state = lock(&self.shared.state);
                }
                State::Writing => {
                    if let Some(what) = self.task.as_ref().and_then(|task| task.failure()) {
                        let source = std::io::Error::other(what);
                        let error = Error::io("write", self.shared.file.path(), source);
                        *state = State::Failed(error.clone());
                        return Err(error);
                    }
                    let waited = self.shared.changed.wait_timeout(state, LOOK);
                    (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                }
                State::Failed(error) => {
                    *state = State::Failed(error.clone());
                    return Err(error);
                }
            }
        }
    }
}

impl Drop for WriteBehind {
    fn drop(&mut self) {
        // Nothing more is begun.
        let mut state = lock(&self.shared.state);
        if matches!(*state, State::Wanted(_)) {
            *state = State::Idle(None);
        }
        drop(state);
        self.task.take();
    }
}

impl Shared {
    /// What the task does; false if nothing was wanted.
    fn work(&self) -> bool {
        let part = {
            let mut state = lock(&self.state);
            match std::mem::replace(&mut *state, State::Writing) {
                State::Wanted(part) => part,
                other => {
                    *state = other;
                    return false;
                }
            }
        };
        self.put(part);
        self.changed.notify_all();
        true
    }

    /// Writes a part; the state is `Writing` meanwhile.
    fn put(&self, part: Part) {
        let written = self.file.write_at(&part.buffer, part.start);
        *lock(&self.state) = match written {
            Ok(()) => State::Idle(Some(part.buffer)),
            Err(error) => State::Failed(error),
        };
    }
}
