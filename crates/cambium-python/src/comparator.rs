//! A comparator that is a function of Python.

use std::cmp::Ordering;
use std::sync::Arc;

use cambium_bindings::Comparator;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::bytes;

/// The comparator of a function and a name, which go together.
pub fn brought(
    function: Option<Bound<'_, PyAny>>,
    name: Option<Bound<'_, PyAny>>,
) -> PyResult<Option<Arc<dyn Comparator>>> {
    let (function, name) = match (function, name) {
        (None, None) => return Ok(None),
        (Some(function), Some(name)) => (function, name),
        _ => {
            let text = "comparator and comparator_name go together";
            return Err(PyValueError::new_err(text));
        }
    };
    let name = bytes(&name)?;
    if !function.is_callable() {
        return Err(PyTypeError::new_err("the comparator is not callable"));
    }
    let name = String::from_utf8(name.into_owned())
        .map_err(|_| PyValueError::new_err("comparator_name is no UTF-8"))?;
    Ok(Some(Arc::new(PythonComparator {
        name,
        function: function.unbind(),
    })))
}

/// Calls the function with two keys. What it raises is reported as an error that
/// nobody can catch, and the keys are compared by their bytes.
struct PythonComparator {
    name: String,
    function: Py<PyAny>,
}

impl Comparator for PythonComparator {
    fn name(&self) -> &str {
        &self.name
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        Python::attach(|py| {
            let keys = (PyBytes::new(py, left), PyBytes::new(py, right));
            let answer = self.function.bind(py).call1(keys);
            match answer.and_then(|answer| answer.extract::<i64>()) {
                Ok(answer) => answer.cmp(&0),
                Err(error) => {
                    error.write_unraisable(py, None);
                    left.cmp(right)
                }
            }
        })
    }
}
