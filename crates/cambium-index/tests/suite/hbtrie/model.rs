//! Random batches over every family of keys, every shape, chunk and node size.

use std::collections::BTreeMap;

use cambium_index::hbtrie::{LeafRule, Shape, TrieOptions};

use crate::hbtrie::families::{FAMILIES, Family};
use crate::hbtrie::world::World;
use crate::support::Random;

pub const SHAPES: [Shape; 6] = [
    Shape::HbTrie {
        leaf_extension: LeafRule::Off,
    },
    Shape::HbTrie {
        leaf_extension: LeafRule::Paper,
    },
    Shape::HbTrie {
        leaf_extension: LeafRule::Mended,
    },
    Shape::PlainBTree,
    Shape::PrefixBTree,
    Shape::HbTrie {
        leaf_extension: LeafRule::Truncate,
    },
];

/// Grows, churns and empties a trie in random batches.
fn live_a_life(options: TrieOptions, node_bytes: usize, family: Family, seed: u64) {
    let mut random = Random::new(seed);
    let mut world = World::new(options, node_bytes);
    let mut used: Vec<Vec<u8>> = Vec::new();
    for round in 0..14 {
        let puts_of_ten = if round < 8 { 9 } else { 2 };
        let size = [1, 3, 20, 90, 300][random.below(5)];
        let mut changes = BTreeMap::new();
        for _ in 0..size {
            let put = random.below(10) < puts_of_ten;
            let reuse = !used.is_empty() && random.below(10) < if put { 2 } else { 9 };
            let key = if reuse {
                used[random.below(used.len())].clone()
            } else {
                family(&mut random)
            };
            if put {
                used.push(key.clone());
            }
            changes.insert(key, put);
        }
        world.apply(changes);
        world.verify();
        for _ in 0..10 {
            let key = family(&mut random);
            world.verify_lookup(&key);
            world.verify_walk(&key, 5);
        }
    }
    world.verify_all();
    for key in &used {
        world.verify_lookup(key);
    }
    let all = world.model.keys().map(|key| (key.clone(), false)).collect();
    world.apply(all);
    world.verify();
    assert_eq!(world.root, None);
}

fn all_families(shape: Shape) {
    for (number, (name, family)) in FAMILIES.iter().enumerate() {
        for chunk_bytes in [1, 2, 7, 8, 16] {
            for node_bytes in [512, 4096] {
                println!("{name}, {shape:?}, chunks of {chunk_bytes}, nodes of {node_bytes}");
                let options = TrieOptions { chunk_bytes, shape };
                let seed = (number * 1000 + chunk_bytes * 10 + node_bytes) as u64;
                live_a_life(options, node_bytes, *family, seed);
            }
        }
    }
}

#[test]
fn naive_tries_equal_the_model() {
    all_families(SHAPES[0]);
}

#[test]
fn tries_with_the_papers_rule_equal_the_model() {
    all_families(SHAPES[1]);
}

#[test]
fn tries_with_the_mended_rule_equal_the_model() {
    all_families(SHAPES[2]);
}

#[test]
fn plain_trees_equal_the_model() {
    all_families(SHAPES[3]);
}

#[test]
fn prefix_trees_equal_the_model() {
    all_families(SHAPES[4]);
}

#[test]
fn truncated_leaf_trees_equal_the_model() {
    all_families(SHAPES[5]);
}
