//! Strings, numbers, bits: answers and errors in Redis' words.

use crate::harness::{Server, folder};

const SYNTAX: &str = "-ERR syntax error";
const NOT_INTEGER: &str = "-ERR value is not an integer or out of range";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn set_has_all_its_options() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.script(&[
        ("GET oak", "nil"),
        ("SET oak a", "+OK"),
        ("GET oak", "a"),
        ("SET oak b NX", "nil"),
        ("SET elm b XX", "nil"),
        ("SET oak b XX GET", "a"),
        ("SET oak c NX GET", "b"),
        ("SET elm c NX GET", "nil"),
        ("GET elm", "c"),
        ("SET oak d EX 100", "+OK"),
        ("TTL oak", ":100"),
        ("SET oak d KEEPTTL", "+OK"),
        ("TTL oak", ":100"),
        ("SET oak d", "+OK"),
        ("TTL oak", ":-1"),
        ("SET oak d PXAT 99999999999999", "+OK"),
        ("PEXPIRETIME oak", ":99999999999999"),
        ("SET oak d EXAT 99999999999", "+OK"),
        ("EXPIRETIME oak", ":99999999999"),
        ("SET oak d NX XX", SYNTAX),
        ("SET oak d EX 1 PX 1", SYNTAX),
        ("SET oak d EX", SYNTAX),
        ("SET oak d EX x", NOT_INTEGER),
        (
            "SET oak d EX 0",
            "-ERR invalid expire time in 'set' command",
        ),
        (
            "SET oak d EX 9223372036854775807",
            "-ERR invalid expire time in 'set' command",
        ),
        (
            "SETEX oak 0 a",
            "-ERR invalid expire time in 'setex' command",
        ),
        ("PSETEX oak 100000 a", "+OK"),
        ("TTL oak", ":100"),
        (
            "SET oak",
            "-ERR wrong number of arguments for 'set' command",
        ),
        (
            "NOSUCH a b",
            "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b'",
        ),
        ("HSET hash a 1", ":1"),
        ("SET hash 1 GET", WRONG_TYPE),
        ("GET hash", WRONG_TYPE),
        ("SET hash 1", "+OK"),
        ("GET hash", "1"),
    ]);
}

#[test]
fn values_are_read_and_written_in_all_ways() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.script(&[
        ("MSET a 1 b 2", "+OK"),
        (
            "MSET a 1 b",
            "-ERR wrong number of arguments for 'mset' command",
        ),
        ("MGET a b c", "[1 2 nil]"),
        ("MSETNX c 3 a 9", ":0"),
        ("MSETNX c 3 d 4", ":1"),
        ("SETNX c 9", ":0"),
        ("GETSET a 5", "1"),
        ("GETDEL a", "5"),
        ("GETDEL a", "nil"),
        ("APPEND a ab", ":2"),
        ("APPEND a cd", ":4"),
        ("STRLEN a", ":4"),
        ("SETRANGE a 6 x", ":7"),
        ("GETRANGE a 0 3", "abcd"),
        ("GETRANGE a -1 -1", "x"),
        ("SUBSTR a 1 2", "bc"),
        ("SETRANGE a -1 x", "-ERR offset is out of range"),
        (
            "SETRANGE a 536870912 x",
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        ),
        ("SETRANGE none 5 ", ":0"),
        ("EXISTS none a a", ":2"),
        ("GETEX b EX 100", "2"),
        ("TTL b", ":100"),
        ("GETEX b PERSIST", "2"),
        ("TTL b", ":-1"),
        ("GETEX b EX 1 PX 1", SYNTAX),
        ("DEL a b nope", ":2"),
        ("UNLINK c", ":1"),
    ]);
}

#[test]
fn numbers_count_and_overflow() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    let overflow = "-ERR increment or decrement would overflow";
    client.script(&[
        ("INCR n", ":1"),
        ("INCRBY n 41", ":42"),
        ("DECR n", ":41"),
        ("DECRBY n 1", ":40"),
        (
            "DECRBY n -9223372036854775808",
            "-ERR decrement would overflow",
        ),
        ("SET n 9223372036854775807", "+OK"),
        ("INCR n", overflow),
        ("SET n x", "+OK"),
        ("INCR n", NOT_INTEGER),
        ("SET n 010", "+OK"),
        ("INCR n", NOT_INTEGER),
        ("SET n 10 EX 100", "+OK"),
        ("INCR n", ":11"),
        ("TTL n", ":100"),
        ("INCRBYFLOAT f 10.5", "10.5"),
        ("INCRBYFLOAT f 0.1", "10.6"),
        ("INCRBYFLOAT f -0.6", "10"),
        ("INCRBYFLOAT f x", "-ERR value is not a valid float"),
        ("INCRBYFLOAT f 0x10", "-ERR value is not a valid float"),
        (
            "INCRBYFLOAT f inf",
            "-ERR increment would produce NaN or Infinity",
        ),
        ("SET large 123456789012345678901", "+OK"),
        ("INCRBYFLOAT large 1.5", "123456789012345678902.5"),
        ("SET f abc", "+OK"),
        ("INCRBYFLOAT f 1", "-ERR value is not a valid float"),
    ]);
}

#[test]
fn bits_and_subsequences() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.script(&[
        ("SETBIT b 7 1", ":0"),
        ("SETBIT b 7 0", ":1"),
        ("SETBIT b 100 1", ":0"),
        ("STRLEN b", ":13"),
        ("GETBIT b 100", ":1"),
        ("GETBIT b 1000", ":0"),
        (
            "SETBIT b -1 1",
            "-ERR bit offset is not an integer or out of range",
        ),
        (
            "SETBIT b 4294967296 1",
            "-ERR bit offset is not an integer or out of range",
        ),
        ("SETBIT b 1 2", "-ERR bit is not an integer or out of range"),
        ("SET s foobar", "+OK"),
        ("BITCOUNT s", ":26"),
        ("BITCOUNT s 0 0", ":4"),
        ("BITCOUNT s 1 1", ":6"),
        ("BITCOUNT s 5 30 BIT", ":17"),
        ("BITCOUNT s 1", SYNTAX),
        ("MSET key1 ohmytext key2 mynewtext", "+OK"),
        ("LCS key1 key2", "mytext"),
        ("LCS key1 key2 LEN", ":6"),
        (
            "LCS key1 key2 IDX MINMATCHLEN 4 WITHMATCHLEN",
            "[matches [[[:4 :7] [:5 :8] :4]] len :6]",
        ),
        (
            "LCS key1 key2 LEN IDX",
            "-ERR If you want both the length and indexes, please just use IDX.",
        ),
    ]);
}

#[test]
fn options_are_read_as_redis_reads_them() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    server.client().script(&[
        ("SET k v KEEPTTL KEEPTTL", "+OK"),
        ("SET k v EX abc EX 0 EX 100", "+OK"),
        ("TTL k", ":100"),
        ("SET k v EXAT -1 EXAT 20000000000", "+OK"),
        ("EXPIRETIME k", ":20000000000"),
        ("SET k v EX EX EX 200", "+OK"),
        ("TTL k", ":200"),
        ("SET k v EX 10 EX", SYNTAX),
        ("SET k v EX 10 PX 10", SYNTAX),
        ("SET k v KEEPTTL EX 10", SYNTAX),
        ("SET k v PERSIST", SYNTAX),
        ("SET k v EX abc NX XX", SYNTAX),
        (
            "SET k v EX 10 EX abc",
            "-ERR value is not an integer or out of range",
        ),
        (
            "SET k v EX 10 EX 0",
            "-ERR invalid expire time in 'set' command",
        ),
        ("GETEX k EX 10 EX 300", "v"),
        ("TTL k", ":300"),
        ("GETEX k PERSIST PERSIST", "v"),
        ("TTL k", ":-1"),
        ("GETEX k PERSIST EX 10", SYNTAX),
        ("GETEX k KEEPTTL", SYNTAX),
        (
            "GETEX k EX 0",
            "-ERR invalid expire time in 'getex' command",
        ),
        ("BITCOUNT k 0 1 FOO", SYNTAX),
        (
            "BITCOUNT k a 1 FOO",
            "-ERR value is not an integer or out of range",
        ),
        // The options of a key that is not there are not read.
        ("GETEX none EX abc", "nil"),
        ("GETEX none FOO", SYNTAX),
        ("BITCOUNT none 0", ":0"),
        ("BITCOUNT none a b FOO", ":0"),
    ]);
}
