//! `kvzone` with stores that misbehave. The program of these tests is also the program that
//! they run: where they set an environment variable, it is `kvzone` with three more stores. So it
//! has a list of tests in place of the usual harness: `cargo test -p kvzone --test misbehaving
//! [PART_OF_A_NAME]`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod cases;
#[path = "../suite/harness/mod.rs"]
mod harness;
mod stores;

use std::path::PathBuf;
use std::process::ExitCode;

macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), cases::$name as fn())),*] };
}

const TESTS: &[(&str, fn())] = tests![
    every_field_of_the_json_is_there_for_good_and_for_broken_runs,
    a_crash_is_named_with_its_signal_and_the_others_go_on,
    a_hang_is_ended_and_named_and_the_others_go_on,
    ctrl_c_keeps_what_was_measured_and_leaves_nothing_behind,
    a_file_that_cannot_be_written_is_told_before_anything_is_measured,
    what_survives_is_told_and_a_store_that_lies_about_it_is_marked,
    every_cell_of_every_store_is_on_the_page_and_a_failed_store_is_shown_as_failed,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Set by the tests, and passed on to workers.
    if std::env::var_os(harness::AS_PROGRAM).is_some() {
        return kvzone::main(stores::all);
    }
    let lists = arguments.iter().any(|it| it == "--list");
    let part = arguments.iter().find(|it| !it.starts_with('-'));
    let chosen = TESTS
        .iter()
        .filter(|(name, _)| part.is_none_or(|part| name.contains(part)));
    let mut failed = 0;
    for (name, test) in chosen {
        if lists {
            println!("{name}: test");
            continue;
        }
        let is_ok = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if is_ok { "ok" } else { "FAILED" });
        failed += u8::from(!is_ok);
    }
    ExitCode::from(failed)
}

fn program() -> PathBuf {
    std::env::current_exe().unwrap()
}
