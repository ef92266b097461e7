//! Crash images: a feed of synced batches shows nothing that a crash takes back, and what a
//! consumer has before it survives every crash whole.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use cambium_api::{ChangeBatch, Durability, SequenceNumber};
use cambium_forest::seeded_bug::SeededBug;
use cambium_io::Environment;
use cambium_io::simulated::{CrashStyle, Generator, Moment, ProbePoints, SimulatedDisk};

use super::support::{
    change, compact, create, drain, feed, lead_to, newest, synced_feed, try_open,
};

/// A disk at some moment, and how many batches a feed of synced ones had shown before.
type Image = (SimulatedDisk, usize);

#[derive(Debug, Default)]
struct Seen {
    shown: usize,
    images: Vec<Image>,
}

const BY_ITSELF: [(&str, &str); 3] = [
    ("compaction_threshold", "20"),
    ("compaction_least_bytes", "0"),
    ("cleaning", "off"),
];
const CLEANED: [(&str, &str); 2] = [BY_ITSELF[0], BY_ITSELF[1]];

/// Changes a store while images of its disk are taken, and looks at crashes of all of them.
fn run(seed: u64, besides: &[(&str, &str)]) -> usize {
    let disk = SimulatedDisk::new(seed);
    let environment = Environment::simulated(&disk, seed);
    let store = create(&environment, besides);
    store.move_consumer("all", Some(SequenceNumber(0))).unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let probed = seen.clone();
    disk.set_crash_probe(ProbePoints::Operations, move |point| {
        let each = match point.moment {
            Moment::BeforeSync => 3,
            Moment::AfterSync => 5,
            Moment::BeforeOperation => 17,
        };
        if point.operation % each == 0 {
            let mut seen = probed.lock().unwrap();
            let shown = seen.shown;
            seen.images.push((point.disk, shown));
        }
    });
    let mut random = Generator::new(seed);
    let mut synced = synced_feed(&*store, 0);
    let mut shown = Vec::new();
    let mut ends = BTreeSet::new();
    for round in 0..120 {
        change(&*store, &mut random);
        ends.insert(newest(&*store));
        shown.extend(drain(&mut *synced));
        seen.lock().unwrap().shown = shown.len();
        match random.below(30) {
            0 => compact(&*store),
            1 => {
                let to = SequenceNumber(newest(&*store));
                store.move_consumer("fast", Some(to)).unwrap();
            }
            _ => {}
        }
        // Where it compacts by itself, writes come between the steps.
        for _ in 0..random.below(4) {
            store.step(3000).unwrap();
        }
        if round == 60 {
            compact(&*store);
        }
    }
    disk.clear_crash_probe();
    let all = drain(&mut *feed(&*store, 0));
    assert!(
        all.iter().all(|batch| ends.contains(&batch.last.0)),
        "part of a batch"
    );
    same(&shown, &all[..shown.len()]);
    drop(store);
    let images = std::mem::take(&mut seen.lock().unwrap().images);
    let count = images.len();
    for (place, (image, known)) in images.into_iter().enumerate() {
        let style = CrashStyle::ALL[place % CrashStyle::ALL.len()];
        look(
            &image.crash(style, place as u64),
            &shown[..known],
            &all,
            besides,
        );
    }
    count
}

/// Opens what a crash left.
fn look(
    disk: &SimulatedDisk,
    shown: &[ChangeBatch],
    all: &[ChangeBatch],
    besides: &[(&str, &str)],
) {
    let environment = Environment::simulated(disk, 7);
    let store = try_open(&environment, besides).unwrap();
    let survived = drain(&mut *feed(&*store, 0));
    assert!(
        survived.len() >= shown.len(),
        "a batch is gone that was shown as synced"
    );
    same(&survived, &all[..survived.len()]);
    assert!(lead_to(&survived, &*store));
    // A follower goes on where it was, and what comes now comes once.
    let at = shown.last().map_or(0, |batch| batch.last.0);
    store
        .put(b"after", b"the crash", Durability::Synced)
        .unwrap();
    compact(&*store);
    let rest = drain(&mut *synced_feed(&*store, at));
    assert_eq!(rest.len(), survived.len() - shown.len() + 1);
    assert!(rest.iter().all(|batch| batch.synced));
}

/// The same batches, whether they were synced then or not.
fn same(one: &[ChangeBatch], other: &[ChangeBatch]) {
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(other) {
        let ends = |batch: &ChangeBatch| (batch.first, batch.last);
        assert_eq!(ends(one), ends(other));
        assert_eq!(one.changes, other.changes);
    }
}

#[test]
fn what_was_shown_as_synced_survives_every_crash() {
    let mut count = 0;
    for seed in 0..12 {
        count += run(seed, &[]);
        count += run(seed, &BY_ITSELF);
        count += run(seed, &CLEANED);
    }
    for seed in 12..16 {
        count += run(seed, &[("direct", "on"), ("buffer_bytes", "300")]);
    }
    assert!(count > 1500, "{count} images");
}

#[test]
fn every_seeded_bug_of_the_feed_is_found() {
    let bugs = [
        SeededBug::ChangesHalveBatch,
        SeededBug::ChangesBeforeSync,
        SeededBug::HistoryDroppedEarly,
        SeededBug::HistoryUnsynced,
    ];
    for (_, name) in SeededBug::ALL.iter().filter(|(bug, _)| bugs.contains(bug)) {
        let fails = |seed| {
            let mut besides = BY_ITSELF.to_vec();
            besides.push(("seeded_bug", *name));
            let run = || run(seed, &besides);
            catch_unwind(AssertUnwindSafe(run)).is_err()
        };
        assert!((0..6).any(fails), "{name} is not found");
    }
}
