//! Memory, pauses and speed of the cuckoo table at ten million keys:
//!
//! ```text
//! cargo run --release -p cambium-index --example cuckoo_memory [KEYS]
//! ```

use std::hint::black_box;
use std::time::{Duration, Instant};

use cambium_index::cuckoo::{CuckooIndex, Extent};

fn main() {
    let asked = std::env::args().nth(1);
    let keys: u64 = asked
        .and_then(|text| text.replace('_', "").parse().ok())
        .unwrap_or(10_000_000);
    let mut index = CuckooIndex::new([0x9e37_79b9, 0x7f4a_7c15]);
    let (mut longest, mut most_moved) = (Duration::ZERO, 0);
    let (mut most_each, mut least_each) = (0.0_f64, f64::MAX);
    let begin = Instant::now();
    for number in 0..keys {
        let place = Extent {
            block: number as u32,
            blocks: 1,
        };
        let key = index.key(&number.to_be_bytes()[1..]);
        let (before, moved) = (Instant::now(), index.moved_entries());
        index.insert(key, place);
        longest = longest.max(before.elapsed());
        most_moved = most_moved.max(index.moved_entries() - moved);
        if number >= keys / 10 && number % 10_000 == 0 {
            let each = index.memory_bytes() as f64 / index.len() as f64;
            most_each = most_each.max(each);
            least_each = least_each.min(each);
        }
    }
    let filling = begin.elapsed();
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
    println!("bytes a key, least and most {least_each:.2} {most_each:.2}");
    println!("insert, nanoseconds         {:.0}", each(filling));
    println!("lookup, nanoseconds         {:.0}", each(finding));
    println!(
        "longest insert, ms          {:.3}",
        longest.as_secs_f64() * 1e3
    );
    println!("most entries moved at once  {most_moved}");
}
