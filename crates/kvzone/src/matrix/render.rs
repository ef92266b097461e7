//! The matrix as text, as Markdown, as a page, and as a chart.

use std::fmt::Write;

use kvzone_core::adapter::Profile;
use kvzone_core::record::Status;
use kvzone_core::report::text;

use super::programs::Figure;
use super::results::Results;
use super::table::{BEHIND, NULL, Row};

/// The conditions, once, above all tables.
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

/// A figure as people read it.
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
    let Some(found) = &row.against_peer else {
        return String::new();
    };
    let interval = found.interval.map_or(String::new(), |interval| {
        let (low, high) = (interval.low, interval.high);
        format!(
            " [{}, {}]",
            text::three_digits(low),
            text::three_digits(high)
        )
    });
    let mark = if row.is_unsteady() { " ~" } else { "" };
    format!("{}{interval}{mark}", text::three_digits(found.ratio))
}

/// A store in a cell.
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

const HEADS: [&str; 4] = [
    "cell",
    "best of ours : best peer",
    "verdict",
    "default : best peer",
];

/// The columns of a row, behind which come the stores.
fn columns(results: &Results, row: &Row) -> [String; 4] {
    let (best, peer) = both(results, row);
    let compared = match row.against_peer {
        Some(_) => format!("{} {best} : {peer}", ratio(row)),
        None => String::new(),
    };
    let default = row
        .default_against_peer
        .map_or(String::new(), text::three_digits);
    [
        row.cell.name.to_string(),
        compared,
        row.verdict().to_string(),
        default,
    ]
}

/// As tables on a terminal, one a size: cells, stores, and the ratio of the best two.
pub(super) fn terminal(results: &Results, rows: &[Row]) -> String {
    let stores = &results.head.conditions.stores;
    let shown: Vec<usize> = (0..stores.len()).filter(|&at| stores[at] != NULL).collect();
    let mut out = String::new();
    for line in conditions(results) {
        let _ = writeln!(out, "{line}");
    }
    let _ = writeln!(out, "{LEGEND}");
    for &(size, _) in &results.head.conditions.sizes {
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        let heads = shown.iter().map(|&at| stores[at].as_str());
        table.set_header(
            [format!("{size} bytes").as_str()]
                .into_iter()
                .chain(heads)
                .chain(["ours : best peer", ""]),
        );
        for row in rows.iter().filter(|row| row.value_bytes == size) {
            let figures = shown.iter().map(|&at| entry(row, at));
            let both = [ratio(row), row.verdict().to_string()];
            table.add_row(
                [row.cell.name.to_string()]
                    .into_iter()
                    .chain(figures)
                    .chain(both),
            );
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_padding((1, 0));
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
        let _ = writeln!(out, "\n{table}");
    }
    let _ = writeln!(out, "\n{}", summary(rows));
    for line in behind_lines(results, rows) {
        let _ = writeln!(out, "  {line}");
    }
    for note in notes(results) {
        let _ = writeln!(out, "Note: {note}");
    }
    out
}

const LEGEND: &str = "A ratio above 1 means ours is better, also where less is better. [ ]: its interval over rounds. ~: rounds differ by more than 30 %. A verdict needs 5 rounds; harness: what measuring costs is too near.";

fn summary(rows: &[Row]) -> String {
    let compared = rows.iter().filter(|row| row.against_peer.is_some()).count();
    let behind = behind(rows).len();
    format!("Below {BEHIND} of the best peer: {behind} of {compared} cells")
}

/// As Markdown.
pub(super) fn markdown(results: &Results, rows: &[Row]) -> String {
    let mut out = String::from("# Every kind of work, beside the best of the others\n\n");
    let _ = writeln!(
        out,
        "Make your own: numbers belong to the machine and the moment.\n\n```text\n{}\n```\n",
        results.head.command
    );
    for line in conditions(results) {
        let _ = writeln!(out, "- {line}");
    }
    let _ = writeln!(out, "- {LEGEND}\n\n## {}\n", summary(rows));
    for line in behind_lines(results, rows) {
        let _ = writeln!(out, "- {line}");
    }
    for &(size, _) in &results.head.conditions.sizes {
        let _ = writeln!(out, "\n## Values of {size} bytes\n");
        let stores = &results.head.conditions.stores;
        let _ = writeln!(out, "| {} | {} |", HEADS.join(" | "), stores.join(" | "));
        let _ = writeln!(out, "|---|---|---|---:|{}", "---:|".repeat(stores.len()));
        for row in rows.iter().filter(|row| row.value_bytes == size) {
            let entries: Vec<String> = (0..row.entries.len()).map(|at| entry(row, at)).collect();
            let columns = columns(results, row).join(" | ");
            let _ = writeln!(out, "| {columns} | {} |", entries.join(" | "));
        }
    }
    let _ = writeln!(out, "\n## Settings\n");
    for (store, settings) in settings(results) {
        let _ = writeln!(out, "- **{store}**: {settings}");
    }
    for note in notes(results) {
        let _ = writeln!(out, "- Note: {note}");
    }
    let failures = failures(results, rows);
    if !failures.is_empty() {
        let _ = writeln!(out, "\n## What a store could not do\n");
        for line in failures {
            let _ = writeln!(out, "- {line}");
        }
    }
    out
}

/// Each thing that weakens the figures, once.
fn notes(results: &Results) -> Vec<&str> {
    let mut notes: Vec<&str> = Vec::new();
    for note in results.units.iter().flat_map(|unit| &unit.notes) {
        if !notes.contains(&note.as_str()) {
            notes.push(note);
        }
    }
    notes
}

/// Each store's version and settings, as it was opened.
fn settings(results: &Results) -> Vec<(String, String)> {
    let of = |store: &String| {
        let units = results.units.iter().filter(|unit| unit.store == *store);
        let run = units
            .flat_map(|unit| &unit.runs)
            .find(|run| !run.settings.is_empty())?;
        let settings = run.settings.iter();
        let words: Vec<String> = settings
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let version = run.version.as_deref().unwrap_or("unknown");
        Some((format!("{store} {version}"), words.join(", ")))
    };
    results
        .head
        .conditions
        .stores
        .iter()
        .filter_map(of)
        .collect()
}

/// The first reason of each store and kind of failure.
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

/// As a page that needs nothing beside it.
pub(super) fn page(results: &Results, rows: &[Row]) -> String {
    let mut out = String::from(concat!(
        "<!doctype html><meta charset=\"utf-8\"><title>kvzone matrix</title><style>",
        "body{font:14px/1.5 system-ui,sans-serif;max-width:1200px;margin:2em auto;padding:0 1em}",
        "table{border-collapse:collapse}td,th{padding:.2em .6em;border-bottom:1px solid #ddd;",
        "text-align:right;white-space:nowrap}td:first-child,th:first-child{text-align:left}",
        ".behind{background:#fde8e4}.ahead{background:#e6f4ea}p{max-width:60em}</style>",
        "<h1>Every kind of work, beside the best of the others</h1>"
    ));
    let _ = write!(out, "<pre>{}</pre>", escape(&results.head.command));
    for line in conditions(results) {
        let _ = write!(out, "<p>{}</p>", escape(&line));
    }
    let _ = write!(out, "<p>{LEGEND}</p><h2>{}</h2><ul>", summary(rows));
    for line in behind_lines(results, rows) {
        let _ = write!(out, "<li>{}</li>", escape(&line));
    }
    let _ = write!(out, "</ul>{}", chart(results, rows));
    for &(size, _) in &results.head.conditions.sizes {
        let _ = write!(out, "<h2>Values of {size} bytes</h2><table><tr>");
        let heads = HEADS.iter().copied();
        for head in heads.chain(results.head.conditions.stores.iter().map(String::as_str)) {
            let _ = write!(out, "<th>{}</th>", escape(head));
        }
        for row in rows.iter().filter(|row| row.value_bytes == size) {
            let class = match row.verdict() {
                "ahead" => "ahead",
                "behind" => "behind",
                _ => "",
            };
            let _ = write!(out, "<tr class=\"{class}\">");
            let stores = (0..row.entries.len()).map(|at| entry(row, at));
            for text in columns(results, row).into_iter().chain(stores) {
                let _ = write!(out, "<td>{}</td>", escape(&text));
            }
        }
        out += "</table>";
    }
    out += "<h2>Settings</h2><ul>";
    for (store, settings) in settings(results) {
        let _ = write!(
            out,
            "<li><b>{}</b>: {}</li>",
            escape(&store),
            escape(&settings)
        );
    }
    out + "</ul>"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

/// Sizes of the chart, in pixels.
const LINE: f64 = 17.0;
const LEFT: f64 = 290.0;
const WIDTH: f64 = 430.0;
/// Ratios from one tenth to ten are drawn; any beyond stands at the edge.
const EDGE: f64 = 10.0;

/// The ratio of each cell on a scale of powers: right of the middle ours is better.
pub(super) fn chart(results: &Results, rows: &[Row]) -> String {
    let drawn: Vec<&Row> = rows
        .iter()
        .filter(|row| row.against_peer.is_some())
        .collect();
    let several = results.head.conditions.sizes.len() > 1;
    let height = LINE * (drawn.len() as f64 + 2.0);
    let x = |ratio: f64| {
        let place = ratio.clamp(1.0 / EDGE, EDGE).log(EDGE) / 2.0 + 0.5;
        LEFT + place * WIDTH
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{height}\" viewBox=\"0 0 {w} {height}\" font-family=\"system-ui,sans-serif\" font-size=\"11\"><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>",
        w = LEFT + WIDTH + 60.0
    );
    for mark in [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0] {
        let (at, color) = (x(mark), if mark == 1.0 { "#444" } else { "#ddd" });
        let _ = write!(
            out,
            "<path d=\"M{at:.1} {LINE}V{:.1}\" stroke=\"{color}\"/><text x=\"{at:.1}\" y=\"12\" text-anchor=\"middle\" fill=\"#666\">{mark}×</text>",
            height - LINE / 2.0
        );
    }
    for (line, row) in drawn.iter().enumerate() {
        let Some(found) = &row.against_peer else {
            continue;
        };
        let y = LINE * (line as f64 + 1.5);
        let color = match row.ratio() {
            Some(ratio) if ratio < BEHIND => "#c0392b",
            Some(ratio) if ratio > 1.0 / BEHIND => "#1e8449",
            _ => "#7f8c8d",
        };
        let label = match several {
            true => name(row),
            false => row.cell.name.to_string(),
        };
        let (from, to) = found
            .interval
            .map_or((found.ratio, found.ratio), |interval| {
                (interval.low, interval.high)
            });
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><path d=\"M{:.1} {y:.1}H{:.1}\" stroke=\"{color}\" stroke-width=\"2\"/><circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{color}\"><title>{} {}</title></circle>",
            LEFT - 8.0,
            y + 4.0,
            escape(&label),
            x(from),
            x(to),
            x(found.ratio),
            escape(&name(row)),
            escape(&ratio(row))
        );
    }
    out + "</svg>\n"
}
