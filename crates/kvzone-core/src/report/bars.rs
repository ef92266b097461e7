//! Stacked bars as SVG: what a whole is made of, one row a whole.

use std::fmt::Write;

use super::chart::{COLOURS, escape};

const WIDTH: f64 = 720.0;
const NAMES: f64 = 190.0;
const RIGHT: f64 = 60.0;
const ROW: f64 = 24.0;
const TOP: f64 = 8.0;

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What stands at its left.
    pub name: String,
    /// Its parts, from the left; the n-th has the page's n-th colour.
    pub parts: Vec<f64>,
}

/// Bars on a common scale from 0; `parts` names what they are made of.
///
/// ```
/// use kvzone_core::report::bars::{Bar, stacked};
/// let bar = Bar { name: "sync".into(), parts: vec![1.0, 3.0] };
/// let svg = stacked(&[bar], &["search", "read"], |seconds| format!("{seconds:.1} s"));
/// assert_eq!(svg.matches("<rect").count(), 2);
/// assert!(svg.contains("read: 3.0 s"));
/// ```
pub fn stacked(bars: &[Bar], parts: &[&str], unit: impl Fn(f64) -> String) -> String {
    let whole = |bar: &Bar| bar.parts.iter().sum::<f64>();
    let largest = bars.iter().map(whole).fold(0.0, f64::max);
    let scale = if largest > 0.0 {
        (WIDTH - NAMES - RIGHT) / largest
    } else {
        0.0
    };
    let height = TOP * 2.0 + ROW * bars.len() as f64;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">");
    for (number, bar) in bars.iter().enumerate() {
        let top = TOP + ROW * number as f64;
        let middle = top + ROW / 2.0 + 4.0;
        text(&mut svg, NAMES - 8.0, middle, "end", &bar.name);
        let mut left = NAMES;
        for (part, &value) in bar.parts.iter().enumerate() {
            let width = value.max(0.0) * scale;
            let name = parts.get(part).copied().unwrap_or_default();
            let _ = write!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"var(--c{})\" fill-opacity=\".8\"><title>{}: {}: {}</title></rect>",
                top + 3.0,
                ROW - 6.0,
                part % COLOURS,
                escape(&bar.name),
                escape(name),
                escape(&unit(value)),
            );
            left += width;
        }
        text(&mut svg, left + 6.0, middle, "start", &unit(whole(bar)));
    }
    svg + "</svg>"
}

/// What the colours of [`stacked`] mean.
pub fn legend(parts: &[&str]) -> String {
    let mut html = String::from("<p class=\"legend\">");
    for (number, part) in parts.iter().enumerate() {
        let _ = write!(
            html,
            "<span><i style=\"background:var(--c{})\"></i>{}</span>",
            number % COLOURS,
            escape(part)
        );
    }
    html + "</p>"
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = write!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escape(words)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_one_another_and_nothing_breaks_out() {
        let bar = |name: &str, parts: &[f64]| Bar {
            name: name.to_string(),
            parts: parts.to_vec(),
        };
        let bars = [bar("<a>", &[1.0, 1.0]), bar("b", &[0.0, 1.0])];
        let svg = stacked(&bars, &["x", "y"], |value| value.to_string());
        assert!(
            svg.contains("x=\"190.0\"") && svg.contains("x=\"425.0\""),
            "{svg}"
        );
        assert!(!svg.contains("<a>"));
        assert!(!stacked(&[], &[], |_| String::new()).contains("NaN"));
        assert!(!stacked(&[bar("0", &[0.0])], &["x"], |v| v.to_string()).contains("NaN"));
        assert!(legend(&["x", "y"]).contains("--c1"));
    }
}
