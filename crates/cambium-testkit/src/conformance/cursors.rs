//! Scans, passes over everything, resume tokens, snapshots and isolation.

use cambium_api::{
    CompactOptions, Cursor, Direction, Durability, Error, IterationOrder, KeyRange, Reader,
    ResumeToken,
};

use super::batches::is_unsupported;
use super::{
    Bench, Case, OrFail, Outcome, Plain, expect, expect_contents, expect_entries, expect_error,
};
use crate::walking::{visit_some, walk};

pub(super) const CASES: &[Case] = &[
    ("scans keep to their bounds, both ways", scan_bounds),
    ("an engine without an order says so", no_order),
    ("a cursor can be sent elsewhere", seeking),
    ("prefixes of all ones are found", prefixes),
    ("a pass can be resumed anywhere", resuming),
    ("insertion order is the order of writes", insertion_order),
    ("a foreign resume token is refused", foreign_tokens),
    ("a snapshot stays as it was", snapshots),
    ("a cursor stays as it was", cursors),
    ("many snapshots see their own moments", many_snapshots),
];

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn drain(mut cursor: Box<dyn Cursor>) -> Result<Pairs, String> {
    let mut pairs = Pairs::new();
    walk(&mut *cursor, |key, value| {
        pairs.push((key.to_vec(), value.to_vec()))
    })
    .or_fail("walk")?;
    Ok(pairs)
}

fn expected_scan(entries: &Plain, range: &KeyRange, direction: Direction) -> Pairs {
    let inside = entries.iter().filter(|(key, _)| range.contains(key));
    let mut pairs: Pairs = inside
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if direction == Direction::Reverse {
        pairs.reverse();
    }
    pairs
}

fn expect_scan(reader: &dyn Reader, entries: &Plain, range: &KeyRange) -> Outcome {
    for direction in [Direction::Forward, Direction::Reverse] {
        let found = drain(reader.scan(range, direction).or_fail("scan")?)?;
        let wanted = expected_scan(entries, range, direction);
        expect_keys(reader.scan(range, direction).or_fail("scan")?, &wanted)?;
        expect(&format!("scan {direction:?} of {range:?}"), found, wanted)?;
    }
    Ok(())
}

/// Reads keys alone, and each third one with its value.
fn expect_keys(mut cursor: Box<dyn Cursor>, wanted: &Pairs) -> Outcome {
    for (at, (key, value)) in wanted.iter().enumerate() {
        let found = match at % 3 {
            2 => cursor.next().or_fail("next")?.map(|entry| {
                let is_same = entry.value == value[..];
                (entry.key, is_same)
            }),
            _ => cursor
                .next_key()
                .or_fail("next_key")?
                .map(|key| (key, true)),
        };
        let found = found.map(|(key, is_same)| (key.to_vec(), is_same));
        expect(
            "a key, and whether its value is right",
            found,
            Some((key.clone(), true)),
        )?;
    }
    expect(
        "the end of keys",
        cursor.next_key().or_fail("next_key")?,
        None,
    )
}

fn scan_bounds(bench: &Bench) -> Outcome {
    if !bench.capabilities.ordered {
        return Ok(());
    }
    let mut entries = bench.fill(60)?;
    for number in (0..60).step_by(4) {
        let key = bench.key(number);
        bench
            .store
            .delete(&key, Durability::Written)
            .or_fail("delete")?;
        entries.remove(&key);
    }
    let mut longer = bench.key(7);
    longer.push(0);
    let bounds = [
        None,
        Some(0),
        Some(4),
        Some(5),
        Some(31),
        Some(59),
        Some(500),
    ];
    for from in bounds {
        for to in bounds {
            let range = KeyRange {
                from: from.map(|number| bench.key(number)),
                to: to.map(|number| bench.key(number)),
            };
            expect_scan(&*bench.store, &entries, &range)?;
        }
    }
    for range in [
        KeyRange::all(),
        KeyRange::prefix(b""),
        KeyRange::between(&longer, &bench.key(12)),
        KeyRange::between(&bench.key(3), &longer),
        KeyRange::prefix(&bench.key(7)[..6]),
        KeyRange::prefix(&bench.key(7)),
    ] {
        expect_scan(&*bench.store, &entries, &range)?;
    }
    let store = bench.reopened()?;
    expect_scan(&*store, &entries, &KeyRange::all())
}

fn no_order(bench: &Bench) -> Outcome {
    if bench.capabilities.ordered {
        return Ok(());
    }
    let entries = bench.fill(10)?;
    let scan = bench.store.scan(&KeyRange::all(), Direction::Forward);
    expect_error("scan", scan, is_unsupported)?;
    let by_key = bench.store.iterate(IterationOrder::Key, None);
    expect_error("iterate by key", by_key, is_unsupported)?;
    expect_contents(&*bench.store, &entries)
}

fn seeking(bench: &Bench) -> Outcome {
    if !bench.capabilities.ordered {
        return Ok(());
    }
    bench.fill(30)?;
    let range = KeyRange::all();
    for (direction, target, wanted) in [
        (Direction::Forward, 12, Some(12)),
        (Direction::Forward, 3, Some(3)),
        (Direction::Forward, 400, None),
        (Direction::Reverse, 12, Some(12)),
        (Direction::Reverse, 400, Some(29)),
    ] {
        let mut cursor = bench.store.scan(&range, direction).or_fail("scan")?;
        for _ in 0..5 {
            cursor.next().or_fail("next")?;
        }
        cursor.seek(&bench.key(target)).or_fail("seek")?;
        let found = cursor.next().or_fail("next")?;
        let found = found.map(|entry| entry.key.to_vec());
        let wanted = wanted.map(|number| bench.key(number));
        expect(&format!("seek {direction:?} to {target}"), found, wanted)?;
    }
    Ok(())
}

fn prefixes(bench: &Bench) -> Outcome {
    if !bench.capabilities.ordered {
        return Ok(());
    }
    let mut entries = Plain::new();
    for number in [0, 1, 255, 256, u64::MAX - 256, u64::MAX - 1, u64::MAX] {
        let key = number.to_be_bytes().to_vec();
        match bench.store.put(&key, b"v", Durability::Written) {
            Ok(_) => entries.insert(key, b"v".to_vec()),
            // A flat array may refuse keys so far apart.
            Err(Error::LimitExceeded(_) | Error::InvalidArgument(_)) => None,
            Err(error) => return Err(format!("put: {error}")),
        };
    }
    for prefix in [&[0xff; 7][..], &[0xff; 8], &[0; 7], &[0; 6], &[0xff]] {
        expect_scan(&*bench.store, &entries, &KeyRange::prefix(prefix))?;
    }
    Ok(())
}

/// Reads a whole pass, leaving and coming back after each `stride` entries.
fn pass_in_parts(
    reader: &dyn Reader,
    order: IterationOrder,
    stride: usize,
) -> Result<Pairs, String> {
    let mut pairs = Pairs::new();
    let mut token: Option<ResumeToken> = None;
    loop {
        let mut cursor = reader.iterate(order, token.as_ref()).or_fail("iterate")?;
        let by_visits = pairs.len() / stride % 2 == 1;
        if by_visits {
            let take = |key: &[u8], value: &[u8]| pairs.push((key.to_vec(), value.to_vec()));
            let end = visit_some(&mut *cursor, stride, take).or_fail("visit")?;
            if end.is_continue() {
                return Ok(pairs);
            }
        } else {
            for _ in 0..stride {
                let Some(entry) = cursor.next().or_fail("next")? else {
                    return Ok(pairs);
                };
                pairs.push((entry.key.to_vec(), entry.value.to_vec()));
            }
        }
        let next = cursor.resume_token();
        token = Some(next.ok_or("a pass over everything has no resume token")?);
    }
}

fn orders(bench: &Bench) -> Vec<IterationOrder> {
    let mut orders = vec![IterationOrder::Any];
    if bench.capabilities.ordered {
        orders.push(IterationOrder::Key);
    }
    if bench.capabilities.insertion_order {
        orders.push(IterationOrder::Insertion);
    }
    orders
}

fn resuming(bench: &Bench) -> Outcome {
    let entries = bench.fill(57)?;
    for order in orders(bench) {
        let whole = drain(bench.store.iterate(order, None).or_fail("iterate")?)?;
        let sorted: Plain = whole.iter().cloned().collect();
        expect(&format!("a pass {order:?}"), sorted, entries.clone())?;
        for stride in [1, 2, 5, 16, 56, 57, 58] {
            let found = pass_in_parts(&*bench.store, order, stride)?;
            let what = format!("a pass {order:?} resumed each {stride}");
            expect(&what, found, whole.clone())?;
        }
    }
    // A token serves another opening of the store too.
    let mut cursor = bench
        .store
        .iterate(IterationOrder::Any, None)
        .or_fail("iterate")?;
    let mut seen = Plain::new();
    for _ in 0..20 {
        if let Some(entry) = cursor.next().or_fail("next")? {
            seen.insert(entry.key.to_vec(), entry.value.to_vec());
        }
    }
    let token = cursor.resume_token().ok_or("no resume token")?;
    drop(cursor);
    let store = bench.reopened()?;
    let rest = store.iterate(IterationOrder::Any, Some(&token));
    seen.extend(drain(rest.or_fail("iterate after reopening")?)?);
    expect("a pass over two openings", seen, entries)
}

fn insertion_order(bench: &Bench) -> Outcome {
    if !bench.capabilities.insertion_order {
        let pass = bench.store.iterate(IterationOrder::Insertion, None);
        return expect_error("iterate by insertion", pass, is_unsupported);
    }
    // Few and near, so that an engine with an order only within parts of its
    // key space has them in one.
    let order = [3, 0, 5, 1, 4];
    for number in order {
        bench.put(number, b"v")?;
    }
    bench.put(0, b"again")?;
    let pass = bench.store.iterate(IterationOrder::Insertion, None);
    let found = drain(pass.or_fail("iterate")?)?;
    let wanted: Vec<Vec<u8>> = [3, 5, 1, 4, 0].map(|number| bench.key(number)).to_vec();
    let found: Vec<Vec<u8>> = found.into_iter().map(|(key, _)| key).collect();
    expect("a pass in insertion order", found, wanted)
}

fn foreign_tokens(bench: &Bench) -> Outcome {
    bench.fill(5)?;
    for bytes in [&b""[..], b"\xee", &[0xee; 3], &[0xee; 200]] {
        let token = ResumeToken::from_bytes(bytes.to_vec());
        for order in orders(bench) {
            // Any answer but a panic or a made-up entry will do.
            if let Ok(mut cursor) = bench.store.iterate(order, Some(&token)) {
                while let Some(entry) = cursor.next().or_fail("next")? {
                    super::expect_value(&*bench.store, &entry.key, Some(&entry.value))?;
                }
            }
        }
    }
    Ok(())
}

/// Changes everything that was there, again and again, and lets the
/// background clean up.
fn churn(bench: &Bench) -> Outcome {
    for round in 0..5u64 {
        for number in 0..40 {
            match (number + round) % 3 {
                0 => {
                    let key = bench.key(number);
                    bench
                        .store
                        .delete(&key, Durability::Written)
                        .or_fail("delete")?;
                }
                _ => bench.put(number, format!("later {round}").as_bytes())?,
            }
        }
        bench.put(1_000 + round, b"new")?;
        bench.settle()?;
        bench
            .store
            .compact(&CompactOptions::default(), &())
            .or_fail("compact")?;
    }
    Ok(())
}

fn snapshots(bench: &Bench) -> Outcome {
    let entries = bench.fill(40)?;
    let snapshot = bench.store.snapshot().or_fail("snapshot")?;
    churn(bench)?;
    expect_contents(&*snapshot, &entries)?;
    for (key, value) in &entries {
        super::expect_value(&*snapshot, key, Some(value))?;
    }
    super::expect_value(&*snapshot, &bench.key(1_000), None)?;
    if bench.capabilities.ordered {
        expect_scan(&*snapshot, &entries, &KeyRange::all())?;
    }
    let again = pass_in_parts(&*snapshot, IterationOrder::Any, 7)?;
    expect("a resumed pass of a snapshot", again.len(), entries.len())
}

fn cursors(bench: &Bench) -> Outcome {
    let entries = bench.fill(40)?;
    let mut open = vec![
        bench
            .store
            .iterate(IterationOrder::Any, None)
            .or_fail("iterate")?,
    ];
    if bench.capabilities.ordered {
        for direction in [Direction::Forward, Direction::Reverse] {
            let scan = bench.store.scan(&KeyRange::all(), direction);
            open.push(scan.or_fail("scan")?);
        }
    }
    let mut seen: Vec<Plain> = Vec::new();
    for cursor in &mut open {
        let entry = cursor.next().or_fail("next")?.ok_or("an empty pass")?;
        let first = (entry.key.to_vec(), entry.value.to_vec());
        seen.push([first].into_iter().collect());
    }
    churn(bench)?;
    for (number, (cursor, mut found)) in open.into_iter().zip(seen).enumerate() {
        found.extend(drain(cursor)?);
        expect_entries(&found, &entries).map_err(|what| format!("cursor {number}: {what}"))?;
    }
    Ok(())
}

fn many_snapshots(bench: &Bench) -> Outcome {
    let mut moments = Vec::new();
    let mut entries = Plain::new();
    for round in 0..12u64 {
        for number in 0..6 {
            let key = bench.key((number * 7 + round) % 20);
            if (number + round) % 4 == 0 {
                bench
                    .store
                    .delete(&key, Durability::Written)
                    .or_fail("delete")?;
                entries.remove(&key);
            } else {
                let value = format!("round {round}").into_bytes();
                bench
                    .store
                    .put(&key, &value, Durability::Written)
                    .or_fail("put")?;
                entries.insert(key, value);
            }
        }
        let snapshot = bench.store.snapshot().or_fail("snapshot")?;
        moments.push((snapshot, entries.clone()));
        bench.settle()?;
    }
    // Let go out of order: the older ones must not lean on the newer.
    while !moments.is_empty() {
        let (snapshot, expected) = moments.remove(moments.len() / 2);
        expect_contents(&*snapshot, &expected)?;
    }
    Ok(())
}
