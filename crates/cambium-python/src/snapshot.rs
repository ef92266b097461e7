//! `Snapshot`: one moment of a database.

use cambium_bindings::View;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::ask;
use crate::readable::Readable;

/// A database at one moment, until it is closed.
#[pyclass(module = "cambium", extends = Readable, frozen)]
pub struct Snapshot;

impl Snapshot {
    pub fn make(py: Python<'_>, view: View, prefix: Vec<u8>) -> PyResult<Py<Self>> {
        let base = PyClassInitializer::from(Readable::then(view, prefix));
        Py::new(py, base.add_subclass(Snapshot))
    }
}

#[pymethods]
impl Snapshot {
    /// The last write that it sees: changes after it fit without a gap.
    #[getter]
    fn sequence(slf: &Bound<'_, Self>) -> PyResult<u64> {
        let view = slf.as_super().get().view(slf.py())?;
        Ok(view.sequence().0)
    }

    /// Names of the database's namespaces, the default one (`""`) first.
    fn namespaces(slf: &Bound<'_, Self>) -> PyResult<Vec<String>> {
        let view = slf.as_super().get().view(slf.py())?;
        ask(slf.py(), || view.snapshot().namespaces())
    }

    /// The same moment of another namespace, closed by itself; `None` if there is none of
    /// that name.
    fn namespace(slf: &Bound<'_, Self>, name: &str) -> PyResult<Option<Py<Snapshot>>> {
        let (py, readable) = (slf.py(), slf.as_super().get());
        let view = readable.view(py)?;
        let found = ask(py, || view.namespace(name))?;
        let shown = |view| Snapshot::make(py, view, readable.prefix().to_vec());
        found.map(shown).transpose()
    }

    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.as_super().get().let_go(slf.py())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        slf.as_super().get().leave(slf.py())
    }
}
