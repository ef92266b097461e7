//! `Snapshot`: one moment of a database.

use std::sync::{PoisonError, RwLock};

use cambium_bindings::View;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::{Limits, begin_with, bytes};
use crate::errors::{ask, closed};
use crate::iterator::{Iterator, Shown};
use crate::raw_iterator::RawIterator;

/// A database at one moment, until it is closed.
#[pyclass(module = "cambium", frozen)]
pub struct Snapshot {
    view: RwLock<Option<View>>,
    prefix: Vec<u8>,
}

impl Snapshot {
    pub fn new(view: View, prefix: Vec<u8>) -> Self {
        Snapshot {
            view: RwLock::new(Some(view)),
            prefix,
        }
    }

    fn view(&self) -> PyResult<View> {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner);
        view.clone().ok_or_else(|| closed("snapshot"))
    }
}

#[pymethods]
impl Snapshot {
    #[pyo3(signature = (key, default=None, *, verify_checksums=None, fill_cache=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        verify_checksums: Option<bool>,
        fill_cache: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (verify_checksums, fill_cache);
        let key = [&self.prefix[..], &*bytes(key)?].concat();
        let view = self.view()?;
        Ok(match ask(py, || view.get(&key))? {
            Some(value) => PyBytes::new(py, &value).into_any(),
            None => default.unwrap_or_else(|| py.None().into_bound(py)),
        })
    }

    #[pyo3(signature = (
        *, reverse=false, start=None, stop=None, include_start=true, include_stop=false,
        prefix=None, include_key=true, include_value=true, verify_checksums=None,
        fill_cache=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are plyvel's, by name")]
    fn iterator(
        &self,
        reverse: bool,
        start: Option<Bound<'_, PyAny>>,
        stop: Option<Bound<'_, PyAny>>,
        include_start: bool,
        include_stop: bool,
        prefix: Option<Bound<'_, PyAny>>,
        include_key: bool,
        include_value: bool,
        verify_checksums: Option<bool>,
        fill_cache: Option<bool>,
    ) -> PyResult<Iterator> {
        let _ = (verify_checksums, fill_cache);
        let limits = Limits {
            start,
            stop,
            include_start,
            include_stop,
            prefix,
        };
        let bounds = limits.bounds(&self.prefix)?;
        let shown = Shown::new(include_key, include_value, self.prefix.len());
        let view = self.view()?;
        Ok(Iterator::new(
            &view,
            &bounds,
            reverse,
            shown,
            self.prefix.clone(),
        ))
    }

    #[pyo3(signature = (*, verify_checksums=None, fill_cache=None))]
    fn raw_iterator(
        &self,
        verify_checksums: Option<bool>,
        fill_cache: Option<bool>,
    ) -> PyResult<RawIterator> {
        let _ = (verify_checksums, fill_cache);
        Ok(RawIterator::new(&self.view()?, self.prefix.clone()))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
            drop(view.take());
        });
    }

    fn __iter__(&self) -> PyResult<Iterator> {
        let shown = Shown::new(true, true, self.prefix.len());
        let bounds = begin_with(&self.prefix);
        Ok(Iterator::new(
            &self.view()?,
            &bounds,
            false,
            shown,
            self.prefix.clone(),
        ))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}
