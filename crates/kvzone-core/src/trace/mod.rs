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
//! Integers of headers are little-endian. A record is a tuple in the wire format of
//! [postcard](https://postcard.jamesmunns.com/wire-format).
//!
//! ```text
//!  file     header  chunk  chunk ...  end
//!  header   "kvztrace"  version u32 = 2  checksum u32 of what is before it
//!  chunk    payload bytes u32  records u32  number u64  checksum u64  payload
//!  end      a chunk with 0 records; its payload is the number of all, u64
//!  record   thread u32, moment i64 (nanoseconds since the record before it in the
//!           chunk began; of the first, since the trace did), operation [Traced]
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

use serde::{Deserialize, Serialize};

pub use reader::{Record, TraceReader};
pub use tape::{Recorded, Tape};
pub use writer::TraceWriter;

/// How a trace is named as a workload: `trace:FILE`.
pub const PREFIX: &str = "trace:";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Traced<'a> {
    Load {
        key: &'a [u8],
        value_bytes: u64,
    },
    Put {
        key: &'a [u8],
        value_bytes: u64,
    },
    Get {
        key: &'a [u8],
        answer: Answer,
    },
    Delete {
        key: &'a [u8],
    },
    Scan {
        /// From here on, inclusive.
        from: &'a [u8],
        limit: u64,
        /// So many came, where that is known.
        visited: Option<u64>,
    },
    Batch(#[serde(borrow)] Vec<TracedChange<'a>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedChange<'a> {
    pub key: &'a [u8],
    /// Bytes of the value; none for a deletion.
    pub value_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Unknown,
    Absent,
    Found(u64),
}
