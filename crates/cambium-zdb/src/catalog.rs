//! The catalog: what the superblock holds, and so the root of the store.
//!
//! It names every file, says where replay begins in each, and which copy of
//! each piece of the index counts. What is in no catalog does not exist: files
//! left over by a crash are removed at the next open.

use std::collections::BTreeMap;

use cambium_base::coding::Decoder;

use crate::changes::past::Past;
use crate::format::FileRef;
use crate::options::Shape;
use cambium_base::FileNumber;

/// In place of a number of string keys: the next opening counts them.
pub const UNCOUNTED: u64 = u64::MAX;

/// The store's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    /// What was fixed at creation.
    pub shape: Shape,
    /// Closed properly: nothing lies after the replay offsets.
    pub clean: bool,
    /// Records of this session count in replay.
    pub session: u32,
    /// The highest session ever begun, also by recoveries that crashed.
    pub last_session: u32,
    /// The next file's number.
    pub next_file: u64,
    /// Replay begins after this sequence number.
    pub replay_sequence: u64,
    /// Everything up to here is durable, and in the index or to be replayed.
    pub durable_sequence: u64,
    /// Seed of the hash of string keys.
    pub hash_seed: u32,
    /// Buckets of string keys.
    pub buckets: u64,
    /// String keys in all buckets; [`UNCOUNTED`] after a repair that has not come to its end.
    pub string_keys: u64,
    /// Bytes written since the store was made: of users, data files, commit
    /// logs, index and compaction. For statistics only.
    pub traffic: Traffic,
    /// What the log has of the past, for the change feed.
    pub past: Past,
    /// The two commit logs.
    pub commit_logs: [FileRef; 2],
    /// The flat tables, by number.
    pub tables: BTreeMap<u64, TableEntry>,
}

/// Bytes written, by what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Keys and values as users gave them.
    pub user: u64,
    /// Records appended to data files.
    pub data_files: u64,
    /// Frames.
    pub commit_logs: u64,
    /// Pieces of the index.
    pub index: u64,
    /// Records copied by compaction.
    pub compaction: u64,
}

impl Traffic {
    fn numbers(&self) -> [u64; 5] {
        [
            self.user,
            self.data_files,
            self.commit_logs,
            self.index,
            self.compaction,
        ]
    }

    /// Everything but the users' own bytes.
    pub fn written(&self) -> u64 {
        self.data_files + self.commit_logs + self.index + self.compaction
    }

    /// The sum, field by field.
    pub fn plus(&self, other: &Traffic) -> Traffic {
        Traffic {
            user: self.user + other.user,
            data_files: self.data_files + other.data_files,
            commit_logs: self.commit_logs + other.commit_logs,
            index: self.index + other.index,
            compaction: self.compaction + other.compaction,
        }
    }
}

/// A flat table in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Its index file.
    pub index: FileRef,
    /// For each piece: 0 never written, else generation * 2 + copy.
    pub pieces: Vec<u32>,
    /// Its data files, by place.
    pub files: Vec<DataEntry>,
}

/// A data file in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataEntry {
    /// The file.
    pub file: FileRef,
    /// Replay begins here; everything before is durable and in the index.
    pub replay_from: u64,
    /// Entries in it up to there.
    pub entries: u64,
    /// Keys whose entry lies in it.
    pub live: u64,
    /// Its entries up to this sequence number are copies that a compaction made.
    pub copies_through: u64,
    /// No entry before `replay_from` has a higher sequence number.
    pub last_sequence: u64,
    /// The file a compaction is about to switch to, and where entries appended
    /// after the switch begin.
    pub successor: Option<(FileRef, u64)>,
}

impl DataEntry {
    /// An empty file, whose first entry will lie at `first_offset`.
    pub fn of_new(file: FileRef, first_offset: u64) -> DataEntry {
        DataEntry {
            file,
            replay_from: first_offset,
            entries: 0,
            live: 0,
            copies_through: 0,
            last_sequence: 0,
            successor: None,
        }
    }
}

impl Catalog {
    /// Gives out a file number.
    pub fn new_file(&mut self, salt: u64) -> FileRef {
        let number = FileNumber(self.next_file);
        self.next_file += 1;
        FileRef { number, salt }
    }

    /// The superblock's payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.shape.encode(&mut bytes);
        bytes.push(u8::from(self.clean));
        bytes.extend_from_slice(&self.session.to_le_bytes());
        bytes.extend_from_slice(&self.last_session.to_le_bytes());
        for number in [
            self.next_file,
            self.replay_sequence,
            self.durable_sequence,
            u64::from(self.hash_seed),
            self.buckets,
            self.string_keys,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in self.traffic.numbers() {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.past.encode(&mut bytes);
        for log in &self.commit_logs {
            encode_file(log, &mut bytes);
        }
        bytes.extend_from_slice(&(self.tables.len() as u32).to_le_bytes());
        for (number, table) in &self.tables {
            bytes.extend_from_slice(&number.to_le_bytes());
            table.encode(&mut bytes);
        }
        bytes
    }

    /// Reads a payload back, or `None` where it makes no sense.
    pub fn decode(payload: &[u8]) -> Option<Catalog> {
        let mut decoder = Decoder::new(payload);
        let shape = Shape::decode(&mut decoder)?;
        let mut catalog = Catalog {
            shape,
            clean: decoder.u8()? == 1,
            session: decoder.u32()?,
            last_session: decoder.u32()?,
            next_file: decoder.u64()?,
            replay_sequence: decoder.u64()?,
            durable_sequence: decoder.u64()?,
            hash_seed: u32::try_from(decoder.u64()?).ok()?,
            buckets: decoder.u64()?,
            string_keys: decoder.u64()?,
            traffic: Traffic {
                user: decoder.u64()?,
                data_files: decoder.u64()?,
                commit_logs: decoder.u64()?,
                index: decoder.u64()?,
                compaction: decoder.u64()?,
            },
            past: Past::decode(&mut decoder)?,
            commit_logs: [decode_file(&mut decoder)?, decode_file(&mut decoder)?],
            tables: BTreeMap::new(),
        };
        if !(1..=1 << 32).contains(&catalog.buckets) {
            return None;
        }
        for _ in 0..decoder.u32()? {
            let number = decoder.u64()?;
            let table = TableEntry::decode(&mut decoder, &shape)?;
            catalog.tables.insert(number, table);
        }
        (decoder.remaining() == 0).then_some(catalog)
    }
}

impl TableEntry {
    fn encode(&self, into: &mut Vec<u8>) {
        encode_file(&self.index, into);
        into.extend_from_slice(&(self.pieces.len() as u32).to_le_bytes());
        for piece in &self.pieces {
            into.extend_from_slice(&piece.to_le_bytes());
        }
        for file in &self.files {
            encode_file(&file.file, into);
            let numbers = [
                file.replay_from,
                file.entries,
                file.live,
                file.copies_through,
                file.last_sequence,
            ];
            for number in numbers {
                into.extend_from_slice(&number.to_le_bytes());
            }
            into.push(u8::from(file.successor.is_some()));
            if let Some((successor, from)) = &file.successor {
                encode_file(successor, into);
                into.extend_from_slice(&from.to_le_bytes());
            }
        }
    }

    fn decode(decoder: &mut Decoder<'_>, shape: &Shape) -> Option<TableEntry> {
        let index = decode_file(decoder)?;
        let count = decoder.u32()? as usize;
        if count != shape.pieces() || count * 4 > decoder.remaining() {
            return None;
        }
        let pieces = (0..count).map(|_| decoder.u32()).collect::<Option<_>>()?;
        let files = (0..shape.data_files)
            .map(|_| decode_data_entry(decoder))
            .collect::<Option<_>>()?;
        Some(TableEntry {
            index,
            pieces,
            files,
        })
    }
}

fn decode_data_entry(decoder: &mut Decoder<'_>) -> Option<DataEntry> {
    Some(DataEntry {
        file: decode_file(decoder)?,
        replay_from: decoder.u64()?,
        entries: decoder.u64()?,
        live: decoder.u64()?,
        copies_through: decoder.u64()?,
        last_sequence: decoder.u64()?,
        successor: match decoder.u8()? {
            0 => None,
            1 => Some((decode_file(decoder)?, decoder.u64()?)),
            _ => return None,
        },
    })
}

pub(crate) fn encode_file(file: &FileRef, into: &mut Vec<u8>) {
    into.extend_from_slice(&file.number.0.to_le_bytes());
    into.extend_from_slice(&file.salt.to_le_bytes());
}

pub(crate) fn decode_file(decoder: &mut Decoder<'_>) -> Option<FileRef> {
    Some(FileRef {
        number: FileNumber(decoder.u64()?),
        salt: decoder.u64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::past::{Cut, KeptFile};
    use cambium_api::OptionValues;

    #[test]
    fn a_catalog_reads_back_and_no_cut_of_it_does() {
        let mut options = OptionValues::default();
        options.set("keys_per_table", "10").set("data_files", "2");
        let shape = Shape::take(&mut options).unwrap();
        let file = DataEntry {
            file: FileRef::default(),
            replay_from: 4096,
            entries: 3,
            live: 2,
            copies_through: 7,
            last_sequence: 9,
            successor: Some((FileRef::default(), 8192)),
        };
        let table = TableEntry {
            index: FileRef::default(),
            pieces: vec![5],
            files: vec![
                file,
                DataEntry {
                    successor: None,
                    ..file
                },
            ],
        };
        let past = Past {
            lost: 3,
            kept: vec![KeptFile {
                table: 0,
                place: 1,
                file: FileRef::default(),
                copies_through: 2,
                through: 8,
                end: 8192,
            }],
            cuts: vec![Cut {
                file: FileNumber(2),
                from: 4096,
                to: 8192,
            }],
        };
        let catalog = Catalog {
            shape,
            clean: true,
            session: 3,
            last_session: 4,
            next_file: 9,
            replay_sequence: 100,
            durable_sequence: 120,
            hash_seed: 7,
            buckets: 4,
            string_keys: 2,
            traffic: Traffic::default(),
            past,
            commit_logs: [FileRef::default(); 2],
            tables: BTreeMap::from([(0, table)]),
        };
        let bytes = catalog.encode();
        assert_eq!(Catalog::decode(&bytes), Some(catalog));
        for length in 0..bytes.len() {
            assert_eq!(Catalog::decode(&bytes[..length]), None);
        }
    }
}
