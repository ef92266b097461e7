//! The B+-tree against a `BTreeMap`: random batches of adversarial keys, every
//! invariant after each, cursors both ways.

use std::collections::BTreeMap;

use cambium_index::btree::{self, Cursor, KeyLayout, NodeView, TreeOptions};
use cambium_index::{MemoryNodes, NodeReader};

use crate::support::{Family, Random, Subject};

const CASES: &[(Family, KeyLayout)] = &[
    (Family::Integers, KeyLayout::Fixed(8)),
    (Family::Integers, KeyLayout::Variable),
    (Family::Chunks, KeyLayout::Fixed(9)),
    (Family::Dense, KeyLayout::Fixed(3)),
    (Family::LongShared, KeyLayout::Variable),
    (Family::Words, KeyLayout::Variable),
    (Family::Repeated, KeyLayout::Variable),
    (Family::Clustered, KeyLayout::Variable),
    (Family::Longest, KeyLayout::Variable),
    (Family::Mixed, KeyLayout::Variable),
];

fn run(family: Family, options: TreeOptions, node_bytes: usize, seed: u64, batches: usize) {
    let what = format!("{family:?} {options:?} nodes of {node_bytes} bytes, seed {seed}");
    let mut random = Random::new(seed);
    let mut subject = Subject::new(node_bytes, options);
    for batch in 0..batches {
        // Phases: growth, churn, decline.
        let deletes = match batch * 3 / batches {
            0 => 10,
            1 => 50,
            _ => 85,
        };
        let most = [1, 5, 50, 500][random.below(4)];
        let count = 1 + random.below(most);
        let changes: BTreeMap<Vec<u8>, Option<u64>> = (0..count)
            .map(|_| {
                let key = if random.below(100) < 50 {
                    subject.some_key(&mut random)
                } else {
                    None
                };
                let key = key.unwrap_or_else(|| family.key(&mut random, node_bytes));
                let deleted = random.below(100) < deletes;
                (key, (!deleted).then(|| random.value()))
            })
            .collect();
        subject.apply(&changes, &what);
        subject.check(&mut random, &what);
    }
    subject.delete_all(&what);
}

#[test]
fn random_batches_leave_what_the_model_says() {
    // More seeds than are run always: TREE_SEEDS=1000 cargo test -p cambium-index
    let seeds = std::env::var("TREE_SEEDS").map_or(4, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        for &(family, keys) in CASES {
            for options in [TreeOptions::new(keys), TreeOptions::plain(keys)] {
                run(family, options, 512, seed, 60);
            }
        }
    }
}

#[test]
fn every_node_size_holds_what_the_model_says() {
    for node_bytes in [512, 1024, 4096, 16_384, 65_536] {
        for &(family, keys) in CASES {
            run(family, TreeOptions::new(keys), node_bytes, 77, 20);
        }
    }
}

#[test]
fn a_bulk_load_is_full_and_holds_what_was_loaded() {
    for &(family, keys) in CASES {
        for count in [0, 1, 2, 30, 5000] {
            let mut random = Random::new(count);
            let entries: BTreeMap<Vec<u8>, u64> = (0..count)
                .map(|_| (family.key(&mut random, 512), random.value()))
                .collect();
            let mut nodes = MemoryNodes::new(512);
            let options = TreeOptions::new(keys);
            let mut source = entries.iter().map(|(key, value)| Ok((key.clone(), *value)));
            let root = btree::build(&mut nodes, &options, b"meta", &mut source).unwrap();
            let mut seen = Vec::new();
            let report = btree::check(&nodes, &options, root, &mut |key, value| {
                seen.push((key.to_vec(), value));
                Ok(())
            });
            let report = report.unwrap();
            assert_eq!(report.findings, []);
            assert_eq!(seen, entries.into_iter().collect::<Vec<_>>());
            assert_eq!(report.statistics.nodes(), nodes.live());
            assert_eq!(nodes.appended(), nodes.live(), "each node is written once");
            if count == 5000 && family == Family::Integers {
                assert!(
                    report.statistics.occupancy() > 0.9,
                    "{:?}",
                    report.statistics
                );
            }
        }
    }
}

#[test]
fn keys_appended_one_by_one_leave_full_nodes_behind() {
    let options = TreeOptions::new(KeyLayout::Fixed(8));
    let mut subject = Subject::new(512, options);
    for number in 0..3000u64 {
        let change = BTreeMap::from([(number.to_be_bytes().to_vec(), Some(number))]);
        subject.apply(&change, "ascending");
    }
    let statistics = subject.check(&mut Random::new(1), "ascending");
    assert!(statistics.occupancy() > 0.9, "{statistics:?}");
}

#[test]
fn deletion_shrinks_the_tree_and_its_height() {
    delete_in_batches(TreeOptions::new(KeyLayout::Fixed(8)));
    delete_in_batches(TreeOptions::plain(KeyLayout::Variable));
}

fn delete_in_batches(options: TreeOptions) {
    let mut subject = Subject::new(512, options);
    let mut random = Random::new(9);
    let all: BTreeMap<_, _> = (0..4000)
        .map(|_| (Family::Integers.key(&mut random, 512), Some(random.next())))
        .collect();
    subject.apply(&all, "load");
    let before = subject.check(&mut random, "load");
    assert!(before.height() >= 3);
    let mut keys: Vec<_> = all.keys().cloned().collect();
    random.shuffle(&mut keys);
    for some in keys[..keys.len() - 5].chunks(100) {
        let batch = some.iter().map(|key| (key.clone(), None)).collect();
        subject.apply(&batch, "delete");
        let now = subject.check(&mut random, "delete");
        // Two nodes may share so little that one of them has to stay small.
        let some = if options.prefix_compression {
            1 + now.nodes() / 50
        } else {
            0
        };
        assert!(now.small_nodes <= some, "{now:?}");
    }
    let after = subject.check(&mut random, "after");
    assert_eq!((after.height(), after.nodes(), after.entries), (1, 1, 5));
}

#[test]
fn one_batch_from_many_entries_to_few_leaves_few_nodes() {
    for keep in [0usize, 1, 2, 3, 1999, 3998, 3999] {
        let options = TreeOptions::new(KeyLayout::Fixed(8));
        let mut subject = Subject::new(512, options);
        let key = |number: usize| (number as u64).to_be_bytes().to_vec();
        subject.apply(&(0..4000).map(|n| (key(n), Some(7))).collect(), "load");
        let gone = (0..4000).filter(|n| *n != keep).map(|n| (key(n), None));
        subject.apply(&gone.collect(), "delete");
        let now = subject.check(&mut Random::new(3), "delete");
        assert_eq!((now.height(), now.nodes(), now.entries), (1, 1, 1));
        assert_eq!(subject.nodes.live.len(), 1);
    }
}

#[test]
fn a_batch_that_changes_nothing_appends_nothing() {
    let options = TreeOptions::new(KeyLayout::Variable);
    let mut subject = Subject::new(512, options);
    let mut random = Random::new(4);
    let all: BTreeMap<_, _> = (0..1000)
        .map(|_| (Family::LongShared.key(&mut random, 512), Some(5)))
        .collect();
    subject.apply(&all, "load");
    let (appended, root) = (subject.nodes.memory.appended(), subject.root);
    subject.apply(&all, "again");
    let absent = (0..50)
        .map(|_| (Family::Integers.key(&mut random, 512), None))
        .collect();
    subject.apply(&absent, "absent");
    assert_eq!(
        (subject.nodes.memory.appended(), subject.root),
        (appended, root)
    );
}

#[test]
fn metadata_lives_in_the_root_and_may_change_alone() {
    for count in [1u32, 10, 40, 45, 50, 60, 3000] {
        let mut nodes = MemoryNodes::new(512);
        let options = TreeOptions::new(KeyLayout::Variable);
        let mut root = None;
        let mut entries = (0..count).map(|n| Ok((n.to_be_bytes().to_vec(), u64::from(n) << 40)));
        root = btree::build(&mut nodes, &options, b"", &mut entries)
            .unwrap()
            .or(root);
        for length in [128, 0, 1, 128, 127, 5] {
            let metadata = vec![b'm'; length];
            let mut none = std::iter::empty();
            root = btree::apply(
                &mut nodes,
                &options,
                root,
                &metadata,
                &mut none,
                &mut |_, _, _| unreachable!(),
            )
            .unwrap();
            let node = nodes.read(root.unwrap()).unwrap();
            assert_eq!(btree::metadata(&node).unwrap(), metadata);
            let report = btree::check(&nodes, &options, root, &mut |_, _| Ok(())).unwrap();
            assert_eq!(report.findings, []);
            assert_eq!(report.statistics.entries, u64::from(count));
            assert_eq!(report.statistics.nodes(), nodes.live());
        }
        btree::retire_all(&mut nodes, root.unwrap()).unwrap();
        assert_eq!(nodes.live(), 0);
    }
}

#[test]
fn an_old_root_still_shows_the_old_tree() {
    let options = TreeOptions::new(KeyLayout::Fixed(8));
    let mut subject = Subject::new(512, options);
    let mut random = Random::new(11);
    let mut old = Vec::new();
    for _ in 0..20 {
        let batch = (0..200)
            .map(|_| (Family::Dense8.key(&mut random, 512), Some(random.value())))
            .collect();
        subject.apply(&batch, "snapshots");
        old.push((subject.root, subject.model.clone()));
    }
    for (root, model) in old {
        let mut cursor = Cursor::new(root);
        for (key, value) in &model {
            assert!(cursor.next(&subject.nodes).unwrap());
            assert_eq!(cursor.entry(), Some((key.as_slice(), *value)));
        }
        assert!(!cursor.next(&subject.nodes).unwrap());
    }
}

#[test]
fn a_leaf_with_new_values_becomes_the_root_when_all_others_go() {
    for keep in [0usize, 17, 39] {
        let mut subject = Subject::new(512, TreeOptions::plain(KeyLayout::Fixed(8)));
        let key = |number: usize| (number as u64).to_be_bytes().to_vec();
        subject.apply(&(0..40).map(|n| (key(n), Some(7))).collect(), "load");
        // One leaf keeps its keys and gets a new value; all others lose theirs.
        let before = subject.check(&mut Random::new(3), "load");
        assert_eq!(before.nodes_by_level.len(), 2);
        let root = subject.nodes.read(subject.root.unwrap()).unwrap();
        let separator = NodeView::parse(&root).unwrap().key(0);
        let leaf_of = |number: usize| key(number) >= separator;
        let batch = (0..40)
            .filter(|&n| n == keep || leaf_of(n) != leaf_of(keep))
            .map(|n| (key(n), (n == keep).then_some(8)))
            .collect();
        subject.apply(&batch, "shrink");
        let after = subject.check(&mut Random::new(3), "shrink");
        assert_eq!(after.nodes(), 1);
    }
}
