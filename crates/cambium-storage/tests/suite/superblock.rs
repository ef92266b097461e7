//! The superblock on a disk that fails and crashes: one copy is always sound.

use std::path::Path;
use std::sync::{Arc, Mutex};

use cambium_base::StoreId;
use cambium_io::FileSystem;
use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Fault, FaultRule, OperationClass, ProbePoints, SimulatedDisk,
};
use cambium_storage::superblock::{self, Superblock};

const FOLDER: &str = "/store";
const STORE: StoreId = StoreId([7; 16]);
const VERSION: u32 = 1;

/// The payload that a disk's superblock has.
fn read(disk: &SimulatedDisk) -> cambium_base::Result<Vec<u8>> {
    let content = superblock::read(disk, Path::new(FOLDER), &STORE, VERSION);
    content.map(|content| content.payload)
}

/// Both copies get another payload, which fails within the second one for lack of
/// space; then the newest copy is confirmed. A crash at any moment leaves either payload.
#[test]
fn a_copy_that_is_confirmed_after_a_failure_is_not_torn() {
    let (older, newer) = (vec![1; 2000], vec![2; 2000]);
    for seed in 0..40 {
        let disk = SimulatedDisk::new(seed);
        let file_system: Arc<dyn FileSystem> = Arc::new(disk.clone());
        let folder = Path::new(FOLDER);
        disk.create_directory(folder).unwrap();
        let made = Superblock::create(&file_system, folder, STORE, VERSION, &older);
        let mut superblock = made.unwrap();
        disk.sync_directory(folder).unwrap();
        disk.sync_directory(Path::new("/")).unwrap();
        disk.inject(FaultRule {
            class: OperationClass::Write,
            nth: 2,
            forever: false,
            fault: Fault::PartialWrite(ErrorNumber::NoSpace),
        });
        assert!(superblock.write_both(&newer).is_err());
        let points: Arc<Mutex<Vec<SimulatedDisk>>> = Arc::default();
        let seen = points.clone();
        disk.set_crash_probe(ProbePoints::Operations, move |point| {
            seen.lock().unwrap().push(point.disk);
        });
        superblock.confirm().unwrap();
        disk.clear_crash_probe();
        let points = std::mem::take(&mut *points.lock().unwrap());
        assert!(!points.is_empty());
        for point in points {
            for style in CrashStyle::ALL {
                let found = read(&point.crash(style, seed));
                let found = found.unwrap_or_else(|error| panic!("seed {seed}, {style:?}: {error}"));
                assert!(found == older || found == newer);
            }
        }
        assert_eq!(read(&disk).unwrap(), newer);
    }
}
