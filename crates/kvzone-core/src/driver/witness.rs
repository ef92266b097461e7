//! What one thread's reads returned: hashed, counted, and every so often
//! compared with what was written.
//!
//! The hash is a chain of xxh3 over each entry's key and value (or over its
//! absence), in the order of the thread's operations. It does not depend on
//! how entries were reached, so a store that reads in order by scans and one
//! that does so by gets agree. Of a value longer than 4 KiB, its length and 2 KiB
//! of each end are hashed: hashing a large value whole takes as long as a good
//! store needs to read it, and would make all stores look alike. Comparing is
//! always of the whole value.
//!
//! Comparing is done after the clock was read; of a scan that is compared, the
//! entries are copied while they are visited.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::block::Operation;
use crate::adapter::Session;
use crate::error::{Error, Result};
use crate::keys::KeySpace;
use crate::random::mix;
use crate::values::{Values, hexadecimal};
use crate::versions::{Allowed, Known, Versions};
use crate::workload::OperationKind;

/// What a job's reads are held against.
#[derive(Clone, Copy, Debug)]
pub struct Expectation<'a> {
    pub store: &'a str,
    pub keys: &'a KeySpace,
    pub values: &'a Values,
    pub versions: &'a Versions,
    /// One read in so many is compared; 0 for none.
    pub verify_every: u32,
    /// Whether a hash is wanted.
    pub hashes: bool,
    /// Whether nobody writes while this is read.
    pub alone: bool,
}

/// A walk compares one entry in so many with what was written: comparing is within its
/// time.
const WALK_COMPARES: u64 = 1_024;

#[derive(Debug)]
pub struct Witness<'a> {
    expectation: Expectation<'a>,
    hash: u64,
    until_verified: u32,
    verifies: bool,
    verified: u64,
    bytes_read: u64,
    value: Vec<u8>,
    found: bool,
    known: Option<(Known, Known)>,
    /// What was known before a scan of the keys from its first place on.
    before: Vec<Option<Known>>,
    entries: Entries,
}

/// What was known when a read was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    verifies: bool,
    before: Option<Known>,
}

/// Entries of a scan: keys and values after one another.
#[derive(Debug, Default)]
struct Entries {
    bytes: Vec<u8>,
    /// Where each key and each value ends.
    ends: Vec<(usize, usize)>,
}

impl Entries {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(key_end, end)| {
            let entry = (&self.bytes[start..key_end], &self.bytes[key_end..end]);
            start = end;
            entry
        })
    }
}

/// Longer values are hashed by their length and this much of each end.
const LONG_VALUE: usize = 4096;

/// Goes on with a hash by what a read returned.
#[inline]
pub(super) fn chain(hash: u64, key: &[u8], value: Option<&[u8]>) -> u64 {
    let hash = xxh3_64_with_seed(key, hash);
    match value {
        Some(value) if value.len() <= LONG_VALUE => xxh3_64_with_seed(value, hash),
        Some(value) => {
            let (first, last) = (LONG_VALUE / 2, value.len() - LONG_VALUE / 2);
            let hash = xxh3_64_with_seed(&value[..first], hash ^ value.len() as u64);
            xxh3_64_with_seed(&value[last..], hash)
        }
        None => mix(!hash),
    }
}

impl<'a> Witness<'a> {
    pub fn new(expectation: Expectation<'a>) -> Self {
        Witness {
            expectation,
            hash: 0,
            until_verified: expectation.verify_every.min(1),
            verifies: false,
            verified: 0,
            bytes_read: 0,
            value: Vec::new(),
            found: false,
            known: None,
            before: Vec::new(),
            entries: Entries::default(),
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn verified(&self) -> u64 {
        self.verified
    }

    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    #[inline]
    pub fn last_bytes(&self) -> usize {
        self.value.len()
    }

    #[inline]
    fn next(&mut self) {
        self.verifies = self.until_verified == 1;
        self.until_verified = match self.until_verified {
            1 => self.expectation.verify_every,
            left => left.saturating_sub(1),
        };
    }

    /// Gets a key, to be looked at later.
    #[inline]
    pub fn get(&mut self, session: &mut dyn Session, number: u64, key: &[u8]) -> Result<()> {
        let asked = self.ask(number);
        self.found = session.get(key, &mut self.value)?;
        self.know(asked, number);
        Ok(())
    }

    /// Notes what is known of a key that is about to be read, to be answered later.
    #[inline]
    pub fn ask(&mut self, number: u64) -> Asked {
        self.next();
        let versions = self.expectation.versions;
        let loaded = self.verifies && number < versions.count();
        Asked {
            verifies: self.verifies,
            before: loaded.then(|| versions.known(number)),
        }
    }

    /// Takes what came of a read that was asked for, to be looked at next.
    pub fn answer(&mut self, asked: Asked, number: u64, value: Option<&[u8]>) {
        self.found = value.is_some();
        self.value.clear();
        self.value.extend_from_slice(value.unwrap_or_default());
        self.know(asked, number);
    }

    #[inline]
    fn know(&mut self, asked: Asked, number: u64) {
        self.verifies = asked.verifies;
        let versions = self.expectation.versions;
        self.known = asked.before.map(|before| (before, versions.known(number)));
    }

    /// Looks at what the last [`Witness::get`] or [`Witness::scan`] returned;
    /// true if it was compared with what was written.
    #[inline]
    pub fn look(&mut self, operation: &Operation, key: &[u8]) -> Result<bool> {
        let scanned = match operation.kind {
            OperationKind::Scan => true,
            OperationKind::ReadInOrder => operation.span > 1,
            // Held against what was written while it went on.
            kind if kind.walks() => return Ok(true),
            _ => false,
        };
        if !scanned {
            self.bytes_read += (key.len() + self.value.len()) as u64;
            if self.expectation.hashes {
                let value = self.found.then_some(self.value.as_slice());
                self.hash = chain(self.hash, key, value);
            }
        }
        if self.verifies {
            self.verified += 1;
            if scanned {
                self.compare_scan(operation, key)?;
            } else {
                self.compare(operation, key)?;
            }
        }
        Ok(self.verifies)
    }

    pub fn scan(
        &mut self,
        session: &mut dyn Session,
        key: &[u8],
        operation: &Operation,
    ) -> Result<u64> {
        self.next();
        self.value.clear();
        self.entries.bytes.clear();
        self.entries.ends.clear();
        self.remember(operation);
        let (mut hash, mut bytes, mut visited) = (self.hash, key.len() as u64, 0_u64);
        let (verifies, hashes) = (self.verifies, self.expectation.hashes);
        let entries = &mut self.entries;
        let answered = session.scan(key, u64::from(operation.span), &mut |key, value| {
            visited += 1;
            bytes += (key.len() + value.len()) as u64;
            if hashes {
                hash = chain(hash, key, Some(value));
            }
            if verifies {
                entries.add(key, value);
            }
        })?;
        self.hash = hash;
        self.bytes_read += bytes;
        if answered != visited || visited > u64::from(operation.span) {
            let span = operation.span;
            let what = format!(
                "a scan of at most {span} entries visited {visited} and answered {answered}"
            );
            return Err(self.wrong(what));
        }
        Ok(visited)
    }

    /// Visits every entry; answers how many there were. All must come in order, and
    /// one in [`WALK_COMPARES`] is compared; where others write meanwhile, their versions
    /// are those known when it comes by, so nothing is compared then.
    pub fn walk(&mut self, session: &mut dyn Session, kind: OperationKind) -> Result<u64> {
        let backwards = kind == OperationKind::WalkBackwards;
        let alone = self.expectation.alone && self.expectation.verify_every > 0;
        let (mut bytes, mut visited, mut verified) = (0, 0_u64, 0);
        let mut last: Vec<u8> = Vec::new();
        let mut wrong = None;
        let answered = session.walk(backwards, &mut |key, value| {
            bytes += (key.len() + value.len()) as u64;
            let in_order = match backwards {
                true => visited == 0 || key < last.as_slice(),
                false => visited == 0 || key > last.as_slice(),
            };
            if !in_order {
                let words = format!("a walk: key {} is out of order", hexadecimal(key));
                wrong.get_or_insert_with(|| self.wrong(words));
            }
            if alone && visited % WALK_COMPARES == 0 {
                verified += 1;
                wrong = wrong.take().or_else(|| self.hold_now(key, value).err());
            }
            last.clear();
            last.extend_from_slice(key);
            visited += 1;
        })?;
        self.bytes_read += bytes;
        self.verified += verified;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if answered != visited {
            let words = format!("a walk visited {visited} entries and answered {answered}");
            return Err(self.wrong(words));
        }
        let live = || self.expectation.versions.live().count() as u64;
        if alone && visited < live() {
            let words = format!("a walk visited {visited} entries of {}", live());
            return Err(self.wrong(words));
        }
        Ok(visited)
    }

    /// Holds an entry against what is known now: of a store that nobody writes.
    fn hold_now(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let Expectation { keys, versions, .. } = self.expectation;
        let Some(number) = keys.number_of(key) else {
            let words = format!("a walk returned key {}, never written", hexadecimal(key));
            return Err(self.wrong(words));
        };
        let allowed = match number < versions.count() {
            true => versions.known(number).allowed(),
            false => Versions::once(true).allowed(),
        };
        self.hold(number, key, Some(value), allowed)
    }

    /// Notes what is known of the keys that a scan will meet, if it is compared:
    /// other threads may write them meanwhile.
    fn remember(&mut self, operation: &Operation) {
        self.before.clear();
        if !self.verifies {
            return;
        }
        let Expectation { keys, versions, .. } = self.expectation;
        let first = keys.place_of(operation.number);
        let places = first..first.saturating_add(u64::from(operation.span));
        self.before.extend(places.map(|place| {
            let number = keys.number_at(place);
            (number < versions.count()).then(|| versions.known(number))
        }));
    }

    /// What a scan may have met of a loaded key. Where keys are left out, it goes
    /// further than what was noted: any version may be right there.
    fn met(&self, number: u64, first: u64) -> Allowed {
        let Expectation { keys, versions, .. } = self.expectation;
        let after = versions.known(number);
        let place = keys.place_of(number).checked_sub(first);
        let noted = place.and_then(|place| self.before.get(place as usize).copied().flatten());
        Versions::allowed(noted.unwrap_or_default(), after)
    }

    fn wrong(&self, what: String) -> Error {
        Error::WrongData {
            store: self.expectation.store.to_string(),
            what,
        }
    }

    fn compare(&self, operation: &Operation, key: &[u8]) -> Result<()> {
        let number = operation.number;
        let allowed = match self.known {
            None if operation.kind == OperationKind::ReadMissing => Known::default().allowed(),
            Some((before, after)) => Versions::allowed(before, after),
            None => Versions::once(true).allowed(),
        };
        let value = self.found.then_some(self.value.as_slice());
        self.hold(number, key, value, allowed)
    }

    /// Holds what came back against what may have come.
    fn hold(&self, number: u64, key: &[u8], value: Option<&[u8]>, allowed: Allowed) -> Result<()> {
        let values = self.expectation.values;
        if allowed.is_right(values, number, value) {
            return Ok(());
        }
        let versions: Vec<String> = allowed.versions().take(4).map(|v| v.to_string()).collect();
        let expected = match (allowed.present, allowed.absent) {
            (true, true) => format!("version {} or nothing", versions.join(" or ")),
            (true, false) => format!("version {}", versions.join(" or ")),
            (false, _) => "nothing".to_string(),
        };
        let came = value.map_or("nothing".to_string(), |value| values.describe(value));
        let key = hexadecimal(key);
        Err(self.wrong(format!(
            "key number {number} ({key}): expected {expected}, came {came}"
        )))
    }

    fn compare_scan(&self, operation: &Operation, from: &[u8]) -> Result<()> {
        let Expectation { keys, versions, .. } = self.expectation;
        let mut last: Option<&[u8]> = None;
        let first = keys.place_of(operation.number);
        for (at, (key, value)) in self.entries.iter().enumerate() {
            if key < from || last.is_some_and(|last| key <= last) {
                let (key, from) = (hexadecimal(key), hexadecimal(from));
                return Err(self.wrong(format!(
                    "a scan from {from}: entry {at}, key {key}, is out of order"
                )));
            }
            last = Some(key);
            let Some(number) = keys.number_of(key) else {
                let key = hexadecimal(key);
                return Err(self.wrong(format!("a scan returned key {key}, never written")));
            };
            let place = keys.place_of(number);
            if operation.kind == OperationKind::ReadInOrder && place != first + at as u64 {
                let missing = keys.number_at(first + at as u64);
                return Err(self.wrong(format!("a scan left out key number {missing}")));
            }
            let allowed = if number < versions.count() {
                self.met(number, first)
            } else {
                Versions::once(true).allowed()
            };
            self.hold(number, key, Some(value), allowed)?;
        }
        let visited = self.entries.ends.len() as u64;
        if operation.kind == OperationKind::ReadInOrder && visited < u64::from(operation.span) {
            let missing = keys.number_at(first + visited);
            return Err(self.wrong(format!("a scan left out key number {missing}")));
        }
        Ok(())
    }
}
