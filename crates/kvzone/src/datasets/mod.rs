//! Data sets: keys and the sizes of values, by name.
//!
//! | set | keys | value bytes |
//! |---|---|---:|
//! | `paths-of-usr` | paths of the regular files below `/usr` of this machine | 1,024 |
//! | `words-of-texts` | words of this machine's dictionary, or of the texts below `/usr/share` | 21 |
//! | `files-of-packages` | `PACKAGE PATH`, from this machine's package database (dpkg) | 230 |
//! | `profile` to `url` | made to the published sizes of the ForestDB paper's data sets | as published |
//!
//! The first three are real keys, and differ from machine to machine: every
//! store of a run gets the same, since they are collected once, into a file.
//! Values are made up, with the sizes of the paper's sets that are nearest in
//! kind (`url`, `status`, `profile`). Besides these there are sets of one's own
//! ([`own`]).

mod machine;
pub(crate) mod own;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvzone_core::error::{Error, Result};
use kvzone_core::job::{KeySource, SizeChoice};
use kvzone_core::key_patterns::{DataSet, KeyPattern};
use kvzone_core::names::unknown;

use crate::place::{self, RunFolder};
pub(crate) use machine::Real;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Set {
    Real(Real),
    /// Made to published sizes.
    Published(DataSet),
}

#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) source: KeySource,
    /// Their sizes; of a file's, a range with their mean.
    pub(crate) key_bytes: SizeChoice,
    /// Nobody asked for these keys.
    pub(crate) are_default: bool,
    pub(crate) value_bytes: SizeChoice,
    /// Real values, and how many entries there are.
    pub(crate) sample: Option<Sample>,
    /// Holds the file of keys, as long as it is needed.
    pub(crate) kept: Option<Arc<RunFolder>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// A file with bytes of them, unless all are empty.
    pub(crate) path: Option<PathBuf>,
    pub(crate) keys: u64,
}

pub(crate) fn all() -> impl Iterator<Item = Set> {
    let real = Real::ALL.into_iter().map(Set::Real);
    real.chain(DataSet::ALL.into_iter().map(Set::Published))
}

/// The data set of a name; a usage error offers the nearest.
pub(crate) fn find(name: &str) -> Result<Set> {
    all().find(|set| set.name() == name).ok_or_else(|| {
        let words = unknown("data set", name, all().map(Set::name));
        Error::Usage(format!("{words}; `kvzone list datasets` shows all"))
    })
}

impl Set {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Set::Real(real) => real.name(),
            Set::Published(data) => data.name(),
        }
    }

    pub(crate) fn summary(self) -> String {
        match self {
            Set::Real(real) => format!("real keys: {}", real.summary()),
            Set::Published(data) => {
                let kind = KeyPattern::Published(data).sizes().mean();
                format!(
                    "made to the sizes of ForestDB's {}: keys of {kind} bytes in the mean, {} documents",
                    data.name(),
                    data.documents()
                )
            }
        }
    }

    pub(crate) fn value_bytes(self) -> u64 {
        match self {
            Set::Real(real) => real.like().document_bytes(),
            Set::Published(data) => data.document_bytes(),
        }
    }

    /// `count` keys, collected into a file in `directory` where they are real;
    /// a usage error if this machine has fewer.
    pub(crate) fn keys(self, count: u64, directory: &Path) -> Result<Keys> {
        let value_bytes = SizeChoice::Fixed(self.value_bytes());
        match self {
            Set::Published(data) => {
                let pattern = KeyPattern::Published(data);
                Ok(Keys {
                    are_default: false,
                    source: KeySource::Pattern(pattern),
                    key_bytes: pattern.sizes(),
                    value_bytes,
                    sample: None,
                    kept: None,
                })
            }
            Set::Real(real) => {
                let keys = real.collect(count)?;
                if (keys.len() as u64) < count {
                    return Err(Error::Usage(format!(
                        "{count} keys of {}: this machine has {}",
                        real.name(),
                        keys.len()
                    )));
                }
                let directory = place::prepare(directory)?;
                let folder = RunFolder::create(&directory, real.name())?;
                let path = folder.path().join("keys");
                let key_bytes = machine::sizes(&keys);
                machine::write(&path, &keys)?;
                Ok(Keys {
                    are_default: false,
                    source: KeySource::File(path),
                    key_bytes,
                    value_bytes,
                    sample: None,
                    kept: Some(Arc::new(folder)),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_the_nearest_is_offered() {
        let mut names: Vec<_> = all().map(Set::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Real::ALL.len() + DataSet::ALL.len());
        let error = find("profiel").unwrap_err().to_string();
        assert!(error.contains("profile"), "{error}");
    }
}
