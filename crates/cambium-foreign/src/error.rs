//! What can go wrong with a foreign store.

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, and for whom.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A store's library is not here.
    #[error("the library of {store} is missing: {what}; to get it: {remedy}")]
    Missing {
        /// The store.
        store: &'static str,
        /// What was looked for, and where.
        what: String,
        /// How it is installed.
        remedy: &'static str,
    },
    /// A store answered an error.
    #[error("{store}: {call}: {words}")]
    Store {
        /// The store.
        store: &'static str,
        /// The call that failed.
        call: &'static str,
        /// The store's own words.
        words: String,
    },
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
}
