//! MULTI, EXEC, WATCH.

use std::time::{Duration, Instant};

use crate::harness::{Server, folder};

#[test]
fn exec_runs_all_or_refuses() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.script(&[
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("MULTI", "+OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("SET oak 1", "+QUEUED"),
        ("INCR oak", "+QUEUED"),
        ("HGET oak f", "+QUEUED"),
        ("KEYS *", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        (
            "EXEC",
            "[+OK :2 -WRONGTYPE Operation against a key holding the wrong kind of value [oak] :1]",
        ),
        ("MULTI", "+OK"),
        ("SET oak 9", "+QUEUED"),
        (
            "NOSUCH",
            "-ERR unknown command 'NOSUCH', with args beginning with:",
        ),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.",
        ),
        ("MULTI", "+OK"),
        (
            "CLIENT FOO",
            "-ERR unknown subcommand 'FOO'. Try CLIENT HELP.",
        ),
        (
            "OBJECT FOO oak",
            "-ERR unknown subcommand 'FOO'. Try OBJECT HELP.",
        ),
        (
            "CONFIG hello",
            "-ERR unknown subcommand 'hello'. Try CONFIG HELP.",
        ),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.",
        ),
        ("GET oak", "2"),
        ("MULTI", "+OK"),
        ("SET oak 9", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("GET oak", "2"),
        ("MULTI", "+OK"),
        ("WATCH oak", "-ERR WATCH inside MULTI is not allowed"),
        ("EXEC", "[]"),
        ("MULTI", "+OK"),
        ("SAVE", "-ERR Command not allowed inside a transaction"),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.",
        ),
        ("MULTI", "+OK"),
        ("FLUSHDB", "+QUEUED"),
        ("SET elm 1", "+QUEUED"),
        ("KEYS *", "+QUEUED"),
        ("EXEC", "[+OK +OK [elm]]"),
    ]);
}

#[test]
fn a_wrong_number_of_arguments_aborts() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    let refused = "-EXECABORT Transaction discarded because of: wrong number of arguments for \
                   'exec' command";
    client.script(&[
        ("MULTI", "+OK"),
        ("SET oak 1", "+QUEUED"),
        ("EXEC now", refused),
        ("GET oak", "nil"),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("EXEC now", refused),
    ]);
    for command in [
        "GET",
        "MULTI now",
        "CLIENT|GETNAME x",
        "CONFIG|SET a",
        "OBJECT|ENCODING",
        "MEMORY|USAGE",
        "CLUSTER|KEYSLOT",
        "LATENCY|HISTORY",
        "PUBSUB|NUMPAT a",
        "SLOWLOG|LEN a",
    ] {
        let name = command.split(' ').next().unwrap().to_lowercase();
        let error = format!("-ERR wrong number of arguments for '{name}' command");
        client.script(&[
            ("MULTI", "+OK"),
            (&command.replace('|', " "), &error),
            (
                "EXEC",
                "-EXECABORT Transaction discarded because of previous errors.",
            ),
        ]);
    }
}

#[test]
fn watched_keys_that_change_void_exec() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let (mut client, mut other) = (server.client(), server.client());
    for change in [
        "SET oak 2",
        "DEL oak",
        "EXPIRE oak 100",
        "FLUSHDB",
        "RENAME oak elm",
        "APPEND oak x",
        "SETBIT oak 0 1",
        "SETBIT oak 8 0",
    ] {
        client.call("SET oak 1");
        client.script(&[("WATCH oak", "+OK")]);
        other.call(change);
        client.script(&[
            ("MULTI", "+OK"),
            ("SET ash 1", "+QUEUED"),
            ("EXEC", "nil-array"),
            ("EXISTS ash", ":0"),
        ]);
    }
    client.call("SET oak 1");
    client.script(&[("WATCH oak", "+OK")]);
    other.script(&[
        ("SET elm 2", "+OK"),
        ("GET oak", "1"),
        ("SETBIT oak 0 0", ":0"),
        ("SELECT 1", "+OK"),
        ("SET oak 1", "+OK"),
        ("SELECT 0", "+OK"),
    ]);
    client.script(&[("MULTI", "+OK"), ("INCR oak", "+QUEUED"), ("EXEC", "[:2]")]);
    client.script(&[("WATCH oak", "+OK"), ("UNWATCH", "+OK")]);
    other.call("SET oak 7");
    client.script(&[("MULTI", "+OK"), ("INCR oak", "+QUEUED"), ("EXEC", "[:8]")]);
}

#[test]
fn a_watched_key_that_expires_voids_exec() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    // It is watched while it is there, if the test is quick enough.
    for lifetime in [400, 4_000, 40_000].map(Duration::from_millis) {
        let begun = Instant::now();
        let set = format!("SET oak 1 PX {}", lifetime.as_millis());
        client.script(&[("UNWATCH", "+OK"), (&set, "+OK"), ("WATCH oak", "+OK")]);
        if begun.elapsed() < lifetime {
            std::thread::sleep(lifetime + Duration::from_millis(10));
            client.script(&[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "nil-array")]);
            return;
        }
    }
    panic!("no key is watched in time");
}
