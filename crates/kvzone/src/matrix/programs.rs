//! The matrix as data: programs, each a load and steps on one open store, and the cells
//! that are read off them.

use kvzone_core::adapter::DurabilityName;
use kvzone_core::job::{Act, After, Beside, Load, Popularity, SizeChoice, Step, Until};
use kvzone_core::workload::{OperationKind, updates};
use serde::{Deserialize, Serialize};

pub(super) const KEY_BYTES: u64 = 16;
/// Entries of a batch where batches are measured.
const BATCH: u32 = 100;
/// Data by the memory limit of the program that is beyond memory.
pub(super) const BEYOND_MEMORY: u64 = 5;
/// Below this a process that holds a store and the load generator cannot live.
const LEAST_MEMORY: u64 = 96 << 20;

kvzone_core::named! {
    pub(super) enum Program {
        /// Filled at random; read, scanned, overwritten, deleted.
        Main = "main",
        /// Every write on the device before it is answered.
        Synced = "synced",
        Sequential = "sequential",
        /// Filled at random, in batches.
        Batches = "batches",
        /// Opened after its process was killed.
        Kill = "kill",
        /// With a fifth of the data as memory, page cache included.
        BeyondMemory = "beyond-memory",
    }
}

impl Program {
    pub(super) fn durability(self) -> DurabilityName {
        match self {
            Program::Synced => DurabilityName::Synced,
            _ => DurabilityName::Written,
        }
    }

    pub(super) fn reopen(self) -> Option<After> {
        (self == Program::Kill).then_some(After::Kill)
    }

    pub(super) fn memory_limit(self, data_bytes: u64) -> Option<u64> {
        (self == Program::BeyondMemory).then(|| (data_bytes / BEYOND_MEMORY).max(LEAST_MEMORY))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Scale {
    /// Seconds of a step that reads, or overwrites by two threads.
    pub(super) step_seconds: f64,
    /// Seconds of overwriting beside a reader.
    pub(super) sustained_seconds: f64,
    /// Seconds of rest after everything was deleted; 0 leaves both out.
    pub(super) idle_seconds: f64,
}

pub(super) fn load(program: Program, (value_bytes, keys): (u64, u64), seed: u64) -> Load {
    let workload = match program {
        Program::Sequential => "fill-sequential",
        Program::Kill => "overwrite",
        _ => "fill-random",
    };
    let keys = match program {
        Program::Synced => (keys / 20).max(1_000),
        _ => keys,
    };
    Load {
        workload: workload.to_string(),
        seed,
        keys,
        key_bytes: SizeChoice::Fixed(KEY_BYTES),
        value_bytes: SizeChoice::Fixed(value_bytes),
        until: Until::Operations(keys),
        batch: match program {
            Program::Batches => BATCH,
            // A load that is no cell of its own need not take long.
            Program::Synced | Program::BeyondMemory => {
                1_000.min(1 + (1 << 20) / value_bytes as u32)
            }
            _ => 1,
        },
        ..Load::default()
    }
}

pub(super) fn steps(program: Program, load: &Load, scale: Scale) -> Vec<Step> {
    let mut steps = Steps {
        base: load,
        scale,
        all: Vec::new(),
    };
    match program {
        Program::Main => steps.main(),
        Program::Synced => {
            steps.timed("synced-1", "overwrite", |_| {});
            steps.timed("synced-16", "overwrite", |load| load.threads = 16);
        }
        Program::BeyondMemory => {
            steps.timed("read", "read-random", |_| {});
            steps.scan("scan-100", 100);
            steps.timed("mixed", "mixed", |load| {
                load.mix = Some(updates(50));
                load.popularity = Some(Popularity::Zipfian(0.99));
            });
        }
        Program::Sequential | Program::Batches | Program::Kill => {}
    }
    steps.all
}

struct Steps<'a> {
    base: &'a Load,
    scale: Scale,
    all: Vec<Step>,
}

impl Steps<'_> {
    fn add(&mut self, name: &str, act: Act) {
        self.all.push(Step {
            name: name.to_string(),
            act,
        });
    }

    fn work(&mut self, name: &str, workload: &str, until: Until, change: impl FnOnce(&mut Load)) {
        let mut load = Load {
            workload: workload.to_string(),
            // Another step's keys are others.
            seed: self.base.seed + 1 + self.all.len() as u64,
            until,
            batch: 1,
            ..self.base.clone()
        };
        change(&mut load);
        self.add(name, Act::Work(Box::new(load)));
    }

    fn timed(&mut self, name: &str, workload: &str, change: impl FnOnce(&mut Load)) {
        let until = Until::Seconds(self.scale.step_seconds);
        self.work(name, workload, until, change);
    }

    fn scan(&mut self, name: &str, entries: u64) {
        self.timed(name, "scan-random", |load| {
            load.scan_entries = Some(SizeChoice::Fixed(entries));
        });
    }

    fn main(&mut self) {
        self.add("compact", Act::Compact);
        // Caches that a compaction emptied are no part of what reads cost.
        self.timed("warm", "read-random", |_| {});
        self.timed("read", "read-random", |_| {});
        self.timed("read-2", "read-random", |load| load.threads = 2);
        self.timed("read-missing", "read-missing", |_| {});
        self.timed("read-zipfian", "read-random", |load| {
            load.popularity = Some(Popularity::Zipfian(0.99));
        });
        self.scan("scan-10", 10);
        self.scan("scan-100", 100);
        self.timed("forwards", "walk", |_| {});
        self.timed("backwards", "walk-backwards", |_| {});
        let quarter = Until::Operations((self.base.keys / 4).max(1));
        self.work("overwrite", "overwrite", quarter, |_| {});
        self.scan("scan-10-after", 10);
        self.scan("scan-100-after", 100);
        self.timed("overwrite-2", "overwrite", |load| load.threads = 2);
        let sustained = Until::Seconds(self.scale.sustained_seconds);
        self.work("sustained", "overwrite", sustained, |load| {
            load.beside = Some(Beside {
                kind: OperationKind::Read,
                threads: 1,
                rate: None,
            });
        });
        self.add("reopen", Act::Reopen);
        if self.scale.idle_seconds > 0.0 {
            let all = Until::Operations(self.base.keys);
            self.work("delete", "delete-random", all, |_| {});
            self.add("idle", Act::Idle(self.scale.idle_seconds));
        }
    }
}

/// The figure of a phase that a cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// Operations (of walks: entries) a second.
    Rate,
    Seconds,
    /// The slowest whole second by the mean of all.
    SlowestSecond,
    /// The latency that 99 of 100 calls keep, in seconds.
    P99,
    P999,
    /// Bytes on the disk by bytes of live keys and values, when it ended.
    Space,
    /// Over the seconds of the phase.
    MeanSpace,
    GreatestSpace,
    /// Bytes on the disk by bytes of the keys and values that were loaded.
    SpaceLeft,
    /// Peak memory of the process, the load generator included.
    Memory,
    Descriptors,
}

impl Figure {
    pub(super) fn is_cost(self) -> bool {
        !matches!(self, Figure::Rate | Figure::SlowestSecond)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) name: &'static str,
    pub(super) program: Program,
    /// The step; "load" for the load, "kill" for the opening after one.
    pub(super) step: &'static str,
    pub(super) figure: Figure,
}

const fn cell(name: &'static str, program: Program, step: &'static str, figure: Figure) -> Cell {
    Cell {
        name,
        program,
        step,
        figure,
    }
}

const fn rate(name: &'static str, step: &'static str) -> Cell {
    cell(name, Program::Main, step, Figure::Rate)
}

/// A figure of overwriting beside a reader.
const fn sustained(name: &'static str, figure: Figure) -> Cell {
    cell(name, Program::Main, "sustained", figure)
}

/// Operations a second with a fifth of the data as memory.
const fn beyond(name: &'static str, step: &'static str) -> Cell {
    cell(name, Program::BeyondMemory, step, Figure::Rate)
}

/// Operations a second, each on the device.
const fn synced(name: &'static str, step: &'static str) -> Cell {
    cell(name, Program::Synced, step, Figure::Rate)
}

#[rustfmt::skip] // a table
pub(super) const CELLS: &[Cell] = &[
    rate("fill, random order", "load"),
    cell("fill, key order", Program::Sequential, "load", Figure::Rate),
    cell("fill, batches of 100", Program::Batches, "load", Figure::Rate),
    cell("compact", Program::Main, "compact", Figure::Seconds),
    cell("space, compacted : data", Program::Main, "compact", Figure::Space),
    rate("read at random", "read"),
    rate("read, two threads", "read-2"),
    rate("read what is not there", "read-missing"),
    rate("read, zipfian", "read-zipfian"),
    rate("scan 10", "scan-10"),
    rate("scan 100", "scan-100"),
    rate("whole store, entries", "forwards"),
    rate("whole store backwards", "backwards"),
    rate("overwrite", "overwrite"),
    rate("scan 10, a quarter overwritten", "scan-10-after"),
    rate("scan 100, a quarter overwritten", "scan-100-after"),
    rate("overwrite, two threads", "overwrite-2"),
    rate("sustained overwriting", "sustained"),
    sustained("sustained, slowest second : mean", Figure::SlowestSecond),
    sustained("sustained, p99 of a write", Figure::P99),
    sustained("sustained, p99.9 of a write", Figure::P999),
    sustained("sustained, mean space : live", Figure::MeanSpace),
    sustained("sustained, greatest space : live", Figure::GreatestSpace),
    sustained("memory of the process", Figure::Memory),
    sustained("file descriptors", Figure::Descriptors),
    cell("open after a close", Program::Main, "reopen", Figure::Seconds),
    rate("delete", "delete"),
    cell("space left after deleting all : data", Program::Main, "idle", Figure::SpaceLeft),
    cell("open after a kill", Program::Kill, "kill", Figure::Seconds),
    synced("synced write, one thread", "synced-1"),
    synced("synced write, sixteen threads", "synced-16"),
    beyond("beyond memory: read at random", "read"),
    beyond("beyond memory: scan 100", "scan-100"),
    beyond("beyond memory: half updates, zipfian", "mixed"),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use kvzone_core::driver;

    #[test]
    fn every_cell_has_its_step_and_every_program_can_be_run() {
        let scale = Scale {
            step_seconds: 1.0,
            sustained_seconds: 3.0,
            idle_seconds: 1.0,
        };
        for program in Program::ALL {
            let load = load(program, (100, 10_000), 1);
            let steps = steps(program, &load, scale);
            driver::check(&load, &steps, program.reopen()).unwrap();
            for cell in CELLS.iter().filter(|cell| cell.program == program) {
                let is_step = steps.iter().any(|step| step.name == cell.step);
                assert!(
                    is_step || matches!(cell.step, "load" | "kill"),
                    "{}",
                    cell.name
                );
            }
        }
    }

    #[test]
    fn names_of_cells_are_unique() {
        let mut names: Vec<&str> = CELLS.iter().map(|cell| cell.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CELLS.len());
    }
}
