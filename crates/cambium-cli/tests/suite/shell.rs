//! A shell does what the command line does, on a store that is opened once.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::harness::{Place, Run};

fn script(place: &Place, more: &[&str], lines: &str) -> Run {
    let arguments = [&["shell", "s"], more].concat();
    place.run_with_input(arguments, lines.as_bytes())
}

#[test]
fn lines_are_commands_without_the_store() {
    let place = Place::with_store();
    let run = script(
        &place,
        &[],
        "# a comment\n\nput oak Quercus\nput 'a key' \"a\\tvalue \\xff\"\nget oak\n\
         get --hex 61206b6579\nput --namespace people ada Lovelace\nscan --keys-only\n\
         count --prefix a\nnamespaces\ndelete oak\nget 'a key'\nstats\nexit\nbogus\n",
    );
    assert_eq!(run.status, Some(0), "{}", run.talk);
    let text = String::from_utf8_lossy(&run.output).into_owned();
    let expected = "Quercus\n610976616c756520ff\na key\noak\n1\npeople\na\\tvalue \u{fffd}\n";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("write_amplification"), "{text}");
    assert_eq!(place.run(["count", "s"]).done(), "1\n");
}

#[test]
fn a_script_ends_at_its_first_failure_unless_it_is_to_go_on() {
    let place = Place::with_store();
    let lines = "put a 1\nget none\nput b 2\nscan --limit many\n";
    let run = script(&place, &[], lines);
    assert_eq!(run.status, Some(1), "{}", run.talk);
    assert_eq!(run.talk, "cambium: line 2: key \"none\" has no value\n");
    assert_eq!(place.run(["scan", "s", "--keys-only"]).done(), "a\n");
    let run = script(&place, &["-k"], lines);
    assert_eq!(run.status, Some(2), "{}", run.talk);
    assert!(
        run.talk.contains("line 4: ") && run.talk.contains("`help scan`"),
        "{}",
        run.talk
    );
    assert_eq!(place.run(["scan", "s", "--keys-only"]).done(), "a\nb\n");
    for (line, status, word) in [
        ("bogus", 2, "help"),
        ("get 'oak", 2, "quote"),
        ("get \\q", 2, "expected a blank, \", ', #, t, n, r, \\ or x"),
        ("put a -", 2, "standard input"),
        ("import --from tsv:-", 2, "standard input"),
        ("create t", 2, "exit"),
        ("check", 2, "exit"),
        ("shell", 2, "exit"),
    ] {
        let run = script(&place, &[], line);
        assert_eq!(run.status, Some(status), "{line}: {}", run.talk);
        assert!(run.talk.contains(word), "{line}: {}", run.talk);
    }
    let none = place.run_with_input(["shell", "none"], b"");
    assert_eq!(none.status, Some(3), "{}", none.talk);
}

#[test]
fn larger_commands_work_in_a_shell() {
    let place = Place::with_store();
    place.file("in.tsv", "oak\tQuercus\nelm\tUlmus\n");
    let run = script(
        &place,
        &[],
        "import --from tsv:in.tsv\nsnapshot create then\ndelete --from ''\nrollback then\n\
         export --to all.jsonl --format jsonl\ncompact\ncopy t --engine zdb\nbackup b\n\
         options --engine zdb\ndump\nhelp\nhelp scan\nscan --help\n",
    );
    assert_eq!(run.status, Some(0), "{}", run.talk);
    let text = String::from_utf8(run.output).unwrap();
    assert!(
        text.contains("2 entries deleted") && text.contains("entries carried over"),
        "{text}"
    );
    assert!(
        text.contains("exit         Leave") && text.contains("--keys-only"),
        "{text}"
    );
    assert!(!text.contains("create       "), "{text}");
    for store in ["s", "t", "b"] {
        assert_eq!(place.run(["count", store]).done(), "2\n", "{store}");
    }
    assert!(place.path("all.jsonl").exists());
}

#[test]
fn a_store_that_is_only_readable_is_read_in_a_shell() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    let run = script(&place, &["--keep-going"], "get oak\nget elm\n");
    assert_eq!(
        (run.status, run.output.as_slice()),
        (Some(1), &b"Quercus\n"[..])
    );
    // The reader of the answers goes away: no failure.
    let binary = env!("CARGO_BIN_EXE_cambium");
    let line = format!("yes 'get oak' | head -100000 | '{binary}' shell s | head -1");
    let made = Command::new("sh")
        .args(["-c", &line])
        .current_dir(place.path(""))
        .output();
    let made = made.unwrap();
    assert_eq!(made.stdout, b"Quercus\n");
    assert_eq!(made.stderr, b"");
}

/// Types lines on a terminal, each when its prompt has come; all that is seen there,
/// or `None` where the machine has no `script` (of util-linux), which makes one.
fn type_in(place: &Place, lines: &[impl AsRef<[u8]>]) -> Option<String> {
    // The editor switches the terminal so behind its prompt.
    const READY: &str = "\x1b[?2026l";
    let mut child = Command::new("script")
        .args([
            "-qec",
            &format!("'{}' shell s", env!("CARGO_BIN_EXE_cambium")),
            "/dev/null",
        ])
        .current_dir(place.path(""))
        .env("XDG_STATE_HOME", place.path("state"))
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut seen, mut shown) = (String::new(), 0);
    let mut bytes = [0; 4096];
    for line in lines {
        while !seen[shown..].contains("s> ") || !seen[shown..].contains(READY) {
            let count = screen.read(&mut bytes).unwrap();
            assert!(count > 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        shown = seen.len();
        keys.write_all(line.as_ref()).unwrap();
        // What is typed is drawn, too: the next prompt comes behind the line's end.
        while !seen[shown..].contains('\n') {
            let count = screen.read(&mut bytes).unwrap();
            assert!(count > 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        shown += seen[shown..].find('\n').unwrap();
    }
    screen.read_to_end(&mut Vec::new()).unwrap();
    assert!(child.wait().unwrap().success());
    Some(seen)
}

#[test]
fn a_terminal_has_a_prompt_completion_and_a_history() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    let lines = ["get o\t\r", "get none\r", " put secret x\r", "exit\r"];
    let Some(seen) = type_in(&place, &lines) else {
        eprintln!("SKIPPED: there is no `script` that makes a terminal");
        return;
    };
    assert!(seen.contains("s> ") && seen.contains("Quercus"), "{seen}");
    assert!(seen.contains("key \"none\" has no value"), "{seen}");
    let history = fs::read_to_string(place.path("state/cambium/history")).unwrap();
    assert!(
        history.contains("get oak") && !history.contains("secret"),
        "{history}"
    );
    // Up three times, behind `exit` and `get none`.
    let seen = type_in(&place, &["\x1b[A\x1b[A\x1b[A\r", "exit\r"]).unwrap();
    assert!(seen.contains("Quercus"), "{seen}");
    assert_eq!(place.run(["get", "s", "secret"]).done(), "x");
}

#[test]
fn a_terminal_goes_on_behind_a_byte_that_is_no_utf8() {
    let place = Place::with_store();
    let lines = [&b"put caf\xe9 x"[..], b"put oak Quercus\r", b"exit\r"];
    let Some(seen) = type_in(&place, &lines) else {
        eprintln!("SKIPPED: there is no `script` that makes a terminal");
        return;
    };
    assert!(seen.contains("not UTF-8, and was not run"), "{seen}");
    assert_eq!(place.run(["scan", "s"]).done(), "oak\tQuercus\n");
}

#[test]
fn a_shell_that_can_only_read_says_at_a_write_why() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    let writer = cambium::Options::new().open(place.path("s")).unwrap();
    let run = script(&place, &["--keep-going"], "put elm Ulmus\nget oak\n");
    assert_eq!(run.output, b"Quercus\n");
    assert!(run.talk.contains("line 1: "), "{}", run.talk);
    assert!(run.talk.contains("in use by process"), "{}", run.talk);
    writer.close().unwrap();
}
