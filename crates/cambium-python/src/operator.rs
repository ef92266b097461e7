//! A merge operator that is a function of Python.

use std::sync::Arc;

use cambium::{Error, MergeOperator, Result};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::bytes;

/// The operator of a name and a function.
pub fn brought(name: &str, function: &Bound<'_, PyAny>) -> PyResult<Arc<dyn MergeOperator>> {
    if !function.is_callable() {
        return Err(PyTypeError::new_err("the merge operator is not callable"));
    }
    Ok(Arc::new(PythonOperator {
        name: name.to_string(),
        function: function.clone().unbind(),
    }))
}

/// Calls the function with the current value, or `None`, and the operand. The write fails with
/// the words of what it raises.
struct PythonOperator {
    name: String,
    function: Py<PyAny>,
}

impl MergeOperator for PythonOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn merge(&self, key: &[u8], current: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>> {
        Python::attach(|py| {
            let current = current.map(|current| PyBytes::new(py, current));
            let values = (current, PyBytes::new(py, operand));
            let made = self.function.bind(py).call1(values);
            let made = made.and_then(|made| Ok(bytes(&made)?.into_owned()));
            made.map_err(|error| {
                Error::InvalidArgument(format!(
                    "merge by {} into key {:?}: {error}",
                    self.name,
                    String::from_utf8_lossy(key)
                ))
            })
        })
    }
}
