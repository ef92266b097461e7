//! The shape of files: essays, forbidden unsafe code, leftover markers,
//! length, machine paths.
//!
//! The patterns that would be found in this file are written in two halves.

use crate::source::{Source, find_words, line_of};
use crate::violation::Violation;
use crate::workspace::TextFile;

/// Longer files are split: one concept a file.
pub const MOST_LINES: usize = 700;
/// From here on there is a warning.
pub const MANY_LINES: usize = 500;

/// Crates where unsafe code is allowed, in few named modules.
const UNSAFE_CRATES: &[&str] = &["cambium-io", "cambium-ffi", "cambium-leveldb"];

/// Crates that may call C in some files: those whose path begins so, and why.
/// Their root denies unsafe code, which those modules alone take back.
const UNSAFE_FILES: &[(&str, &str, &str)] = &[
    (
        "kvzone",
        "crates/kvzone/src/stores/",
        "foreign stores are C libraries, loaded while the program runs",
    ),
    (
        "cambium-foreign",
        "crates/cambium-foreign/src/",
        "foreign stores are C libraries, loaded while the program runs",
    ),
    (
        "kvzone",
        "crates/kvzone/src/allocator.rs",
        "an allocator is unsafe to write, and this one hands on to two others",
    ),
    (
        "cambium-bindings",
        "crates/cambium-bindings/src/c.rs",
        "pointers and lengths of C programs become slices there",
    ),
];

/// Work that was left: macros in code, words in comments.
const LEFTOVER_CODE: &[&str] = &["todo!", "unimplemented!", "dbg!"];
const LEFTOVER_WORDS: &[&str] = &[
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("TO", "DO"),
];

/// Folders of the machines that people work on.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/fa", "rm/"),
    concat!("/ro", "ot/"),
];

/// Checks every file.
pub fn check(files: &[TextFile]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files {
        found.extend(machine_paths(file));
        if file.is_rust() {
            found.extend(essay(file));
            found.extend(forbids_unsafe(file));
            found.extend(leftovers(file));
            found.extend(length(file));
        }
    }
    found
}

fn essay(file: &TextFile) -> Option<Violation> {
    let first = file.text.lines().find(|line| !line.trim().is_empty())?;
    (!first.starts_with("//!")).then(|| {
        Violation::error(
            &file.path,
            1,
            "essay",
            "the file does not begin with //!",
            "say what it is, what it promises, and the layout of bytes it writes",
        )
    })
}

fn forbids_unsafe(file: &TextFile) -> Option<Violation> {
    let name = file.crate_name()?;
    let inside = file.path.strip_prefix(&format!("crates/{name}/"))?;
    if UNSAFE_CRATES.contains(&name) {
        return None;
    }
    let is_root = matches!(inside, "src/lib.rs" | "src/main.rs") || inside.starts_with("src/bin/");
    let code = Source::new(&file.text).code;
    let mut allowed = UNSAFE_FILES.iter().filter(|files| files.0 == name);
    let Some((_, folder, reason)) = allowed.clone().next() else {
        return (is_root && !code.contains("#![forbid(unsafe_code)]")).then(|| {
            unsafe_violation(
                file,
                1,
                format!("crate {name} does not forbid unsafe code"),
                "add #![forbid(unsafe_code)] after the essay; what needs unsafe lives in cambium-io",
            )
        });
    };
    if is_root && !code.contains("#![deny(unsafe_code)]") {
        let what = format!("crate {name} does not deny unsafe code");
        let remedy = "add #![deny(unsafe_code)] after the essay; single modules may allow it";
        return Some(unsafe_violation(file, 1, what, remedy));
    }
    if allowed.any(|(_, path, _)| file.path.starts_with(path)) {
        return None;
    }
    let at = *find_words(&code, "unsafe").first()?;
    let what = format!("unsafe code outside {folder}, where it is allowed because {reason}");
    let remedy = "move it there, or to cambium-io";
    Some(unsafe_violation(file, line_of(&code, at), what, remedy))
}

fn unsafe_violation(file: &TextFile, line: usize, what: String, remedy: &str) -> Violation {
    Violation::error(&file.path, line, "unsafe", what, remedy)
}

fn leftovers(file: &TextFile) -> Vec<Violation> {
    let source = Source::new(&file.text);
    let views = [
        (&source.code, LEFTOVER_CODE),
        (&source.comments, LEFTOVER_WORDS),
    ];
    let mut found = Vec::new();
    for (view, patterns) in views {
        for pattern in patterns {
            found.extend(find_words(view, pattern).into_iter().map(|at| {
                Violation::error(
                    &file.path,
                    line_of(view, at),
                    "leftover",
                    format!("`{pattern}` was left behind"),
                    "finish it, or take it out and say in the documents what is missing",
                )
            }));
        }
    }
    found
}

fn length(file: &TextFile) -> Option<Violation> {
    let lines = file.text.lines().count();
    if lines <= MANY_LINES {
        return None;
    }
    let violation = Violation::error(
        &file.path,
        lines,
        "length",
        format!("{lines} lines; from {MANY_LINES} on it is long, past {MOST_LINES} too long"),
        "split it by concept",
    );
    Some(if lines > MOST_LINES {
        violation
    } else {
        violation.as_warning()
    })
}

fn machine_paths(file: &TextFile) -> Vec<Violation> {
    let text = file.text.as_bytes();
    let mut found = Vec::new();
    for pattern in MACHINE_PATHS {
        for (at, _) in file.text.match_indices(pattern) {
            // `docs/<name>/` is a folder of ours, `/<name>/` the machine's.
            let before = at.checked_sub(1).map(|before| text[before]);
            if before.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"._-}>".contains(&byte)) {
                continue;
            }
            found.push(Violation::error(
                &file.path,
                line_of(&file.text, at),
                "machine-path",
                format!("`{pattern}` is a folder of one machine"),
                "use a relative path, or one from an option or the environment",
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        let found = check(&[TextFile::new(path, text)]);
        found.iter().map(|v| (v.rule, v.line)).collect()
    }

    const PATH: &str = "crates/cambium-zdb/src/read.rs";

    #[test]
    fn a_file_without_an_essay_is_found() {
        assert_eq!(rules(PATH, "use x;\n"), [("essay", 1)]);
        assert_eq!(rules(PATH, "//! Essay.\nuse x;\n"), []);
    }

    #[test]
    fn a_crate_that_allows_unsafe_code_is_found() {
        let bare = "//! Essay.\n// #![forbid(unsafe_code)]\n";
        for root in ["src/lib.rs", "src/main.rs", "src/bin/tool.rs"] {
            let path = format!("crates/cambium-zdb/{root}");
            assert_eq!(rules(&path, bare), [("unsafe", 1)], "{root}");
            let forbidden = "//! Essay.\n#![forbid(unsafe_code)]\n";
            assert_eq!(rules(&path, forbidden), []);
        }
        assert_eq!(rules("crates/cambium-io/src/lib.rs", bare), []);
    }

    #[test]
    fn unsafe_code_outside_the_files_that_may_have_it_is_found() {
        let main = "crates/kvzone/src/main.rs";
        assert_eq!(rules(main, "//! Essay.\n"), [("unsafe", 1)]);
        assert_eq!(rules(main, "//! Essay.\n#![deny(unsafe_code)]\n"), []);
        let code = "//! Essay.\n\nfn f() { unsafe { g() } }\n";
        assert_eq!(rules("crates/kvzone/src/report.rs", code), [("unsafe", 3)]);
        assert_eq!(rules("crates/kvzone/src/stores/lmdb.rs", code), []);
    }

    #[test]
    fn what_was_left_behind_is_found() {
        for pattern in LEFTOVER_CODE {
            let text = format!("//! Essay.\nfn f() {{ {pattern}() }}\n");
            assert_eq!(rules(PATH, &text), [("leftover", 2)], "{pattern}");
        }
        for pattern in LEFTOVER_WORDS {
            let text = format!("//! Essay.\nfn f() {{}} // {pattern}: later\n");
            assert_eq!(rules(PATH, &text), [("leftover", 2)], "{pattern}");
        }
        assert_eq!(rules(PATH, "//! Essay.\nconst A: &str = \"todo!\";\n"), []);
    }

    #[test]
    fn long_files_warn_and_too_long_ones_fail() {
        let lines = |count| "//! Essay.\n".repeat(count);
        assert_eq!(rules(PATH, &lines(MANY_LINES)), []);
        let long = check(&[TextFile::new(PATH, &lines(MANY_LINES + 1))]);
        assert_eq!(long[0].severity, crate::Severity::Warning);
        let too_long = check(&[TextFile::new(PATH, &lines(MOST_LINES + 1))]);
        assert_eq!(too_long[0].severity, crate::Severity::Error);
    }

    #[test]
    fn machine_paths_are_found_in_any_file() {
        for pattern in MACHINE_PATHS {
            let text = format!("first\nsee {pattern}notes\n");
            assert_eq!(
                rules("README.md", &text),
                [("machine-path", 2)],
                "{pattern}"
            );
            let ours = format!("docs{pattern}notes");
            assert_eq!(rules("README.md", &ours), [], "{pattern}");
        }
    }
}
