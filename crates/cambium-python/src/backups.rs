//! Functions on folders of backups.

use cambium::Options;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::arguments::path;
use crate::errors::ask;

/// A backup as `cambium.Backup`.
pub fn shown(py: Python<'_>, backup: &cambium::Backup) -> PyResult<Py<PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || {
        let module = py.import("cambium._backups")?;
        module.getattr("Backup").map(Bound::unbind)
    })?;
    let fields = (
        backup.number,
        backup.kind.to_string(),
        backup.after.0,
        backup.through.0,
        backup.taken.0 as f64 / 1_000.0,
        backup.bytes,
        backup.damage.as_ref().map(|damage| damage.what.as_str()),
    );
    class.call1(py, fields)
}

fn all_shown(py: Python<'_>, backups: &[cambium::Backup]) -> PyResult<Vec<Py<PyAny>>> {
    backups.iter().map(|backup| shown(py, backup)).collect()
}

/// The backups of a folder, oldest first.
#[pyfunction]
pub fn list_backups(py: Python<'_>, place: &Bound<'_, PyAny>) -> PyResult<Vec<Py<PyAny>>> {
    let place = path(place)?;
    let backups = ask(py, || Options::new().backups(&place))?;
    all_shown(py, &backups)
}

/// Makes a database of a backup: of the newest, or of the one with a number.
#[pyfunction]
#[pyo3(signature = (place, name, *, number=None))]
pub fn restore_db(
    py: Python<'_>,
    place: &Bound<'_, PyAny>,
    name: &Bound<'_, PyAny>,
    number: Option<u32>,
) -> PyResult<Py<PyAny>> {
    let (place, target) = (path(place)?, path(name)?);
    let restored = ask(py, || Options::new().restore(&place, &target, number))?;
    shown(py, &restored)
}

/// Removes the backups before the newest `chains` full copies; answers what went.
#[pyfunction]
#[pyo3(signature = (place, chains))]
pub fn keep_backups(
    py: Python<'_>,
    place: &Bound<'_, PyAny>,
    chains: usize,
) -> PyResult<Vec<Py<PyAny>>> {
    let place = path(place)?;
    let gone = ask(py, || Options::new().keep_backups(&place, chains))?;
    all_shown(py, &gone)
}
