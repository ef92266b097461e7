//! A disk without room: a reserve that no disk has makes every disk one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use crate::client::encoded;
use crate::harness::{Server, eventually, folder};

const FULL: [&str; 2] = ["--reserve", "1000000000000000000"];

#[test]
fn a_full_disk_refuses_writes_and_nothing_else() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    server.client().script(&[
        ("MSET oak Quercus elm Ulmus fir Abies yew Taxus", "+OK"),
        ("HSET tree name ash height 40", ":2"),
    ]);
    server.terminate();
    let (server, http) = Server::start_with(folder.path(), "http", &FULL);
    let mut client = server.client();
    for refused in ["SET ash 1", "INCR n", "HSET tree age 100", "RENAME oak ash"] {
        let answer = client.call(refused);
        let expected = "-MISCONF Errors writing to the AOF file: No space left on device";
        assert!(answer.starts_with(expected), "{refused}: {answer}");
        assert!(answer.contains("CAMBIUM.COMPACT"), "{answer}");
    }
    client.script(&[
        ("GET oak", "Quercus"),
        ("DEL oak", ":1"),
        ("UNLINK elm", ":1"),
        ("GETDEL fir", "Abies"),
        ("HDEL tree height", ":1"),
        ("DBSIZE", ":2"),
        ("CAMBIUM.COMPACT", "+OK"),
        // Nothing of a transaction runs, so that no value is deleted that was to be moved.
        ("MULTI", "+OK"),
        ("DEL yew", "+QUEUED"),
    ]);
    assert!(client.call("SET ash Taxus").starts_with("-MISCONF"));
    assert!(client.call("EXEC").starts_with("-EXECABORT"));
    client.script(&[("GET yew", "Taxus"), ("FLUSHALL", "+OK"), ("DBSIZE", ":0")]);

    let mut probe = TcpStream::connect(http).unwrap();
    let request = b"GET /readyz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    probe.write_all(request).unwrap();
    let mut answer = String::new();
    probe.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.ends_with("the disk is full\n"), "{answer}");
    server.terminate();

    let server = Server::start(folder.path(), &["--reserve", "0"]);
    assert_eq!(server.client().call("SET ash 1"), "+OK");
}

/// A store of a fixed size is full long before its disk is. Keys do not expire actively.
fn full_store(folder: &Path, block_bytes: &str, lifetime: &str) -> (Server, u64) {
    let block = format!("block_bytes={block_bytes}");
    let arguments = ["--engine", "alphard", "--set", "size=1MiB", "--set", &block];
    let server = Server::start(folder, &arguments);
    let mut client = server.client();
    client.call("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut keys = 0;
    while client.call(&format!("SET key{keys} value{lifetime}")) == "+OK" {
        keys += 1;
    }
    (server, keys)
}

#[test]
fn a_full_store_of_a_fixed_size_takes_deletes() {
    for block_bytes in ["512", "4096"] {
        let folder = folder();
        let (server, keys) = full_store(folder.path(), block_bytes, "");
        let mut client = server.client();
        assert!(client.call("SET new value").starts_with("-MISCONF"));
        let many: Vec<String> = (1..300).map(|number| format!("key{number}")).collect();
        client.script(&[
            ("DEL key0", ":1"),
            (&format!("DEL {}", many.join(" ")), ":299"),
            ("DBSIZE", &format!(":{}", keys - 300)),
        ]);
        server.terminate();
        let server = Server::start(folder.path(), &[]);
        let mut client = server.client();
        client.script(&[
            ("DBSIZE", &format!(":{}", keys - 300)),
            ("FLUSHALL", "+OK"),
            ("DBSIZE", ":0"),
            ("GET key301", "nil"),
            ("SET new value", "+OK"),
        ]);
        server.terminate();
        let server = Server::start(folder.path(), &[]);
        assert_eq!(server.client().call("DBSIZE"), ":1");
    }
}

#[test]
fn expiry_empties_a_full_store_of_a_fixed_size() {
    for block_bytes in ["512", "4096"] {
        let folder = folder();
        let (server, _) = full_store(folder.path(), block_bytes, " PX 1");
        let mut client = server.client();
        // In one round: the large value takes the deletion of the expired key with it.
        let mut round = encoded(&[b"SET", b"large", &[7; 100_000]]);
        round.extend_from_slice(b"GET key1\r\nGET key1\r\n");
        client.send(&round);
        assert!(client.answer().starts_with("-MISCONF"));
        assert_eq!([client.answer(), client.answer()], ["nil", "nil"]);
        client.call("DEBUG SET-ACTIVE-EXPIRE 1");
        // Writes that are refused go on beside the expiry.
        eventually("a write is taken", || client.call("SET new value") == "+OK");
        eventually("all has expired", || client.call("DBSIZE") == ":1");
        client.script(&[("GET key1", "nil"), ("GET new", "value")]);
        server.terminate();
        let server = Server::start(folder.path(), &[]);
        assert_eq!(server.client().call("DBSIZE"), ":1");
    }
}
