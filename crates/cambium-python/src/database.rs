//! `DB`: an open database.

use std::path::PathBuf;
use std::sync::Arc;

use cambium_bindings::{Database, OfProcess, Settings};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::arguments::{bytes, compression_of, flag, path, text};
use crate::backups;
use crate::changes::{Changes, Consumer};
use crate::comparator::brought;
use crate::errors::{ask, closed, here, leave};
use crate::namespace::Namespace;
use crate::operator;
use crate::prefixed::PrefixedDb;
use crate::readable::{Shared, Writable};
use crate::snapshot::Snapshot;

/// An open database, with the interface of plyvel's, and of a mapping.
#[pyclass(module = "cambium", name = "DB", extends = Writable, subclass, frozen)]
pub struct Db {
    database: Shared,
    path: PathBuf,
    /// The engine's name.
    #[pyo3(get)]
    engine: &'static str,
    #[pyo3(get)]
    name: Py<PyAny>,
}

impl Db {
    /// The database, for the other classes.
    pub fn shared(&self) -> &Shared {
        &self.database
    }

    /// The folder.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }
}

#[pymethods]
impl Db {
    #[new]
    #[pyo3(signature = (
        name, *, paranoid_checks=false, create_if_missing=false, error_if_exists=false,
        write_buffer_size=None, max_open_files=None, lru_cache_size=None, block_size=None,
        block_restart_interval=None, max_file_size=None, compression=Some("snappy".to_string()),
        bloom_filter_bits=0, comparator=None, comparator_name=None, engine="forest",
        options=None, read_only=false
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are plyvel's, by name")]
    fn new(
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = flag)] paranoid_checks: bool,
        #[pyo3(from_py_with = flag)] create_if_missing: bool,
        #[pyo3(from_py_with = flag)] error_if_exists: bool,
        write_buffer_size: Option<u64>,
        max_open_files: Option<i64>,
        lru_cache_size: Option<u64>,
        block_size: Option<u64>,
        block_restart_interval: Option<i64>,
        max_file_size: Option<u64>,
        #[pyo3(from_py_with = text)] compression: Option<String>,
        bloom_filter_bits: u64,
        comparator: Option<Bound<'_, PyAny>>,
        comparator_name: Option<Bound<'_, PyAny>>,
        engine: &str,
        options: Option<&Bound<'_, PyDict>>,
        #[pyo3(from_py_with = flag)] read_only: bool,
    ) -> PyResult<PyClassInitializer<Self>> {
        // Accepted, without effect: see `cambium_bindings::settings`.
        let _ = (paranoid_checks, max_open_files, block_restart_interval);
        let folder = path(name)?;
        let mut engine_options = engine_options(options)?;
        engine_options.extend(compression_of(compression.as_deref())?);
        let settings = Settings {
            engine: engine.to_string(),
            create_if_missing,
            error_if_exists,
            read_only,
            write_buffer_bytes: write_buffer_size,
            cache_bytes: lru_cache_size,
            block_bytes: block_size,
            table_bytes: max_file_size,
            filter_bits: (bloom_filter_bits > 0).then_some(bloom_filter_bits),
            comparator: brought(comparator, comparator_name)?,
            engine_options,
            ..Settings::default()
        };
        let database = ask(py, || Database::open(&folder, &settings))?;
        let engine = database.store().capabilities().engine;
        let database = Arc::new(OfProcess::new(database));
        let base = Writable::initializer(database.clone(), Vec::new());
        Ok(base.add_subclass(Db {
            database,
            path: folder,
            engine,
            name: name.str()?.into_any().unbind(),
        }))
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(here(&self.database)?.is_closed())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        ask(py, || self.database.get()?.close())
    }

    fn prefixed_db(slf: &Bound<'_, Self>, prefix: &Bound<'_, PyAny>) -> PyResult<Py<PrefixedDb>> {
        let prefix = bytes(prefix)?.into_owned();
        PrefixedDb::make(slf.py(), slf.clone().unbind(), prefix)
    }

    /// The namespace of a name, made if it is not there: keys of its own, written in
    /// one batch with others. The default one is `""`.
    fn namespace(slf: &Bound<'_, Self>, name: &str) -> PyResult<Py<Namespace>> {
        let database = &slf.get().database;
        let inner = ask(slf.py(), || database.get()?.namespace(name))?;
        Namespace::make(slf, name, inner)
    }

    /// Names of all namespaces, the default one (`""`) first.
    fn namespaces(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        ask(py, || self.database.get()?.store().namespaces())
    }

    /// Takes a namespace away with all that is in it, durably, where the engine can.
    /// Its snapshots and iterators go on; whatever else is asked of it raises `Error`.
    fn drop_namespace(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        ask(py, || self.database.get()?.store().drop_namespace(name))
    }

    /// The batches that were committed after a sequence number, in order.
    #[pyo3(signature = (*, after=0, follow=false, synced_only=false))]
    fn changes(
        &self,
        py: Python<'_>,
        after: u64,
        #[pyo3(from_py_with = flag)] follow: bool,
        #[pyo3(from_py_with = flag)] synced_only: bool,
    ) -> PyResult<Changes> {
        Changes::begin(
            py,
            here(&self.database)?.store(),
            after,
            (follow, synced_only),
        )
    }

    /// A reader of changes whose position the database keeps, made if there is none.
    fn consumer(&self, py: Python<'_>, name: &str) -> PyResult<Consumer> {
        Consumer::make(py, here(&self.database)?.store(), name)
    }

    /// Names of consumers, with the last change that each is done with.
    fn consumers(&self, py: Python<'_>) -> PyResult<Vec<(String, u64)>> {
        let consumers = ask(py, || self.database.get()?.store().consumers())?;
        Ok(consumers
            .into_iter()
            .map(|(name, at)| (name, at.0))
            .collect())
    }

    /// Keeps the state now under a name, until it is dropped.
    fn create_named_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        ask(py, || {
            self.database.get()?.store().create_named_snapshot(name)
        })
    }

    /// Names of kept states, oldest first.
    fn named_snapshots(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let kept = ask(py, || self.database.get()?.store().list_named_snapshots())?;
        Ok(kept.into_iter().map(|(name, _)| name).collect())
    }

    /// A kept state to read. It stays readable when its name is dropped, until it is closed.
    fn named_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<Py<Snapshot>> {
        let view = ask(py, || self.database.get()?.named_view(name))?;
        Snapshot::make(py, view, Vec::new())
    }

    /// Lets a kept state go.
    fn drop_named_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        ask(py, || {
            self.database.get()?.store().drop_named_snapshot(name)
        })
    }

    /// Brings the database back to a kept state.
    fn rollback(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        ask(py, || self.database.get()?.rollback(name))
    }

    /// Knows a merge operator by its name from now on, for all namespaces, until the database
    /// is closed: `function(current, operand)` makes the next value; `current` is `None` where
    /// the key is not there. A write may call it more than once.
    fn register_operator(
        &self,
        py: Python<'_>,
        name: &str,
        function: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let operator = operator::brought(name, function)?;
        ask(py, || {
            self.database.get()?.store().register_operator(operator)
        })
    }

    fn get_property<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let name = bytes(name)?;
        let name = String::from_utf8_lossy(&name);
        let value = ask(py, || self.database.get()?.property(&name))?;
        Ok(value.map(|value| PyBytes::new(py, value.as_bytes())))
    }

    #[pyo3(signature = (*, start=None, stop=None))]
    fn compact_range(
        &self,
        py: Python<'_>,
        start: Option<Bound<'_, PyAny>>,
        stop: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        for bound in [start, stop].iter().flatten() {
            bytes(bound)?;
        }
        self.compact(py)
    }

    fn approximate_size(
        &self,
        py: Python<'_>,
        start: &Bound<'_, PyAny>,
        stop: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let (start, stop) = (bytes(start)?, bytes(stop)?);
        ask(py, || self.database.get()?.approximate_size(&start, &stop))
    }

    #[pyo3(signature = (*ranges))]
    fn approximate_sizes(&self, py: Python<'_>, ranges: &Bound<'_, PyTuple>) -> PyResult<Vec<u64>> {
        let size = |range: Bound<'_, PyAny>| {
            let (start, stop): (Bound<'_, PyAny>, Bound<'_, PyAny>) = range
                .extract()
                .map_err(|_| PyTypeError::new_err("a range is a tuple of two keys"))?;
            self.approximate_size(py, &start, &stop)
        };
        ranges.iter().map(size).collect()
    }

    /// Rewrites what is live and gives space back; other threads go on.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        ask(py, || self.database.get()?.compact())
    }

    /// Raises every write so far to that of `sync=True`.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        ask(py, || self.database.get()?.store().sync())
    }

    /// Takes the newest moment of a database that was opened with `read_only=True` while
    /// another process writes it. Snapshots and iterators keep their moments.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        ask(py, || self.database.get()?.store().refresh())
    }

    /// Copies the state now into a folder that is empty or not there, durably. With
    /// `incremental`, takes a backup into a folder of backups and answers the newest there.
    #[pyo3(signature = (destination, *, incremental=false))]
    fn backup(
        &self,
        py: Python<'_>,
        destination: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = flag)] incremental: bool,
    ) -> PyResult<Option<Py<PyAny>>> {
        let destination = path(destination)?;
        if !incremental {
            return ask(py, || self.database.get()?.backup(&destination)).map(|()| None);
        }
        let taken = ask(py, || {
            self.database.get()?.store().backup_into(&destination, &())
        })?;
        backups::shown(py, &taken.backup).map(Some)
    }

    /// The engine's statistics by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statistics = ask(py, || self.database.get()?.store().stats())?;
        let all = PyDict::new(py);
        for statistic in &statistics.entries {
            match &statistic.value {
                cambium::StatisticValue::Count(number) | cambium::StatisticValue::Bytes(number) => {
                    all.set_item(statistic.name, number)?;
                }
                cambium::StatisticValue::Ratio(ratio) => all.set_item(statistic.name, ratio)?,
                cambium::StatisticValue::Text(text) => all.set_item(statistic.name, text)?,
            }
        }
        Ok(all)
    }

    /// How many entries there are, where the engine counts them.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        if here(&self.database)?.is_closed() {
            return Err(closed("database"));
        }
        match ask(py, || self.database.get()?.count())? {
            Some(count) => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
            None => Err(PyTypeError::new_err(
                "this engine does not count its entries: sum(1 for _ in db) does",
            )),
        }
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        leave(&self.database, || self.close(py))
    }

    fn __repr__(&self) -> String {
        format!("<cambium.DB {:?}, engine {}>", self.path(), self.engine)
    }
}

fn engine_options(options: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, String)>> {
    let Some(options) = options else {
        return Ok(Vec::new());
    };
    let text = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        Ok((name.extract()?, value.str()?.to_string()))
    };
    options.iter().map(text).collect()
}
