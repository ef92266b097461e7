//! `RawIterator`: LevelDB's own iterator, that stands at an entry or at none.

use std::sync::{Mutex, PoisonError};

use cambium::{Direction, Error};
use cambium_bindings::{OfProcess, RunWalker, View, order};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::{begin_with, bytes};
use crate::errors::{ask, closed, exception, here, leave, raised};

/// A key and its value.
type Entry<'a> = (&'a [u8], &'a [u8]);

/// An iterator that stands at an entry, or at none.
#[pyclass(module = "cambium", frozen, weakref)]
pub struct RawIterator {
    walker: OfProcess<Mutex<Option<RunWalker>>>,
    prefix: Vec<u8>,
}

impl RawIterator {
    pub fn new(view: &View, prefix: Vec<u8>) -> Self {
        let walker = RunWalker::new(view, &begin_with(&prefix), false);
        RawIterator {
            walker: OfProcess::new(Mutex::new(Some(walker))),
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
            let mut walker = self
                .walker
                .get()?
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            walker.as_mut().map(to).transpose()
        })?;
        moved.ok_or_else(|| closed("iterator"))
    }

    fn step(&self, py: Python<'_>, direction: Direction) -> PyResult<()> {
        self.look(py, |_| ())?;
        // Another thread may hold the lock, and wait for the interpreter's.
        let ready = here(&self.walker)?.try_lock().ok().and_then(|mut walker| {
            let walker = walker.as_mut()?;
            let is_ready = walker.can_step(direction);
            is_ready.then(|| walker.step(direction))
        });
        match ready {
            Some(stepped) => stepped.map_err(|error| raised(py, &error)),
            None => self.go(py, |walker| walker.step(direction)),
        }
    }

    /// Looks at the entry where it stands; `look` may make bytes, and nothing that a
    /// garbage collector knows.
    fn look<T>(&self, py: Python<'_>, look: impl FnOnce(Entry<'_>) -> T) -> PyResult<T> {
        self.entry(py, look)?.ok_or_else(|| invalid(py))
    }

    fn entry<T>(&self, py: Python<'_>, look: impl FnOnce(Entry<'_>) -> T) -> PyResult<Option<T>> {
        // Another thread may hold the lock, and wait for the interpreter's.
        if let Ok(walker) = here(&self.walker)?.try_lock() {
            let entry = walker.as_ref().map(standing).transpose();
            let entry = entry.map_err(|error| raised(py, &error))?;
            return Ok(entry.ok_or_else(|| closed("iterator"))?.map(look));
        }
        let entry = ask(py, || {
            order::refuse_within_comparator()?;
            let walker = self
                .walker
                .get()?
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let entry = walker.as_ref().map(standing).transpose()?;
            let owned = |(key, value): Entry<'_>| (key.to_vec(), value.to_vec());
            Ok(entry.map(|entry| entry.map(owned)))
        })?;
        let entry = entry.ok_or_else(|| closed("iterator"))?;
        Ok(entry.map(|(key, value)| look((&key, &value))))
    }
}

/// The entry where a walker stands.
fn standing(walker: &RunWalker) -> cambium::Result<Option<Entry<'_>>> {
    match walker.is_closed() {
        true => Err(Error::Closed),
        false => Ok(walker.entry()),
    }
}

fn invalid(py: Python<'_>) -> PyErr {
    let text = "the iterator stands at no entry".to_string();
    exception(py, "IteratorInvalidError", text)
}

#[pymethods]
impl RawIterator {
    fn valid(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.entry(py, |_| ())?.is_some())
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
        self.look(py, |(key, _)| PyBytes::new(py, &key[self.prefix.len()..]))
    }

    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.look(py, |(_, value)| PyBytes::new(py, value))
    }

    fn item<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        self.look(py, |(key, value)| {
            let key = PyBytes::new(py, &key[self.prefix.len()..]);
            (key, PyBytes::new(py, value))
        })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        ask(py, || {
            order::refuse_within_comparator()?;
            let mut walker = self
                .walker
                .get()?
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            drop(walker.take());
            Ok(())
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        leave(&self.walker, || self.close(py))
    }
}
