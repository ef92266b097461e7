//! A reproduced figure: its tables, the paper's sentences, and where they go.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use kvzone_core::error::{Error, Result};
use kvzone_core::report::text::three_digits;
use kvzone_core::statistics::verdict::{Comparison, Verdict};
use serde_json::{Value, json};

use super::grid::{Claim, Grid, HELD, claims_markdown, claims_terminal};
use super::{ReproduceArguments, document};
use crate::output;

/// What is shown of any figure.
#[derive(Debug)]
pub(super) struct Shown {
    /// Tables with their titles.
    pub(super) grids: Vec<(&'static str, Grid)>,
    /// The paper's sentences.
    pub(super) claims: Vec<Claim>,
    /// What the figures hold for; lines.
    pub(super) conditions: String,
}

impl Shown {
    /// For a terminal.
    pub(super) fn terminal(&self, title: &str) -> String {
        let mut text = format!("{title}\n");
        for (title, grid) in &self.grids {
            if !title.is_empty() {
                text += &format!("{title}\n");
            }
            text += &grid.terminal();
        }
        text += &format!("{HELD}\n");
        text + &claims_terminal(&self.claims) + &self.conditions
    }

    /// For a document, with the command that makes it above.
    pub(super) fn markdown(&self, command: &str) -> String {
        let mut text = format!("```text\n{command}\n```\n\n");
        for (title, grid) in &self.grids {
            if !title.is_empty() {
                text += &format!("{title}:\n\n");
            }
            text += &grid.markdown();
            text += "\n";
        }
        text += &claims_markdown(&self.claims);
        text += "\n";
        for line in self.conditions.lines() {
            text += &format!("- {line}\n");
        }
        text
    }
}

/// Where a figure goes, known to be there before minutes of measuring.
pub(super) struct Place<'a> {
    arguments: &'a ReproduceArguments,
    json: Option<(&'a Path, File)>,
}

impl<'a> Place<'a> {
    /// Refuses a document without a place for the figure, and makes the file
    /// for its JSON.
    pub(super) fn prepare(arguments: &'a ReproduceArguments) -> Result<Place<'a>> {
        if let Some(path) = &arguments.update {
            document::check(path, &arguments.name)?;
        }
        let json = match &arguments.json {
            Some(path) => {
                let created = File::create(path);
                let file = created.map_err(|error| Error::machine("create", path, error))?;
                Some((path.as_path(), file))
            }
            None => None,
        };
        Ok(Place { arguments, json })
    }

    /// Writes and prints what was asked for.
    pub(super) fn finish(self, title: &str, found: Value, shown: &Shown) -> Result<()> {
        if let Some((path, mut file)) = self.json {
            let text = format!("{:#}\n", with_claims(found, shown));
            file.write_all(text.as_bytes())
                .map_err(|error| Error::machine("write", path, error))?;
        }
        let markdown = shown.markdown(&command(self.arguments));
        let mut text = shown.terminal(title);
        if self.arguments.markdown {
            text += "\n";
            text += &markdown;
        }
        if let Some(path) = &self.arguments.update {
            document::update(path, &self.arguments.name, &markdown)?;
        }
        output::print(&text)?;
        Ok(())
    }
}

/// The figures, and beside them the paper's sentences.
fn with_claims(mut found: Value, shown: &Shown) -> Value {
    let claim = |claim: &Claim| {
        let doubtful = claim.is_within_noise();
        let holds = claim.here.as_ref().filter(|_| !doubtful);
        let holds = holds.map(|_| claim.holds);
        json!({
            "paper": claim.paper, "here": claim.here, "holds": holds,
            "within_noise": doubtful,
        })
    };
    let claims: Vec<Value> = shown.claims.iter().map(claim).collect();
    if found.is_null() {
        found = json!({"schema": "kvzone-analysis/1"});
    }
    found["claims"] = claims.into();
    found
}

/// A ratio with its interval, and doubt about it.
pub(super) fn ratio_text(comparison: Option<Comparison>) -> String {
    let Some(found) = comparison else {
        return "-".to_string();
    };
    let range = found.interval.map_or_else(String::new, |interval| {
        let (low, high) = (three_digits(interval.low), three_digits(interval.high));
        format!(" [{low}, {high}]")
    });
    let doubt = match found.verdict {
        Verdict::Noise => " (noise)",
        Verdict::Unknown => "",
        Verdict::Higher | Verdict::Lower | Verdict::Equal => "",
    };
    format!("{}{range}{doubt}", three_digits(found.ratio))
}

/// What makes the table again, but for where it is made.
fn command(arguments: &ReproduceArguments) -> String {
    let mut words = format!("kvzone reproduce {}", arguments.name);
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words += &format!(" --{name} {value}");
        }
    };
    let listed =
        |values: &[String]| (!values.is_empty()).then(|| format!("\"{}\"", values.join(",")));
    add("scale", arguments.scale.map(|scale| scale.to_string()));
    add("repeat", arguments.repeat.map(|repeat| repeat.to_string()));
    add("stores", listed(&arguments.stores));
    add("points", listed(&arguments.points));
    add(
        "operations",
        arguments.operations.map(|count| count.to_string()),
    );
    if arguments.seconds != super::SECONDS {
        add("seconds", Some(arguments.seconds.to_string()));
    }
    if arguments.seed != 1 {
        add("seed", Some(arguments.seed.to_string()));
    }
    add("memory", arguments.memory.map(|bytes| bytes.to_string()));
    if arguments.all_points {
        words += " --all-points";
    }
    words
}
