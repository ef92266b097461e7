//! A table as text for a terminal, in Markdown and as HTML.

use comfy_table::{CellAlignment, Table, presets};

use super::page::escape;

/// Heads and rows; the first columns are words, the others numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    pub heads: Vec<String>,
    /// Columns of words.
    pub words: usize,
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    pub fn terminal(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_header(&self.heads);
        for row in &self.rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(self.words) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{table}\n")
    }

    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let numbers = self.heads.len().saturating_sub(self.words);
        let (words, numbers) = ("---|".repeat(self.words), "---:|".repeat(numbers));
        let rows = self.rows.iter().map(|row| line(row));
        format!("{}|{words}{numbers}\n", line(&self.heads)) + &rows.collect::<String>()
    }

    /// For a page; `class` names the style of a row.
    pub fn html(&self, class: impl Fn(&[String]) -> &'static str) -> String {
        let line = |cells: &[String], kind: &str, class: &str| {
            let cell = |cell: &String| format!("<{kind}>{}</{kind}>", escape(cell));
            let cells: String = cells.iter().map(cell).collect();
            format!("<tr class=\"{class}\">{cells}</tr>")
        };
        let rows = self.rows.iter().map(|row| line(row, "td", class(row)));
        let rows: String = rows.collect();
        let heads = line(&self.heads, "th", "");
        format!("<div class=\"wide\"><table>{heads}{rows}</table></div>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_nothing_breaks_out() {
        let grid = Grid {
            heads: ["store", "ops/s"].map(str::to_string).to_vec(),
            words: 1,
            rows: vec![["<a>", "7"].map(str::to_string).to_vec()],
        };
        assert_eq!(
            grid.markdown(),
            "| store | ops/s |\n|---|---:|\n| <a> | 7 |\n"
        );
        assert!(
            grid.terminal().contains("│ <a>   ┆     7 │"),
            "{}",
            grid.terminal()
        );
        let html = grid.html(|_| "ahead");
        assert!(html.contains("<tr class=\"ahead\"><td>&lt;a&gt;</td><td>7</td></tr>"));
    }
}
