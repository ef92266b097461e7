//! Calls that have one right place, each with its reason and replacement.
//!
//! [`RULES`] is the whole policy. A rule holds in library code: not in tests,
//! not in the crates of [`FREE_CRATES`], and not where [`EXCEPTIONS`] names a
//! file and says why. An exception that excuses nothing is reported too, so
//! the list cannot outlive its reasons.

use crate::source::{Source, find_words, line_of};
use crate::violation::Violation;
use crate::workspace::TextFile;

/// One banned way of doing something.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The name in reports and exceptions.
    pub name: &'static str,
    /// What is searched for, as whole words, in code.
    pub patterns: &'static [&'static str],
    /// Why it is banned.
    pub reason: &'static str,
    /// What to use instead.
    pub instead: &'static str,
}

/// The rules for library code.
pub const RULES: &[Rule] = &[
    Rule {
        name: "file-access",
        patterns: &["std::fs", "File::open", "File::create", "OpenOptions::new"],
        reason: "what goes around the I/O layer is never crashed by the simulated disk",
        instead: "use the FileSystem of the Environment (cambium-io)",
    },
    Rule {
        name: "clock",
        patterns: &[
            "SystemTime::now",
            "Instant::now",
            "std::time::Instant",
            "std::time::SystemTime",
        ],
        reason: "a simulation must be the same from the same seed, and clocks never order writes",
        instead: "use the Clock of the Environment (cambium-io)",
    },
    Rule {
        name: "threads",
        patterns: &[
            "thread::spawn",
            "thread::Builder",
            "thread::scope",
            "thread::sleep",
        ],
        reason: "background work is steps, so that a test can take them in any order",
        instead: "use the Executor or Clock of the Environment (cambium-io)",
    },
    Rule {
        name: "locks",
        patterns: &[
            "std::sync::Mutex",
            "std::sync::RwLock",
            "std::sync::Condvar",
            "std::sync::OnceLock",
            "std::sync::mpsc",
            "std::sync::atomic",
            "std::thread",
        ],
        reason: "a scheduled test decides at each lock and atomic which thread goes on",
        instead: "use cambium_io::sync, which is the standard library outside of tests",
    },
    Rule {
        name: "randomness",
        patterns: &["rand::", "getrandom::", "RandomState", "fastrand::"],
        reason: "a simulation must be the same from the same seed",
        instead: "use the Randomness of the Environment (cambium-io)",
    },
    Rule {
        name: "printing",
        patterns: &["println!", "eprintln!", "print!", "eprint!"],
        reason: "a library has no terminal, and println! panics when its reader goes away",
        instead: "answer it, write to the writer you were given, or use a ProgressSink",
    },
    Rule {
        name: "panic",
        patterns: &[".unwrap()", ".unwrap_err()", "panic!"],
        reason: "no input, damage or I/O error may take the process down",
        instead: "answer an Error; for a true invariant use expect() with the reason",
    },
    Rule {
        name: "exit",
        patterns: &["process::exit", "process::abort"],
        reason: "a library does not end its user's process",
        instead: "answer an Error",
    },
];

/// Crates whose threads no scheduled test runs: rule `locks` does not hold there.
const UNSCHEDULED_CRATES: &[&str] = &[
    "cambium-api",
    "cambium-base",
    "cambium-bindings",
    "cambium-ffi",
    "cambium-index",
    "cambium-leveldb",
    "cambium-python",
    "cambium-server",
    "cambium-testkit",
    "kvzone-core",
];

/// Crates where the rules do not hold, and why.
pub const FREE_CRATES: &[(&str, &str)] = &[
    (
        "cambium-io",
        "the only road to the disk, the clock and threads",
    ),
    ("cambium-cli", "a binary: it has a terminal"),
    (
        "cambium-foreign",
        "it looks for libraries, and reads stores that are none of ours",
    ),
    (
        "cambium-stress",
        "a binary: it stands outside of stores, and has a terminal",
    ),
    (
        "cambium-server",
        "a binary: it has sockets and signals; its store's files go through cambium-io",
    ),
    ("kvzone", "a binary: it has a terminal"),
    ("xtask", "a binary: it reads the repository"),
];

/// File, rule, and why the file may.
pub const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "crates/cambium/src/table/keys.rs",
        "clock",
        "moments that callers have are keys of tables; it asks no clock",
    ),
    (
        "crates/cambium-testkit/src/conformance/followers.rs",
        "threads",
        "it tests what followers of changes see while other threads write",
    ),
    (
        "crates/cambium-testkit/src/conformance/threads.rs",
        "threads",
        "it tests what callers on several real threads see",
    ),
    (
        "crates/cambium-testkit/src/conformance/transactions.rs",
        "threads",
        "it tests what callers on several real threads see",
    ),
    (
        "crates/cambium-testkit/src/conformance/histories.rs",
        "threads",
        "it tests what callers on several real threads see",
    ),
    (
        "crates/cambium-testkit/src/patience.rs",
        "threads",
        "it watches from outside whether a test case ends",
    ),
    (
        "crates/cambium-testkit/src/threads/session.rs",
        "threads",
        "its threads are the scheduler's",
    ),
    (
        "crates/cambium-testkit/src/threads/short.rs",
        "threads",
        "its threads are the scheduler's",
    ),
    (
        "crates/kvzone-core/src/driver/clock.rs",
        "clock",
        "it measures the real machine; a trait object would cost a tenth of an operation's budget",
    ),
    (
        "crates/kvzone-core/src/driver/clock.rs",
        "threads",
        "an open loop waits for the moment at which an operation is due",
    ),
    (
        "crates/kvzone-core/src/driver/phase.rs",
        "threads",
        "a load has as many real threads as the job says",
    ),
];

/// Checks all library code under `crates/`.
pub fn check(files: &[TextFile]) -> Vec<Violation> {
    check_with(files, EXCEPTIONS)
}

fn check_with(files: &[TextFile], exceptions: &[(&str, &str, &str)]) -> Vec<Violation> {
    let test_modules = test_modules(files);
    let all: Vec<Violation> = files
        .iter()
        .filter(|file| is_library(file) && !test_modules.contains(&file.path))
        .flat_map(check_file)
        .collect();
    let excuses = |exception: &(&str, &str, &str), violation: &Violation| {
        exception.0 == violation.path && exception.1 == violation.rule
    };
    let stale = exceptions
        .iter()
        .filter(|exception| !all.iter().any(|violation| excuses(exception, violation)));
    let mut found: Vec<Violation> = stale
        .map(|(path, rule, _)| {
            let what = format!("the exception of {path} from rule {rule} excuses nothing");
            let remedy = "take it out of EXCEPTIONS";
            Violation::error(
                "crates/xtask/src/banned.rs",
                0,
                "stale-exception",
                what,
                remedy,
            )
        })
        .collect();
    found.extend(all.into_iter().filter(|violation| {
        !exceptions
            .iter()
            .any(|exception| excuses(exception, violation))
    }));
    found
}

fn is_library(file: &TextFile) -> bool {
    let Some(name) = file.crate_name() else {
        return false;
    };
    // A build script is a program of Cargo's, and speaks to it by printing.
    let is_script = file.path.ends_with("/build.rs");
    file.is_rust()
        && !is_script
        && !file.is_test()
        && !FREE_CRATES.iter().any(|&(free, _)| free == name)
}

/// Files that are modules under `#[cfg(test)] mod name;`.
fn test_modules(files: &[TextFile]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let code = Source::new(&file.text).code;
        for (at, marker) in code.match_indices("#[cfg(test)]") {
            let item = code[at + marker.len()..].trim_start();
            let Some((name, _)) = item
                .strip_prefix("mod ")
                .and_then(|item| item.split_once([';', '{']))
            else {
                continue;
            };
            let (folder, stem) = folder_and_stem(&file.path);
            let folder = match stem {
                "lib" | "main" | "mod" => folder.to_string(),
                stem => format!("{folder}/{stem}"),
            };
            found.push(format!("{folder}/{}.rs", name.trim()));
            found.push(format!("{folder}/{}/mod.rs", name.trim()));
        }
    }
    found
}

fn folder_and_stem(path: &str) -> (&str, &str) {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    (folder, name.strip_suffix(".rs").unwrap_or(name))
}

fn check_file(file: &TextFile) -> Vec<Violation> {
    let code = Source::new(&file.text).library();
    let imports = grouped_imports(&code);
    let mut found = Vec::new();
    let unscheduled = file
        .crate_name()
        .is_some_and(|name| UNSCHEDULED_CRATES.contains(&name));
    for rule in RULES
        .iter()
        .filter(|rule| !(unscheduled && rule.name == "locks"))
    {
        for pattern in rule.patterns {
            let direct = find_words(&code, pattern).into_iter();
            let grouped = imports
                .iter()
                .filter(|(_, path)| !find_words(path, pattern).is_empty())
                .map(|&(at, _)| at);
            found.extend(direct.chain(grouped).map(|at| {
                Violation::error(
                    &file.path,
                    line_of(&code, at),
                    rule.name,
                    format!("`{pattern}` in library code: {}", rule.reason),
                    rule.instead,
                )
            }));
        }
    }
    found
}

/// Full paths of what `use a::{b, c::{d}};` brings in, with their places: a
/// plain search does not see `std::fs` in `use std::{fs, io};`.
fn grouped_imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for start in find_words(code, "use") {
        let length = code[start..].find(';').unwrap_or(0);
        let tree = &code[start..start + length];
        if tree.contains('{') {
            expand(tree, start, &mut found);
        }
    }
    found
}

fn expand(tree: &str, start: usize, found: &mut Vec<(usize, String)>) {
    let mut prefixes: Vec<String> = Vec::new();
    let mut word = (start, String::new());
    for (at, letter) in tree.char_indices().skip("use".len()) {
        match letter {
            '{' => prefixes.push(std::mem::take(&mut word.1)),
            ',' | '}' => {
                if !word.1.is_empty() {
                    let path = prefixes.concat() + &word.1;
                    found.push((word.0, path));
                    word.1.clear();
                }
                if letter == '}' {
                    prefixes.pop();
                }
            }
            letter if letter.is_whitespace() => {}
            letter => {
                if word.1.is_empty() {
                    word.0 = start + at;
                }
                word.1.push(letter);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(text: &str) -> Vec<Violation> {
        check_with(
            &[TextFile::new("crates/cambium-zdb/src/read.rs", text)],
            &[],
        )
    }

    #[test]
    fn each_rule_finds_each_of_its_patterns() {
        for rule in RULES {
            for pattern in rule.patterns {
                let receiver = if pattern.starts_with('.') {
                    "value"
                } else {
                    ""
                };
                let text = format!("//! Essay.\nfn f() {{\n    {receiver}{pattern};\n}}\n");
                let found = library(&text);
                assert!(
                    found.iter().any(|v| v.rule == rule.name && v.line == 3),
                    "{pattern}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn grouped_imports_are_seen_through() {
        for text in [
            "use std::{fs, io};",
            "use std::{io, fs::{self, Metadata}};",
            "use std::{\n    time::{Duration, Instant},\n};",
            "use std::thread::{self, spawn};",
        ] {
            assert!(!library(text).is_empty(), "{text}");
        }
        assert_eq!(
            library("use std::{io, fmt}; use std::time::{Duration};"),
            []
        );
    }

    #[test]
    fn strings_comments_tests_and_near_misses_pass() {
        let text = "//! std::fs\n/// println!(\"x\")\nfn f() { g(\"panic!\"); LogFile::open(); my_println!(); }\n#[cfg(test)]\nmod tests { fn t() { x.unwrap(); } }";
        assert_eq!(library(text), []);
    }

    #[test]
    fn free_crates_and_test_files_pass() {
        let bad = "use std::fs;";
        for path in [
            "crates/cambium-io/src/real.rs",
            "crates/cambium-cli/src/main.rs",
            "crates/cambium-zdb/tests/crash.rs",
            "crates/cambium-zdb/src/tests.rs",
            "crates/cambium-ffi/build.rs",
            "tools/x.rs",
        ] {
            assert_eq!(check_with(&[TextFile::new(path, bad)], &[]), [], "{path}");
        }
    }

    #[test]
    fn modules_that_only_tests_compile_pass() {
        let files = [
            TextFile::new("crates/cambium-zdb/src/lib.rs", "#[cfg(test)]\nmod model;"),
            TextFile::new("crates/cambium-zdb/src/model.rs", "fn f() { x.unwrap() }"),
        ];
        assert_eq!(check_with(&files, &[]), []);
    }

    #[test]
    fn an_exception_excuses_its_file_and_goes_stale() {
        let file = TextFile::new("crates/cambium-zdb/src/read.rs", "use std::fs;");
        let exception = [("crates/cambium-zdb/src/read.rs", "file-access", "a test")];
        assert_eq!(check_with(&[file], &exception), []);
        let clean = TextFile::new("crates/cambium-zdb/src/read.rs", "");
        let found = check_with(&[clean], &exception);
        assert_eq!(found[0].rule, "stale-exception");
    }
}
