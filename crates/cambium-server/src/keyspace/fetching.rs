//! Reads that wait for the device happen on other threads.
//!
//! ```text
//! command ─▶ value in memory ─▶ answer
//!     │
//!     └────▶ value not in memory ─▶ the command is undone ─▶ a fetcher thread reads
//!                                                                  │
//!                      the command runs again, with the value ◀────┘
//! ```
//!
//! A fetched value is the current one only if nothing wrote its key in the meantime. Every
//! write passes the overlay, so the overlay keeps the list of keys that are fetched, and takes
//! a key off it when the key is written.

use std::collections::HashMap;

use cambium::{KeyRange, Result, Value};
use cambium_io::without_waiting;
use foldhash::fast::RandomState;

use super::Keyspace;

/// The state of the command under way, for values that are not in memory.
#[derive(Debug, Default)]
pub struct Fetching {
    /// It may end and run again, as long as the overlay has taken no more writes than these.
    undone_up_to: Option<u64>,
    /// The keys of the values that it lacks.
    missing: Vec<Vec<u8>>,
    /// Values that were fetched for the commands that run now.
    fetched: HashMap<Vec<u8>, Option<Value>, RandomState>,
    /// The number of the last fetch that has begun.
    last: u64,
}

/// Keys that fetcher threads read, with the first fetch since the key's last write, and how
/// many fetches of it have not ended since then.
#[derive(Clone, Debug, Default)]
pub struct Fetched(HashMap<Vec<u8>, (u64, u32), RandomState>);

impl Fetched {
    /// A fetch of a key begins.
    fn begin(&mut self, key: &[u8], fetch: u64) {
        self.0.entry(key.to_vec()).or_insert((fetch, 0)).1 += 1;
    }

    /// A fetch of a key ends. True if nothing has written the key since it began.
    fn end(&mut self, key: &[u8], fetch: u64) -> bool {
        let Some((first, open)) = self.0.get_mut(key) else {
            return false;
        };
        if *first > fetch {
            return false;
        }
        *open -= 1;
        if *open == 0 {
            self.0.remove(key);
        }
        true
    }

    /// A key is written.
    pub fn forget(&mut self, key: &[u8]) {
        if !self.0.is_empty() {
            self.0.remove(key);
        }
    }

    /// The keys of a range are deleted.
    pub fn forget_range(&mut self, range: &KeyRange) {
        self.0.retain(|key, _| !range.contains(key));
    }
}

impl Keyspace {
    /// A command begins that can run again, as long as it has written nothing.
    pub fn begin_undoable(&mut self) {
        self.fetching.undone_up_to = Some(self.view.overlay.writes());
    }

    /// It has ended. Answers the keys of the values that it lacks, if any: then the command has
    /// to run again.
    pub fn end_undoable(&mut self) -> Option<Vec<Vec<u8>>> {
        let is_undone = self.fetching.undone_up_to.take() == Some(self.view.overlay.writes());
        let missing = std::mem::take(&mut self.fetching.missing);
        (is_undone && !missing.is_empty()).then_some(missing)
    }

    /// True if the command under way lacks a value, so that it runs again.
    pub(super) fn lacks_value(&self) -> bool {
        !self.fetching.missing.is_empty()
    }

    /// Looks at every key of a command that has written nothing. Values that are not in memory
    /// do not end this, so that one fetch brings all of them.
    ///
    /// # Errors
    /// Those of `look`.
    pub fn each<'a>(
        &mut self,
        keys: impl Iterator<Item = &'a [u8]>,
        mut look: impl FnMut(&mut Keyspace, &'a [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut outcome = Ok(());
        for key in keys {
            match look(self, key) {
                Err(error) if error.would_wait() => outcome = Err(error),
                looked => looked?,
            }
        }
        outcome
    }

    /// The stored value of a key that the overlay does not have.
    pub(super) fn fetch(&mut self, key: &[u8]) -> Result<Option<Value>> {
        if let Some(value) = self.fetching.fetched.get(key) {
            return Ok(value.clone());
        }
        if self.fetching.undone_up_to != Some(self.view.overlay.writes()) {
            return self.store.get(key);
        }
        let found = without_waiting(|| self.store.get(key));
        if found.as_ref().is_err_and(cambium::Error::would_wait) {
            self.fetching.missing.push(key.to_vec());
        }
        found
    }

    /// A fetcher thread is to read these keys. Answers the number of the fetch.
    pub fn begin_fetch(&mut self, keys: &[Vec<u8>]) -> u64 {
        self.fetching.last += 1;
        for key in keys {
            self.view.overlay.fetched.begin(key, self.fetching.last);
        }
        self.fetching.last
    }

    /// The values of a fetch are there for the commands that run until
    /// [`Keyspace::forget_fetched`].
    pub fn end_fetch(&mut self, fetch: u64, values: Vec<(Vec<u8>, Result<Option<Value>>)>) {
        for (key, value) in values {
            // A command that lacks a value still reads it itself, and meets the error.
            if let (true, Ok(value)) = (self.view.overlay.fetched.end(&key, fetch), value) {
                self.fetching.fetched.insert(key, value);
            }
        }
    }

    /// The values may be old from now on.
    pub fn forget_fetched(&mut self) {
        self.fetching.fetched.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_is_good_if_nothing_wrote_its_key_since_it_began() {
        let mut fetched = Fetched::default();
        fetched.begin(b"oak", 1);
        fetched.begin(b"oak", 2);
        assert!(fetched.end(b"oak", 1));
        fetched.begin(b"oak", 3);
        fetched.forget(b"oak");
        assert!(!fetched.end(b"oak", 2));
        fetched.begin(b"oak", 4);
        assert!(!fetched.end(b"oak", 3));
        assert!(fetched.end(b"oak", 4));
        fetched.begin(b"elm", 5);
        fetched.forget_range(&KeyRange::from("a".."f"));
        assert!(!fetched.end(b"elm", 5));
        assert!(fetched.0.is_empty());
    }
}
