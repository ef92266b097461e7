//! Tries in another place: the same keys, other documents, no document read.

use std::collections::BTreeMap;

use cambium_base::{Error, Result};
use cambium_index::hbtrie::{
    self, Change, Cursor, Documents, LeafRule, Relocated, Relocation, Shape, TrieOptions,
};
use cambium_index::{MemoryNodes, NodeAddress};

/// Keys by document.
struct Keys(Vec<Vec<u8>>);

impl Documents for Keys {
    fn key(&self, document: u64) -> Result<Vec<u8>> {
        Ok(self.0[document as usize - 1].clone())
    }
}

/// As after a move to where documents have larger numbers.
fn moved(document: u64) -> u64 {
    (document << 30) + 5
}

fn options(shape: Shape) -> TrieOptions {
    TrieOptions {
        chunk_bytes: 8,
        shape,
    }
}

fn shapes() -> Vec<TrieOptions> {
    let rules = [LeafRule::Off, LeafRule::Paper, LeafRule::Mended];
    let tries = rules.map(|leaf_extension| Shape::HbTrie { leaf_extension });
    let all = tries.into_iter();
    all.chain([Shape::PrefixBTree, Shape::PlainBTree])
        .map(options)
        .collect()
}

/// Keys of all lengths, many of them with long shared beginnings.
fn keys(count: u64) -> Keys {
    let key = |number: u64| {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut key = match mixed >> 62 {
            0 => Vec::new(),
            1 => b"user:".to_vec(),
            2 => b"a common beginning that is long:".to_vec(),
            _ => vec![b'x'; 150 + (mixed % 3) as usize * 40],
        };
        key.extend_from_slice(&mixed.to_be_bytes()[..2 + (mixed % 7) as usize]);
        key.extend_from_slice(&number.to_be_bytes());
        key
    };
    Keys((0..count).map(key).collect())
}

fn changes(keys: &Keys, of: impl Iterator<Item = u64>) -> Vec<(Vec<u8>, Change)> {
    let sorted: BTreeMap<Vec<u8>, u64> = of
        .map(|document| (keys.0[document as usize - 1].clone(), document))
        .collect();
    let put = |(key, document)| (key, Change::Put(document));
    sorted.into_iter().map(put).collect()
}

fn walk(nodes: &MemoryNodes, options: &TrieOptions, root: NodeAddress) -> Vec<u64> {
    let mut cursor = Cursor::new(options, Some(root));
    let mut all = Vec::new();
    let mut there = cursor.seek_first(nodes).unwrap();
    while there {
        all.push(cursor.document().unwrap());
        there = cursor.next(nodes).unwrap();
    }
    all
}

fn relocate(
    from: &MemoryNodes,
    to: &mut MemoryNodes,
    options: &TrieOptions,
    root: NodeAddress,
    relocated: &mut Relocated,
    entries: usize,
) -> Result<NodeAddress> {
    let mut relocation = Relocation::new(options, root);
    loop {
        let mut number = |document| Ok(moved(document));
        if let Some(place) = relocation.step(from, to, relocated, &mut number, entries)? {
            let report = hbtrie::check(to, None, options, Some(place.root))?;
            assert_eq!(place.nodes, report.statistics.nodes());
            return Ok(place.root);
        }
    }
}

#[test]
fn a_trie_is_the_same_elsewhere_but_for_the_documents_numbers() {
    let count = 6000;
    let keys = keys(count);
    for options in shapes() {
        for entries in [1, 100, usize::MAX] {
            let mut from = MemoryNodes::new(1024);
            let all = changes(&keys, 1..=count);
            let root = hbtrie::apply(&mut from, &keys, &options, None, &all, &mut |_| ());
            let root = root.unwrap().unwrap();
            let mut to = MemoryNodes::new(1024);
            let mut relocated = Relocated::default();
            let there = relocate(&from, &mut to, &options, root, &mut relocated, entries).unwrap();
            let expected: Vec<u64> = walk(&from, &options, root).into_iter().map(moved).collect();
            assert_eq!(expected.len() as u64, count);
            assert!(walk(&to, &options, there) == expected, "{options:?}");
            let report = hbtrie::check(&to, None, &options, Some(there)).unwrap();
            assert_eq!(report.findings, [], "{options:?}");
            for document in (1..=count).step_by(37) {
                let key = &keys.0[document as usize - 1];
                let found = hbtrie::find(&to, &options, there, key).unwrap();
                assert_eq!(found, Some(moved(document)), "{options:?}");
            }
            // Wider values, and full nodes.
            let (old, new) = (from.live(), to.appended());
            assert!(new <= old * 3 / 2, "{new} of {old}, {options:?}");
        }
    }
}

#[test]
fn what_two_tries_share_is_relocated_once() {
    let count = 20_000;
    let keys = keys(count);
    let options = options(Shape::HbTrie {
        leaf_extension: LeafRule::Mended,
    });
    let mut from = MemoryNodes::new(512);
    let all = changes(&keys, 1..=count - 1);
    let before = hbtrie::apply(&mut from, &keys, &options, None, &all, &mut |_| ());
    let before = before.unwrap().unwrap();
    let one = changes(&keys, count..=count);
    let after = hbtrie::apply(&mut from, &keys, &options, Some(before), &one, &mut |_| ());
    let after = after.unwrap().unwrap();
    let (mut to, mut relocated) = (MemoryNodes::new(512), Relocated::default());
    let old = relocate(&from, &mut to, &options, before, &mut relocated, 64).unwrap();
    let first = to.appended();
    let new = relocate(&from, &mut to, &options, after, &mut relocated, 64).unwrap();
    let second = to.appended() - first;
    assert!(second < first * 4 / 5, "{second} behind {first}");
    let again = relocate(&from, &mut to, &options, before, &mut relocated, 64).unwrap();
    assert_eq!(again, old);
    assert_eq!(walk(&to, &options, old).len() as u64, count - 1);
    assert_eq!(walk(&to, &options, new).len() as u64, count);
}

#[test]
fn a_document_that_has_no_place_and_a_node_that_is_none_are_errors() {
    let keys = keys(100);
    let options = shapes()[2];
    let mut from = MemoryNodes::new(512);
    let all = changes(&keys, 1..=100);
    let root = hbtrie::apply(&mut from, &keys, &options, None, &all, &mut |_| ());
    let root = root.unwrap().unwrap();
    let mut to = MemoryNodes::new(512);
    let mut none = |document| match document {
        77 => Err(Error::LimitExceeded("not here".to_string())),
        other => Ok(other),
    };
    let mut relocation = Relocation::new(&options, root);
    let stopped = relocation.step(&from, &mut to, &mut Relocated::default(), &mut none, 1000);
    assert!(matches!(stopped, Err(Error::LimitExceeded(_))));
    let nowhere = NodeAddress(from.appended() + 9);
    let stopped = relocate(
        &from,
        &mut to,
        &options,
        nowhere,
        &mut Relocated::default(),
        9,
    );
    assert!(stopped.unwrap_err().is_corruption());
}
