//! Changes and consumers from the command line.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::harness::Place;

fn with_changes() -> Place {
    let place = Place::with_unordered_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    place.run(["put", "s", "elm", "Ulmus"]).done();
    place.run(["delete", "s", "oak"]).done();
    place
}

fn batches(lines: &str) -> Vec<serde_json::Value> {
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_line_is_a_batch_with_its_numbers() {
    let place = with_changes();
    let all = batches(&place.run(["changes", "s"]).done());
    assert_eq!(all.len(), 3);
    let first = &all[0]["changes"][0];
    assert_eq!(first["operation"], "put");
    assert_eq!(
        (&first["key"], &first["value"]),
        (&"oak".into(), &"Quercus".into())
    );
    assert_eq!(all[2]["changes"][0]["operation"], "delete");
    let last = all[0]["last"].to_string();
    let rest = place
        .run(["changes", "s", "--after", &last, "--synced"])
        .done();
    assert_eq!(batches(&rest), all[1..]);
    let text = place.run(["changes", "s", "--format", "text"]).done();
    let numbers: Vec<&str> = text
        .lines()
        .map(|line| line.split_once('\t').unwrap().1)
        .collect();
    assert_eq!(
        numbers,
        ["put\t\toak\tQuercus", "put\t\telm\tUlmus", "delete\t\toak"]
    );
    let future = place.run(["changes", "s", "--after", "1000"]);
    future.refused(2, &["1000"]);
}

#[test]
fn a_consumer_sees_each_batch_once() {
    let place = with_changes();
    let read = || place.run(["changes", "s", "--consumer", "mirror"]).done();
    let begun = place.run(["changes", "s", "--consumer", "mirror", "--after", "0"]);
    assert_eq!(batches(&begun.done()).len(), 3);
    assert_eq!(read(), "");
    place.run(["put", "s", "ash", "Fraxinus"]).done();
    let new = batches(&read());
    assert_eq!(new.len(), 1);
    assert_eq!(new[0]["changes"][0]["key"], "ash");
    assert_eq!(read(), "");
    let listed = place.run(["consumers", "s"]).done();
    assert_eq!(listed, format!("mirror\t{}\n", new[0]["last"]));
    place.run(["consumers", "s", "--remove", "mirror"]).done();
    let again = place.run(["consumers", "s", "--remove", "mirror"]);
    again.refused(1, &["mirror"]);
    assert_eq!(place.run(["consumers", "s"]).done(), "");
}

#[test]
fn a_follower_shows_what_other_programs_write() {
    let place = with_changes();
    let follow = [
        "changes",
        "s",
        "--follow",
        "--consumer",
        "mirror",
        "--after",
        "0",
    ];
    let mut follower = place.command(follow);
    let mut follower = follower.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || batches(&lines.next().unwrap().unwrap())[0]["changes"][0]["key"].clone();
    assert_eq!([next(), next(), next()], ["oak", "elm", "oak"]);
    for key in ["ash", "yew"] {
        // The follower has the store open for moments.
        while !place
            .command(["put", "s", key, ""])
            .output()
            .unwrap()
            .status
            .success()
        {}
        assert_eq!(next(), key);
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn a_shell_shows_changes_and_does_not_follow() {
    let place = with_changes();
    let said = place.run_with_input(["shell", "s"], b"changes --format text\n");
    assert_eq!(said.done().lines().count(), 3);
    let refused = place.run_with_input(["shell", "s"], b"changes --follow\n");
    refused.refused(2, &["not in a shell"]);
}

/// A program that keeps a store open and writes it.
#[test]
fn a_store_is_read_and_followed_while_another_program_writes_it() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    let mut writer = place.command(["shell", "s"]);
    let writer = writer.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut writer = writer.spawn().unwrap();
    let mut commands = writer.stdin.take().unwrap();
    let mut put = |key: &str| writeln!(commands, "put {key} value").unwrap();
    put("ash");
    let follow = ["changes", "s", "--follow", "--after", "0"];
    let mut follower = place.command(follow);
    let mut follower = follower.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || batches(&lines.next().unwrap().unwrap())[0]["changes"][0]["key"].clone();
    assert_eq!([next(), next()], ["oak", "ash"]);
    for key in ["fir", "yew"] {
        put(key);
        assert_eq!(next(), key);
        assert_eq!(place.run(["get", "s", key]).done(), "value");
        let scanned = place.run(["scan", "s", "--prefix", key]).done();
        assert_eq!(scanned.lines().count(), 1);
        place.run(["stats", "s"]).done();
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
    drop(commands);
    assert!(writer.wait().unwrap().success());
}
