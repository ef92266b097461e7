//! Truncation and a flip of every byte of a small store: nothing damaged is
//! returned as data, nothing panics, `check` finds it or the state is one that
//! was.

use cambium_api::OptionValues;
use cambium_testkit::DamageSuite;
use cambium_zdb::Zdb;

fn suite(keys: &str) -> DamageSuite {
    DamageSuite::new(&Zdb)
        .creation("keys", keys)
        .creation("keys_per_table", "64")
        .creation("piece_bytes", "256")
        .creation("block_bytes", "256")
        .creation("data_files", "2")
        .creation("commit_log_bytes", "2048")
        .creation("buckets", "4")
        .opening("sparse_tables", "1000")
        .opening("cache_bytes", "0")
        .redundant(&["superblock-", "index-"])
}

#[test]
fn damage_to_integer_stores_is_never_taken_for_data() {
    let report = suite("integer").run();
    assert!(report.cases > 10_000 && report.detected > 0, "{report:?}");
}

#[test]
fn damage_to_string_stores_is_never_taken_for_data() {
    let report = suite("string").stride(3).run();
    assert!(report.cases > 10_000 && report.detected > 0, "{report:?}");
}

#[test]
fn damage_to_integer_stores_loses_nothing_without_a_word() {
    let report = suite("integer").strict().stride(37).run();
    assert!(report.mended > 0 && report.interrupted > 0, "{report:?}");
}

#[test]
fn damage_to_string_stores_loses_nothing_without_a_word() {
    let report = suite("string").strict().stride(37).run();
    assert!(report.mended > 0 && report.interrupted > 0, "{report:?}");
}

#[test]
fn damage_to_stores_without_group_commits_loses_nothing_without_a_word() {
    for keys in ["integer", "string"] {
        let suite = suite(keys).opening("commit_group_bytes", "0");
        let report = suite.strict().stride(151).run();
        assert!(report.mended > 0 && report.interrupted > 0, "{report:?}");
    }
}

/// Bugs that show where bytes are damaged, and in strict suites alone.
#[test]
fn seeded_bugs_are_found_by_damage() {
    let bug = |name| suite("integer").opening("seeded_bug", name);
    assert!(bug("no_checksum").find_failure().is_some());
    for (name, stride) in [
        ("sync_unpromised", 37),
        ("table_in_one_copy", 397),
        ("empty_index_named", 397),
    ] {
        let failure = bug(name).strict().stride(stride).find_failure();
        assert!(failure.is_some(), "{name} is found");
    }
    let repairs = suite("integer").repairs(|kind, environment, path| {
        let options = OptionValues::from([("seeded_bug", "empty_index_named")]);
        kind.repair(environment, path, &options, &())
    });
    assert!(repairs.strict().stride(397).find_failure().is_some());
}
