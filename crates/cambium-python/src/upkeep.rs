//! Functions on databases that are not open.

use cambium::Options;
use pyo3::prelude::*;

use crate::arguments::{compression_of, flag, path, text};
use crate::comparator::brought;
use crate::errors::ask;

/// Brings a damaged database back to what can be read. The options are plyvel's, and
/// looked at, but the database itself says what it is made with.
#[pyfunction]
#[pyo3(signature = (
    name, *, paranoid_checks=false, write_buffer_size=None, max_open_files=None,
    lru_cache_size=None, block_size=None, block_restart_interval=None, max_file_size=None,
    compression=Some("snappy".to_string()), bloom_filter_bits=0, comparator=None,
    comparator_name=None
))]
#[expect(clippy::too_many_arguments, reason = "they are plyvel's, by name")]
pub fn repair_db(
    py: Python<'_>,
    name: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = flag)] paranoid_checks: bool,
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
) -> PyResult<()> {
    let sizes = (write_buffer_size, lru_cache_size, block_size, max_file_size);
    let counts = (max_open_files, block_restart_interval, bloom_filter_bits);
    let _ = (paranoid_checks, sizes, counts);
    compression_of(compression.as_deref())?;
    brought(comparator, comparator_name)?;
    let path = path(name)?;
    ask(py, || Options::new().repair(&path).map(drop))
}

/// Takes a database off the disk; does nothing where none is.
#[pyfunction]
pub fn destroy_db(py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<()> {
    let path = path(name)?;
    ask(py, || {
        cambium_bindings::remove::remove(&Options::new(), &path)
    })
}

/// Verifies all that a database reaches; answers what is damaged, one text each.
#[pyfunction]
pub fn check_db(py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let path = path(name)?;
    let report = ask(py, || Options::new().check(&path))?;
    let damage = |finding: &cambium::Finding| {
        let (file, offset, what) = (finding.file.display(), finding.offset, &finding.what);
        format!("{file} at offset {offset}: {what}")
    };
    let findings = report.findings.iter();
    let damaged = findings.filter(|finding| finding.kind == cambium::FindingKind::Damage);
    Ok(damaged.map(damage).collect())
}
