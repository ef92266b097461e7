//! A measured figure as tables.

use kvzone_core::report::text::{bytes, grouped, or_dash, three_digits};

use super::super::grid::{Grid, by_rounds};
use super::super::shown::{Shown, ratio_text};
use super::figures::{Column, Figure};
use super::measure::{Cell, Measured, THREADS};

/// The table of a measured figure.
pub(super) fn show(figure: &'static Figure, measured: &Measured) -> Shown {
    Shown {
        grids: vec![("", grid(figure, measured))],
        claims: by_rounds((figure.claims)(measured), measured.repeat, |round| {
            (figure.claims)(&measured.of_round(round))
        }),
        conditions: conditions(figure, measured),
    }
}

fn grid(figure: &Figure, measured: &Measured) -> Grid {
    let mut heads = vec!["load".to_string(), "store".to_string()];
    heads.extend(figure.columns.iter().map(|column| match column {
        Column::Ratio => format!("{} : it", measured.first()),
        other => other.head().to_string(),
    }));
    let row = |cell: &Cell| {
        let named = match &cell.version {
            Some(version) => format!("{} {version}", cell.label),
            None => cell.label.to_string(),
        };
        let columns = figure.columns.iter();
        let cells = columns.map(|&column| text_of(measured, cell, column));
        [cell.point.label.to_string(), named]
            .into_iter()
            .chain(cells)
            .collect()
    };
    Grid {
        heads,
        words: 2,
        rows: measured.cells.iter().map(row).collect(),
    }
}

fn text_of(measured: &Measured, cell: &Cell, column: Column) -> String {
    match (column, &cell.failure) {
        (Column::Rate, Some(reason)) => reason.clone(),
        (Column::Rate, None) => or_dash(cell.figure(column), grouped),
        (Column::Ratio, _) => ratio_text(measured.ratio(cell)),
        _ => or_dash(cell.figure(column), three_digits),
    }
}

fn conditions(figure: &Figure, measured: &Measured) -> String {
    let rounds = match measured.repeat {
        1 => "One round (no interval, no winner)".to_string(),
        rounds => format!("Medians of {rounds} rounds in which stores take turns"),
    };
    let mut text = format!(
        "{rounds}, seed {}, scale {}; {}.\n",
        measured.report.seed, measured.scale, figure.what
    );
    text += &format!(
        "Every write is synced; {THREADS} operations in flight; keys of 4 bytes; caches a quarter \
         of the memory limit; no compression, and no value compresses.\n"
    );
    for used in &measured.points {
        text += &format!(
            "{}: {} keys with values of {} bytes, memory limit {}.\n",
            used.point.label,
            grouped(used.keys as f64),
            grouped(used.point.value_bytes as f64),
            bytes(used.memory_limit_bytes as f64),
        );
    }
    for warning in &measured.warnings {
        text += &format!("Warning: {warning}\n");
    }
    text
}
