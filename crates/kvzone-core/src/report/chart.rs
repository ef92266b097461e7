//! Charts as SVG, drawn by hand: no script, no outside link, and legible in a
//! light and a dark window, since every colour is a variable of the page.
//!
//! [`lines`] draws values over time, [`dots`] a row of single points a store:
//! all rounds are shown, not only their median.

use std::fmt::Write;

/// The drawing's size in its own units.
pub(super) const WIDTH: f64 = 720.0;
const LINES_HEIGHT: f64 = 260.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;

/// Colours of the page's style sheet: `--c0` to `--c15`, one for each store that there is.
pub const COLOURS: usize = 16;

/// Values over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The store.
    pub name: String,
    /// Which of the page's colours.
    pub colour: usize,
    /// Time and value.
    pub points: Vec<(f64, f64)>,
}

/// Text as it may stand in SVG and HTML.
///
/// ```
/// use kvzone_core::report::chart::escape;
/// assert_eq!(escape("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
/// ```
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Values that lie further apart than this are drawn on a logarithmic scale:
/// on a linear one the smaller would all be the ground line.
const LINEAR_UP_TO: f64 = 30.0;

/// A chart of lines, from 0, or in decades where values lie far apart;
/// `across` and `unit` name the axes.
pub fn lines(series: &[Series], across: &str, unit: impl Fn(f64) -> String) -> String {
    let points = || series.iter().flat_map(|one| &one.points);
    let furthest = points().map(|point| point.0).fold(1.0, f64::max);
    let largest = points().map(|point| point.1).fold(0.0, f64::max);
    let seen = points().map(|point| point.1).filter(|&value| value > 0.0);
    let smallest = seen.fold(largest, f64::min);
    let logarithmic = smallest > 0.0 && largest / smallest > LINEAR_UP_TO;
    let steps = if logarithmic {
        decades(smallest, largest)
    } else {
        nice_steps(largest)
    };
    let ground = steps.first().copied().unwrap_or(0.0);
    let top = steps.last().copied().unwrap_or(1.0);
    let x = |value: f64| LEFT + value / furthest * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| {
        let share = if logarithmic {
            (value.max(ground) / ground).ln() / (top / ground).ln()
        } else {
            value / top
        };
        LINES_HEIGHT - BOTTOM - share * (LINES_HEIGHT - TOP - BOTTOM)
    };
    let mut svg = open(LINES_HEIGHT);
    for &step in &steps {
        rule(&mut svg, y(step), &unit(step));
    }
    for step in nice_steps(furthest)
        .iter()
        .filter(|&&step| step <= furthest)
    {
        label(
            &mut svg,
            x(*step),
            LINES_HEIGHT - BOTTOM + 16.0,
            "middle",
            &plain(*step),
        );
    }
    label(&mut svg, WIDTH - RIGHT, LINES_HEIGHT - 4.0, "end", across);
    for one in series {
        let colour = one.colour % COLOURS;
        let path: Vec<String> = one
            .points
            .iter()
            .map(|&(time, value)| format!("{:.1},{:.1}", x(time), y(value)))
            .collect();
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"var(--c{colour})\" stroke-width=\"1.6\" stroke-opacity=\".8\"><title>{}</title></polyline>",
            path.join(" "),
            escape(&one.name)
        );
        // A line of one point would not be seen.
        if let [(time, value)] = one.points[..] {
            dot(&mut svg, x(time), y(value), colour, &one.name);
        }
    }
    svg + "</svg>"
}

/// Curves over named places, values in decades: `places` stand at equal
/// distances, and a point's first number is its place.
pub fn curves(series: &[Series], places: &[&str], unit: impl Fn(f64) -> String) -> String {
    let values = || {
        series
            .iter()
            .flat_map(|one| &one.points)
            .map(|point| point.1)
    };
    let smallest = values()
        .filter(|&value| value > 0.0)
        .fold(f64::MAX, f64::min);
    let steps = decades(smallest, values().fold(0.0, f64::max));
    let (Some(&from), Some(&to)) = (steps.first(), steps.last()) else {
        return String::new();
    };
    let gaps = places.len().saturating_sub(1).max(1) as f64;
    let x = |place: f64| LEFT + 30.0 + place / gaps * (WIDTH - LEFT - RIGHT - 60.0);
    let y = |value: f64| {
        let share = (value.max(from) / from).ln() / (to / from).ln();
        LINES_HEIGHT - BOTTOM - share * (LINES_HEIGHT - TOP - BOTTOM)
    };
    let mut svg = open(LINES_HEIGHT);
    for &step in &steps {
        rule(&mut svg, y(step), &unit(step));
    }
    for (place, name) in places.iter().enumerate() {
        let at = x(place as f64);
        label(&mut svg, at, LINES_HEIGHT - BOTTOM + 16.0, "middle", name);
    }
    for one in series {
        let colour = one.colour % COLOURS;
        let drawn = one
            .points
            .iter()
            .map(|&(place, value)| (x(place), y(value)));
        let path: Vec<String> = drawn.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"var(--c{colour})\" stroke-width=\"1.6\"/>",
            path.join(" ")
        );
        for &(place, value) in &one.points {
            let title = format!("{}: {}", one.name, unit(value));
            dot(&mut svg, x(place), y(value), colour, &title);
        }
    }
    svg + "</svg>"
}

/// One row of [`dots`].
#[derive(Clone, Debug, PartialEq)]
pub struct DotRow {
    /// What stands at its left.
    pub name: String,
    /// Which of the page's colours.
    pub colour: usize,
    /// One a round.
    pub values: Vec<f64>,
    /// Marked by a stroke.
    pub median: Option<f64>,
}

/// A row of points for each store, on a common scale: linear from 0, or
/// logarithmic in decades.
pub fn dots(rows: &[DotRow], logarithmic: bool, unit: impl Fn(f64) -> String) -> String {
    const ROW: f64 = 26.0;
    const NAMES: f64 = 130.0;
    let height = TOP + ROW * rows.len() as f64 + BOTTOM;
    let values = || rows.iter().flat_map(|row| row.values.iter().copied());
    let largest = values().fold(0.0, f64::max);
    let steps = if logarithmic {
        decades(
            values().filter(|&v| v > 0.0).fold(f64::MAX, f64::min),
            largest,
        )
    } else {
        nice_steps(largest)
    };
    let (Some(&from), Some(&to)) = (steps.first(), steps.last()) else {
        return String::new();
    };
    let x = |value: f64| {
        let share = if logarithmic {
            (value.max(from) / from).ln() / (to / from).ln().max(f64::MIN_POSITIVE)
        } else {
            value / to
        };
        NAMES + share * (WIDTH - NAMES - RIGHT - 26.0)
    };
    let bottom = height - BOTTOM;
    let mut svg = open(height);
    for &step in &steps {
        let at = x(step);
        let _ = write!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\" stroke=\"var(--rule)\"/>"
        );
        label(&mut svg, at, bottom + 16.0, "middle", &unit(step));
    }
    for (number, row) in rows.iter().enumerate() {
        let middle = TOP + ROW * (number as f64 + 0.5);
        label(&mut svg, NAMES - 10.0, middle + 4.0, "end", &row.name);
        let colour = row.colour % COLOURS;
        if let Some(median) = row.median {
            let at = x(median);
            let _ = write!(
                svg,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"var(--c{colour})\" stroke-width=\"2.5\"/>",
                middle - 9.0,
                middle + 9.0
            );
        }
        for &value in &row.values {
            let title = format!("{}: {}", row.name, unit(value));
            dot(&mut svg, x(value), middle, colour, &title);
        }
    }
    svg + "</svg>"
}

fn open(height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">")
}

fn rule(svg: &mut String, y: f64, text: &str) {
    let right = WIDTH - RIGHT;
    let _ = write!(
        svg,
        "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"var(--rule)\"/>"
    );
    label(svg, LEFT - 8.0, y + 4.0, "end", text);
}

fn label(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let _ = write!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escape(text)
    );
}

fn dot(svg: &mut String, x: f64, y: f64, colour: usize, title: &str) {
    let _ = write!(
        svg,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"var(--c{colour})\" fill-opacity=\".55\"><title>{}</title></circle>",
        escape(title)
    );
}

fn plain(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// From 0 in steps of 1, 2 or 5 times a power of ten, three to six of them,
/// the last not below `largest`.
fn nice_steps(largest: f64) -> Vec<f64> {
    if !largest.is_finite() || largest <= 0.0 {
        return vec![0.0, 1.0];
    }
    let power = 10_f64.powf((largest / 4.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| largest / step <= 5.0)
        .unwrap_or(largest);
    let count = (largest / step).ceil() as u32;
    (0..=count).map(|n| f64::from(n) * step).collect()
}

/// Powers of ten from at or below `smallest` to at or above `largest`.
fn decades(smallest: f64, largest: f64) -> Vec<f64> {
    if smallest > largest || !largest.is_finite() {
        return Vec::new();
    }
    let from = smallest.log10().floor() as i32;
    let to = (largest.log10().ceil() as i32).max(from + 1);
    (from..=to).map(|power| 10_f64.powi(power)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_a_few_round_steps_and_cover_the_largest() {
        assert_eq!(nice_steps(0.0), [0.0, 1.0]);
        assert_eq!(nice_steps(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        for largest in [0.003, 1.0, 7.0, 99.0, 101.0, 123_456.0, 9.99e9] {
            let steps = nice_steps(largest);
            assert!((3..=7).contains(&steps.len()), "{largest}: {steps:?}");
            assert!(steps[steps.len() - 1] >= largest * 0.999_999);
        }
        assert_eq!(decades(30.0, 4000.0), [10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(decades(10.0, 10.0), [10.0, 100.0]);
        assert!(decades(f64::MAX, 0.0).is_empty());
    }

    #[test]
    fn every_point_is_drawn_and_names_cannot_break_out() {
        let row = DotRow {
            name: "<script>".to_string(),
            colour: COLOURS + 2,
            values: vec![1.0, 2.0, 3.0],
            median: Some(2.0),
        };
        for logarithmic in [false, true] {
            let svg = dots(std::slice::from_ref(&row), logarithmic, |v| v.to_string());
            assert_eq!(svg.matches("<circle").count(), 3);
            assert!(!svg.contains("<script>"));
            assert!(svg.contains("--c2"), "colours wrap around");
            assert!(!svg.contains("NaN"), "{svg}");
        }
    }

    #[test]
    fn lines_reach_from_edge_to_edge_and_empty_ones_do_no_harm() {
        let series = Series {
            name: "a".to_string(),
            colour: 0,
            points: vec![(0.0, 0.0), (10.0, 100.0)],
        };
        let svg = lines(&[series], "seconds", |v| v.to_string());
        assert!(svg.contains("points=\"70.0,226.0 706.0,14.0\""), "{svg}");
        assert!(!lines(&[], "seconds", |v| v.to_string()).contains("NaN"));
        let apart = Series {
            name: "b".to_string(),
            colour: 1,
            points: vec![(0.0, 10.0), (1.0, 0.0), (10.0, 1000.0)],
        };
        let svg = lines(&[apart], "seconds", |v| v.to_string());
        let expected = "points=\"70.0,226.0 133.6,226.0 706.0,14.0\"";
        assert!(
            svg.contains(expected),
            "decades; 0 lies on the ground: {svg}"
        );
        assert_eq!(dots(&[], true, |v| v.to_string()), "");
    }
}
