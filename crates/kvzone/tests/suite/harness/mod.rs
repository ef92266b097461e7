//! Running the program that `crate::program` names with stores that need no library.
// Each test program uses a part of it.
#![allow(dead_code)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// The variable that makes a test program, which is `kvzone` too, be that.
pub const AS_PROGRAM: &str = "KVZONE_TEST_AS_PROGRAM";

pub fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::program());
    command.current_dir(folder).args(arguments);
    command.env(AS_PROGRAM, "1");
    command
}

pub fn kvzone(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

/// The standard output of a command, which must have ended well.
#[track_caller]
pub fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The messages of a command, which must have ended with this status.
#[track_caller]
pub fn said(output: &Output, status: i32) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    said
}

/// `run` with so little work that the numbers mean nothing.
pub fn run(folder: &Path, more: &[&str]) -> Output {
    let mut arguments = vec![
        "run", "--keys", "500", "--repeat", "1", "--json", "out.json",
    ];
    arguments.extend(more);
    kvzone(folder, &arguments)
}

pub fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "no {part:?} in {text}");
}

pub fn report(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("out.json")).unwrap()).unwrap()
}

pub fn runs(folder: &Path) -> Vec<Value> {
    report(folder)["runs"].as_array().unwrap().clone()
}

pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `matrix` with so little work that the numbers mean nothing.
pub fn matrix(folder: &Path, more: &[&str]) -> Output {
    let mut arguments = words(
        "matrix --quick --sizes 100:2000 --seconds 0.05 --sustained 1.2 --programs main \
        --budget 4MiB --json matrix.json --markdown matrix.md --html matrix.html --svg \
        matrix.svg",
    );
    arguments.extend(more);
    kvzone(folder, &arguments)
}

pub fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The units of a matrix: a line each behind the line with the conditions.
pub fn units(folder: &Path) -> Vec<Value> {
    let text = read(folder, "matrix.json");
    let lines = text.lines().skip(1);
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}
