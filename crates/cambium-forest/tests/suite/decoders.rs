//! Bytes that no store wrote, behind checksums that match: decoders of headers,
//! roots, nodes and documents answer or refuse, and never panic, loop, or allocate
//! what is not there.

use std::path::{Path, PathBuf};

use cambium_api::{
    CompactOptions, Direction, Durability, EngineKind, KeyRange, OptionValues, Reader,
};
use cambium_base::checksum::ChecksumSeed;
use cambium_forest::Forest;
use cambium_forest::document::DocumentAddress;
use cambium_forest::format::{
    DatabaseHeader, FORMAT_VERSION, MAGIC, ROOT_BYTES, Root, check_node, kind, namespace_and_key,
    seal_node,
};
use cambium_forest::options::Shape;
use cambium_index::NodeAddress;
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_io::{Environment, FileSystem, OpenOptions};
use cambium_storage::file_header::FileHeader;
use cambium_storage::record::RecordHeader;
use cambium_testkit::mutation::{mutated, random};
use cambium_testkit::stores;

const PATH: &str = "/store";
const NODE: usize = 512;

#[test]
fn headers_and_roots_of_random_bytes_are_refused_or_read_back() {
    let mut generator = Generator::new(7);
    let header = DatabaseHeader {
        sequence: 9,
        namespaces: (0..5)
            .map(|n| (n, format!("n{n}"), Default::default()))
            .collect(),
        ..DatabaseHeader::default()
    };
    let (header, root) = (header.encode(), Root::default().encode());
    for round in 0..200_000u64 {
        let bytes = match round % 3 {
            0 => random(&mut generator, 300),
            1 => mutated(&mut generator, &header),
            _ => mutated(&mut generator, &root),
        };
        // What is accepted means one thing.
        if let Some(decoded) = DatabaseHeader::decode(&bytes) {
            assert_eq!(DatabaseHeader::decode(&decoded.encode()), Some(decoded));
        }
        if let Some(decoded) = Root::decode(&bytes) {
            assert_eq!(Root::decode(&decoded.encode()), Some(decoded));
        }
        let number = generator.next_u64();
        if let Some(shape) = Shape::unpack(number, generator.next_u64() as u32) {
            assert_eq!(shape.pack(), number);
        }
        let address = DocumentAddress(number);
        assert!(address.offset() < 1 << 46 && address.most_bytes() < 1 << 40);
        let seed = ChecksumSeed::new(&Default::default());
        let _ = check_node(&bytes, &seed, NodeAddress(number));
        let record = RecordHeader {
            auxiliary: number as u32,
            payload_bytes: (number >> 32) as u32 % 100,
            ..RecordHeader::default()
        };
        if let Some((_, key_bytes)) = namespace_and_key(&record) {
            assert!(key_bytes <= 100);
        }
    }
}

/// A closed store with a trie of a few levels, and its file.
fn victim() -> (SimulatedDisk, PathBuf) {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let options = OptionValues::from([
        ("node_bytes", "512"),
        ("block_bytes", "512"),
        ("chunk_bytes", "2"),
        ("preallocate_bytes", "0"),
    ]);
    let store = stores::create(&Forest, &environment, &options);
    for number in 0..1_500u32 {
        let key = format!("{}-{}", number % 20, number.wrapping_mul(7919));
        store
            .put(key.as_bytes(), b"value", Durability::Buffered)
            .unwrap();
    }
    store.close().unwrap();
    (disk, Path::new(PATH).join("000001.forest"))
}

/// Asks a store everything there is to ask; errors are welcome.
fn ask_everything(disk: &SimulatedDisk) {
    let environment = Environment::simulated(disk, 2);
    let path = Path::new(PATH);
    let _ = Forest.check(&environment, path, &Default::default(), &());
    let _ = Forest.inspect(&environment, path, &mut Vec::new());
    let Ok(store) = Forest.open(&environment, path, &OptionValues::default(), &()) else {
        return;
    };
    let keys: Vec<Vec<u8>> = (0..30u32)
        .map(|number| format!("{}-{}", number % 20, number.wrapping_mul(7919)).into_bytes())
        .collect();
    for key in &keys {
        let _ = store.get(key);
    }
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let _ = store.multi_get(&asked);
    for direction in [Direction::Forward, Direction::Reverse] {
        walk(&*store, direction);
    }
    let _ = store.dump(&mut Vec::new());
    let _ = store.stats();
    let _ = store.approximate_size(&KeyRange::prefix(b"1"));
    let _ = store.put(b"1-0", b"new", Durability::Written);
    let _ = store.delete_range(KeyRange::prefix(b"2"), Durability::Written);
    let _ = store.create_named_snapshot("now");
    let _ = store.compact(&CompactOptions::default(), &());
    let _ = store.check(&());
    let _ = store.close();
}

fn walk(store: &dyn Reader, direction: Direction) {
    let Ok(mut cursor) = store.scan(&KeyRange::all(), direction) else {
        return;
    };
    for _ in 0..5_000 {
        if !matches!(cursor.next(), Ok(Some(_))) {
            return;
        }
    }
    panic!("a damaged trie of 1,500 entries has no end");
}

#[test]
fn nodes_of_any_content_behind_a_matching_checksum_end_in_an_answer() {
    let (disk, file) = victim();
    let handle = disk.open(&file, OpenOptions::READ).unwrap();
    let header = FileHeader::read(&*handle, MAGIC, FORMAT_VERSION).unwrap();
    let seed = ChecksumSeed::new(&header.identity);
    let bytes = disk.contents(&file).unwrap();
    let nodes: Vec<u64> = (0..(bytes.len() / NODE) as u64)
        .filter(|&block| {
            let content = &bytes[block as usize * NODE..][..NODE];
            check_node(content, &seed, NodeAddress(block)).is_none()
        })
        .collect();
    assert!(nodes.len() > 20, "{} nodes", nodes.len());
    let mut generator = Generator::new(11);
    for round in 0..1_500 {
        let block = *generator.pick(&nodes);
        let mut content = match round % 4 {
            0 => random(&mut generator, NODE as u64),
            // Another node's content: pointers to ancestors among them.
            1 => {
                let other = *generator.pick(&nodes) as usize;
                bytes[other * NODE..][..NODE].to_vec()
            }
            _ => mutated(&mut generator, &bytes[block as usize * NODE..][..NODE - 16]),
        };
        content.resize(NODE, 0);
        seal_node(&mut content, &seed, NodeAddress(block));
        let damaged = disk.fork();
        let mut bytes = bytes.clone();
        bytes[block as usize * NODE..][..NODE].copy_from_slice(&content);
        damaged.replace_contents(&file, &bytes);
        ask_everything(&damaged);
    }
}

#[test]
fn records_of_any_content_behind_a_matching_checksum_end_in_an_answer() {
    let (disk, file) = victim();
    let handle = disk.open(&file, OpenOptions::READ).unwrap();
    let header = FileHeader::read(&*handle, MAGIC, FORMAT_VERSION).unwrap();
    let seed = ChecksumSeed::new(&header.identity);
    let bytes = disk.contents(&file).unwrap();
    let records: Vec<(u64, RecordHeader)> = (512..bytes.len() as u64)
        .step_by(8)
        .filter_map(|offset| {
            let found = RecordHeader::decode(&bytes[offset as usize..], &seed, offset);
            Some((offset, found.ok()?))
        })
        .collect();
    assert!(records.len() > 400, "{} records", records.len());
    let headers: Vec<_> = records
        .iter()
        .filter(|(_, record)| record.kind == kind::HEADER)
        .copied()
        .collect();
    let mut generator = Generator::new(13);
    for round in 0..1_000 {
        // The newest header, which every opening reads, most of all.
        let (offset, record) = match round % 2 {
            0 => *headers.last().unwrap(),
            _ => *generator.pick(&records),
        };
        let start = offset as usize + usize::from(record.header_bytes);
        let payload = &bytes[start..][..record.payload_bytes as usize];
        let mut payload = mutated(&mut generator, payload);
        payload.truncate(record.payload_bytes as usize);
        let changed = RecordHeader {
            kind: match generator.below(8) {
                0 => 1 + generator.below(7) as u8,
                _ => record.kind,
            },
            auxiliary: match generator.below(4) {
                0 => generator.next_u64() as u32,
                _ => record.auxiliary,
            },
            ..record
        };
        let mut encoded = Vec::new();
        changed.encode(&seed, offset, &[&payload], 8, &mut encoded);
        let damaged = disk.fork();
        let mut bytes = bytes.clone();
        bytes[offset as usize..][..encoded.len()].copy_from_slice(&encoded);
        damaged.replace_contents(&file, &bytes);
        if generator.chance(1, 2) {
            // As if it had not been closed: the log is read as well.
            for copy in ["superblock-0", "superblock-1"] {
                unclose(&damaged, &Path::new(PATH).join(copy));
            }
        }
        ask_everything(&damaged);
    }
}

/// Takes the clean mark out of a superblock copy.
fn unclose(disk: &SimulatedDisk, path: &Path) {
    use cambium_base::checksum::{crc32c, crc32c_append};
    let mut bytes = disk.contents(path).unwrap();
    let payload = 48..48 + ROOT_BYTES;
    let mut root = Root::decode(&bytes[payload.clone()]).unwrap();
    root.clean = false;
    bytes[payload.clone()].copy_from_slice(&root.encode());
    let payload = crc32c_append(crc32c(&bytes[16..24]), &bytes[payload]);
    bytes[40..44].copy_from_slice(&payload.to_le_bytes());
    let header = crc32c(&bytes[..44]);
    bytes[44..48].copy_from_slice(&header.to_le_bytes());
    disk.replace_contents(path, &bytes);
}
