//! The blocks of code in the book run, or say why they do not.
//!
//! A block names its language. Commands of a shell stand in `sh` and `console` blocks, which a
//! suite of `cambium-cli` runs; a block that cannot run there gives one of the [`REASONS`].
//! Pages with Rust are doctests of the crate `cambium`, which names them in its `lib.rs`.

use crate::violation::Violation;
use crate::workspace::TextFile;

const DOCTESTS: &str = "crates/cambium/src/lib.rs";

/// The words behind a fence that say how a block runs.
const KNOWN: &[&str] = &[
    "c",
    "console",
    "console,server",
    "python",
    "python needs=redis",
    "rust",
    "rust,no_run",
    "sh",
    "text",
    "toml",
    "yaml",
];

/// Why a block of commands does not run in the suite.
pub const REASONS: &[&str] = &[
    "needs-checkout",
    "needs-data",
    "needs-network",
    "needs-root",
    "placeholders",
    "runs-until-stopped",
    "takes-minutes",
];

/// The programs whose lines are commands.
const PROGRAMS: &[&str] = &[
    "apt",
    "apt-get",
    "cambium",
    "cambium-server",
    "cargo",
    "curl",
    "docker",
    "dpkg",
    "export",
    "git",
    "kvzone",
    "make",
    "openssl",
    "pip",
    "python",
    "python3",
    "redis-cli",
    "sudo",
];

/// Checks every page of the book, and those beside it.
pub fn check(files: &[TextFile]) -> Vec<Violation> {
    let doctests = files.iter().find(|file| file.path == DOCTESTS);
    let doctests = doctests.map_or("", |file| &file.text);
    let pages = files.iter().filter(|file| {
        file.path.ends_with(".md") && (file.path.starts_with("docs/") || !file.path.contains('/'))
    });
    pages.flat_map(|page| page_check(page, doctests)).collect()
}

fn page_check(page: &TextFile, doctests: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut report = |line, what: String, remedy: &str| {
        found.push(Violation::error(&page.path, line, "blocks", what, remedy));
    };
    let mut block: Option<&str> = None;
    for (line, text) in (1..).zip(page.text.lines().map(str::trim)) {
        match (text.strip_prefix("```"), block) {
            (Some(_), Some(_)) => block = None,
            (Some(info), None) => {
                block = Some(info);
                let reason = info.strip_prefix("sh ignore=");
                let known = reason.map_or(KNOWN.contains(&info), |it| REASONS.contains(&it));
                if !known {
                    let what = format!("a block of {info:?}");
                    report(
                        line,
                        what,
                        "use a language or a reason of xtask/src/blocks.rs",
                    );
                }
                // The README's example is a file that a test compares.
                let shown = page.path == "README.md" || doctests.contains(&page.path);
                if info.starts_with("rust") && !shown {
                    let what = "Rust that does not run".to_string();
                    report(
                        line,
                        what,
                        "include the page in the doctests of crate cambium",
                    );
                }
            }
            (None, Some("text")) => {
                let mut words = text.split(' ');
                let program = words.next().unwrap_or_default();
                let program = program.rsplit('/').next().unwrap_or_default();
                if PROGRAMS.contains(&program) && words.next().is_some() {
                    let what = format!("a command in a block of text: {text}");
                    report(line, what, "make the block sh or console");
                }
            }
            (None, _) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(page: &str) -> Vec<usize> {
        let files = [
            TextFile::new("docs/a.md", page),
            TextFile::new(DOCTESTS, "include_str!(\"../../../docs/b.md\")"),
        ];
        let found = check(&files);
        found.iter().map(|found| found.line).collect()
    }

    #[test]
    fn blocks_that_do_not_run_are_found() {
        let good = "```sh\ncambium create trees\n```\n```sh ignore=needs-root\nlosetup\n```\n\
                    ```text\ncambium is ready\n```\n";
        assert_eq!(lines(&good.replace("cambium is", "the server is")), [0; 0]);
        assert_eq!(lines(good), [8], "a line that may be a command");
        assert_eq!(lines("```\na\n```\n"), [1], "no language");
        assert_eq!(lines("```sh ignore=later\na\n```\n"), [1], "no reason");
        assert_eq!(lines("```text\n/usr/bin/cambium get a b\n```\n"), [2]);
        assert_eq!(lines("```rust\nlet a = 1;\n```\n"), [1]);
    }

    #[test]
    fn pages_among_the_doctests_may_have_rust() {
        let page = TextFile::new("docs/b.md", "```rust\nlet a = 1;\n```\n");
        let doctests = TextFile::new(DOCTESTS, "include_str!(\"../../../docs/b.md\")");
        assert_eq!(check(&[page.clone(), doctests]), []);
        assert_eq!(check(&[page]).len(), 1);
    }
}
