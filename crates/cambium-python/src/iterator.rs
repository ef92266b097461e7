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

use cambium::{Direction, Entry};
use cambium_bindings::walker::Bounds;
use cambium_bindings::{RunWalker, View, order};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::bytes;
use crate::errors::{ask, closed, raised};

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

    /// An entry, its key without the bytes of a prefix.
    fn of<'py>(
        self,
        py: Python<'py>,
        entry: &Entry,
        skipped: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let key = || PyBytes::new(py, &entry.key[skipped..]);
        let value = || PyBytes::new(py, &entry.value);
        Ok(match (self.key, self.value) {
            (true, true) => (key(), value()).into_pyobject(py)?.into_any(),
            (true, false) => key().into_any(),
            (false, true) => value().into_any(),
            (false, false) => py.None().into_bound(py),
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
#[pyclass(module = "cambium", frozen)]
pub struct Iterator {
    walk: Mutex<Option<Walk>>,
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
            walk: Mutex::new(Some(walk)),
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
            let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
            walk.as_mut().map(to).transpose()
        })?;
        moved.ok_or_else(|| closed("iterator"))
    }

    fn step<'py>(&self, py: Python<'py>, forward: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Another thread may hold the lock, and wait for the interpreter's.
        let ready = self.walk.try_lock().ok().and_then(|mut walk| {
            let walk = walk.as_mut()?;
            walk.is_ready(forward).then(|| walk.step(forward))
        });
        let entry = match ready {
            Some(entry) => entry.map_err(|error| raised(py, &error))?,
            None => self.go(py, |walk| walk.step(forward))?,
        };
        let skipped = self.prefix.len();
        entry
            .map(|entry| self.shown.of(py, &entry, skipped))
            .transpose()
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

    fn step(&mut self, forward: bool) -> cambium::Result<Option<Entry>> {
        if self.walker.is_closed() {
            return Err(cambium::Error::Closed);
        }
        match forward {
            true => self.forward(),
            false => self.backward(),
        }
    }

    fn forward(&mut self) -> cambium::Result<Option<Entry>> {
        match self.place {
            Place::Start => self.walker.seek_to_first()?,
            Place::Behind => self.walker.step(Direction::Forward)?,
            Place::Before => {}
            Place::End => return Ok(None),
        }
        let entry = self.walker.entry().cloned();
        self.place = match (&entry, self.place) {
            (Some(_), _) => Place::Behind,
            // An empty database begins where it ends.
            (None, Place::Start) => Place::Start,
            (None, _) => Place::End,
        };
        Ok(entry)
    }

    fn backward(&mut self) -> cambium::Result<Option<Entry>> {
        match self.place {
            Place::End => self.walker.seek_to_last()?,
            Place::Before => self.walker.step(Direction::Reverse)?,
            Place::Behind => {}
            Place::Start => return Ok(None),
        }
        let entry = self.walker.entry().cloned();
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
            let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
            drop(walk.take());
            Ok(())
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}
