//! What can go wrong while stores are measured.

use std::path::PathBuf;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The user asked for something that cannot be: exit status 2.
    #[error("{0}")]
    Usage(String),
    /// A store cannot do what the workload needs: "n/a" in the report.
    #[error("{store} cannot do {what}")]
    Unsupported { store: String, what: String },
    #[error("{store} is missing: {what}; to get it: {remedy}")]
    Missing {
        store: String,
        /// What was looked for, and where.
        what: String,
        /// The command that brings it.
        remedy: String,
    },
    #[error("{store}: {call}: {words}")]
    Store {
        store: &'static str,
        call: &'static str,
        words: String,
    },
    #[error("{store} returned wrong data: {what}")]
    WrongData {
        store: String,
        /// The key, what was expected and what came.
        what: String,
    },
    /// The operating system refused or failed something of our own.
    #[error("{operation} {}: {words}", path.display())]
    Machine {
        operation: &'static str,
        path: PathBuf,
        words: String,
    },
    /// Somebody asked for an end before it was reached.
    #[error("stopped before the end")]
    Stopped,
    /// One of our own engines answered an error, or the I/O layer did.
    #[error(transparent)]
    Cambium(#[from] cambium_base::Error),
}

impl Error {
    /// An error of a store: its name, the call, and its own words.
    pub fn store(store: &'static str, call: &'static str, words: impl ToString) -> Self {
        Error::Store {
            store,
            call,
            words: words.to_string(),
        }
    }

    pub fn unsupported(store: &str, what: impl Into<String>) -> Self {
        Error::Unsupported {
            store: store.to_string(),
            what: what.into(),
        }
    }

    /// An error of the operating system, met by KVZone itself.
    pub fn machine(
        operation: &'static str,
        path: impl Into<PathBuf>,
        source: impl ToString,
    ) -> Self {
        Error::Machine {
            operation,
            path: path.into(),
            words: source.to_string(),
        }
    }
}

impl From<cambium_foreign::Error> for Error {
    fn from(error: cambium_foreign::Error) -> Self {
        match error {
            cambium_foreign::Error::Missing {
                store,
                what,
                remedy,
            } => Error::Missing {
                store: store.to_string(),
                what,
                remedy: remedy.to_string(),
            },
            cambium_foreign::Error::Store { store, call, words } => {
                Error::Store { store, call, words }
            }
            other => Error::Usage(other.to_string()),
        }
    }
}
