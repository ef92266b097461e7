//! Memory, pauses and speed of the cuckoo table at ten million keys:
//!
//! ```text
//! cargo run --release -p cambium-index --example cuckoo_memory [KEYS]
//! ```
//!
//! The same keys fill the same table three times. What an insertion that moves entries
//! takes is the least of the three, so that the machine's own pauses, which the last line
//! shows, are not taken for the table's.

use std::hint::black_box;
use std::time::{Duration, Instant};

use cambium_index::cuckoo::{CuckooIndex, Extent};

/// Times that the table is filled.
const ROUNDS: usize = 3;

fn main() {
    let asked = std::env::args().nth(1);
    let keys: u64 = asked
        .and_then(|text| text.replace('_', "").parse().ok())
        .unwrap_or(10_000_000);
    let mut pauses: Vec<Duration> = Vec::new();
    let mut filled = fill(keys, &mut pauses);
    for _ in 1..ROUNDS {
        filled = fill(keys, &mut pauses);
    }
    let Filled { index, .. } = &filled;
    let begin = Instant::now();
    for number in 0..keys {
        // Another order than that of insertion.
        let at = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys;
        let key = index.key(&at.to_be_bytes()[1..]);
        black_box(index.find(key).next());
    }
    let finding = begin.elapsed();
    let each = |time: Duration| time.as_nanos() as f64 / keys as f64;
    println!("keys                        {keys}");
    println!(
        "bytes a key, now            {:.2}",
        index.memory_bytes() as f64 / index.len() as f64
    );
    let [least_each, most_each] = filled.bytes_each;
    println!("bytes a key, least and most {least_each:.2} {most_each:.2}");
    println!("insert, nanoseconds         {:.0}", each(filled.took));
    println!("lookup, nanoseconds         {:.0}", each(finding));
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let longest = pauses.iter().max().copied().unwrap_or_default();
    println!("longest from growth, ms     {:.3}", milliseconds(longest));
    println!("most entries moved at once  {}", filled.most_moved);
    println!(
        "longest that moved none, ms {:.3}",
        milliseconds(filled.idle)
    );
}

/// A table that was filled.
struct Filled {
    index: CuckooIndex,
    took: Duration,
    /// Least and most, from a tenth of the keys on.
    bytes_each: [f64; 2],
    most_moved: u64,
    /// The longest insertion that moved nothing.
    idle: Duration,
}

/// Fills a table; `pauses` gets, or keeps, the least time of each insertion that moves
/// entries: they are the same ones every time.
fn fill(keys: u64, pauses: &mut Vec<Duration>) -> Filled {
    let mut filled = Filled {
        index: CuckooIndex::new([0x9e37_79b9, 0x7f4a_7c15]),
        took: Duration::ZERO,
        bytes_each: [f64::MAX, 0.0],
        most_moved: 0,
        idle: Duration::ZERO,
    };
    let index = &mut filled.index;
    let mut growths = 0;
    let begin = Instant::now();
    for number in 0..keys {
        let place = Extent {
            block: number as u32,
            blocks: 1,
        };
        let key = index.key(&number.to_be_bytes()[1..]);
        let (before, moved) = (Instant::now(), index.moved_entries());
        index.insert(key, place);
        let (took, moved) = (before.elapsed(), index.moved_entries() - moved);
        if moved == 0 {
            filled.idle = filled.idle.max(took);
        } else {
            match pauses.get_mut(growths) {
                Some(known) => *known = took.min(*known),
                None => pauses.push(took),
            }
            growths += 1;
        }
        filled.most_moved = filled.most_moved.max(moved);
        if number >= keys / 10 && number % 10_000 == 0 {
            let each = index.memory_bytes() as f64 / index.len() as f64;
            let [least, most] = filled.bytes_each;
            filled.bytes_each = [least.min(each), most.max(each)];
        }
    }
    filled.took = begin.elapsed();
    filled
}
