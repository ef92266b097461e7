//! The longest keys, and tries as deep as keys are long.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use cambium_index::hbtrie::{Change, LeafRule, Shape, TrieOptions, apply, check, dump, find};

use crate::hbtrie::model::SHAPES;
use crate::hbtrie::world::World;
use crate::support::Random;

const LONGEST: usize = 65_535;

fn naive(chunk_bytes: usize) -> TrieOptions {
    TrieOptions {
        chunk_bytes,
        shape: Shape::HbTrie {
            leaf_extension: LeafRule::Off,
        },
    }
}

fn drawn(world: &World, entries: usize) -> String {
    let describe = |document: u64| document.to_string();
    dump(&world.nodes, &world.options, world.root, entries, &describe).unwrap()
}

/// Runs in the stack that threads get: what recursed a trie's depth would overflow it.
fn in_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    thread.spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_trie_of_twelve_thousand_trees_on_one_way_needs_no_deep_stack() {
    in_a_small_stack(|| {
        // Each key is longer by a byte: a tree for each, with chunks of one byte.
        let mut world = World::new(naive(1), 512);
        let key = |number: usize| vec![b'b'; number];
        let count = 12_000;
        world.apply((0..count).map(|number| (key(number), true)).collect());
        let report = world.verify();
        assert!(report.statistics.depth >= 11_000, "{:?}", report.statistics);
        world.verify_all();
        for number in [0, 1, 77, 6_000, count - 1] {
            world.verify_lookup(&key(number));
            world.verify_walk(&key(number), 3);
            let mut other = key(number);
            other.push(b'a');
            world.verify_walk(&other, 3);
        }
        let text = drawn(&world, 3);
        assert!(text.contains("(900) "), "trees far down are drawn");
        // Every second key goes, then all: trees collapse all the way up.
        world.apply((0..count).step_by(2).map(|n| (key(n), false)).collect());
        world.verify();
        world.apply((0..count).map(|n| (key(n), false)).collect());
        world.verify();
        assert_eq!(world.root, None);
    });
}

/// Longest keys that differ only at a given place, and shorter ones between them.
fn longest_keys(random: &mut Random) -> Vec<u8> {
    let mut key = vec![b'k'; LONGEST];
    match random.below(4) {
        0 => key[LONGEST - 1] = random.next() as u8,
        1 => key[random.below(LONGEST)] = random.next() as u8,
        2 => key.truncate(LONGEST - random.below(3000)),
        _ => {
            let place = [100, 1000, 1016, 1017, 5000][random.below(5)];
            key[place] = b'l';
            key[LONGEST - 1] = random.below(5) as u8;
        }
    }
    key
}

#[test]
fn keys_of_65535_bytes_differ_by_their_last_byte_in_every_shape() {
    for shape in SHAPES {
        for (chunk_bytes, node_bytes) in [(8, 4096), (7, 512), (1, 512)] {
            let mut random = Random::new(u64::from(chunk_bytes as u32) + 5);
            let mut world = World::new(TrieOptions { chunk_bytes, shape }, node_bytes);
            let last = |byte: u8| {
                let mut key = vec![b'k'; LONGEST];
                key[LONGEST - 1] = byte;
                key
            };
            world.apply((0..60).map(|byte| (last(byte), true)).collect());
            world.verify();
            for _ in 0..4 {
                let mut changes = BTreeMap::new();
                for _ in 0..20 {
                    changes.insert(longest_keys(&mut random), random.below(4) > 0);
                }
                world.apply(changes);
                world.verify();
                for _ in 0..4 {
                    let key = longest_keys(&mut random);
                    world.verify_lookup(&key);
                    world.verify_walk(&key, 4);
                }
            }
            world.verify_all();
            world.verify_lookup(&last(3));
            world.verify_walk(&last(30), 5);
            let all: Vec<Vec<u8>> = world.model.keys().cloned().collect();
            world.apply(all.into_iter().map(|key| (key, false)).collect());
            world.verify();
            assert_eq!(world.root, None);
        }
    }
}

#[test]
fn a_batch_asks_for_old_keys_once() {
    for shape in SHAPES {
        let mut world = World::new(
            TrieOptions {
                chunk_bytes: 8,
                shape,
            },
            4096,
        );
        let mut random = Random::new(3);
        let keys: Vec<Vec<u8>> = (0..3000).map(|_| random.bytes(24)).collect();
        world.apply(keys.iter().map(|key| (key.clone(), true)).collect());
        world.shelf.asked.store(0, Ordering::Relaxed);
        world.apply(keys.iter().map(|key| (key.clone(), true)).collect());
        let asked = world.shelf.asked.load(Ordering::Relaxed);
        assert!(asked <= 1, "{shape:?} asked {asked} times");
    }
}

#[test]
fn keys_that_end_with_their_piece_are_never_asked_for() {
    // Whole keys in one chunk, and suffixes in leaf trees, are known from the index.
    let shapes = [
        (SHAPES[0], 8),
        (SHAPES[2], 8),
        (Shape::PrefixBTree, 200),
        (Shape::PlainBTree, 200),
    ];
    for (shape, bytes) in shapes {
        let options = TrieOptions {
            chunk_bytes: 8,
            shape,
        };
        let mut world = World::new(options, 4096);
        let mut random = Random::new(4);
        let keys: Vec<Vec<u8>> = (0..3000).map(|_| random.bytes(bytes)).collect();
        for round in 0..3 {
            let put = |at: usize| round < 2 || at % 2 == 0;
            world.apply(
                keys.iter()
                    .enumerate()
                    .map(|(at, key)| (key.clone(), put(at)))
                    .collect(),
            );
        }
        world.verify();
        let asked = world.shelf.asked.load(Ordering::Relaxed);
        // `verify` asks for keys of documents once a batch of them.
        assert!(asked <= 1, "{shape:?} asked {asked} times");
    }
}

#[test]
fn an_unchanged_batch_appends_nothing() {
    for shape in SHAPES {
        let options = TrieOptions {
            chunk_bytes: 8,
            shape,
        };
        let mut world = World::new(options, 512);
        let mut random = Random::new(6);
        let keys: Vec<Vec<u8>> = (0..500).map(|_| random.bytes(20)).collect();
        world.apply(keys.iter().map(|key| (key.clone(), true)).collect());
        let appended = world.nodes.memory.appended();
        let root = world.root;
        // The same documents again, and removals of what is not there.
        let mut batch: Vec<(Vec<u8>, Change)> = world
            .model
            .iter()
            .map(|(key, document)| (key.clone(), Change::Put(*document)))
            .collect();
        batch.extend((0..300).map(|_| (random.bytes(21), Change::Remove)));
        batch.sort_by(|one, other| one.0.cmp(&other.0));
        let again = apply(
            &mut world.nodes,
            &world.shelf,
            &world.options,
            root,
            &batch,
            &mut |old| panic!("{old} was replaced"),
        );
        assert_eq!(again.unwrap(), root);
        assert_eq!(world.nodes.memory.appended(), appended);
    }
}

#[test]
fn figure_6_of_the_paper() {
    let mut world = World::new(naive(1), 512);
    let put = |world: &mut World, key: &str| {
        world.apply([(key.into(), true)].into());
        let report = world.verify();
        (report.statistics.trie_trees.trees, report.statistics.depth)
    };
    assert_eq!(
        put(&mut world, "aaaa"),
        (1, 1),
        "(a) the first chunk is enough"
    );
    assert_eq!(put(&mut world, "aaab"), (1, 1), "(b) the root skips aaa");
    let text = drawn(&world, 9);
    assert_eq!(
        text,
        "trie tree at 3 behind \"aaa\": 2 entries, 1 node\n  \"a\" = document 274877906944\n  \
         \"b\" = document 274877906945\n"
            .replace("274877906944", &world.model[&b"aaaa"[..]].to_string())
            .replace("274877906945", &world.model[&b"aaab"[..]].to_string())
    );
    assert_eq!(
        put(&mut world, "aabb"),
        (2, 2),
        "(c) a tree for the third chunk above"
    );
    let text = drawn(&world, 9);
    assert!(
        text.starts_with("trie tree at 2 behind \"aa\": 2 entries"),
        "{text}"
    );
    assert!(text.contains("\"a\" + trie tree at 3: 2 entries"), "{text}");
    world.apply([(b"aabb".to_vec(), false)].into());
    let report = world.verify();
    assert_eq!(report.statistics.trie_trees.trees, 1, "and back");
    let found = find(&world.nodes, &world.options, world.root.unwrap(), b"aaxx");
    assert_eq!(found.unwrap(), None, "the skipped prefix is compared");
    assert!(
        check(&world.nodes, None, &world.options, world.root)
            .unwrap()
            .findings
            .is_empty()
    );
}

/// A leaf tree of long suffixes would have few entries a node, and trie trees in its
/// place few entries each: it is truncated, and takes about as much as one of short
/// suffixes; also where keys come sorted, as a compaction puts them.
#[test]
fn a_leaf_tree_takes_no_more_for_long_suffixes_than_for_short_ones() {
    let nodes_for = |rest: usize, sorted: bool| {
        let mut world = World::new(TrieOptions::default(), 4096);
        let mut random = Random::new(9);
        let mut keys: Vec<Vec<u8>> = (0..6_000)
            .map(|_| {
                let mut key = vec![random.below(192) as u8; 8];
                key.extend([random.below(192) as u8; 8]);
                let tail = random.bytes(1_008);
                key.extend(&tail[..rest]);
                key
            })
            .collect();
        if sorted {
            keys.sort();
        }
        for batch in keys.chunks(300) {
            world.apply(batch.iter().map(|key| (key.clone(), true)).collect());
        }
        for key in keys.iter().step_by(7) {
            world.verify_lookup(key);
            world.verify_walk(key, 3);
        }
        world.verify().statistics.nodes()
    };
    for sorted in [true, false] {
        let (short, middle, long) = (
            nodes_for(40, sorted),
            nodes_for(200, sorted),
            nodes_for(1_008, sorted),
        );
        assert!(long <= middle + middle / 10, "{long} nodes, {middle}");
        assert!(long <= short + short / 10, "{long} nodes, {short}");
        assert!(long * 4096 < 6_000 * 48, "{long} nodes");
    }
}

/// Truncated pieces under churn: separators outlive the keys that they were made of, and
/// what is inserted beside them must still be found.
#[test]
fn truncated_pieces_stay_apart_from_old_separators() {
    for (seed, letters) in [(1u64, 2usize), (2, 3), (3, 16)] {
        let options = TrieOptions {
            chunk_bytes: 8,
            shape: Shape::HbTrie {
                leaf_extension: LeafRule::Truncate,
            },
        };
        let mut world = World::new(options, 512);
        let mut random = Random::new(seed);
        let mut used: Vec<Vec<u8>> = vec![vec![b'a'; 8]];
        for round in 0..300 {
            let puts_of_ten = if round / 20 % 2 == 0 { 10 } else { 8 };
            let mut changes = BTreeMap::new();
            for _ in 0..1 + random.below(60) {
                // Near a key that is there or was.
                let near = &used[random.below(used.len())];
                let mut key = near[..near.len() - random.below(near.len())].to_vec();
                let behind = 1 + random.below(12);
                key.extend((0..behind).map(|_| b'a' + random.below(letters) as u8));
                key.truncate(200);
                if random.below(10) < puts_of_ten {
                    used.push(key.clone());
                    changes.insert(key, true);
                } else {
                    let run = world.model.range(key..).take(random.below(20));
                    changes.extend(run.map(|(there, _)| (there.clone(), false)));
                }
            }
            world.apply(changes);
            world.verify();
            for key in world.model.keys().step_by(5) {
                world.verify_lookup(key);
            }
        }
        let keys: Vec<Vec<u8>> = world.model.keys().cloned().collect();
        for key in &keys {
            world.verify_lookup(key);
            world.verify_walk(key, 2);
        }
    }
}
