//! How many bytes a node of some entries takes, and writing it.
//!
//! [`Gauge`] is fed entry by entry and knows after each how large a node of
//! all so far would be, so that a run is cut into nodes in one pass. A node
//! never gets smaller by an entry more: what all keys share only shrinks.

use cambium_base::{Error, Result};

use crate::node_store::NODE_TRAILER_BYTES;

use cambium_base::coding::common_prefix;

use super::layout::{
    FLAG_SAME_LENGTH, FLAGS_AT, HEAD_MOST_BYTES, HEADER_BYTES, LEVEL_AT, METADATA_AT, NODE_TAG,
    PREFIX_AT, RESTS_AT, STRIDE_AT, SUFFIX_AT, TAG_AT, VALUE_BYTES_AT, VALUES_AT,
};
use super::node::READ_BEYOND_BYTES;
use super::run::{Run, common_suffix};

/// How the nodes of a level are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeForm {
    /// 0 for leaves.
    pub level: u8,
    /// Whether what keys share is left out, and values are narrow.
    pub compressed: bool,
}

impl NodeForm {
    /// Whether the nodes hold children.
    pub(super) fn is_index(self) -> bool {
        self.level > 0
    }
}

/// The size of a node, entry by entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gauge<'a> {
    form: NodeForm,
    values: usize,
    keys: usize,
    first: &'a [u8],
    prefix: usize,
    suffix: usize,
    shortest: usize,
    longest: usize,
    key_bytes: usize,
    all_values: u64,
}

impl<'a> Gauge<'a> {
    pub(super) fn new(form: NodeForm) -> Self {
        Gauge {
            form,
            values: 0,
            keys: 0,
            first: &[],
            prefix: 0,
            suffix: 0,
            shortest: 0,
            longest: 0,
            key_bytes: 0,
            all_values: 0,
        }
    }

    /// A gauge that was fed entries `start..end`.
    pub(super) fn of(form: NodeForm, run: &'a Run, start: usize, end: usize) -> Self {
        let mut gauge = Gauge::new(form);
        for position in start..end {
            gauge.push(run.key(position), run.value(position));
        }
        gauge
    }

    /// Takes the next entry. The first key of an index node is not stored: the
    /// parent has it.
    pub(super) fn push(&mut self, key: &'a [u8], value: u64) {
        self.all_values |= value;
        self.values += 1;
        if self.form.is_index() && self.values == 1 {
            return;
        }
        self.keys += 1;
        self.key_bytes += key.len();
        if self.keys == 1 {
            self.first = key;
            self.shortest = key.len();
            self.longest = key.len();
            if self.form.compressed {
                self.prefix = key.len();
                self.suffix = key.len();
            }
            return;
        }
        self.shortest = self.shortest.min(key.len());
        self.longest = self.longest.max(key.len());
        let first = self.first;
        self.prefix = common_prefix(&first[..self.prefix], key);
        self.suffix = common_suffix(&first[first.len() - self.suffix..], key);
    }

    fn value_bytes(&self) -> usize {
        if self.form.compressed {
            (64 - (self.all_values | 1).leading_zeros() as usize).div_ceil(8)
        } else {
            8
        }
    }

    fn columns(&self) -> Columns {
        let same_length = self.shortest == self.longest;
        let beyond = self.shortest - self.prefix;
        let suffix = if same_length {
            self.suffix.min(beyond)
        } else {
            0
        };
        let stride = if same_length {
            beyond - suffix
        } else {
            beyond.min(HEAD_MOST_BYTES)
        };
        let stored = self.key_bytes - self.keys * (self.prefix + suffix);
        Columns {
            same_length,
            prefix: self.prefix,
            suffix,
            stride,
            rests: stored - self.keys * stride,
        }
    }

    /// Bytes of a node of the entries so far, header included, without
    /// metadata and trailer.
    pub(super) fn bytes(&self) -> usize {
        let columns = self.columns();
        let ends = if columns.same_length {
            0
        } else {
            2 * self.keys
        };
        HEADER_BYTES
            + columns.prefix
            + columns.suffix
            + self.keys * columns.stride
            + self.values * self.value_bytes()
            + ends
            + columns.rests
    }
}

/// How the keys of a node are taken apart.
struct Columns {
    same_length: bool,
    prefix: usize,
    suffix: usize,
    stride: usize,
    rests: usize,
}

/// Bytes of a block that its node can use: so many that what a cache keeps of a
/// full node, and the count of its references, are no more than a block. Files
/// from before hold nodes that are fuller by [`READ_BEYOND_BYTES`].
pub(crate) fn room(node_bytes: usize) -> usize {
    node_bytes - NODE_TRAILER_BYTES - READ_BEYOND_BYTES
}

/// Writes entries `start..end` of a run, at least one, as a node.
///
/// # Errors
/// `LimitExceeded` if they do not fit; whoever cut the run saw to it.
pub(super) fn encode(
    form: NodeForm,
    run: &Run,
    (start, end): (usize, usize),
    metadata: &[u8],
    node_bytes: usize,
) -> Result<Vec<u8>> {
    let gauge = Gauge::of(form, run, start, end);
    let needed = gauge.bytes() + metadata.len();
    if start >= end || needed > room(node_bytes) {
        return Err(Error::LimitExceeded(format!(
            "a tree node of {} entries needs {needed} bytes and has {}: larger nodes, or shorter keys",
            end - start,
            room(node_bytes)
        )));
    }
    let columns = gauge.columns();
    let mut node = Vec::with_capacity(node_bytes);
    node.extend_from_slice(&header(&gauge, &columns, metadata.len()));
    node.extend_from_slice(&gauge.first[..columns.prefix]);
    node.extend_from_slice(&gauge.first[gauge.first.len() - columns.suffix..]);
    let first_key = start + usize::from(form.is_index());
    for position in first_key..end {
        append_head(
            &mut node,
            &run.key(position)[columns.prefix..],
            columns.stride,
        );
    }
    let width = gauge.value_bytes();
    for position in start..end {
        node.extend_from_slice(&run.value(position).to_le_bytes());
        node.truncate(node.len() - (8 - width));
    }
    if !columns.same_length {
        let skipped = columns.prefix + columns.stride;
        let mut rest_end = 0;
        for position in first_key..end {
            rest_end += run.key(position).len() - skipped;
            node.extend_from_slice(&(rest_end as u16).to_le_bytes());
        }
        for position in first_key..end {
            node.extend_from_slice(&run.key(position)[skipped..]);
        }
    }
    node.extend_from_slice(metadata);
    node.resize(node_bytes, 0);
    Ok(node)
}

/// Appends the first `stride` bytes of `tail`; eight at once, since a call to
/// copy fewer is dearer.
#[inline]
fn append_head(node: &mut Vec<u8>, tail: &[u8], stride: usize) {
    match tail.first_chunk::<8>() {
        Some(word) if stride <= 8 => {
            node.extend_from_slice(word);
            node.truncate(node.len() - (8 - stride));
        }
        _ => node.extend_from_slice(&tail[..stride]),
    }
}

/// All sizes fit 16 bits, since a node has at most 65,536 bytes.
fn header(gauge: &Gauge<'_>, columns: &Columns, metadata_bytes: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[TAG_AT] = NODE_TAG;
    header[LEVEL_AT] = gauge.form.level;
    header[FLAGS_AT] = if columns.same_length {
        FLAG_SAME_LENGTH
    } else {
        0
    };
    header[VALUE_BYTES_AT] = gauge.value_bytes() as u8;
    let mut put = |at: usize, value: usize| {
        header[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
    };
    put(VALUES_AT, gauge.values);
    put(PREFIX_AT, columns.prefix);
    put(SUFFIX_AT, columns.suffix);
    put(STRIDE_AT, columns.stride);
    put(RESTS_AT, columns.rests);
    put(METADATA_AT, metadata_bytes);
    header
}
