//! Incremental backups: what a folder of backups lists can be restored.
use std::fs;
use std::path::Path;

use crate::harness::{Place, sorted};

fn scan(place: &Place, store: &str) -> String {
    let text = place.run(["scan", store, "--format", "json"]).done();
    sorted(&text).join("\n")
}

/// The columns of each line.
fn backups(place: &Place) -> Vec<Vec<String>> {
    let text = place.run(["backups", "b"]).done();
    let lines = text.lines();
    lines
        .map(|line| line.split('\t').map(str::to_string).collect())
        .collect()
}

#[test]
fn each_backup_of_every_engine_restores() {
    for engine in ["forest", "wisckey", "zdb", "alphard"] {
        let place = Place::empty();
        place.run(["create", "s", "--engine", engine]).done();
        let mut states = Vec::new();
        for round in 0..4 {
            let lines: String = (0..200 * (4 - round))
                .map(|at| format!("key {at}\tleaf {at} of {round}\n"))
                .collect();
            let import = ["import", "s", "--from", "tsv:-"];
            place.run_with_input(import, lines.as_bytes()).done();
            place.run(["delete", "s", &format!("key {round}")]).done();
            place.run(["backup", "s", "b", "--incremental"]).done();
            states.push(scan(&place, "s"));
        }
        let listed = backups(&place);
        assert_eq!(listed.len(), 4, "{engine}: {listed:?}");
        let stats = place.run(["stats", "s", "--json"]).done();
        if stats.contains("oldest_change") {
            let kinds: Vec<_> = listed.iter().map(|line| line[1].as_str()).collect();
            let expected = ["full", "changes", "changes", "changes"];
            assert_eq!(kinds, expected, "{engine}");
        }
        place.run(["check", "b"]).done();
        for (at, state) in states.iter().enumerate() {
            let (number, target) = ((at + 1).to_string(), format!("r{at}"));
            place
                .run(["restore", "b", &target, "--number", &number])
                .done();
            assert_eq!(scan(&place, &target), *state, "{engine} {number}");
            place.run(["check", &target]).done();
        }
        place.run(["restore", "b", "newest"]).done();
        assert_eq!(scan(&place, "newest"), states[3], "{engine}");
        let kept = ["backup", "s", "b", "--incremental", "--keep", "1"];
        place.run(kept).done();
        assert!(!backups(&place).is_empty());
        place.run(["check", "b"]).done();
    }
}

#[test]
fn damage_and_wrong_places_are_named() {
    let place = Place::empty();
    place.run(["create", "s"]).done();
    place.run(["put", "s", "oak", "1"]).done();
    place.run(["backup", "s", "b", "--incremental"]).done();
    place.run(["put", "s", "elm", "2"]).done();
    place.run(["backup", "s", "b", "--incremental"]).done();
    let refused = |arguments: &[&str], status, text| {
        place.run(arguments).refused(status, &[text]);
    };
    refused(&["restore", "b", "r", "--number", "7"], 1, "\"7\"");
    refused(&["restore", "b", "s"], 3, "not there");
    refused(&["backups", "s"], 1, "folder of backups");
    refused(&["backup", "s", "s/b", "--incremental"], 2, "inside");
    let mut names = fs::read_dir(place.path("b")).unwrap();
    let description = names.find(|name| {
        let name = name.as_ref().unwrap().file_name();
        name.to_string_lossy() == "0001-full.backup"
    });
    let path = description.unwrap().unwrap().path();
    let mut bytes = fs::read(&path).unwrap();
    bytes[30] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(place.run(["check", "b"]).status, Some(1));
    refused(
        &["restore", "b", "r", "--number", "1"],
        3,
        "0001-full.backup",
    );
    refused(&["restore", "b", "r"], 3, "cambium backups");
}

/// A store with three backups: a full copy and two archives.
fn three() -> Place {
    let place = Place::empty();
    place.run(["create", "s"]).done();
    for key in ["ash", "elm", "oak"] {
        place.run(["put", "s", key, "1"]).done();
        place.run(["backup", "s", "b", "--incremental"]).done();
    }
    place
}

fn file_of(place: &Place, start: &str) -> std::path::PathBuf {
    let mut entries = fs::read_dir(place.path("b")).unwrap().map(Result::unwrap);
    let found = entries.find(|entry| entry.file_name().to_string_lossy().starts_with(start));
    found.unwrap().path()
}

#[test]
fn what_is_before_damage_restores_and_the_next_backup_is_a_full_copy() {
    type Damage = fn(&Place);
    let cut: Damage = |place| {
        let path = file_of(place, "0002-");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    };
    let longer: Damage = |place| {
        let path = file_of(place, "0002-");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, [&bytes[..], b"1234567"].concat()).unwrap();
    };
    let no_archive: Damage = |place| fs::remove_file(file_of(place, "0002-")).unwrap();
    let no_description: Damage =
        |place| fs::remove_file(file_of(place, "0001-full.backup")).unwrap();
    let no_newest: Damage = |place| fs::remove_file(file_of(place, "0003-")).unwrap();
    let no_copy: Damage = |place| fs::remove_dir_all(place.path("b").join("0001-full")).unwrap();
    for (damage, damaged, sound) in [
        (cut, vec!["2", "3"], true),
        (longer, vec!["2", "3"], true),
        (no_archive, vec!["3"], true),
        (no_newest, vec!["3"], true),
        (no_description, vec!["2", "3"], false),
        (no_copy, vec!["1", "2", "3"], false),
    ] {
        let place = three();
        damage(&place);
        let listed = backups(&place);
        let named = listed.iter().filter(|line| line.len() > 5);
        let named: Vec<_> = named.map(|line| line[0].as_str()).collect();
        assert_eq!(named, damaged);
        let refused = place.run(["restore", "b", "r"]);
        refused.refused(3, &["backup 3 cannot be restored", "`cambium backups`"]);
        let check = place.run(["check", "b"]);
        assert_eq!(check.status, Some(1));
        let verdict = String::from_utf8(check.output).unwrap();
        assert!(!verdict.contains("repair"), "{verdict}");
        place
            .run(["repair", "b"])
            .refused(2, &["folder of backups"]);
        if sound {
            place.run(["restore", "b", "r", "--number", "1"]).done();
            assert!(scan(&place, "r").contains("ash"));
        }
        place.run(["put", "s", "yew", "1"]).done();
        let taken = place.run(["backup", "s", "b", "--incremental"]).done();
        assert!(taken.starts_with("4\tfull"), "{taken}");
        place.run(["restore", "b", "newest"]).done();
        assert_eq!(scan(&place, "newest"), scan(&place, "s"));
        let kept = ["backup", "s", "b", "--incremental", "--keep", "1"];
        place.run(kept).done();
        assert_eq!(backups(&place).len(), 1);
        place.run(["check", "b"]).done();
    }
}

#[test]
fn backups_outlive_the_file_that_names_the_folder() {
    let missing = |path: &Path| fs::remove_file(path).unwrap();
    let damaged = |path: &Path| fs::write(path, "cambium backups\n").unwrap();
    for lose in [&missing as &dyn Fn(&Path), &damaged] {
        let place = three();
        let marker = place.path("b").join("BACKUPS");
        lose(&marker);
        assert_eq!(backups(&place).len(), 3);
        let check = place.run(["check", "b"]);
        assert_eq!(check.status, Some(1));
        let verdict = String::from_utf8(check.output).unwrap();
        assert!(verdict.contains("next backup writes it anew"), "{verdict}");
        place.run(["restore", "b", "r"]).done();
        assert_eq!(scan(&place, "r"), scan(&place, "s"));
        place.run(["put", "s", "yew", "1"]).done();
        let taken = place.run(["backup", "s", "b", "--incremental"]).done();
        assert!(taken.starts_with("4\tchanges"), "{taken}");
        place.run(["check", "b"]).done();
        // Nothing names the store any more: no command sends the user to another that fails.
        lose(&marker);
        fs::write(place.path("b").join("0001-full.backup"), "").unwrap();
        for command in [
            &["backups", "b"][..],
            &["check", "b"],
            &["restore", "b", "x"],
        ] {
            let refused = place.run(command);
            assert!(!refused.talk.contains("`cambium"), "{}", refused.talk);
            refused.refused(3, &["back up to another folder"]);
        }
    }
}

#[test]
fn a_damaged_full_copy_is_not_restored() {
    for engine in ["forest", "wisckey", "zdb", "alphard"] {
        let place = Place::empty();
        place.run(["create", "s", "--engine", engine]).done();
        let lines: String = (0..2000)
            .map(|at| format!("key {at:05}\tvalue {at} {}\n", "leaf".repeat(10)))
            .collect();
        let import = ["import", "s", "--from", "tsv:-"];
        place.run_with_input(import, lines.as_bytes()).done();
        place.run(["backup", "s", "b", "--incremental"]).done();
        let full = place.path("b").join("0001-full");
        // The keys and small values of wisckey are in tables, which opening reads little of.
        let (folder, start) = match engine {
            "wisckey" => (full.join("keys"), "table"),
            _ => (full, ""),
        };
        let files = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut damaged = 0;
        for file in files {
            let name = file.file_name().unwrap().to_string_lossy();
            let mut bytes = fs::read(&file).unwrap();
            let found = bytes.windows(10).position(|window| window == b"value 1000");
            if let Some(at) = found.filter(|_| name.starts_with(start)) {
                bytes[at] ^= 0xff;
                fs::write(&file, bytes).unwrap();
                damaged += 1;
            }
        }
        assert!(damaged > 0, "{engine}");
        let refused = place.run(["restore", "b", "r"]);
        refused.refused(3, &["0001-full", "full backup 1 cannot be restored"]);
        assert!(!place.path("r").exists(), "{engine}");
    }
}
