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

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    #[serde(skip)]
    pub title: String,
    pub unit: Unit,
    pub kind: Kind,
    /// Values in decades.
    pub log: bool,
    /// Names of the places across, or of the rows; none where seconds are across.
    pub names: Vec<String>,
    pub series: Vec<Series>,
    /// Rows that have a mark, and where.
    pub medians: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Connected, over time or named places.
    Lines,
    /// Single points, a row for each name.
    Rows,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    pub name: String,
    pub colour: usize,
    /// Second, place or row, and value.
    pub points: Vec<(f64, f64)>,
}

/// A row of single points: one a round, and their median.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub name: String,
    pub colour: usize,
    pub values: Vec<f64>,
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

/// The name of the style of a table's row.
type Style = fn(&[String]) -> &'static str;

#[derive(Clone, Debug)]
enum Block {
    Heading(String),
    Subheading(String),
    Text(String),
    Code(String),
    List(Vec<String>, Vec<String>),
    Table(Grid, Style),
    /// A table that opens when its title is clicked.
    Folded(String, Grid),
    Chart(Chart),
}

#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    command: String,
    blocks: Vec<Block>,
    /// Blocks that a terminal shows; all where there is no appendix.
    on_terminal: Option<usize>,
}

impl Page {
    pub fn new(title: &str, command: &str) -> Page {
        Page {
            title: title.to_string(),
            command: command.to_string(),
            blocks: Vec::new(),
            on_terminal: None,
        }
    }

    pub fn heading(&mut self, text: &str) {
        self.blocks.push(Block::Heading(text.to_string()));
    }

    pub fn subheading(&mut self, text: &str) {
        self.blocks.push(Block::Subheading(text.to_string()));
    }

    pub fn text(&mut self, text: &str) {
        self.blocks.push(Block::Text(text.to_string()));
    }

    /// Text in the font of programs.
    pub fn code(&mut self, text: &str) {
        self.blocks.push(Block::Code(text.to_string()));
    }

    pub fn list(&mut self, lines: Vec<String>, warnings: Vec<String>) {
        if !(lines.is_empty() && warnings.is_empty()) {
            self.blocks.push(Block::List(lines, warnings));
        }
    }

    pub fn table(&mut self, grid: Grid, style: Style) {
        self.blocks.push(Block::Table(grid, style));
    }

    /// A table that opens when its title is clicked.
    pub fn folded(&mut self, title: String, grid: Grid) {
        self.blocks.push(Block::Folded(title, grid));
    }

    /// A chart beneath its title, on a page; nothing where it has no points.
    pub fn chart(&mut self, chart: Chart) {
        if chart.series.iter().any(|one| !one.points.is_empty()) {
            self.blocks.push(Block::Chart(chart));
        }
    }

    /// Begins the part that a terminal does not show.
    pub fn appendix(&mut self) {
        self.on_terminal = Some(self.blocks.len());
    }

    /// As text, without charts.
    pub fn terminal(&self) -> String {
        let shown = self.on_terminal.unwrap_or(self.blocks.len());
        let text = |block: &Block| match block {
            Block::Heading(title) | Block::Subheading(title) => format!("\n{title}\n"),
            Block::Text(text) | Block::Code(text) => format!("{text}\n"),
            Block::List(lines, warnings) => {
                let lines = lines.iter().map(|line| format!("  {line}\n"));
                let warnings = warnings.iter().map(|line| format!("  Warning: {line}\n"));
                lines.chain(warnings).collect()
            }
            Block::Table(grid, _) => grid.terminal(),
            Block::Folded(..) | Block::Chart(_) => String::new(),
        };
        self.blocks.iter().take(shown).map(text).collect()
    }

    pub fn html(&self) -> String {
        let element = |tag: &str, class: &str, text: &str| {
            format!("<{tag} class=\"{class}\">{}</{tag}>", escape(text))
        };
        let body = |block: &Block| match block {
            Block::Heading(text) => element("h2", "", text),
            Block::Subheading(text) => element("h3", "", text),
            Block::Text(text) => element("p", "", text),
            Block::Code(text) => element("pre", "", text),
            Block::List(lines, warnings) => {
                let lines = lines.iter().map(|line| element("li", "", line));
                let warnings = warnings.iter().map(|line| element("li", "warning", line));
                format!("<ul>{}</ul>", lines.chain(warnings).collect::<String>())
            }
            Block::Table(grid, style) => grid.html(style),
            Block::Folded(title, grid) => {
                let (title, table) = (escape(title), grid.html(|_| ""));
                format!("<details><summary>{title}</summary>{table}</details>")
            }
            Block::Chart(chart) => {
                // No text of it ends the script that holds it.
                let json = serde_json::to_string(chart).unwrap_or_default();
                let json = json.replace('<', "\\u003c");
                let data = format!("<script type=\"application/json\">{json}</script>");
                let title = element("h3", "", &chart.title);
                format!("{title}<div class=\"chart\">{data}</div>")
            }
        };
        let body: String = self.blocks.iter().map(body).collect();
        let (title, command) = (escape(&self.title), escape(&self.command));
        format!(
            "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>\
             <p><code>{command}</code></p>{body}\
             <script>{LIBRARY}</script><script>{SCRIPT}</script></body></html>"
        )
    }

    pub fn markdown(&self) -> String {
        format!("# {}\n\n{}", self.title, self.part("## "))
    }

    /// As a part of a document, without a title; headings begin with these letters.
    pub fn part(&self, heading: &str) -> String {
        let mut text = format!("```sh\n{}\n```\n", self.command);
        for block in &self.blocks {
            text += &match block {
                Block::Heading(title) => format!("\n{heading}{title}\n"),
                Block::Subheading(title) => format!("\n**{title}**\n"),
                Block::Text(text) => format!("\n{text}\n"),
                Block::Code(text) => format!("\n```text\n{text}\n```\n"),
                Block::List(lines, warnings) => {
                    let lines = lines.iter().map(|line| format!("- {line}\n"));
                    let warnings = warnings.iter().map(|line| format!("- Warning: {line}\n"));
                    format!("\n{}", lines.chain(warnings).collect::<String>())
                }
                Block::Table(grid, _) => format!("\n{}", grid.markdown()),
                Block::Folded(title, grid) => {
                    let table = grid.markdown();
                    format!("\n<details><summary>{title}</summary>\n\n{table}\n</details>\n")
                }
                Block::Chart(_) => String::new(),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let mut page = Page::new("<t>", "kvzone <c>");
        let row = Row {
            name: "</script><b>".to_string(),
            colour: COLOURS + 2,
            values: vec![1.0, 2.0],
            median: Some(1.5),
        };
        let chart = Chart::rows("<chart>".to_string(), Unit::Count, false, vec![row]);
        assert!(chart.has_any());
        page.chart(chart);
        page.chart(Chart::lines("left out", Unit::Bytes, &[], Vec::new()));
        page.heading("Part");
        page.list(vec!["<line>".to_string()], vec!["careful".to_string()]);
        page.folded("fold".to_string(), Grid::default());
        page
    }

    #[test]
    fn a_page_links_to_nothing_and_names_cannot_break_out() {
        let html = page().html();
        for outside in [
            "<link", "src=", "@import", "url(", "<t>", "<b>", "<c>", "<line>",
        ] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("[0.0,2.0]") && html.contains("\"colour\":2"));
        assert!(html.contains("prefers-color-scheme: dark") && html.contains("uPlot"));
        assert!(!html.contains("left out"), "a chart without points");
    }

    #[test]
    fn a_terminal_shows_what_comes_before_the_appendix() {
        let mut page = page();
        page.appendix();
        page.heading("Settings");
        assert_eq!(page.terminal(), "\nPart\n  <line>\n  Warning: careful\n");
    }

    #[test]
    fn markdown_has_the_command_lists_and_folded_tables() {
        let text = page().markdown();
        let begin = "# <t>\n\n```sh\nkvzone <c>\n```\n\n## Part\n\n- <line>\n- Warning: careful\n";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains("<details><summary>fold</summary>"), "{text}");
        assert!(page().part("").contains("\n\nPart\n"));
    }
}
