//! The table against a model, at its bounds, and under keys chosen to collide.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;

fn place(number: u64) -> Extent {
    Extent {
        block: number as u32,
        blocks: 1 + (number % 7) as u32,
    }
}

fn filled(count: u64) -> CuckooIndex {
    let mut index = CuckooIndex::new([3, 4]);
    for number in 0..count {
        let key = index.key(&number.to_be_bytes()[2..]);
        index.insert(key, place(number));
    }
    index
}

#[test]
fn keys_of_every_length_are_told_apart() {
    let mut index = CuckooIndex::new([1, 2]);
    let keys: Vec<Vec<u8>> = (0..40).map(|length| vec![0; length]).collect();
    for (number, key) in keys.iter().enumerate() {
        let slot = index.key(key);
        assert_eq!(slot.is_exact(), key.len() <= INLINE_KEY_BYTES);
        assert_eq!(SlotKey::from_bits(slot.bits()), Some(slot));
        index.insert(slot, place(number as u64));
    }
    for (number, key) in keys.iter().enumerate() {
        let found: Vec<Extent> = index.find(index.key(key)).collect();
        assert_eq!(found, [place(number as u64)]);
    }
    assert_eq!(SlotKey::from_bits(0), None);
    assert_eq!(
        SlotKey::from_bits(1 << 56 | 1),
        None,
        "bytes of an empty key"
    );
    assert_eq!(
        SlotKey::from_bits(9 << 56),
        None,
        "an inline key of 8 bytes"
    );
}

#[test]
fn memory_and_pauses_stay_bounded_while_it_grows() {
    let mut index = CuckooIndex::new([5, 6]);
    let (mut most_moved, mut fullest, mut emptiest) = (0, 0.0_f64, 1.0_f64);
    for number in 0..300_000u64 {
        let key = index.key(&number.to_le_bytes()[..5]);
        let (before, memory) = (index.moved_entries(), index.memory_bytes());
        let entries = index.len();
        index.insert(key, place(number));
        most_moved = most_moved.max(index.moved_entries() - before);
        if entries >= 20_000 {
            emptiest = emptiest.min(index.len() as f64 / index.slots() as f64);
            let each = memory as f64 / entries as f64;
            assert!(each <= 24.0, "{each} bytes an entry at {entries}");
            fullest = fullest.max(entries as f64 / index.slots() as f64);
        }
    }
    // A pause is what one insertion moves; a segment is cut, and a half may grow.
    assert!(
        most_moved <= 2 * MAX_SEGMENT_ENTRIES as u64 + 2,
        "{most_moved}"
    );
    assert!(16.0 / fullest <= 18.0, "fill {fullest} before it grows");
    assert!(emptiest >= 2.0 / 3.0, "fill {emptiest} after it grew");
}

#[test]
fn lookups_find_everything_at_more_than_ninety_percent_fill() {
    let mut index = CuckooIndex::new([7, 8]);
    let mut number = 0u64;
    // On to where the whole table is that full.
    while index.len() < 100_000 || index.len() * 100 < index.slots() * 93 {
        let key = index.key(&number.to_be_bytes());
        index.insert(key, place(number));
        number += 1;
        assert!(number < 400_000, "never more than 93 % full");
    }
    for at in 0..number {
        let key = index.key(&at.to_be_bytes());
        assert_eq!(index.find(key).collect::<Vec<_>>(), [place(at)], "{at}");
    }
}

#[test]
fn keys_that_collide_without_the_secret_do_not_with_it() {
    // Chosen against the secret of zeros: all in one of 256 segments.
    let known = CuckooIndex::new([0, 0]);
    let chosen: Vec<[u8; 7]> = (0u64..)
        .map(|number| {
            let mut key = [0; 7];
            key.copy_from_slice(&number.to_le_bytes()[..7]);
            key
        })
        .filter(|key| known.hash(known.key(key)) >> (HASH_BITS - 8) == 0)
        .take(10_000)
        .collect();
    let mut index = CuckooIndex::new([0x0123_4567, 0x89ab_cdef]);
    let mut segments: HashMap<u64, usize> = HashMap::new();
    for (number, key) in chosen.iter().enumerate() {
        let slot = index.key(key);
        *segments
            .entry(index.hash(slot) >> (HASH_BITS - 8))
            .or_default() += 1;
        index.insert(slot, place(number as u64));
    }
    let most = segments.values().max().copied().unwrap();
    assert!(most < 100, "{most} of 10,000 keys in one of 256 parts");
}

#[test]
fn many_extents_under_one_key_are_all_kept() {
    let mut index = filled(100);
    let key = index.key(b"a key of more than seven bytes");
    for number in 0..200 {
        index.insert(key, place(1_000 + number));
    }
    assert_eq!(index.find(key).count(), 200);
    for number in (0..200).rev() {
        let moved = place(5_000 + number);
        assert!(index.replace(key, place(1_000 + number), moved));
        assert!(index.remove(key, moved));
    }
    assert_eq!(index.len(), 100);
    assert_eq!(index.find(key).count(), 0);
}

#[test]
fn pages_visit_each_entry_once_in_the_order_of_hashes_through_growth() {
    let mut index = filled(20_000);
    let mut seen = Vec::new();
    let mut from = Some(0);
    let mut extra = 1_000_000;
    while let Some(at) = from {
        from = index.page(at, &mut seen);
        // Others come meanwhile.
        for _ in 0..3_000 {
            let key = index.key(&(extra as u64).to_be_bytes()[2..]);
            index.insert(key, place(u64::from(u32::MAX)));
            extra += 1;
        }
    }
    assert!(seen.is_sorted_by_key(|(hash, _, _)| *hash));
    let mut blocks: Vec<u32> = seen
        .iter()
        .map(|(_, _, place)| place.block)
        .filter(|&block| block != u32::MAX)
        .collect();
    blocks.sort_unstable();
    assert_eq!(blocks, (0..20_000).collect::<Vec<u32>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_table_agrees_with_a_map(
        steps in prop::collection::vec((0u8..3, 0u64..600, 0u64..5), 1..3_000),
        length in 1usize..16,
    ) {
        let mut index = CuckooIndex::new([9, 10]);
        let mut model: BTreeMap<Vec<u8>, Extent> = BTreeMap::new();
        for (kind, number, version) in steps {
            let mut bytes = number.to_le_bytes().to_vec();
            bytes.resize(length, 0xee);
            let key = index.key(&bytes);
            let new = place(number * 8 + version);
            match (kind, model.get(&bytes).copied()) {
                (0, Some(old)) => {
                    prop_assert!(index.remove(key, old));
                    prop_assert!(!index.remove(key, old));
                    model.remove(&bytes);
                }
                (1, Some(old)) => {
                    prop_assert!(index.replace(key, old, new));
                    model.insert(bytes, new);
                }
                (2, None) => {
                    index.insert(key, new);
                    model.insert(bytes, new);
                }
                _ => {}
            }
        }
        prop_assert_eq!(index.len(), model.len());
        for (bytes, place) in &model {
            prop_assert_eq!(index.find(index.key(bytes)).collect::<Vec<_>>(), vec![*place]);
        }
    }
}

#[test]
fn a_table_built_at_once_is_one_that_was_filled_one_by_one() {
    for count in [0u32, 1, 4_999, 60_000] {
        let entries: Vec<(SlotKey, Extent)> = (0..count)
            .map(|number| {
                let long = format!("a key of more than seven bytes: {number}");
                let index = CuckooIndex::new([3, 4]);
                let key = match number % 3 {
                    0 => index.key(long.as_bytes()),
                    _ => index.key(&number.to_le_bytes()),
                };
                let blocks = 1 + number % 7;
                (
                    key,
                    Extent {
                        block: number,
                        blocks,
                    },
                )
            })
            .collect();
        let mut expected = CuckooIndex::new([3, 4]);
        for &(key, place) in &entries {
            expected.insert(key, place);
        }
        let walk = |index: &CuckooIndex| {
            let (mut all, mut from) = (Vec::new(), Some(0));
            while let Some(at) = from {
                from = index.page(at, &mut all);
            }
            all
        };
        let mut built = Builder::from_entries([3, 4], &entries);
        assert_eq!(built.len(), count as usize);
        assert_eq!(walk(&built), walk(&expected));
        let bound = count as usize * 24 + (64 << 10);
        assert!(built.memory_bytes() <= bound, "{}", built.memory_bytes());
        // Each part by itself, the last one first.
        let parts = Parts::new([3, 4], 4, count as usize);
        let made = (0..parts.count()).rev().map(|part| {
            let own = entries
                .iter()
                .filter(|(key, _)| parts.part_of(*key) == part);
            parts.build(part, &own.copied().collect::<Vec<_>>())
        });
        assert_eq!(walk(&parts.join(made.collect())), walk(&expected));
        // In order, and against it: segments come together, or one by one.
        let mut scattered = Builder::new([3, 4], 60_000);
        for &(key, place) in entries.iter().take(7_000) {
            scattered.push(key, place);
        }
        assert_eq!(scattered.finish().len(), entries.len().min(7_000));
        // It goes on as any other.
        for &(key, place) in &entries {
            assert!(built.find(key).any(|found| found == place));
            assert!(built.remove(key, place));
        }
        assert!(built.is_empty());
        for &(key, place) in &entries {
            built.insert(key, place);
        }
        assert_eq!(walk(&built), walk(&expected));
    }
}
