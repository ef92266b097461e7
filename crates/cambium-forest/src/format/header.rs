//! The database header: the roots of all namespaces at one moment, and where to
//! replay from. It is the payload of a record of kind 5; its fixed part is
//! [`HEADER_LAYOUT`], and its lists follow.

use cambium_base::coding::{Decoder, put_length_prefixed};
use cambium_base::layout::Layout;
use cambium_base::{FileNumber, SequenceNumber};
use cambium_index::NodeAddress;
use cambium_storage::record::RecordHeader;

use super::{FLAG_MOVED, FLAG_RECOVERED, FileRef, MOST_COUNTED, field, kind};
use crate::document::OFFSET_LIMIT;

/// Bytes of a database header before its lists.
pub const HEADER_FIXED_BYTES: usize = 120;

/// The fixed part of a database header.
pub const HEADER_LAYOUT: Layout = Layout {
    name: "Database header",
    about: "The payload of a record of kind 5. Behind it: the namespaces, each as number (4), root (8), documents (8), document bytes (8), nodes (8), length and text of the name (4 and more), with 65,536 added to the number of one that was dropped and that a named snapshot keeps; then the named snapshots, each as length and text of its name, sequence (8), count of namespaces (4) and those, without names; then the write after which this file's log has every change (8); then the count of older files that are kept for consumers of the change feed (4) and those, oldest first, each as number (8), salt (8), the write after which it has every change (8), its last write (8), offset of its newest header (8), the first offset that is kept (8), and where its log ends (8).",
    fields: &[
        field(0, 8, "sequence", "the roots hold every write up to here"),
        field(8, 8, "replay_from", "offset behind the last document that the roots hold"),
        field(16, 8, "previous", "offset of the header before this one; 0 if none"),
        field(24, 4, "replay_session", "session of the records there; lower ones do not count"),
        field(28, 4, "next_namespace", "number for the next namespace"),
        field(32, 8, "user_bytes", "keys and values written since the store was made"),
        field(40, 8, "log_bytes", "bytes of documents written, padding included"),
        field(48, 8, "node_bytes", "bytes of nodes written"),
        field(56, 8, "header_bytes", "bytes of headers and superblocks written"),
        field(64, 8, "compaction_bytes", "bytes that compactions wrote"),
        field(72, 8, "start", "in this file: bytes that compaction wrote before the first new write; 0 in the first file"),
        field(80, 8, "rolled_back", "1 if this header is a rollback's: the roots are those of a named snapshot"),
        field(88, 8, "rolled_back_to", "the last write that such a rollback kept; for repair, which reads the log alone"),
        field(96, 4, "namespaces", "how many follow"),
        field(100, 4, "snapshots", "how many named snapshots follow"),
        field(104, 8, "begin", "what lies between the file's first block and this offset is given back; 0 if nothing is"),
        field(112, 8, "trees_from", "trees of headers before this offset may lack nodes, whose blocks later flushes have written again; 0 if all are whole"),
    ],
    size: HEADER_FIXED_BYTES,
}
.checked();

/// Marks the number of a namespace that was dropped.
const DROPPED: u32 = 1 << 16;

/// A namespace as a header keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceRoot {
    /// The root of its index; `None` while it is empty.
    pub root: Option<NodeAddress>,
    /// Live documents.
    pub documents: u64,
    /// Upper bounds of their records' lengths, added up.
    pub document_bytes: u64,
    /// Live nodes.
    pub nodes: u64,
}

/// A named snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedSnapshot {
    /// Its name.
    pub name: String,
    /// The last write it sees.
    pub sequence: u64,
    /// Roots by namespace.
    pub namespaces: Vec<(u16, NamespaceRoot)>,
}

/// An older database file that is kept for consumers of the change feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptFile {
    /// Its number and salt.
    pub file: FileRef,
    /// It has every change after this write, ...
    pub from: u64,
    /// ... up to this one.
    pub to: u64,
    /// Offset of its newest header.
    pub header: u64,
    /// What lies between its first block and here is given back.
    pub start: u64,
    /// Where its log ends.
    pub end: u64,
}

impl KeptFile {
    /// Bytes of log that are kept.
    pub fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// Bytes written since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Keys and values as users gave them.
    pub user: u64,
    /// Documents in the log.
    pub log: u64,
    /// Nodes.
    pub nodes: u64,
    /// Headers and superblocks.
    pub headers: u64,
    /// What compactions wrote.
    pub compaction: u64,
}

impl Traffic {
    /// The sum.
    #[must_use]
    pub fn plus(&self, other: &Traffic) -> Traffic {
        Traffic {
            user: self.user.saturating_add(other.user),
            log: self.log.saturating_add(other.log),
            nodes: self.nodes.saturating_add(other.nodes),
            headers: self.headers.saturating_add(other.headers),
            compaction: self.compaction.saturating_add(other.compaction),
        }
    }
}

/// The state of a database file at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseHeader {
    /// The roots hold every write up to here.
    pub sequence: u64,
    /// Replay begins here.
    pub replay_from: u64,
    /// The header before this one.
    pub previous: u64,
    /// Session of the records at `replay_from`.
    pub replay_session: u32,
    /// Number for the next namespace.
    pub next_namespace: u32,
    /// Bytes written.
    pub traffic: Traffic,
    /// Bytes that a compaction wrote to begin this file.
    pub start: u64,
    /// The last write that the rollback kept which wrote this header.
    pub rolled_back_to: Option<u64>,
    /// All namespaces, by number.
    pub namespaces: Vec<(u16, String, NamespaceRoot)>,
    /// Number and name of those that were dropped, and that named snapshots keep.
    pub dropped: Vec<(u16, String)>,
    /// Named snapshots, in the order in which they were made.
    pub snapshots: Vec<NamedSnapshot>,
    /// This file's log has every change after this write.
    pub changes_from: u64,
    /// Older files that are kept for consumers, oldest first.
    pub kept_files: Vec<KeptFile>,
    /// Nothing before this offset is reached: cleanings have moved what was live there.
    pub begin: u64,
    /// Later flushes may have overwritten nodes of the headers before this offset.
    pub trees_from: u64,
}

impl DatabaseHeader {
    /// The payload's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_FIXED_BYTES + self.namespaces.len() * 48);
        for number in [self.sequence, self.replay_from, self.previous] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.replay_session.to_le_bytes());
        bytes.extend_from_slice(&self.next_namespace.to_le_bytes());
        let traffic = &self.traffic;
        for number in [
            traffic.user,
            traffic.log,
            traffic.nodes,
            traffic.headers,
            traffic.compaction,
            self.start,
            u64::from(self.rolled_back_to.is_some()),
            self.rolled_back_to.unwrap_or(0),
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let namespaces = self.namespaces.len() + self.dropped.len();
        bytes.extend_from_slice(&(namespaces as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.snapshots.len() as u32).to_le_bytes());
        for offset in [self.begin, self.trees_from] {
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
        for (number, name, root) in &self.namespaces {
            encode_root(u32::from(*number), root, &mut bytes);
            put_length_prefixed(&mut bytes, name.as_bytes());
        }
        for (number, name) in &self.dropped {
            let marked = u32::from(*number) + DROPPED;
            encode_root(marked, &NamespaceRoot::default(), &mut bytes);
            put_length_prefixed(&mut bytes, name.as_bytes());
        }
        for snapshot in &self.snapshots {
            put_length_prefixed(&mut bytes, snapshot.name.as_bytes());
            bytes.extend_from_slice(&snapshot.sequence.to_le_bytes());
            bytes.extend_from_slice(&(snapshot.namespaces.len() as u32).to_le_bytes());
            for (number, root) in &snapshot.namespaces {
                encode_root(u32::from(*number), root, &mut bytes);
            }
        }
        bytes.extend_from_slice(&self.changes_from.to_le_bytes());
        bytes.extend_from_slice(&(self.kept_files.len() as u32).to_le_bytes());
        for kept in &self.kept_files {
            let file = kept.file;
            let places = [kept.from, kept.to, kept.header, kept.start, kept.end];
            for number in [file.number.0, file.salt].into_iter().chain(places) {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads a payload back; `None` for what no header encodes to.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let mut header = DatabaseHeader {
            sequence: decoder.u64()?,
            replay_from: decoder.u64()?,
            previous: decoder.u64()?,
            replay_session: decoder.u32()?,
            next_namespace: decoder.u32()?,
            traffic: Traffic {
                user: decoder.u64()?,
                log: decoder.u64()?,
                nodes: decoder.u64()?,
                headers: decoder.u64()?,
                compaction: decoder.u64()?,
            },
            start: decoder.u64()?,
            ..DatabaseHeader::default()
        };
        let (rolled_back, kept) = (decoder.u64()?, decoder.u64()?);
        header.rolled_back_to = (rolled_back == 1).then_some(kept);
        let (namespaces, snapshots) = (decoder.u32()?, decoder.u32()?);
        header.begin = decoder.u64()?;
        header.trees_from = decoder.u64()?;
        // Nothing is allocated ahead: each turn takes bytes, or ends it.
        for _ in 0..namespaces {
            let (number, root) = decode_root(&mut decoder)?;
            let name = text(&mut decoder)?;
            if let Ok(number) = u16::try_from(number) {
                header.namespaces.push((number, name, root));
                continue;
            }
            let number = u16::try_from(number.checked_sub(DROPPED)?).ok()?;
            if root != NamespaceRoot::default() {
                return None;
            }
            header.dropped.push((number, name));
        }
        for _ in 0..snapshots {
            let mut snapshot = NamedSnapshot {
                name: text(&mut decoder)?,
                sequence: decoder.u64()?,
                namespaces: Vec::new(),
            };
            for _ in 0..decoder.u32()? {
                let (number, root) = decode_root(&mut decoder)?;
                snapshot
                    .namespaces
                    .push((u16::try_from(number).ok()?, root));
            }
            header.snapshots.push(snapshot);
        }
        header.changes_from = decoder.u64()?;
        for _ in 0..decoder.u32()? {
            header.kept_files.push(decode_kept(&mut decoder)?);
        }
        (decoder.remaining() == 0 && header.is_possible()).then_some(header)
    }

    /// Number and name of each namespace that this header's successor lacks, while
    /// one of its named snapshots has it.
    pub fn dropped_but_kept(&self, next: &DatabaseHeader) -> Vec<(u16, String)> {
        let there = |number| next.namespaces.iter().any(|(other, ..)| *other == number);
        let kept = |number| {
            let mut all = next.snapshots.iter().flat_map(|kept| &kept.namespaces);
            all.any(|(other, _)| *other == number)
        };
        let before = self
            .namespaces
            .iter()
            .map(|(number, name, _)| (*number, name));
        let dropped = self.dropped.iter().map(|(number, name)| (*number, name));
        let gone = before
            .chain(dropped)
            .filter(|&(number, _)| !there(number) && kept(number));
        gone.map(|(number, name)| (number, name.clone())).collect()
    }

    /// Names and numbers of the namespaces that a named snapshot keeps.
    pub fn names_of(&self, snapshot: &NamedSnapshot) -> Vec<(String, u16)> {
        let there = self
            .namespaces
            .iter()
            .map(|(number, name, _)| (*number, name));
        let dropped = self.dropped.iter().map(|(number, name)| (*number, name));
        let all = there.chain(dropped);
        let kept = |number| {
            snapshot
                .namespaces
                .iter()
                .any(|(other, _)| *other == number)
        };
        all.filter(|&(number, _)| kept(number))
            .map(|(number, name)| (name.clone(), number))
            .collect()
    }

    /// False for numbers that no store comes to, so that sums of them cannot
    /// overflow.
    fn is_possible(&self) -> bool {
        let traffic = &self.traffic;
        let counters = [
            self.sequence,
            self.changes_from,
            traffic.user,
            traffic.log,
            traffic.nodes,
            traffic.headers,
            traffic.compaction,
        ];
        let offsets = [
            self.replay_from,
            self.previous,
            self.start,
            self.begin,
            self.trees_from,
        ];
        counters.iter().all(|&number| number < MOST_COUNTED)
            && offsets.iter().all(|&offset| offset < OFFSET_LIMIT)
            && self.begin <= self.replay_from
            && self.replay_session < u32::MAX
            && self.next_namespace <= 1 << 16
    }
}

fn encode_root(number: u32, root: &NamespaceRoot, into: &mut Vec<u8>) {
    into.extend_from_slice(&number.to_le_bytes());
    let address = root.root.map_or(0, |address| address.0);
    for field in [address, root.documents, root.document_bytes, root.nodes] {
        into.extend_from_slice(&field.to_le_bytes());
    }
}

fn decode_root(decoder: &mut Decoder<'_>) -> Option<(u32, NamespaceRoot)> {
    let number = decoder.u32()?;
    let address = decoder.u64()?;
    if address > NodeAddress::MAX.0 {
        return None;
    }
    let root = NamespaceRoot {
        root: (address != 0).then_some(NodeAddress(address)),
        documents: decoder.u64()?,
        document_bytes: decoder.u64()?,
        nodes: decoder.u64()?,
    };
    // All of them lie in one file.
    let possible = root.documents < OFFSET_LIMIT
        && root.document_bytes < OFFSET_LIMIT
        && root.nodes < OFFSET_LIMIT / 512;
    possible.then_some((number, root))
}

fn decode_kept(decoder: &mut Decoder<'_>) -> Option<KeptFile> {
    let file = FileRef {
        number: FileNumber(decoder.u64()?),
        salt: decoder.u64()?,
    };
    let kept = KeptFile {
        file,
        from: decoder.u64()?,
        to: decoder.u64()?,
        header: decoder.u64()?,
        start: decoder.u64()?,
        end: decoder.u64()?,
    };
    let possible = kept.from <= kept.to
        && kept.to < MOST_COUNTED
        && kept.header < kept.end
        && kept.start <= kept.end
        && kept.end < OFFSET_LIMIT;
    possible.then_some(kept)
}

fn text(decoder: &mut Decoder<'_>) -> Option<String> {
    String::from_utf8(decoder.length_prefixed()?.to_vec()).ok()
}

/// The record header of a database header.
pub fn header_record(
    sequence: u64,
    synced_through: u64,
    session: u32,
    recovered: bool,
) -> RecordHeader {
    RecordHeader {
        kind: kind::HEADER,
        flags: if recovered { FLAG_RECOVERED } else { 0 },
        sequence: SequenceNumber(sequence),
        synced_through: SequenceNumber(synced_through),
        session,
        ..RecordHeader::default()
    }
}

/// The header of a record with documents that keep the numbers they were written with.
pub fn moved_record(kind: u8, session: u32, sequence: u64, auxiliary: u32) -> RecordHeader {
    RecordHeader {
        kind,
        flags: FLAG_MOVED,
        sequence: SequenceNumber(sequence),
        session,
        auxiliary,
        ..RecordHeader::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot go on has failed

    use super::*;

    fn sample() -> DatabaseHeader {
        let root = NamespaceRoot {
            root: Some(NodeAddress(7)),
            documents: 3,
            document_bytes: 400,
            nodes: 2,
        };
        DatabaseHeader {
            sequence: 9,
            replay_from: 8192,
            begin: 4096,
            trees_from: 4608,
            namespaces: vec![
                (0, String::new(), root),
                (4, "people".into(), NamespaceRoot::default()),
            ],
            snapshots: vec![NamedSnapshot {
                name: "before".into(),
                sequence: 5,
                namespaces: vec![(0, root), (2, root)],
            }],
            dropped: vec![(2, "animals".into())],
            changes_from: 4,
            kept_files: vec![KeptFile {
                file: FileRef {
                    number: FileNumber(3),
                    salt: 77,
                },
                from: 1,
                to: 4,
                header: 8192,
                start: 4096,
                end: 16384,
            }],
            ..DatabaseHeader::default()
        }
    }

    #[test]
    fn a_header_reads_back_and_cut_ones_are_refused() {
        let header = sample();
        let bytes = header.encode();
        assert_eq!(DatabaseHeader::decode(&bytes).as_ref(), Some(&header));
        for length in 0..bytes.len() {
            assert_eq!(DatabaseHeader::decode(&bytes[..length]), None, "{length}");
        }
        // A count of four thousand million allocates nothing.
        let mut huge = bytes;
        huge[96..100].fill(0xff);
        assert_eq!(DatabaseHeader::decode(&huge), None);
        let mut huge = header.encode();
        let count = huge.len() - 56 - 4;
        huge[count..count + 4].fill(0xff);
        assert_eq!(DatabaseHeader::decode(&huge), None);
    }
}
