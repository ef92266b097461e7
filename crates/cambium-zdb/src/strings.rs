//! String keys (ZDB, section II.E): a key is hashed to a bucket, and the
//! bucket, a list of keys and values, is the value of an integer key.
//!
//! A write reads the bucket, changes it and writes it whole, under a lock that
//! all keys of the bucket share. The hash is Jenkins' one-at-a-time, seeded per
//! store, so that no caller can choose keys that collide. The bucket also says which
//! keys its write put and deleted, for the change feed.
//!
//! The paper fixes 2^27 buckets. Here the table begins small and grows by
//! linear hashing, one bucket at a time: as keys pass buckets, a write splits
//! one bucket in two, which is an ordinary batch of two entries. A reader that
//! does not find its key looks again if a split went on meanwhile.

use std::collections::BTreeMap;

use cambium_api::{Operation, Precondition, ReadSet, Written, gives_space_back};
use cambium_base::hash::one_at_a_time;
use cambium_base::{Durability, Error, Result, SequenceNumber, Value};
use cambium_index::BucketMap;
use cambium_io::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use cambium_io::sync::{Mutex, MutexGuard};
use cambium_storage::room::make_room_for;

use crate::bucket::Bucket;
use crate::catalog::UNCOUNTED;
use crate::core::{Core, lock};
use crate::format::FLAG_SPLIT;
use crate::read::Pin;
use crate::write::{Change, WriteRequest};

/// Most locks; keys of one bucket always share one.
const MOST_STRIPES: u64 = 1024;
/// A bucket is one entry, and an entry's length has 32 bits.
const MOST_BUCKET_BYTES: u64 = u32::MAX as u64 - 4096;

/// For each hash its keys' new values, in order; `None` removes a key.
type KeyChanges<'a> = BTreeMap<u32, Vec<(&'a [u8], Option<&'a [u8]>)>>;

/// The buckets of a store of string keys.
#[derive(Debug)]
pub(crate) struct Buckets {
    seed: u32,
    count: AtomicU64,
    keys: AtomicI64,
    /// Odd while a split changes the slots and the count.
    version: AtomicU64,
    stripes: Vec<Mutex<()>>,
}

/// Changes of a number that is not known leave the counter below this.
const NOT_COUNTED_BELOW: i64 = i64::MIN / 4;

fn counter_of(keys: u64) -> i64 {
    match keys {
        UNCOUNTED => i64::MIN / 2,
        keys => keys as i64,
    }
}

impl Buckets {
    /// Buckets as the catalog has them.
    pub fn new(seed: u32, count: u64, keys: u64) -> Self {
        // No more stripes than buckets at the lowest level there ever was
        // since: then the low bits of a hash choose the stripe for good.
        let stripes = MOST_STRIPES.min(1 << count.ilog2());
        Buckets {
            seed,
            count: AtomicU64::new(count),
            keys: AtomicI64::new(counter_of(keys)),
            version: AtomicU64::new(0),
            stripes: (0..stripes).map(|_| Mutex::new(())).collect(),
        }
    }

    /// The hash of a key.
    pub fn hash(&self, key: &[u8]) -> u32 {
        one_at_a_time(key, self.seed)
    }

    /// How many buckets there are.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// How many keys there are; [`UNCOUNTED`] until they are counted.
    pub fn keys(&self) -> u64 {
        match self.keys.load(Ordering::Relaxed) {
            ..NOT_COUNTED_BELOW => UNCOUNTED,
            keys => keys.max(0) as u64,
        }
    }

    /// Counts keys that came or went.
    pub fn add_keys(&self, delta: i64) {
        self.keys.fetch_add(delta, Ordering::Relaxed);
    }

    /// Sets the counts that recovery found.
    pub fn recovered(&self, count: u64, keys: u64) {
        self.count.store(count, Ordering::Release);
        self.keys.store(counter_of(keys), Ordering::Relaxed);
    }

    fn map(&self) -> BucketMap {
        BucketMap::new(self.count())
    }

    fn stripe_of(&self, hash: u32) -> usize {
        (u64::from(hash) & (self.stripes.len() as u64 - 1)) as usize
    }

    /// If the entries about to be applied are a split: marks it as going on
    /// until the guard is dropped, and counts the new bucket then.
    pub fn begin_split_if(&self, flags: u8) -> Option<SplitGuard<'_>> {
        (flags & FLAG_SPLIT != 0).then(|| {
            self.version.fetch_add(1, Ordering::AcqRel);
            SplitGuard { buckets: self }
        })
    }
}

/// A split that is being applied.
pub(crate) struct SplitGuard<'a> {
    buckets: &'a Buckets,
}

impl Drop for SplitGuard<'_> {
    fn drop(&mut self) {
        self.buckets.count.fetch_add(1, Ordering::AcqRel);
        self.buckets.version.fetch_add(1, Ordering::AcqRel);
    }
}

impl Core {
    fn damaged_bucket(&self, bucket: u64) -> Error {
        Error::corruption(
            &self.path,
            0,
            format!("the value of bucket {bucket} is no list of keys and values"),
        )
    }

    /// A bucket's contents as of a sequence number, or the newest.
    pub fn read_bucket(&self, bucket: u64, at: Option<u64>) -> Result<Bucket> {
        match self.read_version(bucket, at)? {
            None => Ok(Bucket::default()),
            Some(entry) => Bucket::decode(&entry.value).ok_or_else(|| self.damaged_bucket(bucket)),
        }
    }

    fn find_in(&self, bucket: u64, bytes: Option<Value>, key: &[u8]) -> Result<Option<Value>> {
        match bytes {
            None => Ok(None),
            Some(bytes) => Bucket::find(&bytes, key).ok_or_else(|| self.damaged_bucket(bucket)),
        }
    }

    /// The newest value of a string key.
    pub fn string_get(&self, key: &[u8]) -> Result<Option<Value>> {
        let hash = self.buckets.hash(key);
        loop {
            let version = self.buckets.version.load(Ordering::Acquire);
            let bucket = self.buckets.map().bucket(hash);
            let bytes = self.read_latest(bucket)?;
            let found = self.find_in(bucket, bytes, key)?;
            let stable =
                version % 2 == 0 && self.buckets.version.load(Ordering::Acquire) == version;
            if found.is_some() || stable {
                return Ok(found);
            }
            std::hint::spin_loop();
        }
    }

    /// The value of a string key at a kept moment.
    pub fn string_get_at(&self, key: &[u8], pin: &Pin) -> Result<Option<Value>> {
        let bucket = BucketMap::new(pin.buckets).bucket(self.buckets.hash(key));
        let bytes = self.read_version(bucket, Some(pin.sequence))?;
        self.find_in(bucket, bytes.map(|entry| entry.value), key)
    }

    /// The values of several string keys at a kept moment.
    pub fn string_multi_get_at(&self, keys: &[&[u8]], pin: &Pin) -> Result<Vec<Option<Value>>> {
        let map = BucketMap::new(pin.buckets);
        let buckets: Vec<u64> = keys
            .iter()
            .map(|key| map.bucket(self.buckets.hash(key)))
            .collect();
        let entries = self.read_versions(&buckets, pin.sequence)?;
        keys.iter()
            .zip(buckets.iter().zip(entries))
            .map(|(key, (&bucket, entry))| {
                self.find_in(bucket, entry.map(|entry| entry.value), key)
            })
            .collect()
    }

    /// Writes a batch of string keys. One that deletes and finds no room compacts data files.
    pub fn string_write(
        &self,
        preconditions: &[Precondition],
        unchanged: Option<&ReadSet>,
        operations: &[Operation],
        durability: Durability,
    ) -> Result<SequenceNumber> {
        let makes_room = gives_space_back(operations.iter());
        let operations = (operations, makes_room);
        let write = || self.write_strings(preconditions, unchanged, operations, durability);
        make_room_for(write, || makes_room && self.give_space_back())
    }

    /// Changes each bucket once.
    fn write_strings(
        &self,
        preconditions: &[Precondition],
        unchanged: Option<&ReadSet>,
        (operations, makes_room): (&[Operation], bool),
        durability: Durability,
    ) -> Result<SequenceNumber> {
        self.check_writable()?;
        let mut changes: KeyChanges<'_> = BTreeMap::new();
        for operation in operations {
            let (key, value) = match operation {
                Operation::Put { key, value } => (key, Some(value.as_slice())),
                Operation::Delete { key } => (key, None),
                Operation::DeleteRange { .. } => return Err(unordered("delete_range")),
            };
            changes
                .entry(self.buckets.hash(key))
                .or_default()
                .push((key, value));
        }
        let checked = preconditions
            .iter()
            .map(|precondition| self.buckets.hash(precondition.key()));
        let read = unchanged.into_iter().flat_map(ReadSet::keys);
        let read = read.map(|full| self.buckets.hash(&full[2..]));
        let locks = match unchanged {
            // The transaction read every entry.
            Some(reads) if !reads.ranges().is_empty() => self.lock_all_stripes(),
            _ => self.lock_stripes(changes.keys().copied().chain(checked).chain(read)),
        };
        for (index, precondition) in preconditions.iter().enumerate() {
            let current = self.string_get(precondition.key())?;
            if !precondition.holds(current.as_deref()) {
                return Err(Error::PreconditionFailed { index });
            }
        }
        if let Some(reads) = unchanged {
            self.recent.check(reads)?;
        }
        let mut request = self.bucket_request(&changes, durability)?;
        request.user_bytes = operations.iter().map(Operation::bytes).sum();
        request.makes_room = makes_room;
        let answer = self.write_request(request);
        if let Ok(last) = &answer {
            // A commit takes the stripes of the keys it read before it validates them.
            let keys = changes.values().flatten();
            self.recent
                .note(keys.map(|(key, _)| (last.0, Written::Key(0, key))));
        }
        drop(locks);
        if answer.is_ok() {
            // The write has succeeded whatever becomes of the growth: what
            // fails here has stopped further writes, or is tried again.
            _ = self.split_if_full();
        }
        answer
    }

    fn lock_all_stripes(&self) -> Vec<MutexGuard<'_, ()>> {
        self.buckets.stripes.iter().map(lock).collect()
    }

    /// Waits for the writers that are under way.
    pub fn wait_for_writers(&self) {
        self.lock_all_stripes();
        drop(lock(&self.writer));
    }

    /// The locks of all these hashes, taken in their order.
    fn lock_stripes(&self, hashes: impl Iterator<Item = u32>) -> Vec<MutexGuard<'_, ()>> {
        let mut stripes: Vec<usize> = hashes.map(|hash| self.buckets.stripe_of(hash)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes
            .into_iter()
            .map(|stripe| lock(&self.buckets.stripes[stripe]))
            .collect()
    }

    /// Reads and changes the buckets. The caller holds their locks, so no
    /// split moves their keys.
    fn bucket_request(
        &self,
        changes: &KeyChanges<'_>,
        durability: Durability,
    ) -> Result<WriteRequest> {
        let map = self.buckets.map();
        let mut buckets: BTreeMap<u64, (Bucket, bool)> = BTreeMap::new();
        let mut delta = 0i64;
        for (hash, pairs) in changes {
            let number = map.bucket(*hash);
            if let std::collections::btree_map::Entry::Vacant(vacant) = buckets.entry(number) {
                let pairs = self.read_bucket(number, None)?.pairs;
                vacant.insert((Bucket::of(pairs), false));
            }
            let (bucket, changed) = buckets.get_mut(&number).expect("inserted above");
            for (key, value) in pairs {
                let before = bucket.pairs.len();
                bucket.set(key, *value);
                delta += bucket.pairs.len() as i64 - before as i64;
                *changed |= value.is_some() || bucket.pairs.len() != before;
            }
        }
        let mut entries = Vec::with_capacity(buckets.len());
        for (key, (bucket, changed)) in buckets {
            if !changed {
                continue;
            }
            if bucket.encoded_bytes() > MOST_BUCKET_BYTES {
                return Err(Error::LimitExceeded(format!(
                    "bucket {key} would have {} bytes: values that share a bucket have up to 4 GiB together; create the store with more buckets",
                    bucket.encoded_bytes()
                )));
            }
            let value = bucket.encode();
            entries.push(match bucket.pairs.is_empty() {
                true => Change::Delete { key, value },
                false => Change::Put { key, value },
            });
        }
        let mut request = WriteRequest::new(entries, durability);
        request.string_keys = i32::try_from(delta)
            .map_err(|_| Error::LimitExceeded(format!("{delta} keys in one batch")))?;
        Ok(request)
    }

    /// Splits the next bucket if there are more keys than buckets.
    pub fn split_if_full(&self) -> Result<()> {
        let most = 1u64 << 32;
        while self.buckets.keys() > self.buckets.count() && self.buckets.count() < most {
            if !self.split_next()? {
                break;
            }
        }
        Ok(())
    }

    /// Splits the next bucket; false if another thread was first.
    fn split_next(&self) -> Result<bool> {
        let map = self.buckets.map();
        let (from, to) = map.next_split();
        // Keys of both halves share the stripe of the bucket's low bits.
        let _stripe = lock(&self.buckets.stripes[self.buckets.stripe_of(from as u32)]);
        if self.buckets.count() != map.buckets() {
            return Ok(true);
        }
        let grown = BucketMap::new(map.buckets() + 1);
        let bucket = self.read_bucket(from, None)?;
        let (kept, moved): (Vec<_>, Vec<_>) = bucket
            .pairs
            .into_iter()
            .partition(|(key, _)| grown.bucket(self.buckets.hash(key)) == from);
        let half = |key, pairs: Vec<(Value, Value)>| Change::Put {
            key,
            value: Bucket::of(pairs).encode(),
        };
        // Empty halves are written too: the pair of entries is what says that
        // there is one bucket more.
        let mut request = WriteRequest::new(
            vec![half(from, kept), half(to, moved)],
            Durability::Buffered,
        );
        request.flags = FLAG_SPLIT;
        self.write_request(request)?;
        Ok(true)
    }
}

/// What an unordered store answers to ordered calls.
pub(crate) fn unordered(what: &'static str) -> Error {
    Error::Unsupported {
        engine: "zdb (string keys)",
        what,
        instead: "a full pass (iterate in Rust, cambium_pass_new in C), an integer table (keys=integer), or engine forest",
    }
}
