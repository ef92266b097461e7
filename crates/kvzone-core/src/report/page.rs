//! A page: blocks in their order, with charts that zoom; no outside link, nothing to install.
//!
//! The template has one style sheet, uPlot (MIT, see `page/uplot.LICENSE`) and the script that
//! draws the charts with it. Light and dark follow the reader's system.

use serde::Serialize;

use super::grid::Grid;
use super::text::Unit;

const STYLE: &str = concat!(
    include_str!("page/uplot.min.css"),
    include_str!("page/report.css")
);
const LIBRARY: &str = include_str!("page/uplot.min.js");
const SCRIPT: &str = include_str!("page/charts.js");

/// Colours of the style sheet: `--c0` to `--c15`, one for each store that there is.
pub const COLOURS: usize = 16;

/// The colours alone, for a drawing that stands alone.
pub(super) const PALETTE: &str = include_str!("page/report.css");

/// A chart as data; the script of the page draws it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// What it shows.
    #[serde(skip)]
    pub title: String,
    /// Of its values.
    pub unit: Unit,
    /// How points lie.
    pub kind: Kind,
    /// Values in decades.
    pub log: bool,
    /// Names of the places across, or of the rows; none where seconds are across.
    pub names: Vec<String>,
    /// Lines, or the points of rows.
    pub series: Vec<Series>,
    /// Rows that have a mark, and where.
    pub medians: Vec<(f64, f64)>,
}

/// How points lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Connected, over time or named places.
    Lines,
    /// Single points, a row for each name.
    Rows,
}

/// Points of one colour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Whose they are.
    pub name: String,
    /// Which of the page's colours.
    pub colour: usize,
    /// Second, place or row, and value.
    pub points: Vec<(f64, f64)>,
}

/// A row of single points: one a round, and their median.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What stands at its left.
    pub name: String,
    /// Which of the page's colours.
    pub colour: usize,
    /// One a round.
    pub values: Vec<f64>,
    /// Marked by a stroke.
    pub median: Option<f64>,
}

impl Chart {
    /// A row for each name; all rounds are shown, not only their median.
    pub fn rows(title: String, unit: Unit, log: bool, rows: Vec<Row>) -> Chart {
        let medians = rows.iter().enumerate();
        let medians = medians.filter_map(|(place, row)| Some((place as f64, row.median?)));
        let series = |(place, row): (usize, &Row)| Series {
            name: row.name.clone(),
            colour: row.colour % COLOURS,
            points: row.values.iter().map(|&v| (place as f64, v)).collect(),
        };
        Chart {
            title,
            unit,
            kind: Kind::Rows,
            log,
            names: rows.iter().map(|row| row.name.clone()).collect(),
            series: rows.iter().enumerate().map(series).collect(),
            medians: medians.collect(),
        }
    }

    /// Lines over seconds, or over named places.
    pub fn lines(title: &str, unit: Unit, names: &[&str], series: Vec<Series>) -> Chart {
        Chart {
            title: title.to_string(),
            unit,
            kind: Kind::Lines,
            log: !names.is_empty(),
            names: names.iter().map(ToString::to_string).collect(),
            series,
            medians: Vec::new(),
        }
    }

    /// True where there is a value above 0.
    pub fn has_any(&self) -> bool {
        let mut points = self.series.iter().flat_map(|one| &one.points);
        points.any(|point| point.1 > 0.0)
    }
}

/// Text as it may stand in HTML and SVG.
///
/// ```
/// use kvzone_core::report::page::escape;
/// assert_eq!(escape("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
/// ```
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A page under way.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// With a title, and the command that made it.
    pub fn new(title: &str, command: &str) -> Page {
        let (title, command) = (escape(title), escape(command));
        Page {
            body: format!("<h1>{title}</h1><p><code>{command}</code></p>"),
            title,
        }
    }

    fn element(&mut self, tag: &str, class: &str, text: &str) {
        self.body += &match class {
            "" => format!("<{tag}>{}</{tag}>", escape(text)),
            class => format!("<{tag} class=\"{class}\">{}</{tag}>", escape(text)),
        };
    }

    /// A part begins.
    pub fn heading(&mut self, text: &str) {
        self.element("h2", "", text);
    }

    /// A part of a part begins.
    pub fn subheading(&mut self, text: &str) {
        self.element("h3", "", text);
    }

    /// A paragraph.
    pub fn text(&mut self, text: &str) {
        self.element("p", "", text);
    }

    /// A paragraph in a softer colour.
    pub fn hint(&mut self, text: &str) {
        self.element("p", "hint", text);
    }

    /// Text in the font of programs.
    pub fn code(&mut self, text: &str) {
        self.element("pre", "", text);
    }

    /// Lines, and lines that warn.
    pub fn list<T: AsRef<str>>(&mut self, lines: &[T], warnings: &[String]) {
        self.body += "<ul>";
        for line in lines {
            self.element("li", "", line.as_ref());
        }
        for line in warnings {
            self.element("li", "warning", line);
        }
        self.body += "</ul>";
    }

    /// A table; `class` names the style of a row.
    pub fn table(&mut self, grid: &Grid, class: impl Fn(&[String]) -> &'static str) {
        self.body += &grid.html(class);
    }

    /// A table that opens when its title is clicked.
    pub fn folded(&mut self, title: &str, grid: &Grid) {
        let (title, table) = (escape(title), grid.html(|_| ""));
        self.body += &format!("<details><summary>{title}</summary>{table}</details>");
    }

    /// A chart beneath its title; nothing where it has no points.
    pub fn chart(&mut self, chart: &Chart) {
        if chart.series.iter().all(|one| one.points.is_empty()) {
            return;
        }
        self.subheading(&chart.title);
        // No text of it ends the script that holds it.
        let json = serde_json::to_string(chart).unwrap_or_default();
        let json = json.replace('<', "\\u003c");
        self.body += "<div class=\"chart\"><script type=\"application/json\">";
        self.body += &json;
        self.body += "</script></div>";
    }

    /// The whole page.
    pub fn html(&self) -> String {
        let Page { title, body } = self;
        format!(
            "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>{title}</title><style>{STYLE}</style></head><body>{body}\
             <script>{LIBRARY}</script><script>{SCRIPT}</script></body></html>"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_links_to_nothing_and_names_cannot_break_out() {
        let mut page = Page::new("<t>", "kvzone <c>");
        let row = Row {
            name: "</script><b>".to_string(),
            colour: COLOURS + 2,
            values: vec![1.0, 2.0],
            median: Some(1.5),
        };
        let chart = Chart::rows("<chart>".to_string(), Unit::Count, false, vec![row]);
        assert!(chart.has_any());
        page.chart(&chart);
        page.list(&["<line>"], &["<warning>".to_string()]);
        let html = page.html();
        for outside in [
            "<link", "src=", "@import", "url(", "<t>", "<b>", "<c>", "<line>",
        ] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("[0.0,2.0]") && html.contains("\"colour\":2"));
        assert!(html.contains("prefers-color-scheme: dark") && html.contains("uPlot"));
        let empty = Chart::lines("", Unit::Bytes, &[], Vec::new());
        let before = page.html();
        page.chart(&empty);
        assert_eq!(page.html(), before, "a chart without points is left out");
    }
}
