//! Typed tables: codings keep their order and come back, on every way to a table.

use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cambium::prelude::*;
use cambium::table::{Key, Table};
use cambium::{Error, Expiry, Result, UnixMillis};
use proptest::prelude::*;

fn whole<K: Key>(key: &K::Borrowed) -> Vec<u8> {
    let mut encoded = Vec::new();
    K::encode_last(key, &mut encoded);
    encoded
}

fn part<K: Key>(key: &K::Borrowed) -> Vec<u8> {
    let mut encoded = Vec::new();
    K::encode(key, &mut encoded);
    encoded
}

/// Two keys are ordered as their codings are, and come back from them.
fn keeps_order<K: Key + Ord + Debug>(one: K, other: K) {
    let order = one.cmp(&other);
    assert_eq!(
        whole::<K>(one.borrow()).cmp(&whole::<K>(other.borrow())),
        order
    );
    let (first, second) = (part::<K>(one.borrow()), part::<K>(other.borrow()));
    assert_eq!(first.cmp(&second), order, "{one:?} {other:?}");
    // Whatever stands behind them, parts of different keys differ before it.
    if order.is_ne() {
        let tailed = |part: &[u8], tail: u8| [part, &[tail; 4]].concat();
        for (tail, other_tail) in [(0, 0xff), (0xff, 0), (1, 0)] {
            let (first, second) = (tailed(&first, tail), tailed(&second, other_tail));
            assert_eq!(first.cmp(&second), order, "{one:?} {other:?}");
        }
    }
    let (encoded, mut followed) = (whole::<K>(one.borrow()), part::<K>(one.borrow()));
    followed.extend([7, 8]);
    let (mut encoded, mut followed) = (&encoded[..], &followed[..]);
    assert_eq!(K::decode_last(&mut encoded).as_ref(), Some(&one));
    assert_eq!(K::decode(&mut followed), Some(one));
    assert_eq!((encoded, followed), (&[][..], &[7, 8][..]));
}

/// Bytes of which many are the ones that codings treat specially.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0), Just(1), Just(0xff), any::<u8>()], 0..6)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c\0]{0,5}", ".{0,4}"]
}

/// Small numbers and large ones, so that equal ones are met.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![-2..3_i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
}

fn moment() -> impl Strategy<Value = SystemTime> {
    let nanoseconds = prop_oneof![0..2_u32, 0..1_000_000_000_u32];
    (-5_000_000_000..5_000_000_000_i64, nanoseconds).prop_map(|(seconds, nanoseconds)| {
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let moment = match seconds < 0 {
            true => UNIX_EPOCH - whole,
            false => UNIX_EPOCH + whole,
        };
        moment + Duration::new(0, nanoseconds)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_keep_their_order(one in number(), other in number()) {
        keeps_order(one, other);
        keeps_order(one as i8, other as i8);
        keeps_order(one as i16, other as i16);
        keeps_order(one as i32, other as i32);
        keeps_order(i128::from(one) << 64, i128::from(other) << 3);
        keeps_order(one as u8, other as u8);
        keeps_order(one as u16, other as u16);
        keeps_order(one as u32, other as u32);
        keeps_order(one as u64, other as u64);
        keeps_order(one as u128, other as u128);
        keeps_order(one > 0, other > 0);
        keeps_order(one.to_ne_bytes(), other.to_ne_bytes());
    }

    #[test]
    fn bytes_and_text_keep_their_order(one in bytes(), other in bytes(), text in (text(), text())) {
        keeps_order(one, other);
        keeps_order(text.0, text.1);
    }

    #[test]
    fn options_keep_their_order(
        one in prop::option::of(bytes()), other in prop::option::of(bytes()), text in (text(), text()),
    ) {
        keeps_order(one, other);
        keeps_order(Some(Some(text.0)), Some(Some(text.1)));
    }

    #[test]
    fn moments_keep_their_order(one in moment(), other in moment()) {
        keeps_order(one, other);
        let since = |moment: SystemTime| moment.duration_since(UNIX_EPOCH).unwrap_or_default();
        keeps_order(since(one), since(other));
    }

    #[test]
    fn tuples_keep_their_order(
        one in (text(), number(), bytes()), other in (text(), number(), bytes()),
    ) {
        keeps_order(one.clone(), other.clone());
        keeps_order((one.0.clone(), one.2.clone()), (other.0.clone(), other.2.clone()));
        let nested = |(text, number, bytes): (String, i64, Vec<u8>)| {
            ((text, Some(bytes.clone())), number, bytes, number as u8)
        };
        keeps_order(nested(one), nested(other));
    }
}

proptest! {
    // Each case makes a store.
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// A table is a sorted map, whatever was written to it.
    #[test]
    fn a_table_is_a_sorted_map(
        rows in prop::collection::btree_map((text(), number()), number(), 0..20),
        from in (text(), number()), to in (text(), number()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let store = cambium::open_or_create(folder.path()).unwrap();
        let table: Table<(String, i64), i64> = store.table("rows").unwrap();
        let mut batch = WriteBatch::new();
        for (key, value) in &rows {
            table.put_into(&mut batch, key.clone(), value).unwrap();
        }
        store.write(batch).unwrap();
        let all = |rows: Vec<Result<_>>| rows.into_iter().collect::<Result<Vec<_>>>().unwrap();
        let expected: Vec<_> = rows.clone().into_iter().collect();
        prop_assert_eq!(all(table.scan(..).unwrap().collect()), expected);
        let reversed: Vec<_> = rows.clone().into_iter().rev().collect();
        prop_assert_eq!(all(table.scan(..).unwrap().rev().collect()), reversed);
        if from <= to {
            let expected: Vec<_> = rows.range(from.clone()..=to.clone()).map(|(key, value)| (key.clone(), *value)).collect();
            prop_assert_eq!(all(table.scan(from.clone()..=to).unwrap().collect()), expected);
        }
        let of_first = rows.iter().filter(|((text, _), _)| *text == from.0).count();
        prop_assert_eq!(table.scan_first(from.0.as_str()).unwrap().count(), of_first);
        store.close().unwrap();
    }
}

#[test]
fn tables_share_a_store_its_snapshots_and_its_transactions() {
    for engine in ["forest", "wisckey"] {
        let folder = tempfile::tempdir().unwrap();
        let store = Options::new().create(folder.path(), engine).unwrap();
        let names: Table<u32, String> = store.table("names").unwrap();
        let heights: Table<String, u16> = store.table("heights").unwrap();
        names.put(1, "oak").unwrap();
        heights.put("oak", 45).unwrap();
        let then = store.snapshot().unwrap();
        store
            .transact(|transaction| {
                let (names, heights) = (names.within(transaction)?, heights.within(transaction)?);
                let name = names.get(1)?.unwrap();
                let height = heights.get(name.as_str())?.unwrap();
                heights.put(name.as_str(), height + 1)?;
                names.delete(1)?;
                assert_eq!(heights.scan(..)?.next().unwrap()?, ("oak".to_string(), 46));
                assert_eq!(names.scan(..)?.count(), 0);
                Ok(())
            })
            .unwrap();
        assert_eq!(heights.get("oak").unwrap(), Some(46));
        assert_eq!(names.get(1).unwrap(), None);
        let found = heights.multi_get(&["elm".to_string(), "oak".to_string()]);
        assert_eq!(found.unwrap(), [None, Some(46)]);
        let gone = Expiry::At(UnixMillis(1));
        names.put_expiring(7, "ash", gone).unwrap();
        assert_eq!(names.get(7).unwrap(), None);
        let elsewhere = tempfile::tempdir().unwrap();
        let other = Options::new().create(elsewhere.path(), engine).unwrap();
        let transaction = other.transaction().unwrap();
        let refused = names.within(&transaction).map(drop);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
        let refused = names.at(&other.snapshot().unwrap()).map(drop);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
        let (names, heights) = (names.at(&then).unwrap(), heights.at(&then).unwrap());
        assert_eq!(names.get(1).unwrap().as_deref(), Some("oak"));
        assert_eq!(heights.scan("a".."p").unwrap().count(), 1);
        store.close().unwrap();
    }
}

#[test]
fn an_engine_without_namespaces_has_one_table() {
    for (engine, name, value) in [("zdb", "keys", "integer"), ("alphard", "size", "64MiB")] {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().set(name, value);
        let store = options.create(folder.path(), engine).unwrap();
        let rings: Table<u64, String> = Table::new(&store);
        rings.put(1905, "wide").unwrap();
        store
            .transact(|transaction| {
                let rings = rings.within(transaction)?;
                assert_eq!(rings.get(1905)?.as_deref(), Some("wide"), "{engine}");
                rings.put(1906, "narrow")
            })
            .unwrap();
        let then = rings.at(&store.snapshot().unwrap()).unwrap();
        assert_eq!(then.get(1906).unwrap().as_deref(), Some("narrow"));
        assert_eq!(rings.iterate().unwrap().count(), 2);
        assert!(matches!(
            store.table::<u64, String>("more"),
            Err(Error::Unsupported { .. })
        ));
        store.close().unwrap();
    }
}

#[test]
fn rows_of_other_types_are_named_and_do_not_end_a_scan() {
    let folder = tempfile::tempdir().unwrap();
    let store = cambium::open_or_create(folder.path()).unwrap();
    let table: Table<u32, u16> = Table::new(&store);
    table.put(1, 1).unwrap();
    store.put("three bytes are no u32", [0, 1]).unwrap();
    store.put(2_u32.to_be_bytes(), "three").unwrap();
    table.put(3, 3).unwrap();
    let error = table.get(2).unwrap_err();
    assert!(matches!(&error, Error::WrongType { key, .. } if *key == 2_u32.to_be_bytes()));
    let rows: Vec<_> = table.scan(..).unwrap().collect();
    assert!(rows[0].is_ok() && rows[1].is_err() && rows[2].is_ok() && rows[3].is_err());
    assert!(rows[3].as_ref().unwrap_err().to_string().contains("u32"));
    table.delete_range(..=2).unwrap();
    assert_eq!(table.get(3).unwrap(), Some(3));
}

#[cfg(feature = "serde")]
#[test]
fn values_of_serde_come_back_and_what_is_none_is_an_error() {
    use cambium::table::Serde;

    let folder = tempfile::tempdir().unwrap();
    let store = cambium::open_or_create(folder.path()).unwrap();
    let table: Table<String, Serde<(u8, Vec<String>)>> = Table::new(&store);
    let value = (7, vec!["leaf".to_string()]);
    table.put("oak", &value).unwrap();
    assert_eq!(table.get("oak").unwrap(), Some(value));
    store.put("oak", [7, 200]).unwrap();
    assert!(matches!(table.get("oak"), Err(Error::WrongType { .. })));
}
