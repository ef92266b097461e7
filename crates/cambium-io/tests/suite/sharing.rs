//! Files with several names, and files that share blocks, on every file system.

use std::path::{Path, PathBuf};

use cambium_io::simulated::{CrashStyle, Sharing, SimulatedDisk};
use cambium_io::{FileSystem, OpenOptions, PortableFileSystem, RealFileSystem};

fn read(files: &dyn FileSystem, path: &Path) -> Vec<u8> {
    let file = files.open(path, OpenOptions::READ).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn write_new(files: &dyn FileSystem, path: &Path, bytes: &[u8]) {
    let file = files.open(path, OpenOptions::CREATE_NEW).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
}

/// The folder's paths, and what a test calls them.
fn paths(folder: &Path) -> [PathBuf; 3] {
    ["first", "second", "copy"].map(|name| folder.join(name))
}

fn a_link_is_a_second_name(files: &dyn FileSystem, folder: &Path) {
    let [first, second, _] = paths(folder);
    write_new(files, &first, b"oak");
    assert_eq!(files.metadata(&first).unwrap().unwrap().links, 1);
    assert!(files.link(&first, &second).unwrap());
    assert_eq!(files.metadata(&second).unwrap().unwrap().links, 2);
    let file = files.open(&first, OpenOptions::WRITE).unwrap();
    file.write_at(b"ash", 0).unwrap();
    assert_eq!(read(files, &second), b"ash");
    assert!(files.link(&first, &second).is_err(), "a name in use");
    drop(file);
    files.remove(&first).unwrap();
    assert_eq!(files.metadata(&second).unwrap().unwrap().links, 1);
    assert_eq!(read(files, &second), b"ash");
    files.remove(&second).unwrap();
}

/// False where this file system shares no blocks.
fn a_clone_is_another_file(files: &dyn FileSystem, folder: &Path) -> bool {
    let [first, _, copy] = paths(folder);
    write_new(files, &first, &[7; 10_000]);
    if !files.clone_file(&first, &copy, 9000).unwrap() {
        assert!(files.metadata(&copy).unwrap().is_none());
        files.remove(&first).unwrap();
        return false;
    }
    let file = files.open(&first, OpenOptions::WRITE).unwrap();
    file.write_at(&[1; 100], 50).unwrap();
    file.punch_hole(4096, 4096).unwrap();
    assert_eq!(read(files, &copy), [7; 9000]);
    let other = files.open(&copy, OpenOptions::WRITE).unwrap();
    other.write_at(&[2; 10], 0).unwrap();
    assert_eq!(read(files, &first)[..10], [7; 10]);
    assert!(files.clone_file(&first, &copy, 1).is_err(), "a name in use");
    true
}

#[test]
fn the_real_file_system_links_and_clones_where_it_can() {
    let folder = tempfile::tempdir().unwrap();
    a_link_is_a_second_name(&RealFileSystem, folder.path());
    a_link_is_a_second_name(&PortableFileSystem, folder.path());
    a_clone_is_another_file(&RealFileSystem, folder.path());
}

#[test]
fn the_simulated_ones_link_and_clone() {
    let root = Path::new("/");
    let memory = SimulatedDisk::memory();
    let disk = SimulatedDisk::new(1);
    for files in [&memory as &dyn FileSystem, &disk] {
        a_link_is_a_second_name(files, root);
        assert!(a_clone_is_another_file(files, root));
    }
    let disk = SimulatedDisk::new(1);
    disk.set_sharing(Sharing::Nothing);
    assert!(!a_clone_is_another_file(&disk, root));
    let [first, second, _] = paths(root);
    write_new(&disk, &first, b"oak");
    assert!(!disk.link(&first, &second).unwrap());
}

#[test]
fn a_power_cut_loses_a_name_or_a_clone_that_was_not_synced_and_leaves_the_first_file() {
    let root = Path::new("/");
    let disk = SimulatedDisk::new(1);
    let [first, second, copy] = paths(root);
    write_new(&disk, &first, b"oak");
    disk.sync_directory(root).unwrap();
    assert!(disk.link(&first, &second).unwrap());
    assert!(disk.clone_file(&first, &copy, 2).unwrap());

    let lost = disk.crash(CrashStyle::NothingUnsynced, 1);
    assert_eq!(lost.files(), [PathBuf::from("/first")]);
    disk.sync_directory(root).unwrap();
    let named = disk.crash(CrashStyle::NothingUnsynced, 1);
    assert_eq!(named.contents(&second).unwrap(), b"oak");
    assert_eq!(named.contents(&copy).unwrap(), b"");
    let file = disk.open(&copy, OpenOptions::WRITE).unwrap();
    file.sync_data().unwrap();
    let synced = disk.crash(CrashStyle::NothingUnsynced, 1);
    assert_eq!(synced.contents(&copy).unwrap(), b"oa");

    // Both names lead to the one file that a crash leaves.
    for seed in 0..100 {
        let disk = disk.fork();
        let file = disk.open(&second, OpenOptions::WRITE).unwrap();
        file.write_at(&[3; 5000], 0).unwrap();
        let left = disk.crash(CrashStyle::Mixed, seed);
        assert_eq!(left.contents(&first), left.contents(&second), "seed {seed}");
    }
}
