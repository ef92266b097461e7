//! Calls that only Linux has: holes that give space back, direct I/O, windows.

use std::path::Path;

use cambium_io::{AlignedBuffer, Alignment, FileSystem, OpenOptions, RealFileSystem};

const FS: RealFileSystem = RealFileSystem;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn allocated_space_is_counted() {
    let folder = folder();
    let options = OpenOptions::CREATE_NEW;
    let file = FS.open(&folder.path().join("a"), options).unwrap();
    file.allocate(0, 1 << 20).unwrap();
    assert!(file.allocated_bytes().unwrap() >= 1 << 20);
}

#[test]
fn a_punched_hole_reads_as_zeros_and_gives_its_space_back() {
    let folder = folder();
    let options = OpenOptions::CREATE_NEW;
    let file = FS.open(&folder.path().join("a"), options).unwrap();
    file.write_at(&vec![7; 1 << 20], 0).unwrap();
    file.sync_data().unwrap();
    let before = file.allocated_bytes().unwrap();
    file.punch_hole(4096, (1 << 20) - 4096).unwrap();
    assert_eq!(file.length().unwrap(), 1 << 20);
    assert!(file.allocated_bytes().unwrap() <= before - (1 << 19));
    let mut buffer = [1; 8192];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert!(buffer[..4096].iter().all(|&byte| byte == 7));
    assert!(buffer[4096..].iter().all(|&byte| byte == 0));
    // Beyond the end there is nothing to punch, and the length stays.
    file.punch_hole(2 << 20, 4096).unwrap();
    assert_eq!(file.length().unwrap(), 1 << 20);
}

#[test]
fn direct_handles_state_alignments_that_work() {
    let folder = folder();
    let path = folder.path().join("a");
    let file = match FS.open(&path, OpenOptions::CREATE_NEW.direct()) {
        Ok(file) => file,
        Err(error) => {
            println!("SKIPPED: no direct I/O in {}: {error}", path.display());
            return;
        }
    };
    let Alignment { memory, offset } = file.alignment();
    assert!(memory.is_power_of_two() && offset.is_power_of_two() && offset > 1);
    let mut buffer = AlignedBuffer::new(offset, memory);
    buffer.fill(9);
    file.write_at(&buffer, 3 * offset as u64).unwrap();
    file.sync_data().unwrap();
    let mut found = AlignedBuffer::new(2 * offset, memory);
    let count = file.read_at(&mut found, 2 * offset as u64).unwrap();
    assert_eq!(count, 2 * offset);
    assert!(found[..offset].iter().all(|&byte| byte == 0));
    assert!(found[offset..].iter().all(|&byte| byte == 9));
    // The end of the file inside a sector ends a direct read.
    file.set_length(3 * offset as u64 + 5).unwrap();
    assert_eq!(
        file.read_at(&mut found, 2 * offset as u64).unwrap(),
        offset + 5
    );
    let buffered = FS.open(&path, OpenOptions::READ).unwrap();
    assert_eq!(buffered.alignment(), Alignment::NONE);
}

/// Stores of a window are reads' answers at once, also on another handle, and
/// neither what lies before nor the rest of the window is touched.
fn stores_are_seen(file_system: &dyn FileSystem, path: &Path) -> bool {
    let file = file_system.open(path, OpenOptions::CREATE).unwrap();
    // The end is within a page, as the end of a log is.
    file.write_at(&[1; 5000], 0).unwrap();
    file.allocate(0, 20_000).unwrap();
    let Some(mut window) = file.open_window(5000, 10_000).unwrap() else {
        return false;
    };
    assert_eq!(window.end(), 15_000);
    assert!(window.store(&[b"bark", &[7; 9000]], 5000));
    file.sync_data().unwrap();
    assert!(window.store(&[b"leaf"], 14_004));
    assert!(!window.store(&[b"leaf"], 14_997), "it ends there");
    let other = file_system.open(path, OpenOptions::READ).unwrap();
    let mut found = vec![9; 16_000];
    other.read_exact_at(&mut found, 0).unwrap();
    let mut expected = vec![1; 5000];
    expected.extend_from_slice(b"bark");
    expected.extend_from_slice(&[7; 9000]);
    expected.extend_from_slice(b"leaf");
    expected.resize(16_000, 0);
    assert!(found == expected);
    drop(window);
    file.set_length(5000).unwrap();
    true
}

#[test]
fn what_is_stored_into_a_window_is_in_the_file() {
    let folder = folder();
    let real = RealFileSystem;
    if !stores_are_seen(&real, &folder.path().join("log")) {
        eprintln!("SKIPPED: windows, on this file system");
    }
    let memory = cambium_io::simulated::SimulatedDisk::memory();
    assert!(stores_are_seen(&memory, Path::new("/log")));
    let disk = cambium_io::simulated::SimulatedDisk::new(1);
    assert!(stores_are_seen(&disk, Path::new("/log")));
}

/// A page that the file system does not give raises a signal that ends the program, if the
/// program touches it.
#[test]
fn a_window_whose_pages_are_gone_refuses_and_harms_nobody() {
    let folder = folder();
    let path = folder.path().join("log");
    let file = RealFileSystem.open(&path, OpenOptions::CREATE).unwrap();
    let Some(mut window) = file.open_window(0, 200_000).unwrap() else {
        return eprintln!("SKIPPED: windows, on this file system");
    };
    assert!(window.store(&[&[1; 100_000]], 0));
    file.set_length(8192).unwrap();
    assert!(window.store(&[b"leaf"], 100));
    assert!(!window.store(&[b"leaf"], 8192));
    assert!(!window.store(&[&[2; 100_000]], 0), "it ends within");
    file.write_at(b"leaf----", 8192).unwrap();
    assert!(!window.store(&[b"bark"], 8196), "it is torn for good");
    drop(window);
    let mut next = file.open_window(8200, 10_000).unwrap().unwrap();
    assert!(next.store(&[b"bark"], 8200));
    let mut found = [0; 12];
    file.read_exact_at(&mut found, 8192).unwrap();
    assert_eq!(&found, b"leaf----bark");
}

#[test]
fn direct_files_have_no_windows() {
    let folder = folder();
    let path = folder.path().join("log");
    let options = OpenOptions::CREATE.direct();
    match RealFileSystem.open(&path, options) {
        Ok(file) => assert!(file.open_window(0, 4096).unwrap().is_none()),
        Err(error) => eprintln!("SKIPPED: no direct I/O here: {error}"),
    }
}
