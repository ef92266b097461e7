//! The B+-tree under batches that shrink to the smallest that fails.

use std::collections::BTreeMap;

use cambium_index::btree::{KeyLayout, TreeOptions};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::support::{Random, Subject};

fn keys() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(255), Just(b'a'), any::<u8>()];
    prop_oneof![
        vec(byte.clone(), 0..4),
        vec(byte.clone(), 0..128),
        (0usize..128, vec(byte, 0..3)).prop_map(|(shared, tail)| {
            let mut key = vec![b'k'; shared.min(128 - tail.len())];
            key.extend(tail);
            key
        }),
    ]
}

fn batches() -> impl Strategy<Value = Vec<BTreeMap<Vec<u8>, Option<u64>>>> {
    vec(btree_map(keys(), any::<Option<u64>>(), 0..80), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_batches_leave_what_the_model_says(batches in batches(), plain in any::<bool>()) {
        let options = if plain {
            TreeOptions::plain(KeyLayout::Variable)
        } else {
            TreeOptions::new(KeyLayout::Variable)
        };
        let mut subject = Subject::new(512, options);
        let mut random = Random::new(2);
        for batch in &batches {
            subject.apply(batch, "proptest");
            subject.check(&mut random, "proptest");
        }
        subject.delete_all("proptest");
    }
}
