//! Functions on databases that are not open.

use cambium::Options;
use pyo3::prelude::*;

use crate::arguments::path;
use crate::errors::ask;

/// Brings a damaged database back to what can be read.
#[pyfunction]
pub fn repair_db(py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<()> {
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
