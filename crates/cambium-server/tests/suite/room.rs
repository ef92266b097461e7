//! A disk without room: a reserve that no disk has makes every disk one.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::{Server, folder};

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
