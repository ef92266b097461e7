//! `WriteBatch`: changes that are made together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cambium::Operation;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arguments::{bytes, durability};
use crate::errors::{ask, closed};
use crate::readable::Shared;

/// What LevelDB's header of a batch takes.
const EMPTY_BYTES: u64 = 12;
/// What LevelDB takes for an operation beside its key and value, about.
const OPERATION_BYTES: u64 = 3;

/// Changes that are made together, or not at all.
#[pyclass(module = "cambium", frozen)]
pub struct WriteBatch {
    database: Shared,
    prefix: Vec<u8>,
    transaction: bool,
    sync: bool,
    changes: Mutex<cambium::WriteBatch>,
}

impl WriteBatch {
    pub fn new(database: Shared, prefix: Vec<u8>, transaction: bool, sync: bool) -> Self {
        WriteBatch {
            database,
            prefix,
            transaction,
            sync,
            changes: Mutex::default(),
        }
    }

    fn changes(&self) -> PyResult<MutexGuard<'_, cambium::WriteBatch>> {
        if self.database.is_closed() {
            return Err(closed("database"));
        }
        Ok(self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.prefix[..], key].concat()
    }

    fn push(&self, operation: Operation, namespace: Option<&str>) -> PyResult<()> {
        self.changes()?.push(namespace.map(Arc::from), operation);
        Ok(())
    }
}

#[pymethods]
impl WriteBatch {
    #[pyo3(signature = (key, value, *, namespace=None))]
    fn put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        namespace: Option<&str>,
    ) -> PyResult<()> {
        let (key, value) = (self.key(&bytes(key)?), bytes(value)?.into_owned());
        self.push(Operation::Put { key, value }, namespace)
    }

    #[pyo3(signature = (key, *, namespace=None))]
    fn delete(&self, key: &Bound<'_, PyAny>, namespace: Option<&str>) -> PyResult<()> {
        let key = self.key(&bytes(key)?);
        self.push(Operation::Delete { key }, namespace)
    }

    fn clear(&self) -> PyResult<()> {
        self.changes()?.clear();
        Ok(())
    }

    fn write(&self, py: Python<'_>) -> PyResult<()> {
        let changes = self.changes()?.clone();
        ask(py, || self.database.write(changes, durability(self.sync)))
    }

    fn append(&self, source: &Bound<'_, WriteBatch>) -> PyResult<()> {
        // A copy first: it may be this batch.
        let source = source.get().changes()?.clone();
        let mut changes = self.changes()?;
        for (namespace, operation) in source.into_operations() {
            changes.push(namespace, operation);
        }
        Ok(())
    }

    fn approximate_size(&self) -> PyResult<u64> {
        let changes = self.changes()?;
        Ok(EMPTY_BYTES + changes.bytes() + OPERATION_BYTES * changes.len() as u64)
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.changes()?.len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
        drop(slf.get().changes()?);
        Ok(slf)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let failed = exception
            .iter()
            .next()
            .is_some_and(|class| !class.is_none());
        let changes = std::mem::take(&mut *self.changes()?);
        if self.transaction && failed {
            return Ok(());
        }
        ask(py, || self.database.write(changes, durability(self.sync)))
    }
}
