//! What `alphard` decodes: superblocks, entry headers and entries. Checksums are made
//! right, so that what lies behind them is reached; what is accepted means one thing.
#![no_main]

use std::path::Path;

use cambium_alphard::format::{
    ENTRY, SUPERBLOCK_FIELDS_BYTES, Superblock, blocks_for, body_is_sound, decode_header, restore,
};
use cambium_base::checksum::{ChecksumSeed, crc32c};
use cambium_base::{FileIdentity, FileNumber, StoreId};
use libfuzzer_sys::fuzz_target;

const UNIT: usize = 512;
const BLOCK: u32 = 16;

fuzz_target!(|data: &[u8]| {
    superblock(data);
    let mut whole = data.to_vec();
    whole.resize(data.len().max(1).next_multiple_of(UNIT), 0);
    entry(&whole);
    // With what a reader looks at first, and both checksums, in their places.
    let seed = seed();
    let offset = u64::from(BLOCK) * UNIT as u64;
    whole[0] = ENTRY;
    whole[56..60].copy_from_slice(&BLOCK.to_le_bytes());
    let body = seed.at(offset, &whole[68..]);
    whole[60..64].copy_from_slice(&body.to_le_bytes());
    let head = seed.at(offset, &whole[..64]);
    whole[64..68].copy_from_slice(&head.to_le_bytes());
    entry(&whole);
});

fn seed() -> ChecksumSeed {
    ChecksumSeed::new(&FileIdentity {
        store: StoreId([7; 16]),
        number: FileNumber(0),
        salt: 9,
    })
}

fn superblock(data: &[u8]) {
    let decode = |bytes: &[u8]| Superblock::decode(bytes, Path::new("device"));
    let _ = decode(data);
    let mut whole = data.to_vec();
    whole.resize(4096, 0);
    whole[..8].copy_from_slice(b"CMBMalph");
    let covered = SUPERBLOCK_FIELDS_BYTES - 4;
    let checksum = crc32c(&whole[..covered]);
    whole[covered..covered + 4].copy_from_slice(&checksum.to_le_bytes());
    if let Ok(Some(found)) = decode(&whole) {
        assert!(matches!(found.block_bytes, 512 | 4096));
        assert!(found.first_block() <= found.high_water && found.high_water <= found.total_blocks);
        assert_eq!(decode(&found.encode()).ok().flatten(), Some(found));
    }
}

fn entry(whole: &[u8]) {
    let Some(header) = decode_header(whole, BLOCK, UNIT as u32, seed()) else {
        return;
    };
    let extent = header.extent(UNIT as u32);
    let (key, value) = (header.key_bytes as usize, header.value_bytes as usize);
    assert_eq!((extent.block, extent.blocks), (BLOCK, blocks_for(key, value, UNIT as u32)));
    if !body_is_sound(whole, BLOCK, UNIT as u32, seed()) {
        return;
    }
    let mut bytes = whole.to_vec();
    if let Some((key, value)) = restore(&mut bytes, &header, UNIT as u32) {
        assert_eq!(key.len(), header.key_bytes as usize);
        assert_eq!(value.len(), header.value_bytes as usize);
        assert!(value.end <= bytes.len());
    }
}
