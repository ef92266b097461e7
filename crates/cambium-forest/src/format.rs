//! The bytes of a `forest` store.
//!
//! ```text
//! STORE/
//!   CAMBIUM                       marker (cambium-storage)
//!   LOCK                          the owner's process id
//!   superblock-0, superblock-1    which file, which header, in two copies
//!   NNNNNN.forest                 the database file: everything else
//! ```
//!
//! A database file is one log of records ([`cambium_storage::record`]) that are
//! never changed, with runs of index nodes in between:
//!
//! ```text
//! ┌ first block ┬──────────┬──────────┬─────┬──────┬──────┬─────┬──────────┬────────┬─ …
//! │ file header │ document │ document │ run │ node │ node │ …   │ document │ header │
//! └─────────────┴──────────┴──────────┴─────┴──────┴──────┴─────┴──────────┴────────┴─ …
//!                                        └ says how many blocks follow, so that a scan steps over them
//! ```
//!
//! - A **document** is a record of a key and its value; a **tombstone** has no
//!   value. `auxiliary` holds the namespace (upper 16 bits) and the key's length
//!   (lower 16 bits); the payload is the key, then the value.
//! - A **node** is a block of `node_bytes` at a multiple of `node_bytes`. Its
//!   trailer ([`NODE_TRAILER`]) ties it to the store, the file and the place.
//! - A **database header** is a record whose payload is a [`DatabaseHeader`]: the
//!   roots of all namespaces and where to replay from. It stands at the start of
//!   a block, so that it can be found from the end of the file.
//!
//! A user's value may be a copy of any of them: a copy lies at another place,
//! and every checksum is seeded with the place and with the file's salt.

use std::path::{Path, PathBuf};

use cambium_base::checksum::ChecksumSeed;
use cambium_base::coding::{Decoder, put_length_prefixed, u32_at, u64_at};
use cambium_base::layout::{Field, Layout};
use cambium_base::{FileNumber, SequenceNumber};
use cambium_index::{NODE_TRAILER_BYTES, NodeAddress};
use cambium_storage::log::LogGeometry;
use cambium_storage::record::RecordHeader;

use crate::document::{DOCUMENT_ALIGNMENT, OFFSET_LIMIT};
use crate::options::{Shape, Tuning};

/// Newest format this program reads, and the one it writes.
pub const FORMAT_VERSION: u32 = 1;
/// Begins every database file.
pub const MAGIC: [u8; 8] = *b"CMBMfrst";
/// Ends every database file's name.
pub const FILE_SUFFIX: &str = ".forest";

/// Kinds of records.
pub mod kind {
    /// A document: a key gets a value.
    pub const PUT: u8 = 1;
    /// A tombstone: a key is removed.
    pub const DELETE: u8 = 2;
    /// A namespace begins; the payload is its name.
    pub const NAMESPACE: u8 = 3;
    /// A run of nodes: `auxiliary` blocks follow at the next multiple of
    /// `node_bytes`.
    pub const NODES: u8 = 4;
    /// A database header.
    pub const HEADER: u8 = 5;
}

/// Flag of a header that a recovery wrote: what lies before it and behind the
/// last document that counts was cut off. `synced_through` is the cut, and
/// numbering goes on behind the header's own `sequence`.
pub const FLAG_RECOVERED: u8 = 1;
/// Flag of a document that a compaction moved here; it keeps the sequence
/// number it was written with.
pub const FLAG_MOVED: u8 = 2;

/// The trailer of a node.
pub const NODE_TRAILER: Layout = Layout {
    name: "Node trailer",
    about: "The last bytes of every node. The rest of the node is the tree's (`cambium-index`).",
    fields: &[
        field(0, 4, "checksum", "CRC-32C of store id, file number, salt, offset and all bytes of the node but this field: a node is believed only where it was written"),
        field(4, 4, "zero", "zero"),
        field(8, 8, "address", "the node's offset divided by `node_bytes`; for people, the checksum covers the place already"),
    ],
    size: NODE_TRAILER_BYTES,
}
.checked();

/// Bytes of a database header before its lists.
pub const HEADER_FIXED_BYTES: usize = 104;

/// The fixed part of a database header.
pub const HEADER_LAYOUT: Layout = Layout {
    name: "Database header",
    about: "The payload of a record of kind 5. Behind it: the namespaces, each as number (4), root (8), documents (8), document bytes (8), nodes (8), length and text of the name (4 and more); then the named snapshots, each as length and text of its name, sequence (8), count of namespaces (4) and those, without names.",
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
    ],
    size: HEADER_FIXED_BYTES,
}
.checked();

/// Bytes of the superblock's payload.
pub const ROOT_BYTES: usize = 48;

/// The superblock's payload.
pub const ROOT_LAYOUT: Layout = Layout {
    name: "Superblock payload",
    about: "Which database file counts and where its newest header is.",
    fields: &[
        field(0, 8, "file_number", "of the database file"),
        field(8, 8, "salt", "of the database file"),
        field(
            16,
            8,
            "next_file",
            "number for the next file; never given twice",
        ),
        field(24, 8, "header", "offset of the newest header"),
        field(32, 8, "end", "clean: where the log goes on; else 0"),
        field(
            40,
            4,
            "session",
            "the highest ever taken; each opening that writes takes its own",
        ),
        field(
            44,
            4,
            "clean",
            "1 if the store was closed: nothing is to be replayed",
        ),
    ],
    size: ROOT_BYTES,
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

/// A file's number and salt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileRef {
    /// Within the store.
    pub number: FileNumber,
    /// Random.
    pub salt: u64,
}

/// The path of a database file.
pub fn database_path(folder: &Path, number: FileNumber) -> PathBuf {
    folder.join(format!("{:06}{FILE_SUFFIX}", number.0))
}

/// The number in a database file's name.
pub fn database_number(name: &str) -> Option<FileNumber> {
    let digits = name.strip_suffix(FILE_SUFFIX)?;
    let number = digits.parse().ok().map(FileNumber)?;
    (digits.len() >= 6).then_some(number)
}

/// The units of a database file.
pub fn geometry(shape: &Shape, tuning: &Tuning) -> LogGeometry {
    LogGeometry {
        alignment: DOCUMENT_ALIGNMENT,
        block: u64::from(shape.block_bytes),
        first_offset: shape.first_offset(),
        // Small stores stay small, large ones allocate rarely.
        least_growth: (u64::from(shape.block_bytes) * 16).min(tuning.preallocate_bytes),
        most_growth: tuning.preallocate_bytes,
        window: u64::from(shape.block_bytes) * 64,
    }
}

/// `auxiliary` of a document.
pub fn document_auxiliary(namespace: u16, key_bytes: usize) -> u32 {
    u32::from(namespace) << 16 | key_bytes as u32
}

/// Namespace and key length of a document; `None` for a key longer than the
/// payload.
pub fn namespace_and_key(header: &RecordHeader) -> Option<(u16, usize)> {
    let key_bytes = (header.auxiliary & 0xffff) as usize;
    let namespace = (header.auxiliary >> 16) as u16;
    (key_bytes <= header.payload_bytes as usize).then_some((namespace, key_bytes))
}

/// Fills a node's trailer.
pub fn seal_node(content: &mut [u8], seed: &ChecksumSeed, address: NodeAddress) {
    let body = content.len() - NODE_TRAILER_BYTES;
    content[body + 4..body + 8].fill(0);
    content[body + 8..].copy_from_slice(&address.0.to_le_bytes());
    let checksum = node_checksum(content, seed, address);
    content[body..body + 4].copy_from_slice(&checksum.to_le_bytes());
}

fn node_checksum(content: &[u8], seed: &ChecksumSeed, address: NodeAddress) -> u32 {
    let body = content.len() - NODE_TRAILER_BYTES;
    let offset = address.0.wrapping_mul(content.len() as u64);
    let so_far = seed.at(offset, &content[..body]);
    cambium_base::checksum::crc32c_append(so_far, &content[body + 4..])
}

/// What is wrong with a block that should be the node of an address.
pub fn check_node(content: &[u8], seed: &ChecksumSeed, address: NodeAddress) -> Option<String> {
    let body = content.len().checked_sub(NODE_TRAILER_BYTES)?;
    if u32_at(content, body) != node_checksum(content, seed, address) {
        return Some("the node does not match its checksum".to_string());
    }
    let named = u64_at(content, body + 8);
    (named != address.0).then(|| format!("the node says it is node {named}"))
}

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
    /// Named snapshots, in the order in which they were made.
    pub snapshots: Vec<NamedSnapshot>,
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
        bytes.extend_from_slice(&(self.namespaces.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.snapshots.len() as u32).to_le_bytes());
        for (number, name, root) in &self.namespaces {
            encode_root(*number, root, &mut bytes);
            put_length_prefixed(&mut bytes, name.as_bytes());
        }
        for snapshot in &self.snapshots {
            put_length_prefixed(&mut bytes, snapshot.name.as_bytes());
            bytes.extend_from_slice(&snapshot.sequence.to_le_bytes());
            bytes.extend_from_slice(&(snapshot.namespaces.len() as u32).to_le_bytes());
            for (number, root) in &snapshot.namespaces {
                encode_root(*number, root, &mut bytes);
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
        // Nothing is allocated ahead: each turn takes bytes, or ends it.
        for _ in 0..namespaces {
            let (number, root) = decode_root(&mut decoder)?;
            header.namespaces.push((number, text(&mut decoder)?, root));
        }
        for _ in 0..snapshots {
            let mut snapshot = NamedSnapshot {
                name: text(&mut decoder)?,
                sequence: decoder.u64()?,
                namespaces: Vec::new(),
            };
            for _ in 0..decoder.u32()? {
                snapshot.namespaces.push(decode_root(&mut decoder)?);
            }
            header.snapshots.push(snapshot);
        }
        (decoder.remaining() == 0 && header.is_possible()).then_some(header)
    }

    /// False for numbers that no store comes to, so that nobody has to fear
    /// their sums.
    fn is_possible(&self) -> bool {
        let traffic = &self.traffic;
        let counters = [
            self.sequence,
            traffic.user,
            traffic.log,
            traffic.nodes,
            traffic.headers,
            traffic.compaction,
        ];
        let offsets = [self.replay_from, self.previous, self.start];
        counters.iter().all(|&number| number < MOST_COUNTED)
            && offsets.iter().all(|&offset| offset < OFFSET_LIMIT)
            && self.replay_session < u32::MAX
            && self.next_namespace <= 1 << 16
    }
}

/// What no counter of bytes or writes reaches.
const MOST_COUNTED: u64 = 1 << 60;

fn encode_root(number: u16, root: &NamespaceRoot, into: &mut Vec<u8>) {
    into.extend_from_slice(&u32::from(number).to_le_bytes());
    let address = root.root.map_or(0, |address| address.0);
    for field in [address, root.documents, root.document_bytes, root.nodes] {
        into.extend_from_slice(&field.to_le_bytes());
    }
}

fn decode_root(decoder: &mut Decoder<'_>) -> Option<(u16, NamespaceRoot)> {
    let number = u16::try_from(decoder.u32()?).ok()?;
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

fn text(decoder: &mut Decoder<'_>) -> Option<String> {
    String::from_utf8(decoder.length_prefixed()?.to_vec()).ok()
}

/// The superblock's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// The database file that counts.
    pub file: FileRef,
    /// Number for the next file.
    pub next_file: u64,
    /// Offset of the newest header.
    pub header: u64,
    /// Where a cleanly closed log goes on.
    pub end: u64,
    /// The highest session ever taken.
    pub session: u32,
    /// The store was closed.
    pub clean: bool,
}

impl Root {
    /// The payload's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ROOT_BYTES);
        let numbers = [
            self.file.number.0,
            self.file.salt,
            self.next_file,
            self.header,
            self.end,
        ];
        for number in numbers {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.session, u32::from(self.clean)] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads a payload back; `None` for what no root encodes to.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let root = Root {
            file: FileRef {
                number: FileNumber(decoder.u64()?),
                salt: decoder.u64()?,
            },
            next_file: decoder.u64()?,
            header: decoder.u64()?,
            end: decoder.u64()?,
            session: decoder.u32()?,
            clean: decoder.u32()? == 1,
        };
        let offsets = [root.header, root.end];
        let possible = offsets.iter().all(|&offset| offset < OFFSET_LIMIT)
            && root.file.number.0 < MOST_COUNTED
            && root.next_file < MOST_COUNTED
            && root.session < u32::MAX;
        (decoder.remaining() == 0 && possible).then_some(root)
    }
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

#[cfg(test)]
mod tests {
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
            namespaces: vec![
                (0, String::new(), root),
                (4, "people".into(), NamespaceRoot::default()),
            ],
            snapshots: vec![NamedSnapshot {
                name: "before".into(),
                sequence: 5,
                namespaces: vec![(0, root)],
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
    }

    #[test]
    fn a_root_reads_back() {
        let root = Root {
            header: 4096,
            session: 3,
            clean: true,
            ..Root::default()
        };
        let bytes = root.encode();
        assert_eq!(bytes.len(), ROOT_BYTES);
        assert_eq!(Root::decode(&bytes), Some(root));
        assert_eq!(Root::decode(&bytes[1..]), None);
    }

    #[test]
    fn a_node_is_believed_in_its_place_only() {
        let seed = ChecksumSeed::new(&cambium_base::FileIdentity::default());
        let mut node = vec![5; 512];
        seal_node(&mut node, &seed, NodeAddress(3));
        assert_eq!(check_node(&node, &seed, NodeAddress(3)), None);
        assert!(check_node(&node, &seed, NodeAddress(4)).is_some());
        for byte in 0..node.len() {
            let mut damaged = node.clone();
            damaged[byte] ^= 1;
            assert!(check_node(&damaged, &seed, NodeAddress(3)).is_some());
        }
    }
}
