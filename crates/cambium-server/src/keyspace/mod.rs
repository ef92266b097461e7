//! Databases of keys that hold values, above one store.
//!
//! Commands read and write through a [`Keyspace`]. It counts the keys of each database,
//! keeps the orders of SCAN and of expiry beside the entries, versions the keys that clients
//! watch, and collects the notices of keyspace events. Writes wait in an overlay until
//! [`Keyspace::commit`] hands all of them to the store as one batch, counts included, so that
//! every crash leaves them as exact as they were.
//!
//! Expired keys are deleted here and not by the store's own expiry: a count of keys is exact
//! only if the one who counts knows which entries went.

mod committing;
pub mod expiring;
pub mod fetching;
pub mod layout;
pub mod notices;
pub mod overlay;
pub mod partitions;
mod recent;
pub mod view;
mod watching;

use std::collections::HashMap;
use std::sync::Arc;

use cambium::{Direction, Error, KeyRange, Result, Store, Value};
use cambium_io::environment::MemoryBudget;
use foldhash::fast::RandomState;

use expiring::Expiries;
use fetching::Fetching;
use layout::{Count, Entry, HashHeader, Kind, State};
use notices::{Class, Notices};
use overlay::{Read, Source, Walk};
use partitions::Partitions;
use recent::RecentStrings;
use view::View;
pub use watching::Watched;
use watching::Watches;

/// Databases of keys.
#[derive(Debug)]
pub struct Keyspace {
    store: Store,
    view: View,
    state: State,
    /// As the store has it.
    committed: State,
    /// By database: nothing expires before this moment, or at it with a smaller key.
    soonest: Vec<(u64, Vec<u8>)>,
    expiries: Expiries,
    watches: Watches,
    recent: RecentStrings,
    /// Keys whose last write is not synced, by hash, with the round of that write.
    unsynced: HashMap<u64, u64, RandomState>,
    /// The last round that deleted ranges of keys.
    emptied: u64,
    hasher: RandomState,
    tracks_unsynced: bool,
    fetching: Fetching,
    /// In a cluster: databases are its partitions.
    pub partitions: Option<Partitions>,
    /// Milliseconds since 1970, of the round.
    pub now: u64,
    /// Events that clients may have subscribed to.
    pub notices: Notices,
    /// What the command under way has done.
    pub footprint: Footprint,
    /// Changes since the server began.
    pub changes: u64,
    /// Keys that have expired since the server began.
    pub expired: u64,
    /// Reads that found a key, and those that did not.
    pub hits: (u64, u64),
}

/// What a command has done to the keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Its answer depends on writes that the store does not have yet.
    pub is_pending: bool,
    /// The last round whose sync its answer has to wait for.
    pub waits_for: u64,
    /// In a cluster: the batch of its partition that has to be committed first.
    pub number: u64,
}

impl Keyspace {
    /// The databases in a store. `seed` is for a store that has none yet; `tracks_unsynced`
    /// if answers wait until what they show is synced. What is remembered of keys takes its
    /// memory from a budget.
    ///
    /// # Errors
    /// Those of the store; `InvalidArgument` for a store that another program filled.
    pub fn open(
        store: Store,
        seed: u64,
        tracks_unsynced: bool,
        now: u64,
        memory: Arc<MemoryBudget>,
    ) -> Result<Keyspace> {
        let state = match store.get(layout::STATE_KEY)? {
            Some(stored) => State::decode(&stored).ok_or_else(|| foreign(&store))?,
            None if layout::is_empty(&store)? => State::new(seed),
            None => return Err(foreign(&store)),
        };
        let is_ordered = store.capabilities().ordered;
        let mut keyspace = Keyspace {
            view: View {
                source: Source::Store(store.clone()),
                overlay: overlay::Overlay::default(),
                is_ordered,
            },
            store,
            committed: state.clone(),
            state,
            soonest: vec![(0, Vec::new()); layout::MOST_DATABASES],
            expiries: Expiries::default(),
            watches: Watches::default(),
            recent: RecentStrings::new(seed, memory.reserve(0).ok()),
            unsynced: HashMap::default(),
            emptied: 0,
            hasher: RandomState::default(),
            tracks_unsynced,
            fetching: Fetching::default(),
            partitions: None,
            now,
            notices: Notices::default(),
            footprint: Footprint::default(),
            changes: 0,
            expired: 0,
            hits: (0, 0),
        };
        keyspace.load_expiries()?;
        Ok(keyspace)
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// All keys, with what is pending.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// All keys as of now, for another thread.
    pub fn frozen(&mut self) -> Result<View> {
        self.shows_pending();
        Ok(View {
            source: Source::Snapshot(self.store.snapshot()?),
            overlay: self.view.overlay.clone(),
            is_ordered: self.view.is_ordered,
        })
    }

    /// The answer under way shows more than single keys: it may depend on any pending write.
    pub fn shows_pending(&mut self) {
        self.footprint.is_pending |= self.view.overlay.is_awaited();
        let last = self.unsynced.values().copied().max().unwrap_or(0);
        self.footprint.waits_for = self.footprint.waits_for.max(last);
    }

    /// How many keys a database has.
    pub fn count(&self, database: u8) -> Count {
        self.state.counts[usize::from(database)]
    }

    /// How many keys all databases have.
    pub fn count_all(&self) -> Count {
        let counts = self.state.counts.iter();
        counts.fold(Count::default(), |sum, count| Count {
            keys: sum.keys + count.keys,
            expiring: sum.expiring + count.expiring,
        })
    }

    /// Clients that watch keys and versions of those.
    pub fn watches(&mut self) -> &mut Watches {
        &mut self.watches
    }

    fn stored(&mut self, key: &[u8]) -> Result<Option<Value>> {
        if let Some(pending) = self.view.overlay.get(key) {
            self.footprint.is_pending |= !self.view.overlay.has_expired(key);
            return Ok(pending.map(Value::copy_of));
        }
        if !self.unsynced.is_empty() {
            let hash = self.hash(key);
            let round = self.unsynced.get(&hash).copied().unwrap_or(0);
            self.footprint.waits_for = self.footprint.waits_for.max(round).max(self.emptied);
        }
        if let Some(partitions) = &self.partitions {
            let number = partitions.dirty_number(key, self.hash(key));
            self.footprint.number = self.footprint.number.max(number);
        }
        self.fetch(key)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        use std::hash::BuildHasher;
        self.hasher.hash_one(key)
    }

    /// The entry of a key, as a client that reads it sees it.
    pub fn read(&mut self, database: u8, key: &[u8]) -> Result<Option<Entry>> {
        let entry = self.find(database, key)?;
        match entry {
            Some(_) => self.hits.0 += 1,
            None => {
                self.hits.1 += 1;
                self.notices.add(Class::Missed, "keymiss", database, key);
            }
        }
        Ok(entry)
    }

    /// The entry of a key. One that has expired is deleted and not there.
    pub fn find(&mut self, database: u8, key: &[u8]) -> Result<Option<Entry>> {
        if key.len() > layout::MOST_KEY_BYTES {
            return Ok(None);
        }
        let Some(entry) = self.raw(database, key)? else {
            return Ok(None);
        };
        match entry.expires {
            Some(moment) if moment <= self.now => {
                // Elsewhere it is the head that deletes it; a command that runs again does then.
                if self.leads(database) && !self.lacks_value() {
                    self.expire(database, key, &entry);
                }
                Ok(None)
            }
            _ => Ok(Some(entry)),
        }
    }

    /// The entry of a key that the command under way replaces whatever it is; that of a string
    /// may be without its bytes.
    pub fn find_replaced(&mut self, database: u8, key: &[u8]) -> Result<Option<Entry>> {
        match self.recent.get(database, key) {
            Some(expires) if expires.is_none_or(|moment| moment > self.now) => Ok(Some(Entry {
                kind: Kind::String,
                expires,
                body: Value::copy_of(b""),
            })),
            _ => self.find(database, key),
        }
    }

    fn raw(&mut self, database: u8, key: &[u8]) -> Result<Option<Entry>> {
        let Some(stored) = self.stored(&layout::entry_key(database, key))? else {
            return Ok(None);
        };
        match Entry::decode(&stored) {
            Some(entry) => Ok(Some(entry)),
            None => Err(foreign(&self.store)),
        }
    }

    /// Gives a key a value in place of `old`, which [`Keyspace::find`] has answered, or
    /// [`Keyspace::find_replaced`].
    ///
    /// # Errors
    /// `LimitExceeded` for a key that is too long.
    pub fn put(
        &mut self,
        database: u8,
        key: &[u8],
        old: Option<&Entry>,
        (kind, expires): (Kind, Option<u64>),
        body: &[u8],
    ) -> Result<()> {
        check_key(key)?;
        self.footprint.is_pending = true;
        if old.is_none() {
            self.state.counts[usize::from(database)].keys += 1;
            self.notices.add(Class::New, "new", database, key);
            if self.view.is_ordered {
                let order = layout::order_key(database, self.state.seed, key);
                self.view.overlay.put(order, Vec::new());
            }
        }
        if let Some(hash) = old.and_then(Entry::hash) {
            let stays = kind == Kind::Hash && body.starts_with(&hash.number.to_le_bytes());
            if !stays {
                self.drop_fields(database, hash);
            }
        }
        self.move_expiry(database, key, old.and_then(|old| old.expires), expires);
        let stored = Entry::encode(kind, expires, body);
        match kind {
            Kind::String => self.recent.note(database, key, expires),
            Kind::Hash => self.recent.forget(database, key),
        }
        let entry_key = layout::entry_key(database, key);
        self.view.overlay.put(entry_key, stored);
        self.touch(database, key);
        Ok(())
    }

    /// Takes a key away whose entry [`Keyspace::find`] has answered.
    pub fn remove(&mut self, database: u8, key: &[u8], old: &Entry) {
        if let Some(hash) = old.hash() {
            self.drop_fields(database, hash);
        }
        self.detach(database, key, old);
    }

    /// Takes a key away, and leaves the fields of a hash where they are.
    fn detach(&mut self, database: u8, key: &[u8], old: &Entry) {
        self.footprint.is_pending = true;
        let count = &mut self.state.counts[usize::from(database)];
        count.keys = count.keys.saturating_sub(1);
        if self.view.is_ordered {
            let order = layout::order_key(database, self.state.seed, key);
            self.view.overlay.delete(order);
        }
        self.move_expiry(database, key, old.expires, None);
        self.recent.forget(database, key);
        self.view.overlay.delete(layout::entry_key(database, key));
        self.touch(database, key);
    }

    /// Moves an entry to another key of its database, in place of what is there.
    pub fn rename(&mut self, database: u8, from: &[u8], entry: &Entry, to: &[u8]) -> Result<()> {
        let replaced = self.find(database, to)?;
        check_key(to)?;
        self.detach(database, from, entry);
        let kind = (entry.kind, entry.expires);
        self.put(database, to, replaced.as_ref(), kind, &entry.body)
    }

    /// Copies an entry to another key, of any database, in place of what is there.
    pub fn copy(&mut self, from: u8, entry: &Entry, to: u8, key: &[u8]) -> Result<()> {
        let replaced = self.find(to, key)?;
        check_key(key)?;
        let kind = (entry.kind, entry.expires);
        let Some(hash) = entry.hash() else {
            return self.put(to, key, replaced.as_ref(), kind, &entry.body);
        };
        let copy = HashHeader {
            fields: hash.fields,
            ..self.new_hash()
        };
        let mut fields = Vec::new();
        self.fields(from, hash, |field, value| {
            fields.push((field.to_vec(), value.to_vec()));
            Walk::On
        })?;
        for (field, value) in fields {
            self.put_field(to, copy, &field, &value);
        }
        self.put(to, key, replaced.as_ref(), kind, &copy.encode())
    }

    fn drop_fields(&mut self, database: u8, hash: HashHeader) {
        self.view
            .overlay
            .empty(layout::fields(database, hash.number));
    }

    /// A key has changed.
    pub fn touch(&mut self, database: u8, key: &[u8]) {
        self.changes += 1;
        self.watches.touch(database, key);
    }

    /// A field of a hash.
    pub fn field(&mut self, database: u8, hash: HashHeader, field: &[u8]) -> Result<Option<Value>> {
        self.stored(&layout::field_key(database, hash.number, field))
    }

    /// Gives a field of a hash a value. The caller writes the header.
    pub fn put_field(&mut self, database: u8, hash: HashHeader, field: &[u8], value: &[u8]) {
        self.footprint.is_pending = true;
        let key = layout::field_key(database, hash.number, field);
        self.view.overlay.put(key, value.to_vec());
    }

    /// Takes a field of a hash away. The caller writes the header.
    pub fn remove_field(&mut self, database: u8, hash: HashHeader, field: &[u8]) {
        self.footprint.is_pending = true;
        let key = layout::field_key(database, hash.number, field);
        self.view.overlay.delete(key);
    }

    /// Shows the fields of a hash, from `from` on.
    pub fn fields(
        &mut self,
        database: u8,
        hash: HashHeader,
        mut visit: impl FnMut(&[u8], &[u8]) -> Walk,
    ) -> Result<()> {
        self.shows_pending();
        let range = layout::fields(database, hash.number);
        self.view.walk(
            &range,
            Direction::Forward,
            Read::Entries,
            |stored, value| visit(layout::field_of(stored), value),
        )
    }

    /// A number for a new hash.
    pub fn new_hash(&mut self) -> HashHeader {
        let number = self.state.next_number;
        self.state.next_number += 1;
        HashHeader { number, fields: 0 }
    }

    /// Takes all keys of a database away.
    pub fn flush(&mut self, database: u8) -> Result<()> {
        for key in self.watches.keys_of(database) {
            if self.raw(database, &key)?.is_some() {
                self.watches.touch(database, &key);
            }
        }
        self.footprint.is_pending = true;
        self.changes += self.count(database).keys;
        if self.view.is_ordered {
            self.view.overlay.empty(layout::database(database));
        } else {
            let mut keys = Vec::new();
            self.view.keys(database, None, |key| {
                keys.push(layout::entry_key(database, key));
                Walk::On
            })?;
            for key in keys {
                self.view.overlay.delete(key);
            }
            self.expiries.empty(database);
        }
        self.recent.forget_all();
        self.state.counts[usize::from(database)] = Count::default();
        Ok(())
    }

    /// Why a range cannot be read where the engine has no order of keys.
    pub fn no_order(&self) -> String {
        let engine = self.store.capabilities().engine;
        format!("engine {engine} keeps keys in no order: serve a store of engine forest or wisckey")
    }

    /// Bytes that wait for the next commit.
    pub fn pending_bytes(&self) -> usize {
        self.view.overlay.bytes()
    }

    /// True if nothing waits for a commit.
    pub fn is_committed(&self) -> bool {
        self.view.overlay.is_empty()
    }

    /// Keys of a range of a database with their entries, for `CAMBIUM.SCAN`.
    pub fn entries(
        &mut self,
        database: u8,
        range: &KeyRange,
        direction: Direction,
        mut visit: impl FnMut(&[u8], Entry) -> Walk,
    ) -> Result<()> {
        self.shows_pending();
        let range = layout::entries(database, range);
        let now = self.now;
        self.view.walk(
            &range,
            direction,
            Read::Entries,
            |stored, value| match Entry::decode(&Value::copy_of(value)) {
                Some(entry) if entry.expires.is_none_or(|moment| moment > now) => {
                    visit(layout::key_of_entry(stored), entry)
                }
                _ => Walk::On,
            },
        )
    }
}

/// Refuses a key that is too long.
///
/// # Errors
/// `LimitExceeded`.
pub fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= layout::MOST_KEY_BYTES {
        return Ok(());
    }
    Err(Error::LimitExceeded(format!(
        "key of {} bytes: keys have up to {} bytes",
        key.len(),
        layout::MOST_KEY_BYTES
    )))
}

fn foreign(store: &Store) -> Error {
    Error::InvalidArgument(format!(
        "{} holds entries that cambium-server did not write: serve a store of its own",
        store.path().display()
    ))
}
