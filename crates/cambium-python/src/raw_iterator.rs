//! `RawIterator`: LevelDB's own iterator, that stands at an entry or at none.

use std::sync::{Mutex, PoisonError};

use cambium::{Direction, Entry, Error};
use cambium_bindings::{RunWalker, View, order};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::{begin_with, bytes};
use crate::errors::{ask, closed, exception, raised};

/// An iterator that stands at an entry, or at none.
#[pyclass(module = "cambium", frozen)]
pub struct RawIterator {
    walker: Mutex<Option<RunWalker>>,
    prefix: Vec<u8>,
}

impl RawIterator {
    pub fn new(view: &View, prefix: Vec<u8>) -> Self {
        RawIterator {
            walker: Mutex::new(Some(RunWalker::new(view, &begin_with(&prefix), false))),
            prefix,
        }
    }

    fn go(
        &self,
        py: Python<'_>,
        to: impl Send + FnOnce(&mut RunWalker) -> cambium::Result<()>,
    ) -> PyResult<()> {
        let moved = ask(py, || {
            order::refuse_within_comparator()?;
            let mut walker = self.walker.lock().unwrap_or_else(PoisonError::into_inner);
            walker.as_mut().map(to).transpose()
        })?;
        moved.ok_or_else(|| closed("iterator"))
    }

    fn step(&self, py: Python<'_>, direction: Direction) -> PyResult<()> {
        self.entry(py)?.ok_or_else(|| invalid(py))?;
        // Another thread may hold the lock, and wait for the interpreter's.
        let ready = self.walker.try_lock().ok().and_then(|mut walker| {
            let walker = walker.as_mut()?;
            let is_ready = walker.can_step(direction);
            is_ready.then(|| walker.step(direction))
        });
        match ready {
            Some(stepped) => stepped.map_err(|error| raised(py, &error)),
            None => self.go(py, |walker| walker.step(direction)),
        }
    }

    /// The entry where it stands.
    fn entry(&self, py: Python<'_>) -> PyResult<Option<Entry>> {
        let shown = |walker: &Option<RunWalker>| {
            let shown = |walker: &RunWalker| match walker.is_closed() {
                true => Err(Error::Closed),
                false => Ok(walker.entry().cloned()),
            };
            walker.as_ref().map(shown).transpose()
        };
        let now = self.walker.try_lock().ok().map(|walker| shown(&walker));
        let entry = match now {
            Some(entry) => entry.map_err(|error| raised(py, &error))?,
            None => ask(py, || {
                order::refuse_within_comparator()?;
                shown(&self.walker.lock().unwrap_or_else(PoisonError::into_inner))
            })?,
        };
        entry.ok_or_else(|| closed("iterator"))
    }
}

fn invalid(py: Python<'_>) -> PyErr {
    let text = "the iterator stands at no entry".to_string();
    exception(py, "IteratorInvalidError", text)
}

#[pymethods]
impl RawIterator {
    fn valid(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.entry(py)?.is_some())
    }

    fn seek_to_first(&self, py: Python<'_>) -> PyResult<()> {
        self.go(py, RunWalker::seek_to_first)
    }

    fn seek_to_last(&self, py: Python<'_>) -> PyResult<()> {
        self.go(py, RunWalker::seek_to_last)
    }

    fn seek(&self, py: Python<'_>, target: &Bound<'_, PyAny>) -> PyResult<()> {
        let target = [&self.prefix[..], &*bytes(target)?].concat();
        self.go(py, |walker| walker.seek(&target))
    }

    fn next(&self, py: Python<'_>) -> PyResult<()> {
        self.step(py, Direction::Forward)
    }

    fn prev(&self, py: Python<'_>) -> PyResult<()> {
        self.step(py, Direction::Reverse)
    }

    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let entry = self.entry(py)?.ok_or_else(|| invalid(py))?;
        Ok(PyBytes::new(py, &entry.key[self.prefix.len()..]))
    }

    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let entry = self.entry(py)?.ok_or_else(|| invalid(py))?;
        Ok(PyBytes::new(py, &entry.value))
    }

    fn item<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let entry = self.entry(py)?.ok_or_else(|| invalid(py))?;
        let key = PyBytes::new(py, &entry.key[self.prefix.len()..]);
        Ok((key, PyBytes::new(py, &entry.value)))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        ask(py, || {
            order::refuse_within_comparator()?;
            let mut walker = self.walker.lock().unwrap_or_else(PoisonError::into_inner);
            drop(walker.take());
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
