//! `WriteBatch`: changes that are made together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cambium::{Durability, Operation, Precondition, Special};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arguments::{Limits, bytes};
use crate::errors::{ask, closed, here, leave};
use crate::readable::{Shared, after};

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
    durability: Durability,
    content: Mutex<Content>,
}

/// Changes, and what must hold for them.
#[derive(Clone, Default)]
struct Content {
    changes: cambium::WriteBatch,
    conditions: Vec<Precondition>,
}

impl WriteBatch {
    pub fn new(
        database: Shared,
        prefix: Vec<u8>,
        transaction: bool,
        durability: Durability,
    ) -> Self {
        WriteBatch {
            database,
            prefix,
            transaction,
            durability,
            content: Mutex::default(),
        }
    }

    fn content(&self) -> PyResult<MutexGuard<'_, Content>> {
        if here(&self.database)?.is_closed() {
            return Err(closed("database"));
        }
        Ok(self.content.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn key(&self, key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        Ok([&self.prefix[..], &*bytes(key)?].concat())
    }

    fn push(
        &self,
        operation: Operation,
        namespace: Option<&str>,
        special: Option<Special>,
    ) -> PyResult<()> {
        let changes = &mut self.content()?.changes;
        changes.push(namespace.map(Arc::from), operation);
        if let Some(special) = special {
            changes.make_special(special);
        }
        Ok(())
    }

    fn require(&self, condition: Precondition) -> PyResult<()> {
        self.content()?.conditions.push(condition);
        Ok(())
    }

    fn write_content(&self, py: Python<'_>, content: Content) -> PyResult<()> {
        let Content {
            changes,
            conditions,
        } = content;
        ask(py, || {
            let database = &self.database;
            database
                .get()?
                .write_if(&conditions, changes, self.durability)
        })
    }
}

#[pymethods]
impl WriteBatch {
    /// The time to live is counted from the write.
    #[pyo3(signature = (key, value, *, namespace=None, ttl=None))]
    fn put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        namespace: Option<&str>,
        ttl: Option<f64>,
    ) -> PyResult<()> {
        let (key, value) = (self.key(key)?, bytes(value)?.into_owned());
        let expiry = ttl.map(after).transpose()?;
        let special = expiry.map(Special::Expires);
        self.push(Operation::Put { key, value }, namespace, special)
    }

    /// Lets a merge operator make the next value of the current one and an operand.
    #[pyo3(signature = (operator, key, operand, *, namespace=None))]
    fn merge(
        &self,
        operator: &str,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
        namespace: Option<&str>,
    ) -> PyResult<()> {
        let (key, value) = (self.key(key)?, bytes(operand)?.into_owned());
        let special = Special::Merge(Arc::from(operator));
        self.push(Operation::Put { key, value }, namespace, Some(special))
    }

    #[pyo3(signature = (key, *, namespace=None))]
    fn delete(&self, key: &Bound<'_, PyAny>, namespace: Option<&str>) -> PyResult<()> {
        let key = self.key(key)?;
        self.push(Operation::Delete { key }, namespace, None)
    }

    /// Deletes the keys of a prefix, or those from `start` up to, not including, `stop`.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, namespace=None))]
    fn delete_range(
        &self,
        start: Option<Bound<'_, PyAny>>,
        stop: Option<Bound<'_, PyAny>>,
        prefix: Option<Bound<'_, PyAny>>,
        namespace: Option<&str>,
    ) -> PyResult<()> {
        let limits = Limits::half_open(start, stop, prefix);
        let range = limits.bounds(&self.prefix)?.range();
        self.push(Operation::DeleteRange { range }, namespace, None)
    }

    /// Writes the batch only if the key is not there.
    fn require_absent(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = self.key(key)?;
        self.require(Precondition::Absent { key })
    }

    /// Writes the batch only if the key is there.
    fn require_present(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = self.key(key)?;
        self.require(Precondition::Present { key })
    }

    /// Writes the batch only if the key has this value.
    fn require_equal(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (self.key(key)?, bytes(value)?.into_owned());
        self.require(Precondition::Equals { key, value })
    }

    fn clear(&self) -> PyResult<()> {
        *self.content()? = Content::default();
        Ok(())
    }

    fn write(&self, py: Python<'_>) -> PyResult<()> {
        let content = self.content()?.clone();
        self.write_content(py, content)
    }

    fn append(&self, source: &Bound<'_, WriteBatch>) -> PyResult<()> {
        // A copy first: it may be this batch.
        let source = source.get().content()?.clone();
        let mut content = self.content()?;
        content.changes.append(source.changes);
        content.conditions.extend(source.conditions);
        Ok(())
    }

    fn approximate_size(&self) -> PyResult<u64> {
        let changes = &self.content()?.changes;
        Ok(EMPTY_BYTES + changes.bytes() + OPERATION_BYTES * changes.len() as u64)
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.content()?.changes.len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
        drop(slf.get().content()?);
        Ok(slf)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let failed = exception
            .iter()
            .next()
            .is_some_and(|class| !class.is_none());
        let write = || {
            let content = std::mem::take(&mut *self.content()?);
            if self.transaction && failed {
                return Ok(());
            }
            self.write_content(py, content)
        };
        match failed {
            true => leave(&self.database, write),
            false => write(),
        }
    }
}
