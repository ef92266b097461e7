//! The measurements of any figure: cells of rounds.

use std::borrow::Cow;

use kvzone_core::statistics::median;
use kvzone_core::statistics::verdict::{Comparison, compare};
use serde_json::Value;

use super::columns::RATE;
use super::figure::{Column, Contestant, Metric, Of};

/// One round of a cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// From 0.
    pub(super) repeat: u32,
    /// Its result, as in the JSON; null if it did not end well.
    pub(super) found: Value,
    /// The same of the load before, where it is apart.
    pub(super) load: Value,
}

impl Round {
    /// A number by its path.
    pub(super) fn number(&self, path: &str) -> Option<f64> {
        self.found.pointer(path)?.as_f64()
    }

    /// A number of the load before, or of the load that was measured.
    pub(super) fn of_load(&self, path: &str) -> Option<f64> {
        self.load.pointer(path)?.as_f64()
    }

    /// A number in units, by the seconds that it took.
    pub(super) fn a_second(&self, path: &str, unit: f64) -> Option<f64> {
        let seconds = self.number("/seconds").filter(|seconds| *seconds > 0.0)?;
        Some(self.number(path)? / seconds / unit)
    }
}

/// One store at one point.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// Place of the point among those measured.
    pub(super) point: usize,
    /// The store's name in rows.
    pub(super) label: Cow<'static, str>,
    pub(super) workload: &'static str,
    /// Version of the store; it follows the label in a row.
    pub(super) version: Option<String>,
    /// The first thing that went wrong.
    pub(super) failure: Option<String>,
    pub(super) rounds: Vec<Round>,
}

/// A point as it was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct PointUsed {
    pub(super) label: String,
    /// The conditions at this point, as lines.
    pub(super) conditions: String,
    /// The paper's figures, in the order of the stores.
    pub(super) published: &'static [f64],
}

/// A whole figure.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) points: Vec<PointUsed>,
    pub(super) stores: Vec<Contestant>,
    pub(super) cells: Vec<Cell>,
    pub(super) warnings: Vec<String>,
    /// Stores answered differently.
    pub(super) is_contradicted: bool,
    /// Rounds; 0 where they would all say the same.
    pub(super) repeat: u32,
    pub(super) seed: u64,
    pub(super) scale: f64,
}

impl PointUsed {
    /// A point of a name, and what holds there.
    pub(super) fn at(label: &str, conditions: String) -> PointUsed {
        PointUsed {
            label: label.to_string(),
            conditions,
            published: &[],
        }
    }
}

impl Cell {
    /// A cell that was measured once.
    pub(super) fn once(point: usize, label: &'static str, found: Value) -> Cell {
        Cell {
            point,
            label: label.into(),
            workload: "",
            version: None,
            failure: None,
            rounds: vec![Round {
                found,
                ..Round::default()
            }],
        }
    }

    /// Median over rounds.
    pub(super) fn median(&self, metric: Metric) -> Option<f64> {
        let values: Vec<f64> = self.rounds.iter().filter_map(metric).collect();
        median(&values)
    }
}

impl Measured {
    /// The measurements of one round alone.
    pub(super) fn of_round(&self, repeat: u32) -> Measured {
        let mut one = self.clone();
        for cell in &mut one.cells {
            cell.rounds.retain(|round| round.repeat == repeat);
        }
        one
    }

    /// Cells of a workload, all where it is empty.
    pub(super) fn of_workload<'a>(
        &'a self,
        workload: &'a str,
    ) -> impl DoubleEndedIterator<Item = &'a Cell> {
        let same = move |cell: &&Cell| workload.is_empty() || cell.workload == workload;
        self.cells.iter().filter(same)
    }

    /// A store at a point, with the first workload that the point has.
    pub(super) fn cell(&self, point: usize, label: &str) -> Option<&Cell> {
        self.cell_of("", point, label)
    }

    /// A store at a point, with a workload; any where it is empty.
    pub(super) fn cell_of(&self, workload: &str, point: usize, label: &str) -> Option<&Cell> {
        let mut cells = self.cells.iter();
        cells.find(|cell| {
            cell.point == point
                && cell.label == label
                && (workload.is_empty() || cell.workload == workload)
        })
    }

    /// The last point of a name.
    pub(super) fn place(&self, point: &str) -> Option<usize> {
        self.points.iter().rposition(|used| used.label == point)
    }

    /// A number of a store at a point.
    pub(super) fn figure(&self, point: &str, label: &str, column: Column) -> Option<f64> {
        self.value(self.cell(self.place(point)?, label)?, column)
    }

    /// The same of one of the point's workloads.
    pub(super) fn figure_of(
        &self,
        workload: &str,
        point: &str,
        label: &str,
        column: Column,
    ) -> Option<f64> {
        self.value(self.cell_of(workload, self.place(point)?, label)?, column)
    }

    /// The number of a column in a cell.
    pub(super) fn value(&self, cell: &Cell, column: Column) -> Option<f64> {
        match column.of {
            Of::Rounds(metric) => cell.median(metric),
            Of::Cells(of) => of(self, cell),
            Of::Ratio => Some(self.ratio(cell)?.ratio),
        }
    }

    /// Names of the points.
    pub(super) fn labels(&self) -> impl Iterator<Item = &str> {
        self.points.iter().map(|point| point.label.as_str())
    }

    /// The first and the last point, if there are two.
    pub(super) fn ends(&self) -> Option<(&str, &str)> {
        let mut labels = self.labels();
        Some((labels.next()?, labels.last()?))
    }

    /// The name in rows of the store that is compared with the others.
    pub(super) fn first(&self) -> &'static str {
        self.stores.first().map_or("", |one| one.label)
    }

    /// The first store against this one, in the rounds that both ended well.
    pub(super) fn ratio(&self, cell: &Cell) -> Option<Comparison> {
        let ours = self.cell_of(cell.workload, cell.point, self.first())?;
        if std::ptr::eq(ours, cell) {
            return None;
        }
        let Of::Rounds(rate) = RATE.of else {
            return None;
        };
        let pair = |round: &Round| {
            let same = |other: &&Round| other.repeat == round.repeat;
            Some((rate(round)?, rate(cell.rounds.iter().find(same)?)?))
        };
        let pairs: Vec<(f64, f64)> = ours.rounds.iter().filter_map(pair).collect();
        compare(&pairs)
    }

    /// How many times as much of something a cell has as the first store at its point.
    pub(super) fn gain(&self, cell: &Cell, metric: Metric) -> Option<f64> {
        let theirs = self.cell(cell.point, self.first())?.median(metric)?;
        let gain = cell.median(metric)? / theirs;
        gain.is_finite().then_some(gain)
    }

    /// The first store's rate by this one's in the paper.
    pub(super) fn published(&self, cell: &Cell) -> Option<f64> {
        let place = self.stores.iter().position(|one| one.label == cell.label)?;
        let published = self.points.get(cell.point)?.published;
        Some(published.first()? / published.get(place)?)
    }

    /// True if everything was done, and all stores answered the same.
    pub(super) fn all_well(&self) -> bool {
        !self.is_contradicted && self.cells.iter().all(|cell| cell.failure.is_none())
    }
}
