//! Hashes.

use crate::harness::{Server, folder};

#[test]
fn hashes_have_their_commands() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.script(&[
        ("HSET h a 1 b 2", ":2"),
        ("HSET h a 3 c 4", ":1"),
        (
            "HSET h a",
            "-ERR wrong number of arguments for 'hset' command",
        ),
        (
            "HSET h a 1 b",
            "-ERR wrong number of arguments for 'hset' command",
        ),
        ("HGET h a", "3"),
        ("HGET h x", "nil"),
        ("HGET none x", "nil"),
        ("HMGET h a x c", "[3 nil 4]"),
        ("HGETALL h", "[a 3 b 2 c 4]"),
        ("HKEYS h", "[a b c]"),
        ("HVALS h", "[3 2 4]"),
        ("HLEN h", ":3"),
        ("HSTRLEN h a", ":1"),
        ("HEXISTS h a", ":1"),
        ("HEXISTS h x", ":0"),
        ("HSETNX h a 9", ":0"),
        ("HSETNX h d 9", ":1"),
        ("HMSET h e 1", "+OK"),
        ("HINCRBY h a 4", ":7"),
        ("HINCRBYFLOAT h a 0.5", "7.5"),
        ("HINCRBY h a 1", "-ERR hash value is not an integer"),
        ("HSET h text x", ":1"),
        ("HINCRBYFLOAT h text 1", "-ERR hash value is not a float"),
        ("HINCRBYFLOAT h text inf", "-ERR value is NaN or Infinity"),
        ("HINCRBYFLOAT h text nan", "-ERR value is not a valid float"),
        (
            "HINCRBYFLOAT h text -nan",
            "-ERR value is not a valid float",
        ),
        (
            "HINCRBYFLOAT large f 1e400",
            &format!("1{}", "0".repeat(400)),
        ),
        ("DEL large", ":1"),
        ("HSCAN h 0 MATCH [ab]", "[0 [a 7.5 b 2]]"),
        ("HSCAN h 0 FOO", "-ERR syntax error"),
        ("HSCAN none 0 FOO", "[0 []]"),
        ("HSCAN none -1", "[0 []]"),
        ("HSCAN none x", "-ERR invalid cursor"),
        ("HDEL h a b x", ":2"),
        ("HDEL h c d e text", ":4"),
        ("EXISTS h", ":0"),
        ("DBSIZE", ":0"),
        ("SET s x", "+OK"),
        (
            "HSET s a 1",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        (
            "HGETALL s",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("HGETALL none", "[]"),
        (
            "HELLO 3 SETNAME me",
            "%[server redis version 7.0.15 proto :3 id :1 mode standalone role master modules []]",
        ),
        ("HSET h a 1", ":1"),
        ("HGETALL h", "%[a 1]"),
        ("GET none", "null"),
    ]);
}

#[test]
fn a_deleted_hash_leaves_nothing_behind() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    for number in 0..300 {
        client.call(&format!("HSET h field{number} value"));
    }
    client.script(&[
        ("DEL h", ":1"),
        ("HSET h other 1", ":1"),
        ("HGETALL h", "[other 1]"),
        ("SET h x", "+OK"),
        ("DEL h", ":1"),
    ]);
    drop(client);
    server.terminate();
    let store = cambium::open(folder.path().join("store")).unwrap();
    let keys: Vec<_> = store
        .iterate()
        .unwrap()
        .map(|entry| entry.unwrap().key)
        .collect();
    assert_eq!(keys, [&b"\xffstate"[..]]);
    store.close().unwrap();
}
