//! Servers that are killed under load: what was answered is there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::{PATIENCE, Server, eventually, folder};

/// Clients that write numbered keys until the server is gone. Answers, by client, the number
/// of the last write that was answered, and of the last that was sent.
fn load(
    server: Server,
    clients: usize,
    time: Duration,
    end: impl FnOnce(Server),
) -> BTreeMap<usize, (u64, u64)> {
    let is_over = AtomicBool::new(false);
    let busy = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..clients)
            .map(|number| {
                let mut client = server.client();
                let (is_over, busy) = (&is_over, &busy);
                scope.spawn(move || {
                    let (mut answered, mut sent) = (0, 0);
                    while !is_over.load(Ordering::Relaxed) {
                        let next = sent + 1;
                        let command = format!("*3\r\n$3\r\nSET\r\n$1\r\n{number}\r\n${}\r\n{next}\r\n*2\r\n$4\r\nINCR\r\n$2\r\nn{number}\r\n*3\r\n$3\r\nSET\r\n${}\r\nk{number}.{next}\r\n$1\r\nx\r\n", next.to_string().len(), format!("k{number}.{next}").len());
                        if client.try_send(command.as_bytes()).is_err() {
                            break;
                        }
                        sent = next;
                        let answers: Vec<Option<String>> = (0..3).map(|_| client.try_answer()).collect();
                        if answers.iter().any(Option::is_none) {
                            break;
                        }
                        assert_eq!(answers[0].as_deref(), Some("+OK"));
                        answered = next;
                        busy.fetch_add(usize::from(next == 6), Ordering::Relaxed);
                    }
                    (number, (answered, sent))
                })
            })
            .collect();
        std::thread::sleep(time);
        eventually("the clients are answered", || {
            busy.load(Ordering::Relaxed) == clients
        });
        end(server);
        is_over.store(true, Ordering::Relaxed);
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    })
}

/// Holds a store against what its writers were answered.
fn verify(folder: &std::path::Path, writers: &BTreeMap<usize, (u64, u64)>, arguments: &[&str]) {
    let server = Server::start(folder, arguments);
    let mut client = server.client();
    let mut keys = 0;
    for (number, (answered, sent)) in writers {
        let value = client.call(&format!("GET {number}"));
        let last: u64 = value.parse().unwrap_or(0);
        assert!(
            (*answered..=*sent).contains(&last),
            "{number}: {last} of {answered}..={sent}"
        );
        let counted: u64 = client.call(&format!("GET n{number}")).parse().unwrap_or(0);
        assert!(counted.abs_diff(last) <= 1 && counted >= *answered);
        for written in 1..=*answered {
            assert_eq!(client.call(&format!("GET k{number}.{written}")), "x");
        }
        let tail = client.call(&format!("EXISTS k{number}.{sent} {number} n{number}"));
        keys +=
            answered + tail[1..].parse::<u64>().unwrap() - u64::from(sent == answered && *sent > 0);
    }
    assert_eq!(client.call("DBSIZE"), format!(":{keys}"));
    let listed = client.call("KEYS *");
    assert_eq!(
        listed.split(' ').filter(|key| *key != "[]").count() as u64,
        keys
    );
    assert_eq!(scan_all(&mut client), keys);
    drop(client);
    server.terminate();
}

fn scan_all(client: &mut crate::client::Client) -> u64 {
    let (mut cursor, mut found) = ("0".to_string(), 0);
    loop {
        let page = client.call(&format!("SCAN {cursor} COUNT 50"));
        let (next, keys) = page[1..].split_once(' ').unwrap();
        found += keys.matches(' ').count() as u64 + u64::from(keys != "[]]");
        cursor = next.to_string();
        if cursor == "0" {
            return found;
        }
    }
}

#[test]
fn killed_servers_keep_answered_writes_and_exact_counts() {
    for arguments in [
        &["--durability", "synced"][..],
        &[],
        &["--engine", "wisckey"],
        &["--engine", "wisckey", "--durability", "synced"],
    ] {
        let folder = folder();
        let server = Server::start(folder.path(), arguments);
        let writers = load(server, 8, Duration::from_millis(700), Server::kill);
        assert!(
            writers.values().all(|(answered, _)| *answered > 5),
            "{writers:?}"
        );
        verify(folder.path(), &writers, arguments);
    }
}

#[test]
fn a_server_that_is_terminated_under_load_loses_nothing() {
    let folder = folder();
    let arguments = ["--durability", "buffered"];
    let server = Server::start(folder.path(), &arguments);
    let writers = load(server, 8, Duration::from_millis(500), Server::terminate);
    assert!(
        writers.values().all(|(answered, _)| *answered > 5),
        "{writers:?}"
    );
    verify(folder.path(), &writers, &arguments);
}

#[test]
fn a_second_signal_ends_at_once() {
    let folder = folder();
    let mut server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.send(b"DEBUG SLEEP 3600\r\n");
    eventually("the command waits", || {
        server
            .client()
            .call("INFO clients")
            .contains("blocked_clients:1")
    });
    server.signal("TERM");
    let status = server.wait(Duration::from_millis(500));
    assert_eq!(status, None, "the first signal waits for the command");
    server.signal("INT");
    let status = server.wait(PATIENCE).expect("an end at once");
    assert!(!status.success());
    assert!(client.is_closed());
}
