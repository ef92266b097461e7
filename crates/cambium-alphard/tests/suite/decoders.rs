//! Bytes that no store wrote, some behind checksums that match: decoders answer or
//! refuse, and never panic, loop, or allocate what is not there.

use std::path::Path;

use cambium_alphard::Alphard;
use cambium_alphard::format::{
    ENTRY_HEADER_BYTES, EntryHeader, EntryKind, Superblock, blocks_for, body_is_sound,
    decode_header, encode_entry, restore,
};
use cambium_api::{Durability, EngineKind, OptionValues};
use cambium_base::checksum::{ChecksumSeed, crc32c};
use cambium_base::{FileIdentity, StoreId};
use cambium_index::cuckoo::CuckooIndex;
use cambium_io::Environment;
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_testkit::stores;
use proptest::prelude::*;

const PATH: &str = "/store";

fn seed() -> ChecksumSeed {
    ChecksumSeed::new(&FileIdentity::default())
}

fn superblock() -> Superblock {
    Superblock {
        block_bytes: 512,
        generation: 7,
        store: StoreId([3; 16]),
        salt: 9,
        hash_secret: [1, 2],
        image_id: 0,
        sequence: 20,
        synced_through: 20,
        live_digest: 5,
        live_entries: 4,
        epoch: 2,
        clean: false,
        total_blocks: 128,
        high_water: 48,
        member: 0,
        members: 1,
        current: 1,
        filled: true,
        cut_off: false,
        history_lost: Some(12),
    }
}

#[test]
fn superblocks_with_any_fields_behind_a_right_checksum_are_read_or_refused() {
    let mut generator = Generator::new(5);
    let good = superblock().encode();
    let path = Path::new("device");
    assert_eq!(Superblock::decode(&good, path).unwrap(), Some(superblock()));
    for bit in 0..144 * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Superblock::decode(&bytes, path).unwrap(), None, "bit {bit}");
    }
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + generator.below(5) {
            let at = 8 + generator.below(136) as usize;
            bytes[at] = generator.below(256) as u8;
        }
        let checksum = crc32c(&bytes[..144]);
        bytes[144..148].copy_from_slice(&checksum.to_le_bytes());
        bytes.truncate(generator.below(4097) as usize);
        if let Ok(Some(found)) = Superblock::decode(&bytes, path) {
            assert!(found.high_water <= found.total_blocks);
            assert!(found.first_block() <= found.high_water);
        }
    }
}

/// A store whose superblock says anything it may, behind its checksum, opens or
/// answers an error.
#[test]
fn stores_with_forged_superblocks_open_or_are_refused() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let options = OptionValues::from([("size", "65536"), ("block_bytes", "512")]);
    let store = stores::create(&Alphard, &environment, &options);
    for number in 0..10u8 {
        store
            .put(&[number], &[number; 700], Durability::Synced)
            .unwrap();
    }
    drop(store);
    let data = Path::new("/store/data");
    let good = disk.contents(data).unwrap();
    let mut generator = Generator::new(6);
    let mut opened = 0;
    for _ in 0..2_000 {
        let mut bytes = good.clone();
        let (at, value) = (
            40 + generator.below(104) as usize,
            generator.below(256) as u8,
        );
        for copy in [0, 4096] {
            bytes[copy + at] = value;
            let checksum = crc32c(&bytes[copy..copy + 144]);
            bytes[copy + 144..copy + 148].copy_from_slice(&checksum.to_le_bytes());
        }
        let fork = disk.fork();
        assert!(fork.replace_contents(data, &bytes));
        let environment = Environment::simulated(&fork, 2);
        let options = OptionValues::from([("io", "sync")]);
        if let Ok(store) = Alphard.open(&environment, Path::new(PATH), &options, &()) {
            opened += 1;
            for number in 0..10u8 {
                let found = store.get(&[number]).unwrap();
                assert!(found.is_none_or(|found| found == vec![number; 700]));
            }
        }
    }
    assert!(opened > 0);
}

/// An image that says anything behind its checksum is believed only if it makes the
/// digest of the superblock.
#[test]
fn forged_index_images_are_not_believed() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let options = OptionValues::from([("size", "65536"), ("block_bytes", "512")]);
    let store = stores::create(&Alphard, &environment, &options);
    for number in 0..10u8 {
        store
            .put(&[number], &[number; 700], Durability::Synced)
            .unwrap();
    }
    store.delete(&[3], Durability::Synced).unwrap();
    store.close().unwrap();
    let path = Path::new("/store/index-image");
    let good = disk.contents(path).unwrap();
    let mut generator = Generator::new(7);
    for _ in 0..3_000 {
        let mut bytes = good.clone();
        let body = bytes.len() - 4;
        for _ in 0..1 + generator.below(3) {
            let at = 16 + generator.below(body as u64 - 16) as usize;
            bytes[at] = generator.below(256) as u8;
        }
        let checksum = crc32c(&bytes[..body]);
        bytes[body..].copy_from_slice(&checksum.to_le_bytes());
        let fork = disk.fork();
        assert!(fork.replace_contents(path, &bytes));
        let environment = Environment::simulated(&fork, 2);
        let options = OptionValues::default();
        let store = stores::open(&Alphard, &environment, &options);
        for number in 0..10u8 {
            let expected = (number != 3).then(|| vec![number; 700]);
            let found = store.get(&[number]).unwrap();
            assert_eq!(found.map(|found| found.to_vec()), expected);
        }
    }
    assert!(environment.file_system.metadata(path).unwrap().is_some());
}

proptest! {
    #[test]
    fn entries_of_every_length_come_back_and_no_user_byte_begins_a_block(
        key in prop::collection::vec(any::<u8>(), 0..1_200),
        value in prop::collection::vec(any::<u8>(), 0..9_000),
        block_bytes in prop::sample::select(vec![512u32, 4096]),
    ) {
        let blocks = blocks_for(key.len(), value.len(), block_bytes);
        let mut bytes = vec![0; blocks as usize * block_bytes as usize];
        let header = EntryHeader {
            kind: EntryKind::Value,
            key_bytes: key.len() as u16,
            value_bytes: value.len() as u32,
            sequence: 3,
            synced_through: 2,
            live_digest: 1,
            slot_key: CuckooIndex::new([1, 2]).key(&key),
            key_check: 4,
            epoch: 1,
            remaining: 0,
            begins_batch: true,
            block: 77,
        };
        encode_entry(&mut bytes, &header, &key, &value, block_bytes, seed());
        for block in bytes.chunks(block_bytes as usize).skip(1) {
            prop_assert_eq!(block[0], 0xc5);
        }
        prop_assert_eq!(decode_header(&bytes, 77, block_bytes, seed()), Some(header));
        prop_assert_eq!(decode_header(&bytes, 78, block_bytes, seed()), None);
        prop_assert!(body_is_sound(&bytes, 77, block_bytes, seed()));
        let (at_key, at_value) = restore(&mut bytes, &header, block_bytes).unwrap();
        prop_assert_eq!(&bytes[at_key], key.as_slice());
        prop_assert_eq!(&bytes[at_value], value.as_slice());
    }

    #[test]
    fn headers_of_random_bytes_behind_a_right_checksum_are_safe(
        fields in prop::collection::vec(any::<u8>(), 62),
        tail in prop::collection::vec(any::<u8>(), 0..2_000),
    ) {
        let mut bytes = vec![0xa1, 1];
        bytes.extend(fields);
        bytes[56..60].copy_from_slice(&9u32.to_le_bytes());
        let checksum = seed().at(9 * 512, &bytes[..64]);
        bytes.extend(checksum.to_le_bytes());
        bytes.extend(tail);
        if let Some(header) = decode_header(&bytes, 9, 512, seed()) {
            _ = header.extent(512);
            _ = body_is_sound(&bytes, 9, 512, seed());
            if let Some((key, value)) = restore(&mut bytes, &header, 512) {
                prop_assert!(key.start == ENTRY_HEADER_BYTES && value.end <= bytes.len());
            }
        }
    }
}
