//! Tables and views of SQLite are imported whole, and go on where they were broken off.

use std::time::{Duration, Instant};

use cambium_foreign::sqlite::{Connection, OPEN_FLAGS, load};

use super::{goes_on, import, is_made, kill_after_sync};
use crate::harness::{Place, Run};

/// Makes a file of SQLite; false where the library is not here.
fn sqlite(place: &Place, sql: &str) -> bool {
    let loaded = load();
    if !is_made(loaded.map(|_| ())) {
        return false;
    }
    let functions = &load().unwrap().functions;
    let file = Connection::open_as(functions, &place.path("trees.db"), OPEN_FLAGS).unwrap();
    file.execute(sql).unwrap();
    true
}

#[test]
fn tables_of_sqlite_become_keys_and_values() {
    let place = Place::with_store();
    let sql = "CREATE TABLE names (tree TEXT PRIMARY KEY, latin);
        INSERT INTO names VALUES ('oak', 'Quercus'), ('elm', X'ff00'), ('ash', 7), ('yew', NULL), (NULL, 'x');
        CREATE TABLE \"odd \"\"table\" (id INTEGER PRIMARY KEY, name TEXT, height REAL, leaf BLOB);
        INSERT INTO \"odd \"\"table\" VALUES (3, 'o''ak', 40.5, X'ff'), (-1, NULL, 2, NULL);
        CREATE TABLE log (line TEXT, level INT);
        INSERT INTO log VALUES ('a', 1), ('a', 2);
        CREATE VIEW v AS SELECT line || level AS k, level FROM log;
        CREATE TABLE made (k INT PRIMARY KEY, v AS (k + 1), s AS (k * 2) STORED, t);
        INSERT INTO made VALUES (4, 'x');
        CREATE TABLE pairs (a, b, c, PRIMARY KEY (a, b));";
    if !sqlite(&place, sql) {
        return;
    }
    let run = import(&place, "sqlite:trees.db#names", &[]);
    assert_eq!(run.status, Some(3), "{}", run.talk);
    assert!(run.talk.contains("NULL; left out"), "{}", run.talk);
    let text = String::from_utf8_lossy(&place.run(["scan", "s"]).output).into_owned();
    assert_eq!(text, "ash\t7\nelm\t\u{fffd}\\x00\noak\tQuercus\nyew\t\n");
    let scan = |table: &str| {
        let namespace = ["--namespace", "n"];
        _ = place.run(["namespaces", "s", "--drop", "n"]);
        import(&place, &format!("sqlite:trees.db#{table}"), &namespace).done();
        place.run(["scan", "s", "--namespace", "n"]).done()
    };
    let odd = scan("odd \"table");
    assert_eq!(
        odd,
        "-1\t{\"name\":null,\"height\":2.0,\"leaf\":null}\n\
         3\t{\"name\":\"o'ak\",\"height\":40.5,\"leaf_hex\":\"ff\"}\n"
    );
    assert_eq!(
        scan("log"),
        "1\t{\"line\":\"a\",\"level\":1}\n2\t{\"line\":\"a\",\"level\":2}\n"
    );
    assert_eq!(scan("v"), "a1\t1\na2\t2\n");
    assert_eq!(scan("made"), "4\t{\"v\":5,\"s\":8,\"t\":\"x\"}\n");
    import(&place, "sqlite:trees.db#pairs", &[]).refused(2, &["a, b", "view"]);
    import(&place, "sqlite:trees.db#none", &[]).refused(3, &["names", "log"]);
    import(&place, "sqlite:trees.db", &[]).refused(2, &["FILE#TABLE"]);
    assert!(sqlite(
        &place,
        "CREATE TABLE 'a#b' (k TEXT PRIMARY KEY, v TEXT); INSERT INTO 'a#b' VALUES ('hash', 'x');"
    ));
    import(&place, "sqlite:trees.db#a#b", &[]).done();
    place.run(["get", "s", "hash"]).done();
    import(&place, "sqlite:none.db#x", &[]).refused(3, &["none.db"]);
    let numbers = Place::with_integer_store();
    assert!(sqlite(
        &numbers,
        "CREATE TABLE t (k INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (70, 'x'), (9, 'y');"
    ));
    import(&numbers, "sqlite:trees.db#t", &[]).done();
    assert_eq!(numbers.run(["scan", "s"]).done(), "9\ty\n70\tx\n");
}

#[test]
fn reals_of_sqlite_keep_every_digit() {
    let place = Place::with_store();
    let sql = "CREATE TABLE m (at REAL PRIMARY KEY, v TEXT);
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
        INSERT INTO m SELECT 1718000000.0 + i / 1e6, 'leaf' FROM n;
        CREATE TABLE v (k TEXT PRIMARY KEY, v REAL);
        INSERT INTO v VALUES ('a', 0.1 + 0.2), ('b', 1.7976931348623157e308), ('c', 9e999), ('d', 2);
        CREATE VIEW w AS SELECT k, v, 1 AS n FROM v;";
    if !sqlite(&place, sql) {
        return;
    }
    import(&place, "sqlite:trees.db#m", &[]).done();
    assert_eq!(place.run(["count", "s"]).done(), "1000\n");
    place.run(["get", "s", "1718000000.000001"]).done();
    place.run(["delete", "s", "--from", ""]).done();
    import(&place, "sqlite:trees.db#v", &[]).done();
    assert_eq!(
        place.run(["scan", "s"]).done(),
        "a\t0.30000000000000004\nb\t1.7976931348623157e+308\nc\tInf\nd\t2.0\n"
    );
    import(&place, "sqlite:trees.db#w", &[]).done();
    assert_eq!(
        place.run(["scan", "s"]).done(),
        "a\t{\"v\":0.30000000000000004,\"n\":1}\nb\t{\"v\":1.7976931348623157e+308,\"n\":1}\n\
         c\t{\"v\":\"Inf\",\"n\":1}\nd\t{\"v\":2.0,\"n\":1}\n"
    );
}

#[test]
fn rows_of_sqlite_with_a_key_that_is_there_are_named_and_left_out() {
    let place = Place::with_store();
    let sql = "CREATE TABLE mixed (k PRIMARY KEY, v);
        INSERT INTO mixed VALUES (1, 'int'), ('1', 'text'), (X'31', 'blob'), ('oak', 'Quercus'),
            (X'6f616b', 'blob'), (0.1 + 0.2, 'real'), ('0.30000000000000004', 'text'), ('0.3', 'other');
        CREATE VIEW several AS SELECT 1 AS k, 'a' AS v UNION ALL SELECT 1.0, 'b'
            UNION ALL SELECT 1, 'c' UNION ALL SELECT 'x', 'd' UNION ALL SELECT 'X', 'e';
        CREATE TABLE folded (k TEXT COLLATE NOCASE, v);
        INSERT INTO folded VALUES ('a', 1), ('A', 2), ('a', 3);
        CREATE VIEW cases AS SELECT k, v FROM folded;
        CREATE TABLE padded (k TEXT PRIMARY KEY, v);
        INSERT INTO padded VALUES ('01', 'a'), ('1', 'b');
        CREATE TABLE names (k TEXT PRIMARY KEY, a, a_hex);
        INSERT INTO names VALUES ('bytes', X'ff', 'q'), ('text', 'p', 'q');
        CREATE VIEW repeated AS SELECT 'a' AS k, X'00' AS a, 'z' AS a_hex
            UNION ALL SELECT 'a', 'good', 'z';
        CREATE VIEW zeros AS SELECT 0.0 AS k, 'a' AS v UNION ALL SELECT -0.0, 'b'
            UNION ALL SELECT 0.0, 'c';";
    if !sqlite(&place, sql) {
        return;
    }
    let left_out = |place: &Place, table: &str, count: usize, word: &str| {
        place.run(["delete", "s", "--from", ""]);
        let run = import(place, &format!("sqlite:trees.db#{table}"), &[]);
        assert_eq!(run.status, Some(3), "{}", run.talk);
        assert_eq!(run.talk.matches(word).count(), count, "{}", run.talk);
        place.run(["scan", "s"]).done()
    };
    let same = "an earlier row has the same key; left out";
    assert_eq!(
        left_out(&place, "mixed", 4, same),
        "0.3\tother\n0.30000000000000004\treal\n1\tint\noak\tQuercus\n"
    );
    assert_eq!(
        left_out(&place, "several", 1, same),
        "1\ta\n1.0\tb\nX\te\nx\td\n"
    );
    assert_eq!(left_out(&place, "cases", 1, same), "A\t2\na\t1\n");
    assert_eq!(
        left_out(&place, "names", 1, "\"a_hex\" in JSON"),
        "text\t{\"a\":\"p\",\"a_hex\":\"q\"}\n"
    );
    // A row that is left out takes no key from a later one.
    assert_eq!(
        left_out(&place, "repeated", 1, "left out\n"),
        "a\t{\"a\":\"good\",\"a_hex\":\"z\"}\n"
    );
    assert_eq!(left_out(&place, "zeros", 2, same), "0.0\ta\n");
    let numbers = Place::with_integer_store();
    assert!(sqlite(&numbers, sql));
    assert_eq!(
        left_out(&numbers, "padded", 1, "\"01\": expected"),
        "1\tb\n"
    );
}

#[test]
fn the_number_of_a_row_is_the_key_of_a_table_without_one() {
    let place = Place::with_store();
    let sql = "CREATE TABLE w (RowId TEXT, v TEXT); INSERT INTO w VALUES ('r', 'a'), ('r', 'b');
        CREATE TABLE hidden (rowid, _rowid_, oid);";
    if !sqlite(&place, sql) {
        return;
    }
    import(&place, "sqlite:trees.db#w", &[]).done();
    assert_eq!(
        place.run(["scan", "s"]).done(),
        "1\t{\"RowId\":\"r\",\"v\":\"a\"}\n2\t{\"RowId\":\"r\",\"v\":\"b\"}\n"
    );
    import(&place, "sqlite:trees.db#hidden", &[]).refused(2, &["rowid, _rowid_ and oid", "view"]);
}

#[test]
fn a_table_goes_on_where_it_was_broken_off() {
    let place = Place::with_store();
    let sql = "CREATE TABLE t (k TEXT PRIMARY KEY, v);
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 12344)
        INSERT INTO t SELECT 'it''s ' || i, 'leaf' FROM n;";
    if !sqlite(&place, sql) {
        return;
    }
    goes_on(&place, "sqlite:trees.db#t", 12_345);
    let sql = "CREATE TABLE reals (k REAL PRIMARY KEY, v);
        INSERT INTO reals SELECT 1718000000.0 + rowid / 1e6, v FROM t;";
    assert!(sqlite(&place, sql));
    place.run(["delete", "s", "--from", ""]).done();
    goes_on(&place, "sqlite:trees.db#reals", 12_345);
}

#[test]
fn a_row_whose_key_is_there_is_named_where_an_import_goes_on_before_it() {
    let place = Place::with_store();
    // Rows 9999 and 10000 have one key; the first sync is between them.
    let sql = "CREATE VIEW v AS WITH RECURSIVE
        n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 12344)
        SELECT printf('%06d', i - (i > 9999)) AS k, i FROM n;";
    if !sqlite(&place, sql) {
        return;
    }
    let source = "sqlite:trees.db#v";
    let mut child = kill_after_sync(place.command(["import", "s", "--from", source]));
    child.wait().unwrap();
    let run = import(&place, source, &["--resume"]);
    assert_eq!(run.status, Some(3), "{}", run.talk);
    let named = "\"009999\": an earlier row has the same key";
    assert_eq!(run.talk.matches(named).count(), 1, "{}", run.talk);
    assert_eq!(place.run(["count", "s"]).done(), "12344\n");
}

#[test]
fn keys_of_several_classes_are_compared_without_a_scan_for_each() {
    let place = Place::with_store();
    // A scan of this view for each row would take minutes. Three texts equal numbers,
    // one of which is read before the first sync and found by an import that goes on.
    let sql = "CREATE VIEW v AS WITH RECURSIVE
        n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 14999)
        SELECT -1 AS k, 'number' AS v UNION ALL SELECT 1.5, 'number' UNION ALL SELECT 99, 'number'
        UNION ALL SELECT printf('%d', i), 'text' FROM n UNION ALL SELECT '-1', 'text'
        UNION ALL SELECT '1.5', 'text' UNION ALL SELECT X'3937', 'blob';
        CREATE TABLE cambium_taken (k TEXT COLLATE NOCASE PRIMARY KEY, v) WITHOUT ROWID;
        INSERT INTO cambium_taken SELECT CAST(v.k AS BLOB), v FROM v WHERE typeof(k) = 'text';
        INSERT INTO cambium_taken VALUES ('99', 'text');";
    if !sqlite(&place, sql) {
        return;
    }
    let begun = Instant::now();
    let same = "an earlier row has the same key";
    let left_out = |run: Run, count: usize, entries: &str| {
        assert_eq!(run.status, Some(3), "{}", run.talk);
        assert_eq!(run.talk.matches(same).count(), count, "{}", run.talk);
        assert_eq!(place.run(["count", "s"]).done(), entries);
    };
    left_out(import(&place, "sqlite:trees.db#v", &[]), 4, "15002\n");
    place.run(["delete", "s", "--from", ""]).done();
    let source = "sqlite:trees.db#v";
    let mut child = kill_after_sync(place.command(["import", "s", "--from", source]));
    child.wait().unwrap();
    left_out(import(&place, source, &["--resume"]), 2, "15002\n");
    assert_eq!(place.run(["get", "s", "99"]).done(), "number");
    place.run(["delete", "s", "--from", ""]).done();
    left_out(
        import(&place, "sqlite:trees.db#cambium_taken", &[]),
        1,
        "15002\n",
    );
    assert!(begun.elapsed() < Duration::from_secs(60), "{begun:?}");
}
