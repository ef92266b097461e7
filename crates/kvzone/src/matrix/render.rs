//! The matrix as a page, and as a chart.

use kvzone_core::adapter::Profile;
use kvzone_core::record::Status;
use kvzone_core::report::grid::Grid;
use kvzone_core::report::html::settings_of;
use kvzone_core::report::page::{self, Chart, Page};
use kvzone_core::report::svg;
use kvzone_core::report::text::{self, Unit};

use super::programs::Figure;
use super::results::Results;
use super::table::{BEHIND, Row};

fn conditions(results: &Results) -> Vec<String> {
    let conditions = &results.head.conditions;
    let size = |&(value, keys): &(u64, u64)| {
        let data = keys * (value + super::KEY_BYTES);
        let buffers = data as f64 / (conditions.budget_bytes as f64 / 8.0);
        format!(
            "{} × {value} B ({}, {} write buffers)",
            text::grouped(keys as f64),
            text::bytes(data as f64),
            text::three_digits(buffers)
        )
    };
    let sizes: Vec<String> = conditions.sizes.iter().map(size).collect();
    let machine = &results.head.machine;
    let word = |name: &str| {
        machine
            .get(name)
            .map_or(String::new(), |value| match value.as_str() {
                Some(text) => text.to_string(),
                None => value.to_string(),
            })
    };
    let mut lines = vec![
        format!(
            "Entries: {}; keys of {} bytes.",
            sizes.join(", "),
            super::KEY_BYTES
        ),
        match conditions.profile {
            Profile::Default => "Profile default: each store as its authors ship it.".to_string(),
            profile => format!(
                "Profile {}: {} for write buffers (two of an eighth), filters (10 bits a key) and cache together; reads verify checksums; no compression.",
                format!("{profile:?}").to_lowercase(),
                text::bytes(conditions.budget_bytes as f64)
            ),
        },
        "Durability written, of synced cells synced; the C library's allocator for all."
            .to_string(),
        format!(
            "{} rounds in turns; steps of {} s, sustained overwriting of {} s beside a reader.",
            conditions.rounds, conditions.scale.step_seconds, conditions.scale.sustained_seconds
        ),
        format!("{}, {} processors.", word("processor"), word("processors")),
    ];
    if !conditions.set.is_empty() {
        lines.push(format!("Set by hand: {}.", conditions.set.join(", ")));
    }
    lines
}

fn number(figure: Figure, value: f64) -> String {
    match figure {
        Figure::Rate => format!("{}/s", short(value)),
        Figure::Seconds | Figure::P99 | Figure::P999 => text::duration(value * 1e9),
        Figure::Memory => text::bytes(value),
        Figure::Descriptors => text::grouped(value),
        _ => text::three_digits(value),
    }
}

/// Three digits and a unit: 1.95 M, 149 k.
fn short(value: f64) -> String {
    let (scaled, unit) = match value {
        value if value >= 1e6 => (value / 1e6, " M"),
        value if value >= 1e3 => (value / 1e3, " k"),
        value => (value, ""),
    };
    format!("{}{unit}", text::three_digits(scaled))
}

/// The ratio with its interval.
fn ratio(row: &Row) -> String {
    let mark = if row.is_unsteady() { " ~" } else { "" };
    let found = row.against_peer.as_ref();
    found.map_or(String::new(), |found| found.text() + mark)
}

fn entry(row: &Row, at: usize) -> String {
    let entry = &row.entries[at];
    match (&entry.failure, entry.median) {
        (Some((Status::Unsupported | Status::Missing, _)), _) => "n/a".to_string(),
        (Some((status, _)), _) => status.name().to_string(),
        (None, Some(value)) => {
            let mark = if entry.is_unsteady() { " ~" } else { "" };
            number(row.cell.figure, value) + mark
        }
        (None, None) => String::new(),
    }
}

fn name(row: &Row) -> String {
    format!("{}, {} B", row.cell.name, row.value_bytes)
}

/// Cells in which another is ahead, the furthest first.
fn behind(rows: &[Row]) -> Vec<&Row> {
    let mut behind: Vec<&Row> = rows.iter().filter(|row| row.is_behind()).collect();
    behind.sort_by(|a, b| {
        a.ratio()
            .unwrap_or(0.0)
            .total_cmp(&b.ratio().unwrap_or(0.0))
    });
    behind
}

/// Names of our best store and of the best of the others.
fn both<'a>(results: &'a Results, row: &Row) -> (&'a str, &'a str) {
    let stores = &results.head.conditions.stores;
    let name = |at: Option<usize>| at.map_or("", |at| stores[at].as_str());
    (name(row.best), name(row.peer))
}

/// One line for each cell in which another is ahead.
fn behind_lines(results: &Results, rows: &[Row]) -> Vec<String> {
    let line = |row: &&Row| {
        let (best, peer) = both(results, row);
        format!(
            "{}: {} ({best} : {peer}) {}",
            name(row),
            ratio(row),
            row.verdict()
        )
    };
    behind(rows).iter().map(line).collect()
}

/// The cells of a size of values; the stores stand behind what is said of the best two.
fn grid(results: &Results, rows: &[Row], size: u64) -> Grid {
    let heads = [
        "cell",
        "best of ours : best peer",
        "verdict",
        "default : best peer",
    ];
    let stores = results.head.conditions.stores.iter().cloned();
    let row = |row: &Row| {
        let (best, peer) = both(results, row);
        let compared = row.against_peer.as_ref();
        let default = row.default_against_peer;
        [
            row.cell.name.to_string(),
            compared.map_or(String::new(), |_| format!("{} {best} : {peer}", ratio(row))),
            row.verdict().to_string(),
            default.map_or(String::new(), text::three_digits),
        ]
        .into_iter()
        .chain((0..row.entries.len()).map(|at| entry(row, at)))
        .collect()
    };
    Grid {
        heads: heads
            .map(str::to_string)
            .into_iter()
            .chain(stores)
            .collect(),
        words: 3,
        rows: rows
            .iter()
            .filter(|row| row.value_bytes == size)
            .map(row)
            .collect(),
    }
}

fn grids(results: &Results, rows: &[Row]) -> impl Iterator<Item = (u64, Grid)> {
    let sizes = results.head.conditions.sizes.iter();
    sizes.map(|&(size, _)| (size, grid(results, rows, size)))
}

const TITLE: &str = "Every kind of work, beside the best of the others";
const LEGEND: &str = "A ratio above 1 means ours is better, also where less is better. [ ]: its interval over rounds. ~: rounds differ by more than 30 %. A verdict needs 5 rounds; harness: what measuring costs is too near.";

fn summary(rows: &[Row]) -> String {
    let compared = rows.iter().filter(|row| row.against_peer.is_some()).count();
    let behind = behind(rows).len();
    format!("Below {BEHIND} of the best peer: {behind} of {compared} cells")
}

fn notes(results: &Results) -> Vec<&str> {
    let mut notes: Vec<&str> = Vec::new();
    for note in results.units.iter().flat_map(|unit| &unit.notes) {
        if !notes.contains(&note.as_str()) {
            notes.push(note);
        }
    }
    notes
}

/// The settings with which each store was opened.
fn settings(results: &Results) -> impl Iterator<Item = (String, Grid)> {
    let of = |store: &String| {
        let units = results.units.iter().filter(|unit| unit.store == *store);
        let mut runs = units.flat_map(|unit| &unit.runs);
        runs.find(|run| !run.settings.is_empty()).map(settings_of)
    };
    results.head.conditions.stores.iter().filter_map(of)
}

fn failures(results: &Results, rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        for (at, entry) in row.entries.iter().enumerate() {
            let Some((status, reason)) = &entry.failure else {
                continue;
            };
            let store = &results.head.conditions.stores[at];
            lines.push(format!(
                "{store}, {}: {}: {reason}",
                name(row),
                status.name()
            ));
        }
    }
    lines
}

pub(super) fn page(results: &Results, rows: &[Row]) -> Page {
    let mut page = Page::new(TITLE, &results.head.command);
    page.text("Make your own: numbers belong to the machine and the moment.");
    let mut lines = conditions(results);
    lines.push(LEGEND.to_string());
    page.list(lines, Vec::new());
    page.heading(&summary(rows));
    page.list(behind_lines(results, rows), Vec::new());
    let drawn = drawing(results, rows);
    page.chart(Chart::rows(CHART.to_string(), Unit::Number, true, drawn));
    for (size, grid) in grids(results, rows) {
        page.heading(&format!("Values of {size} bytes"));
        page.table(grid, |row| match row[2].as_str() {
            "ahead" => "ahead",
            "behind" => "behind",
            _ => "",
        });
    }
    let notes = notes(results).into_iter().map(str::to_string);
    page.list(Vec::new(), notes.collect());
    let failures = failures(results, rows);
    if !failures.is_empty() {
        page.heading("What a store could not do");
        page.list(failures, Vec::new());
    }
    page.appendix();
    page.heading("Settings of each store");
    for (store, grid) in settings(results) {
        page.folded(store, grid);
    }
    page
}

/// Colours of cells in which ours is ahead, behind, and neither.
const COLOURS: (usize, usize, usize) = (2, 8, 7);

const CHART: &str = "Our best engine by the best of the others: right of 1 ours is better";

/// The ratio of each cell: right of 1 ours is better. Points are rounds.
fn drawing(results: &Results, rows: &[Row]) -> Vec<page::Row> {
    let several = results.head.conditions.sizes.len() > 1;
    let row = |row: &Row| {
        let found = row.against_peer.as_ref()?;
        Some(page::Row {
            name: match several {
                true => name(row),
                false => row.cell.name.to_string(),
            },
            colour: match found.ratio {
                ratio if ratio < BEHIND => COLOURS.1,
                ratio if ratio > 1.0 / BEHIND => COLOURS.0,
                _ => COLOURS.2,
            },
            values: found.ratios.clone(),
            median: Some(found.ratio),
        })
    };
    rows.iter().filter_map(row).collect()
}

pub(super) fn chart(results: &Results, rows: &[Row]) -> String {
    svg::rows(CHART, &drawing(results, rows), |ratio| format!("{ratio}×"))
}
