//! Programs written for LevelDB's C interface: linked with the library, preloaded
//! with it, and under AddressSanitizer.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use cambium_testkit::c_programs::{Watch, compile, libraries, linked_with, run};

const INCLUDE: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
const FUNCTIONS: &str = include_str!("programs/functions.txt");

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

fn linked(name: &str, folder: &Path, watch: Watch) -> PathBuf {
    let mut arguments = linked_with("libcambium_leveldb.so", "cambium_leveldb", folder);
    arguments.insert(0, INCLUDE.to_string());
    compile(&source(name), folder, watch, &arguments)
}

#[test]
fn a_program_that_is_linked_runs() {
    let folder = tempfile::tempdir().unwrap();
    let program = linked("calls.c", folder.path(), Watch::Plain);
    let said = run(&program, folder.path(), &[("TEST_TMPDIR", "tests")]);
    assert_eq!(said, "all calls are as LevelDB's\n");
    assert!(folder.path().join("tests").is_dir());
}

#[test]
fn misuse_is_an_error_and_neither_leaks_nor_touches_what_is_freed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["misuse.c", "calls.c"] {
        let program = linked(name, folder.path(), Watch::AddressSanitizer);
        run(&program, folder.path(), &[("TEST_TMPDIR", "tests")]);
    }
}

/// As often as `CAMBIUM_HISTORY` says, which `make soak` raises.
#[test]
fn threads_share_a_database() {
    let history = std::env::var("CAMBIUM_HISTORY").ok();
    let history: u32 = history.map_or(2_000, |many| many.parse().unwrap());
    let rounds = (history / 20).to_string();
    let folder = tempfile::tempdir().unwrap();
    let program = linked("threads.c", folder.path(), Watch::AddressSanitizer);
    for engine in ["wisckey", "forest"] {
        let variables = [("CAMBIUM_LEVELDB_ENGINE", engine), ("ROUNDS", &rounds)];
        let said = run(&program, folder.path(), &variables);
        assert_eq!(said, "all threads saw what is alike\n", "{engine}");
    }
}

#[test]
fn the_engine_is_chosen_by_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let program = linked("misuse.c", folder.path(), Watch::Plain);
    let engine = || {
        let marker = folder.path().join("misused/CAMBIUM");
        std::fs::read_to_string(marker).unwrap()
    };
    run(&program, folder.path(), &[]);
    assert!(engine().contains("engine wisckey\n"), "{}", engine());
    std::fs::remove_dir_all(folder.path().join("misused")).unwrap();
    let forest = [
        ("CAMBIUM_LEVELDB_ENGINE", "forest"),
        ("CAMBIUM_LEVELDB_OPTIONS", "cache_bytes=1MiB,read_ahead=8"),
    ];
    run(&program, folder.path(), &forest);
    assert!(engine().contains("engine forest\n"), "{}", engine());
}

/// A program that is linked with a library in which every function of LevelDB's ends
/// the program runs where ours is loaded before.
#[test]
fn a_program_that_was_linked_with_leveldb_runs_when_this_is_preloaded() {
    let folder = tempfile::tempdir().unwrap();
    let stub = folder.path().join("stub.c");
    let ends = |name: &str| format!("void {name}(void) {{ abort(); }}\n");
    let functions: String = FUNCTIONS.lines().map(ends).collect();
    std::fs::write(&stub, format!("#include <stdlib.h>\n{functions}")).unwrap();
    let stub = compile(&stub, folder.path(), Watch::Plain, &["-shared", "-fPIC"]);
    let library = folder.path().join("libleveldb.so.1");
    std::fs::rename(stub, &library).unwrap();

    let library = library.display().to_string();
    let program = compile(
        &source("calls.c"),
        folder.path(),
        Watch::Plain,
        &[INCLUDE, &library],
    );
    let alone = std::process::Command::new(&program)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(
        !alone.status.success(),
        "it ran without a library that does anything"
    );
    let ours = libraries().join("libcambium_leveldb.so");
    let ours = ours.display().to_string();
    let variables = [("LD_PRELOAD", ours.as_str()), ("TEST_TMPDIR", "tests")];
    let said = run(&program, folder.path(), &variables);
    assert_eq!(said, "all calls are as LevelDB's\n");
}
