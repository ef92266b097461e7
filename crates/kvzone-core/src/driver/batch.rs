//! Changes that go to a store in one call.

use super::block::{Block, Operation};
use crate::adapter::Change;
use crate::values::Values;
use crate::versions::Versions;
use crate::workload::OperationKind;

#[derive(Debug, Default)]
pub struct Batch {
    values: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    /// Puts the values of these operations together; their writes begin.
    pub fn compose(&mut self, operations: &[Operation], values: &Values, versions: &Versions) {
        self.values.clear();
        self.ends.clear();
        for operation in operations {
            let number = operation.number;
            if operation.kind == OperationKind::Delete {
                versions.begin_delete(number);
            } else {
                let version = versions.begin_put(number);
                values.append(number, version, &mut self.values);
            }
            self.ends.push(self.values.len());
        }
    }

    /// The changes of the operations that it was composed of, and their bytes.
    pub fn changes<'b>(
        &'b self,
        block: &'b Block,
        operations: &[Operation],
    ) -> (Vec<Change<'b>>, u64) {
        let mut start = 0;
        let mut bytes = 0;
        let change = |(operation, &end): (&Operation, &usize)| {
            let key = block.key(operation);
            let value = &self.values[start..end];
            start = end;
            bytes += (key.len() + value.len()) as u64;
            if operation.kind == OperationKind::Delete {
                Change::Delete { key }
            } else {
                Change::Put { key, value }
            }
        };
        let changes = operations.iter().zip(&self.ends).map(change).collect();
        (changes, bytes)
    }
}
