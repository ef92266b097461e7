//! `DB`: an open database.

use std::path::PathBuf;
use std::sync::Arc;

use cambium_bindings::{Comparator, Database, Settings};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::arguments::{Limits, bytes, durability, path};
use crate::batch::WriteBatch;
use crate::comparator::PythonComparator;
use crate::errors::{ask, closed};
use crate::iterator::{Iterator, Shown};
use crate::prefixed::PrefixedDb;
use crate::raw_iterator::RawIterator;
use crate::snapshot::Snapshot;

/// An open database, with the interface of plyvel's, and of a mapping.
#[pyclass(module = "cambium", name = "DB", frozen)]
pub struct Db {
    database: Arc<Database>,
    path: PathBuf,
    #[pyo3(get)]
    name: Py<PyAny>,
}

/// What batches, snapshots and prefixed databases do with a database.
pub type Shared = Arc<Database>;

/// The value of a key.
pub fn get<'py>(
    py: Python<'py>,
    database: &Database,
    key: &[u8],
    default: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match ask(py, || database.get(key))? {
        Some(value) => PyBytes::new(py, &value).into_any(),
        None => default.unwrap_or_else(|| py.None().into_bound(py)),
    })
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
        name, *, paranoid_checks=None, create_if_missing=false, error_if_exists=false,
        write_buffer_size=None, max_open_files=None, lru_cache_size=None, block_size=None,
        block_restart_interval=None, max_file_size=None, compression=Some("snappy"),
        bloom_filter_bits=0, comparator=None, comparator_name=None, engine="forest",
        options=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are plyvel's, by name")]
    fn new(
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        paranoid_checks: Option<bool>,
        create_if_missing: bool,
        error_if_exists: bool,
        write_buffer_size: Option<u64>,
        max_open_files: Option<i64>,
        lru_cache_size: Option<u64>,
        block_size: Option<u64>,
        block_restart_interval: Option<i64>,
        max_file_size: Option<u64>,
        compression: Option<&str>,
        bloom_filter_bits: u64,
        comparator: Option<Bound<'_, PyAny>>,
        comparator_name: Option<Bound<'_, PyAny>>,
        engine: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        // Accepted, without effect: see `cambium_bindings::settings`.
        let _ = (paranoid_checks, max_open_files, block_restart_interval);
        let folder = path(name)?;
        let mut engine_options = engine_options(options)?;
        match compression {
            None | Some("snappy") => {}
            Some(other @ ("lz4" | "zstd")) => {
                engine_options.push(("compression".to_string(), other.to_string()));
            }
            Some(other) => {
                return Err(PyValueError::new_err(format!(
                    "compression {other:?}: expected 'snappy', 'lz4', 'zstd' or None"
                )));
            }
        }
        let settings = Settings {
            engine: engine.to_string(),
            create_if_missing,
            error_if_exists,
            write_buffer_bytes: write_buffer_size,
            cache_bytes: lru_cache_size,
            block_bytes: block_size,
            table_bytes: max_file_size,
            filter_bits: (bloom_filter_bits > 0).then_some(bloom_filter_bits),
            comparator: order(comparator, comparator_name)?,
            engine_options,
            ..Settings::default()
        };
        let database = ask(py, || Database::open(&folder, &settings))?;
        Ok(Db {
            database: Arc::new(database),
            path: folder,
            name: name.str()?.into_any().unbind(),
        })
    }

    #[getter]
    fn closed(&self) -> bool {
        self.database.is_closed()
    }

    /// The engine's name.
    #[getter]
    fn engine(&self) -> &'static str {
        self.database.store().capabilities().engine
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        ask(py, || self.database.close())
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
        get(py, &self.database, &bytes(key)?, default)
    }

    #[pyo3(signature = (key, value, *, sync=false))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        sync: bool,
    ) -> PyResult<()> {
        let (key, value) = (bytes(key)?, bytes(value)?);
        ask(py, || self.database.put(&key, &value, durability(sync)))
    }

    #[pyo3(signature = (key, *, sync=false))]
    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>, sync: bool) -> PyResult<()> {
        let key = bytes(key)?;
        ask(py, || self.database.delete(&key, durability(sync)))
    }

    #[pyo3(signature = (*, transaction=false, sync=false))]
    fn write_batch(&self, transaction: bool, sync: bool) -> WriteBatch {
        WriteBatch::new(self.database.clone(), Vec::new(), transaction, sync)
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
        let bounds = limits.bounds(b"")?;
        let view = ask(py, || self.database.view())?;
        let shown = Shown::new(include_key, include_value, 0);
        Ok(Iterator::new(&view, &bounds, reverse, shown, Vec::new()))
    }

    #[pyo3(signature = (*, verify_checksums=None, fill_cache=None))]
    fn raw_iterator(
        &self,
        py: Python<'_>,
        verify_checksums: Option<bool>,
        fill_cache: Option<bool>,
    ) -> PyResult<RawIterator> {
        let _ = (verify_checksums, fill_cache);
        let view = ask(py, || self.database.view())?;
        Ok(RawIterator::new(&view, Vec::new()))
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let view = ask(py, || self.database.view())?;
        Ok(Snapshot::new(view, Vec::new()))
    }

    fn prefixed_db(slf: Py<Self>, prefix: &Bound<'_, PyAny>) -> PyResult<PrefixedDb> {
        Ok(PrefixedDb::new(slf, bytes(prefix)?.into_owned()))
    }

    fn get_property<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let name = bytes(name)?;
        let name = String::from_utf8_lossy(&name);
        let value = ask(py, || self.database.property(&name))?;
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
        ask(py, || self.database.approximate_size(&start, &stop))
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
        ask(py, || self.database.compact())
    }

    /// Raises every write so far to that of `sync=True`.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        ask(py, || self.database.store().sync())
    }

    /// Copies the state now into a folder that is empty or not there, durably.
    fn backup(&self, py: Python<'_>, destination: &Bound<'_, PyAny>) -> PyResult<()> {
        let destination = path(destination)?;
        ask(py, || self.database.backup(&destination))
    }

    /// The engine's statistics by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statistics = ask(py, || self.database.store().stats())?;
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

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let wanted = bytes(key)?;
        match ask(py, || self.database.get(&wanted))? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.put(py, key, value, false)
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if !self.__contains__(py, key)? {
            return Err(PyKeyError::new_err(key.clone().unbind()));
        }
        self.delete(py, key, false)
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = bytes(key)?;
        Ok(ask(py, || self.database.get(&key))?.is_some())
    }

    /// How many entries there are, where the engine counts them.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        if self.database.is_closed() {
            return Err(closed("database"));
        }
        match ask(py, || self.database.count())? {
            Some(count) => Ok(count as usize),
            None => Err(PyTypeError::new_err(
                "this engine does not count its entries: sum(1 for _ in db) does",
            )),
        }
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Iterator> {
        let view = ask(py, || self.database.view())?;
        let shown = Shown::new(true, true, 0);
        Ok(Iterator::new(
            &view,
            &Default::default(),
            false,
            shown,
            Vec::new(),
        ))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<cambium.DB {:?}, engine {}>", self.path(), self.engine())
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

fn order(
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
    Ok(Some(Arc::new(PythonComparator {
        name: String::from_utf8_lossy(&name).into_owned(),
        function: function.unbind(),
    })))
}
