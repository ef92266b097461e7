//! Blocks of a sorted run: entries that leave out what they share with the one before.
//!
//! They are made and read in memory alone, so their bytes are trusted.

use cambium_base::coding::{Decoder, common_prefix};
use cambium_base::varint::put_varint;

use super::RunEntry;
use crate::document::DocumentAddress;

const WHOLE: u64 = 1;
const REMOVED: u64 = 2;
const KIND_BITS: u32 = 2;

/// An entry where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'b> {
    /// Bytes that it has in common with the entry before.
    pub shared: usize,
    pub rest: &'b [u8],
    pub is_whole: bool,
    pub document: Option<DocumentAddress>,
}

/// Appends an entry after one whose known bytes are `before`.
pub(super) fn append(block: &mut Vec<u8>, before: &[u8], entry: &RunEntry) {
    let shared = match block.is_empty() {
        true => 0,
        false => common_prefix(before, &entry.known),
    };
    let rest = &entry.known[shared..];
    let mut kind = 0;
    if entry.is_whole {
        kind |= WHOLE;
    }
    if entry.document.is_none() {
        kind |= REMOVED;
    }
    put_varint(block, shared as u64);
    put_varint(block, (rest.len() as u64) << KIND_BITS | kind);
    block.extend_from_slice(rest);
    if let Some(address) = entry.document {
        block.extend_from_slice(&address.0.to_le_bytes());
    }
}

/// The entries of a block, one after the other.
pub(super) fn steps(block: &[u8]) -> impl Iterator<Item = Step<'_>> {
    let mut left = Decoder::new(block);
    std::iter::from_fn(move || {
        let shared = left.varint()? as usize;
        let head = left.varint()?;
        let rest = left.bytes((head >> KIND_BITS) as usize)?;
        let document = match head & REMOVED {
            0 => Some(left.u64()?),
            _ => None,
        };
        Some(Step {
            shared,
            rest,
            is_whole: head & WHOLE != 0,
            document: document.map(DocumentAddress),
        })
    })
}

/// The same with their known bytes.
pub(super) fn entries(block: &[u8]) -> Vec<RunEntry> {
    let mut known: Vec<u8> = Vec::new();
    let entry = |step: Step<'_>| {
        known.truncate(step.shared);
        known.extend_from_slice(step.rest);
        RunEntry {
            known: known.clone(),
            is_whole: step.is_whole,
            document: step.document,
        }
    };
    steps(block).map(entry).collect()
}

/// What is known of a block's first key.
pub(super) fn first_key(block: &[u8]) -> &[u8] {
    steps(block).next().map_or(&[], |step| step.rest)
}
