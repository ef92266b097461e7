//! Notes: what the manifest of the tree says of the value log.
//!
//! A note rides on an edit of the manifest and becomes true together with it: the
//! tables of a flush and the place from which recovery replays, the entries that a
//! compaction dropped and the garbage that they leave, are one step on the device
//! (section 3.4.2 keeps the head of the log as a key of the tree; an edit keeps it
//! without a write to the tree).
//!
//! ```text
//! note = item, item, …          each a tag byte and the fields of its layout
//! ```
//!
//! Notes are changes; put one after the other they give the whole state, which
//! begins the next manifest.

use cambium_base::coding::Decoder;
use cambium_base::layout::{Field, Layout};

use crate::format::{LARGEST_SEGMENT, SegmentKind};

const TAG_HEAD: u8 = 1;
const TAG_SEGMENT: u8 = 2;
const TAG_GARBAGE: u8 = 3;
const TAG_DROPPED: u8 = 4;
const TAG_NEXT_FILE: u8 = 5;
const TAG_NAMESPACE: u8 = 6;
const TAG_TRAFFIC: u8 = 7;
const TAG_HOLE: u8 = 8;
const TAG_HISTORY: u8 = 9;

/// The item that says from where recovery replays.
pub const HEAD_LAYOUT: Layout = Layout {
    name: "Note: head",
    about: "The `vlog_head`: the tables hold every write up to here, and the log behind it the rest. Shorter items: a byte 4 and a segment's number (4): it was dropped; a byte 5 and a number (4): the next file's; a byte 6, a namespace's number (2), length (1) and text of its name; a byte 9 and a sequence number (8): the log no longer has all changes up to it.",
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

const fn field(offset: usize, size: usize, name: &'static str, meaning: &'static str) -> Field {
    Field {
        offset,
        size,
        name,
        meaning,
    }
}

/// Up to where the tables hold the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Every write up to here is in tables.
    pub sequence: u64,
    /// Where the log goes on.
    pub segment: u32,
    /// In that segment, bytes.
    pub offset: u64,
    /// Lower sessions do not count from there on.
    pub session: u32,
}

/// A segment as tables know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentNote {
    /// Number of the segment.
    pub number: u32,
    /// What it holds.
    pub kind: SegmentKind,
    /// Bytes of records that tables have pointed to.
    pub value_bytes: u64,
    /// Where its records end.
    pub end: u64,
    /// The last write in a written segment.
    pub last: u64,
}

/// Bytes written since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Keys and values.
    pub user_bytes: u64,
    /// Records of writers.
    pub log_bytes: u64,
    /// Records that garbage collection moved.
    pub moved_bytes: u64,
    /// Of segments that were dropped.
    pub freed_bytes: u64,
    /// Tables and manifests.
    pub tree_bytes: u64,
}

/// One item of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteItem {
    /// From where recovery replays.
    Head(Head),
    /// A segment that tables may point into.
    Segment(SegmentNote),
    /// Bytes of a segment that tables no longer point to.
    Garbage {
        /// Number of the segment.
        segment: u32,
        /// Of records, padding included.
        bytes: u64,
    },
    /// A run of records of a segment whose space may have gone back.
    Hole {
        /// Number of the segment.
        segment: u32,
        /// Of the first record.
        offset: u64,
        /// Up to the end of the last one.
        bytes: u64,
    },
    /// A segment that nothing points into any more.
    Dropped(u32),
    /// The next file's number.
    NextFile(u32),
    /// A namespace.
    Namespace {
        /// Its number.
        number: u16,
        /// Its name, up to 255 bytes.
        name: String,
    },
    /// Bytes written.
    Traffic(Traffic),
    /// The log no longer has all changes up to this number.
    HistoryLost(u64),
}

impl NoteItem {
    /// Appends the item to a note.
    pub fn encode(&self, note: &mut Vec<u8>) {
        match self {
            NoteItem::Head(head) => {
                note.push(TAG_HEAD);
                note.extend_from_slice(&head.sequence.to_le_bytes());
                note.extend_from_slice(&head.segment.to_le_bytes());
                note.extend_from_slice(&head.offset.to_le_bytes());
                note.extend_from_slice(&head.session.to_le_bytes());
            }
            NoteItem::Segment(segment) => {
                note.push(TAG_SEGMENT);
                note.extend_from_slice(&segment.number.to_le_bytes());
                note.push(segment.kind.code());
                note.extend_from_slice(&segment.value_bytes.to_le_bytes());
                note.extend_from_slice(&segment.end.to_le_bytes());
                note.extend_from_slice(&segment.last.to_le_bytes());
            }
            NoteItem::Garbage { segment, bytes } => {
                note.push(TAG_GARBAGE);
                note.extend_from_slice(&segment.to_le_bytes());
                note.extend_from_slice(&bytes.to_le_bytes());
            }
            NoteItem::Hole {
                segment,
                offset,
                bytes,
            } => {
                note.push(TAG_HOLE);
                note.extend_from_slice(&segment.to_le_bytes());
                note.extend_from_slice(&offset.to_le_bytes());
                note.extend_from_slice(&bytes.to_le_bytes());
            }
            NoteItem::Dropped(number) => {
                note.push(TAG_DROPPED);
                note.extend_from_slice(&number.to_le_bytes());
            }
            NoteItem::NextFile(number) => {
                note.push(TAG_NEXT_FILE);
                note.extend_from_slice(&number.to_le_bytes());
            }
            NoteItem::Namespace { number, name } => {
                note.push(TAG_NAMESPACE);
                note.extend_from_slice(&number.to_le_bytes());
                let name = &name.as_bytes()[..name.len().min(usize::from(u8::MAX))];
                note.push(name.len() as u8);
                note.extend_from_slice(name);
            }
            NoteItem::Traffic(traffic) => {
                note.push(TAG_TRAFFIC);
                for bytes in [
                    traffic.user_bytes,
                    traffic.log_bytes,
                    traffic.moved_bytes,
                    traffic.freed_bytes,
                    traffic.tree_bytes,
                ] {
                    note.extend_from_slice(&bytes.to_le_bytes());
                }
            }
            NoteItem::HistoryLost(through) => {
                note.push(TAG_HISTORY);
                note.extend_from_slice(&through.to_le_bytes());
            }
        }
    }
}

/// A note of several items.
pub fn encode(items: &[NoteItem]) -> Vec<u8> {
    let mut note = Vec::new();
    items.iter().for_each(|item| item.encode(&mut note));
    note
}

/// The items of a note; `None` for what no engine of this version wrote.
pub fn decode(note: &[u8]) -> Option<Vec<NoteItem>> {
    let mut decoder = Decoder::new(note);
    let mut items = Vec::new();
    while decoder.remaining() > 0 {
        items.push(decode_item(&mut decoder)?);
    }
    Some(items)
}

fn decode_item(decoder: &mut Decoder<'_>) -> Option<NoteItem> {
    Some(match decoder.u8()? {
        TAG_HEAD => NoteItem::Head(Head {
            sequence: decoder.u64()?,
            segment: decoder.u32()?,
            offset: decoder.u64()?,
            session: decoder.u32()?,
        }),
        TAG_SEGMENT => NoteItem::Segment(SegmentNote {
            number: decoder.u32()?,
            kind: SegmentKind::from_code(u64::from(decoder.u8()?))?,
            value_bytes: decoder.u64()?,
            end: decoder.u64()?,
            last: decoder.u64()?,
        }),
        TAG_GARBAGE => NoteItem::Garbage {
            segment: decoder.u32()?,
            bytes: decoder.u64()?,
        },
        TAG_HOLE => {
            let segment = decoder.u32()?;
            let (offset, bytes) = (decoder.u64()?, decoder.u64()?);
            // A segment ends long before the numbers do.
            offset
                .checked_add(bytes)
                .filter(|&end| bytes > 0 && end <= LARGEST_SEGMENT)?;
            NoteItem::Hole {
                segment,
                offset,
                bytes,
            }
        }
        TAG_DROPPED => NoteItem::Dropped(decoder.u32()?),
        TAG_NEXT_FILE => NoteItem::NextFile(decoder.u32()?),
        TAG_NAMESPACE => {
            let number = decoder.u16()?;
            let length = usize::from(decoder.u8()?);
            let name = std::str::from_utf8(decoder.bytes(length)?).ok()?;
            NoteItem::Namespace {
                number,
                name: name.to_string(),
            }
        }
        TAG_TRAFFIC => NoteItem::Traffic(Traffic {
            user_bytes: decoder.u64()?,
            log_bytes: decoder.u64()?,
            moved_bytes: decoder.u64()?,
            freed_bytes: decoder.u64()?,
            tree_bytes: decoder.u64()?,
        }),
        TAG_HISTORY => NoteItem::HistoryLost(decoder.u64()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<NoteItem> {
        vec![
            NoteItem::Head(Head {
                sequence: 9,
                segment: 2,
                offset: 4096,
                session: 3,
            }),
            NoteItem::Segment(SegmentNote {
                number: 1,
                kind: SegmentKind::Moved,
                value_bytes: 500,
                end: 8192,
                last: 0,
            }),
            NoteItem::Garbage {
                segment: 1,
                bytes: 80,
            },
            NoteItem::Hole {
                segment: 1,
                offset: 4096,
                bytes: 12_288,
            },
            NoteItem::Dropped(7),
            NoteItem::NextFile(8),
            NoteItem::Namespace {
                number: 2,
                name: "people".to_string(),
            },
            NoteItem::Traffic(Traffic {
                user_bytes: 1,
                ..Traffic::default()
            }),
            NoteItem::HistoryLost(6),
        ]
    }

    #[test]
    fn a_note_reads_back_and_two_are_one() {
        let note = encode(&sample());
        assert_eq!(decode(&note), Some(sample()));
        let twice = [note.clone(), note].concat();
        assert_eq!(decode(&twice).map(|items| items.len()), Some(18));
    }

    #[test]
    fn each_item_is_as_long_as_its_layout_and_cut_ones_are_refused() {
        for (item, layout) in sample().iter().zip([
            Some(&HEAD_LAYOUT),
            Some(&SEGMENT_LAYOUT),
            Some(&GARBAGE_LAYOUT),
            Some(&HOLE_LAYOUT),
            None,
            None,
            None,
            Some(&TRAFFIC_LAYOUT),
            None,
        ]) {
            let note = encode(std::slice::from_ref(item));
            if let Some(layout) = layout {
                assert_eq!(note.len(), layout.size, "{item:?}");
            }
            for length in 1..note.len() {
                assert_eq!(decode(&note[..length]), None, "{item:?} cut to {length}");
            }
        }
        assert_eq!(decode(&[99]), None);
    }
}
