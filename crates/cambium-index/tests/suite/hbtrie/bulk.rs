//! A trie from sorted input.

use cambium_index::hbtrie::{build, check};

use crate::hbtrie::families::FAMILIES;
use crate::hbtrie::model::SHAPES;
use crate::hbtrie::world::World;
use crate::support::Random;
use cambium_index::hbtrie::{Cursor, LeafRule, Shape, TrieOptions};

#[test]
fn a_bulk_load_equals_the_model_in_every_shape() {
    for shape in SHAPES {
        for (name, family) in FAMILIES {
            let mut world = World::new(
                TrieOptions {
                    chunk_bytes: 8,
                    shape,
                },
                512,
            );
            let mut random = Random::new(9);
            for _ in 0..700 {
                let key = family(&mut random);
                let document = world.shelf.add(&key);
                world.model.insert(key, document);
            }
            let mut entries = world.model.iter().map(|(key, one)| Ok((key.clone(), *one)));
            let root = build(&mut world.nodes, &world.shelf, &world.options, &mut entries);
            world.root = root.unwrap();
            world.verify();
            world.verify_all();
            println!("{name} {shape:?}");
        }
    }
}

#[test]
fn a_bulk_load_over_several_batches_leaves_full_nodes() {
    let mut random = Random::new(10);
    let mut keys: Vec<[u8; 16]> = (0..150_000)
        .map(|_| {
            let mut key = [b'u'; 16];
            key[8..].copy_from_slice(&random.next().to_be_bytes());
            key
        })
        .collect();
    keys.sort_unstable();
    for leaf_extension in [LeafRule::Off, LeafRule::Paper, LeafRule::Mended] {
        let options = TrieOptions {
            chunk_bytes: 8,
            shape: Shape::HbTrie { leaf_extension },
        };
        let mut world = World::new(options, 4096);
        let mut entries = keys
            .iter()
            .enumerate()
            .map(|(at, key)| Ok((key.to_vec(), at as u64)));
        let root = build(&mut world.nodes, &world.shelf, &options, &mut entries).unwrap();
        let report = check(&world.nodes, None, &options, root).unwrap();
        assert_eq!(report.findings, []);
        assert_eq!(report.statistics.documents, keys.len() as u64);
        let nodes = world.nodes.memory.appended();
        let wasted = nodes - report.statistics.nodes();
        assert!(
            wasted * 50 < nodes,
            "{leaf_extension:?}: {wasted} of {nodes} rewritten"
        );
        let entries = keys.len() as f64 / report.statistics.nodes() as f64;
        assert!(
            entries > 225.0,
            "{leaf_extension:?}: {entries} entries a node"
        );
    }
}

#[test]
fn entries_out_of_order_are_refused() {
    let mut world = World::new(TrieOptions::default(), 512);
    let mut entries = [("b", 1), ("a", 2)]
        .map(|(key, one)| Ok((key.into(), one)))
        .into_iter();
    let refused = build(&mut world.nodes, &world.shelf, &world.options, &mut entries);
    assert!(refused.is_err());
}

#[test]
fn a_cursor_can_be_kept_and_sent() {
    fn kept<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    let mut world = World::new(TrieOptions::default(), 512);
    let mut random = Random::new(12);
    let all = (0..800).map(|_| (random.bytes(12), true)).collect();
    world.apply(all);
    let mut cursor = kept(Cursor::new(&world.options, world.root));
    assert!(cursor.next(&world.nodes).unwrap());
    let before: Vec<u64> = world.model.values().copied().collect();
    // The trie goes on; the cursor walks the root that it has.
    let removed = world.model.keys().map(|key| (key.clone(), false)).collect();
    world.apply(removed);
    for document in before {
        assert_eq!(cursor.document(), Some(document));
        cursor.next(&world.nodes).unwrap();
    }
    assert_eq!(cursor.document(), None);
}

/// A leaf tree of many keys, to which the mended rule comes late; answers how many trie
/// trees it then becomes.
fn extended_late(count: u64) -> u64 {
    let mut random = Random::new(11);
    let mut world = World::new(
        TrieOptions {
            chunk_bytes: 8,
            shape: Shape::PrefixBTree,
        },
        512,
    );
    for (shape, count) in [
        (Shape::PrefixBTree, count),
        (TrieOptions::default().shape, count / 2),
    ] {
        world.options.shape = shape;
        let keys = (0..count).map(|_| (random.bytes(16), true));
        world.apply(keys.collect());
    }
    world.verify().statistics.trie_trees.trees
}

#[test]
fn a_leaf_tree_is_extended_only_while_its_keys_fit_in_memory() {
    assert!(extended_late(4_000) > 0);
    assert_eq!(extended_late(60_000), 0);
}
