//! A run against an ordered map, with keys that are hard to tell apart.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::collections::BTreeMap;

use super::*;

/// Documents by their addresses, as the log has them.
#[derive(Default)]
struct Log {
    keys: Vec<Vec<u8>>,
    asked: usize,
}

impl Log {
    fn put(&mut self, key: &[u8]) -> DocumentAddress {
        self.keys.push(key.to_vec());
        DocumentAddress::new(self.keys.len() as u64 * 64, 64, key)
    }

    fn key(&self, address: DocumentAddress) -> &[u8] {
        &self.keys[(address.offset() / 64) as usize - 1]
    }

    fn keys(&mut self, addresses: &[DocumentAddress]) -> Vec<Vec<u8>> {
        self.asked += addresses.len();
        let keys = addresses.iter().map(|&address| self.key(address).to_vec());
        keys.collect()
    }
}

type Changes = BTreeMap<(u16, Vec<u8>), Option<DocumentAddress>>;

/// Merges changes into a run, so many at once.
fn merged(run: &SortedRun, changes: &Changes, log: &mut Log, together: usize) -> SortedRun {
    let mut merge = Merge::new(run, MadeOf::default());
    let mut namespaces: Vec<u16> = run.namespaces().collect();
    namespaces.extend(changes.keys().map(|(namespace, _)| namespace));
    namespaces.sort_unstable();
    namespaces.dedup();
    for namespace in namespaces {
        let mut part = merge.part(namespace);
        let own = changes.iter().filter(|((of, _), _)| *of == namespace);
        let own: Vec<_> = own
            .map(|((_, key), document)| (key.clone(), *document))
            .collect();
        for piece in own.chunks(together) {
            let keys_of = |asked: &[DocumentAddress]| Ok(log.keys(asked));
            part.apply(piece.to_vec(), keys_of).unwrap();
        }
        merge.take(part);
    }
    merge.finish()
}

/// What a reader makes of a lookup.
fn looked_up(run: &SortedRun, log: &Log, namespace: u16, key: &[u8]) -> Option<Hit> {
    let hit = run.find(namespace, key)?;
    let is_it = |address: DocumentAddress| hit.is_whole || log.key(address) == key;
    let is_it = hit.document.is_none_or(is_it);
    is_it.then_some(Hit {
        is_whole: true,
        ..hit
    })
}

fn agree(run: &SortedRun, model: &Changes, log: &Log) {
    assert_eq!(run.entries(), model.len() as u64);
    let mut namespaces: Vec<u16> = model.keys().map(|(namespace, _)| *namespace).collect();
    namespaces.dedup();
    assert_eq!(run.namespaces().collect::<Vec<_>>(), namespaces);
    for &namespace in &namespaces {
        let own = model.iter().filter(|((of, _), _)| *of == namespace);
        let mut entries = run.walk(namespace);
        for ((_, key), document) in own {
            let entry = entries.next().unwrap();
            assert_eq!(entry.document, *document);
            assert!(key.starts_with(&entry.known));
            assert_eq!(entry.is_whole, entry.known.len() == key.len());
            assert!(entry.is_whole || document.is_some(), "a removal was cut");
        }
        assert_eq!(entries.next(), None);
    }
    for ((namespace, key), document) in model {
        let hit = looked_up(run, log, *namespace, key);
        assert_eq!(hit.unwrap().document, *document, "{key:?}");
    }
    // Keys that are not there, beside those that are.
    for (namespace, key) in model.keys() {
        let mut longer = key.clone();
        longer.push(0);
        let shorter = key[..key.len() / 2].to_vec();
        let mut next = key.clone();
        if let Some(last) = next.last_mut() {
            *last = last.wrapping_add(1);
        }
        for other in [longer, shorter, next] {
            let there = model.get(&(*namespace, other.clone()));
            let hit = looked_up(run, log, *namespace, &other);
            assert_eq!(hit.map(|hit| hit.document), there.copied(), "{other:?}");
        }
    }
}

/// Keys that share prefixes of all lengths, long and short, some prefixes of others.
fn key(draw: &mut impl FnMut(u64) -> u64) -> Vec<u8> {
    let mut key = Vec::new();
    for _ in 0..draw(4) {
        let length = [0, 1, 2, 300, 700][draw(5) as usize];
        key.extend(std::iter::repeat_n(b'a' + draw(2) as u8, length));
    }
    key
}

fn generator(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

#[test]
fn a_run_holds_the_newest_of_each_key() {
    for seed in 1..200 {
        let mut draw = generator(seed);
        let (mut log, mut model) = (Log::default(), Changes::new());
        let mut run = SortedRun::default();
        for _ in 0..4 {
            let mut changes = Changes::new();
            for _ in 0..draw(40) {
                let key = key(&mut draw);
                let document = (draw(4) > 0).then(|| log.put(&key));
                changes.insert((draw(2) as u16, key), document);
            }
            let together = 1 + draw(8) as usize;
            run = merged(&run, &changes, &mut log, together);
            model.extend(changes);
            agree(&run, &model, &log);
        }
    }
}

#[test]
fn long_keys_are_cut_to_what_tells_them_apart() {
    let (mut log, mut changes) = (Log::default(), Changes::new());
    for number in 0..1_000u64 {
        let mut key = vec![b'k'; 500];
        key.extend_from_slice(&number.to_be_bytes());
        key.extend_from_slice(&[b'v'; 500]);
        let document = log.put(&key);
        changes.insert((0, key), Some(document));
    }
    let run = merged(&SortedRun::default(), &changes, &mut log, 100);
    assert!(run.walk(0).all(|entry| entry.known.len() <= 508));
    // Of a block's first key all 508 bytes, of the others two or three, and an address.
    assert!(run.bytes() < 1_000 * 50, "{}", run.bytes());
    agree(&run, &changes, &log);
    assert_eq!(log.asked, 0, "new keys ask for no documents");
    let again = merged(&run, &changes, &mut log, 100);
    assert_eq!(log.asked, 1_000, "each may be the one that it looks like");
    agree(&again, &changes, &log);
}

#[test]
fn short_keys_stay_whole_and_ask_for_nothing() {
    let (mut log, mut changes) = (Log::default(), Changes::new());
    for number in 0..500u64 {
        let key = format!("user{number:08}").into_bytes();
        let document = log.put(&key);
        changes.insert((0, key), Some(document));
    }
    let run = merged(&SortedRun::default(), &changes, &mut log, 64);
    assert!(run.walk(0).all(|entry| entry.is_whole));
    let again = merged(&run, &changes, &mut log, 64);
    assert_eq!((log.asked, again.entries()), (0, 500));
    assert!(run.bytes() < 500 * 20, "{}", run.bytes());
}

#[test]
fn an_empty_run_answers_nothing() {
    let run = SortedRun::default();
    assert_eq!(run.find(0, b""), None);
    assert_eq!((run.block_of(0, b"key"), run.blocks(0)), (None, 0));
    assert!(run.is_empty() && run.block(0, 0).is_empty());
}
