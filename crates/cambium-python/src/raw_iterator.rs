//! `RawIterator`: LevelDB's own iterator, that stands at an entry or at none.

use std::sync::{Mutex, PoisonError};

use cambium_bindings::{View, Walker};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::{begin_with, bytes};
use crate::errors::{ask, closed, exception};

/// An iterator that stands at an entry, or at none.
#[pyclass(module = "cambium", frozen)]
pub struct RawIterator {
    walker: Mutex<Option<Walker>>,
    prefix: Vec<u8>,
}

impl RawIterator {
    pub fn new(view: &View, prefix: Vec<u8>) -> Self {
        RawIterator {
            walker: Mutex::new(Some(view.walker(&begin_with(&prefix)))),
            prefix,
        }
    }

    fn go(
        &self,
        py: Python<'_>,
        to: impl Send + FnOnce(&mut Walker) -> cambium::Result<()>,
    ) -> PyResult<()> {
        let moved = ask(py, || {
            let mut walker = self.walker.lock().unwrap_or_else(PoisonError::into_inner);
            walker.as_mut().map(to).transpose()
        })?;
        moved.ok_or_else(|| closed("iterator"))
    }

    fn shown<T: Send>(
        &self,
        py: Python<'_>,
        part: impl Send + FnOnce(&Walker) -> Option<T>,
    ) -> PyResult<Option<T>> {
        let shown = py.detach(|| {
            let walker = self.walker.lock().unwrap_or_else(PoisonError::into_inner);
            walker.as_ref().map(part)
        });
        shown.ok_or_else(|| closed("iterator"))
    }
}

fn invalid(py: Python<'_>) -> PyErr {
    let text = "the iterator stands at no entry".to_string();
    exception(py, "IteratorInvalidError", text)
}

#[pymethods]
impl RawIterator {
    fn valid(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.shown(py, |walker| walker.key().cloned())?.is_some())
    }

    fn seek_to_first(&self, py: Python<'_>) -> PyResult<()> {
        self.go(py, Walker::seek_to_first)
    }

    fn seek_to_last(&self, py: Python<'_>) -> PyResult<()> {
        self.go(py, Walker::seek_to_last)
    }

    fn seek(&self, py: Python<'_>, target: &Bound<'_, PyAny>) -> PyResult<()> {
        let target = [&self.prefix[..], &*bytes(target)?].concat();
        self.go(py, |walker| walker.seek(&target))
    }

    fn next(&self, py: Python<'_>) -> PyResult<()> {
        self.valid(py)?.then_some(()).ok_or_else(|| invalid(py))?;
        self.go(py, Walker::next)
    }

    fn prev(&self, py: Python<'_>) -> PyResult<()> {
        self.valid(py)?.then_some(()).ok_or_else(|| invalid(py))?;
        self.go(py, Walker::previous)
    }

    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let key = self.shown(py, |walker| walker.key().cloned())?;
        let key = key.ok_or_else(|| invalid(py))?;
        Ok(PyBytes::new(py, &key[self.prefix.len()..]))
    }

    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let entry = self.shown(py, |walker| walker.entry().cloned())?;
        let entry = entry.ok_or_else(|| invalid(py))?;
        Ok(PyBytes::new(py, &entry.value))
    }

    fn item<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let entry = self.shown(py, |walker| walker.entry().cloned())?;
        let entry = entry.ok_or_else(|| invalid(py))?;
        let key = PyBytes::new(py, &entry.key[self.prefix.len()..]);
        Ok((key, PyBytes::new(py, &entry.value)))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let mut walker = self.walker.lock().unwrap_or_else(PoisonError::into_inner);
            drop(walker.take());
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
