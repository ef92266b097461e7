//! Damage: files of a small store cut and flipped everywhere, devices that betray.

use cambium_alphard::Alphard;
use cambium_api::OptionValues;
use cambium_testkit::DamageSuite;

fn suite() -> DamageSuite {
    DamageSuite::new(&Alphard)
        .creation("size", "65536")
        .creation("block_bytes", "512")
        .opening("extend_bytes", "16384")
        .opening("io", "sync")
}

#[test]
fn damage_is_found_or_does_no_harm() {
    // Every byte would be half a million stores; the stride is no divisor of
    // anything, so that it meets every field.
    let report = suite().stride(29).run();
    assert!(report.detected > 500, "{report:?}");
    assert!(report.harmless > 100, "{report:?}");
}

#[test]
fn strictly_judged_damage_is_found_or_does_no_harm() {
    let report = suite().strict().stride(41).run();
    assert!(report.detected > 100, "{report:?}");
}

#[test]
fn damage_of_stores_with_history_is_found_or_does_no_harm() {
    let history = || suite().creation("history", "on");
    let report = history().stride(67).run();
    assert!(report.detected > 200, "{report:?}");
    let report = history().strict().stride(83).run();
    assert!(report.detected > 40, "{report:?}");
}

#[test]
fn devices_that_betray_bring_nothing_that_was_never_written() {
    let report = suite().run_betrayed(2_000);
    assert!(report.cases == 2_000, "{report:?}");
}

#[test]
fn a_repair_that_erases_first_is_found() {
    let repairs = suite().repairs(|kind, environment, path| {
        let options = OptionValues::from([("seeded_bug", "repair_erases_first")]);
        kind.repair(environment, path, &options, &())
    });
    assert!(repairs.strict().stride(41).find_failure().is_some());
}

#[test]
fn missing_checksums_are_found() {
    let failure = suite()
        .stride(29)
        .opening("seeded_bug", "no_checksum")
        .find_failure();
    assert!(failure.is_some());
}
