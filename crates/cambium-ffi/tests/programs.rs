//! C and C++ programs that use the library: those of the examples, and one that does
//! everything, rightly and wrongly; shared and static, under AddressSanitizer too.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use cambium_testkit::c_programs::{Watch, compile, libraries, linked_with, run};

/// What the library of Rust needs of the system where it is linked statically; the
/// same as in `cambium.pc.in`.
const STATIC: &[&str] = &["-lpthread", "-ldl", "-lm"];

fn linked(source: &str, folder: &Path, watch: Watch) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut arguments = linked_with("libcambium_c.so", "cambium", folder);
    arguments.insert(0, format!("-I{}", here.join("include").display()));
    compile(&here.join(source), folder, watch, &arguments)
}

#[test]
fn the_examples_run() {
    let folder = tempfile::tempdir().unwrap();
    for watch in [Watch::Plain, Watch::AddressSanitizer] {
        let program = linked("examples/trees.c", folder.path(), watch);
        let said = run(&program, folder.path(), &[]);
        assert_eq!(said, "oak is Quercus\nelm\noak\n");
        let program = linked("examples/snapshots.cc", folder.path(), watch);
        let said = run(&program, folder.path(), &[]);
        assert_eq!(
            said,
            "then young, now old, elm nowhere\nthe store is closed\n"
        );
        let place = tempfile::tempdir().unwrap();
        let program = linked("examples/changes.c", place.path(), watch);
        let said = run(&program, place.path(), &[]);
        assert_eq!(said, "put oak\ndelete oak\n");
    }
}

#[test]
fn every_call_answers_and_misuse_is_an_error() {
    for watch in [Watch::Plain, Watch::AddressSanitizer] {
        let folder = tempfile::tempdir().unwrap();
        let program = linked("tests/programs/calls.c", folder.path(), watch);
        assert_eq!(run(&program, folder.path(), &[]), "all calls answer\n");
    }
}

#[test]
fn batches_snapshots_and_transactions_do_what_those_of_rust_do() {
    for watch in [Watch::Plain, Watch::AddressSanitizer] {
        let folder = tempfile::tempdir().unwrap();
        let program = linked("tests/programs/further.c", folder.path(), watch);
        let said = run(&program, folder.path(), &[]);
        assert_eq!(said, "all of these answer\n");
    }
}

#[test]
fn a_comparator_of_the_program_orders_keys_and_is_kept_by_name() {
    for watch in [Watch::Plain, Watch::AddressSanitizer] {
        let folder = tempfile::tempdir().unwrap();
        let program = linked("tests/programs/comparator.c", folder.path(), watch);
        let said = run(&program, folder.path(), &[]);
        assert_eq!(said, "keys are in the program's order\n");
    }
}

#[test]
fn a_program_that_is_linked_statically_runs() {
    let folder = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let include = format!("-I{}", here.join("include").display());
    let library = libraries().join("libcambium_c.a").display().to_string();
    let mut arguments = vec![include.as_str(), &library];
    arguments.extend(STATIC);
    let source = here.join("examples/trees.c");
    let program = compile(&source, folder.path(), Watch::Plain, &arguments);
    assert_eq!(
        run(&program, folder.path(), &[]),
        "oak is Quercus\nelm\noak\n"
    );
}
