//! Writes: values get their form; preconditions and merges see values.
//!
//! A write that must know current values runs as a transaction of the engine below
//! ([`transact`]): it reads what it needs, and is accepted only if none of that was written
//! meanwhile.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use cambium_api::batch::Namespace;
use cambium_api::transaction::transact;
use cambium_api::{
    Expiry, Operation, Precondition, Special, Transaction, TransactionView, UnixMillis, WriteBatch,
    limits,
};
use cambium_base::{Durability, Error, Result, SequenceNumber, Value};
use cambium_io::sync::atomic::Ordering;
use cambium_io::sync::{MutexGuard, lock};

use crate::form;
use crate::seeded_bug::SeededBug;
use crate::store::{FormedStore, Shared, or_poison};

impl Shared {
    /// Gives a value its form.
    pub fn encode(&self, value: &mut Vec<u8>, expires: Option<UnixMillis>) -> Result<()> {
        if let Some(stored) = self.form(value, expires)? {
            *value = stored;
        }
        Ok(())
    }

    /// The bytes that are stored for a value; `None` if they are the value itself.
    pub fn form(&self, value: &[u8], expires: Option<UnixMillis>) -> Result<Option<Vec<u8>>> {
        limits::check_value(value)?;
        let dictionary = self.dictionary.get();
        let Some(stored) = self.encoder.encode(dictionary, value, expires) else {
            return Ok(None);
        };
        if stored.len() < value.len() {
            let counters = &self.counters;
            let (before, after) = (value.len() as u64, stored.len() as u64);
            counters.plain_bytes.fetch_add(before, Ordering::Relaxed);
            counters.stored_bytes.fetch_add(after, Ordering::Relaxed);
        }
        Ok(Some(stored))
    }

    fn encoded(&self, mut value: Vec<u8>, expires: Option<UnixMillis>) -> Result<Vec<u8>> {
        self.encode(&mut value, expires)?;
        Ok(value)
    }
}

/// The change of one key.
enum Change {
    Store(Vec<u8>),
    Merge(Arc<str>, Vec<u8>),
    Delete,
}

impl FormedStore {
    /// A put of a value that is not stored as it is.
    pub fn put_formed(
        &self,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<SequenceNumber> {
        let stored = self.shared.form(value, None)?;
        self.sample(value);
        let stored = stored.as_deref().unwrap_or(value);
        self.inner.put(key, stored, durability)
    }

    /// Gives the values of a batch without merges their forms.
    pub fn encode_batch(&self, batch: &mut WriteBatch) -> Result<()> {
        let mut special = batch.take_special().into_iter().peekable();
        batch.change_values(|place, value| {
            let expires = match special.next_if(|(of, _)| *of == place) {
                Some((_, Special::Expires(expiry))) => Some(self.expires(expiry)?),
                Some((_, Special::Merge(_))) => {
                    return Err(Error::InvalidArgument(
                        "a merge within a transaction: read the key, and put what it becomes"
                            .to_string(),
                    ));
                }
                None => None,
            };
            self.sample(value);
            self.shared.encode(value, expires)
        })
    }

    /// Takes a value for a sample of the store's dictionary, if it wants any.
    fn sample(&self, value: &[u8]) {
        if self.shared.dictionary.sample(value) {
            self.work_from_now_on();
        }
    }

    /// The moment at which an entry that is written now expires. With the first such entry
    /// the sweep begins.
    fn expires(&self, expiry: Expiry) -> Result<UnixMillis> {
        let is_first = !self.shared.expiry.is_used();
        let moment = or_poison(&*self.inner, self.shared.expiry.expires(expiry))?;
        if is_first {
            self.work_from_now_on();
        }
        Ok(moment)
    }

    pub fn write_formed(
        &self,
        mut batch: WriteBatch,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        if batch.has_merges() {
            return self.write_knowing(&[], batch, durability);
        }
        self.encode_batch(&mut batch)?;
        self.inner.write(batch, durability)
    }

    pub fn write_formed_if(
        &self,
        preconditions: &[Precondition],
        batch: WriteBatch,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        let needs_values = |precondition: &Precondition| match precondition {
            Precondition::Equals { value, .. } => !form::is_plain(value),
            Precondition::Present { .. } | Precondition::Absent { .. } => false,
        };
        if self.shared.expiry.is_used()
            || batch.has_merges()
            || preconditions.iter().any(needs_values)
        {
            return self.write_knowing(preconditions, batch, durability);
        }
        let mut encoded = batch.clone();
        self.encode_batch(&mut encoded)?;
        match self.inner.write_if(preconditions, encoded, durability) {
            Err(Error::PreconditionFailed { index }) if self.may_hold(&preconditions[index])? => {
                self.write_knowing(preconditions, batch, durability)
            }
            done => done,
        }
    }

    /// True of a precondition that the engine takes for one that does not hold only
    /// because of the stored value's form.
    fn may_hold(&self, precondition: &Precondition) -> Result<bool> {
        let Precondition::Equals { key, .. } = precondition else {
            return Ok(self.shared.expiry.is_used());
        };
        let stored = self.inner.get(key)?;
        Ok(stored.is_some_and(|stored| !form::is_plain(&stored)))
    }

    /// A write that depends on current values.
    fn write_knowing(
        &self,
        preconditions: &[Precondition],
        mut batch: WriteBatch,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        let special: BTreeMap<usize, Special> = batch.take_special().into_iter().collect();
        let operations = batch.operations();
        let _merging = self.wait_for_merges(operations, &special);
        let begin = || Transaction::begin(&self.inner, durability, None);
        let (_, sequence) = transact(begin, &self.shared.starving, |transaction| {
            for (index, precondition) in preconditions.iter().enumerate() {
                let current = self.current(transaction, precondition.key())?;
                if !precondition.holds(current.as_deref()) {
                    return Err(Error::PreconditionFailed { index });
                }
            }
            for (place, (namespace, operation)) in operations.iter().enumerate() {
                self.write_into(transaction, namespace, operation, special.get(&place))?;
            }
            Ok(())
        })?;
        let changes_keys = |(_, operation): &(Namespace, Operation)| {
            matches!(operation, Operation::Put { .. } | Operation::Delete { .. })
        };
        if operations.iter().any(changes_keys) {
            return Ok(sequence);
        }
        // A transaction that may have written nothing has synced nothing.
        self.inner.write(WriteBatch::new(), durability)
    }

    /// The value of a key as a transaction sees it.
    fn current(&self, view: &TransactionView, key: &[u8]) -> Result<Option<Value>> {
        match view.get(key)? {
            Some(stored) => self.shared.decode(key, stored, None),
            None => Ok(None),
        }
    }

    /// Does an operation of a batch in a transaction of the engine.
    fn write_into(
        &self,
        transaction: &Transaction,
        namespace: &Namespace,
        operation: &Operation,
        special: Option<&Special>,
    ) -> Result<()> {
        let other;
        let view: &TransactionView = match namespace {
            None => transaction,
            Some(name) => {
                other = transaction.namespace(name)?;
                &other
            }
        };
        let (key, change) = match operation {
            Operation::DeleteRange { range } => return view.delete_range(range),
            Operation::Delete { key } => (key, Change::Delete),
            Operation::Put { key, value } => {
                let change = match special {
                    Some(Special::Merge(name)) => Change::Merge(name.clone(), value.clone()),
                    Some(Special::Expires(expiry)) => {
                        let moment = self.expires(*expiry)?;
                        Change::Store(self.shared.encoded(value.clone(), Some(moment))?)
                    }
                    None => Change::Store(self.shared.encoded(value.clone(), None)?),
                };
                (key, change)
            }
        };
        match change {
            Change::Delete => view.delete(key),
            Change::Store(stored) => view.put(key, stored),
            Change::Merge(name, operand) => {
                let operator = self.shared.operator(&name)?;
                let stored = match self.shared.seeded(SeededBug::MergeReadsStore) {
                    true => self.inner.get(key)?,
                    false => view.get(key)?,
                };
                let expires = match self.shared.seeded(SeededBug::MergeForgetsExpiry) {
                    true => None,
                    false => self.shared.expiry_of(key, stored.as_ref(), None)?,
                };
                let current = match stored {
                    Some(stored) => self.shared.decode(key, stored, None)?,
                    None => None,
                };
                let next = operator.merge(key, current.as_deref(), &operand)?;
                view.put(key, self.shared.encoded(next, expires)?)
            }
        }
    }

    /// Merges of the same keys wait for each other here, where that is cheaper than to
    /// repeat a transaction.
    fn wait_for_merges(
        &self,
        operations: &[(Namespace, Operation)],
        special: &BTreeMap<usize, Special>,
    ) -> Vec<MutexGuard<'_, ()>> {
        let places = &self.shared.merging;
        let merges = special.iter().filter_map(|(&at, special)| {
            let (namespace, operation) = operations.get(at)?;
            match (special, operation) {
                (Special::Merge(_), Operation::Put { key, .. }) => {
                    let mut hasher = DefaultHasher::new();
                    (namespace, key).hash(&mut hasher);
                    Some(hasher.finish() as usize % places.len())
                }
                _ => None,
            }
        });
        // In one order, so that two batches never wait for each other.
        let in_order: std::collections::BTreeSet<usize> = merges.collect();
        in_order
            .into_iter()
            .map(|place| lock(&places[place]))
            .collect()
    }

    /// Lets an entry expire at another moment, or never.
    pub fn change_expiry(
        &self,
        key: &[u8],
        expiry: Option<Expiry>,
        durability: Durability,
    ) -> Result<bool> {
        let begin = || Transaction::begin(&self.inner, durability, None);
        let (is_there, _) = transact(begin, &self.shared.starving, |transaction| {
            let Some(value) = self.current(transaction, key)? else {
                return Ok(false);
            };
            let expires = expiry.map(|expiry| self.expires(expiry)).transpose()?;
            let stored = self.shared.encoded(value.to_vec(), expires)?;
            transaction.put(key, stored)?;
            Ok(true)
        })?;
        Ok(is_there)
    }
}
