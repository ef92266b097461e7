//! Values that are not in memory are fetched by threads, beside other commands.

use crate::client::Client;
use crate::harness::{PATIENCE, Server, folder};
use crate::http;
use crate::thrift::{self, Entries, Keys};

/// Every read of the store goes to the device.
const PAST_MEMORY: [&str; 4] = ["--set", "direct=on", "--set", "cache_bytes=0"];
const CLIENTS: usize = 4;
const TURNS: usize = 100;

/// One client's turns: each a pipeline whose commands need values that the others write.
fn turns(client: &mut Client, own: usize) {
    client.call(&format!("SET {own}:0 value0"));
    for turn in 1..=TURNS {
        let before = turn - 1;
        let commands = [
            "INCR counter".to_string(),
            format!("GET {own}:{before}"),
            format!("SET {own}:{turn} value{turn}"),
            format!("MGET {own}:{before} {own}:{turn} {own}:none"),
            "HINCRBY hash field 1".to_string(),
            format!("GETDEL {own}:{before}"),
            format!("EXISTS {own}:{before} {own}:{turn}"),
            format!("APPEND log{own} x"),
        ];
        client.send((commands.join("\r\n") + "\r\n").as_bytes());
        let answers = [(); 8].map(|()| client.answer());
        let expected = [
            format!("value{before}"),
            "+OK".to_string(),
            format!("[value{before} value{turn} nil]"),
        ];
        assert_eq!(answers[1..4], expected);
        assert_eq!(
            answers[5..8],
            [
                format!("value{before}"),
                ":1".to_string(),
                format!(":{turn}")
            ]
        );
    }
}

#[test]
fn clients_that_need_values_of_the_device_see_every_write() {
    for arguments in [&PAST_MEMORY[..], &["--engine", "alphard"]] {
        let folder = folder();
        let has_hashes = arguments.len() == PAST_MEMORY.len();
        let (server, address) = http::start(folder.path(), arguments);
        std::thread::scope(|scope| {
            for own in 0..CLIENTS {
                let mut client = server.client();
                scope.spawn(move || turns(&mut client, own));
            }
        });
        let total = CLIENTS * TURNS;
        let mut client = server.client();
        assert_eq!(client.call("GET counter"), total.to_string());
        if has_hashes {
            assert_eq!(client.call("HGET hash field"), total.to_string());
            let (_, metrics) = http::get(&address, "/metrics");
            let fetched = http::sample(&metrics, "cambium_fetch_seconds_count");
            assert!(fetched > Some(0.0), "no value was fetched");
        }
        drop(client);
        server.terminate();
    }
}

#[test]
fn all_values_that_a_command_lacks_are_fetched_at_once() {
    const COUNT: usize = 1_000;
    let keys: Vec<String> = (0..COUNT).map(|number| format!("key{number}")).collect();
    let all = keys.join(" ");
    let pairs: Vec<String> = keys.iter().map(|key| format!("{key} x")).collect();
    let (expected, pairs) = (vec!["x"; COUNT].join(" "), pairs.join(" "));
    for arguments in [&PAST_MEMORY[..], &["--engine", "alphard"]] {
        let folder = folder();
        let server = Server::start(folder.path(), arguments);
        assert_eq!(server.client().call(&format!("MSET {pairs}")), "+OK");
        server.terminate();
        for (command, answer) in [
            (format!("MGET {all}"), format!("[{expected}]")),
            (format!("EXISTS {all}"), format!(":{COUNT}")),
            (format!("MSETNX {pairs}"), ":0".to_string()),
            (format!("MSET {pairs}"), "+OK".to_string()),
            (format!("DEL {all}"), format!(":{COUNT}")),
        ] {
            // A server that has just started has no value in memory.
            let (server, address) = http::start(folder.path(), arguments);
            assert_eq!(server.client().call(&command), answer);
            let (_, metrics) = http::get(&address, "/metrics");
            let fetched = http::sample(&metrics, "cambium_fetch_seconds_count");
            let name = &command[..8];
            assert_eq!(fetched, Some(COUNT as f64), "{name} {arguments:?}");
            server.terminate();
        }
        // Clients of Thrift.
        let server = Server::start(folder.path(), arguments);
        assert_eq!(server.client().call(&format!("MSET {pairs}")), "+OK");
        server.terminate();
        let words: Vec<&str> = keys.iter().map(String::as_str).collect();
        let entries: Vec<(&str, &str)> = words.iter().map(|key| (*key, "x")).collect();
        for (name, argument) in [
            ("multiGet", Keys(1, &words)),
            ("multiPut", Entries(1, &entries)),
            ("multiRemove", Keys(1, &words)),
        ] {
            let ports = [arguments, &["--thrift", "127.0.0.1:0"]].concat();
            let (server, addresses) = http::start(folder.path(), &ports);
            let (address, own) = addresses.split_once(" thrift://").unwrap();
            let answer = thrift::Client::connect(own, thrift::FORMS[0]).call(name, &[argument]);
            assert!(!answer.starts_with("{1:"), "{answer}");
            let (_, metrics) = http::get(address, "/metrics");
            let fetched = http::sample(&metrics, "cambium_fetch_seconds_count");
            assert_eq!(fetched, Some(COUNT as f64), "{name} {arguments:?}");
            server.terminate();
        }
    }
}

#[test]
fn a_server_that_stops_answers_commands_that_wait_for_values() {
    let folder = folder();
    let mut server = Server::start(folder.path(), &PAST_MEMORY);
    let mut client = server.client();
    let count = 500;
    for number in 0..count {
        client.call(&format!("SET key{number} value{number}"));
    }
    let commands: String = (0..count)
        .map(|number| format!("GET key{number}\r\n"))
        .collect();
    client.send(commands.as_bytes());
    assert_eq!(client.answer(), "value0");
    server.signal("TERM");
    for number in 1..count {
        assert_eq!(client.answer(), format!("value{number}"));
    }
    let status = server.wait(PATIENCE);
    assert!(status.is_some_and(|status| status.success()));
}
