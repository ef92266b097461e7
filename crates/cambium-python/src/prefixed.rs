//! `PrefixedDB`: the keys of a database that begin with a prefix, without it.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::bytes;
use crate::database::Db;
use crate::readable::Writable;

/// The part of a database whose keys begin with a prefix.
#[pyclass(module = "cambium", name = "PrefixedDB", extends = Writable, frozen)]
pub struct PrefixedDb {
    #[pyo3(get)]
    db: Py<Db>,
}

impl PrefixedDb {
    pub fn make(py: Python<'_>, db: Py<Db>, prefix: Vec<u8>) -> PyResult<Py<Self>> {
        let base = Writable::initializer(db.get().shared().clone(), prefix);
        Py::new(py, base.add_subclass(PrefixedDb { db }))
    }
}

#[pymethods]
impl PrefixedDb {
    #[getter]
    fn prefix<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyBytes> {
        PyBytes::new(slf.py(), slf.as_super().get().prefix())
    }

    #[pyo3(name = "prefixed_db")]
    fn within(slf: &Bound<'_, Self>, prefix: &Bound<'_, PyAny>) -> PyResult<Py<PrefixedDb>> {
        let prefix = [slf.as_super().get().prefix(), &*bytes(prefix)?].concat();
        PrefixedDb::make(slf.py(), slf.get().db.clone_ref(slf.py()), prefix)
    }
}
