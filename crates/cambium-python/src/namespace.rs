//! `Namespace`: keys of their own in a database.

use std::sync::Arc;

use cambium_bindings::{Database, OfProcess};
use pyo3::prelude::*;

use crate::database::Db;
use crate::readable::Writable;

/// Keys of their own, which are written in one batch with those of the database.
#[pyclass(module = "cambium", extends = Writable, frozen)]
pub struct Namespace {
    #[pyo3(get)]
    db: Py<Db>,
    #[pyo3(get)]
    name: String,
}

impl Namespace {
    pub fn make(db: &Bound<'_, Db>, name: &str, inner: Database) -> PyResult<Py<Self>> {
        let namespace = Namespace {
            db: db.clone().unbind(),
            name: name.to_string(),
        };
        let base = Writable::initializer(Arc::new(OfProcess::new(inner)), Vec::new());
        Py::new(db.py(), base.add_subclass(namespace))
    }
}

#[pymethods]
impl Namespace {
    fn __repr__(&self) -> String {
        format!("<cambium.Namespace {:?}>", self.name)
    }
}
