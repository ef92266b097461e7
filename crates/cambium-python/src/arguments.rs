//! Python's values as ours: bytes, paths, and the bounds of iterators.

use std::borrow::Cow;
use std::ops::Bound as Edge;
use std::path::PathBuf;

use cambium::{Durability, KeyRange};
use cambium_bindings::walker::Bounds;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyInt, PyMemoryView};

use crate::errors::wrong_type;

/// Bytes of an argument: those of `bytes` themselves, which never change, and a copy
/// of what has a buffer.
pub fn bytes<'a>(argument: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = argument.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    if let Ok(array) = argument.cast::<PyByteArray>() {
        return Ok(Cow::Owned(array.to_vec()));
    }
    // Raises TypeError where there is no buffer.
    let view = PyMemoryView::from(argument)?;
    let copy = view.call_method0("tobytes")?;
    Ok(Cow::Owned(copy.cast::<PyBytes>()?.as_bytes().to_vec()))
}

/// A flag: a bool, a number, or `None` for one that is not set, as plyvel takes them.
pub fn flag(argument: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_one = argument.is_none() || argument.is_instance_of::<PyBool>();
    match is_one || argument.is_instance_of::<PyInt>() {
        true => argument.is_truthy(),
        false => Err(wrong_type("expected True, False or None")),
    }
}

/// Text, or bytes that are UTF-8, or `None`.
pub fn text(argument: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if argument.is_none() {
        return Ok(None);
    }
    let Ok(bytes) = argument.cast::<PyBytes>() else {
        return argument.extract().map(Some);
    };
    let text = std::str::from_utf8(bytes.as_bytes());
    let text = text.map_err(|_| PyValueError::new_err("expected text: the bytes are no UTF-8"))?;
    Ok(Some(text.to_string()))
}

/// The engine's option for a name of a compression; Snappy's is accepted, without one.
pub fn compression_of(name: Option<&str>) -> PyResult<Option<(String, String)>> {
    match name {
        None | Some("snappy") => Ok(None),
        Some(other @ ("lz4" | "zstd")) => Ok(Some(("compression".into(), other.into()))),
        Some(other) => Err(PyValueError::new_err(format!(
            "compression {other:?}: expected 'snappy', 'lz4', 'zstd' or None"
        ))),
    }
}

/// A path as `str`, `bytes` or an object of `os.PathLike`.
pub fn path(argument: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let os = argument.py().import("os")?;
    os.call_method1("fsdecode", (argument,))?.extract()
}

/// The durability of a write: by plyvel's flag, or by the name of a durability.
pub fn durability(sync: bool, name: Option<&str>) -> PyResult<Durability> {
    match (name, sync) {
        (None, true) | (Some("synced"), _) => Ok(Durability::Synced),
        (None, false) | (Some("written"), false) => Ok(Durability::Written),
        (Some("buffered"), false) => Ok(Durability::Buffered),
        (Some(name @ ("written" | "buffered")), true) => Err(PyValueError::new_err(format!(
            "sync=True together with durability={name:?}: give one of them"
        ))),
        (Some(name), _) => Err(PyValueError::new_err(format!(
            "durability {name:?}: expected 'buffered', 'written' or 'synced'"
        ))),
    }
}

/// The argument of `iterator()` that says where it begins and ends.
pub struct Limits<'py> {
    pub start: Option<Bound<'py, PyAny>>,
    pub stop: Option<Bound<'py, PyAny>>,
    pub include_start: bool,
    pub include_stop: bool,
    pub prefix: Option<Bound<'py, PyAny>>,
}

impl<'py> Limits<'py> {
    /// Those from `start` up to, not including, `stop`, or those of a prefix.
    pub fn half_open(
        start: Option<Bound<'py, PyAny>>,
        stop: Option<Bound<'py, PyAny>>,
        prefix: Option<Bound<'py, PyAny>>,
    ) -> Self {
        Limits {
            start,
            stop,
            include_start: true,
            include_stop: false,
            prefix,
        }
    }

    /// The bounds within the keys that begin with `within`.
    pub fn bounds(&self, within: &[u8]) -> PyResult<Bounds> {
        if let Some(prefix) = &self.prefix {
            if self.start.is_some() || self.stop.is_some() {
                let text = "prefix cannot be used together with start or stop";
                return Err(wrong_type(text));
            }
            return Ok(begin_with(&[within, &*bytes(prefix)?].concat()));
        }
        let all = begin_with(within);
        let edge = |argument: &Option<Bound<'_, PyAny>>, inclusive: bool| {
            let Some(argument) = argument else {
                return Ok(None);
            };
            let key = [within, &*bytes(argument)?].concat();
            PyResult::Ok(Some(match inclusive {
                true => Edge::Included(key),
                false => Edge::Excluded(key),
            }))
        };
        Ok(Bounds {
            from: edge(&self.start, self.include_start)?.unwrap_or(all.from),
            to: edge(&self.stop, self.include_stop)?.unwrap_or(all.to),
        })
    }
}

/// The bounds of the keys that begin with a prefix.
pub fn begin_with(prefix: &[u8]) -> Bounds {
    match prefix.is_empty() {
        true => Bounds::default(),
        false => Bounds::from(&KeyRange::prefix(prefix)),
    }
}
