//! The clock of entries, the marker's word on whether a store has expiring ones, and which
//! entry that was read from a snapshot expires first.

use std::path::PathBuf;
use std::sync::Arc;

use cambium_api::conflicts::{FirstExpiry, WallClock, full_key};
use cambium_api::{Expiry, Seeded, UnixMillis};
use cambium_base::Result;
use cambium_io::Environment;
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use cambium_io::sync::{Mutex, lock};
use cambium_storage::marker::{read_marker, write_marker};

use crate::seeded_bug::SeededBug;

/// No entry is known to expire.
const NEVER: u64 = u64::MAX;

/// The clock of an open store's expiring entries.
#[derive(Debug)]
pub struct ExpiryClock {
    environment: Environment,
    path: PathBuf,
    /// False of a store that was opened for reading alone.
    writable: bool,
    /// The store's marker says that entries may expire. Without it, no entry does.
    is_used: AtomicBool,
    marking: Mutex<()>,
    /// The latest moment that was seen: a clock that goes back brings no entry back.
    latest: AtomicU64,
    /// No entry expires before this moment, as far as known.
    earliest: AtomicU64,
    seeded_bug: Seeded<SeededBug>,
}

impl ExpiryClock {
    /// Of a store at `path` whose marker says whether it has expiring entries, and which
    /// may have been opened for reading alone.
    pub fn new(
        environment: &Environment,
        path: PathBuf,
        (is_used, writable): (bool, bool),
        seeded_bug: Seeded<SeededBug>,
    ) -> Self {
        ExpiryClock {
            environment: environment.clone(),
            path,
            writable,
            is_used: AtomicBool::new(is_used),
            marking: Mutex::new(()),
            latest: AtomicU64::new(0),
            earliest: AtomicU64::new(if is_used { 0 } else { NEVER }),
            seeded_bug,
        }
    }

    /// True if entries may expire.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Reads the marker again: the process that writes the store may have marked it since.
    ///
    /// # Errors
    /// Those of reading the marker.
    pub fn refresh(&self) -> Result<()> {
        if self.writable || self.is_used() {
            return Ok(());
        }
        let marker = read_marker(&*self.environment.file_system, &self.path)?;
        self.is_used.store(marker.expires, Ordering::Release);
        Ok(())
    }

    /// Now; never before an earlier answer.
    pub fn now(&self) -> UnixMillis {
        let now = self.environment.clock.wall_nanoseconds() / 1_000_000;
        let before = self.latest.fetch_max(now, Ordering::AcqRel);
        if self.seeded_bug.is(SeededBug::ClockGoesBack) {
            return UnixMillis(now);
        }
        UnixMillis(now.max(before))
    }

    /// The moment at which an entry that is written now expires. The first in the life of
    /// a store puts a line into its marker, durably, before any such entry is written.
    ///
    /// # Errors
    /// Those of writing the marker.
    pub fn expires(&self, expiry: Expiry) -> Result<UnixMillis> {
        // The engine refuses the write to a store that was opened for reading alone.
        if !self.is_used() && self.writable {
            let _marking = self.marking.lock();
            let file_system = &*self.environment.file_system;
            let mut marker = read_marker(file_system, &self.path)?;
            if !marker.expires && !self.seeded_bug.is(SeededBug::ExpiryUnmarked) {
                marker.expires = true;
                write_marker(file_system, &self.path, &marker)?;
            }
            self.is_used.store(true, Ordering::Release);
        }
        let moment = expiry.at(self.now());
        self.earliest.fetch_min(moment.0, Ordering::AcqRel);
        Ok(moment)
    }

    /// True if an entry may have expired since the last sweep, and may be deleted.
    pub fn is_due(&self) -> bool {
        self.is_used() && self.writable && self.earliest.load(Ordering::Acquire) <= self.now().0
    }

    /// A sweep begins: it learns anew when the first entry expires.
    pub fn begin_sweep(&self) {
        self.earliest.store(NEVER, Ordering::Release);
    }

    /// An entry that has not expired was met.
    pub fn note(&self, moment: UnixMillis) {
        self.earliest.fetch_min(moment.0, Ordering::AcqRel);
    }

    /// Nothing is known any more: other entries have come back.
    pub fn forget(&self) {
        self.earliest.store(0, Ordering::Release);
    }
}

impl WallClock for ExpiryClock {
    fn now(&self) -> UnixMillis {
        ExpiryClock::now(self)
    }
}

/// The entry that expires first of those that were read from a snapshot.
#[derive(Debug)]
pub(crate) struct FirstRead {
    /// Its moment; most readers need not look at the key.
    moment: AtomicU64,
    entry: Mutex<Option<(UnixMillis, Vec<u8>)>>,
}

impl Default for FirstRead {
    fn default() -> Self {
        FirstRead {
            moment: AtomicU64::new(NEVER),
            entry: Mutex::default(),
        }
    }
}

impl FirstRead {
    /// An entry was read that is there until a moment.
    pub fn note(&self, moment: UnixMillis, namespace: u16, key: &[u8]) {
        if moment.0 >= self.moment.fetch_min(moment.0, Ordering::AcqRel) {
            return;
        }
        let mut entry = lock(&self.entry);
        if entry.as_ref().is_none_or(|(known, _)| moment < *known) {
            *entry = Some((moment, full_key(namespace, key)));
        }
    }

    /// That entry, with the clock that tells whether it has expired.
    pub fn entry(&self, clock: &Arc<ExpiryClock>) -> Option<FirstExpiry> {
        let (moment, key) = lock(&self.entry).clone()?;
        Some(FirstExpiry {
            moment,
            key,
            clock: clock.clone(),
        })
    }
}
