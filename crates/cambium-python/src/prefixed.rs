//! `PrefixedDB`: the keys of a database that begin with a prefix, without it.

use pyo3::prelude::*;

use crate::arguments::{Limits, begin_with, bytes, durability};
use crate::batch::WriteBatch;
use crate::database::{Db, get};
use crate::errors::ask;
use crate::iterator::{Iterator, Shown};
use crate::raw_iterator::RawIterator;
use crate::snapshot::Snapshot;

/// The part of a database whose keys begin with a prefix.
#[pyclass(module = "cambium", name = "PrefixedDB", frozen)]
pub struct PrefixedDb {
    #[pyo3(get)]
    db: Py<Db>,
    prefix: Vec<u8>,
}

impl PrefixedDb {
    pub fn new(db: Py<Db>, prefix: Vec<u8>) -> Self {
        PrefixedDb { db, prefix }
    }

    fn key(&self, key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        Ok([&self.prefix[..], &*bytes(key)?].concat())
    }
}

#[pymethods]
impl PrefixedDb {
    #[getter(prefix)]
    fn shown_prefix<'py>(&self, py: Python<'py>) -> Bound<'py, pyo3::types::PyBytes> {
        pyo3::types::PyBytes::new(py, &self.prefix)
    }

    #[pyo3(signature = (key, default=None, *, verify_checksums=None, fill_cache=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        verify_checksums: Option<bool>,
        fill_cache: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (verify_checksums, fill_cache);
        get(py, self.db.get().shared(), &self.key(key)?, default)
    }

    #[pyo3(signature = (key, value, *, sync=false))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        sync: bool,
    ) -> PyResult<()> {
        let (key, value) = (self.key(key)?, bytes(value)?);
        let database = self.db.get().shared();
        ask(py, || database.put(&key, &value, durability(sync)))
    }

    #[pyo3(signature = (key, *, sync=false))]
    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>, sync: bool) -> PyResult<()> {
        let key = self.key(key)?;
        let database = self.db.get().shared();
        ask(py, || database.delete(&key, durability(sync)))
    }

    #[pyo3(signature = (*, transaction=false, sync=false))]
    fn write_batch(&self, transaction: bool, sync: bool) -> WriteBatch {
        let database = self.db.get().shared().clone();
        WriteBatch::new(database, self.prefix.clone(), transaction, sync)
    }

    #[pyo3(signature = (
        *, reverse=false, start=None, stop=None, include_start=true, include_stop=false,
        prefix=None, include_key=true, include_value=true, verify_checksums=None,
        fill_cache=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are plyvel's, by name")]
    fn iterator(
        &self,
        py: Python<'_>,
        reverse: bool,
        start: Option<Bound<'_, PyAny>>,
        stop: Option<Bound<'_, PyAny>>,
        include_start: bool,
        include_stop: bool,
        prefix: Option<Bound<'_, PyAny>>,
        include_key: bool,
        include_value: bool,
        verify_checksums: Option<bool>,
        fill_cache: Option<bool>,
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
        let view = ask(py, || self.db.get().shared().view())?;
        let shown = Shown::new(include_key, include_value, self.prefix.len());
        Ok(Iterator::new(
            &view,
            &bounds,
            reverse,
            shown,
            self.prefix.clone(),
        ))
    }

    #[pyo3(signature = (*, verify_checksums=None, fill_cache=None))]
    fn raw_iterator(
        &self,
        py: Python<'_>,
        verify_checksums: Option<bool>,
        fill_cache: Option<bool>,
    ) -> PyResult<RawIterator> {
        let _ = (verify_checksums, fill_cache);
        let view = ask(py, || self.db.get().shared().view())?;
        Ok(RawIterator::new(&view, self.prefix.clone()))
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let view = ask(py, || self.db.get().shared().view())?;
        Ok(Snapshot::new(view, self.prefix.clone()))
    }

    fn prefixed_db(&self, py: Python<'_>, prefix: &Bound<'_, PyAny>) -> PyResult<PrefixedDb> {
        Ok(PrefixedDb::new(self.db.clone_ref(py), self.key(prefix)?))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Iterator> {
        let view = ask(py, || self.db.get().shared().view())?;
        let shown = Shown::new(true, true, self.prefix.len());
        let bounds = begin_with(&self.prefix);
        Ok(Iterator::new(
            &view,
            &bounds,
            false,
            shown,
            self.prefix.clone(),
        ))
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = self.key(key)?;
        Ok(ask(py, || self.db.get().shared().get(&key))?.is_some())
    }
}
