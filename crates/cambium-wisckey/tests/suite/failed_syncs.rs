//! After a sync that failed and the end of the process: what was synced before is there, a
//! check calls the store sound, and a repair changes nothing.

use std::path::Path;

use cambium_api::{Durability, EngineKind, OptionValues};
use cambium_io::Environment;
use cambium_io::simulated::{ErrorNumber, Fault, FaultRule, OperationClass, SimulatedDisk};
use cambium_testkit::golden::contents;
use cambium_testkit::stores;
use cambium_wisckey::Wisckey;

const FOLDER: &str = "/store";

fn options() -> OptionValues {
    OptionValues::from([
        ("block_bytes", "512"),
        ("segment_bytes", "4096"),
        ("replay_bytes", "2048"),
        ("preallocate_bytes", "4096"),
        ("inline_bytes", "16"),
        ("table_bytes", "2048"),
        ("table_block_bytes", "512"),
        ("level_base_bytes", "4096"),
        ("space_limit", "120"),
    ])
}

/// Writes until an operation fails; answers how many puts were synced, and whether one
/// failed.
fn write_until_failure(disk: &SimulatedDisk, rule: FaultRule) -> (u64, bool) {
    let environment = Environment::simulated(disk, 1);
    let store = stores::create(&Wisckey, &environment, &options());
    disk.inject(rule);
    let mut synced = 0;
    for number in 0u64..80 {
        let durability = match number % 3 {
            0 => Durability::Synced,
            _ => Durability::Written,
        };
        let value = vec![number as u8; 10 + (number % 5 * 30) as usize];
        if store
            .put(&number.to_be_bytes(), &value, durability)
            .is_err()
        {
            return (synced, true);
        }
        if durability == Durability::Synced {
            synced = number + 1;
        }
        if number % 7 == 0 && store.step(1 << 20).is_err() {
            return (synced, true);
        }
    }
    (synced, false)
}

#[test]
fn what_was_synced_is_there_and_sound_after_a_failed_sync() {
    let mut failures = 0;
    for fault in [
        Fault::SyncDropsPages(ErrorNumber::InputOutput),
        Fault::SyncKeepsPages(ErrorNumber::InputOutput),
        Fault::SyncDropsPages(ErrorNumber::NoSpace),
        Fault::Error(ErrorNumber::NoSpace),
    ] {
        for nth in 1..50 {
            let disk = SimulatedDisk::new(nth);
            let rule = FaultRule {
                class: OperationClass::Sync,
                nth,
                forever: false,
                fault,
            };
            let (synced, failed) = write_until_failure(&disk, rule);
            failures += u64::from(failed);
            let disk = disk.process_crash();
            let environment = Environment::simulated(&disk, 2);
            let path = Path::new(FOLDER);
            let case = format!("{fault:?}, sync {nth}");
            let report = Wisckey
                .check(&environment, path, &Default::default(), &())
                .unwrap();
            assert!(report.is_sound(), "{case}: {report:?}");
            let mended = disk.process_crash();
            let again = Environment::simulated(&mended, 3);
            let report = Wisckey
                .repair(&again, path, &Default::default(), &())
                .unwrap();
            assert!(report.is_sound(), "{case}: {report:?}");
            let open = |environment| stores::open(&Wisckey, environment, &options());
            let (store, mended) = (open(&environment), open(&again));
            let there = contents(&*store);
            assert!(there.len() as u64 >= synced, "{case}: {}", there.len());
            assert!(there == contents(&*mended), "{case}");
        }
    }
    assert!(failures > 50, "{failures} runs met the fault");
}
