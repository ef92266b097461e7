//! One chart as a file, for a document: rows of single points in decades, drawn as SVG.
//!
//! Pages draw their charts with a script ([`super::page`]); a README shows an image.

use std::fmt::Write;

use super::page::{COLOURS, PALETTE, Row, escape};

/// The drawing's width and margins in its own units.
const WIDTH: f64 = 720.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 34.0;
/// Height of a row.
const ROW: f64 = 26.0;
/// Room for a letter of the names at the left.
const LETTER: f64 = 6.4;

/// A row of points for each name, on a scale of decades; it follows the light or dark of its
/// viewer.
pub fn rows(title: &str, rows: &[Row], unit: impl Fn(f64) -> String) -> String {
    let values = rows.iter().flat_map(|row| row.values.iter().copied());
    let values: Vec<f64> = values.filter(|value| *value > 0.0).collect();
    let from = values
        .iter()
        .copied()
        .fold(f64::MAX, f64::min)
        .log10()
        .floor() as i32;
    let to = values.iter().copied().fold(0.0, f64::max).log10().ceil() as i32;
    let decades = if values.is_empty() {
        0..=0
    } else {
        from..=to.max(from + 1)
    };
    let letters = rows.iter().map(|row| row.name.chars().count()).max();
    let names = letters.unwrap_or(0) as f64 * LETTER + 20.0;
    let (first, last) = (f64::from(*decades.start()), f64::from(*decades.end()));
    let x = |value: f64| {
        let share = (value.log10() - first) / (last - first).max(1.0);
        names + share.max(0.0) * (WIDTH - names - RIGHT)
    };
    let bottom = TOP + ROW * rows.len() as f64;
    let height = bottom + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\
         <style>{PALETTE} svg {{ background: var(--ground); }}</style>\
         <text class=\"title\" x=\"12\" y=\"18\">{}</text>",
        escape(title)
    );
    for step in decades.map(|power| 10_f64.powi(power)) {
        let at = x(step);
        let _ = write!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"var(--rule)\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            escape(&unit(step))
        );
    }
    for (number, row) in rows.iter().enumerate() {
        let middle = TOP + ROW * (number as f64 + 0.5);
        let (name, colour) = (escape(&row.name), row.colour % COLOURS);
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            names - 10.0,
            middle + 4.0
        );
        if let Some(median) = row.median {
            let (at, from, to) = (x(median), middle - 9.0, middle + 9.0);
            let _ = write!(
                svg,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{from}\" y2=\"{to}\" stroke=\"var(--c{colour})\" stroke-width=\"2.5\"/>",
            );
        }
        for &value in &row.values {
            let _ = write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{middle}\" r=\"4\" fill=\"var(--c{colour})\" fill-opacity=\".55\"><title>{name}: {}</title></circle>",
                x(value),
                escape(&unit(value))
            );
        }
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_drawn_and_names_cannot_break_out() {
        let row = Row {
            name: "<b>".to_string(),
            colour: COLOURS + 2,
            values: vec![0.5, 2.0, 30.0],
            median: Some(2.0),
        };
        let svg = rows("<t>", &[row], |value| format!("{value}×"));
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("×</text>").count(), 4, "from 0.1 to 100: {svg}");
        assert!(!svg.contains("<b>") && !svg.contains("<t>") && !svg.contains("NaN"));
        assert!(svg.contains("--c2)"), "colours wrap around");
        assert!(!rows("", &[], |value| value.to_string()).contains("NaN"));
    }
}
