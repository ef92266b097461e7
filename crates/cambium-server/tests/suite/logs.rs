//! The log on standard error.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Server, folder};

/// The lines of a server that was started with these arguments, and was stopped.
fn lines(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let path = folder.join("log");
    let log = File::create(&path).unwrap();
    let server = Server::start_with_log(folder, arguments, log);
    assert_eq!(server.client().call("SET oak Quercus"), "+OK");
    server.terminate();
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(str::to_string).collect()
}

#[test]
fn events_are_lines_of_text_or_objects() {
    let folder = folder();
    let level = ["--log-level", "info"];
    let text = lines(folder.path(), &level);
    for told in [
        "opened engine=\"forest\"",
        "ready addresses=",
        "stopping signal=15",
        "stopped",
    ] {
        assert!(
            text.iter().any(|line| line.contains(told)),
            "{told}: {text:?}"
        );
    }
    let json = lines(
        folder.path(),
        &[&level[..], &["--log-format", "json"]].concat(),
    );
    let events: Vec<Value> = json
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told = |message: &str| events.iter().find(|event| event["message"] == message);
    let opened = told("opened").unwrap();
    assert_eq!(opened["level"], "INFO");
    assert_eq!(opened["engine"], "forest");
    assert!(opened["timestamp"].as_str().unwrap().ends_with('Z'));
    assert!(told("ready").is_some() && told("stopped").is_some());
}

#[test]
fn levels_leave_out_what_is_less_severe() {
    let folder = folder();
    assert_eq!(lines(folder.path(), &[]), Vec::<String>::new());
    assert_eq!(
        lines(folder.path(), &["--log-level", "off"]),
        Vec::<String>::new()
    );
}

#[test]
fn a_failed_start_is_told_in_the_form_of_the_log() {
    let folder = folder();
    let words = |arguments: &[&str]| {
        let ended = Command::new(env!("CARGO_BIN_EXE_cambium-server"))
            .arg("--dir")
            .arg(folder.path().join("store"))
            .args(["--resp", "127.0.0.1:0", "--databases", "0"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(!ended.status.success());
        String::from_utf8(ended.stderr).unwrap()
    };
    assert_eq!(
        words(&[]),
        "cambium-server: --databases 0: expected 1 to 240\n"
    );
    let event: Value = serde_json::from_str(&words(&["--log-format", "json"])).unwrap();
    assert_eq!(event["level"], "ERROR");
    assert_eq!(event["message"], "--databases 0: expected 1 to 240");
}

#[test]
fn clients_do_not_wait_for_the_reader_of_the_log() {
    let folder = folder();
    let password = folder.path().join("password");
    fs::write(&password, "acorn").unwrap();
    let (mut reader, writer) = UnixStream::pair().unwrap();
    let arguments = [
        "--log-level",
        "debug",
        "--password-file",
        password.to_str().unwrap(),
    ];
    let server = Server::start_with_log(folder.path(), &arguments, OwnedFd::from(writer));
    let mut client = server.client();
    // More lines than the socket and the server hold.
    const COUNT: usize = 20_000;
    client.send(&b"AUTH oak\r\n".repeat(COUNT));
    for _ in 0..COUNT {
        assert!(client.answer().starts_with("-WRONGPASS"));
    }
    assert_eq!(client.call("AUTH acorn"), "+OK");
    let text = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    drop(client);
    server.terminate();
    let text = text.join().unwrap().unwrap();
    assert!(
        text.contains("lines of the log are left out"),
        "{text:.2000}"
    );
    assert!(text.contains("stopped"), "{text:.2000}");
}
