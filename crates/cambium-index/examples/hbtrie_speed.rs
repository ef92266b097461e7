//! How fast an HB+-trie is with its nodes in memory.
//!
//! ```text
//! cargo run --release -p cambium-index --example hbtrie_speed [KEYS [KEY_BYTES]]
//! ```

use std::time::Instant;

use cambium_base::Result;
use cambium_index::hbtrie::{self, Change, Cursor, Documents, TrieOptions};
use cambium_index::{MemoryNodes, NodeReader};

/// Keys of random bytes, by number.
struct RandomKeys {
    bytes: usize,
}

fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 27
}

impl Documents for RandomKeys {
    fn key(&self, document: u64) -> Result<Vec<u8>> {
        let words = (0..self.bytes.div_ceil(8) as u64).map(|word| mix(document + (word << 40)));
        let mut key: Vec<u8> = words.flat_map(u64::to_be_bytes).collect();
        key.truncate(self.bytes);
        Ok(key)
    }
}

fn print(what: &str, start: Instant, count: u64) {
    let nanoseconds = start.elapsed().as_nanos() as f64 / count as f64;
    println!("{what:<40} {nanoseconds:>8.0} ns");
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments
        .next()
        .map_or(Ok(1_000_000), |text| text.parse())?;
    let bytes: usize = arguments.next().map_or(Ok(32), |text| text.parse())?;
    let documents = RandomKeys { bytes };
    let options = TrieOptions::default();
    let mut nodes = MemoryNodes::new(4096);

    let mut sorted: Vec<(Vec<u8>, u64)> = Vec::new();
    for document in 0..count {
        sorted.push((documents.key(document)?, document));
    }
    sorted.sort();
    let start = Instant::now();
    let mut entries = sorted
        .iter()
        .map(|(key, document)| Ok((key.clone(), *document)));
    let root = hbtrie::build(&mut nodes, &documents, &options, &mut entries)?;
    print("bulk load, a key", start, count);
    let root = root.ok_or("no keys")?;
    println!(
        "{:<40} {:>8.2}",
        "bytes a key",
        nodes.live() as f64 * 4096.0 / count as f64
    );

    let mut found = 0;
    let start = Instant::now();
    for number in 0..count {
        let (key, document) = &sorted[(mix(number) % count) as usize];
        let answer = hbtrie::find(&nodes, &options, root, key)?;
        found += u64::from(answer == Some(*document));
    }
    print("find a key that is there", start, count);
    assert_eq!(found, count);

    let start = Instant::now();
    let mut cursor = Cursor::new(&options, Some(root));
    let mut walked = 0;
    while cursor.next(&nodes)? {
        walked += 1;
    }
    print("walk, a document", start, walked);
    assert_eq!(walked, count);

    for batch in [1, 64, 4096, 65_536] {
        let before = nodes.appended();
        let mut root = root;
        let batches = (count / 4 / batch).clamp(1, 2000);
        let mut spent = std::time::Duration::ZERO;
        for number in 0..batches {
            let mut changes: Vec<(Vec<u8>, Change)> = Vec::new();
            for at in 0..batch {
                let document = (1 << 39) + number * batch + at;
                changes.push((documents.key(document)?, Change::Put(document)));
            }
            changes.sort_by(|one, other| one.0.cmp(&other.0));
            let start = Instant::now();
            let made = hbtrie::apply(
                &mut nodes,
                &documents,
                &options,
                Some(root),
                &changes,
                &mut |_| (),
            )?;
            spent += start.elapsed();
            root = made.ok_or("the trie is empty")?;
        }
        let changes = (batches * batch) as f64;
        println!(
            "{:<40} {:>8.0} ns, {:.2} nodes appended",
            format!("apply {batch} new keys at once, a key"),
            spent.as_nanos() as f64 / changes,
            (nodes.appended() - before) as f64 / changes
        );
    }
    println!("nodes of {} bytes", nodes.node_bytes());
    Ok(())
}
