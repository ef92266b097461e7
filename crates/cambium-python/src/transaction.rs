//! `Transaction`: reads and writes of one moment, which take effect together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cambium::{Direction, Durability, Entry, Result, Savepoint, TransactionView, Value, limits};
use cambium_bindings::{OfProcess, long_keys};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::{Limits, bytes, flag};
use crate::errors::{ask, closed, here, leave, raised};
use crate::readable::{Shared, after};

/// Entries that are read before the interpreter's lock is taken again.
const AT_ONCE: usize = 256;

/// A transaction. As a context manager it commits at the end of the block, or forgets its
/// writes where the block raises. Those of other namespaces share its beginning and its end.
#[pyclass(module = "cambium", frozen)]
pub struct Transaction {
    begun: Arc<OfProcess<Mutex<Option<cambium::Transaction>>>>,
    view: OfProcess<TransactionView>,
    database: Shared,
    /// It has changed a key whose entry longer ones may share, or deleted a range of them.
    has_long: Arc<AtomicBool>,
    prefix: Vec<u8>,
}

/// A place to come back to.
#[pyclass(module = "cambium", name = "Savepoint", frozen)]
pub struct Mark(Savepoint);

impl Transaction {
    pub fn begin(
        py: Python<'_>,
        database: &Shared,
        prefix: Vec<u8>,
        durability: Durability,
    ) -> PyResult<Transaction> {
        let begun = ask(py, || database.get()?.transaction())?.with_durability(durability);
        Ok(Transaction {
            view: OfProcess::new(TransactionView::clone(&begun)),
            begun: Arc::new(OfProcess::new(Mutex::new(Some(begun)))),
            database: database.clone(),
            has_long: Arc::default(),
            prefix,
        })
    }

    /// The view, of a transaction that has not ended.
    fn view(&self) -> PyResult<&TransactionView> {
        let begun = here(&self.begun)?.lock();
        match *begun.unwrap_or_else(PoisonError::into_inner) {
            Some(_) => here(&self.view),
            None => Err(closed("transaction")),
        }
    }

    fn key(&self, key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        Ok([&self.prefix[..], &*bytes(key)?].concat())
    }

    /// Makes a change to an entry, if that is of this key alone.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        key: &[u8],
        call: impl Send + FnOnce(&TransactionView) -> Result<T>,
    ) -> PyResult<T> {
        let view = self.view()?;
        if long_keys::may_share(key) {
            self.has_long.store(true, Ordering::Relaxed);
        }
        ask(py, || {
            long_keys::check_single(key, |key| view.get(key))?;
            call(view)
        })
    }

    fn commit_begun(&self, begun: cambium::Transaction) -> Result<()> {
        // A writer of a longer key has read the entry, and would write it over the commit's.
        let is_long = self.has_long.load(Ordering::Relaxed);
        let database = self.database.get()?;
        let _turn = is_long.then(|| database.turn());
        begun.commit().map(drop)
    }

    fn end(&self) -> PyResult<Option<cambium::Transaction>> {
        let begun = here(&self.begun)?.lock();
        Ok(begun.unwrap_or_else(PoisonError::into_inner).take())
    }
}

#[pymethods]
impl Transaction {
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (key, view) = (self.key(key)?, self.view()?);
        let value = ask(py, || {
            limits::check_key(&key)?;
            long_keys::find(&key, |key| view.get(key))
        })?;
        let value = value.map(|value| PyBytes::new(py, &value).into_any());
        Ok(value.or(default))
    }

    /// The values of several keys, `None` for one that is not there; the reads go to the
    /// device together.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys = keys.iter().map(|key| self.key(key));
        let keys: Vec<Vec<u8>> = keys.collect::<PyResult<_>>()?;
        let view = self.view()?;
        let values = ask(py, || {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            view.multi_get(&keys)
        })?;
        let own = |(key, value): (&Vec<u8>, Option<Value>)| {
            let value = value.and_then(|value| long_keys::value_of(key, value));
            value.map(|value| PyBytes::new(py, &value))
        };
        Ok(keys.iter().zip(values).map(own).collect())
    }

    /// The same transaction in another namespace, made if it is not there; `""` is the
    /// default one. A commit or rollback of either ends both.
    fn namespace(&self, py: Python<'_>, name: &str) -> PyResult<Transaction> {
        let view = ask(py, || {
            let begun = self.begun.get()?.lock();
            let begun = begun.unwrap_or_else(PoisonError::into_inner);
            begun
                .as_ref()
                .map(|begun| begun.namespace(name))
                .transpose()
        })?;
        Ok(Transaction {
            view: OfProcess::new(view.ok_or_else(|| closed("transaction"))?),
            begun: self.begun.clone(),
            database: self.database.clone(),
            has_long: self.has_long.clone(),
            prefix: self.prefix.clone(),
        })
    }

    /// The time to live is counted from the commit.
    #[pyo3(signature = (key, value, *, ttl=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<f64>,
    ) -> PyResult<()> {
        let (key, value) = (self.key(key)?, bytes(value)?);
        let expiry = ttl.map(after).transpose()?;
        self.change(py, &key, |view| match expiry {
            Some(expiry) => view.put_expiring(&key, &value, expiry),
            None => view.put(&key, &value),
        })
    }

    /// Lets a merge operator make the next value of what the transaction sees and an operand.
    fn merge(
        &self,
        py: Python<'_>,
        operator: &str,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, operand) = (self.key(key)?, bytes(operand)?);
        self.change(py, &key, |view| view.merge(operator, &key, &operand))
    }

    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = self.key(key)?;
        self.change(py, &key, |view| view.delete(&key))
    }

    /// Deletes, at the commit, the keys that are there then: those of a prefix, or from
    /// `start` up to, not including, `stop`.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Bound<'_, PyAny>>,
        stop: Option<Bound<'_, PyAny>>,
        prefix: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let range = Limits::half_open(start, stop, prefix).bounds(&self.prefix)?;
        let view = self.view()?;
        self.has_long.store(true, Ordering::Relaxed);
        ask(py, || view.delete_range(range.range()))
    }

    /// Entries in order, those of a prefix or from `start` up to, not including, `stop`.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, reverse=false))]
    fn iterator(
        slf: &Bound<'_, Self>,
        start: Option<Bound<'_, PyAny>>,
        stop: Option<Bound<'_, PyAny>>,
        prefix: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = flag)] reverse: bool,
    ) -> PyResult<TransactionIterator> {
        let this = slf.get();
        let limits = Limits::half_open(start, stop, prefix);
        let range = limits.bounds(&this.prefix)?.range();
        let direction = match reverse {
            true => Direction::Reverse,
            false => Direction::Forward,
        };
        let view = this.view()?;
        let entries = ask(slf.py(), || view.scan(range))?;
        let entries = Walk {
            entries,
            direction,
            ahead: Vec::new().into_iter(),
        };
        Ok(TransactionIterator {
            transaction: slf.clone().unbind(),
            entries: OfProcess::new(Mutex::new(entries)),
        })
    }

    fn savepoint(&self, py: Python<'_>) -> PyResult<Mark> {
        let savepoint = self.view()?.savepoint();
        savepoint.map(Mark).map_err(|error| raised(py, &error))
    }

    fn roll_back_to(&self, py: Python<'_>, savepoint: &Bound<'_, Mark>) -> PyResult<()> {
        let rolled_back = self.view()?.roll_back_to(savepoint.get().0);
        rolled_back.map_err(|error| raised(py, &error))
    }

    pub fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let begun = self.end()?.ok_or_else(|| closed("transaction"))?;
        ask(py, || self.commit_begun(begun))
    }

    pub fn roll_back(&self, py: Python<'_>) -> PyResult<()> {
        let begun = self.end()?;
        py.detach(|| drop(begun));
        Ok(())
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let none = || pyo3::exceptions::PyKeyError::new_err(key.clone().unbind());
        self.get(py, key, None)?.ok_or_else(none)
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.put(py, key, value, None)
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.__getitem__(py, key)?;
        self.delete(py, key)
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.get(py, key, None)?.is_some())
    }

    fn __iter__(slf: &Bound<'_, Self>) -> PyResult<TransactionIterator> {
        Transaction::iterator(slf, None, None, None, false)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let mut exception = exception.iter();
        let has_failed = exception.next().is_some_and(|class| !class.is_none());
        if has_failed {
            return leave(&self.begun, || self.roll_back(py));
        }
        let begun = self.end()?;
        ask(py, || match begun {
            Some(begun) => self.commit_begun(begun),
            // Ended within the block.
            None => Ok(()),
        })
    }
}

/// Entries of a transaction.
#[pyclass(module = "cambium", frozen)]
pub struct TransactionIterator {
    transaction: Py<Transaction>,
    entries: OfProcess<Mutex<Walk>>,
}

struct Walk {
    entries: cambium::TransactionEntries,
    direction: Direction,
    ahead: std::vec::IntoIter<Entry>,
}

impl Walk {
    fn next(&mut self) -> Result<Option<Entry>> {
        if self.ahead.len() == 0 {
            let next = || self.direction.advance(&mut self.entries);
            // Longer keys that share an entry are none of the transaction's.
            let own = |entry: Result<Entry>| match entry {
                Ok(Entry { key, value }) => {
                    long_keys::value_of(&key, value).map(|value| Ok(Entry { key, value }))
                }
                Err(error) => Some(Err(error)),
            };
            let entries = std::iter::from_fn(next).filter_map(own).take(AT_ONCE);
            self.ahead = entries.collect::<Result<Vec<_>>>()?.into_iter();
        }
        Ok(self.ahead.next())
    }
}

#[pymethods]
impl TransactionIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let transaction = self.transaction.get();
        transaction.view()?;
        let next = ask(py, || {
            let entries = self.entries.get()?.lock();
            entries.unwrap_or_else(PoisonError::into_inner).next()
        })?;
        Ok(next.map(|entry| {
            let key = &entry.key[transaction.prefix.len()..];
            (PyBytes::new(py, key), PyBytes::new(py, &entry.value))
        }))
    }
}
