//! Few descriptors: connections leave some for the files of the store.

use std::io::Read;
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::client::Client;
use crate::harness::{PATIENCE, Server, eventually, folder};

/// More than the server may have descriptors.
const CONNECTIONS: usize = 80;

#[test]
fn connections_leave_descriptors_for_the_store() {
    let starter = ["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"].map(str::to_string);
    for engine in ["forest", "wisckey", "zdb"] {
        let folder = folder();
        let arguments = ["--engine", engine, "--thrift", "127.0.0.1:0"];
        let log = Stdio::inherit();
        let server =
            Server::try_start_by(&starter, folder.path(), "127.0.0.1:0", &arguments, log).unwrap();
        let (resp, thrift) = server.address.split_once(" thrift://").unwrap();
        let mut client = Client::connect(resp);
        client.script(&[
            ("CONFIG GET maxclients", "[maxclients 32]"),
            (
                "CONFIG SET maxclients 33",
                "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The \
                 operating system is not able to handle the specified number of clients, try \
                 with 32",
            ),
            ("CONFIG SET maxclients 31", "+OK"),
            ("CONFIG SET maxclients 32", "+OK"),
        ]);
        let mut others: Vec<Client> = (0..CONNECTIONS).map(|_| Client::connect(resp)).collect();
        let last = others.last_mut().unwrap();
        assert_eq!(last.answer(), "-ERR max number of clients reached");
        client.script(&[("SET oak Quercus", "+OK")]);
        drop(others);
        eventually("there is room again", || {
            let mut next = Client::connect(resp);
            next.try_send(b"PING\r\n").is_ok() && next.try_answer().as_deref() == Some("+PONG")
        });
        let others: Vec<TcpStream> = (0..CONNECTIONS)
            .map(|_| TcpStream::connect(thrift).unwrap())
            .collect();
        let mut last = others.last().unwrap();
        last.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(last.read(&mut [0]).unwrap(), 0, "it is closed");
        client.script(&[("SET elm Ulmus", "+OK"), ("CAMBIUM.COMPACT", "+OK")]);
    }
}

/// Runs `step` while the server can open nothing.
fn without_descriptors<T>(server: &Server, step: impl FnOnce() -> T) -> T {
    let process = Pid::from_raw(server.id() as i32);
    let none = Rlimit {
        current: Some(3),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    let before = prlimit(process, Resource::Nofile, none).unwrap();
    let answer = step();
    prlimit(process, Resource::Nofile, before).unwrap();
    answer
}

#[test]
fn connections_that_wait_are_accepted_when_there_are_descriptors_again() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = without_descriptors(&server, || {
        let mut client = server.client();
        client.send(b"PING\r\n");
        // The server fails to accept it meanwhile.
        std::thread::sleep(Duration::from_millis(200));
        client
    });
    assert_eq!(client.answer(), "+PONG");
}

#[test]
fn a_store_that_lacked_a_descriptor_takes_writes_again() {
    for engine in ["forest", "wisckey", "zdb"] {
        let folder = folder();
        let server = Server::start(folder.path(), &["--engine", engine]);
        let mut client = server.client();
        client.script(&[("PING", "+PONG")]);
        let refused = without_descriptors(&server, || client.call("SET oak Quercus"));
        let expected = "-MISCONF Errors writing to the AOF file: open";
        assert!(refused.starts_with(expected), "{engine}: {refused}");
        client.script(&[("SET oak Quercus", "+OK"), ("GET oak", "Quercus")]);
        server.terminate();
    }
}
