//! Operations drawn ahead, with the bytes of their keys.

use crate::keys::KeySpace;
use crate::workload::OperationKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub kind: OperationKind,
    /// The key's number; of [`OperationKind::ReadInOrder`] that of the first.
    pub number: u64,
    /// Entries to visit, of scans.
    pub span: u32,
    key_start: u32,
    key_bytes: u32,
}

/// Operations drawn ahead, with the bytes of their keys.
#[derive(Clone, Debug, Default)]
pub struct Block {
    pub operations: Vec<Operation>,
    keys: Vec<u8>,
}

impl Block {
    #[inline]
    pub fn key(&self, operation: &Operation) -> &[u8] {
        let start = operation.key_start as usize;
        &self.keys[start..start + operation.key_bytes as usize]
    }

    #[inline]
    pub fn push(&mut self, kind: OperationKind, number: u64, span: u32, keys: &KeySpace) {
        let key_start = self.keys.len() as u32;
        let key_bytes = keys.append(number, &mut self.keys) as u32;
        self.operations.push(Operation {
            kind,
            number,
            span,
            key_start,
            key_bytes,
        });
    }

    /// Takes an operation of another block, with its key.
    pub fn take(&mut self, other: &Block, operation: &Operation) {
        let key_start = self.keys.len() as u32;
        self.keys.extend_from_slice(other.key(operation));
        self.operations.push(Operation {
            key_start,
            ..*operation
        });
    }

    pub fn clear(&mut self) {
        self.operations.clear();
        self.keys.clear();
    }
}
