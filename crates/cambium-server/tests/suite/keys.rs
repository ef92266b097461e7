//! Keys of any kind, databases, SCAN.

use std::collections::BTreeSet;

use crate::client::Client;
use crate::harness::{Server, folder};

#[test]
fn keys_are_moved_copied_and_renamed_with_all_they_hold() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.script(&[
        ("SET oak a EX 100", "+OK"),
        ("RENAME oak elm", "+OK"),
        ("RENAME oak elm", "-ERR no such key"),
        ("TTL elm", ":100"),
        ("RENAME elm elm", "+OK"),
        ("SET ash b", "+OK"),
        ("RENAMENX elm ash", ":0"),
        ("COPY elm ash", ":0"),
        ("COPY elm ash REPLACE", ":1"),
        ("GET ash", "a"),
        ("TTL ash", ":100"),
        (
            "COPY elm elm",
            "-ERR source and destination objects are the same",
        ),
        ("COPY elm elm DB 3", ":1"),
        ("COPY elm elm DB 99", "-ERR DB index is out of range"),
        ("HSET hash f 1 g 2", ":2"),
        ("RENAME hash moved", "+OK"),
        ("HGETALL moved", "[f 1 g 2]"),
        ("COPY moved copy", ":1"),
        ("HSET moved f 9", ":0"),
        ("HGETALL copy", "[f 1 g 2]"),
        ("MOVE copy 3", ":1"),
        ("MOVE copy 3", ":0"),
        ("SELECT 3", "+OK"),
        ("HGETALL copy", "[f 1 g 2]"),
        ("TTL elm", ":100"),
        ("DBSIZE", ":2"),
        ("SELECT 99", "-ERR DB index is out of range"),
        ("SELECT x", "-ERR value is not an integer or out of range"),
        ("FLUSHDB", "+OK"),
        ("DBSIZE", ":0"),
        ("SELECT 0", "+OK"),
        ("DBSIZE", ":3"),
        ("TYPE moved", "+hash"),
        ("TYPE ash", "+string"),
        ("TYPE none", "+none"),
        ("OBJECT ENCODING ash", "embstr"),
        ("FLUSHALL", "+OK"),
        ("KEYS *", "[]"),
        ("RANDOMKEY", "nil"),
    ]);
    client.script(&[("HSET hash a 1", ":1"), ("HGETALL hash", "[a 1]")]);
    drop(client);
    server.terminate();
}

/// Keys of a whole SCAN, and how many answers it took.
fn scan(client: &mut Client, options: &str, mut each: impl FnMut()) -> (BTreeSet<String>, usize) {
    let (mut cursor, mut found, mut pages) = ("0".to_string(), BTreeSet::new(), 0);
    loop {
        let page = client.call(format!("SCAN {cursor} {options}").trim_end());
        let (next, keys) = page[1..page.len() - 1].split_once(' ').unwrap();
        let keys = keys
            .trim_matches(['[', ']'])
            .split(' ')
            .filter(|key| !key.is_empty());
        found.extend(keys.map(str::to_string));
        pages += 1;
        each();
        cursor = next.parse::<u64>().unwrap().to_string();
        if cursor == "0" {
            return (found, pages);
        }
    }
}

#[test]
fn scan_answers_every_key_that_stays() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let (mut client, mut other) = (server.client(), server.client());
    let expected: BTreeSet<String> = (0..500)
        .map(|number| format!("stays:{number:05}"))
        .collect();
    for key in &expected {
        client.call(&format!("SET {key} x"));
    }
    client.call("HSET hash f v");
    let mut number = 0;
    let (found, pages) = scan(&mut client, "COUNT 20", || {
        for _ in 0..20 {
            number += 1;
            other.call(&format!("SET comes:{number} x"));
            other.call(&format!("DEL comes:{}", number / 2));
        }
    });
    assert!(
        found.is_superset(&expected) && pages > 20,
        "{} {pages}",
        found.len()
    );
    let (found, _) = scan(&mut client, "MATCH stays:0000?", || ());
    assert_eq!(found.len(), 10);
    let (found, _) = scan(&mut client, "TYPE hash COUNT 1000", || ());
    assert_eq!(found, BTreeSet::from(["hash".to_string()]));
    client.script(&[
        ("SCAN x", "-ERR invalid cursor"),
        ("SCAN 0 COUNT 0", "-ERR syntax error"),
        ("SCAN 99999999999", "[0 []]"),
        ("SCAN -1", "[0 []]"),
        ("SCAN -18446744073709551615 MATCH none COUNT 9999", "[0 []]"),
        ("SCAN -", "-ERR invalid cursor"),
        ("SCAN -+1", "-ERR invalid cursor"),
        ("SCAN 18446744073709551616", "-ERR invalid cursor"),
        ("SCAN  MATCH none COUNT 9999", "[0 []]"),
    ]);
}

#[test]
fn a_cursor_outlives_the_server() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    for number in 0..100 {
        client.call(&format!("SET key{number} x"));
    }
    let first = client.call("SCAN 0 COUNT 50");
    server.kill();
    let server = Server::start(folder.path(), &[]);
    let (cursor, keys) = first[1..].split_once(' ').unwrap();
    let rest = server.client().call(&format!("SCAN {cursor} COUNT 1000"));
    let count = |keys: &str| keys.matches("key").count();
    assert_eq!(count(keys) + count(&rest), 100);
}

#[test]
fn ranges_of_keys_come_in_order() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.script(&[
        ("MSET a 1 b 2 c 3 d 4", "+OK"),
        ("CAMBIUM.SCAN a c", "[a 1 b 2]"),
        ("CAMBIUM.SCAN - + LIMIT 3", "[a 1 b 2 c 3]"),
        ("CAMBIUM.SCAN b + LIMIT 2 REV", "[d 4 c 3]"),
        ("CAMBIUM.SYNC", "+OK"),
        ("CAMBIUM.COMPACT", "+OK"),
        ("GET a", "1"),
        (
            "CAMBIUM.BACKUP b",
            "-ERR the server was started without --backups, the folder that backups go to",
        ),
    ]);
    assert!(client.call("CAMBIUM.STATS").contains("entries:"));
}

#[test]
fn info_counts_the_calls_of_each_command() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.script(&[("SET oak 1", "+OK"), ("GET oak", "1"), ("GET oak", "1")]);
    let info = client.call("INFO commandstats");
    assert!(info.contains("cmdstat_get:calls=2,usec="), "{info}");
    assert!(client.call("INFO all").contains("cmdstat_set:calls=1,"));
    assert!(!client.call("INFO").contains("cmdstat_"));
    let memory = client.call("INFO memory");
    let used = memory.lines().find_map(|line| {
        let line = line.trim().strip_prefix("used_memory:")?;
        line.parse::<u64>().ok()
    });
    // Memory that the store has reserved and not touched does not count.
    assert!(
        used.is_some_and(|used| (1 << 20..200 << 20).contains(&used)),
        "{memory}"
    );
}

#[test]
fn backups_go_into_their_folder_alone() {
    let folder = folder();
    let absent = ["--backups", "/absent"];
    let nowhere = std::process::Stdio::null();
    let started = Server::try_start_at(folder.path(), "127.0.0.1:0", &absent, nowhere);
    assert!(started.is_err());
    let backups = folder.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    let server = Server::start(folder.path(), &["--backups", backups.to_str().unwrap()]);
    let mut client = server.client();
    client.send(b"SET oak 1\r\nCAMBIUM.BACKUP first\r\n");
    assert_eq!(
        (client.answer(), client.answer()),
        ("+OK".to_string(), "+OK".to_string())
    );
    for name in ["../x", "/tmp/x", "a/b", "", "."] {
        assert!(
            client
                .call(&format!("CAMBIUM.BACKUP {name}"))
                .starts_with("-ERR a backup's name")
        );
    }
    drop(client);
    server.terminate();
    std::fs::rename(backups.join("first"), folder.path().join("copies")).unwrap();
    std::fs::create_dir(folder.path().join("second")).unwrap();
    std::fs::rename(
        folder.path().join("copies"),
        folder.path().join("second/store"),
    )
    .unwrap();
    let server = Server::start(&folder.path().join("second"), &[]);
    assert_eq!(server.client().call("GET oak"), "1");
}

#[test]
fn engines_without_an_order_serve_strings() {
    for engine in ["zdb", "alphard"] {
        let folder = folder();
        let set = if engine == "zdb" {
            "keys=string"
        } else {
            "direct=off"
        };
        let server = Server::start(folder.path(), &["--engine", engine, "--set", set]);
        let mut client = server.client();
        client.script(&[
            ("SET oak 1", "+OK"),
            ("SET short 1 PX 20", "+OK"),
            ("INCR oak", ":2"),
            ("SELECT 1", "+OK"),
            ("SET ash 1", "+OK"),
            ("SELECT 0", "+OK"),
        ]);
        assert!(client.call("HSET hash f v").starts_with("-ERR engine"));
        std::thread::sleep(std::time::Duration::from_millis(50));
        client.script(&[
            ("SCAN 0", "[0 [oak]]"),
            ("KEYS *", "[oak]"),
            ("DBSIZE", ":1"),
            ("RANDOMKEY", "oak"),
        ]);
        client.script(&[("SET long 1 PX 200", "+OK")]);
        server.kill();
        std::thread::sleep(std::time::Duration::from_millis(200));
        let server = Server::start(folder.path(), &[]);
        let mut client = server.client();
        client.script(&[
            ("DBSIZE", ":1"),
            ("FLUSHDB", "+OK"),
            ("DBSIZE", ":0"),
            ("GET oak", "nil"),
            ("SELECT 1", "+OK"),
            ("GET ash", "1"),
        ]);
    }
}
