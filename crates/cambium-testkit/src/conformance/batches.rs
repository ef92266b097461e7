//! Batches, ranges, preconditions and sequence numbers.

use std::sync::Arc;

use cambium_api::{
    Durability, Error, KeyRange, Operation, Precondition, SequenceNumber, WriteBatch,
};

use super::{Bench, Case, OrFail, Outcome, Plain, expect, expect_contents, expect_error};

pub(super) const CASES: &[Case] = &[
    ("a batch does all it says, the last word wins", batch_order),
    ("an empty batch changes nothing", empty_batch),
    ("a refused batch does nothing at all", refused_batch),
    ("a large batch is whole", large_batch),
    ("delete_range takes what lies in the range", delete_range),
    (
        "ranges and puts of one batch keep their order",
        ranges_in_batches,
    ),
    ("write_if writes only if all holds", preconditions),
    (
        "sequence numbers grow and are not given twice",
        sequence_numbers,
    ),
    (
        "other namespaces are refused where there are none",
        namespaces,
    ),
];

fn batch_order(bench: &Bench) -> Outcome {
    bench.put(1, b"old")?;
    bench.put(2, b"old")?;
    let key = |number| bench.key(number);
    let mut batch = WriteBatch::new();
    batch.put(&key(1), b"first").put(&key(1), b"second");
    batch.delete(&key(2));
    batch.put(&key(3), b"gone").delete(&key(3));
    batch.delete(&key(4)).put(&key(4), b"stays");
    batch.put(&key(5), b"");
    bench
        .store
        .write(batch, Durability::Synced)
        .or_fail("write")?;
    let expected: Plain = [
        (key(1), b"second".to_vec()),
        (key(4), b"stays".to_vec()),
        (key(5), Vec::new()),
    ]
    .into_iter()
    .collect();
    expect_contents(&*bench.store, &expected)?;
    expect_contents(&*bench.reopened()?, &expected)
}

fn empty_batch(bench: &Bench) -> Outcome {
    let entries = bench.fill(3)?;
    let last = bench
        .store
        .put(&bench.key(0), b"value 0", Durability::Written)
        .or_fail("put")?;
    for durability in [Durability::Buffered, Durability::Synced] {
        let answered = bench
            .store
            .write(WriteBatch::new(), durability)
            .or_fail("write of nothing")?;
        expect("sequence number of an empty batch", answered, last)?;
    }
    expect_contents(&*bench.store, &entries)
}

fn refused_batch(bench: &Bench) -> Outcome {
    let entries = bench.fill(3)?;
    let mut batch = WriteBatch::new();
    batch.put(&bench.key(1), b"must not be seen");
    batch.put(&vec![0; 65_536], b"too long a key");
    let written = bench.store.write(batch, Durability::Written);
    expect_error("a batch with a bad key", written, |error| {
        matches!(error, Error::LimitExceeded(_) | Error::InvalidArgument(_))
    })?;
    expect_contents(&*bench.store, &entries)
}

fn large_batch(bench: &Bench) -> Outcome {
    let mut batch = WriteBatch::new();
    let mut expected = Plain::new();
    for number in 0..3_000 {
        let value = vec![number as u8; 200];
        batch.put(&bench.key(number), &value);
        expected.insert(bench.key(number), value);
    }
    bench
        .store
        .write(batch, Durability::Synced)
        .or_fail("write")?;
    expect_contents(&*bench.store, &expected)?;
    expect_contents(&*bench.reopened()?, &expected)
}

fn delete_range(bench: &Bench) -> Outcome {
    let mut entries = bench.fill(40)?;
    let ranges = [
        KeyRange::between(&bench.key(5), &bench.key(9)),
        KeyRange::between(&bench.key(9), &bench.key(5)),
        KeyRange::between(&bench.key(12), &bench.key(12)),
        KeyRange::between(&bench.key(35), &bench.key(1_000)),
        KeyRange {
            from: None,
            to: Some(bench.key(2)),
        },
        KeyRange {
            from: Some(bench.key(30)),
            to: None,
        },
    ];
    for range in ranges {
        let deleted = bench.store.delete_range(range.clone(), Durability::Written);
        if !bench.capabilities.ordered {
            return expect_error("delete_range without an order", deleted, is_unsupported);
        }
        deleted.or_fail("delete_range")?;
        entries.retain(|key, _| !range.contains(key));
        expect_contents(&*bench.store, &entries)?;
    }
    bench.put(6, b"again")?;
    entries.insert(bench.key(6), b"again".to_vec());
    let store = bench.reopened()?;
    expect_contents(&*store, &entries)?;
    store
        .delete_range(KeyRange::all(), Durability::Synced)
        .or_fail("delete_range of everything")?;
    expect_contents(&*store, &Plain::new())
}

pub(super) fn is_unsupported(error: &Error) -> bool {
    matches!(error, Error::Unsupported { .. })
}

fn ranges_in_batches(bench: &Bench) -> Outcome {
    if !bench.capabilities.ordered {
        return Ok(());
    }
    let mut entries = bench.fill(20)?;
    let mut batch = WriteBatch::new();
    batch.put(&bench.key(3), b"before the range");
    batch.delete_range(KeyRange::between(&bench.key(2), &bench.key(8)));
    batch.put(&bench.key(4), b"after the range");
    batch.put(&bench.key(100), b"outside");
    bench
        .store
        .write(batch, Durability::Written)
        .or_fail("write")?;
    for number in 2..8 {
        entries.remove(&bench.key(number));
    }
    entries.insert(bench.key(4), b"after the range".to_vec());
    entries.insert(bench.key(100), b"outside".to_vec());
    expect_contents(&*bench.store, &entries)?;
    expect_contents(&*bench.reopened()?, &entries)
}

fn preconditions(bench: &Bench) -> Outcome {
    let mut entries = bench.fill(3)?;
    let key = |number| bench.key(number);
    let equals = |number, value: &[u8]| Precondition::Equals {
        key: key(number),
        value: value.to_vec(),
    };
    let present = |number| Precondition::Present { key: key(number) };
    let absent = |number| Precondition::Absent { key: key(number) };
    let attempt = |conditions: &[Precondition], value: &[u8]| {
        let mut batch = WriteBatch::new();
        batch.put(&key(0), value);
        bench.store.write_if(conditions, batch, Durability::Written)
    };
    let refusals: [(&[Precondition], usize); 4] = [
        (&[equals(0, b"another")], 0),
        (&[present(0), absent(1)], 1),
        (&[absent(9), present(9)], 1),
        (&[equals(9, b"")], 0),
    ];
    for (conditions, failing) in refusals {
        expect_error(
            "write_if",
            attempt(conditions, b"no"),
            |error| matches!(error, Error::PreconditionFailed { index } if *index == failing),
        )?;
        expect_contents(&*bench.store, &entries)?;
    }
    let all = [equals(0, b"value 0"), present(1), absent(9)];
    attempt(&all, b"yes").or_fail("write_if")?;
    entries.insert(key(0), b"yes".to_vec());
    expect_contents(&*bench.store, &entries)?;
    attempt(&[], b"always").or_fail("write_if without conditions")?;
    entries.insert(key(0), b"always".to_vec());
    expect_contents(&*bench.reopened()?, &entries)
}

fn sequence_numbers(bench: &Bench) -> Outcome {
    let mut store = bench.store.clone();
    let mut last = SequenceNumber::ZERO;
    for round in 0..4 {
        for number in 0..20 {
            let key = bench.key(number);
            let given = store
                .put(&key, &[round], Durability::Written)
                .or_fail("put")?;
            if given <= last {
                return Err(format!("a put got {given} after {last}"));
            }
            last = given;
        }
        let mut batch = WriteBatch::new();
        batch.put(&bench.key(0), b"x").delete(&bench.key(1));
        let given = store.write(batch, Durability::Written).or_fail("write")?;
        if given <= last {
            return Err(format!("a batch got {given} after {last}"));
        }
        last = given;
        let snapshot = store.snapshot().or_fail("snapshot")?;
        expect("sequence number of a snapshot", snapshot.sequence(), last)?;
        drop(snapshot);
        store.close().or_fail("close")?;
        drop(store);
        store = bench.open().or_fail("open")?;
    }
    Ok(())
}

fn namespaces(bench: &Bench) -> Outcome {
    bench.store.namespace("").or_fail("the default namespace")?;
    if bench.capabilities.namespaces {
        return Ok(());
    }
    expect_error(
        "a namespace",
        bench.store.namespace("other"),
        is_unsupported,
    )?;
    let mut batch = WriteBatch::new();
    let operation = Operation::Delete { key: bench.key(1) };
    batch.push(Some(Arc::from("other")), operation);
    let written = bench.store.write(batch, Durability::Written);
    expect_error("a batch for a namespace", written, is_unsupported)?;
    if !bench.capabilities.named_snapshots {
        let named = bench.store.create_named_snapshot("keep");
        expect_error("a named snapshot", named, is_unsupported)?;
        expect_error("rollback", bench.store.rollback("keep"), is_unsupported)?;
    }
    Ok(())
}
