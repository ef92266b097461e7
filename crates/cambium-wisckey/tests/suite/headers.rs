//! Damaged headers of segments: no synced write is gone without a word.

use std::path::{Path, PathBuf};

use cambium_api::{Durability, EngineKind, OptionValues};
use cambium_io::Environment;
use cambium_io::simulated::SimulatedDisk;
use cambium_testkit::stores;
use cambium_wisckey::Wisckey;

const FOLDER: &str = "/store";
const KEYS: u32 = 100;

/// A store of synced writes whose process died, and its last segment.
fn victim() -> (SimulatedDisk, PathBuf) {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let store = stores::create(&Wisckey, &environment, &OptionValues::default());
    for number in 0..KEYS {
        store
            .put(&number.to_be_bytes(), &[7; 100], Durability::Synced)
            .unwrap();
    }
    let disk = disk.process_crash();
    let last = disk.files().into_iter();
    let last = last.filter(|path| path.extension().is_some_and(|end| end == "values"));
    let last = last.max().unwrap();
    (disk, last)
}

/// The number of entries that are there, and whether a check was content before.
fn opened(disk: &SimulatedDisk, bug: Option<&str>) -> (cambium_api::Result<u32>, bool) {
    let environment = Environment::simulated(disk, 2);
    let path = Path::new(FOLDER);
    let is_sound = Wisckey
        .check(&environment, path, &Default::default(), &())
        .is_ok_and(|report| report.is_sound());
    let mut options = OptionValues::default();
    if let Some(bug) = bug {
        options.set("seeded_bug", bug);
    }
    let store = Wisckey.open(&environment, path, &options, &());
    let there = store.map(|store| {
        let keys = (0..KEYS).map(u32::to_be_bytes);
        keys.filter(|key| store.get(key).unwrap().is_some()).count() as u32
    });
    (there, is_sound)
}

#[test]
fn either_copy_of_a_segments_header_is_enough() {
    for copy in [0, 4096] {
        let (disk, last) = victim();
        let mut bytes = disk.contents(&last).unwrap();
        bytes[copy..copy + 512].fill(0);
        assert!(disk.replace_contents(&last, &bytes));
        let (there, _) = opened(&disk, None);
        assert_eq!(there.unwrap(), KEYS);
    }
}

#[test]
fn a_segment_whose_header_is_damaged_is_not_taken_for_one_never_synced() {
    let damaged = || {
        let (disk, last) = victim();
        assert!(disk.flip_bit(&last, 20, 3) && disk.flip_bit(&last, 4096 + 70, 1));
        // That says what is missing, too.
        assert!(disk.replace_contents(&Path::new(FOLDER).join("SYNCED"), &[]));
        disk
    };
    let (there, is_sound) = opened(&damaged(), None);
    assert!(there.unwrap_err().is_corruption() && !is_sound);
    let (there, _) = opened(&damaged(), Some("damaged_header_ignored"));
    assert_eq!(there.unwrap(), 0, "the seeded bug shows");
}

#[test]
fn repair_names_a_segment_whose_header_is_damaged() {
    let (disk, last) = victim();
    assert!(disk.flip_bit(&last, 20, 3) && disk.flip_bit(&last, 4096 + 70, 1));
    let environment = Environment::simulated(&disk, 3);
    let report = Wisckey
        .repair(&environment, Path::new(FOLDER), &Default::default(), &())
        .unwrap();
    assert!(
        report.findings.iter().any(|finding| finding.file == last),
        "{report:?}"
    );
}
