//! Errors as Python's exceptions. The classes stand in `cambium/_exceptions.py`,
//! where their bases can be read.

use cambium::Error;
use cambium_bindings::OfProcess;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// A class of `cambium._exceptions`.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let import = || py.import("cambium._exceptions").map(Bound::unbind);
    let class = MODULE.get_or_try_init(py, import)?.bind(py).getattr(name)?;
    Ok(class.cast_into::<PyType>()?)
}

/// An exception of `cambium._exceptions` with a text.
pub fn exception(py: Python<'_>, name: &str, text: String) -> PyErr {
    match class(py, name) {
        Ok(class) => PyErr::from_type(class, text),
        Err(error) => error,
    }
}

/// True for a `cambium.ConflictError`.
pub fn is_conflict(py: Python<'_>, error: &PyErr) -> bool {
    let class = class(py, "ConflictError");
    class.is_ok_and(|class| error.matches(py, class).unwrap_or(false))
}

/// The exception for an error of the store.
pub fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error {
        Error::Closed => return closed("database"),
        Error::Corruption { .. } => "CorruptionError",
        Error::Locked { .. } => "LockedError",
        Error::Unsupported { .. } => "UnsupportedError",
        Error::NoSpace { .. } => "NoSpaceError",
        Error::SyncFailed { .. } => "SyncFailedError",
        Error::Conflict { .. } => "ConflictError",
        Error::HistoryLost { .. } => "HistoryLostError",
        Error::Poisoned { .. } => "PoisonedError",
        Error::PreconditionFailed { .. } => "PreconditionFailedError",
        Error::Io { .. } | Error::NotAStore { .. } => "IOError",
        _ => "Error",
    };
    let raised = exception(py, class, error.to_string());
    if let Error::HistoryLost { oldest } = error {
        // Without the number the text still has it.
        _ = raised.value(py).setattr("oldest", oldest.0);
    }
    raised
}

/// What is asked of an object that was closed.
pub fn closed(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!("the {what} is closed"))
}

/// An argument of a wrong type.
pub fn wrong_type(text: &str) -> PyErr {
    PyTypeError::new_err(text.to_string())
}

/// The object, unless it is the parent process's.
pub fn here<T>(object: &OfProcess<T>) -> PyResult<&T> {
    object
        .get()
        .map_err(|error| Python::attach(|py| raised(py, &error)))
}

/// Closes at the end of a block. A child process that leaves the block of its parent, as by
/// `sys.exit`, does nothing.
pub fn leave<T>(object: &OfProcess<T>, close: impl FnOnce() -> PyResult<()>) -> PyResult<()> {
    match object.get() {
        Ok(_) => close(),
        Err(_) => Ok(()),
    }
}

/// Asks the store without Python's interpreter lock.
pub fn ask<T: Send>(
    py: Python<'_>,
    call: impl Send + FnOnce() -> cambium::Result<T>,
) -> PyResult<T> {
    py.detach(call).map_err(|error| raised(py, &error))
}
