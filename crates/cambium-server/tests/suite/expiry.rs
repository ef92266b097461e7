//! Keys that expire.

use std::time::{Duration, UNIX_EPOCH};

use crate::client::Client;
use crate::harness::{Server, eventually, folder};

#[test]
fn expire_has_its_conditions() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.script(&[
        ("EXPIRE oak 10", ":0"),
        ("SET oak a", "+OK"),
        ("TTL oak", ":-1"),
        ("TTL none", ":-2"),
        ("EXPIRE oak 100 XX", ":0"),
        ("EXPIRE oak 100 GT", ":0"),
        ("EXPIRE oak 100 LT", ":1"),
        ("EXPIRE oak 200 NX", ":0"),
        ("EXPIRE oak 50 GT", ":0"),
        ("EXPIRE oak 200 GT", ":1"),
        ("EXPIRE oak 100 LT", ":1"),
        ("TTL oak", ":100"),
        (
            "EXPIRE oak 1 NX XX",
            "-ERR NX and XX, GT or LT options at the same time are not compatible",
        ),
        (
            "EXPIRE oak 1 GT LT",
            "-ERR GT and LT options at the same time are not compatible",
        ),
        ("EXPIRE oak 1 AB", "-ERR Unsupported option AB"),
        (
            "EXPIRE oak 9223372036854775807",
            "-ERR invalid expire time in 'expire' command",
        ),
        ("PERSIST oak", ":1"),
        ("PERSIST oak", ":0"),
        ("PEXPIREAT oak 99999999999999", ":1"),
        ("PEXPIRETIME oak", ":99999999999999"),
        ("EXPIREAT oak 1", ":1"),
        ("EXISTS oak", ":0"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn expired_keys_are_never_answered_and_not_counted() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    for number in 0..1_200 {
        client.call(&format!("SET key{number} value PX 300"));
    }
    client.call("SET stays value");
    // Those of the first second may have expired: the test is slow, not the server.
    std::thread::sleep(Duration::from_millis(310));
    client.script(&[
        ("GET key1", "nil"),
        ("KEYS *", "[stays]"),
        ("SCAN 0 COUNT 10000", "[0 [stays]]"),
        ("DBSIZE", ":1"),
        ("RANDOMKEY", "stays"),
    ]);
}

/// Writes keys that are all due at one moment, and waits for it. They have more time where the
/// server did not write all of them before.
fn write_due(client: &mut Client, count: usize) {
    let now = || UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    for lifetime in [1_000, 10_000, 100_000] {
        let until = now() + lifetime;
        let commands: String = (0..count)
            .map(|number| format!("SET due{number} value PXAT {until}\r\n"))
            .collect();
        client.send(commands.as_bytes());
        (0..count).for_each(|_| assert_eq!(client.answer(), "+OK"));
        if now() < until {
            return std::thread::sleep(Duration::from_millis(until + 100 - now()));
        }
        client.call("FLUSHDB");
    }
    panic!("{count} keys are not written in time");
}

#[test]
fn a_count_does_not_wait_for_all_keys_that_are_due() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.call("DEBUG SET-ACTIVE-EXPIRE 0");
    write_due(&mut client, 5_000);
    for left in [":3000", ":1000", ":0"] {
        assert_eq!(client.call("DBSIZE"), left);
    }
}

#[test]
fn walks_leave_expired_keys_out_without_deleting_all_of_them() {
    for arguments in [&[][..], &["--engine", "zdb"]] {
        let folder = folder();
        let server = Server::start(folder.path(), arguments);
        let mut client = server.client();
        client.call("DEBUG SET-ACTIVE-EXPIRE 0");
        write_due(&mut client, 3_000);
        client.call("SET stays value");
        client.script(&[("KEYS *", "[stays]")]);
        if arguments.is_empty() {
            let page = client.call("SCAN 0 COUNT 20");
            assert!(!page.contains("due"), "{page}");
            let info = client.call("INFO stats");
            let is_few =
                ["19", "20"].map(|count| info.contains(&format!("expired_keys:{count}\r")));
            assert!(is_few.contains(&true), "{info}");
        }
        client.script(&[
            ("RANDOMKEY", "stays"),
            ("SCAN 0 COUNT 10000 TYPE string", "[0 [stays]]"),
        ]);
    }
}

#[test]
fn lifetimes_are_exact_to_the_millisecond() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    let now = || UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    for _ in 0..50 {
        let until = now() + 100_000;
        client.call(&format!("SET oak a PXAT {until}"));
        let left: i64 = client.call("PTTL oak")[1..].parse().unwrap();
        assert!((until - now()..=100_000).contains(&left), "{left}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn expired_keys_go_by_themselves() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    for number in 0..50 {
        client.call(&format!("SET key{number} value PX 50"));
    }
    // INFO touches no key.
    eventually("the keys are deleted", || {
        client.call("INFO stats").contains("expired_keys:50")
    });
    client.script(&[("DBSIZE", ":0")]);
}

#[test]
fn lifetimes_survive_a_restart() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.script(&[
        ("SET long a EX 1000", "+OK"),
        ("SET short a PX 200", "+OK"),
        ("HSET hash f v", ":1"),
        ("PEXPIRE hash 200", ":1"),
    ]);
    server.kill();
    std::thread::sleep(Duration::from_millis(210));
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.script(&[
        ("EXISTS short hash", ":0"),
        ("DBSIZE", ":1"),
        ("TTL long", ":1000"),
    ]);
}

/// The count ends before its first deletion, and runs again when another thread has read a value.
#[test]
fn a_count_that_reads_the_device_leaves_expired_keys_out() {
    let folder = folder();
    let arguments = ["--engine", "alphard", "--set", "cache_bytes=0"];
    let server = Server::start(folder.path(), &arguments);
    let mut client = server.client();
    client.call("DEBUG SET-ACTIVE-EXPIRE 0");
    for number in 0..50 {
        client.call(&format!("SET key{number} value PX 1"));
    }
    std::thread::sleep(Duration::from_millis(2));
    client.script(&[("DBSIZE", ":0"), ("GET key1", "nil"), ("DBSIZE", ":0")]);
}
