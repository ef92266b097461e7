//! `kvzone run`: stores beside each other, on a terminal, as JSON, as a page.
//!
//! | module | what it holds |
//! |---|---|
//! | `arguments` | what is asked on the command line or in a file |
//! | `parse` | values of options: sizes, laws, patterns |
//! | `campaign` | rounds of workers |

pub(crate) mod arguments;
pub(crate) mod campaign;
pub(crate) mod parse;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use kvzone_core::error::{Error, Result};
use kvzone_core::record::{Report, Run, Status};
use kvzone_core::report::summary::{Summary, different_answers, summarize};
use kvzone_core::report::{html, terminal, text};

use crate::output;
use crate::supervisor::Watcher;
pub(crate) use arguments::RunArguments;
use campaign::Audience;

/// Exit status of a run in which a store failed or was missing.
const FAILED: u8 = 3;

/// Exit status of a run that no store could do.
const UNSUPPORTED: u8 = 2;

/// Runs, prints, and writes the files.
pub(crate) fn run(arguments: RunArguments) -> Result<ExitCode> {
    let arguments = arguments.with_job_file()?;
    let campaign = arguments.campaign()?;
    // Opened first: an hour of measuring must not end at a mistyped path.
    let json = arguments.json.as_deref().map(create).transpose()?;
    let page = arguments.html.as_deref().map(create).transpose()?;
    let mut stage = Stage::new();
    let outcome = campaign.run(&mut stage);
    stage.close();
    let outcome = outcome?;
    let summaries = summarize(&outcome.report, &campaign.stores());
    if let Some((path, mut file)) = json {
        write_json(path, &mut file, &outcome.report)?;
    }
    if let Some((path, mut file)) = page {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let command = format!("kvzone {}", words.join(" "));
        let page = html::render(&outcome.report, &summaries, &command);
        file.write_all(page.as_bytes())
            .map_err(|error| Error::machine("write", path, error))?;
    }
    let mut text: String = summaries.iter().map(terminal::render).collect();
    for warning in &outcome.warnings {
        text += &format!("Warning: {warning}\n");
    }
    output::print(&text)?;
    Ok(exit_code(&outcome.report, &summaries))
}

/// A file that will be written at the end.
fn create(path: &Path) -> Result<(&Path, File)> {
    match File::create(path) {
        Ok(file) => Ok((path, file)),
        Err(error) => Err(Error::machine("create", path, error)),
    }
}

/// Writes a report as JSON.
pub(crate) fn write_json(path: &Path, file: &mut File, report: &Report) -> Result<()> {
    let mut bytes =
        serde_json::to_vec_pretty(report).map_err(|error| Error::machine("write", path, error))?;
    bytes.push(b'\n');
    file.write_all(&bytes)
        .map_err(|error| Error::machine("write", path, error))
}

/// What a store cannot do is no failure, unless no store can do it.
fn exit_code(report: &Report, summaries: &[Summary]) -> ExitCode {
    let is = |status: Status| report.runs.iter().any(|run| run.status == status);
    let wrong = summaries.iter().any(|summary| {
        let same = |run: &&Run| run.workload == summary.workload;
        let runs: Vec<&Run> = report.runs.iter().filter(same).collect();
        different_answers(&runs, summary.phase).is_some()
    });
    let failures = [
        Status::Failed,
        Status::Wrong,
        Status::Crashed,
        Status::Hung,
        Status::Missing,
    ];
    if wrong || failures.into_iter().any(is) {
        ExitCode::from(FAILED)
    } else if !is(Status::Ok) {
        ExitCode::from(UNSUPPORTED)
    } else {
        ExitCode::SUCCESS
    }
}

/// Progress on a terminal, notes on standard error everywhere.
pub(crate) struct Stage {
    bar: ProgressBar,
    what: String,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        let bar = if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:20} {pos}/{len} {msg}");
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        } else {
            ProgressBar::hidden()
        };
        Stage {
            bar,
            what: String::new(),
        }
    }

    pub(crate) fn close(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watcher for Stage {
    fn progress(&mut self, stage: &str, operations: u64) {
        let message = match operations {
            0 => format!("{}: {stage}", self.what),
            some => format!("{}: {stage}, {}", self.what, text::grouped(some as f64)),
        };
        self.bar.set_message(message);
    }
}

impl Audience for Stage {
    fn begins(&mut self, done: usize, total: usize, what: &str) {
        self.what = what.to_string();
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(what.to_string());
    }

    fn note(&mut self, text: &str) {
        self.bar
            .suspend(|| output::complain(&format!("kvzone: {text}")));
    }
}
