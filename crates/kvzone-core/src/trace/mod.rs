//! Traces: which operations a program asked of a store, and when.
//!
//! A trace is recorded around any store ([`Tape`]), by `kvzone run --record`, or
//! made of somebody else's text ([`import`]). It is replayed as a workload,
//! `trace:FILE`, against every store that KVZone knows ([`crate::driver`]).
//!
//! What a trace holds: of each operation its kind, the thread, the moment at
//! which it began, its keys as they are, and the sizes of values. Values
//! themselves are not in it: they are nobody's business, and replay makes its
//! own of the same sizes, which prove what they are ([`crate::values`]).
//!
//! What a trace says of the store before it began stands in front: an entry that
//! was there is a [`Traced::Load`]. Where a program recorded none, an entry that
//! was read before it was written must have been there, and is found so
//! ([`summary`]).
//!
//! # Bytes of a trace
//! All integers little-endian. `varint` is the usual one: seven bits a byte, the
//! lowest first, the eighth bit set but in the last byte.
//!
//! ```text
//!  file     header  chunk  chunk ...  end
//!  header   "kvztrace"  version u32 = 1  checksum u32 of what is before it
//!  chunk    payload bytes u32  records u32  number u64  checksum u64  payload
//!  end      a chunk with 0 records; its payload is the number of all, u64
//!
//!  record   kind u8  thread varint  moment varint (zigzag: nanoseconds since the
//!           record before it in the chunk began; of the first, since the trace did)
//!    load 0, put 1   key  value bytes varint
//!    get 2           key  answer varint: 0 unknown, 1 not there, n + 2 for n bytes
//!    delete 3        key
//!    scan 4          key  entries asked for varint  answer varint: 0 unknown,
//!                    n + 1 for n entries visited
//!    batch 5         changes varint, each: 0 u8 key value bytes varint, a put;
//!                    1 u8 key, a deletion
//!  key      bytes varint, and as many
//! ```
//!
//! The checksum of a chunk (xxh3) covers its header and payload, and its number
//! counts chunks from 0, so that a chunk that was damaged, lost or put elsewhere is
//! an error with file and offset. Each chunk is decoded by itself: whatever stands
//! before the damage is whole. A trace without its end was cut off while it was
//! recorded; [`TraceReader`] says so after the last whole chunk.

mod format;
pub mod import;
mod reader;
pub mod summary;
mod tape;
mod writer;

pub use reader::{Record, TraceReader};
pub use tape::{Recorded, Tape};
pub use writer::TraceWriter;

/// How a trace is named as a workload: `trace:FILE`.
pub const PREFIX: &str = "trace:";

/// One operation of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traced<'a> {
    /// This entry was there before.
    Load {
        /// The key.
        key: &'a [u8],
        /// Bytes of the value.
        value_bytes: u64,
    },
    /// A key was given a value.
    Put {
        /// The key.
        key: &'a [u8],
        /// Bytes of the value.
        value_bytes: u64,
    },
    /// A key's value was asked for.
    Get {
        /// The key.
        key: &'a [u8],
        /// What came.
        answer: Answer,
    },
    /// A key was taken away.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Entries in key order were asked for.
    Scan {
        /// From here on, inclusive.
        from: &'a [u8],
        /// At most so many.
        limit: u64,
        /// So many came, where that is known.
        visited: Option<u64>,
    },
    /// Changes in one call.
    Batch(Vec<TracedChange<'a>>),
}

/// One change of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedChange<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Bytes of the value; none for a deletion.
    pub value_bytes: Option<u64>,
}

/// What a get answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The trace does not say.
    Unknown,
    /// There was no such key.
    Absent,
    /// A value of so many bytes.
    Found(u64),
}
