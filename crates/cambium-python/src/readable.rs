//! What databases, prefixed databases, namespaces and snapshots have in common:
//! reading. And what all but snapshots have: writing.
//!
//! Python sees these as the base classes `_Readable` and `_Writable`, so that names
//! and defaults of arguments stand once.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use cambium::{Conflict, Expiry, Store};
use cambium_bindings::{Database, OfProcess, View};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::{Limits, begin_with, bytes, durability as how_durable, flag};
use crate::batch::WriteBatch;
use crate::errors::{ask, closed, here, is_conflict, leave, raised};
use crate::iterator::{Iterator, Shown};
use crate::raw_iterator::RawIterator;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;

/// A database that several objects use.
pub type Shared = Arc<OfProcess<Database>>;

/// Where reads go: to a database as it is, or as it was.
enum Source {
    Now(Shared),
    Then(OfProcess<RwLock<Option<View>>>),
}

/// Entries that can be read, those whose keys begin with a prefix, without it.
#[pyclass(module = "cambium", name = "_Readable", subclass, frozen)]
pub struct Readable {
    source: Source,
    prefix: Vec<u8>,
}

impl Readable {
    /// Reads of a database.
    pub fn now(database: Shared, prefix: Vec<u8>) -> Self {
        let source = Source::Now(database);
        Readable { source, prefix }
    }

    /// Reads of one moment, until it is let go.
    pub fn then(view: View, prefix: Vec<u8>) -> Self {
        let source = Source::Then(OfProcess::new(RwLock::new(Some(view))));
        Readable { source, prefix }
    }

    /// Lets the moment go.
    pub fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        let Source::Then(view) = &self.source else {
            return Ok(());
        };
        ask(py, || {
            let mut view = view.get()?.write().unwrap_or_else(PoisonError::into_inner);
            drop(view.take());
            Ok(())
        })
    }

    /// The same at the end of a block.
    pub fn leave(&self, py: Python<'_>) -> PyResult<()> {
        match &self.source {
            Source::Then(view) => leave(view, || self.let_go(py)),
            Source::Now(_) => Ok(()),
        }
    }

    /// One moment of what is read.
    pub fn view(&self, py: Python<'_>) -> PyResult<View> {
        match &self.source {
            Source::Now(database) => ask(py, || database.get()?.view()),
            Source::Then(view) => {
                let view = here(view)?.read();
                let view = view.unwrap_or_else(PoisonError::into_inner);
                view.clone().ok_or_else(|| closed("snapshot"))
            }
        }
    }

    /// Keys begin with this.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The value of a key, or `None`.
    pub fn value<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = bytes(key)?;
        let key = whole(&self.prefix, &key);
        let value = match &self.source {
            Source::Now(database) => ask(py, || database.get()?.get(&key))?,
            Source::Then(_) => {
                let view = self.view(py)?;
                ask(py, || view.get(&key))?
            }
        };
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }
}

#[pymethods]
impl Readable {
    #[pyo3(signature = (key, default=None, *, verify_checksums=false, fill_cache=true))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        #[pyo3(from_py_with = flag)] verify_checksums: bool,
        #[pyo3(from_py_with = flag)] fill_cache: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let _ = (verify_checksums, fill_cache);
        let value = self.value(py, key)?;
        Ok(value.map(Bound::into_any).or(default))
    }

    /// The values of several keys as of one moment, `None` for one that is not there; the
    /// reads go to the device together.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys = keys
            .iter()
            .map(|key| Ok(whole(&self.prefix, &bytes(key)?).into_owned()));
        let keys: Vec<Vec<u8>> = keys.collect::<PyResult<_>>()?;
        let view = self.view(py)?;
        let values = ask(py, || {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            view.multi_get(&keys)
        })?;
        let shown = |value: Option<cambium::Value>| value.map(|value| PyBytes::new(py, &value));
        Ok(values.into_iter().map(shown).collect())
    }

    #[pyo3(signature = (
        *, reverse=false, start=None, stop=None, include_start=true, include_stop=false,
        prefix=None, include_key=true, include_value=true, verify_checksums=false,
        fill_cache=true
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are plyvel's, by name")]
    fn iterator(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = flag)] reverse: bool,
        start: Option<Bound<'_, PyAny>>,
        stop: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = flag)] include_start: bool,
        #[pyo3(from_py_with = flag)] include_stop: bool,
        prefix: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = flag)] include_key: bool,
        #[pyo3(from_py_with = flag)] include_value: bool,
        #[pyo3(from_py_with = flag)] verify_checksums: bool,
        #[pyo3(from_py_with = flag)] fill_cache: bool,
    ) -> PyResult<Iterator> {
        let _ = (verify_checksums, fill_cache);
        let limits = Limits {
            start,
            stop,
            include_start,
            include_stop,
            prefix,
        };
        let bounds = limits.bounds(&self.prefix)?;
        let shown = Shown::new(include_key, include_value);
        let prefix = self.prefix.clone();
        Ok(Iterator::new(
            &self.view(py)?,
            &bounds,
            reverse,
            shown,
            prefix,
        ))
    }

    #[pyo3(signature = (*, verify_checksums=false, fill_cache=true))]
    fn raw_iterator(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = flag)] verify_checksums: bool,
        #[pyo3(from_py_with = flag)] fill_cache: bool,
    ) -> PyResult<RawIterator> {
        let _ = (verify_checksums, fill_cache);
        Ok(RawIterator::new(&self.view(py)?, self.prefix.clone()))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Iterator> {
        let bounds = begin_with(&self.prefix);
        let shown = Shown::new(true, true);
        let prefix = self.prefix.clone();
        Ok(Iterator::new(
            &self.view(py)?,
            &bounds,
            false,
            shown,
            prefix,
        ))
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.value(py, key)?;
        value.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.value(py, key)?.is_some())
    }
}

/// So many seconds from now.
pub fn after(seconds: f64) -> PyResult<Expiry> {
    // No `max`, which would take NaN for zero.
    let seconds = if seconds < 0.0 { 0.0 } else { seconds };
    let time = Duration::try_from_secs_f64(seconds);
    let time = time.map_err(|error| PyValueError::new_err(format!("ttl={seconds}: {error}")))?;
    Ok(Expiry::After(time))
}

/// A key with the prefix.
fn whole<'a>(prefix: &[u8], key: &'a [u8]) -> Cow<'a, [u8]> {
    match prefix.is_empty() {
        true => key.into(),
        false => [prefix, key].concat().into(),
    }
}

/// Entries that can be read and written.
#[pyclass(module = "cambium", name = "_Writable", extends = Readable, subclass, frozen)]
pub struct Writable {
    database: Shared,
    prefix: Vec<u8>,
}

impl Writable {
    /// The base classes of an object that reads and writes a database.
    pub fn initializer(database: Shared, prefix: Vec<u8>) -> PyClassInitializer<Writable> {
        let readable = Readable::now(database.clone(), prefix.clone());
        PyClassInitializer::from(readable).add_subclass(Writable { database, prefix })
    }

    /// Keys begin with this.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }
}

#[pymethods]
impl Writable {
    #[pyo3(signature = (key, value, *, sync=false, ttl=None, durability=None))]
    pub fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = flag)] sync: bool,
        ttl: Option<f64>,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let durability = how_durable(sync, durability)?;
        let (key, value) = (bytes(key)?, bytes(value)?);
        let key = whole(&self.prefix, &key);
        let Some(ttl) = ttl else {
            return ask(py, || self.database.get()?.put(&key, &value, durability));
        };
        let expiry = after(ttl)?;
        ask(py, || {
            self.database.get()?.on_store(&key, |store| {
                let engine = store.engine();
                let written = engine.put_expiring(&key, &value, expiry, durability);
                written.map(drop)
            })
        })
    }

    /// The moment at which the entry expires, as of `time.time()`; `None` if it does not,
    /// or is not there.
    fn expires_at(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        let key = bytes(key)?;
        let key = whole(&self.prefix, &key);
        let expires_at = |store: &Store| store.expires_at(&key);
        let moment = ask(py, || self.database.get()?.on_store(&key, expires_at))?;
        Ok(moment.map(|moment| moment.0 as f64 / 1000.0))
    }

    /// Lets an entry expire in so many seconds, or stay (`None`); false if it is not there.
    #[pyo3(signature = (key, ttl, *, sync=false, durability=None))]
    fn expire(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        ttl: Option<f64>,
        #[pyo3(from_py_with = flag)] sync: bool,
        durability: Option<&str>,
    ) -> PyResult<bool> {
        let durability = how_durable(sync, durability)?;
        let key = bytes(key)?;
        let key = whole(&self.prefix, &key);
        let expiry = ttl.map(after).transpose()?;
        ask(py, || {
            self.database.get()?.on_store(&key, |store| {
                store.engine().set_expiry(&key, expiry, durability)
            })
        })
    }

    /// Lets a merge operator make the next value of the current one and an operand.
    #[pyo3(signature = (operator, key, operand, *, sync=false, durability=None))]
    fn merge(
        &self,
        py: Python<'_>,
        operator: &str,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = flag)] sync: bool,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let durability = how_durable(sync, durability)?;
        let (key, operand) = (bytes(key)?, bytes(operand)?);
        let key = whole(&self.prefix, &key);
        ask(py, || {
            self.database.get()?.on_store(&key, |store| {
                let engine = store.engine();
                let merged = engine.merge(operator, &key, &operand, durability);
                merged.map(drop)
            })
        })
    }

    #[pyo3(signature = (key, *, sync=false, durability=None))]
    pub fn delete(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = flag)] sync: bool,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let durability = how_durable(sync, durability)?;
        let key = bytes(key)?;
        let key = whole(&self.prefix, &key);
        ask(py, || self.database.get()?.delete(&key, durability))
    }

    /// Deletes the keys of a prefix, or those from `start` up to, not including, `stop`.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, sync=false, durability=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Bound<'_, PyAny>>,
        stop: Option<Bound<'_, PyAny>>,
        prefix: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = flag)] sync: bool,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let durability = how_durable(sync, durability)?;
        let limits = Limits::half_open(start, stop, prefix);
        let mut batch = cambium::WriteBatch::new();
        batch.delete_range(limits.bounds(&self.prefix)?.range());
        ask(py, || self.database.get()?.write(batch, durability))
    }

    #[pyo3(signature = (*, transaction=false, sync=false, durability=None))]
    fn write_batch(
        &self,
        #[pyo3(from_py_with = flag)] transaction: bool,
        #[pyo3(from_py_with = flag)] sync: bool,
        durability: Option<&str>,
    ) -> PyResult<WriteBatch> {
        let durability = how_durable(sync, durability)?;
        Ok(WriteBatch::new(
            self.database.clone(),
            self.prefix.clone(),
            transaction,
            durability,
        ))
    }

    #[pyo3(signature = (*, sync=false, durability=None))]
    fn transaction(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = flag)] sync: bool,
        durability: Option<&str>,
    ) -> PyResult<Transaction> {
        let durability = how_durable(sync, durability)?;
        Transaction::begin(py, &self.database, self.prefix.clone(), durability)
    }

    /// Calls a function with a transaction and commits what it did; after a conflict, calls
    /// it again with another one, up to so many times. Answers what the function answered.
    #[pyo3(signature = (function, *, attempts=64, sync=false, durability=None))]
    fn transact(
        &self,
        py: Python<'_>,
        function: Py<PyAny>,
        attempts: u32,
        #[pyo3(from_py_with = flag)] sync: bool,
        durability: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        let durability = how_durable(sync, durability)?;
        let once = |py: Python<'_>| {
            let begun = Transaction::begin(py, &self.database, self.prefix.clone(), durability)?;
            let transaction = Py::new(py, begun)?;
            let answer = function.call1(py, (&transaction,));
            let done = answer.and_then(|answer| transaction.get().commit(py).map(|()| answer));
            transaction.get().roll_back(py)?;
            done
        };
        let mut last = None;
        let mut attempt = || {
            Python::attach(|py| match once(py) {
                Err(error) if is_conflict(py, &error) => {
                    last = Some(error);
                    let conflict = Conflict::TooMuchWritten;
                    Err(cambium::Error::Conflict { conflict })
                }
                done => Ok(done),
            })
        };
        let store = here(&self.database)?.store();
        let done = py.detach(|| store.repeat(attempts, &mut attempt));
        done.unwrap_or_else(|error| Err(last.unwrap_or_else(|| raised(py, &error))))
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<Py<Snapshot>> {
        let view = ask(py, || self.database.get()?.view())?;
        Snapshot::make(py, view, self.prefix.clone())
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.put(py, key, value, false, None, None)
    }

    fn __delitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        if slf.as_super().get().value(py, key)?.is_none() {
            return Err(PyKeyError::new_err(key.clone().unbind()));
        }
        slf.get().delete(py, key, false, None)
    }
}
