//! How fast the B+-tree is in memory, and how full its nodes are.
//!
//! ```text
//! cargo run --release -p cambium-index --example btree_speed [ENTRIES [KEY_BYTES [plain]]]
//! ```
//!
//! Builds a tree of random keys in bulk, gets, walks, updates and deletes in
//! batches, with nodes of 4 KiB held in memory. Figures are of one thread.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::error::Error;
use std::time::Instant;

use cambium_index::btree::{self, Cursor, KeyLayout, TreeOptions};
use cambium_index::{MemoryNodes, NodeAddress};

const NODE_BYTES: usize = 4096;

type Answer<T> = Result<T, Box<dyn Error>>;

fn main() -> Answer<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = arguments
        .first()
        .map_or(Ok(1_000_000), |text| text.parse())?;
    let key_bytes = arguments.get(1).map_or(Ok(8), |text| text.parse())?;
    let plain = arguments.get(2).is_some_and(|text| text == "plain");
    for layout in [KeyLayout::Fixed(key_bytes), KeyLayout::Variable] {
        let options = if plain {
            TreeOptions::plain(layout)
        } else {
            TreeOptions::new(layout)
        };
        println!("\n{count} keys of {key_bytes} bytes, {options:?}");
        measure(options, count, key_bytes)?;
    }
    Ok(())
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn key(&mut self, bytes: usize) -> Vec<u8> {
        let mut key = Vec::with_capacity(bytes + 8);
        while key.len() < bytes {
            key.extend_from_slice(&self.next().to_be_bytes());
        }
        key.truncate(bytes);
        key
    }

    fn one_of<'k>(&mut self, keys: &'k [Vec<u8>]) -> &'k [u8] {
        &keys[(self.next() % keys.len() as u64) as usize]
    }
}

/// Nanoseconds that this thread had a processor, where the system tells: other
/// programs on the machine then count less.
fn processor_time() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = told.split_whitespace().next();
    first.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

fn report(what: &str, start: f64, operations: usize) {
    let nanoseconds = (processor_time() - start) / operations.max(1) as f64;
    println!("{what:<44} {nanoseconds:>9.0} ns each");
}

fn shape(nodes: &MemoryNodes, options: &TreeOptions, root: Option<NodeAddress>) -> Answer<()> {
    let report = btree::check(nodes, options, root, &mut |_, _| Ok(()))?;
    let statistics = report.statistics;
    println!(
        "    {} entries, nodes by level {:?}, {:.1} % full, {:.2} bytes an entry, {} small, {} findings",
        statistics.entries,
        statistics.nodes_by_level,
        100.0 * statistics.occupancy(),
        statistics.bytes() as f64 / statistics.entries.max(1) as f64,
        statistics.small_nodes,
        report.findings.len(),
    );
    Ok(())
}

fn measure(options: TreeOptions, count: usize, key_bytes: usize) -> Answer<()> {
    let mut random = Random(7);
    let mut keys: Vec<Vec<u8>> = (0..count).map(|_| random.key(key_bytes)).collect();
    keys.sort();
    keys.dedup();
    let mut nodes = MemoryNodes::new(NODE_BYTES);
    let start = processor_time();
    let mut number = 0;
    let mut entries = keys.iter().map(|key| {
        number += 1;
        Ok((key.clone(), number << 20))
    });
    let root = btree::build(&mut nodes, &options, b"", &mut entries)?;
    report("bulk load", start, count);
    shape(&nodes, &options, root)?;
    read(&nodes, root, &keys, &mut random)?;
    if std::env::var_os("READ_ONLY").is_some() {
        return Ok(());
    }
    drop(nodes);
    let mut nodes = MemoryNodes::new(NODE_BYTES);
    let mut root = None;
    for batch in [4096, 100, 1] {
        root = update(&mut nodes, &options, root, &keys, batch, &mut random)?;
    }
    delete(&mut nodes, &options, root, &keys)
}

fn read(
    nodes: &MemoryNodes,
    root: Option<NodeAddress>,
    keys: &[Vec<u8>],
    random: &mut Random,
) -> Answer<()> {
    let Some(root) = root else { return Ok(()) };
    // In one piece, so that reading the keys does not count.
    let gets = 1_000_000;
    let wanted: Vec<u8> = (0..gets)
        .flat_map(|_| random.one_of(keys).to_vec())
        .collect();
    let mut sum = 0;
    // Short pieces, so that on a busy machine some are not interrupted.
    let mut pieces = Vec::new();
    let processor = processor_time();
    for piece in wanted.chunks(keys[0].len() * 10_000) {
        let start = Instant::now();
        for key in piece.chunks_exact(keys[0].len()) {
            sum += btree::get(nodes, root, key)?.unwrap_or(0);
        }
        pieces.push(start.elapsed().as_nanos() as f64 / 10_000.0);
    }
    pieces.sort_by(f64::total_cmp);
    report("get, random, present", processor, gets);
    println!(
        "    by the clock: median of pieces {:.0} ns, best {:.0} ns",
        pieces[pieces.len() / 2],
        pieces[0]
    );
    let start = processor_time();
    let mut cursor = Cursor::new(Some(root));
    while cursor.next(nodes)? {
        sum += cursor.value().unwrap_or(0);
    }
    report("cursor, next", start, keys.len());
    let start = processor_time();
    while cursor.previous(nodes)? {
        sum += cursor.value().unwrap_or(0);
    }
    report("cursor, previous", start, keys.len());
    println!("    (sum {sum})");
    Ok(())
}

/// Puts random keys of the set, as many as there are keys (or, for
/// small batches, 20,000); and once more, for new values only.
fn update(
    nodes: &mut MemoryNodes,
    options: &TreeOptions,
    mut root: Option<NodeAddress>,
    keys: &[Vec<u8>],
    batch: usize,
    random: &mut Random,
) -> Answer<Option<NodeAddress>> {
    let total = if batch < 1000 {
        20_000.min(keys.len())
    } else {
        keys.len()
    };
    for only_updates in [false, true] {
        let appended = nodes.appended();
        let batches: Vec<BTreeSet<&[u8]>> = (0..total.div_ceil(batch))
            .map(|_| (0..batch).map(|_| random.one_of(keys)).collect())
            .collect();
        let start = processor_time();
        for (round, some) in batches.into_iter().enumerate() {
            let value = (round as u64 + u64::from(only_updates)) << 20;
            let mut source = some.into_iter().map(Cow::Borrowed);
            root = btree::apply(nodes, options, root, b"", &mut source, &mut |_, _, old| {
                let update = !only_updates || old.is_some();
                Ok(update.then_some(value))
            })?;
        }
        let what = if only_updates { "update" } else { "put" };
        report(&format!("{what}, batches of {batch}"), start, total);
        let written = (nodes.appended() - appended) as f64 / total as f64;
        println!("    {written:.3} nodes written each");
        shape(nodes, options, root)?;
    }
    Ok(root)
}

fn delete(
    nodes: &mut MemoryNodes,
    options: &TreeOptions,
    mut root: Option<NodeAddress>,
    keys: &[Vec<u8>],
) -> Answer<()> {
    // Every key but each tenth, in batches that reach over the whole tree.
    let stride = (keys.len() / 4096).max(1);
    let start = processor_time();
    for offset in (0..stride).filter(|offset| stride < 10 || offset % 10 != 0) {
        let mut source = keys.iter().skip(offset).step_by(stride).map(Into::into);
        root = btree::apply(nodes, options, root, b"", &mut source, &mut |_, _, _| {
            Ok(None)
        })?;
    }
    report(
        "delete 9 of 10, batches of 4096",
        start,
        keys.len() * 9 / 10,
    );
    shape(nodes, options, root)
}
