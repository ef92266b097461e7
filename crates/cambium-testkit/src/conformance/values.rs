//! Single keys: sizes, overwriting, deleting, asking for several.

use cambium_api::{Durability, Error, KeyKind, limits};

use super::{Bench, Case, OrFail, Outcome, expect, expect_contents, expect_error, expect_value};

pub(super) const CASES: &[Case] = &[
    ("awkward keys are keys", awkward_keys),
    ("keys beyond the limit are refused", long_keys),
    ("integer keys have eight bytes", integer_keys),
    ("values of every size come back", value_sizes),
    ("the last write of a key wins", overwriting),
    ("many keys keep their own values", many_keys),
    ("several gets answer in order", several_gets),
    ("every durability can be read at once", durabilities),
];

fn awkward_keys(bench: &Bench) -> Outcome {
    if bench.capabilities.keys != KeyKind::Bytes {
        return Ok(());
    }
    let longest = vec![b'x'; limits::MAX_KEY_BYTES];
    let mut almost = longest.clone();
    almost.pop();
    let keys: [&[u8]; 10] = [
        b"",
        b"\0",
        b"\0\0",
        b"\xff",
        b"\xff\xff",
        b"a",
        b"a\0",
        b"a\0b",
        &longest,
        &almost,
    ];
    let mut expected = super::Plain::new();
    for (number, key) in keys.iter().enumerate() {
        expect_value(&*bench.store, key, None)?;
        let value = format!("value {number}").into_bytes();
        bench
            .store
            .put(key, &value, Durability::Written)
            .or_fail("put of an awkward key")?;
        expected.insert(key.to_vec(), value);
    }
    for (key, value) in &expected {
        expect_value(&*bench.store, key, Some(value))?;
    }
    expect_contents(&*bench.store, &expected)?;
    bench
        .store
        .delete(b"", Durability::Synced)
        .or_fail("delete of the empty key")?;
    expected.remove(&b""[..]);
    expect_contents(&*bench.reopened()?, &expected)
}

fn long_keys(bench: &Bench) -> Outcome {
    if bench.capabilities.keys != KeyKind::Bytes {
        return Ok(());
    }
    let key = vec![1; limits::MAX_KEY_BYTES + 1];
    let is_limit = |error: &Error| matches!(error, Error::LimitExceeded(_));
    let put = bench.store.put(&key, b"", Durability::Buffered);
    expect_error("put of a key that is too long", put, is_limit)?;
    let delete = bench.store.delete(&key, Durability::Buffered);
    expect_error("delete of a key that is too long", delete, is_limit)?;
    bench.put(1, b"after a refused write")?;
    expect_value(&*bench.store, &bench.key(1), Some(b"after a refused write"))
}

fn integer_keys(bench: &Bench) -> Outcome {
    if bench.capabilities.keys != KeyKind::Integer {
        return Ok(());
    }
    for key in [&b""[..], b"1234567", b"123456789"] {
        let put = bench.store.put(key, b"v", Durability::Written);
        expect_error("put of a key that is no integer", put, |error| {
            matches!(error, Error::InvalidArgument(_) | Error::LimitExceeded(_))
        })?;
    }
    expect_contents(&*bench.store, &super::Plain::new())
}

/// Bytes that no other position or length repeats soon.
fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 31 + length + at / 251) as u8)
        .collect()
}

fn value_sizes(bench: &Bench) -> Outcome {
    let sizes = [
        0,
        1,
        22,
        23,
        255,
        256,
        511,
        512,
        513,
        4_095,
        4_096,
        4_097,
        65_535,
        65_536,
        65_537,
        1 << 20,
    ];
    let mut expected = super::Plain::new();
    for (number, size) in sizes.into_iter().enumerate() {
        let value = pattern(size);
        bench.put(number as u64, &value)?;
        expect_value(&*bench.store, &bench.key(number as u64), Some(&value))?;
        expected.insert(bench.key(number as u64), value);
    }
    expect_contents(&*bench.store, &expected)?;
    bench.store.sync().or_fail("sync")?;
    expect_contents(&*bench.reopened()?, &expected)
}

fn overwriting(bench: &Bench) -> Outcome {
    let key = bench.key(7);
    let store = &*bench.store;
    expect_value(store, &key, None)?;
    store
        .delete(&key, Durability::Written)
        .or_fail("delete of a key that is not there")?;
    for round in 0..5u8 {
        let value = vec![round; 10 * usize::from(round)];
        store
            .put(&key, &value, Durability::Written)
            .or_fail("put")?;
        expect_value(store, &key, Some(&value))?;
    }
    store.delete(&key, Durability::Written).or_fail("delete")?;
    expect_value(store, &key, None)?;
    store
        .put(&key, b"again", Durability::Written)
        .or_fail("put")?;
    expect_value(store, &key, Some(b"again"))?;
    let only = [(key.clone(), b"again".to_vec())].into_iter().collect();
    expect_contents(store, &only)?;
    expect_contents(&*bench.reopened()?, &only)
}

fn many_keys(bench: &Bench) -> Outcome {
    let mut expected = bench.fill(2_000)?;
    for number in (0..2_000).step_by(3) {
        let key = bench.key(number);
        bench
            .store
            .delete(&key, Durability::Written)
            .or_fail("delete")?;
        expected.remove(&key);
    }
    expect_contents(&*bench.store, &expected)?;
    bench.settle()?;
    expect_contents(&*bench.store, &expected)?;
    expect_contents(&*bench.reopened()?, &expected)
}

fn several_gets(bench: &Bench) -> Outcome {
    bench.fill(50)?;
    let numbers = [49, 3, 3, 1_000, 0, 49, 25];
    let keys: Vec<Vec<u8>> = numbers.iter().map(|&number| bench.key(number)).collect();
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let found = bench.store.multi_get(&slices).or_fail("multi_get")?;
    let expected: Vec<Option<Vec<u8>>> = numbers
        .iter()
        .map(|&number| (number < 50).then(|| format!("value {number}").into_bytes()))
        .collect();
    let found: Vec<Option<Vec<u8>>> = found
        .into_iter()
        .map(|value| value.map(|value| value.to_vec()))
        .collect();
    expect("multi_get", found, expected)?;
    let none = bench.store.multi_get(&[]).or_fail("multi_get of nothing")?;
    expect("multi_get of nothing", none.len(), 0)
}

fn durabilities(bench: &Bench) -> Outcome {
    let all = [
        Durability::Buffered,
        Durability::Written,
        Durability::Synced,
    ];
    for (number, durability) in all.into_iter().enumerate() {
        let key = bench.key(number as u64);
        bench.store.put(&key, b"here", durability).or_fail("put")?;
        expect_value(&*bench.store, &key, Some(b"here"))?;
    }
    // Closing raises even what was only buffered.
    let store = bench.reopened()?;
    for number in 0..3 {
        expect_value(&*store, &bench.key(number), Some(b"here"))?;
    }
    Ok(())
}
