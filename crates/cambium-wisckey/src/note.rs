//! Notes: what the manifest of the tree says of the value log.
//!
//! A note rides on an edit of the manifest and becomes true together with it: the
//! tables of a flush and the place from which recovery replays, the entries that a
//! compaction dropped and the garbage that they leave, are one step on the device
//! (section 3.4.2 keeps the head of the log as a key of the tree; an edit keeps it
//! without a write to the tree).
//!
//! ```text
//! note = item, item, …          each a tag byte and the fields of its layout (`note_layouts`)
//! ```
//!
//! Notes are changes; put one after the other they give the whole state, which
//! begins the next manifest.

use std::collections::BTreeMap;

use cambium_base::coding::Decoder;

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
const TAG_KEEP: u8 = 10;
const TAG_KEPT: u8 = 11;
const TAG_RELEASED: u8 = 12;
const TAG_ROLLED_BACK: u8 = 13;
const TAG_NAMESPACE_DROPPED: u8 = 14;
const TAG_NEXT_NAMESPACE: u8 = 15;
const TAG_SYNCED: u8 = 16;
const TAG_UNDONE: u8 = 17;

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
    /// The state as of the edit is a named snapshot from now on.
    Keep {
        /// Of the snapshot.
        name: String,
        /// The last write that it has.
        sequence: u64,
    },
    /// A named snapshot.
    Kept(String, KeptState),
    /// A named snapshot was dropped.
    Released(String),
    /// The store went back to a named snapshot.
    RolledBack {
        /// Of the snapshot.
        name: String,
        /// The number that this took.
        sequence: u64,
    },
    /// A namespace was dropped.
    NamespaceDropped {
        /// Its number.
        number: u16,
        /// Of the write that dropped it.
        sequence: u64,
    },
    /// The next namespace's number.
    NextNamespace(u32),
    /// The log was synced up to this number: if it ends before, that is damage.
    Synced(u64),
    /// A rollback undid the writes after the first number, up to the second.
    Undone(u64, u64),
}

/// What a named snapshot needs of the value log, and its namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptState {
    /// The last write that it has.
    pub sequence: u64,
    /// Bytes of records that it points to, by segment.
    pub segments: BTreeMap<u32, u64>,
    /// Writes that earlier rollbacks had undone: after the first number, up to the second.
    pub undone: Vec<(u64, u64)>,
    /// Names of namespaces by number.
    pub namespaces: BTreeMap<u16, String>,
}

impl KeptState {
    fn encode(&self, note: &mut Vec<u8>) {
        note.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        for (number, bytes) in &self.segments {
            note.extend_from_slice(&number.to_le_bytes());
            note.extend_from_slice(&bytes.to_le_bytes());
        }
        note.extend_from_slice(&(self.undone.len() as u32).to_le_bytes());
        for (after, through) in &self.undone {
            note.extend_from_slice(&after.to_le_bytes());
            note.extend_from_slice(&through.to_le_bytes());
        }
        note.extend_from_slice(&(self.namespaces.len() as u32).to_le_bytes());
        for (number, name) in &self.namespaces {
            note.extend_from_slice(&number.to_le_bytes());
            encode_name(name, note);
        }
    }

    fn decode(sequence: u64, decoder: &mut Decoder<'_>) -> Option<Self> {
        let mut state = KeptState {
            sequence,
            ..KeptState::default()
        };
        for _ in 0..decoder.u32()? {
            let (number, bytes) = (decoder.u32()?, decoder.u64()?);
            state.segments.insert(number, bytes);
        }
        for _ in 0..decoder.u32()? {
            state.undone.push((decoder.u64()?, decoder.u64()?));
        }
        for _ in 0..decoder.u32()? {
            let (number, name) = (decoder.u16()?, decode_name(decoder)?);
            state.namespaces.insert(number, name);
        }
        Some(state)
    }
}

/// Names have up to 255 bytes.
fn encode_name(name: &str, note: &mut Vec<u8>) {
    let name = &name.as_bytes()[..name.len().min(usize::from(u8::MAX))];
    note.push(name.len() as u8);
    note.extend_from_slice(name);
}

fn decode_name(decoder: &mut Decoder<'_>) -> Option<String> {
    let length = usize::from(decoder.u8()?);
    let name = std::str::from_utf8(decoder.bytes(length)?).ok()?;
    Some(name.to_string())
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
                encode_name(name, note);
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
            NoteItem::Keep { name, sequence } => {
                note.push(TAG_KEEP);
                note.extend_from_slice(&sequence.to_le_bytes());
                encode_name(name, note);
            }
            NoteItem::Kept(name, state) => {
                note.push(TAG_KEPT);
                note.extend_from_slice(&state.sequence.to_le_bytes());
                encode_name(name, note);
                state.encode(note);
            }
            NoteItem::Released(name) => {
                note.push(TAG_RELEASED);
                encode_name(name, note);
            }
            NoteItem::RolledBack { name, sequence } => {
                note.push(TAG_ROLLED_BACK);
                note.extend_from_slice(&sequence.to_le_bytes());
                encode_name(name, note);
            }
            NoteItem::NamespaceDropped { number, sequence } => {
                note.push(TAG_NAMESPACE_DROPPED);
                note.extend_from_slice(&number.to_le_bytes());
                note.extend_from_slice(&sequence.to_le_bytes());
            }
            NoteItem::NextNamespace(number) => {
                note.push(TAG_NEXT_NAMESPACE);
                note.extend_from_slice(&number.to_le_bytes());
            }
            NoteItem::Synced(through) => {
                note.push(TAG_SYNCED);
                note.extend_from_slice(&through.to_le_bytes());
            }
            NoteItem::Undone(after, through) => {
                note.push(TAG_UNDONE);
                note.extend_from_slice(&after.to_le_bytes());
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
        TAG_NAMESPACE => NoteItem::Namespace {
            number: decoder.u16()?,
            name: decode_name(decoder)?,
        },
        TAG_TRAFFIC => NoteItem::Traffic(Traffic {
            user_bytes: decoder.u64()?,
            log_bytes: decoder.u64()?,
            moved_bytes: decoder.u64()?,
            freed_bytes: decoder.u64()?,
            tree_bytes: decoder.u64()?,
        }),
        TAG_HISTORY => NoteItem::HistoryLost(decoder.u64()?),
        TAG_KEEP => NoteItem::Keep {
            sequence: decoder.u64()?,
            name: decode_name(decoder)?,
        },
        TAG_KEPT => {
            let (sequence, name) = (decoder.u64()?, decode_name(decoder)?);
            NoteItem::Kept(name, KeptState::decode(sequence, decoder)?)
        }
        TAG_RELEASED => NoteItem::Released(decode_name(decoder)?),
        TAG_ROLLED_BACK => NoteItem::RolledBack {
            sequence: decoder.u64()?,
            name: decode_name(decoder)?,
        },
        TAG_NAMESPACE_DROPPED => NoteItem::NamespaceDropped {
            number: decoder.u16()?,
            sequence: decoder.u64()?,
        },
        TAG_NEXT_NAMESPACE => NoteItem::NextNamespace(decoder.u32()?),
        TAG_SYNCED => NoteItem::Synced(decoder.u64()?),
        TAG_UNDONE => NoteItem::Undone(decoder.u64()?, decoder.u64()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note_layouts::{
        GARBAGE_LAYOUT, HEAD_LAYOUT, HOLE_LAYOUT, SEGMENT_LAYOUT, TRAFFIC_LAYOUT,
    };

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
            NoteItem::Keep {
                name: "monday".to_string(),
                sequence: 7,
            },
            NoteItem::Kept(
                "tuesday".to_string(),
                KeptState {
                    sequence: 8,
                    segments: BTreeMap::from([(3, 400), (5, 64)]),
                    undone: vec![(4, 6)],
                    namespaces: BTreeMap::from([(0, String::new()), (2, "people".to_string())]),
                },
            ),
            NoteItem::Released("sunday".to_string()),
            NoteItem::RolledBack {
                name: "monday".to_string(),
                sequence: 12,
            },
            NoteItem::NamespaceDropped {
                number: 2,
                sequence: 13,
            },
            NoteItem::NextNamespace(3),
            NoteItem::Synced(11),
            NoteItem::Undone(7, 12),
        ]
    }

    #[test]
    fn a_note_reads_back_and_two_are_one() {
        let note = encode(&sample());
        assert_eq!(decode(&note), Some(sample()));
        let twice = [note.clone(), note].concat();
        assert_eq!(decode(&twice).map(|items| items.len()), Some(34));
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
            None,
            None,
            None,
            None,
            None,
            None,
            None,
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
