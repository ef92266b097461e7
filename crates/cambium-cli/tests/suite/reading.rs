//! A store in a folder that cannot be written is read all the same, and options
//! and places that make no sense are refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::harness::{Place, Run};

/// Nobody in particular, whom permissions hold back as they do not hold root.
const NOBODY: u32 = 65_534;

/// Runs the command as someone who may not write in the folder.
fn as_a_reader(place: &Place, arguments: &[&str]) -> Run {
    let program = place.path("cambium");
    if !program.exists() {
        // By a process of its own: a program that anyone has open for writing, if
        // only another test on its way to `exec`, cannot be run.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_cambium"))
            .arg(&program)
            .status();
        assert!(copied.unwrap().success());
    }
    let mut command = Command::new(program);
    command.current_dir(place.path("")).args(arguments);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    Run::of(command.output().unwrap())
}

fn is_root() -> bool {
    // Root may write where nobody may.
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

#[test]
fn a_store_that_cannot_be_written_is_read() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    let set = |mode: u32| fs::set_permissions(place.path("s"), Permissions::from_mode(mode));
    fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    for file in fs::read_dir(place.path("s")).unwrap() {
        fs::set_permissions(file.unwrap().path(), Permissions::from_mode(0o444)).unwrap();
    }
    set(0o555).unwrap();
    // Readers of engine forest need no lock: they stand beside a process that writes.
    let lock = |mode: u32| fs::set_permissions(place.path("s/LOCK"), Permissions::from_mode(mode));
    lock(0).unwrap();
    assert_eq!(as_a_reader(&place, &["get", "s", "oak"]).done(), "Quercus");
    lock(0o444).unwrap();
    for lock in ["there", "gone"] {
        let read = |arguments: &[&str]| as_a_reader(&place, arguments).done();
        assert_eq!(read(&["get", "s", "oak"]), "Quercus", "lock {lock}");
        assert_eq!(read(&["scan", "s"]), "oak\tQuercus\n");
        assert!(read(&["stats", "s"]).contains("entries"));
        assert_eq!(read(&["namespaces", "s"]), "");
        assert_eq!(read(&["snapshot", "s", "list"]), "");
        assert!(read(&["export", "s", "--format", "tsv"]).contains("oak"));
        assert!(read(&["dump", "s"]).contains("oak"));
        read(&["check", "s"]);
        as_a_reader(&place, &["put", "s", "elm", "Ulmus"]).refused(3, &["LOCK"]);
        set(0o755).unwrap();
        fs::remove_file(place.path("s/LOCK")).ok();
        set(0o555).unwrap();
    }
    set(0o755).unwrap();
}

#[test]
fn a_store_of_any_engine_is_read_where_it_cannot_be_written() {
    for engine in ["wisckey", "zdb", "alphard"] {
        let place = Place::empty();
        let mut create = vec!["create", "s", "--engine", engine];
        if engine == "alphard" {
            create.extend(["--set", "size=16MiB"]);
        }
        place.run(create).done();
        place.run(["put", "s", "oak", "Quercus"]).done();
        fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
        for lock in ["there", "gone"] {
            set_modes(&place.path("s"), 0o555);
            let read = |arguments: &[&str]| as_a_reader(&place, arguments).done();
            assert_eq!(
                read(&["get", "s", "oak"]),
                "Quercus",
                "{engine}, lock {lock}"
            );
            assert!(read(&["export", "s", "--format", "tsv"]).contains("oak"));
            assert!(read(&["stats", "s"]).contains("entries"));
            read(&["check", "s"]);
            as_a_reader(&place, &["put", "s", "elm", "Ulmus"]).refused(3, &["LOCK"]);
            set_modes(&place.path("s"), 0o755);
            fs::remove_file(place.path("s/LOCK")).ok();
        }
    }
}

/// Makes a folder's files read-only, and gives it and the folders in it a mode.
fn set_modes(folder: &Path, of_folders: u32) {
    fs::set_permissions(folder, Permissions::from_mode(of_folders)).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => set_modes(&path, of_folders),
            false => fs::set_permissions(path, Permissions::from_mode(0o444)).unwrap(),
        }
    }
}

#[test]
fn options_for_tests_alone_are_refused_and_those_that_are_forgotten_named() {
    let place = Place::empty();
    place
        .run(["create", "s", "--set", "seeded_bug=no_checksum"])
        .refused(2, &["seeded_bug"]);
    place.run(["create", "s"]).done();
    let import = ["import", "s", "--from", "tsv:-", "--set", "seeded_bug=x"];
    place.run(import).refused(2, &["seeded_bug"]);
    let run = place.run(["create", "t", "--set", "cache_bytes=1MiB"]);
    assert!(run.talk.contains("cache_bytes"), "{}", run.talk);
    assert!(run.talk.contains("does not stay"), "{}", run.talk);
    run.done();
    for kept in ["node_bytes=512", "compaction_threshold=50"] {
        let folder = kept.split('=').next().unwrap();
        let run = place.run(["create", folder, "--set", kept]);
        assert_eq!(run.talk, "", "{kept}");
    }
}

#[test]
fn a_backup_into_the_store_itself_is_refused() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    std::os::unix::fs::symlink("s", place.path("link")).unwrap();
    for inside in ["s", "s/inner", "s/../s/inner", "link/inner"] {
        place
            .run(["backup", "s", inside])
            .refused(2, &["inside the store"]);
    }
    place.run(["backup", "s", "s-copy"]).done();
    assert_eq!(place.run(["get", "s-copy", "oak"]).done(), "Quercus");
}

#[test]
fn keys_and_prefixes_beyond_the_limit_are_refused() {
    let place = Place::with_store();
    let long = "k".repeat(65_536);
    place.run(["get", "s", &long]).refused(2, &["65"]);
    place
        .run(["scan", "s", "--prefix", &long])
        .refused(2, &["65"]);
    place.run(["scan", "s", "--prefix", &long[1..]]).done();
}

#[test]
fn a_backup_carries_named_snapshots() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    place.run(["snapshot", "s", "create", "before"]).done();
    place.run(["delete", "s", "oak"]).done();
    place.run(["backup", "s", "copy"]).done();
    place.run(["get", "copy", "oak"]).refused(1, &[]);
    place.run(["rollback", "copy", "before"]).done();
    assert_eq!(place.run(["get", "copy", "oak"]).done(), "Quercus");
}
