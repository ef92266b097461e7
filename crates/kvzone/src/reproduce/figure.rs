//! A figure as data: the stores compared, the points, the workload at each, the columns
//! shown, and the paper's claims.

use kvzone_core::adapter::DurabilityName;
use kvzone_core::error::Result;
use kvzone_core::job::{Load, Popularity, Step};
use serde_json::Value;

use super::claims::Claim;
use super::measured::{Cell, Measured, Round};
use super::runner::{Asked, Size};

/// A figure or table of a paper.
#[derive(Clone, Copy)]
pub(super) struct Figure {
    /// As on the command line.
    pub(super) name: &'static str,
    /// One line for people.
    pub(super) title: &'static str,
    /// Head of the column of points.
    pub(super) axis: &'static str,
    /// Head of the column of stores.
    pub(super) who: &'static str,
    /// The work, in words, for the conditions.
    pub(super) what: &'static str,
    /// How all of that is measured.
    pub(super) how: How,
    /// The stores: the first is compared with each of the others.
    pub(super) stores: &'static [Contestant],
    /// Along the axis.
    pub(super) points: &'static [Point],
    /// Tables: the workload whose cells they show, all where it is empty, and a title.
    pub(super) tables: &'static [(&'static str, &'static str)],
    /// How a table is laid out.
    pub(super) layout: Layout,
    /// Columns behind point and store.
    pub(super) columns: &'static [Column],
    /// The paper's sentences, held against what was measured.
    pub(super) claims: fn(&Measured) -> Vec<Claim>,
}

impl Figure {
    /// A table with a row for each point and store, of which nothing is claimed.
    pub(super) const fn plain(how: How) -> Figure {
        Figure {
            name: "",
            title: "",
            axis: "",
            who: "store",
            what: "",
            how,
            stores: &[],
            points: &[],
            tables: &[("", "")],
            layout: Layout::Rows,
            columns: &[],
            claims: |_| Vec::new(),
        }
    }
}

/// How a figure is measured.
#[derive(Clone, Copy)]
pub(super) enum How {
    /// A campaign for each point, with what all figures of the paper have in common.
    Campaigns(&'static Paper),
    /// By something else, that says the JSON too; it takes these defaults.
    Cells(
        Defaults,
        fn(&'static Figure, Asked<'_>) -> Result<(Measured, Value)>,
    ),
}

/// Scale, rounds and choices, unless asked for otherwise.
#[derive(Clone, Copy)]
pub(super) struct Defaults {
    /// Share of the paper's data.
    pub(super) scale: f64,
    /// Rounds.
    pub(super) rounds: u32,
    /// Which options of the command line it has a use for.
    pub(super) takes: Takes,
}

/// The parts of a figure that can be chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// Stores, points and rounds.
    All,
    /// Points and rounds.
    Points,
    /// Rounds.
    Rounds,
    /// Nothing.
    Nothing,
}

/// How a table is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// A row for each point and store.
    Rows,
    /// A row for each point, in which stores stand side by side.
    Beside,
}

/// The settings that all campaigns of a paper share.
pub(super) struct Paper {
    /// Unless asked otherwise.
    pub(super) defaults: Defaults,
    /// Sentences for the conditions.
    pub(super) conditions: &'static str,
    /// The durability of every write.
    pub(super) durability: DurabilityName,
    /// Bytes of every store's cache.
    pub(super) cache: Setting,
    /// Settings of stores: whose, and what.
    pub(super) settings: &'static [(&'static [&'static str], &'static [Named])],
    /// Share of a value's bytes that compress away.
    pub(super) compressible: f64,
    /// How much data there is at a point, and how much memory.
    pub(super) size: fn(&Point, Asked<'_>) -> Result<Size>,
    /// Operations of a workload at a point with so many keys; none: it goes on for
    /// a time.
    pub(super) operations: fn(&Point, &str, u64, f64) -> Option<u64>,
    /// Steps behind a load, of which the one named [`super::runner::MEASURED`] is; none: the load's own
    /// phase is measured.
    pub(super) steps: fn(&Load) -> Vec<Step>,
}

/// A setting by name.
pub(super) type Named = (&'static str, Setting);

/// A setting of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Setting {
    /// As it stands.
    Is(&'static str),
    /// A number of bytes.
    Bytes(u64),
    /// So many times the so-manieth part of the memory limit.
    OfMemory(u64, u64),
}

impl Setting {
    /// As a number of bytes, with a limit of so many.
    pub(super) fn bytes(self, memory: u64) -> u64 {
        match self {
            Setting::Is(_) => 0,
            Setting::Bytes(bytes) => bytes,
            Setting::OfMemory(times, part) => memory / part * times,
        }
    }

    /// As an option's value.
    pub(super) fn text(self, memory: u64) -> String {
        match self {
            Setting::Is(text) => text.to_string(),
            other => other.bytes(memory).to_string(),
        }
    }
}

/// A store as it takes part, or another way to do the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contestant {
    /// Its name in rows.
    pub(super) label: &'static str,
    /// The adapter's name.
    pub(super) store: &'static str,
    /// Settings of its own.
    pub(super) options: &'static [(&'static str, &'static str)],
    /// Compacted before it is measured.
    pub(super) compact: bool,
    /// Left out, and said so, where it is not there and nobody asked for it.
    pub(super) may_miss: bool,
}

/// A store as it comes.
pub(super) const fn store(label: &'static str) -> Contestant {
    variant(label, label, &[])
}

/// A store with settings of its own.
pub(super) const fn variant(
    label: &'static str,
    store: &'static str,
    options: &'static [(&'static str, &'static str)],
) -> Contestant {
    Contestant {
        label,
        store,
        options,
        compact: false,
        may_miss: false,
    }
}

/// A place on the axis, and what is issued there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// Its name in rows.
    pub(super) label: &'static str,
    /// Left out unless all points are asked for.
    pub(super) extra: bool,
    /// Workloads, each with a load of its own; the first is the point.
    pub(super) workloads: &'static [&'static str],
    /// The source of keys.
    pub(super) keys: KeyKind,
    /// Bytes of a value; those of a data set are its own.
    pub(super) value_bytes: u64,
    /// Bytes of data at a scale of 1.
    pub(super) full_bytes: f64,
    /// Threads that count.
    pub(super) threads: u32,
    /// Entries of a batch of a workload that writes, at least and at most.
    pub(super) batch: (u32, u32),
    /// Share of updates in workload mixed.
    pub(super) update_percent: Option<u32>,
    /// Updates a second of one writer beside the threads.
    pub(super) writer_rate: Option<f64>,
    /// Entries of a scan.
    pub(super) scan: Option<Scan>,
    /// Exponent of the law over groups.
    pub(super) skew: Option<f64>,
    /// Operations a second.
    pub(super) rate: Rate,
    /// State of the page cache before the measured phase.
    pub(super) cache: PageCache,
    /// Settings of all stores.
    pub(super) options: &'static [(&'static str, &'static str)],
    /// KiB that the kernel reads ahead; none: as it is.
    pub(super) read_ahead: Option<u32>,
    /// The paper's figures, in the order of the stores.
    pub(super) published: &'static [f64],
}

impl Point {
    /// One thread, values of 1 KB, as fast as it goes.
    pub(super) const PLAIN: Point = Point {
        label: "",
        extra: false,
        workloads: &[],
        keys: KeyKind::Spread(16),
        value_bytes: 1 << 10,
        full_bytes: 0.0,
        threads: 1,
        batch: (1, 1),
        update_percent: None,
        writer_rate: None,
        scan: None,
        skew: None,
        rate: Rate::Peak,
        cache: PageCache::AsItIs,
        options: &[],
        read_ahead: None,
        published: &[],
    };

    /// How keys are chosen, where the workload does not say it.
    pub(super) fn popularity(&self) -> Option<Popularity> {
        self.skew.map(|exponent| Popularity::Groups {
            exponent,
            groups: 20_000,
        })
    }

    /// The same, left out unless all points are asked for.
    pub(super) const fn extra(self) -> Point {
        Point {
            extra: true,
            ..self
        }
    }

    /// The same from an empty page cache.
    pub(super) const fn cold(self) -> Point {
        Point {
            cache: PageCache::Cold,
            ..self
        }
    }
}

/// The source of keys.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyKind {
    /// Spread evenly, of so many bytes.
    Spread(u64),
    /// The 2-level pattern, of so many bytes.
    TwoLevel(u64),
    /// A data set.
    Set(&'static str),
}

/// How many entries a scan visits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scan {
    /// So many.
    Entries(u64),
    /// The so-manieth part of all.
    Part(u64),
}

/// Operations a second, over all threads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rate {
    /// As fast as it goes.
    Peak,
    /// An open loop.
    Of(f64),
    /// An open loop at a part of what each store had at a point before.
    Share(&'static str, f64),
}

/// State of the page cache before the measured phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageCache {
    /// As the load left it.
    AsItIs,
    /// Nothing.
    Cold,
    /// All, as everything was read once.
    Warm,
}

/// Picks a number out of a round.
pub(super) type Metric = fn(&Round) -> Option<f64>;

/// A column of the table.
#[derive(Clone, Copy)]
pub(super) struct Column {
    /// Above it.
    pub(super) head: &'static str,
    /// The source of its number.
    pub(super) of: Of,
    /// How it is written.
    pub(super) write: fn(f64) -> String,
}

/// The source of a column's number.
#[derive(Clone, Copy)]
pub(super) enum Of {
    /// Each round; the median is shown.
    Rounds(Metric),
    /// Several cells.
    Cells(fn(&Measured, &Cell) -> Option<f64>),
    /// The first store's rate by this one's, with its interval.
    Ratio,
}

impl Column {
    /// The median of a number that rounds have.
    pub(super) const fn new(head: &'static str, write: fn(f64) -> String, of: Metric) -> Column {
        Column {
            head,
            of: Of::Rounds(of),
            write,
        }
    }

    /// A number made of several cells.
    pub(super) const fn of_cells(
        head: &'static str,
        write: fn(f64) -> String,
        of: fn(&Measured, &Cell) -> Option<f64>,
    ) -> Column {
        Column {
            head,
            of: Of::Cells(of),
            write,
        }
    }
}
