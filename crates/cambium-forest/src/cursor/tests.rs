//! How far ahead cursors read, and what they read at all.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use super::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cambium_api::{Operation, OptionValues};
use cambium_base::Durability;
use cambium_io::Environment;
use cambium_storage::creation::Making;

use crate::core::Core;
use crate::packed_reads::Stretch;
use crate::write::WriteRequest;

const LARGE: usize = 700 << 10;

fn store(buffer_entries: &'static str) -> Arc<Core> {
    let options = OptionValues::from([
        ("write_buffer_entries", buffer_entries),
        ("cache_bytes", "0"),
        ("compaction_threshold", "100"),
    ]);
    let path = Path::new("/s");
    let making = crate::open::make(&Environment::memory(), path, &options);
    let core = making.and_then(Making::conclude).unwrap();
    for number in 0..24u8 {
        let (key, value) = (vec![number; 20], vec![number; LARGE]);
        let put = (0, Operation::Put { key, value });
        let request = WriteRequest::new(vec![put], Durability::Written);
        core.write_request(request).unwrap();
    }
    core
}

fn cursor(core: &Arc<Core>) -> EntryCursor {
    let all = KeyRange::all();
    EntryCursor::new(core.pin().unwrap(), 0, all, Direction::Forward)
}

#[test]
fn what_is_read_ahead_is_bounded_by_bytes() {
    // In the trie, and in a write buffer.
    for buffer_entries in ["8", "1000"] {
        let core = store(buffer_entries);
        let mut cursor = cursor(&core);
        let mut most = 0;
        let mut entries = 0;
        while cursor.next().unwrap().is_some() {
            entries += 1;
            let ready = cursor.ready.iter().map(|held| held.most_bytes() as usize);
            let ahead = cursor.trie.ahead.iter().map(Stretch::value_bytes);
            most = most.max(ready.chain(ahead).sum());
        }
        assert_eq!(entries, 24);
        assert!(most > LARGE, "nothing is read ahead");
        let bound = 2 * (READ_AHEAD_BYTES as usize + LARGE);
        assert!(most <= bound, "{most} bytes ahead, more than {bound}");
    }
}

#[test]
fn keys_of_a_write_buffer_come_without_their_documents() {
    let core = store("1000");
    let reads = || core.counters.document_reads.load(Ordering::Relaxed);
    let before = reads();
    let mut cursor = cursor(&core);
    for number in 0..12u8 {
        let key = Cursor::next_key(&mut cursor).unwrap();
        assert_eq!(key.unwrap(), [number; 20]);
    }
    assert_eq!(reads(), before);
    // And the entries after them with their values.
    let entry = cursor.next().unwrap().unwrap();
    assert_eq!((entry.key[0], entry.value.len()), (12, LARGE));
    let key = Cursor::next_key(&mut cursor).unwrap();
    assert_eq!(key.unwrap(), [13; 20]);
    let left = std::iter::from_fn(|| Cursor::next_key(&mut cursor).unwrap());
    assert_eq!(left.count(), 10);
    assert_eq!(Cursor::next_key(&mut cursor).unwrap(), None);
}
