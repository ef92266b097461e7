//! Merges, in a store that has the value layer.

use std::sync::Arc;
use std::time::Duration;

use cambium_api::{
    Durability, Engine, Error, Expiry, MergeOperator, Operation, Precondition, Result, Special,
    WriteBatch,
};

use super::{
    Bench, Case, OrFail, Outcome, Plain, expect, expect_contents, expect_error, expect_value,
};

pub(super) const CASES: &[Case] = &[
    (
        "merges make the next value of the current one",
        next_of_current,
    ),
    (
        "a merge that fails changes nothing, nor does its batch",
        failed_merges,
    ),
    (
        "merges of a batch see what comes before them",
        within_batches,
    ),
    ("merges keep to their namespace", namespaces),
    ("a merge keeps the moment of its entry", moments),
    (
        "an operator that is not registered again is missed by merges alone",
        own_operators,
    ),
];

fn number(number: i64) -> [u8; 8] {
    number.to_le_bytes()
}

fn merge(store: &dyn Engine, operator: &str, key: &[u8], operand: &[u8]) -> Outcome {
    let merged = store.merge(operator, key, operand, Durability::Written);
    merged.or_fail("merge").map(|_| ())
}

fn next_of_current(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let store = &*bench.store;
    let keys: Vec<_> = (0..4).map(|number| bench.key(number)).collect();
    // The last byte of some sums is one that the layer escapes.
    let mut sum = 0;
    for operand in [5, -7, 0xf3 << 56, 1 << 40] {
        sum += operand;
        merge(store, "add", &keys[0], &number(operand))?;
        expect_value(store, &keys[0], Some(&number(sum)))?;
    }
    let mut text = Vec::new();
    for operand in [&b"leaf"[..], b"", b" and ", &[0xf4], &b"root, ".repeat(300)] {
        text.extend_from_slice(operand);
        merge(store, "append", &keys[1], operand)?;
        expect_value(store, &keys[1], Some(&text))?;
    }
    for (operand, greatest) in [("elm", "elm"), ("ash", "elm"), ("oak", "oak"), ("", "oak")] {
        merge(store, "maximum", &keys[2], operand.as_bytes())?;
        expect_value(store, &keys[2], Some(greatest.as_bytes()))?;
    }
    // A deleted key is one that was never there.
    bench.put(3, b"no number")?;
    let deleted = store.delete(&keys[3], Durability::Written);
    deleted.or_fail("delete")?;
    merge(store, "add", &keys[3], &number(1))?;
    let values = [
        number(sum).to_vec(),
        text,
        b"oak".to_vec(),
        number(1).to_vec(),
    ];
    let expected: Plain = keys.into_iter().zip(values).collect();
    expect_contents(store, &expected)?;
    expect_contents(&*bench.reopened()?, &expected)
}

fn failed_merges(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let store = &*bench.store;
    let expected = bench.fill(3)?;
    let (text, new) = (bench.key(1), bench.key(7));
    let is_invalid = |error: &Error| matches!(error, Error::InvalidArgument(_));
    let merged = |operator, key: &[u8], operand: &[u8]| {
        store.merge(operator, key, operand, Durability::Written)
    };
    expect_error(
        "add to a text",
        merged("add", &text, &number(1)),
        is_invalid,
    )?;
    expect_error("add of a text", merged("add", &new, b"oak"), is_invalid)?;
    expect_error(
        "an unknown operator",
        merged("longest", &text, b"oak"),
        |error| {
            let said = error.to_string();
            is_invalid(error)
                && said.contains("\"longest\"")
                && said.contains("add, append, maximum")
        },
    )?;
    let mut batch = WriteBatch::new();
    batch
        .put(bench.key(0), "lost")
        .merge("append", &new, "lost")
        .merge("add", &text, number(1));
    let done = store.write(batch, Durability::Written);
    expect_error("a batch with a merge that fails", done, is_invalid)?;
    let mut batch = WriteBatch::new();
    batch.merge("append", &text, "lost");
    let absent = [Precondition::Absent { key: text }];
    let done = store.write_if(&absent, batch, Durability::Written);
    expect_error("a merge whose precondition fails", done, |error| {
        matches!(error, Error::PreconditionFailed { index: 0 })
    })?;
    expect_contents(store, &expected)
}

fn within_batches(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let keys: Vec<_> = (0..4).map(|number| bench.key(number)).collect();
    for key in 0..3 {
        bench.put(key, b"before ")?;
    }
    let mut batch = WriteBatch::new();
    batch
        .merge("append", &keys[0], "one ")
        .merge("append", &keys[0], "two")
        .put(&keys[1], "put ")
        .merge("append", &keys[1], "one")
        .delete(&keys[2])
        .merge("append", &keys[2], "one ")
        .merge("append", &keys[2], "two")
        .merge("append", &keys[3], "lost")
        .delete(&keys[3]);
    let values = ["before one two", "put one", "one two"];
    let mut expected: Plain = keys.iter().cloned().zip(values.map(Into::into)).collect();
    if bench.capabilities.ordered {
        let key = bench.key(4);
        bench.put(4, b"before ")?;
        let range = cambium_api::KeyRange::between(&key, &bench.key(5));
        batch.delete_range(range).merge("append", &key, "behind");
        expected.insert(key, b"behind".to_vec());
    }
    let written = bench.store.write(batch, Durability::Synced);
    written.or_fail("a batch with merges")?;
    expect_contents(&*bench.store, &expected)?;
    expect_contents(&*bench.reopened()?, &expected)
}

fn namespaces(bench: &Bench) -> Outcome {
    if !bench.has_layer() || !bench.capabilities.namespaces {
        return Ok(());
    }
    let store = &bench.store;
    let trees = store.namespace("trees").or_fail("namespace")?;
    let key = bench.key(1);
    bench.put(1, b"default ")?;
    merge(&*trees, "append", &key, b"one ")?;
    let mut batch = WriteBatch::new();
    batch.merge("append", &key, "one");
    for value in [b"two ", b"end "] {
        let (key, value) = (key.clone(), value.to_vec());
        batch.push(Some("trees".into()), Operation::Put { key, value });
        batch.make_special(Special::Merge("append".into()));
    }
    store.write(batch, Durability::Written).or_fail("write")?;
    expect_value(&**store, &key, Some(b"default one"))?;
    expect_value(&*trees, &key, Some(b"one two end "))?;
    let store = bench.reopened()?;
    expect_value(&*store, &key, Some(b"default one"))?;
    let trees = store.namespace("trees").or_fail("namespace")?;
    expect_value(&*trees, &key, Some(b"one two end "))
}

fn moments(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let store = &*bench.store;
    let second = Duration::from_secs(1);
    let keys: Vec<_> = (0..3).map(|number| bench.key(number)).collect();
    for key in &keys[..2] {
        let soon = Expiry::After(second);
        let put = store.put_expiring(key, b"1", soon, Durability::Written);
        put.or_fail("an expiring put")?;
    }
    let moment = store.expires_at(&keys[0]).or_fail("expires_at")?;
    bench.environment.clock.sleep(second / 2);
    merge(store, "append", &keys[0], b"2")?;
    expect_value(store, &keys[0], Some(b"12"))?;
    let after = store.expires_at(&keys[0]).or_fail("expires_at")?;
    expect("the moment after a merge", after, moment)?;
    let mut batch = WriteBatch::new();
    batch
        .put_expiring(&keys[2], "1", Expiry::After(second * 100))
        .merge("append", &keys[2], "2");
    store.write(batch, Durability::Written).or_fail("write")?;
    bench.environment.clock.sleep(second / 2);
    let twelve = Plain::from([(keys[2].clone(), b"12".to_vec())]);
    expect_contents(store, &twelve)?;
    // An expired entry is no current value, and gives its moment to nobody.
    for key in &keys[..2] {
        merge(store, "append", key, b"3")?;
        let moment = store.expires_at(key).or_fail("expires_at")?;
        expect("the moment of a merge into an expired entry", moment, None)?;
    }
    bench.environment.clock.sleep(second * 100);
    let three = |key: &Vec<u8>| (key.clone(), b"3".to_vec());
    let expected: Plain = keys[..2].iter().map(three).collect();
    expect_contents(store, &expected)?;
    expect_contents(&*bench.reopened()?, &expected)
}

struct Longest;

impl MergeOperator for Longest {
    fn name(&self) -> &str {
        "longest"
    }

    fn merge(&self, _: &[u8], current: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>> {
        let current = current.unwrap_or_default();
        let is_longer = operand.len() > current.len();
        Ok(if is_longer { operand } else { current }.to_vec())
    }
}

fn own_operators(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let registered = bench.store.register_operator(Arc::new(Longest));
    registered.or_fail("register_operator")?;
    let (key, other) = (bench.key(1), bench.key(2));
    for operand in [&b"oak"[..], b"maple", b"elm"] {
        merge(&*bench.store, "longest", &key, operand)?;
    }
    // The store holds the value: the next opening needs the operator for merges alone.
    let store = bench.reopened()?;
    let maple = Plain::from([(key.clone(), b"maple".to_vec())]);
    expect_contents(&*store, &maple)?;
    let merged = store.merge("longest", &key, b"cypress", Durability::Written);
    expect_error("a merge by an operator that is gone", merged, |error| {
        let is_invalid = matches!(error, Error::InvalidArgument(_));
        is_invalid
            && error
                .to_string()
                .contains("merge operator \"longest\" is not registered")
    })?;
    expect_contents(&*store, &maple)?;
    merge(&*store, "append", &key, b"s")?;
    merge(&*store, "add", &other, &number(1))?;
    let registered = store.register_operator(Arc::new(Longest));
    registered.or_fail("register_operator")?;
    merge(&*store, "longest", &key, b"cypress")?;
    let entries = [(key, b"cypress".to_vec()), (other, number(1).to_vec())];
    expect_contents(&*store, &Plain::from(entries))
}
