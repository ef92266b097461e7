//! The layouts of a note's items ([`crate::note`]).

use cambium_base::layout::{Layout, field};

/// The item that says from where recovery replays.
pub const HEAD_LAYOUT: Layout = Layout {
    name: "Note: head",
    about: "The `vlog_head`: the tables hold every write up to here, and the log behind it the rest. Shorter items: a byte 4 and a segment's number (4): it was dropped; a byte 5 and a number (4): the next file's; a byte 6, a namespace's number (2), length (1) and text of its name; a byte 9 and a sequence number (8): the log no longer has all changes up to it; a byte 10, a sequence number (8) and a name, in which a length (1) precedes the text: the state as of the edit is kept as a named snapshot; a byte 11, the same, a count (4) of segments, each with its number (4) and the bytes of records (8) that the snapshot points to, a count (4) of pairs of sequence numbers (16) as in a byte 17, a count (4) of namespaces, each with its number (2) and name: a named snapshot that a full note begins with; a byte 12 and a name: that snapshot was dropped; a byte 13, a sequence number (8) and a name: with this number the store went back to that snapshot; a byte 14, a namespace's number (2) and a sequence number (8): it was dropped with this number; a byte 15 and a number (4): the next namespace's; a byte 16 and a sequence number (8): the log was synced up to it; a byte 17 and two sequence numbers (16): a rollback undid the writes after the first, up to the second.",
    fields: &[
        field(0, 1, "tag", "1"),
        field(1, 8, "sequence", "every write up to here is in tables"),
        field(9, 4, "segment", "where the log goes on"),
        field(13, 8, "offset", "in that segment"),
        field(21, 4, "session", "lower ones do not count from there on"),
    ],
    size: 25,
}
.checked();

/// The item of a segment.
pub const SEGMENT_LAYOUT: Layout = Layout {
    name: "Note: segment",
    about: "A segment that tables may point into; a later item for the same number replaces all but its garbage.",
    fields: &[
        field(0, 1, "tag", "2"),
        field(1, 4, "number", "of the segment"),
        field(5, 1, "kind", "0 written, 1 moved"),
        field(
            6,
            8,
            "value_bytes",
            "bytes of records that tables have pointed to",
        ),
        field(14, 8, "end", "where its records end"),
        field(
            22,
            8,
            "last",
            "sequence number of the last record of a written segment; 0 of a moved one",
        ),
    ],
    size: 30,
}
.checked();

/// The item of garbage.
pub const GARBAGE_LAYOUT: Layout = Layout {
    name: "Note: garbage",
    about: "Tables no longer point to this many bytes more of a segment: entries that were overwritten, deleted or moved and that a flush or compaction dropped.",
    fields: &[
        field(0, 1, "tag", "3"),
        field(1, 4, "number", "of the segment"),
        field(5, 8, "bytes", "of records, padding included"),
    ],
    size: 13,
}
.checked();

/// The item of a hole.
pub const HOLE_LAYOUT: Layout = Layout {
    name: "Note: hole",
    about: "A run of whole records that tables no longer point to. Its whole blocks may read as zeros: their space went back. Counted as garbage by an item of its own.",
    fields: &[
        field(0, 1, "tag", "8"),
        field(1, 4, "number", "of the segment"),
        field(5, 8, "offset", "of the first record"),
        field(13, 8, "bytes", "up to the end of the last one"),
    ],
    size: 21,
}
.checked();

/// The item of traffic.
pub const TRAFFIC_LAYOUT: Layout = Layout {
    name: "Note: traffic",
    about: "Bytes written since the store was made, for statistics.",
    fields: &[
        field(0, 1, "tag", "7"),
        field(1, 8, "user_bytes", "keys and values"),
        field(9, 8, "log_bytes", "records of writers, padding included"),
        field(
            17,
            8,
            "moved_bytes",
            "records that garbage collection moved",
        ),
        field(25, 8, "freed_bytes", "of segments that were dropped"),
        field(33, 8, "tree_bytes", "tables and manifests of the tree"),
    ],
    size: 41,
}
.checked();
