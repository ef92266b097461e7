//! A measured figure as tables.

use kvzone_core::report::text::{bytes, grouped, or_dash, three_digits};

use super::super::grid::{Grid, by_rounds};
use super::super::shown::{Shown, ratio_text};
use super::figures::{Column, Figure};
use super::measure::{Asked, Cell, Measured};

/// Tables of a measured figure.
pub(super) fn show(figure: &'static Figure, measured: &Measured) -> Shown {
    Shown {
        grids: vec![("", grid(figure, measured))],
        claims: by_rounds((figure.claims)(measured), measured.asked.repeat, |round| {
            (figure.claims)(&measured.of_round(round))
        }),
        conditions: conditions(figure, measured),
    }
}

fn grid(figure: &Figure, measured: &Measured) -> Grid {
    let mut heads = vec![figure.axis.to_string(), "store".to_string()];
    heads.extend(figure.columns.iter().map(|column| match column {
        Column::Ratio => format!("{} : it", measured.first),
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
    let number = |write: fn(f64) -> String| or_dash(cell.figure(column), write);
    match column {
        Column::Rate => match &cell.failure {
            Some(reason) => reason.clone(),
            None => number(grouped),
        },
        Column::Ratio => ratio_text(measured.ratio(cell)),
        Column::OfFile => or_dash(measured.of_file(cell), three_digits),
        Column::Median
        | Column::MegaBytes
        | Column::WriteAmplification
        | Column::ReadAmplification
        | Column::ReadsPerGet
        | Column::SpaceAmplification
        | Column::Waiting
        | Column::Processor => number(three_digits),
    }
}

/// How many rounds, from which seed, and what was issued; a line.
pub(super) fn rounds(asked: Asked, what: &str) -> String {
    let rounds = match asked.repeat {
        1 => "One round (no interval, no winner)".to_string(),
        rounds => format!("Medians of {rounds} rounds in which stores take turns"),
    };
    format!(
        "{rounds}, seed {}, scale {}; {what}.\n",
        asked.seed, asked.scale
    )
}

fn conditions(figure: &Figure, measured: &Measured) -> String {
    let mut text = rounds(measured.asked, figure.what);
    text += "Keys of 16 bytes; writes are handed to the operating system, not synced; write \
        buffers of 4 MiB, caches of 8 MiB, filters of 10 bits a key; no compression; no value \
        compresses; one thread.\n";
    for point in &measured.points {
        let memory = match point.memory_limit_bytes {
            Some(limit) => format!("memory limit {}", bytes(limit as f64)),
            None => "no memory limit".to_string(),
        };
        text += &format!(
            "{}: {} keys with values of {} bytes, {memory}.\n",
            point.label,
            grouped(point.keys as f64),
            grouped(point.value_bytes as f64),
        );
        if let Some(rate) = point.file_rate {
            text += &format!(
                "{}: one thread writes as many bytes to one file, in writes of 1 MiB, at {} MB/s.\n",
                point.label,
                three_digits(rate / 1e6)
            );
        }
    }
    for warning in &measured.warnings {
        text += &format!("Warning: {warning}\n");
    }
    text
}
