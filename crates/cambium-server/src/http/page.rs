//! The page with live charts: a template, the chart library uPlot (MIT, see
//! `uplot.LICENSE`), and a script that reads `/metrics` every two seconds.

const TEMPLATE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");
const CHART_SCRIPT: &str = include_str!("uplot.min.js");
const CHART_STYLE: &str = include_str!("uplot.min.css");

/// The whole page.
pub fn html() -> String {
    TEMPLATE
        .replace("/*chart style*/", CHART_STYLE)
        .replace("/*chart script*/", CHART_SCRIPT)
        .replace("/*page script*/", SCRIPT)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = super::html();
        assert!(page.contains("uPlot") && page.contains("fetch('/metrics'"));
        assert!(!page.contains("/*chart") && !page.contains("/*page"));
        for outside in ["<link", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
