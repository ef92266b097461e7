//! The one error type of the library.
//!
//! An error says what was wrong, where (file and offset), what was expected,
//! and, where there is one, the remedy. Errors are `Clone`, so that a poisoned
//! store can answer its original error for as long as it lives.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::order::SequenceNumber;

/// The result of every fallible call of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who has to act on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The caller asked for something that cannot be: mend the call.
    Usage,
    /// The store's bytes are damaged: check, repair or restore a backup.
    Damage,
    /// The machine failed or is full: mend the machine, then reopen.
    Machine,
    /// The answer may differ if the call is made again later.
    Retry,
}

/// What went wrong. Variants, and fields of theirs, may come: match with `..` behind the
/// fields that are needed, and with a last arm for other variants.
///
/// It converts into [`std::io::Error`], for functions that answer that.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused or failed an operation.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// The operation that failed: `read`, `write`, `sync` and so on.
        operation: &'static str,
        /// The file or folder it was done on.
        path: PathBuf,
        /// The error of the operating system.
        source: Arc<std::io::Error>,
    },
    /// A sync failed, for lack of space or any other reason. No one can know which of the
    /// writes since the last sync are on the device, and a second sync would prove
    /// nothing, so the store takes no more writes.
    #[error(
        "{operation} {}: {source}; writes since the last sync may be lost, and the store takes no more: mend the disk, then reopen the store",
        path.display()
    )]
    SyncFailed {
        /// The operation that failed: `sync`, `sync folder` and so on.
        operation: &'static str,
        /// The file or folder that was synced.
        path: PathBuf,
        /// The error of the operating system.
        source: Arc<std::io::Error>,
    },
    /// The file system, the device or a quota is full. The write was refused or taken
    /// back: the store is as it was before, and takes writes again when there is room.
    /// A sync that fails for lack of space answers [`Error::SyncFailed`].
    #[error("no space left for {}: {what}", path.display())]
    NoSpace {
        /// The file that could not grow.
        path: PathBuf,
        /// What was being done.
        what: String,
    },
    /// Bytes on the device are not what was written.
    #[error("corruption in {} at offset {offset}: {what}", file.display())]
    Corruption {
        /// The damaged file.
        file: PathBuf,
        /// Where in the file, in bytes from its start.
        offset: u64,
        /// What was found and what was expected.
        what: String,
    },
    /// Another process, or another handle of this one, owns the store.
    #[error("{} is in use{}", path.display(), OwnerText(*owner))]
    Locked {
        /// The store.
        path: PathBuf,
        /// The owner's process id, where it could be read.
        owner: Option<u32>,
    },
    /// The path holds no store.
    #[error("{} is no Cambium store: {what}", path.display())]
    NotAStore {
        /// The path that was opened.
        path: PathBuf,
        /// What was looked for and not found.
        what: String,
    },
    /// A store, or something else, is already there.
    #[error("{} already exists: {what}", path.display())]
    AlreadyExists {
        /// The path that was to be created.
        path: PathBuf,
        /// What is there, and what to do.
        what: String,
    },
    /// The store was written by a newer version of the library.
    #[error(
        "{} has format version {found}; this program reads versions up to {supported}: {}",
        path.display(),
        if found > supported { "use a newer program" } else {
            "dump the store with the program that wrote it, and load the dump with this one"
        }
    )]
    UnsupportedVersion {
        /// The file that says so.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version this program reads; older ones that no release wrote are
        /// refused, too.
        supported: u32,
    },
    /// The store was made by an engine that this program does not have.
    #[error(
        "{} is a store of engine {engine:?}, and this program has {known}: use a newer program, or one built with that engine",
        path.display()
    )]
    UnknownEngine {
        /// The store.
        path: PathBuf,
        /// The engine its marker names.
        engine: String,
        /// The engines there are.
        known: String,
    },
    /// The engine cannot do what was asked.
    #[error("engine {engine} does not support {what}; {instead}")]
    Unsupported {
        /// The engine that was asked.
        engine: &'static str,
        /// What it cannot do.
        what: &'static str,
        /// Which engine, or which call, can.
        instead: &'static str,
    },
    /// An argument or option makes no sense.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// A key, a value, a batch or a file is larger than its limit.
    #[error("limit exceeded: {0}")]
    LimitExceeded(String),
    /// A precondition of `write_if` did not hold; nothing was written.
    #[error("precondition {index} does not hold; nothing was written")]
    PreconditionFailed {
        /// The position, from 0, of the first precondition that failed.
        index: usize,
    },
    /// Another writer changed what a transaction had read; nothing was written. The same
    /// transaction, run again, reads the new state.
    #[error("{conflict}; nothing was written: run the transaction again")]
    Conflict {
        /// The read that was invalidated.
        conflict: Conflict,
    },
    /// Open snapshots need more old versions than the store may keep.
    #[error(
        "open snapshots hold {held} old versions, the limit; close a snapshot or iterator, or raise {option}"
    )]
    SnapshotLimit {
        /// How many old versions are held.
        held: u64,
        /// The option that bounds them.
        option: &'static str,
    },
    /// The store's log no longer has the changes that were asked for.
    #[error(
        "the log no longer has these changes; it has all that came after {oldest}: begin again with a snapshot and the changes after its sequence number, or keep history with a consumer and a larger history_bytes"
    )]
    HistoryLost {
        /// From behind this number on, history is whole.
        oldest: SequenceNumber,
    },
    /// An earlier write or sync failed; the store takes no more writes.
    #[error("writes are refused since an earlier failure: {original}; reopen the store")]
    Poisoned {
        /// The failure that poisoned the store.
        original: Box<Error>,
    },
    /// No snapshot, namespace or option of that name.
    #[error("no {kind} named {name:?}")]
    NotFound {
        /// `snapshot`, `namespace` and so on.
        kind: &'static str,
        /// The name that was asked for.
        name: String,
    },
    /// An entry is not of the types with which a table is read.
    #[error("key {} was written with other types: {what}", key.escape_ascii())]
    WrongType {
        /// The entry's key, encoded.
        key: Vec<u8>,
        /// The key's or the value's expected type.
        what: String,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The operation was cancelled; the store is as it was.
    #[error("cancelled; the store is unchanged")]
    Cancelled,
}

/// The read that another writer invalidated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflict {
    /// A key, there or not there when it was read.
    Key {
        /// The key's namespace; `""` is the default one.
        namespace: String,
        /// The key.
        key: Vec<u8>,
    },
    /// A range.
    Range {
        /// The range's namespace; `""` is the default one.
        namespace: String,
        /// The range's first key, or empty for the very first there is.
        from: Vec<u8>,
        /// The key behind its last, or `None`.
        to: Option<Vec<u8>>,
    },
    /// All of it: the store was rolled back to a named snapshot.
    Everything,
    /// So much was written since the transaction began that the store no longer knows
    /// what, and reading everything once more did not catch up with the writers.
    TooMuchWritten,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = |f: &mut fmt::Formatter<'_>, namespace: &str| match namespace {
            "" => Ok(()),
            name => write!(f, " of namespace {name:?}"),
        };
        match self {
            Conflict::Key { namespace, key } => {
                write!(f, "key {}", key.escape_ascii())?;
                within(f, namespace)?;
                write!(f, " was changed after the transaction read it")
            }
            Conflict::Range {
                namespace,
                from,
                to,
            } => {
                write!(f, "the range from {:?}", from.escape_ascii().to_string())?;
                if let Some(to) = to {
                    write!(f, " to {:?}", to.escape_ascii().to_string())?;
                }
                within(f, namespace)?;
                write!(f, " was changed after the transaction read it")
            }
            Conflict::Everything => {
                f.write_str("the store was rolled back after the transaction began")
            }
            Conflict::TooMuchWritten => f.write_str(
                "other writers wrote faster than the transaction's reads could be verified",
            ),
        }
    }
}

struct OwnerText(Option<u32>);

impl fmt::Display for OwnerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(process) => write!(f, " by process {process}"),
            None => write!(f, " by another process"),
        }
    }
}

impl Error {
    /// Wraps what the operating system said; a full disk or quota becomes
    /// [`Error::NoSpace`].
    ///
    /// ```
    /// use cambium_base::Error;
    /// let full = std::io::Error::from_raw_os_error(28);
    /// let error = Error::io("write", "/data/a.log", full);
    /// assert!(matches!(error, Error::NoSpace { .. }));
    /// ```
    pub fn io(operation: &'static str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Error::NoSpace {
                path,
                what: format!("{operation} failed: {source}"),
            },
            _ => Error::Io {
                operation,
                path,
                source: Arc::new(source),
            },
        }
    }

    /// Wraps what the operating system said of a sync, or of a write that must be durable
    /// when it answers. Lack of space is no exception: the bytes were accepted before.
    ///
    /// ```
    /// use cambium_base::Error;
    /// let full = std::io::Error::from_raw_os_error(28);
    /// let error = Error::sync("sync", "/data/a.log", full);
    /// assert!(matches!(error, Error::SyncFailed { .. }) && !error.is_no_space());
    /// ```
    pub fn sync(operation: &'static str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Error::SyncFailed {
            operation,
            path: path.as_ref().to_path_buf(),
            source: Arc::new(source),
        }
    }

    /// Damage at a place, with what was found and expected.
    pub fn corruption(file: impl AsRef<Path>, offset: u64, what: impl Into<String>) -> Self {
        Error::Corruption {
            file: file.as_ref().to_path_buf(),
            offset,
            what: what.into(),
        }
    }

    /// Wraps the failure that stopped a store's writes.
    pub fn poisoned_by(original: &Error) -> Self {
        match original {
            Error::Poisoned { .. } => original.clone(),
            other => Error::Poisoned {
                original: Box::new(other.clone()),
            },
        }
    }

    /// Who has to act.
    pub fn class(&self) -> ErrorClass {
        match self {
            Error::Io { .. }
            | Error::SyncFailed { .. }
            | Error::NoSpace { .. }
            | Error::Poisoned { .. } => ErrorClass::Machine,
            Error::Corruption { .. } => ErrorClass::Damage,
            Error::Locked { .. }
            | Error::Conflict { .. }
            | Error::Cancelled
            | Error::SnapshotLimit { .. } => ErrorClass::Retry,
            _ => ErrorClass::Usage,
        }
    }

    /// True if the store's bytes are damaged.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Corruption { .. })
    }

    /// The operating system's error, where this error wraps one.
    pub fn os_error(&self) -> Option<&std::io::Error> {
        match self {
            Error::Io { source, .. } | Error::SyncFailed { source, .. } => Some(source),
            _ => None,
        }
    }

    /// True if a read was not to wait for the device, and would have had to.
    pub fn would_wait(&self) -> bool {
        let kind = self.os_error().map(std::io::Error::kind);
        kind == Some(std::io::ErrorKind::WouldBlock)
    }

    /// True if a disk or quota was full, and the store is as it was before.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::NoSpace { .. })
    }
}

impl From<Error> for std::io::Error {
    /// The kind is that of the operating system's error, where there is one.
    fn from(error: Error) -> Self {
        use std::io::ErrorKind;
        let kind = match &error {
            Error::NoSpace { .. } => ErrorKind::StorageFull,
            Error::Corruption { .. } | Error::WrongType { .. } => ErrorKind::InvalidData,
            Error::NotAStore { .. } | Error::NotFound { .. } => ErrorKind::NotFound,
            Error::AlreadyExists { .. } => ErrorKind::AlreadyExists,
            Error::Locked { .. } => ErrorKind::ResourceBusy,
            Error::Unsupported { .. } => ErrorKind::Unsupported,
            Error::InvalidArgument(_) | Error::LimitExceeded(_) => ErrorKind::InvalidInput,
            _ => error
                .os_error()
                .map_or(ErrorKind::Other, std::io::Error::kind),
        };
        std::io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poison_keeps_the_original_and_does_not_nest() {
        let original = Error::corruption("a.log", 7, "torn");
        let once = Error::poisoned_by(&original);
        let twice = Error::poisoned_by(&once);
        assert_eq!(once.to_string(), twice.to_string());
        assert!(once.to_string().contains("a.log at offset 7"));
    }

    #[test]
    fn an_io_error_keeps_kind_and_words() {
        let refused = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let error = std::io::Error::from(Error::io("open", "a.log", refused));
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("a.log"));
        let full = std::io::Error::from_raw_os_error(28);
        let error = std::io::Error::from(Error::io("write", "a.log", full));
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }

    #[test]
    fn each_class_names_who_must_act() {
        assert_eq!(Error::Closed.class(), ErrorClass::Usage);
        assert_eq!(Error::corruption("f", 0, "x").class(), ErrorClass::Damage);
        let failed = Error::sync("sync", "f", std::io::Error::from_raw_os_error(5));
        assert_eq!(failed.class(), ErrorClass::Machine);
    }
}
