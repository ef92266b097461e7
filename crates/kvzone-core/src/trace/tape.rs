//! Recording: calls go to a store as they are, and a line of each to a trace.
//!
//! [`Tape`] goes around any store that a program has; [`Recorded`] puts one around
//! the stores of a job.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::{Answer, TraceWriter, Traced, TracedChange};
use crate::adapter::{Change, OpenStore, Session, Visit};
use crate::driver::clock::Clock;
use crate::error::{Error, Result};

/// Records what a program asks of a store, whichever that is: each call is made
/// through the tape, which hands back what the store answered.
///
/// Calls of several threads take turns while theirs is noted. An error of the trace's
/// own disk never reaches the program: recording ends there, and [`Tape::finish`] says
/// why.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::collections::BTreeMap;
/// use kvzone_core::trace::{Tape, TraceReader};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("trace");
/// let mut store = BTreeMap::from([(b"a".to_vec(), b"old".to_vec())]);
/// let tape = Tape::create(&path)?;
/// // What is there already; without it, what is read is taken to have been there.
/// for (key, value) in &store {
///     tape.load(key, value.len());
/// }
/// tape.put(b"b", 3, || store.insert(b"b".to_vec(), b"new".to_vec()));
/// let value = tape.get(b"a", || store.get(b"a".as_slice()), |value| value.map(|v| v.len()));
/// assert_eq!(value.map(Vec::len), Some(3));
/// assert_eq!(tape.finish()?, 3);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Tape {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    writer: TraceWriter,
    failure: Option<Error>,
    finished: bool,
}

/// Threads that have recorded something so far, on any tape.
static THREADS: AtomicU32 = AtomicU32::new(0);

std::thread_local! {
    /// This thread's number, the same on all tapes.
    static THREAD: u32 = THREADS.fetch_add(1, Ordering::Relaxed);
}

impl Tape {
    /// Begins a trace in a file; one that is there is replaced.
    pub fn create(path: &Path) -> Result<Tape> {
        Ok(Tape {
            clock: Clock::start(),
            state: Mutex::new(State {
                writer: TraceWriter::create(path)?,
                failure: None,
                finished: false,
            }),
        })
    }

    fn add(&self, at: u64, operation: &Traced<'_>) {
        let thread = THREAD.with(|thread| *thread);
        // Poisoned means that a store's call panicked under nobody's lock but
        // ours: what was recorded is whole.
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        if state.failure.is_none() && !state.finished {
            state.failure = state.writer.add(thread, at, operation).err();
        }
    }

    pub fn load(&self, key: &[u8], value_bytes: usize) {
        let value_bytes = value_bytes as u64;
        self.add(0, &Traced::Load { key, value_bytes });
    }

    pub fn put<T>(&self, key: &[u8], value_bytes: usize, call: impl FnOnce() -> T) -> T {
        let at = self.clock.now();
        let done = call();
        let value_bytes = value_bytes as u64;
        self.add(at, &Traced::Put { key, value_bytes });
        done
    }

    /// Gets a key; `bytes` tells how many bytes the value has, where there is one.
    pub fn get<T>(
        &self,
        key: &[u8],
        call: impl FnOnce() -> T,
        bytes: impl FnOnce(&T) -> Option<usize>,
    ) -> T {
        let at = self.clock.now();
        let done = call();
        let answer = bytes(&done).map_or(Answer::Absent, |bytes| Answer::Found(bytes as u64));
        self.add(at, &Traced::Get { key, answer });
        done
    }

    pub fn delete<T>(&self, key: &[u8], call: impl FnOnce() -> T) -> T {
        let at = self.clock.now();
        let done = call();
        self.add(at, &Traced::Delete { key });
        done
    }

    /// Visits entries from a key on, at most so many; `visited` tells how many
    /// there were.
    pub fn scan<T>(
        &self,
        from: &[u8],
        limit: u64,
        call: impl FnOnce() -> T,
        visited: impl FnOnce(&T) -> Option<u64>,
    ) -> T {
        let at = self.clock.now();
        let done = call();
        let visited = visited(&done);
        let operation = Traced::Scan {
            from,
            limit,
            visited,
        };
        self.add(at, &operation);
        done
    }

    pub fn write<T>(&self, changes: &[Change<'_>], call: impl FnOnce() -> T) -> T {
        let at = self.clock.now();
        let done = call();
        self.add(at, &Traced::Batch(changes.iter().map(traced).collect()));
        done
    }

    /// Ends the trace, synced, and answers how many operations it holds.
    ///
    /// # Errors
    /// What ended the recording, or the end itself.
    pub fn finish(&self) -> Result<u64> {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if !state.finished {
            state.finished = true;
            state.writer.finish()?;
        }
        Ok(state.writer.count())
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        // Who wants to know whether it was written calls `finish`.
        let _ = self.finish();
    }
}

fn traced<'a>(change: &Change<'a>) -> TracedChange<'a> {
    match *change {
        Change::Put { key, value } => TracedChange {
            key,
            value_bytes: Some(value.len() as u64),
        },
        Change::Delete { key } => TracedChange {
            key,
            value_bytes: None,
        },
    }
}

/// Stores whose sessions are recorded.
#[derive(Clone, Debug)]
pub struct Recorded(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    tape: Tape,
    /// What is written now is there before the trace begins, and what is read is
    /// no part of it.
    loads: AtomicBool,
}

impl Recorded {
    pub fn new(path: &Path) -> Result<Recorded> {
        Ok(Recorded(Arc::new(Shared {
            tape: Tape::create(path)?,
            loads: AtomicBool::new(false),
        })))
    }

    /// The store with its sessions recorded.
    pub fn around(&self, inner: Arc<dyn OpenStore>) -> Arc<dyn OpenStore> {
        let shared = self.0.clone();
        Arc::new(RecordedStore { inner, shared })
    }

    /// From here on writes are the load that is before the trace, or are not.
    pub fn set_loading(&self, loading: bool) {
        self.0.loads.store(loading, Ordering::Relaxed);
    }

    pub fn finish(&self) -> Result<u64> {
        self.0.tape.finish()
    }
}

struct RecordedStore {
    inner: Arc<dyn OpenStore>,
    shared: Arc<Shared>,
}

impl OpenStore for RecordedStore {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(RecordedSession {
            inner: self.inner.clone().session()?,
            shared: self.shared.clone(),
        }))
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    fn compact(&self) -> Result<()> {
        self.inner.compact()
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        self.inner.counters()
    }

    fn close(self: Arc<Self>) -> Result<()> {
        let inner = self.inner.clone();
        // Stores want to be closed by whoever has them alone.
        drop(self);
        inner.close()
    }
}

struct RecordedSession {
    inner: Box<dyn Session>,
    shared: Arc<Shared>,
}

impl RecordedSession {
    fn loads(&self) -> bool {
        self.shared.loads.load(Ordering::Relaxed)
    }
}

impl Session for RecordedSession {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        if self.loads() {
            return self.inner.get(key, value);
        }
        let at = self.shared.tape.clock.now();
        let found = self.inner.get(key, value)?;
        let answer = match found {
            true => Answer::Found(value.len() as u64),
            false => Answer::Absent,
        };
        self.shared.tape.add(at, &Traced::Get { key, answer });
        Ok(found)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.loads() {
            self.inner.put(key, value)?;
            self.shared.tape.load(key, value.len());
            return Ok(());
        }
        let inner = &mut self.inner;
        let tape = &self.shared.tape;
        tape.put(key, value.len(), || inner.put(key, value))
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let inner = &mut self.inner;
        self.shared.tape.delete(key, || inner.delete(key))
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        if self.loads() {
            self.inner.write(changes)?;
            for change in changes {
                if let Change::Put { key, value } = change {
                    self.shared.tape.load(key, value.len());
                }
            }
            return Ok(());
        }
        let inner = &mut self.inner;
        self.shared.tape.write(changes, || inner.write(changes))
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let inner = &mut self.inner;
        let visited = |done: &Result<u64>| done.as_ref().ok().copied();
        let call = || inner.scan(from, limit, visit);
        self.shared.tape.scan(from, limit, call, visited)
    }
}
