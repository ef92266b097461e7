//! Keys that clients watch until their transactions.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// Versions of the keys that some client watches, and of no others.
#[derive(Debug, Default)]
pub struct Watches {
    keys: HashMap<(u8, Vec<u8>), Watch, RandomState>,
    /// Larger than every version before.
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    version: u64,
    clients: usize,
}

/// A key as a client saw it when it began to watch it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Database and key.
    pub key: (u8, Vec<u8>),
    version: u64,
    /// The key had expired, and was deleted since: no change for its watcher.
    pub was_missing: bool,
}

impl Watches {
    /// A client begins to watch a key.
    pub fn watch(&mut self, database: u8, key: &[u8], was_missing: bool) -> Watched {
        let key = (database, key.to_vec());
        let next = self.next;
        let watch = self.keys.entry(key.clone()).or_insert(Watch {
            version: next,
            clients: 0,
        });
        watch.clients += 1;
        let version = watch.version;
        Watched {
            key,
            version,
            was_missing,
        }
    }

    /// It watches the key no more.
    pub fn unwatch(&mut self, watched: &Watched) {
        if let Some(watch) = self.keys.get_mut(&watched.key) {
            watch.clients -= 1;
            if watch.clients == 0 {
                self.keys.remove(&watched.key);
            }
        }
    }

    /// True if the key has not changed since.
    pub fn is_unchanged(&self, watched: &Watched) -> bool {
        let watch = self.keys.get(&watched.key);
        watch.is_some_and(|watch| watch.version == watched.version)
    }

    /// A key has changed.
    pub fn touch(&mut self, database: u8, key: &[u8]) {
        if self.keys.is_empty() {
            return;
        }
        self.next += 1;
        if let Some(watch) = self.keys.get_mut(&(database, key.to_vec())) {
            watch.version = self.next;
        }
    }

    /// The keys of a database that are watched.
    pub fn keys_of(&self, database: u8) -> Vec<Vec<u8>> {
        let of = self.keys.keys().filter(|(of, _)| *of == database);
        of.map(|(_, key)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_by_those_who_watched_before_it() {
        let mut watches = Watches::default();
        let before = watches.watch(0, b"oak", false);
        watches.touch(1, b"oak");
        watches.touch(0, b"elm");
        assert!(watches.is_unchanged(&before));
        watches.touch(0, b"oak");
        let after = watches.watch(0, b"oak", false);
        assert!(!watches.is_unchanged(&before) && watches.is_unchanged(&after));
        watches.unwatch(&before);
        assert!(watches.is_unchanged(&after));
        watches.unwatch(&after);
        assert_eq!(watches.keys_of(0), Vec::<Vec<u8>>::new());
    }
}
