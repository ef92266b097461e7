//! `Snapshot`: one moment of a database.

use cambium_bindings::View;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

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

    fn close(slf: &Bound<'_, Self>) {
        let readable = slf.as_super().get();
        slf.py().detach(|| readable.let_go());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyTuple>) {
        Snapshot::close(slf);
    }
}
