//! Statistics of every engine have the common fields, and metrics are complete.

use cambium::prelude::*;
use cambium::{StatisticValue, engines};

#[test]
fn every_engine_counts_what_is_common() {
    for kind in engines().iter() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new().durability(Durability::Synced);
        if kind.name() == "alphard" {
            options = options.set("size", "64MiB");
        }
        let store = options.create(folder.path(), kind.name()).unwrap();
        for number in 0..100_u8 {
            store.put([number], vec![number; 1000]).unwrap();
        }
        store.compact(&Default::default(), &()).unwrap();
        assert!(store.get([7]).unwrap().is_some());
        let statistics = store.stats().unwrap();
        let (name, summary) = (kind.name(), statistics.summary());
        let entries = (name != "wisckey").then_some(100);
        assert_eq!(summary.contents.entries, entries, "{name}");
        assert!(
            summary.space.device_bytes > Some(100_000),
            "{name}: {summary:?}"
        );
        assert!(
            summary.writes.user_bytes >= Some(100_000),
            "{name}: {summary:?}"
        );
        assert!(
            summary.writes.amplification >= Some(0.9),
            "{name}: {summary:?}"
        );
        assert!(summary.writes.syncs > Some(0), "{name}: {summary:?}");
        assert!(summary.reads.device_reads.is_some(), "{name}: {summary:?}");
        let metrics = statistics.metrics();
        for statistic in &statistics.entries {
            let is_number = !matches!(statistic.value, StatisticValue::Text(_));
            assert_eq!(
                metrics.contains_key(statistic.name),
                is_number,
                "{}",
                statistic.name
            );
        }
        store.close().unwrap();
    }
}
