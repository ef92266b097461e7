//! Write batches and preconditions.

use std::sync::Arc;

use cambium_base::{Error, Result};

use crate::cursor::KeyRange;
use crate::expiry::Expiry;
use crate::limits;

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Gives a key a value.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Takes a key away; no error if it is not there.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
    /// Takes all keys of a range away.
    DeleteRange {
        /// The range.
        range: KeyRange,
    },
}

/// Bytes that operations may put beside what they delete, such as a counter of the keys.
const MOST_BESIDE_DELETES: usize = 4096;

/// True if operations delete, and put next to nothing beside it: a store with little room takes
/// them.
pub fn gives_space_back<'o>(operations: impl Iterator<Item = &'o Operation>) -> bool {
    let (mut deletes, mut put) = (false, 0);
    for operation in operations {
        match operation {
            Operation::Put { key, value } => put += key.len() + value.len(),
            Operation::Delete { .. } | Operation::DeleteRange { .. } => deletes = true,
        }
    }
    deletes && put <= MOST_BESIDE_DELETES
}

impl Operation {
    /// Bytes of keys and values in it.
    pub fn bytes(&self) -> u64 {
        let count = match self {
            Operation::Put { key, value } => key.len() + value.len(),
            Operation::Delete { key } => key.len(),
            Operation::DeleteRange { range } => {
                range.from.as_ref().map_or(0, Vec::len) + range.to.as_ref().map_or(0, Vec::len)
            }
        };
        count as u64
    }
}

/// Changes that are seen, and survive, whole or not at all. Later operations
/// on a key win over earlier ones of the same batch.
///
/// ```
/// use cambium_api::WriteBatch;
/// let mut batch = WriteBatch::new();
/// batch.put("oak", "tree").delete("elm");
/// assert_eq!(batch.len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBatch {
    operations: Vec<(Namespace, Operation)>,
    bytes: u64,
    /// Puts that expire or merge, by their places, in order.
    special: Vec<(usize, Special)>,
}

/// Marks a put of a batch that expires or merges. The value layer of a store (`cambium-values`)
/// turns such puts into plain ones before an engine sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Special {
    /// The entry expires.
    Expires(Expiry),
    /// The value is an operand for the merge operator of this name.
    Merge(Arc<str>),
}

/// The namespace an operation is for: `None` is the default one.
pub type Namespace = Option<Arc<str>>;

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put to the default namespace.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.push(
            None,
            Operation::Put {
                key: key.as_ref().to_vec(),
                value: value.as_ref().to_vec(),
            },
        )
    }

    /// Adds a delete to the default namespace.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        let key = key.as_ref().to_vec();
        self.push(None, Operation::Delete { key })
    }

    /// Adds a put to the default namespace, of an entry that expires.
    pub fn put_expiring(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Expiry,
    ) -> &mut Self {
        self.put(key, value).make_special(Special::Expires(expiry))
    }

    /// Adds a merge to the default namespace: the operator of this name makes the next
    /// value of the current one, which may come from this batch, and the operand.
    pub fn merge(
        &mut self,
        operator: &str,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.put(key, operand)
            .make_special(Special::Merge(Arc::from(operator)))
    }

    /// Makes the put that was added last a special one; of anything else it does nothing.
    pub fn make_special(&mut self, special: Special) -> &mut Self {
        if let Some((_, Operation::Put { .. })) = self.operations.last() {
            let place = self.operations.len() - 1;
            self.special.retain(|(of, _)| *of != place);
            self.special.push((place, special));
        }
        self
    }

    /// Takes out what is special about puts, by their places in order.
    pub fn take_special(&mut self) -> Vec<(usize, Special)> {
        std::mem::take(&mut self.special)
    }

    /// True if a put of it is a merge.
    pub fn has_merges(&self) -> bool {
        let mut special = self.special.iter();
        special.any(|(_, special)| matches!(special, Special::Merge(_)))
    }

    /// Lets `change` see every put's place, key and value, and replace the value.
    ///
    /// # Errors
    /// The first of `change`; later puts are as they were.
    pub fn change_values(
        &mut self,
        mut change: impl FnMut(usize, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        for (place, (_, operation)) in self.operations.iter_mut().enumerate() {
            if let Operation::Put { value, .. } = operation {
                let before = value.len() as u64;
                change(place, value)?;
                self.bytes = self.bytes - before + value.len() as u64;
            }
        }
        Ok(())
    }

    /// Adds the deletion of a range to the default namespace.
    pub fn delete_range(&mut self, range: impl Into<KeyRange>) -> &mut Self {
        let range = range.into();
        self.push(None, Operation::DeleteRange { range })
    }

    /// Adds an operation to a namespace.
    pub fn push(&mut self, namespace: Namespace, operation: Operation) -> &mut Self {
        self.bytes += operation.bytes();
        self.operations.push((namespace, operation));
        self
    }

    /// Adds the operations of another batch behind those of this one.
    ///
    /// ```
    /// use cambium_api::{Special, WriteBatch};
    /// let mut counted = WriteBatch::new();
    /// counted.merge("append", "oak", "1");
    /// let mut batch = WriteBatch::new();
    /// batch.put("elm", "tree").append(counted);
    /// assert_eq!(batch.take_special(), [(1, Special::Merge("append".into()))]);
    /// ```
    pub fn append(&mut self, other: WriteBatch) -> &mut Self {
        let behind = self.operations.len();
        let special = other.special.into_iter();
        self.special
            .extend(special.map(|(place, special)| (behind + place, special)));
        self.operations.extend(other.operations);
        self.bytes += other.bytes;
        self
    }

    /// The operations in order.
    pub fn operations(&self) -> &[(Namespace, Operation)] {
        &self.operations
    }

    /// The operations in order, given away.
    pub fn into_operations(self) -> Vec<(Namespace, Operation)> {
        self.operations
    }

    /// How many operations there are.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes all operations, keeping the memory.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.special.clear();
        self.bytes = 0;
    }

    /// Refuses keys, values or a batch beyond the limits of every engine.
    pub fn check_limits(&self) -> Result<()> {
        if !self.special.is_empty() {
            return Err(Error::InvalidArgument(
                "a batch with expiring puts or merges, on an engine that was opened without the \
                 value layer: open the store through the facade"
                    .to_string(),
            ));
        }
        for (_, operation) in &self.operations {
            match operation {
                Operation::Put { key, value } => {
                    limits::check_key(key)?;
                    limits::check_stored_value(value)?;
                }
                Operation::Delete { key } => limits::check_key(key)?,
                Operation::DeleteRange { range } => range.check_limits()?,
            }
        }
        if self.bytes > limits::MAX_BATCH_BYTES {
            return Err(Error::LimitExceeded(format!(
                "a batch of {} bytes: batches have up to {} bytes (2 GiB)",
                self.bytes,
                limits::MAX_BATCH_BYTES
            )));
        }
        Ok(())
    }
}

/// What must hold for `write_if` to write anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The key has this value now.
    Equals {
        /// The key.
        key: Vec<u8>,
        /// The value it must have.
        value: Vec<u8>,
    },
    /// The key is there, with any value.
    Present {
        /// The key.
        key: Vec<u8>,
    },
    /// The key is not there.
    Absent {
        /// The key.
        key: Vec<u8>,
    },
}

impl Precondition {
    /// The key it speaks of.
    pub fn key(&self) -> &[u8] {
        match self {
            Precondition::Equals { key, .. }
            | Precondition::Present { key }
            | Precondition::Absent { key } => key,
        }
    }

    /// True if it holds for what the key has now.
    pub fn holds(&self, current: Option<&[u8]>) -> bool {
        match self {
            Precondition::Equals { value, .. } => current == Some(value.as_slice()),
            Precondition::Present { .. } => current.is_some(),
            Precondition::Absent { .. } => current.is_none(),
        }
    }
}
