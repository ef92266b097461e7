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

use std::sync::{Mutex, PoisonError};

use cambium::Entry;
use cambium_bindings::walker::Bounds;
use cambium_bindings::{View, Walker};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::bytes;
use crate::errors::{ask, closed};

/// What an iterator answers of each entry.
#[derive(Clone, Copy)]
pub struct Shown {
    key: bool,
    value: bool,
    /// Bytes of the prefix that keys are shown without.
    skipped: usize,
}

impl Shown {
    pub fn new(key: bool, value: bool, skipped: usize) -> Self {
        Shown {
            key,
            value,
            skipped,
        }
    }

    fn of<'py>(self, py: Python<'py>, entry: &Entry) -> PyResult<Bound<'py, PyAny>> {
        let key = || PyBytes::new(py, &entry.key[self.skipped..]);
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
    walker: Walker,
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
            walker: view.walker(bounds),
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
            let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
            walk.as_mut().map(to).transpose()
        })?;
        moved.ok_or_else(|| closed("iterator"))
    }

    fn step<'py>(&self, py: Python<'py>, forward: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
        let entry = self.go(py, |walk| match forward {
            true => walk.forward(),
            false => walk.backward(),
        })?;
        entry.map(|entry| self.shown.of(py, &entry)).transpose()
    }
}

impl Walk {
    fn forward(&mut self) -> cambium::Result<Option<Entry>> {
        match self.place {
            Place::Start => self.walker.seek_to_first()?,
            Place::Behind => self.walker.next()?,
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
            Place::Before => self.walker.previous()?,
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
            walk.place = match walk.walker.key() {
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

    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
            drop(walk.take());
        });
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}
