//! A figure as text for a terminal, for a document and as a page, and where it goes.

use std::fs::File;
use std::path::Path;

use kvzone_core::error::{Error, Result};
use kvzone_core::report::grid::Grid;
use kvzone_core::report::page::{Chart, Page, Row};
use kvzone_core::report::text::or_dash;
use kvzone_core::statistics::verdict::{Comparison, Verdict};
use serde_json::{Value, json};

use super::claims::{Claim, claims, claims_grid};
use super::columns::{Column, Of};
use super::measured::{Cell, Measured};
use super::{ReproduceArguments, document};
use crate::{output, run, words};

/// Tables of a measured figure, and the paper's sentences by medians and by rounds.
pub(super) fn show(measured: &Measured) -> Shown {
    let tables = measured.figure.says.tables.iter();
    let grids = tables.map(|(workload, title)| (title.as_str(), rows(measured, workload)));
    Shown {
        grids: grids.filter(|(_, grid)| !grid.rows.is_empty()).collect(),
        claims: claims(measured),
        conditions: conditions(measured),
        charts: charts(measured),
    }
}

/// The first column of each point, a row a store and a dot a round.
fn charts(measured: &Measured) -> Vec<Chart> {
    let Some(column) = measured.figure.columns.first() else {
        return Vec::new();
    };
    let chart = |(workload, title): (&String, &String), place: usize| {
        let cells = measured.of_workload(workload).enumerate();
        let rows = cells.filter(|(_, cell)| cell.point == place);
        let row = |(number, cell): (usize, &Cell)| Row {
            name: cell.label.clone(),
            colour: number,
            values: cell
                .rounds
                .iter()
                .filter_map(|it| column.of.number(it))
                .collect(),
            median: cell.median(column.of),
        };
        let head = [title.as_str(), &measured.points[place].label, column.name];
        let head: Vec<&str> = head.into_iter().filter(|text| !text.is_empty()).collect();
        Chart::rows(head.join(", "), column.unit, false, rows.map(row).collect())
    };
    let tables = measured.figure.says.tables.iter();
    let places = 0..measured.points.len();
    tables
        .flat_map(|(workload, title)| {
            places
                .clone()
                .map(move |place| chart((workload, title), place))
        })
        .collect()
}

fn named(label: &str, version: Option<&str>) -> String {
    match version {
        Some(version) => format!("{label} {version}"),
        None => label.to_string(),
    }
}

fn rows(measured: &Measured, workload: &str) -> Grid {
    let figure = measured.figure;
    let mut heads = vec![figure.says.axis.clone(), figure.says.who.clone()];
    heads.extend(figure.columns.iter().map(|column| match column.of {
        Of::Ratio => format!("{} : it", measured.first()),
        _ => column.name.to_string(),
    }));
    let row = |cell: &Cell| {
        let columns = figure.columns.iter();
        let cells = columns.map(|column| text_of(measured, cell, column));
        let label = named(&cell.label, cell.version.as_deref());
        let words = [measured.points[cell.point].label.clone(), label];
        words.into_iter().chain(cells).collect()
    };
    Grid {
        heads,
        words: 2,
        rows: measured.of_workload(workload).map(row).collect(),
    }
}

/// The text of a cell; a failure stands in the first column.
fn text_of(measured: &Measured, cell: &Cell, column: &Column) -> String {
    let mut columns = measured.figure.columns.iter();
    let is_first = columns
        .next()
        .is_some_and(|first| first.name == column.name);
    match (&cell.failure, column.of) {
        (Some(reason), _) if is_first => reason.clone(),
        (_, Of::Ratio) => ratio_text(measured.ratio(cell)),
        _ => or_dash(measured.value(cell, column), |value| {
            column.unit.text(value)
        }),
    }
}

/// The conditions of the figures: rounds, the work, and the settings at each point.
fn conditions(measured: &Measured) -> String {
    let figure = measured.figure;
    let mut text = rounds(measured, &figure.says.what) + &figure.paper.conditions;
    for point in &measured.points {
        text += &point.conditions;
    }
    for warning in &measured.warnings {
        text += &format!("Warning: {warning}\n");
    }
    text
}

/// How many rounds, from which seed, and what was issued; a line.
fn rounds(measured: &Measured, what: &str) -> String {
    let rounds = match measured.repeat {
        1 => "One round (no interval, no winner)".to_string(),
        rounds => format!("Medians of {rounds} rounds in which stores take turns"),
    };
    let (seed, scale) = (measured.seed, measured.scale);
    format!("{rounds}, seed {seed}, scale {scale}; {what}.\n")
}

#[derive(Debug)]
pub(super) struct Shown {
    pub(super) grids: Vec<(&'static str, Grid)>,
    pub(super) claims: Vec<Claim>,
    pub(super) conditions: String,
    pub(super) charts: Vec<Chart>,
}

impl Shown {
    fn page(&self, title: &str, command: &str) -> Page {
        let mut page = Page::new(title, command);
        for chart in &self.charts {
            page.chart(chart.clone());
        }
        for (title, grid) in &self.grids {
            if !title.is_empty() {
                page.heading(title);
            }
            page.table(grid.clone(), |_| "");
        }
        if !self.claims.is_empty() {
            page.heading("The paper, and whether its direction held");
            page.table(claims_grid(&self.claims), |_| "");
        }
        page.list(
            self.conditions.lines().map(str::to_string).collect(),
            Vec::new(),
        );
        page
    }
}

/// The destination of a figure, checked before minutes of measuring.
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
        let json = arguments.json.as_deref().map(run::create).transpose()?;
        Ok(Place { arguments, json })
    }

    pub(super) fn finish(self, title: &str, found: Value, shown: &Shown) -> Result<()> {
        if let Some((path, mut file)) = self.json {
            run::write_json(path, &mut file, &with_claims(found, shown))?;
        }
        let command = words::command(&["--markdown"]);
        let page = shown.page(title, &command);
        let markdown = page.part("");
        let mut text = title.to_string() + &page.terminal();
        if self.arguments.markdown {
            text += "\n";
            text += &markdown;
        }
        if let Some(path) = &self.arguments.html {
            std::fs::write(path, page.html())
                .map_err(|error| Error::machine("write", path, error))?;
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
    found["claims"] = claims.into();
    found
}

/// A ratio with its interval, and doubt about it.
pub(super) fn ratio_text(comparison: Option<Comparison>) -> String {
    let Some(found) = comparison else {
        return "-".to_string();
    };
    let doubt = match found.verdict {
        Verdict::Noise => " (noise)",
        Verdict::Unknown | Verdict::Higher | Verdict::Lower | Verdict::Equal => "",
    };
    found.text() + doubt
}
