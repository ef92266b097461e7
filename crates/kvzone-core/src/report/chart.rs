//! Charts as SVG, drawn by hand: no script, no outside link, and legible in a
//! light and a dark window, since every colour is a variable of the page.
//!
//! [`plot`] draws values over time or over named places, [`dots`] a row of single points a
//! store: all rounds are shown, not only their median. [`standalone`] makes a file of a
//! drawing.

use std::fmt::Write;

/// The drawing's size in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;
/// Height of a row of [`dots`].
const ROW: f64 = 26.0;
/// Room for the names at its left, and for a letter of them.
const LEAST_NAMES: f64 = 130.0;
const LETTER: f64 = 6.4;

/// Colours of the page's style sheet: `--c0` to `--c15`, one for each store that there is.
pub const COLOURS: usize = 16;

/// The page's colours, for a drawing that stands alone.
const STYLE: &str = include_str!("report.css");

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The store.
    pub name: String,
    /// Which of the page's colours.
    pub colour: usize,
    /// Time, or the number of a place, and value.
    pub points: Vec<(f64, f64)>,
}

/// The axis across.
#[derive(Clone, Copy, Debug)]
pub enum Across<'a> {
    /// Seconds from 0. Values are from 0 too, or in decades where they lie far apart.
    Seconds,
    /// Places at equal distances. Values are in decades.
    Places(&'a [&'a str]),
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

/// An axis of values.
struct Scale {
    steps: Vec<f64>,
    is_logarithmic: bool,
}

impl Scale {
    /// From 0 or in decades; in either as the values ask for, where none is chosen.
    fn of(values: impl Iterator<Item = f64> + Clone, is_logarithmic: Option<bool>) -> Scale {
        let largest = values.clone().fold(0.0, f64::max);
        let smallest = values.filter(|&value| value > 0.0).fold(f64::MAX, f64::min);
        let is_logarithmic = is_logarithmic.unwrap_or(largest / smallest > LINEAR_UP_TO);
        let steps = match is_logarithmic {
            true => decades(smallest, largest),
            false => nice_steps(largest),
        };
        Scale {
            steps,
            is_logarithmic,
        }
    }

    /// The place of a value, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let (Some(&from), Some(&to)) = (self.steps.first(), self.steps.last()) else {
            return 0.0;
        };
        match self.is_logarithmic {
            true => (value.max(from) / from).ln() / (to / from).ln(),
            false => value / to,
        }
    }
}

/// Lines; `unit` writes a value.
pub fn plot(series: &[Series], across: Across<'_>, unit: impl Fn(f64) -> String) -> String {
    let points = || series.iter().flat_map(|one| &one.points);
    let is_logarithmic = match across {
        Across::Seconds => None,
        Across::Places(_) => Some(true),
    };
    let scale = Scale::of(points().map(|point| point.1), is_logarithmic);
    if scale.steps.is_empty() {
        return String::new();
    }
    let (furthest, inset) = match across {
        Across::Seconds => (points().map(|point| point.0).fold(1.0, f64::max), 0.0),
        Across::Places(places) => (places.len().saturating_sub(1).max(1) as f64, 30.0),
    };
    let x = |place: f64| LEFT + inset + place / furthest * (WIDTH - LEFT - RIGHT - 2.0 * inset);
    let y = |value: f64| HEIGHT - BOTTOM - scale.share(value) * (HEIGHT - TOP - BOTTOM);
    let mut svg = open(HEIGHT);
    for &step in &scale.steps {
        let (at, right) = (y(step), WIDTH - RIGHT);
        rule(&mut svg, (LEFT, right), (at, at));
        label(&mut svg, (LEFT - 8.0, at + 4.0), "end", &unit(step));
    }
    let below = HEIGHT - BOTTOM + 16.0;
    match across {
        Across::Seconds => {
            for step in nice_steps(furthest) {
                if step <= furthest {
                    label(&mut svg, (x(step), below), "middle", &plain(step));
                }
            }
            label(&mut svg, (WIDTH - RIGHT, HEIGHT - 4.0), "end", "seconds");
        }
        Across::Places(places) => {
            for (place, name) in places.iter().enumerate() {
                label(&mut svg, (x(place as f64), below), "middle", name);
            }
        }
    }
    for one in series {
        let colour = one.colour % COLOURS;
        let drawn = one.points.iter().map(|&(at, value)| (x(at), y(value)));
        let path: Vec<String> = drawn.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"var(--c{colour})\" stroke-width=\"1.6\" stroke-opacity=\".8\"><title>{}</title></polyline>",
            path.join(" "),
            escape(&one.name)
        );
        // A line of one point would not be seen.
        if matches!(across, Across::Places(_)) || one.points.len() == 1 {
            for &(at, value) in &one.points {
                let title = format!("{}: {}", one.name, unit(value));
                dot(&mut svg, (x(at), y(value)), colour, &title);
            }
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
pub fn dots(rows: &[DotRow], is_logarithmic: bool, unit: impl Fn(f64) -> String) -> String {
    let values = rows.iter().flat_map(|row| row.values.iter().copied());
    let scale = Scale::of(values, Some(is_logarithmic));
    if scale.steps.is_empty() {
        return String::new();
    }
    let letters = rows.iter().map(|row| row.name.chars().count()).max();
    let names = LEAST_NAMES.max(letters.unwrap_or(0) as f64 * LETTER + 20.0);
    let x = |value: f64| names + scale.share(value) * (WIDTH - names - RIGHT - 26.0);
    let bottom = TOP + ROW * rows.len() as f64;
    let mut svg = open(bottom + BOTTOM);
    for &step in &scale.steps {
        rule(&mut svg, (x(step), x(step)), (TOP, bottom));
        label(&mut svg, (x(step), bottom + 16.0), "middle", &unit(step));
    }
    for (number, row) in rows.iter().enumerate() {
        let middle = TOP + ROW * (number as f64 + 0.5);
        label(&mut svg, (names - 10.0, middle + 4.0), "end", &row.name);
        let colour = row.colour % COLOURS;
        if let Some(median) = row.median {
            let (at, from, to) = (x(median), middle - 9.0, middle + 9.0);
            let _ = write!(
                svg,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{from:.1}\" y2=\"{to:.1}\" stroke=\"var(--c{colour})\" stroke-width=\"2.5\"/>",
            );
        }
        for &value in &row.values {
            let title = format!("{}: {}", row.name, unit(value));
            dot(&mut svg, (x(value), middle), colour, &title);
        }
    }
    svg + "</svg>"
}

/// Names of a drawing's colours stand so many beside each other above it.
const NAMES_A_ROW: usize = 6;
/// Height of a row of them, and of the title.
const HEAD_ROW: usize = 18;

/// A drawing as a file of its own, with its title and the names of its colours; it follows
/// the light or dark of its viewer.
pub fn standalone(title: &str, names: &[&str], svg: &str) -> String {
    let head = HEAD_ROW * (1 + names.len().div_ceil(NAMES_A_ROW)) + 6;
    let title = escape(title);
    let mut words = format!("<text class=\"title\" x=\"12\" y=\"16\">{title}</text>");
    for (number, name) in names.iter().enumerate() {
        let x = 12.0 + (WIDTH - 24.0) / NAMES_A_ROW as f64 * (number % NAMES_A_ROW) as f64;
        let y = 16 + HEAD_ROW * (1 + number / NAMES_A_ROW);
        let (colour, name) = (number % COLOURS, escape(name));
        words +=
            &format!("<text x=\"{x}\" y=\"{y}\" style=\"fill:var(--c{colour})\">{name}</text>");
    }
    // The last number of the drawing's view.
    let view = svg.split('"').nth(1).unwrap_or_default();
    let height = view.split(' ').next_back().and_then(|it| it.parse().ok());
    let height: f64 = height.unwrap_or(0.0);
    let inner = format!("<svg y=\"{head}\" width=\"{WIDTH}\" height=\"{height}\" ");
    let drawing = svg.replacen("<svg ", &inner, 1);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\
         <style>{STYLE} svg {{ background: var(--ground); }} \
         svg svg {{ width: {WIDTH}px; height: {height}px; }}</style>{words}{drawing}</svg>",
        head as f64 + height
    )
}

/// The names of colours above a drawing of a page.
pub fn legend(names: &[&str]) -> String {
    let name = |(number, name): (usize, &&str)| {
        let (colour, name) = (number % COLOURS, escape(name));
        format!("<span><i style=\"background:var(--c{colour})\"></i>{name}</span>")
    };
    let names: String = names.iter().enumerate().map(name).collect();
    format!("<p class=\"legend\">{names}</p>")
}

fn open(height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">")
}

fn rule(svg: &mut String, x: (f64, f64), y: (f64, f64)) {
    let _ = write!(
        svg,
        "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"var(--rule)\"/>",
        x.0, x.1, y.0, y.1
    );
}

fn label(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = write!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escape(text)
    );
}

fn dot(svg: &mut String, (x, y): (f64, f64), colour: usize, title: &str) {
    let _ = write!(
        svg,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"var(--c{colour})\" fill-opacity=\".55\"><title>{}</title></circle>",
        escape(title)
    );
}

fn plain(value: f64) -> String {
    let digits = usize::from(value.fract() != 0.0);
    format!("{value:.digits$}")
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
        let over_time = |series: &[Series]| plot(series, Across::Seconds, |v| v.to_string());
        let series = Series {
            name: "a".to_string(),
            colour: 0,
            points: vec![(0.0, 0.0), (10.0, 100.0)],
        };
        let svg = over_time(&[series]);
        assert!(svg.contains("points=\"70.0,226.0 706.0,14.0\""), "{svg}");
        assert!(!over_time(&[]).contains("NaN"));
        let apart = Series {
            name: "b".to_string(),
            colour: 1,
            points: vec![(0.0, 10.0), (1.0, 0.0), (10.0, 1000.0)],
        };
        let svg = over_time(std::slice::from_ref(&apart));
        let expected = "points=\"70.0,226.0 133.6,226.0 706.0,14.0\"";
        assert!(
            svg.contains(expected),
            "decades; 0 lies on the ground: {svg}"
        );
        let places = Across::Places(&["x", "y"]);
        assert_eq!(plot(&[], places, |v| v.to_string()), "");
        assert_eq!(
            plot(&[apart], places, |v| v.to_string())
                .matches("<circle")
                .count(),
            3
        );
        assert_eq!(dots(&[], true, |v| v.to_string()), "");
    }

    #[test]
    fn a_drawing_that_stands_alone_has_its_height_title_and_names() {
        let svg = open(50.0) + "</svg>";
        let file = standalone("<t>", &["<a>"], &svg);
        assert!(file.starts_with("<svg xmlns=") && file.ends_with("</svg></svg>"));
        assert!(
            file.contains("0 0 720 92") && file.contains("height=\"50\""),
            "{file}"
        );
        assert!(file.contains("&lt;t&gt;") && file.contains("&lt;a&gt;"));
        assert!(legend(&["<a>"]).contains("--c0"));
    }
}
