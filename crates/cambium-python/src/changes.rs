//! `Changes` and `Consumer`: following what is written.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cambium::{ChangeBatch, ChangeOptions, Operation, SequenceNumber, Store};
use cambium_bindings::OfProcess;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::flag;
use crate::errors::{ask, closed, here, leave};

/// The longest time without a look at Python's signals.
const WAIT: Duration = Duration::from_millis(100);

/// The committed batches of a database, in order.
#[pyclass(module = "cambium", frozen)]
pub struct Changes {
    changes: OfProcess<Mutex<Option<cambium::Changes>>>,
    follows: bool,
}

impl Changes {
    pub fn begin(
        py: Python<'_>,
        store: &Store,
        after: u64,
        (follows, synced_only): (bool, bool),
    ) -> PyResult<Changes> {
        let options = ChangeOptions { synced_only };
        let changes = ask(py, || store.changes_with(SequenceNumber(after), options))?;
        Ok(Changes {
            changes: OfProcess::new(Mutex::new(Some(changes))),
            follows,
        })
    }

    /// Reads on, without the interpreter's lock.
    fn read(&self, py: Python<'_>, most: Duration) -> PyResult<Option<ChangeBatch>> {
        let next = ask(py, || {
            let changes = self.changes.get()?.lock();
            let mut changes = changes.unwrap_or_else(PoisonError::into_inner);
            let next = changes.as_mut().map(|changes| changes.next_timeout(most));
            next.transpose()
        })?;
        next.ok_or_else(|| closed("reader of changes"))
    }
}

#[pymethods]
impl Changes {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// The next batch. One that follows waits for it; others end at the end of the log.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        loop {
            let wait = if self.follows { WAIT } else { Duration::ZERO };
            if let Some(batch) = self.read(py, wait)? {
                return shown(py, &batch).map(Some);
            }
            if !self.follows {
                return Ok(None);
            }
            py.check_signals()?;
        }
    }

    /// The next batch, if one comes within so many seconds.
    #[pyo3(signature = (timeout=0.0))]
    fn next(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<Py<PyAny>>> {
        let most = Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or(Duration::MAX);
        let batch = self.read(py, most)?;
        batch.map(|batch| shown(py, &batch)).transpose()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        ask(py, || {
            let changes = self.changes.get()?.lock();
            drop(changes.unwrap_or_else(PoisonError::into_inner).take());
            Ok(())
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        leave(&self.changes, || self.close(py))
    }
}

/// A class of `cambium._changes`.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("cambium._changes").map(Bound::unbind))?;
    module.bind(py).getattr(name)
}

fn shown(py: Python<'_>, batch: &ChangeBatch) -> PyResult<Py<PyAny>> {
    let of_change = class(py, "Change")?;
    let mut changes = Vec::with_capacity(batch.changes.len());
    for change in &batch.changes {
        let bytes = |bytes: &Vec<u8>| PyBytes::new(py, bytes);
        let (operation, key, value) = match &change.operation {
            Operation::Put { key, value } => ("put", Some(bytes(key)), Some(bytes(value))),
            Operation::Delete { key } => ("delete", Some(bytes(key)), None),
            Operation::DeleteRange { range } => {
                let edge = |key: &Option<Vec<u8>>| key.as_ref().map(bytes);
                ("delete_range", edge(&range.from), edge(&range.to))
            }
        };
        let namespace = change.namespace.as_deref().unwrap_or_default();
        let expires = change.expires.map(|moment| moment.0 as f64 / 1_000.0);
        changes.push(of_change.call1((namespace, operation, key, value, expires))?);
    }
    let numbers = (batch.first.0, batch.last.0, batch.synced, changes);
    Ok(class(py, "ChangeBatch")?.call1(numbers)?.unbind())
}

/// A reader of changes whose position the database keeps.
#[pyclass(module = "cambium", frozen)]
pub struct Consumer {
    store: OfProcess<Store>,
    #[pyo3(get)]
    name: String,
    #[pyo3(get)]
    is_new: bool,
}

impl Consumer {
    pub fn make(py: Python<'_>, store: &Store, name: &str) -> PyResult<Consumer> {
        let is_new = ask(py, || store.consumer(name))?.is_new();
        Ok(Consumer {
            store: OfProcess::new(store.clone()),
            name: name.to_string(),
            is_new,
        })
    }

    fn consumer(&self) -> cambium::Result<cambium::Consumer> {
        self.store.get()?.existing_consumer(&self.name)
    }
}

#[pymethods]
impl Consumer {
    /// The last change that it is done with.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        ask(py, || Ok(self.consumer()?.position()?.0))
    }

    /// The changes after its position.
    #[pyo3(signature = (*, follow=false, synced_only=false))]
    fn changes(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = flag)] follow: bool,
        #[pyo3(from_py_with = flag)] synced_only: bool,
    ) -> PyResult<Changes> {
        let after = self.position(py)?;
        Changes::begin(py, here(&self.store)?, after, (follow, synced_only))
    }

    /// It is done with all changes up to a number, durably.
    fn acknowledge(&self, py: Python<'_>, through: u64) -> PyResult<()> {
        ask(py, || self.consumer()?.acknowledge(SequenceNumber(through)))
    }

    /// Takes it away: the database keeps no history for it.
    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        ask(py, || self.consumer()?.remove())
    }
}
