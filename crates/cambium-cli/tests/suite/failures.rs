//! What a command answers when the store, the disk or the reader of its
//! output fails.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::harness::{Place, Run};

/// Gives a store that has one entry, big enough to be found on the disk.
fn with_value(value: &str) -> Place {
    let place = Place::with_store();
    place.run(["put", "s", "oak", value]).done();
    place.run(["put", "s", "elm", "Ulmus"]).done();
    place
}

#[test]
fn what_is_no_store_is_said_with_the_path() {
    let place = Place::empty();
    place.file("folder/file", "x");
    for path in ["missing", "folder", "folder/file"] {
        for command in ["stats", "check", "inspect", "repair", "compact", "export"] {
            place
                .run([command, path])
                .refused(3, &[path, "is no Cambium store"]);
        }
        place.run(["get", path, "oak"]).refused(3, &[path]);
        place.run(["put", path, "oak", "x"]).refused(3, &[path]);
        place
            .run(["import", path, "--from", "files:folder"])
            .refused(3, &[path]);
    }
    // Nothing was made on the way.
    assert!(!place.path("missing").exists());
    assert_eq!(fs::read_dir(place.path("folder")).unwrap().count(), 1);
}

#[test]
fn a_newer_format_is_refused_with_both_versions() {
    let place = Place::with_store();
    let marker = place.path("s/CAMBIUM");
    let text = fs::read_to_string(&marker).unwrap();
    let (body, _) = text.split_once("checksum").unwrap();
    let (_, version) = body.split_once("\nformat ").unwrap();
    let (version, _) = version.split_once('\n').unwrap();
    let write = |other: u32| {
        let body = body.replace(
            &format!("\nformat {version}\n"),
            &format!("\nformat {other}\n"),
        );
        let checksum = cambium::checksum::crc32c(body.as_bytes());
        fs::write(&marker, format!("{body}checksum {checksum:08x}\n")).unwrap();
    };
    let upgrade = place.run(["upgrade", "s"]);
    assert_eq!(upgrade.status, Some(0), "{}", upgrade.talk);
    let newest = format!("engine forest, format {version}, the newest");
    assert!(upgrade.talk.contains(&newest), "{}", upgrade.talk);
    write(0);
    let both = ["format 0", &format!("reads format {version}"), "export"];
    place.run(["upgrade", "s"]).refused(3, &both);
    write(99);
    for command in ["stats", "check", "inspect", "repair", "upgrade"] {
        place.run([command, "s"]).refused(
            3,
            &["version 99", &format!("up to {version}"), "newer program"],
        );
    }
    place.run(["get", "s", "oak"]).refused(3, &["99"]);
}

#[test]
fn damage_is_an_error_of_get_and_a_finding_of_check_never_data() {
    let value = "Quercus robur, the pedunculate oak";
    let place = with_value(value);
    assert!(place.damage(value.as_bytes()) > 0);
    place
        .run(["get", "s", "oak"])
        .refused(3, &["corruption", ".forest", "offset", "cambium check"]);
    assert_eq!(place.run(["get", "s", "elm"]).done(), "Ulmus");
    let check = place.run(["check", "s"]);
    assert_eq!(check.status, Some(1), "{}", check.talk);
    let text = String::from_utf8(check.output).unwrap();
    assert!(text.starts_with("damage: s/000001.forest"), "{text}");
    let check = place.run(["check", "s", "--json"]);
    assert_eq!(check.status, Some(1));
    let report: serde_json::Value = serde_json::from_slice(&check.output).unwrap();
    assert_eq!(report["sound"], false);
    assert_eq!(report["findings"][0]["kind"], "damage");
    assert!(report["findings"][0]["offset"].is_u64());
}

#[test]
fn check_writes_nothing() {
    let place = with_value("Quercus");
    let picture = || {
        let mut files: Vec<_> = fs::read_dir(place.path("s"))
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let modified = fs::metadata(&path).unwrap().modified().unwrap();
                (path.clone(), modified, fs::read(&path).unwrap())
            })
            .collect();
        files.sort();
        files
    };
    let before = picture();
    place.run(["check", "s"]).done();
    place.run(["inspect", "s"]).done();
    assert!(picture() == before);
}

#[test]
fn repair_names_what_was_lost_and_leaves_a_sound_store() {
    let value = "Quercus robur, the pedunculate oak";
    let place = with_value(value);
    assert!(place.damage(value.as_bytes()) > 0);
    let repair = place.run(["repair", "s"]);
    assert_eq!(repair.status, Some(1), "{}", repair.talk);
    let text = String::from_utf8(repair.output).unwrap();
    assert!(
        text.contains("damage: ") && text.contains("was lost"),
        "{text}"
    );
    place.run(["check", "s"]).done();
    assert_eq!(place.run(["get", "s", "elm"]).done(), "Ulmus");
    // Nothing is left to mend.
    assert!(
        place
            .run(["repair", "s"])
            .done()
            .contains("nothing was lost")
    );
}

#[test]
fn truncated_files_are_findings_and_never_a_crash() {
    let place = with_value(&"Quercus".repeat(3000));
    for path in place.data_files() {
        let length = fs::metadata(&path).unwrap().len();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(length.min(4096 + 100)).unwrap();
    }
    let check = place.run(["check", "s"]);
    assert_eq!(check.status, Some(1), "{}", check.talk);
    place.run(["get", "s", "oak"]).refused(3, &["corruption"]);
}

#[test]
fn a_damaged_marker_is_a_finding_and_refuses_to_open() {
    let place = with_value("Quercus");
    fs::write(place.path("s/CAMBIUM"), "cambium store\nengine zd").unwrap();
    place.run(["get", "s", "oak"]).refused(3, &["marker"]);
    let check = place.run(["check", "s"]);
    assert_eq!(check.status, Some(1), "{}", check.talk);
    assert!(check.output.starts_with(b"damage: s/CAMBIUM at offset 0"));
}

#[test]
fn a_damaged_marker_is_made_anew_by_a_repair() {
    for engine in ["alphard", "forest", "wisckey", "zdb"] {
        let place = Place::empty();
        let options: &[&str] = match engine {
            "zdb" => &["--set", "keys=string"],
            "alphard" => &["--set", "size=1MiB"],
            _ => &[],
        };
        let create = ["create", "s", "--engine", engine];
        place.run(create.iter().chain(options).copied()).done();
        place.run(["put", "s", "oak", "Quercus"]).done();
        fs::write(place.path("s/CAMBIUM"), "cambium store\nengine zd").unwrap();
        let repair = place.run(["repair", "s"]);
        let said = String::from_utf8_lossy(&repair.output);
        assert!(
            said.contains("CAMBIUM") && said.contains("made anew"),
            "{engine}: {said}"
        );
        assert_eq!(place.run(["get", "s", "oak"]).done(), "Quercus", "{engine}");
        place.run(["check", "s"]).done();
    }
}

#[test]
fn a_mirror_that_lost_a_member_is_sound_but_not_done() {
    let place = Place::empty();
    let set = format!("mirror={}", place.path("two").display());
    let create = ["create", "s", "--engine", "alphard"];
    let sizes = ["--set", "size=1MiB", "--set", &set];
    place.run(create.iter().copied().chain(sizes)).done();
    place.run(["put", "s", "oak", "Quercus"]).done();
    place.run(["check", "s"]).done();
    fs::remove_file(place.path("two")).unwrap();
    let check = place.run(["check", "s"]);
    assert_eq!(check.status, Some(1), "{}", check.talk);
    let said = String::from_utf8(check.output).unwrap();
    assert!(said.starts_with("degraded: "), "{said}");
    assert!(
        said.contains("/two at offset 0: this member is missing"),
        "{said}"
    );
    assert!(said.contains("sound, but degraded"), "{said}");
    let check = place.run(["check", "s", "--json"]);
    assert_eq!(check.status, Some(1), "{}", check.talk);
    let said: serde_json::Value = serde_json::from_slice(&check.output).unwrap();
    assert_eq!(
        (&said["sound"], &said["degraded"]),
        (&true.into(), &true.into())
    );
    assert_eq!(said["findings"][0]["kind"], "degraded");
    place.run(["get", "s", "oak"]).done();
}

#[test]
fn a_second_owner_is_refused_with_the_first_ones_process() {
    let place = with_value("Quercus");
    // An import that waits for its input holds the store.
    let own = || {
        place
            .command(["import", "s", "--from", "tsv:-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut owner = own();
    let started = Instant::now();
    let refusal = loop {
        let run = place.run(["put", "s", "oak", "Quercus"]);
        // On a busy machine the owner may have the lock for a while before its
        // number stands there.
        if run.status != Some(0) && run.talk.contains("process ") {
            break run;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "never locked");
        // It may have met the `put` before as the owner.
        if owner.try_wait().unwrap().is_some() {
            owner = own();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let process = format!("process {}", owner.id());
    refusal.refused(3, &["in use", &process, "wait"]);
    for command in ["check", "repair", "compact"] {
        place.run([command, "s"]).refused(3, &["in use", &process]);
    }
    // Reading works beside it.
    assert_eq!(place.run(["get", "s", "oak"]).done(), "Quercus");
    place.run(["stats", "s"]).done();
    let late = place.run(["put", "s", "oak", "late", "--wait", "1s"]);
    late.refused(3, &["in use", "--wait"]);
    let waits = |command: &[&str]| {
        let waiting = command.iter().chain(&["s", "--wait", "1h"]);
        place
            .command(waiting)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let waiting = [&["check"][..], &["repair"], &["compact"]].map(waits);
    let put = place
        .command(["put", "--wait", "1h", "s", "elm", "Ulmus"])
        .spawn();
    let mut shell = place
        .command(["shell", "--wait", "1h", "s"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut typed = shell.stdin.take().unwrap();
    typed.write_all(b"put fir Abies\n").unwrap();
    drop(typed);
    drop(owner.stdin.take());
    assert!(owner.wait().unwrap().success());
    for mut command in waiting.into_iter().chain([put.unwrap(), shell]) {
        assert!(command.wait().unwrap().success());
    }
    assert_eq!(place.run(["get", "s", "oak"]).done(), "Quercus");
    assert_eq!(place.run(["get", "s", "elm"]).done(), "Ulmus");
    assert_eq!(place.run(["get", "s", "fir"]).done(), "Abies");
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let place = Place::with_store();
    let lines: String = (0..4000)
        .map(|number| format!("{number}\t{}\n", "leaf".repeat(25)))
        .collect();
    place
        .run_with_input(["import", "s", "--from", "tsv:-"], lines.as_bytes())
        .done();
    place
        .run(["put", "s", "large", &"x".repeat(120_000)])
        .done();
    for arguments in [
        &["scan", "s"][..],
        &["scan", "s", "--format", "json"],
        &["export", "s"],
        &["export", "s", "--format", "tsv"],
        &["get", "s", "large"],
        &["inspect", "s"],
    ] {
        let mut child = place
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0; 1];
        let mut reader = child.stdout.take().unwrap();
        reader.read_exact(&mut byte).unwrap();
        drop(reader);
        let run = Run::of(child.wait_with_output().unwrap());
        assert_eq!(run.status, Some(0), "{arguments:?}: {}", run.talk);
        assert_eq!(run.talk, "", "{arguments:?}");
    }
}

#[test]
fn a_full_disk_behind_standard_output_is_told() {
    let place = with_value("Quercus");
    for arguments in [
        &["get", "s", "oak"][..],
        &["scan", "s"],
        &["export", "s"],
        &["stats", "s"],
        &["options"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let run = Run::of(place.command(arguments).stdout(full).output().unwrap());
        run.refused(3, &["standard output", "space"]);
    }
    place
        .run(["export", "s", "--to", "/dev/full"])
        .refused(3, &["/dev/full"]);
}

#[test]
fn a_standard_error_that_nobody_reads_changes_no_status() {
    let place = Place::with_store();
    let mut child = place
        .command(["get", "s", "missing"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    _ = child.stdin.take().unwrap().flush();
    assert_eq!(child.wait().unwrap().code(), Some(1));
}
