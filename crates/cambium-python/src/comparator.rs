//! A comparator that is a function of Python.

use std::cmp::Ordering;

use cambium_bindings::Comparator;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Calls the function with two keys. What it raises is reported as an error that
/// nobody can catch, and the keys are compared by their bytes.
pub struct PythonComparator {
    pub name: String,
    pub function: Py<PyAny>,
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
