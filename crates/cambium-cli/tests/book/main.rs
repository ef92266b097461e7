//! The shell blocks of the README and of `docs/` are run.
//!
//! | block | how it runs |
//! |---|---|
//! | ` ```console ` | A line that begins with `$ ` is a command for bash, and the lines after it are its output. `...` stands for any text, a line of it alone for any lines; `[exit status N]` is the last line of a command that fails. |
//! | ` ```console,server ` | Its one command runs in the background. The page continues once the output has a line with `ready`. |
//! | ` ```sh ` | A script. Every command succeeds; any output is right. |
//! | ` ```python needs=MODULE ` | A script. |
//! | ` ```sh ignore=REASON ` | Does not run. `cargo xtask tidy` has the list of reasons. |
//! | `<!-- before: COMMAND -->` | Prepares what a page expects of its reader's machine. |
//!
//! The blocks of a page run one after the other in one empty folder, in name spaces of their
//! own for processes and network, so that servers have their usual ports and end with the page.
//! A page that needs a program, a module of Python, or a name space, that is not here is
//! skipped, which the test prints on standard error. Rust blocks are doctests of crate `cambium`; Python blocks run in
//! the suite of `cambium-python` unless they need a module, and those in C in `.ci/installed`.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a step runs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A command whose output is compared.
    Command,
    /// A command that goes on in the background.
    Server,
    /// Commands that all have to succeed.
    Script,
}

/// Something that bash runs, and what it has to print.
#[derive(Debug, PartialEq)]
struct Step {
    /// Where it begins in its page, from 1.
    line: usize,
    command: String,
    expected: Vec<String>,
    kind: Kind,
    /// The module of Python that it needs.
    module: Option<String>,
}

/// A line that prepares a page begins with this, and ends with ` -->`.
const BEFORE: &str = "<!-- before: ";

fn step(line: usize, kind: Kind, command: &str) -> Step {
    Step {
        line,
        command: command.to_string(),
        expected: Vec::new(),
        kind,
        module: None,
    }
}

/// A block in another language goes to its program up to the end of the block.
const HERE: &str = "<<'```'";

/// Chooses a Python that has the module; fails if there is none.
fn choose_python(module: &str) -> String {
    format!(
        "for python in python3 /usr/bin/python3; do \
         $python -c 'import {module}' 2>/dev/null && break; done"
    )
}

/// The steps of all shell blocks of a page.
fn steps(page: &str) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    let mut block = None;
    for (line, text) in (1..).zip(page.lines()) {
        if let Some(info) = text.strip_prefix("```") {
            let last = found.last_mut().filter(|_| block.is_some());
            if let Some(step) = last.filter(|step| step.command.contains(HERE)) {
                step.command += "```\n";
            }
            block = match info {
                "console" => Some(Kind::Command),
                "console,server" => Some(Kind::Server),
                "sh" => Some(Kind::Script),
                _ => None,
            };
            if let Some(module) = info.strip_prefix("python needs=") {
                block = Some(Kind::Script);
                let script = format!("{}\n$python - {HERE}\n", choose_python(module));
                found.push(Step {
                    module: Some(module.to_string()),
                    ..step(line, Kind::Script, &script)
                });
            } else if block == Some(Kind::Script) {
                found.push(step(line + 1, Kind::Script, ""));
            }
        } else if let Some(command) = text.strip_prefix(BEFORE) {
            found.push(step(line, Kind::Script, command.trim_end_matches(" -->")));
        } else if let (Some(Kind::Script), Some(step)) = (block, found.last_mut()) {
            step.command = step.command.clone() + text + "\n";
        } else if let (Some(kind), Some(command)) = (block, text.strip_prefix("$ ")) {
            found.push(step(line, kind, command));
        } else if let (Some(_), Some(step)) = (block, found.last_mut()) {
            match step.command.ends_with('\\') && step.expected.is_empty() {
                true => step.command = format!("{}\n{text}", step.command),
                false => step.expected.push(text.to_string()),
            }
        }
    }
    found
}

/// Whether a line is as expected, where `...` stands for any text.
fn line_matches(expected: &str, line: &str) -> bool {
    match expected.split_once("...") {
        None => expected == line,
        Some((before, after)) => line.strip_prefix(before).is_some_and(|rest| {
            let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.into_iter().any(|at| line_matches(after, &rest[at..]))
        }),
    }
}

/// Whether the output of a command is as expected.
fn matches(expected: &[String], output: &[&str]) -> bool {
    match expected.split_first() {
        None => output.is_empty(),
        Some((line, rest)) if line == "..." => {
            (0..=output.len()).any(|passed| matches(rest, &output[passed..]))
        }
        Some((line, rest)) => match output.split_first() {
            Some((first, others)) => line_matches(line, first) && matches(rest, others),
            None => false,
        },
    }
}

/// A line before the output of each command; no command prints it.
const MARK: char = '\u{1}';

/// Begins the line about a command of a script that failed.
const FAILED: &str = "[failed] line ";

/// The steps as a program of bash that prints a mark before each output.
fn script(steps: &[Step]) -> String {
    let mut text = String::from("ip link set lo up\n");
    for (number, step) in steps.iter().enumerate() {
        text.push_str("printf '\\001'\n");
        // Writing to a string cannot fail.
        _ = match step.kind {
            Kind::Server => writeln!(
                text,
                "{{ {} ; }} >server-{number}.log 2>&1 </dev/null &\n\
                 for turn in {{1..100}}; do grep -q ready server-{number}.log && break; sleep 0.1; done\n\
                 cat server-{number}.log",
                step.command
            ),
            Kind::Command => writeln!(
                text,
                "{{ {}\n}} 2>&1 </dev/null\nstatus=$?\n\
                 [ $status = 0 ] || printf '[exit status %d]\\n' $status{}",
                step.command,
                // A server with TLS still closes its store when its client is gone.
                if step.command.ends_with(" SHUTDOWN") {
                    "\nwait"
                } else {
                    ""
                }
            ),
            // The trap reports each command that fails, by its line in the page.
            Kind::Script => writeln!(
                text,
                "first=$LINENO\n\
                 trap 'printf \"{FAILED}%d: exit status %d\\n\" $((LINENO - first + {} - 3)) $?' ERR\n\
                 {{\n{}\n}} 2>&1 </dev/null\n\
                 trap - ERR",
                step.line, step.command
            ),
        };
    }
    text
}

/// The folder of the programs that Cargo built.
fn programs() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_cambium"));
    program.parent().unwrap_or(Path::new(".")).to_path_buf()
}

/// Runs the steps in an empty folder; the differences found, one a text.
fn run(steps: &[Step]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let ran = Command::new("unshare")
        .args([
            "--map-root-user",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
        ])
        .args(["bash", "-c", &script(steps)])
        .current_dir(folder.path())
        .env("PATH", format!("{}:{path}", programs().display()))
        .env("HOME", folder.path())
        .env_remove("RUST_LOG")
        .output()
        .expect("unshare");
    let output = String::from_utf8_lossy(&ran.stdout);
    let outputs = output.split(MARK).skip(1).chain(std::iter::repeat(""));
    let compared = steps
        .iter()
        .zip(outputs.map(|text| text.trim_start_matches('\n')));
    let differing = compared.filter(|(step, output)| {
        let lines: Vec<&str> = output.lines().map(str::trim_end).collect();
        match step.kind {
            Kind::Script => output.contains(FAILED),
            Kind::Command | Kind::Server => !matches(&step.expected, &lines),
        }
    });
    differing
        .map(|(step, output)| format!("line {}: $ {}\n{output}", step.line, step.command))
        .collect()
}

/// The program of each command: the first word that sets no variable.
fn words(steps: &[Step]) -> impl Iterator<Item = &str> {
    let commands = steps.iter().flat_map(|step| match step.kind {
        Kind::Script => step
            .command
            .split(HERE)
            .take(1)
            .flat_map(str::lines)
            .collect(),
        Kind::Command | Kind::Server => vec![step.command.as_str()],
    });
    let begins = commands.filter(|command| !command.starts_with([' ', '#', '$']));
    begins.filter_map(|command| {
        let mut words = command.split_whitespace();
        words.find(|word| !word.contains('='))
    })
}

fn has_module(module: &str) -> bool {
    let found = Command::new("bash")
        .args(["-c", &choose_python(module)])
        .status();
    found.is_ok_and(|found| found.success())
}

fn is_there(program: &str) -> bool {
    let found = Command::new("bash")
        .args(["-c", "command -v -- \"$0\"", program])
        .env(
            "PATH",
            format!(
                "{}:{}",
                programs().display(),
                std::env::var("PATH").unwrap_or_default()
            ),
        )
        .output();
    found.is_ok_and(|found| found.status.success())
}

/// Why the steps cannot be run here.
fn missing(steps: &[Step]) -> Option<String> {
    let space = Command::new("unshare")
        .args([
            "--map-root-user",
            "--net",
            "--pid",
            "--fork",
            "ip",
            "link",
            "set",
            "lo",
            "up",
        ])
        .output();
    if !space.is_ok_and(|space| space.status.success()) {
        return Some("unshare and ip cannot make a name space".to_string());
    }
    let program = words(steps).find(|word| !is_there(word));
    let mut modules = steps.iter().filter_map(|step| step.module.as_deref());
    let module = modules.find(|module| !has_module(module));
    let program = program.map(|program| format!("there is no program {program}"));
    program.or_else(|| module.map(|module| format!("Python has no module {module}")))
}

/// The markdown files below a folder.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

#[test]
fn the_sessions_of_the_pages_are_as_shown() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = vec![root.join("README.md")];
    pages(&root.join("docs"), &mut all);
    all.sort();
    // One page alone, while it is written.
    let only = std::env::var("CAMBIUM_PAGE").ok();
    all.retain(|page| only.as_ref().is_none_or(|only| page.ends_with(only)));
    let mut wrong = String::new();
    let mut count = 0;
    for page in all {
        let steps = steps(&fs::read_to_string(&page).expect("a page"));
        if steps.is_empty() {
            continue;
        }
        count += steps.len();
        if let Some(why) = missing(&steps) {
            eprintln!("book: SKIPPED {}: {why}", page.display());
            continue;
        }
        for difference in run(&steps) {
            // Writing to a string cannot fail.
            _ = writeln!(wrong, "{}, {difference}", page.display());
        }
    }
    assert!(
        count > 80 || only.is_some(),
        "{count} commands in all pages"
    );
    assert!(
        wrong.is_empty(),
        "these differ from what the pages show:\n{wrong}"
    );
}

#[test]
fn a_session_is_read_as_steps() {
    let page = "```text\n$ no\n```\n```console\n$ echo a \\\n  b\na b\n```\n\
                ```console,server\n$ serve\nready\n```\n\
                <!-- before: mkdir b -->\n```sh\ncd b\nls\n```\n```sh ignore=x\nno\n```\n";
    let step = |line, command: &str, expected: &[&str], kind| Step {
        expected: expected.iter().map(ToString::to_string).collect(),
        ..step(line, kind, command)
    };
    let expected = [
        step(5, "echo a \\\n  b", &["a b"], Kind::Command),
        step(10, "serve", &["ready"], Kind::Server),
        step(13, "mkdir b", &[], Kind::Script),
        step(15, "cd b\nls\n", &[], Kind::Script),
    ];
    assert_eq!(steps(page), expected);
}

#[test]
fn output_that_differs_is_found() {
    let owned = |lines: &[&str]| -> Vec<String> { lines.iter().map(ToString::to_string).collect() };
    for (expected, output, same) in [
        (&["a"][..], &["a"][..], true),
        (&["a"], &["b"], false),
        (&["a"], &["a", "b"], false),
        (&["a", "b"], &["a"], false),
        (&["a ... c"], &["a b c"], true),
        (&["a ... c"], &["a b d"], false),
        (&["...", "c"], &["a", "b", "c"], true),
        (&["...", "c"], &["a", "b"], false),
    ] {
        assert_eq!(
            matches(&owned(expected), output),
            same,
            "{expected:?}, {output:?}"
        );
    }
    let page = "```console\n$ cambium get trees oak\nQuercus\n```\n\
                ```sh\ntrue\nfalse\ncambium --version\n```\n";
    if missing(&steps(page)).is_none() {
        let found = run(&steps(page));
        assert_eq!(
            found.len(),
            2,
            "there is no store, and false fails: {found:?}"
        );
        assert!(
            found[1].contains("[failed] line 7: exit status 1"),
            "{found:?}"
        );
    }
}
