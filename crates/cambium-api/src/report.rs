//! What check, stats, compact and long work answer.

use std::fmt;
use std::path::PathBuf;

use cambium_base::{Error, Result};
use cambium_io::ReadBackend;

use crate::options::OptionValues;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Worth knowing, no damage: a torn tail that recovery would drop.
    Note,
    /// Every entry is there, but not as safe as the store is meant to keep it: a
    /// mirror of which one member is missing or behind.
    Degraded,
    /// Bytes or structures that are not what was written.
    Damage,
}

/// One thing `check` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub kind: FindingKind,
    /// The file.
    pub file: PathBuf,
    /// Bytes from its start.
    pub offset: u64,
    /// What was found, what was expected.
    pub what: String,
}

/// What `check` answers. It opens nothing for writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Everything found, in the order of files and offsets.
    pub findings: Vec<Finding>,
    /// Live entries that were read and verified.
    pub entries: u64,
    /// Bytes read and verified.
    pub bytes: u64,
    /// Files read.
    pub files: u64,
}

impl CheckReport {
    /// True if nothing is damaged; notes and what is degraded do not count.
    pub fn is_sound(&self) -> bool {
        !self.has(FindingKind::Damage)
    }

    /// True if entries are less safe than the store is meant to keep them.
    pub fn is_degraded(&self) -> bool {
        self.has(FindingKind::Degraded)
    }

    fn has(&self, kind: FindingKind) -> bool {
        self.findings.iter().any(|finding| finding.kind == kind)
    }

    /// Makes a finding of damage, and of a file that is missing; answers any other
    /// error, which ends a check.
    ///
    /// ```
    /// use cambium_api::CheckReport;
    /// use cambium_base::Error;
    /// let mut report = CheckReport::default();
    /// report.take(Error::corruption("log", 512, "expected a record")).unwrap();
    /// assert!(!report.is_sound());
    /// assert!(report.take(Error::LimitExceeded("memory".to_string())).is_err());
    /// ```
    pub fn take(&mut self, error: Error) -> Result<()> {
        let (file, offset, what) = match error {
            Error::Corruption { file, offset, what } => (file, offset, what),
            // One that what was read before it names.
            Error::Io {
                operation: "open",
                path,
                source,
            } if source.kind() == std::io::ErrorKind::NotFound => {
                (path, 0, "the file is missing".to_string())
            }
            other => return Err(other),
        };
        self.findings.push(Finding {
            kind: FindingKind::Damage,
            file,
            offset,
            what,
        });
        Ok(())
    }

    /// Notes damage that was mended without a loss.
    ///
    /// # Errors
    /// The error itself, if it speaks of no damage.
    pub fn note_mended(&mut self, error: Error, how: &str) -> Result<()> {
        self.take(error)?;
        if let Some(note) = self.findings.last_mut() {
            note.kind = FindingKind::Note;
            note.what += "; ";
            note.what += how;
        }
        Ok(())
    }

    /// Notes that one of two copies is not sound, as a crash leaves it that happens
    /// while it is written.
    pub fn note_other_copy(&mut self, damage: Option<&Error>) {
        let (file, offset, what) = match damage {
            Some(Error::Corruption { file, offset, what }) => (file, *offset, what.clone()),
            Some(Error::Io { path, source, .. }) => (path, 0, format!("cannot be read ({source})")),
            _ => return,
        };
        self.findings.push(Finding {
            kind: FindingKind::Note,
            file: file.clone(),
            offset,
            what: format!("{what}; the other copy is sound and counts"),
        });
    }

    /// Puts the findings into the order of files and offsets.
    pub fn sort(&mut self) {
        self.findings
            .sort_by(|one, other| (&one.file, one.offset).cmp(&(&other.file, other.offset)));
    }
}

/// How to compact.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompactOptions {
    /// How reads reach the kernel; `None` is the engine's own choice.
    pub backend: Option<ReadBackend>,
    /// Reads under way at once, 1 to 1,024.
    pub batch: Option<usize>,
    /// Bypass the operating system's cache.
    pub direct: bool,
    /// Options of the engine, as text.
    pub settings: OptionValues,
}

/// Busy time of each phase in seconds (`P-Fetch`, section III). They may add
/// up to more than the whole, since phases overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhaseSeconds {
    /// Finding what is live.
    pub tree_search: f64,
    /// Bringing it into the order of reading.
    pub sort: f64,
    /// Time with reads outstanding.
    pub read: f64,
    /// Writing the new files.
    pub write: f64,
    /// Flushing, syncing and switching over.
    pub flush_and_commit: f64,
}

/// What `compact` answers: the JSON of `cambium compact --json`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompactReport {
    /// Busy time of each phase.
    pub phases: PhaseSeconds,
    /// Whole time, seconds.
    pub total_seconds: f64,
    /// Reads sent to the device layer.
    pub read_operations: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Live entries carried over.
    pub documents: u64,
    /// How reads were done.
    pub backend: ReadBackend,
    /// Reads under way at once.
    pub batch: usize,
    /// Whether the operating system's cache was bypassed.
    pub direct: bool,
}

/// One number, text or list of `stats`.
#[derive(Clone, Debug, PartialEq)]
pub enum StatisticValue {
    /// A count without a unit.
    Count(u64),
    /// Bytes.
    Bytes(u64),
    /// A ratio.
    Ratio(f64),
    /// Words.
    Text(String),
}

/// A named statistic.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistic {
    /// Snake case; the key in JSON.
    pub name: &'static str,
    /// The value.
    pub value: StatisticValue,
    /// One line that says what it means.
    pub meaning: &'static str,
}

/// What `stats` answers, in the order in which a person reads it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// The statistics.
    pub entries: Vec<Statistic>,
}

impl Statistics {
    /// Adds a count.
    pub fn count(&mut self, name: &'static str, value: u64, meaning: &'static str) {
        self.push(name, StatisticValue::Count(value), meaning);
    }

    /// Adds a number of bytes.
    pub fn bytes(&mut self, name: &'static str, value: u64, meaning: &'static str) {
        self.push(name, StatisticValue::Bytes(value), meaning);
    }

    /// Adds a ratio; a denominator of zero leaves it out.
    pub fn ratio(&mut self, name: &'static str, part: u64, whole: u64, meaning: &'static str) {
        if whole > 0 {
            let ratio = part as f64 / whole as f64;
            self.push(name, StatisticValue::Ratio(ratio), meaning);
        }
    }

    /// Adds words.
    pub fn text(&mut self, name: &'static str, value: impl Into<String>, meaning: &'static str) {
        self.push(name, StatisticValue::Text(value.into()), meaning);
    }

    fn push(&mut self, name: &'static str, value: StatisticValue, meaning: &'static str) {
        self.entries.push(Statistic {
            name,
            value,
            meaning,
        });
    }

    /// A statistic's number, if it is there and is one.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.entries
            .iter()
            .find(|statistic| statistic.name == name)
            .and_then(|statistic| match statistic.value {
                StatisticValue::Count(number) | StatisticValue::Bytes(number) => Some(number),
                _ => None,
            })
    }
}

/// How far long work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: &'static str,
    /// Units done.
    pub done: u64,
    /// Units in all, where known.
    pub total: Option<u64>,
}

/// Is told of progress; may be called from any thread, must return quickly.
pub trait ProgressSink: Send + Sync {
    /// Called now and then.
    fn report(&self, progress: Progress);
}

/// Tells nobody.
impl ProgressSink for () {
    fn report(&self, _: Progress) {}
}

impl fmt::Debug for dyn ProgressSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgressSink")
    }
}
