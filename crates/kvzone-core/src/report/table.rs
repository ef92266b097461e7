//! Summaries as a table, for a page and a terminal: what stores reached. A sweep over threads
//! and sizes is one table.

use crate::report::figure::{FIGURES, RATE_KEPT};
use crate::report::grid::Grid;
use crate::report::recovery::Recovery;
use crate::report::summary::{Row, Summary, plain};
use crate::report::text::or_dash;

/// Characters of a sparkline at most.
const SPARKS: usize = 16;

/// Values over time as bars of one line, from 0 to the largest; nothing of one
/// value, which has no course.
pub fn sparkline(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = values.iter().copied().fold(0.0, f64::max);
    if values.len() < 2 || largest <= 0.0 {
        return String::new();
    }
    let count = values.len().min(SPARKS);
    let bar = |place: usize| {
        let part = &values[place * values.len() / count..(place + 1) * values.len() / count];
        let mean = part.iter().sum::<f64>() / part.len().max(1) as f64;
        BARS[((mean / largest * 7.0).round() as usize).min(7)]
    };
    (0..count).map(bar).collect()
}

/// A fact of a run in which the summaries of a sweep may differ.
type Varied = (&'static str, fn(&Summary) -> f64);

const VARIED: [Varied; 2] = [
    ("threads", |summary| f64::from(summary.conditions.threads)),
    ("value bytes", |summary| summary.conditions.value_size),
];

/// The facts in which the summaries of a sweep differ; none of one summary.
fn varied(sweep: &[Summary]) -> impl Iterator<Item = &'static Varied> {
    let differs = |(_, of): &&Varied| sweep.iter().any(|other| of(other) != of(&sweep[0]));
    VARIED.iter().filter(differs)
}

/// A summary among those of its sweep, such as `threads 4, value bytes 100`.
pub(super) fn place(sweep: &[Summary], summary: &Summary) -> String {
    let part = |(name, of): &Varied| format!("{name} {}", plain(of(summary)));
    varied(sweep).map(part).collect::<Vec<_>>().join(", ")
}

/// A row for each store of each summary of a sweep, for a terminal and for a page; some columns
/// are left out where no store has anything in them.
pub(super) fn grid(sweep: &[Summary]) -> Grid {
    let all = || sweep.iter().flat_map(|summary| &summary.rows);
    let mut heads = vec!["store".to_string()];
    let mut rows: Vec<Vec<String>> = all().map(|row| vec![row.named()]).collect();
    for (name, of) in varied(sweep) {
        heads.push(name.to_string());
        let cells = sweep
            .iter()
            .flat_map(|summary| summary.rows.iter().map(|_| plain(of(summary))));
        for (row, cell) in rows.iter_mut().zip(cells) {
            row.push(cell);
        }
    }
    let mut add = |head: &str, is_always: bool, fill: &dyn Fn(&Row) -> String| {
        let cells: Vec<String> = all().map(fill).collect();
        let is_empty = |cell: &String| matches!(cell.as_str(), "" | "-");
        if is_always || !cells.iter().all(is_empty) {
            heads.push(head.to_string());
            for (row, cell) in rows.iter_mut().zip(cells) {
                row.push(cell);
            }
        }
    };
    for (place, figure) in FIGURES.iter().enumerate() {
        add(figure.heading, figure.name != RATE_KEPT, &|row| {
            or_dash(row.medians[place], |value| figure.text(value))
        });
    }
    add("over time", false, &|row| sparkline(&row.over_time));
    let recovery = |row: &Row, text: fn(&Recovery) -> String| {
        row.recovery.as_ref().map_or("-".to_string(), text)
    };
    add("reopen", false, &|row| recovery(row, Recovery::time));
    add("lost by kill", false, &|row| recovery(row, Recovery::loss));
    Grid {
        heads,
        words: 1,
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparklines_show_the_course_from_zero_on() {
        assert_eq!(sparkline(&[0.0, 5.0, 10.0]), "▁▅█");
        assert_eq!(sparkline(&[7.0]), "");
        assert_eq!(sparkline(&[0.0, 0.0]), "");
        assert_eq!(sparkline(&[1.0; 100]).chars().count(), SPARKS);
    }
}
