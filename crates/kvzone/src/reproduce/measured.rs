//! The measurements of a figure: cells of rounds.

use kvzone_core::statistics::median;
use kvzone_core::statistics::verdict::{Comparison, compare_rounds};
use serde_json::Value;

use super::columns::{Column, Of, RATE_OF, READ_OF};
use super::figure::{Contestant, Figure};

#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    pub(super) repeat: u32,
    /// Its result, as in the JSON; null if it did not end well.
    pub(super) found: Value,
    /// The same of the load before, where it is apart.
    pub(super) load: Value,
}

impl Round {
    pub(super) fn number(&self, path: &str) -> Option<f64> {
        self.found.pointer(path)?.as_f64()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) point: usize,
    pub(super) label: String,
    pub(super) workload: String,
    /// Version of the store; it follows the label in a row.
    pub(super) version: Option<String>,
    pub(super) failure: Option<String>,
    pub(super) rounds: Vec<Round>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct PointUsed {
    pub(super) label: String,
    pub(super) conditions: String,
}

#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) figure: &'static Figure,
    pub(super) points: Vec<PointUsed>,
    pub(super) stores: Vec<Contestant>,
    pub(super) cells: Vec<Cell>,
    pub(super) warnings: Vec<String>,
    /// Stores answered differently.
    pub(super) is_contradicted: bool,
    pub(super) repeat: u32,
    pub(super) seed: u64,
    pub(super) scale: f64,
}

impl Cell {
    pub(super) fn median(&self, of: Of) -> Option<f64> {
        let values: Vec<f64> = self.rounds.iter().filter_map(|it| of.number(it)).collect();
        median(&values)
    }

    fn rates(&self) -> Vec<(u32, f64)> {
        let rate = |round: &Round| Some((round.repeat, RATE_OF.number(round)?));
        self.rounds.iter().filter_map(rate).collect()
    }
}

impl Measured {
    pub(super) fn of_round(&self, repeat: u32) -> Measured {
        let mut one = self.clone();
        for cell in &mut one.cells {
            cell.rounds.retain(|round| round.repeat == repeat);
        }
        one
    }

    /// Cells of a workload, all where it is empty.
    pub(super) fn of_workload<'a>(&'a self, workload: &'a str) -> impl Iterator<Item = &'a Cell> {
        let same = move |cell: &&Cell| workload.is_empty() || cell.workload == workload;
        self.cells.iter().filter(same)
    }

    /// A store at a point, with a workload; any where it is empty.
    pub(super) fn cell(&self, workload: &str, point: usize, label: &str) -> Option<&Cell> {
        let mut cells = self.cells.iter();
        cells.find(|cell| {
            cell.point == point
                && cell.label == label
                && (workload.is_empty() || cell.workload == workload)
        })
    }

    pub(super) fn place(&self, point: &str) -> Option<usize> {
        self.points.iter().position(|used| used.label == point)
    }

    pub(super) fn value(&self, cell: &Cell, column: &Column) -> Option<f64> {
        match column.of {
            Of::Ratio => Some(self.ratio(cell)?.ratio),
            Of::Published => self.published(cell),
            Of::SpeedOfReading => {
                let first = self.cell(&cell.workload, cell.point, self.first())?;
                Some(first.median(READ_OF)? / cell.median(READ_OF)?)
            }
            of => cell.median(of),
        }
    }

    /// The name in rows of the store that is compared with the others.
    pub(super) fn first(&self) -> &str {
        self.stores.first().map_or("", |one| &one.label)
    }

    pub(super) fn ratio(&self, cell: &Cell) -> Option<Comparison> {
        let ours = self.cell(&cell.workload, cell.point, self.first())?;
        if ours.label == cell.label {
            return None;
        }
        compare_rounds(&ours.rates(), &cell.rates())
    }

    /// The first store's rate by this one's in the paper.
    pub(super) fn published(&self, cell: &Cell) -> Option<f64> {
        let label = &self.points[cell.point].label;
        let point = self.figure.points.iter().find(|it| &it.label == label)?;
        Some(point.published.get(self.first())? / point.published.get(&cell.label)?)
    }

    /// True if everything was done, and all stores answered the same.
    pub(super) fn all_well(&self) -> bool {
        !self.is_contradicted && self.cells.iter().all(|cell| cell.failure.is_none())
    }
}
