//! A figure as text for a terminal and for a document.

use kvzone_core::report::text::{bytes, grouped, or_dash, three_digits};

use super::super::grid::{Grid, by_rounds};
use super::super::shown::{Shown, ratio_text};
use super::figures::{Column, Figure};
use super::measure::{Cell, Measured};

/// Tables of a measured figure.
pub(super) fn show(figure: &'static Figure, measured: &Measured) -> Shown {
    let mut grids = Vec::new();
    for (workload, title) in figure.parts {
        let grid = grid(figure, measured, workload);
        if !grid.rows.is_empty() {
            grids.push((*title, grid));
        }
    }
    Shown {
        grids,
        claims: by_rounds((figure.claims)(measured), measured.repeat, |round| {
            (figure.claims)(&measured.of_round(round))
        }),
        conditions: conditions(figure, measured),
    }
}

fn grid(figure: &Figure, measured: &Measured, workload: &str) -> Grid {
    let first = measured.contestants.first().map_or("", |first| first.label);
    let mut heads = vec![figure.axis.to_string(), "store".to_string()];
    heads.extend(figure.columns.iter().map(|column| match column {
        Column::Ratio => format!("{first} : it"),
        other => other.head().to_string(),
    }));
    let cells = measured
        .cells
        .iter()
        .filter(|cell| cell.workload == workload);
    let row = |cell: &Cell| {
        let label = measured.contestants[cell.contestant].label;
        let named = match &cell.version {
            Some(version) => format!("{label} {version}"),
            None => label.to_string(),
        };
        let mut row = vec![measured.points[cell.point].label.to_string(), named];
        row.extend(
            figure
                .columns
                .iter()
                .map(|&column| text_of(measured, cell, column)),
        );
        row
    };
    Grid {
        heads,
        words: 2,
        rows: cells.map(row).collect(),
    }
}

fn text_of(measured: &Measured, cell: &Cell, column: Column) -> String {
    let number = |write: fn(f64) -> String| or_dash(cell.figure(column), write);
    match column {
        Column::Rate | Column::Entries | Column::WriterRate => match (&cell.failure, column) {
            (Some(reason), Column::Rate) => reason.clone(),
            _ => number(grouped),
        },
        Column::Ratio => ratio_text(measured.ratio(cell)),
        Column::WriteAmplification
        | Column::ReadsPerGet
        | Column::SpaceAmplification
        | Column::Cpu => number(three_digits),
    }
}

fn conditions(figure: &Figure, measured: &Measured) -> String {
    let rounds = match measured.repeat {
        1 => "One round (no interval, no winner)".to_string(),
        rounds => format!("Medians of {rounds} rounds in which stores take turns"),
    };
    let mut text = format!(
        "{rounds}, seed {}, scale {}; {}.\n",
        measured.seed, measured.scale, figure.what
    );
    text += "Every write is synced; caches a quarter of the memory limit, write buffers a \
        sixteenth of it in all; Bloom filters of 10 bits a key in LevelDB and RocksDB; no \
        compression; forest compacts at 30 % stale; no value compresses.\n";
    for point in &measured.points {
        let memory = match point.memory_limit_bytes {
            Some(limit) => format!("memory limit {}", bytes(limit as f64)),
            None => "no memory limit".to_string(),
        };
        text += &format!(
            "{}: {} keys of {} + {} bytes ({}), {memory}.\n",
            point.label,
            grouped(point.keys as f64),
            three_digits(point.key_bytes),
            grouped(point.value_bytes as f64),
            bytes(point.data_bytes()),
        );
    }
    for warning in &measured.warnings {
        text += &format!("Warning: {warning}\n");
    }
    text
}
