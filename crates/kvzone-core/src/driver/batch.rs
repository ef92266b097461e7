//! Changes that go to a store in one call.

use super::block::Operation;
use crate::adapter::Change;
use crate::values::Values;
use crate::versions::Versions;
use crate::workload::OperationKind;

#[derive(Debug, Default)]
pub struct Batch {
    values: Vec<u8>,
    /// The end of the value of each change; none for a deletion.
    ends: Vec<Option<usize>>,
}

impl Batch {
    pub fn clear(&mut self) {
        self.values.clear();
        self.ends.clear();
    }

    /// Adds a put whose value is what this appends.
    pub fn put(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        append(&mut self.values);
        self.ends.push(Some(self.values.len()));
    }

    pub fn delete(&mut self) {
        self.ends.push(None);
    }

    /// Bytes of its values.
    pub fn value_bytes(&self) -> usize {
        self.values.len()
    }

    /// Puts the values of these operations together; their writes begin.
    pub fn compose(&mut self, operations: &[Operation], values: &Values, versions: &Versions) {
        self.clear();
        for operation in operations {
            let number = operation.number;
            if operation.kind == OperationKind::Delete {
                versions.begin_delete(number);
                self.delete();
            } else {
                let version = versions.begin_put(number);
                self.put(|all| values.append(number, version, all));
            }
        }
    }

    /// The changes, whose keys are these, and their bytes.
    pub fn changes<'b>(&'b self, keys: impl Iterator<Item = &'b [u8]>) -> (Vec<Change<'b>>, u64) {
        let (mut start, mut bytes) = (0, 0);
        let change = |(key, end): (&'b [u8], &Option<usize>)| {
            bytes += key.len() as u64;
            let Some(end) = *end else {
                return Change::Delete { key };
            };
            let value = &self.values[start..end];
            start = end;
            bytes += value.len() as u64;
            Change::Put { key, value }
        };
        let changes = keys.zip(&self.ends).map(change).collect();
        (changes, bytes)
    }
}
