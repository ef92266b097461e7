//! Compression of values, in a store that has the value layer.

use std::sync::Arc;

use cambium_api::{Durability, Engine, Error, OptionValues};
use cambium_io::simulated::Generator;
use cambium_storage::compression::Compression;

use super::{
    Bench, Case, OrFail, Outcome, Plain, expect, expect_contents, expect_error, expect_value,
};
use crate::holding::collect;
use crate::mutation::{mutated, random};

pub(super) const CASES: &[Case] = &[
    (
        "values stay readable when the compression changes",
        changed_between_openings,
    ),
    (
        "values that compression does not make smaller come back",
        incompressible,
    ),
    (
        "a stored value that cannot be decompressed is reported, and others are read",
        damaged_values,
    ),
    (
        "stored bytes of any kind are a value or reported",
        any_stored_bytes,
    ),
];

fn options(bench: &Bench, compression: &str) -> OptionValues {
    let mut options = bench.subject().open_options().clone();
    options.set("compression", compression);
    options
}

fn open(bench: &Bench, compression: &str) -> Result<Arc<dyn Engine>, String> {
    let options = options(bench, compression);
    let opened = bench
        .subject()
        .kind()
        .open(&bench.environment, bench.path(), &options, &());
    opened.or_fail("open")
}

/// The same store without the layer, which shows what is stored; `None` if there is no layer.
fn open_below(bench: &Bench) -> Result<Option<Arc<dyn Engine>>, String> {
    let Some(below) = bench.subject().below else {
        return Ok(None);
    };
    let mut options = OptionValues::default();
    for (name, value) in bench.subject().open_options().iter() {
        if below.options().iter().any(|option| option.name == name) {
            options.set(name, value);
        }
    }
    let opened = below.open(&bench.environment, bench.path(), &options, &());
    opened.or_fail("open without the layer").map(Some)
}

/// Names of what this program was built with.
fn compressions() -> Vec<&'static str> {
    let mut names = vec!["none", "lz4", "zstd"];
    names.retain(|name| Compression::parse(name).is_ok());
    names
}

/// Values that become smaller, around the least and the largest lengths that are tried.
fn compressible(round: u64) -> Vec<Vec<u8>> {
    let sizes = [31, 32, 33, 100, 1_000, 5_000, 70_000, 1 << 20];
    let text = format!("leaf {round} and root, ");
    let value = |size: usize| text.bytes().cycle().take(size).collect();
    sizes.into_iter().map(value).collect()
}

fn changed_between_openings(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    bench.store.close().or_fail("close")?;
    let mut expected = Plain::new();
    let names = compressions();
    let mut number = 0;
    // Each opening writes new values, and overwrites some of the one before.
    for round in 0..2 * names.len() as u64 {
        let store = open(bench, names[round as usize % names.len()])?;
        expect_contents(&*store, &expected)?;
        for value in compressible(round) {
            let key = bench.key(number);
            let put = store.put(&key, &value, Durability::Written);
            put.or_fail("put")?;
            expect_value(&*store, &key, Some(&value))?;
            expected.insert(key, value);
            number += 1;
        }
        number -= 3;
        expect_contents(&*store, &expected)?;
        store.sync().or_fail("sync")?;
        for (key, value) in &expected {
            expect_value(&*store, key, Some(value))?;
        }
        store.close().or_fail("close")?;
    }
    for name in names {
        let store = open(bench, name)?;
        expect_contents(&*store, &expected)?;
        let snapshot = store.snapshot().or_fail("snapshot")?;
        for (key, value) in &expected {
            expect_value(&*snapshot, key, Some(value))?;
        }
        drop(snapshot);
        store.close().or_fail("close")?;
    }
    Ok(())
}

fn incompressible(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    bench.store.close().or_fail("close")?;
    let mut generator = Generator::new(5);
    let mut values: Vec<Vec<u8>> = (0..=255u8).map(|last| vec![b'v', last]).collect();
    for size in [0, 1, 31, 32, 33, 500, 70_000] {
        // Ended by each of the tags, too.
        for last in [0, 0xf0, 0xf1, 0xf2, 0xf3, 0xf7, 0xff] {
            let mut value: Vec<u8> = (0..size).map(|_| generator.below(256) as u8).collect();
            value.push(last);
            values.push(value);
        }
    }
    for name in compressions() {
        let store = open(bench, name)?;
        let mut expected = Plain::new();
        for (number, value) in values.iter().enumerate() {
            let key = bench.key(number as u64);
            let put = store.put(&key, value, Durability::Written);
            put.or_fail("put")?;
            expected.insert(key, value.clone());
        }
        for (key, value) in &expected {
            expect_value(&*store, key, Some(value))?;
        }
        expect_contents(&*store, &expected)?;
        store.close().or_fail("close")?;
        let store = open(bench, "none")?;
        expect_contents(&*store, &expected)?;
        store.close().or_fail("close")?;
    }
    Ok(())
}

/// The stored form of a value that LZ4 compresses.
fn stored_by_lz4(bench: &Bench, value: &[u8]) -> Result<Vec<u8>, String> {
    bench.store.close().or_fail("close")?;
    let store = open(bench, "lz4")?;
    let key = bench.key(0);
    let put = store.put(&key, value, Durability::Synced);
    put.or_fail("put")?;
    store.close().or_fail("close")?;
    let store = open_below(bench)?.ok_or("a bench without the layer")?;
    let stored = store.get(&key).or_fail("get")?.ok_or("the value is gone")?;
    store.close().or_fail("close")?;
    expect(
        "a stored value is compressed",
        stored.len() < value.len() / 2,
        true,
    )?;
    Ok(stored.to_vec())
}

/// Stores bytes below the layer, and opens the store with it.
fn with_stored(bench: &Bench, stored: &[Vec<u8>]) -> Result<Arc<dyn Engine>, String> {
    let store = open_below(bench)?.ok_or("a bench without the layer")?;
    for (number, bytes) in stored.iter().enumerate() {
        let key = bench.key(1 + number as u64);
        let put = store.put(&key, bytes, Durability::Written);
        put.or_fail("put below the layer")?;
    }
    store.close().or_fail("close")?;
    bench.open().or_fail("open")
}

/// Every call that reads a key answers an error of this kind.
fn expect_reported(store: &dyn Engine, key: &[u8], is_right: &dyn Fn(&Error) -> bool) -> Outcome {
    expect_error("get", store.get(key), is_right)?;
    expect_error("get_into", store.get_into(key, &mut Vec::new()), is_right)?;
    expect_error("multi_get", store.multi_get(&[key]), is_right)?;
    let merged = store.merge("append", key, b"more", Durability::Written);
    expect_error("merge", merged, is_right)?;
    let snapshot = store.snapshot().or_fail("snapshot")?;
    expect_error("get of a snapshot", snapshot.get(key), is_right)
}

fn damaged_values(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let value = b"leaf and root, ".repeat(100);
    let good = stored_by_lz4(bench, &value)?;
    let (body, tag) = (&good[..good.len() - 1], good[good.len() - 1]);
    let with_length = |length: u32| [&length.to_le_bytes()[..], &good[4..]].concat();
    let with_tag = |body: &[u8], tag: u8| [body, &[tag]].concat();
    let length = value.len() as u32;
    let damaged = [
        with_length(length + 1),
        with_length(length - 1),
        with_length(0),
        with_length(u32::MAX),
        with_tag(&body[..body.len() - 1], tag),
        with_tag(&body[..4], tag),
        with_tag(&body[..3], tag),
        with_tag(b"", tag),
        // The moment is missing, or is a part of the body.
        with_tag(b"1234567", 0xf4),
        with_tag(b"12345678", tag | 0x04),
        // By a dictionary that the store does not have.
        with_tag(body, 0xf3),
    ];
    let store = with_stored(bench, &damaged)?;
    let without_zstd = Compression::Zstd.check_is_built().is_err();
    let is_reported = |error: &Error| {
        error.is_corruption() || (without_zstd && matches!(error, Error::Unsupported { .. }))
    };
    for number in 1..=damaged.len() as u64 {
        expect_reported(&*store, &bench.key(number), &is_reported)
            .map_err(|what| format!("damaged value {number}: {what}"))?;
    }
    expect_value(&*store, &bench.key(0), Some(&value))?;
    expect_error("a pass over damaged values", collect(&*store), is_reported)?;
    // They can be overwritten and deleted.
    for number in 1..=damaged.len() as u64 {
        let key = bench.key(number);
        let done = match number % 2 {
            0 => store.put(&key, b"again", Durability::Written),
            _ => store.delete(&key, Durability::Written),
        };
        done.or_fail("a write over a damaged value")?;
        let expected = (number % 2 == 0).then_some(&b"again"[..]);
        expect_value(&*store, &key, expected)?;
    }
    Ok(())
}

fn any_stored_bytes(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let good = stored_by_lz4(bench, &b"leaf and root, ".repeat(100))?;
    let mut generator = Generator::new(11);
    let mut stored = Vec::new();
    for number in 0..300u64 {
        let mut bytes = match number % 3 {
            0 => random(&mut generator, 40),
            _ => mutated(&mut generator, &good),
        };
        if number % 2 == 0 {
            bytes.push(0xf0 + generator.below(8) as u8);
        }
        stored.push(bytes);
    }
    let store = with_stored(bench, &stored)?;
    for number in 1..=stored.len() as u64 {
        match store.get(&bench.key(number)) {
            Ok(_) | Err(Error::Unsupported { .. }) => {}
            Err(error) if error.is_corruption() => {}
            Err(error) => return Err(format!("get answers another error: {error}")),
        }
    }
    Ok(())
}
