//! `Iterator`: plyvel's, which stands between entries and goes both ways.
//!
//! | place | next entry | entry before |
//! |---|---|---|
//! | `Start` | the first | none |
//! | `Before` an entry | that one | the one before it |
//! | `Behind` an entry | the one behind it | that one |
//! | `End` | none | the last |
//!
//! A reverse iterator begins at the end, and its `next` is the entry before.
//!
//! Entries are read several at a time (`cambium_bindings::runs`), without the
//! interpreter lock; a step to one that has been read keeps it.

use std::sync::{Mutex, PoisonError};

use cambium::Direction;
use cambium_bindings::walker::Bounds;
use cambium_bindings::{OfProcess, RunWalker, View, order};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::bytes;
use crate::errors::{ask, closed, here, leave, raised};

/// A key and its value.
type Entry<'a> = (&'a [u8], &'a [u8]);

/// What an iterator answers of each entry.
#[derive(Clone, Copy)]
pub struct Shown {
    key: bool,
    value: bool,
}

impl Shown {
    pub fn new(key: bool, value: bool) -> Self {
        Shown { key, value }
    }

    /// Copies of what is answered of an entry, its key without the bytes of a prefix.
    fn of<'py>(self, py: Python<'py>, (key, value): Entry<'_>, skipped: usize) -> Parts<'py> {
        Parts {
            key: self.key.then(|| PyBytes::new(py, &key[skipped..])),
            value: self.value.then(|| PyBytes::new(py, value)),
        }
    }
}

/// What is answered of an entry. Bytes are no garbage collector's matter, so they may be
/// made while a lock is held; a tuple of them may not: making one may run any finalizer.
struct Parts<'py> {
    key: Option<Bound<'py, PyBytes>>,
    value: Option<Bound<'py, PyBytes>>,
}

impl<'py> Parts<'py> {
    fn together(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match (self.key, self.value) {
            (Some(key), Some(value)) => (key, value).into_pyobject(py)?.into_any(),
            (Some(one), None) | (None, Some(one)) => one.into_any(),
            (None, None) => py.None().into_bound(py),
        })
    }
}

/// Where an iterator stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    Before,
    Behind,
    End,
}

struct Walk {
    walker: RunWalker,
    place: Place,
}

/// An iterator that stands between entries and goes both ways.
#[pyclass(module = "cambium", frozen, weakref)]
pub struct Iterator {
    walk: OfProcess<Mutex<Option<Walk>>>,
    reverse: bool,
    shown: Shown,
    prefix: Vec<u8>,
}

impl Iterator {
    pub fn new(view: &View, bounds: &Bounds, reverse: bool, shown: Shown, prefix: Vec<u8>) -> Self {
        let walk = Walk {
            walker: RunWalker::new(view, bounds, !shown.value),
            place: match reverse {
                true => Place::End,
                false => Place::Start,
            },
        };
        Iterator {
            walk: OfProcess::new(Mutex::new(Some(walk))),
            reverse,
            shown,
            prefix,
        }
    }

    fn go<T: Send>(
        &self,
        py: Python<'_>,
        to: impl Send + FnOnce(&mut Walk) -> cambium::Result<T>,
    ) -> PyResult<T> {
        let moved = ask(py, || {
            order::refuse_within_comparator()?;
            let mut walk = self
                .walk
                .get()?
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            walk.as_mut().map(to).transpose()
        })?;
        moved.ok_or_else(|| closed("iterator"))
    }

    fn step<'py>(&self, py: Python<'py>, forward: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (shown, skipped) = (self.shown, self.prefix.len());
        // Another thread may hold the lock, and wait for the interpreter's.
        let ready = here(&self.walk)?.try_lock().ok().and_then(|mut walk| {
            let walk = walk.as_mut()?;
            let step = |walk: &mut Walk| -> cambium::Result<Option<Parts<'py>>> {
                let entry = walk.step(forward)?;
                Ok(entry.map(|entry| shown.of(py, entry, skipped)))
            };
            walk.is_ready(forward).then(|| step(walk))
        });
        let parts = match ready {
            Some(parts) => parts.map_err(|error| raised(py, &error))?,
            None => {
                let owned = |(key, value): Entry<'_>| (key.to_vec(), value.to_vec());
                let entry = self.go(py, |walk| Ok(walk.step(forward)?.map(owned)))?;
                entry.map(|(key, value)| shown.of(py, (&key, &value), skipped))
            }
        };
        parts.map(|parts| parts.together(py)).transpose()
    }
}

impl Walk {
    /// True if a step would not ask the store.
    fn is_ready(&self, forward: bool) -> bool {
        match (self.place, forward) {
            (Place::Start | Place::End, _) => false,
            (Place::Before, true) | (Place::Behind, false) => !self.walker.is_closed(),
            (Place::Behind, true) => self.walker.can_step(Direction::Forward),
            (Place::Before, false) => self.walker.can_step(Direction::Reverse),
        }
    }

    fn step(&mut self, forward: bool) -> cambium::Result<Option<Entry<'_>>> {
        if self.walker.is_closed() {
            return Err(cambium::Error::Closed);
        }
        match forward {
            true => self.forward(),
            false => self.backward(),
        }
    }

    fn forward(&mut self) -> cambium::Result<Option<Entry<'_>>> {
        match self.place {
            Place::Start => self.walker.seek_to_first()?,
            Place::Behind => self.walker.step(Direction::Forward)?,
            Place::Before => {}
            Place::End => return Ok(None),
        }
        let entry = self.walker.entry();
        self.place = match (&entry, self.place) {
            (Some(_), _) => Place::Behind,
            // An empty database begins where it ends.
            (None, Place::Start) => Place::Start,
            (None, _) => Place::End,
        };
        Ok(entry)
    }

    fn backward(&mut self) -> cambium::Result<Option<Entry<'_>>> {
        match self.place {
            Place::End => self.walker.seek_to_last()?,
            Place::Before => self.walker.step(Direction::Reverse)?,
            Place::Behind => {}
            Place::Start => return Ok(None),
        }
        let entry = self.walker.entry();
        self.place = match (&entry, self.place) {
            (Some(_), _) => Place::Before,
            (None, Place::End) => Place::End,
            (None, _) => Place::Start,
        };
        Ok(entry)
    }
}

#[pymethods]
impl Iterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.step(py, !self.reverse)
    }

    fn prev<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let entry = self.step(py, self.reverse)?;
        entry.ok_or_else(|| pyo3::exceptions::PyStopIteration::new_err(()))
    }

    fn seek(&self, py: Python<'_>, target: &Bound<'_, PyAny>) -> PyResult<()> {
        let target = [&self.prefix[..], &*bytes(target)?].concat();
        self.go(py, |walk| {
            walk.walker.seek(&target)?;
            walk.place = match walk.walker.entry() {
                Some(_) => Place::Before,
                None => Place::End,
            };
            Ok(())
        })
    }

    fn seek_to_start(&self, py: Python<'_>) -> PyResult<()> {
        self.go(py, |walk| {
            walk.place = Place::Start;
            Ok(())
        })
    }

    fn seek_to_stop(&self, py: Python<'_>) -> PyResult<()> {
        self.go(py, |walk| {
            walk.place = Place::End;
            Ok(())
        })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        ask(py, || {
            order::refuse_within_comparator()?;
            let mut walk = self
                .walk
                .get()?
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            drop(walk.take());
            Ok(())
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        leave(&self.walk, || self.close(py))
    }
}
