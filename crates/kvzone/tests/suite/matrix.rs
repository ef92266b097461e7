//! `kvzone matrix`, as people and scripts meet it: one page, what was measured kept, and
//! a store that fails shown as failed where it failed.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::harness::{folder, kvzone, text};

/// So little work that the numbers mean nothing.
fn matrix(folder: &Path, more: &[&str]) -> Output {
    let mut arguments = vec![
        "matrix",
        "--quick",
        "--sizes",
        "100:2000",
        "--seconds",
        "0.05",
        "--sustained",
        "1.2",
        "--programs",
        "main",
        "--budget",
        "4MiB",
        "--json",
        "matrix.json",
        "--markdown",
        "matrix.md",
        "--html",
        "matrix.html",
        "--svg",
        "matrix.svg",
    ];
    arguments.extend(more);
    kvzone(folder, &arguments)
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Behind the line with the conditions, a line for each.
fn units(folder: &Path) -> Vec<Value> {
    let text = read(folder, "matrix.json");
    let lines = text.lines().skip(1);
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn every_cell_of_every_store_is_on_the_page_and_a_failed_store_is_shown_as_failed() {
    let folder = folder();
    let stores = [
        "--stores",
        "forest,wisckey,zdb,memory,crashing",
        "--repeat",
        "1",
    ];
    let done = matrix(folder.path(), &stores);
    assert_eq!(done.status.code(), Some(3), "a store crashed");
    let (printed, page) = (text(&done.stdout), read(folder.path(), "matrix.html"));
    let markdown = read(folder.path(), "matrix.md");
    for cell in [
        "fill, random order",
        "read at random",
        "scan 100, a quarter overwritten",
        "whole store backwards",
        "sustained, slowest second : mean",
        "sustained, greatest space : live",
        "open after a close",
    ] {
        for (text, what) in [(&printed, "text"), (&page, "page"), (&markdown, "Markdown")] {
            assert!(text.contains(cell), "{cell} in the {what}:\n{text}");
        }
    }
    let line = |cell: &str| {
        let found = markdown
            .lines()
            .find(|line| line.starts_with(&format!("| {cell} |")));
        found
            .unwrap_or_else(|| panic!("{cell} in {markdown}"))
            .to_string()
    };
    // forest, wisckey, zdb, memory, crashing, null.
    let scan = line("scan 10");
    let entries: Vec<&str> = scan.trim_matches('|').split(" | ").map(str::trim).collect();
    let entries = &entries[4..];
    assert!(
        entries[0].ends_with("/s") && entries[1].ends_with("/s"),
        "{scan}"
    );
    assert_eq!((entries[2], entries[4]), ("n/a", "crashed"), "{scan}");
    assert!(entries[3].ends_with("/s"), "{scan}");
    assert!(read(folder.path(), "matrix.svg").starts_with("<svg"));
    // One round allows no verdict.
    assert!(
        !markdown.contains("| ahead |") && !markdown.contains("| behind |"),
        "{markdown}"
    );
    assert!(
        markdown.contains("crashing, fill, random order"),
        "{markdown}"
    );
    let crashed = units(folder.path())
        .iter()
        .filter(|unit| unit["store"] == "crashing")
        .count();
    let again = matrix(folder.path(), &[&stores[..], &["--resume"]].concat());
    let told = text(&again.stderr);
    assert_eq!((crashed, again.status.code()), (1, Some(3)), "{told}");
    assert_eq!(
        told.matches("crashing crashed").count(),
        1,
        "tried again: {told}"
    );
    assert!(!told.contains("forest"), "{told}");
}

#[test]
fn what_was_measured_is_kept_and_gone_on_with() {
    let folder = folder();
    let stores = ["--stores", "forest,memory", "--repeat", "2"];
    let done = matrix(folder.path(), &stores);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let whole = units(folder.path());
    // Two stores in two rounds, and what measuring costs in one.
    assert_eq!(whole.len(), 5);
    let path = folder.path().join("matrix.json");
    let lines = read(folder.path(), "matrix.json");
    let kept: Vec<&str> = lines.lines().take(1 + 3).collect();
    let cut: Vec<Value> = whole[..3].to_vec();
    std::fs::write(&path, kept.join("\n") + "\n").unwrap();

    let other = matrix(
        folder.path(),
        &["--stores", "forest", "--repeat", "2", "--resume"],
    );
    assert_eq!(other.status.code(), Some(2));
    let told = text(&other.stderr);
    assert!(
        told.contains("matrix.json") && told.contains("other conditions"),
        "{told}"
    );
    assert_eq!(
        units(folder.path()).len(),
        3,
        "nothing is lost by a mistake"
    );

    // A kill may cut the last line off.
    let torn = kept.join("\n") + "\n{\"program\": \"ma";
    std::fs::write(&path, torn).unwrap();
    let resumed = matrix(folder.path(), &[&stores[..], &["--resume"]].concat());
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let again = units(folder.path());
    assert_eq!(again[..3], cut[..], "kept as they were");
    assert_eq!(again.len(), whole.len());
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_measured() {
    let folder = folder();
    for (arguments, expected) in [
        (&["--stores", "forset"][..], "did you mean forest?"),
        (&["--programs", "mian"], "there are main, synced"),
        (&["--sizes", "100:1000000000000"], "available"),
    ] {
        let refused = matrix(folder.path(), arguments);
        let told = text(&refused.stderr);
        assert!(
            !refused.status.success() && told.contains(expected),
            "{told}"
        );
        assert!(!folder.path().join("matrix.json").exists());
    }
}
