//! About how many bytes the entries of a range take.

use cambium_api::{CompactOptions, Durability, Engine, KeyRange, WriteBatch};
use cambium_io::simulated::Generator;

use super::{Bench, Case, OrFail, Outcome};

pub(super) const CASES: &[Case] = &[(
    "sizes of ranges are about right, and a part is no larger than the whole",
    sizes_of_ranges,
)];

/// Entries of the case: some of them in files, some in write buffers.
const ENTRIES: u64 = 1_500;

fn sizes_of_ranges(bench: &Bench) -> Outcome {
    if !bench.capabilities.ordered {
        return Ok(());
    }
    // Keys of one length: those of bench are, and longer ones hide what values take.
    let key = |number| bench.key(number);
    let lengths = write_random_values(&*bench.store, &key, ENTRIES, 600)?;
    check_sizes(&*bench.store, &key, &lengths)?;
    let compacted = bench.store.compact(&CompactOptions::default(), &());
    compacted.or_fail("compact")?;
    check_sizes(&*bench.store, &key, &lengths)?;
    let store = bench.reopened()?;
    check_sizes(&*store, &key, &lengths)
}

/// Puts keys 0 to `count` in random order, each with a random value of up to `longest`
/// bytes; answers the bytes of each entry.
///
/// # Errors
/// Errors of the store.
pub fn write_random_values(
    store: &dyn Engine,
    key: &dyn Fn(u64) -> Vec<u8>,
    count: u64,
    longest: u64,
) -> std::result::Result<Vec<u64>, String> {
    let mut numbers = Generator::new(count);
    let mut lengths = vec![0; count as usize];
    let mut order: Vec<u64> = (0..count).collect();
    for place in (1..order.len()).rev() {
        order.swap(place, numbers.below(place as u64 + 1) as usize);
    }
    for some in order.chunks(500) {
        let mut batch = WriteBatch::new();
        for &number in some {
            let bytes = numbers.below(longest + 1);
            let value: Vec<u8> = (0..bytes).map(|_| numbers.below(256) as u8).collect();
            let key = key(number);
            lengths[number as usize] = key.len() as u64 + bytes;
            batch.put(&key, &value);
        }
        store.write(batch, Durability::Written).or_fail("write")?;
    }
    Ok(lengths)
}

/// Holds the sizes of random ranges of more than 100 entries against the bytes of their
/// entries, and against the sizes of ranges around them. An entry's overhead on disk is
/// less than 64 bytes.
///
/// # Errors
/// The first promise that the store breaks.
pub fn check_sizes(store: &dyn Engine, key: &dyn Fn(u64) -> Vec<u8>, lengths: &[u64]) -> Outcome {
    let count = lengths.len() as u64;
    let size = |from: u64, to: u64| {
        let range = KeyRange::from(key(from)..key(to));
        store.approximate_size(&range).or_fail("approximate_size")
    };
    let all = store.approximate_size(&KeyRange::all()).or_fail("all")?;
    let mut numbers = Generator::new(7);
    let mut around = (0, count, size(0, count)?);
    if around.2 > all {
        return Err(format!("every key: {}, without bounds {all}", around.2));
    }
    for round in 0..200 {
        // Each range lies in the one before, until that is short.
        let (first, last, bytes) = around;
        let shorter = (last - first) / 4;
        let from = first + numbers.below(shorter + 1);
        let to = last - numbers.below(shorter + 1);
        let (mut found, mut bytes) = (size(from, to)?, bytes);
        // A flush in the background may have come between the two: then they are measured again.
        for _ in 0..3 {
            if found > bytes {
                (found, bytes) = (size(from, to)?, size(first, last)?);
            }
        }
        if found > bytes {
            return Err(format!(
                "entries {from} to {to}: {found} bytes; {first} to {last}: {bytes}"
            ));
        }
        let raw: u64 = lengths[from as usize..to as usize].iter().sum();
        let most = raw + 64 * (to - from);
        if to - from > 100 && (found < raw * 2 / 3 || found > most * 3 / 2) {
            return Err(format!(
                "round {round}, entries {from} to {to}: {found} bytes, {raw} in truth"
            ));
        }
        around = match to - from < 100 {
            true => (0, count, size(0, count)?),
            false => (from, to, found),
        };
    }
    let backwards = size(count, 0)?;
    match backwards {
        0 => Ok(()),
        _ => Err(format!(
            "{backwards} bytes of a range that ends before it begins"
        )),
    }
}
