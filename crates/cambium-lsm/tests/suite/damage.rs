//! Damage is found, named, and never read as data: every byte of every file
//! flipped, every file cut at every length, and decoders fed with bytes that
//! nobody wrote.

use std::path::{Path, PathBuf};

use cambium_base::FileIdentity;
use cambium_base::checksum::ChecksumSeed;
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_lsm::decoders;
use cambium_testkit::mutation::mutated;

use crate::support::{World, all_keys, key, tiny_options};

const KEYS: u64 = 30;

/// A closed tree with tables on several levels, range tombstones among them.
fn closed_tree(shape: u64) -> World {
    let mut generator = Generator::new(9);
    let mut world = World::create(SimulatedDisk::new(9), tiny_options(shape));
    for round in 0..110 {
        match round % 10 {
            3 => world.delete(&key(&mut generator, KEYS)),
            7 => world.delete_range(b"key0012", Some(b"key0015")),
            _ => world.put(&key(&mut generator, KEYS), &mut generator),
        }
        if round % 12 == 11 {
            world.seal();
            world.tree.flush().unwrap();
            for _ in 0..round / 20 {
                world.tree.step(1 << 20).unwrap();
            }
        }
    }
    world.seal();
    world.tree.flush().unwrap();
    assert!(
        world
            .tree
            .statistics()
            .levels
            .iter()
            .filter(|level| level.tables > 0)
            .count()
            > 1
    );
    world.tree.close().unwrap();
    let again = World::open(world.disk.clone(), world.options.clone(), &world.log).unwrap();
    again.tree.remove_unknown_files().unwrap();
    again.tree.close().unwrap();
    world
}

/// Opens a damaged tree and reads all of it; `Err` if the damage was noticed.
fn read_all(disk: &SimulatedDisk, world: &World) -> Result<(), String> {
    let opened = World::open(disk.process_crash(), world.options.clone(), &world.log);
    let opened = opened.map_err(|error| error.to_string())?;
    let mut found = None;
    opened
        .tree
        .check(&mut |finding| found = Some(finding.to_string()))
        .map_err(|error| error.to_string())?;
    if let Some(found) = found {
        return Err(found);
    }
    // Not noticed: then nothing may be different.
    opened
        .check_reads(opened.sequence, &all_keys(KEYS))
        .unwrap();
    Ok(())
}

fn files(world: &World) -> Vec<PathBuf> {
    world.disk.files()
}

fn is_table(path: &Path) -> bool {
    path.to_string_lossy().contains("table-")
}

#[test]
fn every_flipped_byte_of_a_table_is_found() {
    for shape in [0, 1] {
        let world = closed_tree(shape);
        let tables: Vec<PathBuf> = files(&world)
            .into_iter()
            .filter(|path| is_table(path))
            .collect();
        assert!(tables.len() > 2);
        for path in tables {
            let length = world.disk.contents(&path).unwrap().len();
            for offset in 0..length {
                let disk = world.disk.process_crash();
                assert!(disk.flip_bit(&path, offset as u64, offset as u32 % 8));
                let noticed = read_all(&disk, &world);
                let what = noticed.expect_err(&format!("byte {offset} of {path:?}"));
                assert!(what.contains("table-"), "{what}");
            }
        }
    }
}

#[test]
fn every_flipped_byte_of_a_manifest_is_found_or_changes_nothing() {
    let world = closed_tree(0);
    let (mut noticed, mut harmless) = (0, 0);
    for path in files(&world).into_iter().filter(|path| !is_table(path)) {
        let contents = world.disk.contents(&path).unwrap();
        for (offset, &byte) in contents.iter().enumerate() {
            // Of the padding a part stands for the rest.
            if byte == 0 && offset % 13 != 0 {
                continue;
            }
            let disk = world.disk.process_crash();
            assert!(disk.flip_bit(&path, offset as u64, offset as u32 % 8));
            match read_all(&disk, &world) {
                Ok(()) => {
                    harmless += 1;
                    // Padding, or a copy of the superblock beside a sound one.
                    let spare = path.to_string_lossy().contains("superblock");
                    assert!(byte == 0 || spare, "byte {offset} of {path:?}");
                }
                Err(_) => noticed += 1,
            }
        }
    }
    assert!(
        noticed > 300 && harmless > 100,
        "{noticed} noticed, {harmless} harmless"
    );
}

#[test]
fn a_file_that_ends_early_is_damage_at_every_length() {
    let world = closed_tree(0);
    for path in files(&world) {
        let contents = world.disk.contents(&path).unwrap();
        let used = contents.iter().rposition(|&byte| byte != 0).unwrap();
        let spare = path.to_string_lossy().contains("superblock");
        for length in 0..contents.len() {
            if length > used + 1 && length % 97 != 0 {
                continue;
            }
            let disk = world.disk.process_crash();
            assert!(disk.replace_contents(&path, &contents[..length]));
            let noticed = read_all(&disk, &world);
            if is_table(&path) || (length <= used && !spare) {
                assert!(noticed.is_err(), "{length} bytes of {path:?}");
            }
        }
    }
}

#[test]
fn a_missing_file_is_damage_that_is_named() {
    let world = closed_tree(0);
    for path in files(&world) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("superblock") {
            continue;
        }
        let disk = world.disk.process_crash();
        cambium_io::FileSystem::remove(&disk, &path).unwrap();
        let what = read_all(&disk, &world).unwrap_err();
        assert!(what.contains(&name), "{what}");
    }
}

#[test]
fn a_table_of_another_place_is_not_taken_for_one() {
    let world = closed_tree(0);
    let tables: Vec<PathBuf> = files(&world)
        .into_iter()
        .filter(|path| is_table(path))
        .collect();
    let disk = world.disk.process_crash();
    let other = disk.contents(&tables[0]).unwrap();
    assert!(disk.replace_contents(&tables[1], &other));
    let what = read_all(&disk, &world).unwrap_err();
    assert!(what.contains("belongs to file"), "{what}");
}

/// Decoders answer or refuse; they never panic, loop, or take memory that the
/// bytes do not stand for.
#[test]
fn decoders_withstand_bytes_that_nobody_wrote() {
    let world = closed_tree(0);
    let mut samples: Vec<Vec<u8>> = Vec::new();
    for path in files(&world) {
        let contents = world.disk.contents(&path).unwrap();
        for start in [0, 96, 4096, 4096 + 48, 8192 + 48] {
            if let Some(rest) = contents.get(start..) {
                samples.push(rest[..rest.len().min(300)].to_vec());
            }
        }
    }
    let seed = ChecksumSeed::new(&FileIdentity::default());
    let mut generator = Generator::new(17);
    let (mut blocks, mut edits) = (0, 0);
    for _ in 0..200_000 {
        let sample = generator.pick(&samples).clone();
        let bytes = mutated(&mut generator, &sample);
        blocks += u32::from(decoders::decode_block_entries(&bytes).is_some());
        edits += u32::from(decoders::decode_edit_bytes(&bytes));
        decoders::decode_properties_bytes(&bytes);
        assert!(decoders::decode_footer_bytes(&bytes, &seed).is_err());
        // The end of a block says where its entries end.
        let mut block = bytes.clone();
        block.extend_from_slice(&0u32.to_le_bytes());
        block.extend_from_slice(&1u32.to_le_bytes());
        blocks += u32::from(decoders::decode_block_entries(&block).is_some());
    }
    assert!(
        blocks + edits > 100,
        "{blocks} blocks, {edits} edits made sense"
    );
}
