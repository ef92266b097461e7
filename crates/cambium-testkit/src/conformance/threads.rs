//! Readers and writers on real threads.
//!
//! Every value carries its key's number, the round that wrote it and a
//! checksum, so that a reader can tell a torn or foreign value on its own.
//! Each batch gives two keys the same round: whoever sees one must see both.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cambium_api::{CompactOptions, Durability, WriteBatch};
use cambium_base::checksum::crc32c;

use super::{Bench, Case, OrFail, Outcome, expect, expect_value};

pub(super) const CASES: &[Case] = &[
    (
        "readers see whole values and whole batches",
        readers_and_writers,
    ),
    ("writers do not lose each other's writes", many_writers),
    ("merges of several threads lose no operand", merges),
];

pub(super) const PAIRS: u64 = 8;
const WRITERS: u64 = 3;
const READERS: u64 = 3;
const ROUNDS: u64 = 300;

fn value(number: u64, round: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend_from_slice(&round.to_le_bytes());
    bytes.resize(16 + (round % 90) as usize, round as u8);
    let checksum = crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The round a value was written in, if it is one of this key.
fn round_of(number: u64, bytes: &[u8]) -> Result<u64, String> {
    let round = bytes.get(8..16).and_then(|field| field.try_into().ok());
    let round = round.map(u64::from_le_bytes).unwrap_or_default();
    if bytes == value(number, round) {
        return Ok(round);
    }
    Err(format!("key {number} has a value nobody wrote: {bytes:?}"))
}

/// Runs a closure on a thread; the first complaint stops everybody.
pub(super) fn guard(stop: &AtomicBool, run: impl FnOnce() -> Outcome) -> Outcome {
    let outcome = run();
    if outcome.is_err() {
        stop.store(true, Ordering::Release);
    }
    outcome
}

/// Writes batches of two keys for as long as nothing fails; `fill` makes the batch of a step,
/// of the round, and of the pair whose first key is given.
pub(super) fn write_pairs(
    bench: &Bench,
    stop: &AtomicBool,
    (writer, rounds): (u64, &AtomicU64),
    steps: u64,
    fill: impl Fn(u64, u64, u64) -> WriteBatch,
) -> Outcome {
    for step in 0..steps {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let round = rounds.fetch_add(1, Ordering::Relaxed) + 1;
        let batch = fill(step, round, 2 * ((writer + step) % PAIRS));
        let durability = match step % 16 {
            0 => Durability::Synced,
            1..=8 => Durability::Written,
            _ => Durability::Buffered,
        };
        bench.store.write(batch, durability).or_fail("write")?;
        if step % 100 == 50 {
            let options = CompactOptions::default();
            bench.store.compact(&options, &()).or_fail("compact")?;
        }
        bench.store.step(1 << 16).or_fail("step")?;
    }
    Ok(())
}

/// Both keys get values of the round.
fn put_pairs(bench: &Bench, stop: &AtomicBool, rounds: &AtomicU64, writer: u64) -> Outcome {
    write_pairs(bench, stop, (writer, rounds), ROUNDS, |_, round, first| {
        let mut batch = WriteBatch::new();
        batch.put(&bench.key(first), &value(first, round));
        batch.put(&bench.key(first + 1), &value(first + 1, round));
        batch
    })
}

fn read_pairs(bench: &Bench, stop: &AtomicBool, reader: u64) -> Outcome {
    let mut step = reader;
    let mut newest = vec![0; PAIRS as usize];
    while !stop.load(Ordering::Acquire) {
        step += 1;
        let first = 2 * (step % PAIRS);
        let keys = [bench.key(first), bench.key(first + 1)];
        let slices = [keys[0].as_slice(), keys[1].as_slice()];
        let pair = if step % 3 == 0 {
            let snapshot = bench.store.snapshot().or_fail("snapshot")?;
            let one = snapshot.get(slices[0]).or_fail("get")?;
            vec![one, snapshot.get(slices[1]).or_fail("get")?]
        } else {
            bench.store.multi_get(&slices).or_fail("multi_get")?
        };
        match (&pair[0], &pair[1]) {
            (None, None) => {}
            (Some(one), Some(other)) => {
                let round = round_of(first, one)?;
                if round != round_of(first + 1, other)? {
                    return Err(format!("half a batch was seen at key {first}"));
                }
                newest[(step % PAIRS) as usize] = round;
            }
            _ => return Err(format!("only one key of a batch was seen at {first}")),
        }
        if newest[(step % PAIRS) as usize] > 0 && pair[0].is_none() {
            return Err(format!("key {first} went away, and nobody deletes"));
        }
    }
    Ok(())
}

fn readers_and_writers(bench: &Bench) -> Outcome {
    let stop = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let (stop, rounds) = (&stop, &rounds);
        let readers: Vec<_> = (0..READERS)
            .map(|reader| scope.spawn(move || guard(stop, || read_pairs(bench, stop, reader))))
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || guard(stop, || put_pairs(bench, stop, rounds, writer)))
            })
            .collect();
        let mut outcomes: Vec<_> = writers.into_iter().map(|thread| thread.join()).collect();
        stop.store(true, Ordering::Release);
        outcomes.extend(readers.into_iter().map(|thread| thread.join()));
        let panicked = |_| Err("a thread panicked".to_string());
        outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or_else(panicked))
            .collect()
    });
    outcomes.into_iter().collect()
}

fn many_writers(bench: &Bench) -> Outcome {
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|writer| {
                scope.spawn(move || {
                    for step in 0..200 {
                        let number = writer * 200 + step;
                        let durability = if step % 20 == 0 {
                            Durability::Synced
                        } else {
                            Durability::Written
                        };
                        bench
                            .store
                            .put(&bench.key(number), &value(number, step + 1), durability)
                            .or_fail("put")?;
                    }
                    Ok(())
                })
            })
            .collect();
        let panicked = |_| Err("a thread panicked".to_string());
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked))
            .collect()
    });
    outcomes.into_iter().collect::<Outcome>()?;
    let store = bench.reopened()?;
    for number in 0..800 {
        let expected = value(number, number % 200 + 1);
        super::expect_value(&*store, &bench.key(number), Some(&expected))?;
    }
    Ok(())
}

/// Threads that merge.
const MERGING: u64 = 3;
const MERGES: i64 = 60;

fn merges(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let (counter, log) = (bench.key(0), bench.key(1));
    let act = |thread: u64| -> Outcome {
        for _ in 0..MERGES {
            let mut batch = WriteBatch::new();
            batch
                .merge("add", &counter, 1i64.to_le_bytes())
                .merge("append", &log, [b'a' + thread as u8])
                .merge("add", &counter, 1i64.to_le_bytes());
            let written = bench.store.write(batch, Durability::Buffered);
            written.or_fail("a batch with merges")?;
            let minus_one = (-1i64).to_le_bytes();
            let merged = bench
                .store
                .merge("add", &counter, &minus_one, Durability::Buffered);
            merged.or_fail("merge")?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = (0..MERGING)
            .map(|thread| scope.spawn(move || act(thread)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err("a thread panicked".to_string()))
        })
    })?;
    let all = MERGING as i64 * MERGES;
    expect_value(&*bench.store, &counter, Some(&all.to_le_bytes()))?;
    let log = bench
        .store
        .get(&log)
        .or_fail("get")?
        .ok_or("the operands are gone")?;
    for thread in 0..MERGING {
        let letter = b'a' + thread as u8;
        let count = log.iter().filter(|&&byte| byte == letter).count();
        expect("operands of a thread", count as i64, MERGES)?;
    }
    Ok(())
}
