//! What `kvzone run` refuses, and what it leaves out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::harness::{assert_has, folder, kvzone, printed, run, runs, said, text, words};

#[test]
fn unknown_names_offer_the_nearest_and_are_wrong_usage() {
    let folder = folder();
    for (asked, near) in [
        ("memroy --workload fill-random", "memory"),
        ("memory --workload fil-random", "fill-random"),
        ("memory --workload fill-random --set memry.a=b", "memory"),
        (
            "zdb --workload fill-random --set zdb.data_file=1",
            "data_files",
        ),
        (
            "memory --workload fill-random --popularity zipfain",
            "zipfian",
        ),
    ] {
        let output = run(folder.path(), &words(&format!("--stores {asked}")));
        assert_has(&said(&output, 2), near);
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn sizes_and_mixes_that_cannot_be_are_wrong_usage() {
    let folder = folder();
    let cases = "--keys 0; --key-size 1 --keys 1000; --key-size 64-16; --key-size 0; \
        --value-size many; --threads 0; --batch 0; --rate 0; --rate nan; --seconds -1; \
        --operations 5 --seconds 5; --verify-every 0; --compressible 1.5; --repeat 0; \
        --memory lots; --bytes 0; --throughput 0; --durability maybe; --budget 1; --budget 1023KiB; \
        --value-size normal:-5:3; --value-size pareto:9:1:1:8";
    let cases = cases.split(';').map(|case| format!("fill-random {case}"));
    for case in cases.chain(["ycsb-c --batch 2".to_string()]) {
        let all = format!("run --stores memory --workload {case}");
        let output = kvzone(folder.path(), &words(&all));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{case}: {said}");
        assert!(!said.contains('{'), "the text of a type of ours: {said}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_disk_without_room_is_refused_before_anything_is_written() {
    let folder = folder();
    let output = kvzone(
        folder.path(),
        &words("run --stores memory --workload fill-random --keys 1G --value-size 1MiB"),
    );
    assert_has(&said(&output, 3), "are free");
}

#[test]
fn what_no_store_can_do_is_unsupported_and_what_one_can_is_done() {
    let folder = folder();
    let output = run(
        folder.path(),
        &["--stores", "memory", "--workload", "read-random", "--cold"],
    );
    said(&output, 2);
    assert_eq!(runs(folder.path())[0]["status"], "unsupported");
    let stores = words("--stores memory,zdb --workload read-random --cold");
    printed(&run(folder.path(), &stores));
    let cold = runs(folder.path())
        .into_iter()
        .find(|run| run["store"] == "zdb" && run["phase"] == "run")
        .unwrap();
    let proof = &cold["extra"]["cold"];
    assert!(proof["files"].as_u64().unwrap() > 0, "{cold}");
    if proof["resident_bytes"].is_null() {
        println!("SKIPPED: this kernel cannot prove that a cache is cold");
    }
}

#[test]
fn a_job_file_and_the_command_line_add_up() {
    let folder = folder();
    let job = "stores = [\"memory\"]\nworkload = \"fill-random\"\nkeys = 300\nrepeat = 2\n";
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    let arguments = words("run --job job.toml --repeat 1 --json out.json");
    printed(&kvzone(folder.path(), &arguments));
    let runs = runs(folder.path());
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["keys"], 300);
    std::fs::write(folder.path().join("job.toml"), "keyz = 3\n").unwrap();
    let output = kvzone(folder.path(), &arguments);
    let expected = "job job.toml:1:1: there is no option \"keyz\"";
    assert_has(&said(&output, 2), expected);
}

#[test]
fn more_keys_than_memory_has_room_for_are_refused_before_anything_is_made_of_them() {
    let folder = folder();
    let options = words("--stores zdb --workload fill-random --keys 1000G");
    let output = kvzone(folder.path(), &[&["run"], &options[..]].concat());
    assert_has(&said(&output, 3), "find memory in this machine");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The markdown files of a file or below a folder, as text.
fn pages(path: &Path, found: &mut Vec<String>) {
    match fs::read_dir(path) {
        Ok(entries) => entries
            .flatten()
            .for_each(|entry| pages(&entry.path(), found)),
        Err(_) if path.extension().is_some_and(|end| end == "md") => {
            found.push(fs::read_to_string(path).unwrap());
        }
        Err(_) => {}
    }
}

/// The words of a line of a shell, up to what is a comment or explains it.
fn split(line: &str) -> Vec<String> {
    let line = line.split("  ").next().unwrap_or_default();
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            letter => words.last_mut().expect("a word").push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn every_line_of_the_pages_is_a_command_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = Vec::new();
    pages(&root.join("README.md"), &mut texts);
    pages(&root.join("docs"), &mut texts);
    let mut count = 0;
    for text in texts {
        let text = text.replace("\\\n", "");
        let lines = text
            .lines()
            .map(|line| line.trim_start_matches("target/release/"));
        // Forms with brackets are no commands, and `SCALE` stands for a number.
        for line in lines.filter(|line| line.starts_with("kvzone ") && !line.contains(" [-")) {
            let line = line.replace("SCALE", "1");
            let line = line.split_once(" #").map_or(&*line, |(before, _)| before);
            let parsed = kvzone::command().try_get_matches_from(split(line));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}

/// The long options of a command and of all its subcommands.
fn options(command: &clap::Command, found: &mut BTreeSet<String>) {
    let shown = command.get_arguments().filter(|it| !it.is_hide_set());
    found.extend(shown.filter_map(|it| it.get_long().map(str::to_string)));
    let commands = command.get_subcommands().filter(|it| !it.is_hide_set());
    commands.for_each(|command| options(command, found));
}

/// The options that a text names in commands of kvzone, and where it is about kvzone alone, by
/// themselves.
fn named(text: &str, is_about_kvzone: bool) -> BTreeSet<String> {
    let is_option = |code: &str| is_about_kvzone && code.starts_with("--");
    let is_of_kvzone = |code: &&str| is_option(code) || code.starts_with("kvzone ");
    let lines = text.lines().filter(|line| line.starts_with("kvzone "));
    // Every second piece between marks is code.
    let codes = text.split('`').skip(1).step_by(2);
    let all = codes.filter(is_of_kvzone).chain(lines);
    let words = all.flat_map(|code| code.split([' ', '=', '\n', '[', ']', ',']));
    let names = words.filter_map(|word| word.strip_prefix("--"));
    names.map(str::to_string).collect()
}

#[test]
fn the_page_explains_every_option_and_no_page_names_one_that_is_gone() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut known = BTreeSet::new();
    options(&kvzone::command(), &mut known);
    let read = |name: &str| {
        let text = fs::read_to_string(docs.join(name)).unwrap();
        text.replace("\\\n", "").replace("target/release/", "")
    };
    let explained = named(&read("kvzone.md"), true);
    let missing: Vec<&String> = known.difference(&explained).collect();
    assert!(
        missing.is_empty(),
        "docs/kvzone.md does not explain {missing:?}"
    );
    known.extend(["help", "version"].map(str::to_string));
    let mut texts = Vec::new();
    pages(&docs.join("measured"), &mut texts);
    texts.extend(["benchmarks.md", "device.md", "matrix.md", "peers.md"].map(read));
    let all = texts.iter().map(|text| named(text, false));
    for found in all.chain([explained]) {
        let gone: Vec<&String> = found.difference(&known).collect();
        assert!(
            gone.is_empty(),
            "the pages name {gone:?}, which kvzone has not"
        );
    }
}
