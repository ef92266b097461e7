//! A node as it is read: a view of its columns, checked once, never copied.
//!
//! [`NodeView::parse`] checks in constant time that the columns fit the block.
//! What it does not check (the order of keys, the ends of rests) can give a
//! wrong answer from a damaged node, but no panic and no read beyond it; the
//! tree's `check` looks at all of it.

use cambium_base::coding::common_prefix;
use cambium_base::{Error, Result};

use crate::node_store::{NODE_TRAILER_BYTES, Node, NodeAddress, NodeReader};

use super::layout::{
    FLAG_SAME_LENGTH, FLAGS_AT, HEAD_MOST_BYTES, HEADER_BYTES, LEVEL_AT, METADATA_AT, MOST_LEVELS,
    NODE_TAG, PREFIX_AT, RESTS_AT, STRIDE_AT, SUFFIX_AT, TAG_AT, VALUE_BYTES_AT, VALUES_AT,
};

/// Bytes after the last column that are there to be read with it: a search takes
/// eight bytes wherever a head or a value begins.
pub(super) const READ_BEYOND_BYTES: usize = 8;

/// A node's columns.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    bytes: &'a [u8],
    level: u8,
    same_length: bool,
    value_bytes: usize,
    values: usize,
    prefix_bytes: usize,
    stride: usize,
    heads_at: usize,
    values_at: usize,
    ends_at: usize,
    rests_at: usize,
    metadata_at: usize,
    end: usize,
}

fn field(header: &[u8; HEADER_BYTES], at: usize) -> usize {
    usize::from(u16::from_le_bytes([header[at], header[at + 1]]))
}

impl<'a> NodeView<'a> {
    /// Looks at a verified block, or at as much of one as
    /// [`bytes_to_keep`](NodeView::bytes_to_keep) says.
    ///
    /// # Errors
    /// What in it cannot be.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let room = bytes.len().saturating_sub(READ_BEYOND_BYTES);
        let Some(header) = bytes[..room].first_chunk::<HEADER_BYTES>() else {
            return Err(too_short(bytes));
        };
        let flags = header[FLAGS_AT];
        let same_length = flags & FLAG_SAME_LENGTH != 0;
        let level = header[LEVEL_AT];
        let values = field(header, VALUES_AT);
        let prefix_bytes = field(header, PREFIX_AT);
        let suffix_bytes = field(header, SUFFIX_AT);
        let stride = field(header, STRIDE_AT);
        let rest_bytes = field(header, RESTS_AT);
        let value_bytes = usize::from(header[VALUE_BYTES_AT]);
        let keys = values.saturating_sub(usize::from(level > 0));
        let ends_bytes = if same_length { 0 } else { 2 * keys };
        // Fields have 16 bits, so nothing overflows.
        let heads_at = HEADER_BYTES + prefix_bytes + suffix_bytes;
        let values_at = heads_at + keys * stride;
        let ends_at = values_at + values * value_bytes;
        let rests_at = ends_at + ends_bytes;
        let metadata_at = rests_at + rest_bytes;
        let end = metadata_at + field(header, METADATA_AT);
        let form_is_sound = if same_length {
            rest_bytes == 0
        } else {
            stride <= HEAD_MOST_BYTES && suffix_bytes == 0
        };
        let sound = header[TAG_AT] == NODE_TAG
            && flags <= FLAG_SAME_LENGTH
            && level <= MOST_LEVELS
            && values > 0
            && (1..=8).contains(&value_bytes)
            && form_is_sound
            && end <= room;
        if !sound {
            return Err(what_is_wrong(header, end, room));
        }
        Ok(NodeView {
            bytes,
            level,
            same_length,
            value_bytes,
            values,
            prefix_bytes,
            stride,
            heads_at,
            values_at,
            ends_at,
            rests_at,
            metadata_at,
            end,
        })
    }

    /// How much of a verified block, from its start, is worth keeping in memory:
    /// what lies after says nothing.
    ///
    /// # Errors
    /// What in the block cannot be.
    pub fn bytes_to_keep(block: &[u8]) -> Result<usize, String> {
        let view = NodeView::parse(block)?;
        let room = block.len().saturating_sub(NODE_TRAILER_BYTES);
        if view.end > room {
            return Err(format!("a node of {} bytes where {room} fit", view.end));
        }
        Ok(view.end + READ_BEYOND_BYTES)
    }

    /// 0 for a leaf; one more than its children's.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Entries of a leaf, or separators of an index node (one fewer than
    /// children).
    #[inline]
    pub fn keys(&self) -> usize {
        self.values - usize::from(self.level > 0)
    }

    /// Values of a leaf, or children of an index node; at least 1.
    pub fn values(&self) -> usize {
        self.values
    }

    /// Value `position`; 0 beyond the last.
    #[inline]
    pub fn value(&self, position: usize) -> u64 {
        let at = self.values_at + position * self.value_bytes;
        let word = self.bytes[at.min(self.bytes.len())..].first_chunk::<8>();
        word.map_or(0, |word| u64::from_le_bytes(*word)) & (u64::MAX >> (64 - 8 * self.value_bytes))
    }

    /// Child `position` of an index node.
    #[inline]
    pub fn child(&self, position: usize) -> NodeAddress {
        NodeAddress(self.value(position))
    }

    /// Whether the node's values are wide enough for this one.
    pub(super) fn takes_value(&self, value: u64) -> bool {
        value <= u64::MAX >> (64 - 8 * self.value_bytes)
    }

    /// The whole block of the node with other values at some positions; each must
    /// be one that it takes.
    pub(super) fn patched(&self, values: &[(usize, u64)], node_bytes: usize) -> Vec<u8> {
        let mut copy = Vec::with_capacity(node_bytes);
        copy.extend_from_slice(&self.bytes[..self.end]);
        copy.resize(node_bytes, 0);
        for &(position, value) in values {
            let at = self.values_at + position * self.value_bytes;
            let field = &mut copy[at..at + self.value_bytes];
            field.copy_from_slice(&value.to_le_bytes()[..self.value_bytes]);
        }
        copy
    }

    /// What the owner of the tree keeps in its root.
    pub fn metadata(&self) -> &'a [u8] {
        &self.bytes[self.metadata_at..self.end]
    }

    /// Bytes in use, header included, trailer not.
    pub fn used_bytes(&self) -> usize {
        self.end
    }

    /// What all keys of the node begin with.
    #[inline]
    pub fn prefix(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..HEADER_BYTES + self.prefix_bytes]
    }

    /// What all keys of the node end with.
    #[inline]
    pub(super) fn suffix(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES + self.prefix_bytes..self.heads_at]
    }

    /// Bytes of a head.
    #[inline]
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// The head of key `position`, as stored.
    #[inline]
    pub(super) fn head(&self, position: usize) -> &'a [u8] {
        let at = self.heads_at + position * self.stride;
        self.bytes.get(at..at + self.stride).unwrap_or_default()
    }

    /// The first `bytes` bytes, 1 to 8, of all heads as numbers.
    #[inline]
    pub(super) fn heads(&self, bytes: usize) -> Heads<'a> {
        let column = &self.bytes[self.heads_at..];
        Heads {
            column,
            last: column.len().saturating_sub(8),
            stride: self.stride,
            shift: 64 - 8 * bytes as u32,
            count: self.keys(),
        }
    }

    /// Where the rest of key `position` stops, within the rests.
    fn rest_end(&self, position: usize) -> usize {
        let at = self.ends_at + 2 * position;
        let end = self.bytes.get(at..at + 2).unwrap_or(&[0, 0]);
        usize::from(u16::from_le_bytes([end[0], end[1]]))
    }

    /// The rest of key `position`; empty where the ends make no sense.
    #[inline]
    pub(super) fn rest(&self, position: usize) -> &'a [u8] {
        let start = position
            .checked_sub(1)
            .map_or(0, |before| self.rest_end(before));
        let rests = &self.bytes[self.rests_at..self.metadata_at];
        rests
            .get(start..self.rest_end(position))
            .unwrap_or_default()
    }

    /// What follows the head of key `position`.
    #[inline]
    pub(super) fn behind_head(&self, position: usize) -> &'a [u8] {
        if self.same_length {
            self.suffix()
        } else {
            self.rest(position)
        }
    }

    /// The length of key `position`, if `key` begins with it.
    #[inline]
    pub(super) fn bytes_if_prefix(&self, position: usize, key: &[u8]) -> Option<usize> {
        let tail = key.strip_prefix(self.prefix())?;
        let tail = tail.strip_prefix(self.head(position))?;
        let behind = tail.strip_prefix(self.behind_head(position))?;
        Some(key.len() - behind.len())
    }

    /// How many bytes key `position` and `key` have alike at their beginning.
    pub(super) fn bytes_shared(&self, position: usize, key: &[u8]) -> usize {
        let mut shared = 0;
        for piece in [
            self.prefix(),
            self.head(position),
            self.behind_head(position),
        ] {
            let alike = common_prefix(piece, &key[shared..]);
            shared += alike;
            if alike < piece.len() {
                break;
            }
        }
        shared
    }

    /// Appends key `position` (of a leaf an entry's key, of an index node a
    /// separator) to `buffer`.
    #[inline]
    pub fn append_key(&self, position: usize, buffer: &mut Vec<u8>) {
        append(buffer, self.prefix());
        let at = self.heads_at + position * self.stride;
        let word = self
            .bytes
            .get(at..)
            .and_then(|word| word.first_chunk::<8>());
        match word {
            // Eight bytes are copied without a call, fewer are not.
            Some(word) if self.stride <= 8 => {
                buffer.extend_from_slice(word);
                buffer.truncate(buffer.len() - (8 - self.stride));
            }
            _ => append(buffer, self.head(position)),
        }
        append(buffer, self.behind_head(position));
    }

    /// Key `position` in a buffer of its own.
    pub fn key(&self, position: usize) -> Vec<u8> {
        let mut key = Vec::new();
        self.append_key(position, &mut key);
        key
    }

    /// Whether the ends of the rests ascend and use them up.
    pub(super) fn ends_are_sound(&self) -> bool {
        let keys = self.keys();
        if self.same_length || keys == 0 {
            return self.rests_at == self.metadata_at;
        }
        let ends: Vec<usize> = (0..keys).map(|position| self.rest_end(position)).collect();
        ends.is_sorted() && ends.last() == Some(&(self.metadata_at - self.rests_at))
    }
}

/// Short pieces are common, and a call to copy none or one byte is dear.
#[inline]
fn append(buffer: &mut Vec<u8>, piece: &[u8]) {
    match piece {
        [] => (),
        [only] => buffer.push(*only),
        _ => buffer.extend_from_slice(piece),
    }
}

/// The heads of a node as numbers that order as they do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads<'a> {
    column: &'a [u8],
    /// From where 8 bytes can be read at most.
    last: usize,
    stride: usize,
    /// How far the 8 bytes from a head on are shifted to the right.
    pub shift: u32,
    /// How many there are.
    pub count: usize,
}

impl Heads<'_> {
    /// The number of head `position`.
    #[inline]
    pub(super) fn word(&self, position: usize) -> u64 {
        // More bytes follow the last column, so that all of them have 8;
        // the smaller of the two keeps a search of damaged bytes within them,
        // and needs no branch.
        let at = (position * self.stride).min(self.last);
        let word = self.column[at..].first_chunk::<8>();
        word.map_or(0, |word| u64::from_be_bytes(*word)) >> self.shift
    }
}

#[cold]
fn too_short(bytes: &[u8]) -> String {
    format!("a node of {} bytes", bytes.len())
}

#[cold]
fn what_is_wrong(header: &[u8; HEADER_BYTES], end: usize, room: usize) -> String {
    if header[TAG_AT] != NODE_TAG {
        return format!(
            "the block is no tree node: it begins with {:#04x}, expected {NODE_TAG:#04x}",
            header[TAG_AT]
        );
    }
    format!(
        "the node's header cannot be: level {}, flags {:#x}, {} values of {} bytes, \
         a stride of {}, {end} bytes in all where {room} fit",
        header[LEVEL_AT],
        header[FLAGS_AT],
        field(header, VALUES_AT),
        header[VALUE_BYTES_AT],
        field(header, STRIDE_AT),
    )
}

/// Reads a node and sees that it is one of the level that its parent promises
/// (any level for a root): levels fall with every step, so a descent ends even
/// where a damaged node points at its ancestor.
pub(super) fn read_node<R: NodeReader + ?Sized>(
    reader: &R,
    address: NodeAddress,
    level: Option<u8>,
) -> Result<Node> {
    let node = reader.read(address)?;
    check_level(&node, level).map_err(|what| reader.corrupt(address, what))?;
    Ok(node)
}

fn check_level(node: &Node, level: Option<u8>) -> Result<(), String> {
    let found = NodeView::parse(node)?.level();
    match level {
        Some(level) if level != found => Err(wrong_level(level, found)),
        _ => Ok(()),
    }
}

/// What is said of a node of another level than its parent promises.
#[cold]
pub(super) fn wrong_level(expected: u8, found: u8) -> String {
    format!("a node of level {found} where its parent promises level {expected}")
}

/// A view of a node that was parsed before; the address is for the error.
pub(super) fn view<'a, R: NodeReader + ?Sized>(
    reader: &R,
    address: NodeAddress,
    node: &'a Node,
) -> Result<NodeView<'a>, Error> {
    NodeView::parse(node).map_err(|what| reader.corrupt(address, what))
}
