//! `kvzone run`: stores beside each other, on a terminal, as JSON, as a page.
//!
//! | module | what it holds |
//! |---|---|
//! | `arguments` | what is asked on the command line or in a file |
//! | `parse` | values of options: sizes, laws, patterns |
//! | `job_file` | options in a file, and where in it one is wrong |
//! | `traced` | a trace as a workload |
//! | `campaign` | rounds of workers |

pub(crate) mod arguments;
pub(crate) mod campaign;
mod job_file;
pub(crate) mod parse;
mod traced;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use kvzone_core::error::{Error, Result};
use kvzone_core::record::{Report, Run, Status};
use kvzone_core::report::summary::{Summary, different_answers, summarize};
use kvzone_core::report::{html, text};
use serde::Serialize;

use crate::stop::{STOPPED, Stop};
use crate::{output, words};
pub(crate) use arguments::RunArguments;

/// Exit status of a run in which a store failed or was missing.
const FAILED: u8 = 3;

/// Exit status of a run that no store could do.
const UNSUPPORTED: u8 = 2;

pub(crate) fn run(arguments: RunArguments) -> Result<ExitCode> {
    let arguments = arguments.with_job_file(std::env::args_os().skip(2).collect())?;
    let campaign = arguments.campaign()?;
    // Opened first: an hour of measuring must not end at a mistyped path.
    let json = arguments.json.as_deref().map(create).transpose()?;
    let page = arguments.html.as_deref().map(create).transpose()?;
    let csv = arguments.csv.as_deref().map(create).transpose()?;
    let markdown = arguments.markdown.as_deref().map(create).transpose()?;
    let mut stage = Stage::new()?;
    let outcome = campaign.run(&mut stage);
    stage.close();
    let outcome = outcome?;
    let summaries = summarize(&outcome.report, &campaign.stores());
    if let Some((path, mut file)) = json {
        write_json(path, &mut file, &outcome.report)?;
    }
    let command = words::command(&[]);
    let report = &outcome.report;
    write(csv, || report.csv())?;
    let built = html::page(report, &summaries, &command);
    write(page, || built.html())?;
    write(markdown, || built.markdown())?;
    let mut text = built.terminal();
    for warning in &outcome.warnings {
        text += &format!("Warning: {warning}\n");
    }
    output::print(&text)?;
    if outcome.stopped {
        return Ok(ExitCode::from(STOPPED));
    }
    Ok(exit_code(&outcome.report, &summaries))
}

pub(crate) fn create(path: &Path) -> Result<(&Path, File)> {
    match File::create(path) {
        Ok(file) => Ok((path, file)),
        Err(error) => Err(Error::machine("create", path, error)),
    }
}

fn write(file: Option<(&Path, File)>, text: impl Fn() -> String) -> Result<()> {
    let Some((path, mut file)) = file else {
        return Ok(());
    };
    file.write_all(text().as_bytes())
        .map_err(|error| Error::machine("write", path, error))
}

pub(crate) fn write_json(path: &Path, file: &mut File, report: &impl Serialize) -> Result<()> {
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
        let same = |run: &&Run| summary.has(run);
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

/// A bar on a terminal; elsewhere nothing.
pub(crate) fn progress_bar(template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Progress on a terminal, notes on standard error everywhere.
pub(crate) struct Stage {
    bar: ProgressBar,
    what: String,
    stop: Stop,
    began: Instant,
    /// The stage that goes on, and when it was first heard of.
    stage: (String, Instant),
    done: usize,
    total: usize,
}

impl Stage {
    /// Listens to Ctrl-C from now on.
    pub(crate) fn new() -> Result<Stage> {
        let bar = progress_bar("{bar:20} {pos}/{len} {msg}");
        let now = Instant::now();
        Ok(Stage {
            bar,
            what: String::new(),
            stop: Stop::listen()?,
            began: now,
            stage: (String::new(), now),
            done: 0,
            total: 0,
        })
    }

    /// From the second worker on: how long the rest takes if it is as the first.
    fn time_left(&self) -> String {
        if self.done == 0 {
            return String::new();
        }
        let worker = self.began.elapsed().as_secs_f64() / self.done as f64;
        let left = worker * (self.total - self.done) as f64;
        format!(", about {} left", text::duration(left * 1e9))
    }

    pub(crate) fn close(&self) {
        self.bar.finish_and_clear();
    }

    pub(crate) fn progress(&mut self, stage: &str, operations: u64) {
        if self.stage.0 != stage {
            self.stage = (stage.to_string(), Instant::now());
        }
        let mut message = format!("{}: {stage}", self.what);
        if operations > 0 {
            let seconds = self.stage.1.elapsed().as_secs_f64().max(1e-3);
            let (count, rate) = (operations as f64, operations as f64 / seconds);
            message += &format!(", {} ({}/s)", text::grouped(count), text::grouped(rate));
        }
        self.bar.set_message(message + &self.time_left());
    }

    /// True once the worker is to be ended.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_wanted()
    }

    /// Another worker begins: `done` of `total` have ended.
    pub(crate) fn begins(&mut self, done: usize, total: usize, what: &str) {
        self.what = what.to_string();
        self.stage = (String::new(), Instant::now());
        (self.done, self.total) = (done, total);
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(what.to_string());
    }

    /// Says at once what people should know.
    pub(crate) fn note(&mut self, text: &str) {
        self.bar
            .suspend(|| output::complain(&format!("kvzone: {text}")));
    }
}
