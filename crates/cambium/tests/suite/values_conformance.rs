//! The value layer above each engine through the suite that every engine passes: with and
//! without compression, and with seeded bugs that the suite must find.

use std::sync::OnceLock;

use cambium::{EngineKind, Engines, engines};
use cambium_testkit::Conformance;
use cambium_values::seeded_bug::SeededBug;

/// The engines, each below the layer.
pub const ENGINES: [&dyn EngineKind; 4] = [
    &cambium_forest::Forest,
    &cambium_wisckey::Wisckey,
    &cambium_zdb::Zdb,
    &cambium_alphard::Alphard,
];

/// The kind that a user of the facade opens an engine by.
pub fn with_layer(engine: &dyn EngineKind) -> &'static dyn EngineKind {
    static ALL: OnceLock<Engines> = OnceLock::new();
    let mut kinds = ALL.get_or_init(engines).iter();
    let kind = kinds.find(|kind| kind.name() == engine.name());
    &**kind.expect("the facade has each engine")
}

fn conformance(engine: &'static dyn EngineKind, compression: &str) -> Conformance {
    let suite = Conformance::new(with_layer(engine)).layer_above(engine);
    let suite = suite.opening("compression", compression);
    match engine.name() {
        "alphard" => suite.creation("size", "64MiB").creation("history", "on"),
        _ => suite,
    }
}

#[test]
fn values_as_they_are_conform() {
    for engine in ENGINES {
        conformance(engine, "none").run();
    }
}

#[test]
fn values_that_lz4_compresses_conform() {
    for engine in ENGINES {
        conformance(engine, "lz4").run();
    }
}

#[test]
#[cfg(feature = "zstd")]
fn values_that_zstd_compresses_conform() {
    for engine in ENGINES {
        conformance(engine, "zstd").run();
    }
}

/// Each defect, and words of the case that must find it.
const FOUND_BY: [(&str, &str); 10] = [
    ("merge_reads_store", "merges of a batch"),
    ("merge_forgets_expiry", "a merge keeps the moment"),
    ("scan_shows_expired", "not there for any call"),
    ("keys_show_expired", "not there for any call"),
    ("snapshot_without_moment", "by their own moment"),
    ("expiry_unmarked", "in the next openings"),
    ("clock_goes_back", "set back"),
    ("sweep_takes_all", "a sweep deletes"),
    ("damage_answered", "cannot be decompressed"),
    ("tag_unescaped", "does not make smaller"),
];

#[test]
fn seeded_bugs_of_the_value_layer_are_found() {
    assert_eq!(
        FOUND_BY.map(|(name, _)| name),
        SeededBug::ALL.map(|(_, name)| name)
    );
    for engine in ENGINES {
        let mut missed = FOUND_BY.to_vec();
        missed.retain(|(name, case)| {
            let suite = conformance(engine, "none").opening("seeded_bug", name);
            suite.only(case).failures().is_empty()
        });
        assert!(
            missed.is_empty(),
            "not found in {}: {missed:?}",
            engine.name()
        );
    }
}
