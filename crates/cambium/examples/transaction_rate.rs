//! The rate of transactions beside the same reads and writes without one, in turns.
//! `cargo run --release --package cambium --example transaction_rate -- forest`
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use cambium::prelude::*;

const KEYS: u64 = 100_000;
const THREADS: u64 = 2;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(700);

/// The next of a row of numbers that look random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005);
    *state = state.wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Keys of one thread alone: no two threads conflict.
fn key(thread: u64, state: &mut u64) -> [u8; 8] {
    (next(state) % (KEYS / THREADS) * THREADS + thread).to_be_bytes()
}

/// Four reads, and writes of the first two keys.
type Work = fn(&Store, [&[u8]; 4], &[u8]) -> cambium::Result<()>;

fn apart(store: &Store, keys: [&[u8]; 4], value: &[u8]) -> cambium::Result<()> {
    store.multi_get(&keys)?;
    let mut batch = WriteBatch::new();
    batch.put(keys[0], value).put(keys[1], value);
    store.write(batch).map(drop)
}

fn together(store: &Store, keys: [&[u8]; 4], value: &[u8]) -> cambium::Result<()> {
    let transaction = store.transaction()?;
    transaction.multi_get(&keys)?;
    transaction.put(keys[0], value)?;
    transaction.put(keys[1], value)?;
    transaction.commit().map(drop)
}

fn count_up(store: &Store) -> cambium::Result<()> {
    store.transact(|transaction| {
        let value = transaction.get(0u64.to_be_bytes())?;
        let bytes = value.as_ref().and_then(|value| value.first_chunk());
        let count = bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        transaction.put(0u64.to_be_bytes(), (count + 1).to_le_bytes())
    })
}

/// How often two threads do the work in a second.
fn rate(work: impl Fn(u64, &mut u64) -> cambium::Result<()> + Sync) -> cambium::Result<f64> {
    let done = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let work = &work;
                scope.spawn(move || {
                    let (end, mut state, mut done) = (Instant::now() + ROUND, thread + 7, 0u64);
                    while Instant::now() < end {
                        work(thread, &mut state)?;
                        done += 1;
                    }
                    cambium::Result::Ok(done)
                })
            })
            .collect();
        let mut all = 0;
        for thread in threads {
            all += thread.join().expect("no thread panics")?;
        }
        cambium::Result::Ok(all)
    })?;
    Ok(done as f64 / ROUND.as_secs_f64())
}

fn main() -> cambium::Result<()> {
    let engine = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "forest".to_string());
    let folder = std::env::temp_dir().join(format!("cambium-rate-{}", std::process::id()));
    let mut options = Options::new();
    if engine == "zdb" {
        options = options.set("keys", "integer");
    }
    let options = options.durability(Durability::Buffered);
    let store = cambium::create(&folder, &engine, &options)?;
    let value = [7; 100];
    for number in 0..KEYS {
        store.put(number.to_be_bytes(), value)?;
    }
    let run = |work: Work| {
        rate(|thread, state| {
            let keys: [[u8; 8]; 4] = std::array::from_fn(|_| key(thread, state));
            work(&store, keys.each_ref().map(|key| &key[..]), &value)
        })
    };
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let (before, transactions) = (run(apart)?, run(together)?);
        println!("{before:.0} a second without, {transactions:.0} with transactions");
        ratios.push(transactions / before);
    }
    ratios.sort_by(f64::total_cmp);
    println!("{engine}: ratio {:.2}", ratios[ROUNDS / 2]);
    let counted = rate(|_, _| count_up(&store))?;
    println!("{engine}: two threads count one key up {counted:.0} times a second");
    store.close()?;
    // The program leaves nothing behind.
    _ = std::fs::remove_dir_all(&folder);
    Ok(())
}
