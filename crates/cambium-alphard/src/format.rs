//! What lies on a device: two superblocks, then blocks of entries.
//!
//! ```text
//!  0          4 KiB       8 KiB                                        high water     end
//!  │ superblock │ superblock │ E c c │ E │ T │ free │ E c │ …              │ never used │
//! ```
//!
//! An *entry* (`E`) begins at a block: header, key, value, the bytes that
//! continuation marks displaced, zeros up to the last block's end. Each further
//! block (`c`) begins with [`CONTINUATION`]; the byte that belongs there stands
//! after the value. So no byte of a user's ever stands first in a block, and a
//! value that is a copy of an entry, position, salt and all, is never taken for one.
//!
//! A *tombstone* (`T`) is an entry without key and value in one block: what it
//! deletes is told by the header alone. A *pack* holds several small entries
//! ([`crate::pack`]). An erased block holds zeros.
//!
//! Each header says what the store knew when it was written: its own place in the
//! order ([`EntryHeader::sequence`]), how much of that was durable, how many entries
//! of its batch follow, and a digest of everything that was live after it. Recovery
//! reads headers only, and proves by the digest that it found all there was.

use cambium_base::checksum::{ChecksumSeed, crc32c};
use cambium_base::coding::{u16_at, u32_at, u64_at};
use cambium_base::layout::{Layout, field};
use cambium_base::{Error, Extent, FileIdentity, FileNumber, Result, StoreId};
use cambium_index::cuckoo::SlotKey;
use std::path::Path;

use crate::pack::ROW_BYTES;
use crate::place::Place;

/// The newest format version read, and the one written.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes of each of the two superblocks; entries begin after them.
pub const SUPERBLOCK_BYTES: u64 = 4096;
/// Bytes before the first entry.
pub const DATA_START: u64 = 2 * SUPERBLOCK_BYTES;
/// First byte of an entry.
pub const ENTRY: u8 = 0xa1;
/// First byte of each further block of an entry: three bits from [`ENTRY`] and
/// three from zero, so that no flipped bit makes one of the other.
pub const CONTINUATION: u8 = 0xc5;
/// Added to the kind of the first entry of a batch.
const BEGINS_BATCH: u8 = 128;
/// Bytes of an entry's header.
pub const ENTRY_HEADER_BYTES: usize = 68;
/// The slot key in the header of a pack, which has no key: that of the empty key.
pub const PACK_SLOT_KEY: SlotKey = SlotKey::EMPTY;
/// Name of the file in the store's folder, where no device is given.
pub const DATA_NAME: &str = "data";
/// Name of the file that says where the members are.
pub const MEMBERS_NAME: &str = "members";
/// Name of that file while a new one is written.
pub const NEW_MEMBERS_NAME: &str = "members-new";
/// Name of the index image.
pub const IMAGE_NAME: &str = "index-image";
/// Name of the lock.
pub const LOCK_NAME: &str = "LOCK";

const MAGIC: [u8; 8] = *b"CMBMalph";

/// The entry header's layout.
pub const ENTRY_LAYOUT: Layout = Layout {
    name: "Entry header",
    about: "At the first byte of a block. Key, value and displaced bytes follow; zeros fill the last block.",
    fields: &[
        field(0, 1, "marker", "`a1`; further blocks of the entry begin with `c5`, erased ones with 0"),
        field(1, 1, "kind", "1: a value; 2: a tombstone, which has neither key nor value bytes; 3: a pack; 128 more in the first entry of a batch"),
        field(2, 2, "key_bytes", "length of the key; of a pack, of its table"),
        field(4, 4, "value_bytes", "length of the value; of a pack, of its entries' keys and values"),
        field(8, 8, "sequence", "place in the order of all writes; the newest entry of a key counts; of a pack, of its last entry"),
        field(16, 8, "synced_through", "every write up to here was durable when this one was made"),
        field(24, 8, "live_digest", "of all live entries after this write: recovery proves by it that nothing is missing and nothing came back"),
        field(32, 8, "slot_key", "the key as the index holds it: whole up to 7 bytes (its length and 1 in the top byte), else 56 bits of its hash; of a pack, that of the empty key"),
        field(40, 8, "key_check", "a second hash of the key; both together tell keys apart in recovery; of a pack, the CRC-32C of its table"),
        field(48, 4, "epoch", "opening that wrote it; none newer than the superblock's is believed"),
        field(52, 4, "remaining", "entries of the same batch that follow; a batch without its last entry is none"),
        field(56, 4, "block", "where it stands, so that a misdirected write is noticed"),
        field(60, 4, "body_checksum", "CRC-32C of everything behind the header to the extent's end, seeded with store, salt and offset"),
        field(64, 4, "header_checksum", "CRC-32C of bytes 0 to 63, seeded likewise"),
    ],
    size: ENTRY_HEADER_BYTES,
}
.checked();

/// Bytes of an encoded superblock; zeros fill its 4 KiB.
pub const SUPERBLOCK_FIELDS_BYTES: usize = 148;

/// The superblock's layout.
pub const SUPERBLOCK_LAYOUT: Layout = Layout {
    name: "Superblock of a device",
    about: "At bytes 0 and 4,096 of each member, written one after the other; the sound copy with the highest generation counts.",
    fields: &[
        field(0, 8, "magic", "`CMBMalph`"),
        field(8, 4, "format_version", "a newer one is refused"),
        field(12, 4, "block_bytes", "512 or 4,096"),
        field(16, 8, "generation", "raised with every write of a copy"),
        field(24, 16, "store_id", "as the store's marker has it"),
        field(40, 8, "salt", "random; in every checksum of an entry, so that those of an earlier store on the same device are not believed"),
        field(48, 8, "hash_secret_first", "of the index's hash"),
        field(56, 8, "hash_secret_second", "of the index's hash"),
        field(64, 8, "image_id", "of the index image that a clean close wrote; 0 if there is none"),
        field(72, 8, "sequence", "the last write when this was written"),
        field(80, 8, "synced_through", "every write up to here is durable"),
        field(88, 8, "live_digest", "of all live entries after write `sequence`"),
        field(96, 8, "live_entries", "how many those are"),
        field(104, 4, "epoch", "of the opening that writes, raised before its first entry"),
        field(108, 4, "clean", "1 after a clean close; 0 from the first write on; 2 until a repair has ended that lengthened a member which had been cut off"),
        field(112, 4, "total_blocks", "size of the member"),
        field(116, 4, "high_water", "no entry ever lay at or behind this block: where a scan ends"),
        field(120, 4, "member", "which member this is, from 0"),
        field(124, 4, "members", "how many members there are: 1, or 2 that mirror one another"),
        field(128, 4, "current", "a bit for each member that has every entry; the superblock of the highest generation counts"),
        field(132, 4, "filled", "1 if zeros were written to all of each file when it was made, so that none of its space is new to the file system"),
        field(136, 8, "history_lost", "no change up to this write is shown; all ones in a store that was made without `history=on`"),
        field(144, 4, "checksum", "CRC-32C of bytes 0 to 143"),
    ],
    size: SUPERBLOCK_FIELDS_BYTES,
}
.checked();

/// The field `clean` of [`Superblock::cut_off`].
const CUT_OFF: u32 = 2;
/// The field `history_lost` of a store that keeps no history.
const NO_HISTORY: u64 = u64::MAX;

/// A decoded superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Superblock {
    /// Unit of space, 512 or 4,096 bytes.
    pub block_bytes: u32,
    /// Raised with every write.
    pub generation: u64,
    /// The store.
    pub store: StoreId,
    /// Random, drawn when the device was formatted.
    pub salt: u64,
    /// Of the index's hash.
    pub hash_secret: [u64; 2],
    /// Of the index image, or 0.
    pub image_id: u64,
    /// The last write.
    pub sequence: u64,
    /// The last write known to be durable.
    pub synced_through: u64,
    /// Of all live entries.
    pub live_digest: u64,
    /// How many live entries there are.
    pub live_entries: u64,
    /// The opening.
    pub epoch: u32,
    /// Closed cleanly.
    pub clean: bool,
    /// Entries were lost with the end of a member, and no repair that lengthened it has ended.
    pub cut_off: bool,
    /// Size in blocks.
    pub total_blocks: u32,
    /// Where a scan ends.
    pub high_water: u32,
    /// Which member this is.
    pub member: u32,
    /// How many members there are.
    pub members: u32,
    /// A bit for each member that has all entries.
    pub current: u32,
    /// Something was written to all space of its files.
    pub filled: bool,
    /// The store keeps history: changes up to this write were lost in a repair.
    pub history_lost: Option<u64>,
}

impl Superblock {
    /// Its bytes, with zeros up to 4 KiB.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SUPERBLOCK_BYTES as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.block_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.store.0);
        let [first, second] = self.hash_secret;
        for word in [
            self.salt,
            first,
            second,
            self.image_id,
            self.sequence,
            self.synced_through,
            self.live_digest,
            self.live_entries,
        ] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for word in [
            self.epoch,
            match self.cut_off {
                true => CUT_OFF,
                false => u32::from(self.clean),
            },
            self.total_blocks,
            self.high_water,
            self.member,
            self.members,
            self.current,
            u32::from(self.filled),
        ] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        let history_lost = self.history_lost.unwrap_or(NO_HISTORY);
        bytes.extend_from_slice(&history_lost.to_le_bytes());
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes.resize(SUPERBLOCK_BYTES as usize, 0);
        bytes
    }

    /// True if bytes, which may be damaged elsewhere, name a store in the place where a
    /// superblock does.
    pub fn names(bytes: &[u8], store: StoreId) -> bool {
        bytes.len() >= SUPERBLOCK_FIELDS_BYTES && bytes[..8] == MAGIC && bytes[24..40] == store.0
    }

    /// Decodes a copy; `None` if it is not sound.
    ///
    /// # Errors
    /// `UnsupportedVersion` for a newer format, with its checksum right.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Option<Superblock>> {
        let covered = SUPERBLOCK_FIELDS_BYTES - 4;
        let whole = bytes.len() >= SUPERBLOCK_FIELDS_BYTES && bytes[..8] == MAGIC;
        if !whole || crc32c(&bytes[..covered]) != u32_at(bytes, covered) {
            return Ok(None);
        }
        let found = u32_at(bytes, 8);
        if found > FORMAT_VERSION {
            return Err(Error::UnsupportedVersion {
                path: path.to_path_buf(),
                found,
                supported: FORMAT_VERSION,
            });
        }
        let mut store = [0; 16];
        store.copy_from_slice(&bytes[24..40]);
        let superblock = Superblock {
            block_bytes: u32_at(bytes, 12),
            generation: u64_at(bytes, 16),
            store: StoreId(store),
            salt: u64_at(bytes, 40),
            hash_secret: [u64_at(bytes, 48), u64_at(bytes, 56)],
            image_id: u64_at(bytes, 64),
            sequence: u64_at(bytes, 72),
            synced_through: u64_at(bytes, 80),
            live_digest: u64_at(bytes, 88),
            live_entries: u64_at(bytes, 96),
            epoch: u32_at(bytes, 104),
            clean: u32_at(bytes, 108) == 1,
            cut_off: u32_at(bytes, 108) == CUT_OFF,
            total_blocks: u32_at(bytes, 112),
            high_water: u32_at(bytes, 116),
            member: u32_at(bytes, 120),
            members: u32_at(bytes, 124),
            current: u32_at(bytes, 128),
            filled: u32_at(bytes, 132) == 1,
            history_lost: Some(u64_at(bytes, 136)).filter(|&lost| lost != NO_HISTORY),
        };
        Ok(superblock.is_sane().then_some(superblock))
    }

    /// True if no field is one that this program never writes.
    fn is_sane(&self) -> bool {
        let first = DATA_START / u64::from(self.block_bytes.max(1));
        matches!(self.block_bytes, 512 | 4096)
            && u64::from(self.high_water) >= first
            && self.high_water <= self.total_blocks
            && self.member < self.members
            && (1..=2).contains(&self.members)
            && self.synced_through <= self.sequence
            && self.history_lost.is_none_or(|lost| lost <= self.sequence)
    }

    /// What the checksums of this store's entries begin with.
    pub fn seed(&self) -> ChecksumSeed {
        ChecksumSeed::new(&FileIdentity {
            store: self.store,
            number: FileNumber(0),
            salt: self.salt,
        })
    }

    /// The first block that entries may take.
    pub fn first_block(&self) -> u32 {
        (DATA_START / u64::from(self.block_bytes)) as u32
    }
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A key and its value.
    Value,
    /// The key is gone.
    Tombstone,
    /// Several keys and their values.
    Pack,
}

/// A decoded entry header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// A value or a tombstone.
    pub kind: EntryKind,
    /// Length of the key in bytes.
    pub key_bytes: u16,
    /// Length of the value in bytes.
    pub value_bytes: u32,
    /// Place in the order of all writes.
    pub sequence: u64,
    /// Every write up to here was durable.
    pub synced_through: u64,
    /// Of all live entries after this write.
    pub live_digest: u64,
    /// The key as the index holds it.
    pub slot_key: SlotKey,
    /// A second hash of the key.
    pub key_check: u64,
    /// Opening that wrote it.
    pub epoch: u32,
    /// Entries of its batch that follow.
    pub remaining: u32,
    /// It is the first of its batch.
    pub begins_batch: bool,
    /// Where it stands.
    pub block: u32,
}

impl EntryHeader {
    /// The number of its first write: a pack has several.
    pub fn first_sequence(&self) -> u64 {
        match self.kind {
            EntryKind::Pack => {
                let entries = usize::from(self.key_bytes) / ROW_BYTES;
                (self.sequence + 1).saturating_sub(entries as u64)
            }
            _ => self.sequence,
        }
    }

    /// The place of an entry that lies alone.
    pub(crate) fn place(&self, block_bytes: u32) -> Place {
        let lengths = (self.key_bytes.into(), self.value_bytes as usize);
        match self.kind {
            EntryKind::Tombstone => Place::tombstone(self.block),
            _ => Place::alone(self.block, lengths, block_bytes),
        }
    }

    /// The blocks it takes.
    pub fn extent(&self, block_bytes: u32) -> Extent {
        let (key, value) = (self.key_bytes as usize, self.value_bytes as usize);
        Extent {
            block: self.block,
            blocks: blocks_for(key, value, block_bytes),
        }
    }
}

/// Blocks that an entry takes: each but the first gives a byte to its mark, which
/// takes another after the value.
pub fn blocks_for(key_bytes: usize, value_bytes: usize, block_bytes: u32) -> u32 {
    let content = (ENTRY_HEADER_BYTES + key_bytes + value_bytes - 1) as u64;
    // Lengths are bounded by 64 KiB and 4 GiB: the quotient fits.
    content.div_ceil(u64::from(block_bytes) - 1).max(1) as u32
}

/// Encodes an entry into its blocks, all of them, whatever they hold.
///
/// # Panics
/// If `into` is not as long as the extent: the caller has computed it.
pub fn encode_entry(
    into: &mut [u8],
    header: &EntryHeader,
    key: &[u8],
    value: &[u8],
    block_bytes: u32,
    seed: ChecksumSeed,
) {
    let unit = block_bytes as usize;
    assert_eq!(into.len() % unit, 0, "whole blocks");
    let mut at = ENTRY_HEADER_BYTES;
    for part in [key, value] {
        into[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    into[at..].fill(0);
    for start in (unit..into.len()).step_by(unit) {
        into[at] = into[start];
        at += 1;
        into[start] = CONTINUATION;
    }
    let offset = u64::from(header.block) * u64::from(block_bytes);
    let body = seed.at(offset, &into[ENTRY_HEADER_BYTES..]);
    into[0] = ENTRY;
    let kind = match header.kind {
        EntryKind::Value => 1,
        EntryKind::Tombstone => 2,
        EntryKind::Pack => 3,
    };
    into[1] = kind | if header.begins_batch { BEGINS_BATCH } else { 0 };
    into[2..4].copy_from_slice(&header.key_bytes.to_le_bytes());
    into[4..8].copy_from_slice(&header.value_bytes.to_le_bytes());
    into[8..16].copy_from_slice(&header.sequence.to_le_bytes());
    into[16..24].copy_from_slice(&header.synced_through.to_le_bytes());
    into[24..32].copy_from_slice(&header.live_digest.to_le_bytes());
    into[32..40].copy_from_slice(&header.slot_key.bits().to_le_bytes());
    into[40..48].copy_from_slice(&header.key_check.to_le_bytes());
    into[48..52].copy_from_slice(&header.epoch.to_le_bytes());
    into[52..56].copy_from_slice(&header.remaining.to_le_bytes());
    into[56..60].copy_from_slice(&header.block.to_le_bytes());
    into[60..64].copy_from_slice(&body.to_le_bytes());
    let checksum = seed.at(offset, &into[..64]);
    into[64..68].copy_from_slice(&checksum.to_le_bytes());
}

/// Decodes the header of an entry that begins at `block`; `None` if there is none.
pub fn decode_header(
    bytes: &[u8],
    block: u32,
    block_bytes: u32,
    seed: ChecksumSeed,
) -> Option<EntryHeader> {
    let bytes = bytes.get(..ENTRY_HEADER_BYTES)?;
    let offset = u64::from(block) * u64::from(block_bytes);
    if bytes[0] != ENTRY || seed.at(offset, &bytes[..64]) != u32_at(bytes, 64) {
        return None;
    }
    let header = EntryHeader {
        kind: match bytes[1] & !BEGINS_BATCH {
            1 => EntryKind::Value,
            2 => EntryKind::Tombstone,
            3 => EntryKind::Pack,
            _ => return None,
        },
        key_bytes: u16_at(bytes, 2),
        value_bytes: u32_at(bytes, 4),
        sequence: u64_at(bytes, 8),
        synced_through: u64_at(bytes, 16),
        live_digest: u64_at(bytes, 24),
        slot_key: SlotKey::from_bits(u64_at(bytes, 32))?,
        key_check: u64_at(bytes, 40),
        epoch: u32_at(bytes, 48),
        remaining: u32_at(bytes, 52),
        begins_batch: bytes[1] & BEGINS_BATCH != 0,
        block: u32_at(bytes, 56),
    };
    (header.block == block).then_some(header)
}

/// Verifies the blocks of an entry after its header.
pub fn body_is_sound(bytes: &[u8], block: u32, block_bytes: u32, seed: ChecksumSeed) -> bool {
    let offset = u64::from(block) * u64::from(block_bytes);
    bytes.len() > ENTRY_HEADER_BYTES
        && seed.at(offset, &bytes[ENTRY_HEADER_BYTES..]) == u32_at(bytes, 60)
}

/// Puts the displaced bytes of an entry's verified blocks back, so that key and
/// value can be read in one piece; answers where each lies. `None` if the lengths
/// do not fit the blocks.
pub fn restore(
    bytes: &mut [u8],
    header: &EntryHeader,
    block_bytes: u32,
) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let unit = block_bytes as usize;
    let key = ENTRY_HEADER_BYTES..ENTRY_HEADER_BYTES + header.key_bytes as usize;
    let value = key.end..key.end + header.value_bytes as usize;
    let mut at = value.end;
    if at + (bytes.len() / unit).saturating_sub(1) > bytes.len() {
        return None;
    }
    // Backwards: a displaced byte may itself stand first in a block.
    let marks: Vec<usize> = (unit..bytes.len()).step_by(unit).collect();
    at += marks.len();
    for start in marks.into_iter().rev() {
        at -= 1;
        bytes[start] = bytes[at];
    }
    Some((key, value))
}

/// An entry's part of the digest of all that is live.
pub(crate) fn digest_of(key: SlotKey, place: Place) -> u64 {
    // The finalizer of SplitMix64 (Steele, Lea, Flood, 2014), twice.
    mix(key.bits() ^ mix(place.id().wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
