//! `kvzone reproduce alphard/fio`, which is ours: how fast `alphard` inserts, beside `fio`
//! with direct writes of the same size and as many in flight.
//!
//! Requests are submitted, `Synced`: each is answered when it is durable, and one sync
//! serves as many as have been written by then. `fio` takes its turn in each round three
//! times: with a sync for as many writes as `alphard` had in that round (the same bytes a
//! sync), with one for as many as are in flight, and with each write synced by itself.
//! Only in the last does it answer, as `alphard` does, when a write is durable. All begin
//! with a file that is allocated and was never written.

use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use cambium::{Durability, Options, Request};
use kvzone_core::device::fio::{self, Syncs, WritePoint};
use kvzone_core::error::{Error, Result};
use kvzone_core::random::Random;
use kvzone_core::report::text::three_digits;
use kvzone_core::statistics::verdict::compare;
use serde_json::{Value, json};

use super::chosen;
use super::figure::{Defaults, Figure, How, Point, Takes};
use super::present::{Grid, Shown, ratio_text};
use super::runner::Asked;
use crate::output;
use crate::place::{self, RunFolder};

/// Bytes of the file at scale 1.
const FILE_BYTES: f64 = (64_u64 << 30) as f64;
/// Space that an entry's header and key may take.
const ENTRY_BYTES: u64 = 96;
/// Unit of space.
const BLOCK_BYTES: u64 = 512;

/// A size of values, and how many are in flight.
const fn in_flight(label: &'static str, value_bytes: u64, threads: u32) -> Point {
    Point {
        label,
        value_bytes,
        threads,
        ..Point::PLAIN
    }
}

/// The figure.
pub(super) const FIGURES: &[Figure] = &[Figure {
    name: "alphard/fio",
    title: "Large and small inserts, as many in flight, beside fio",
    axis: "values",
    points: &[
        in_flight("256 KB, 8 in flight", 256 << 10, 8),
        in_flight("256 KB, 32 in flight", 256 << 10, 32),
        in_flight("4 KB, 32 in flight", 4 << 10, 32),
    ],
    ..Figure::plain(How::Tables(
        Defaults {
            scale: 0.0625,
            rounds: 3,
            takes: Takes::Points,
        },
        measure,
    ))
}];

/// Bytes that an insert takes on the device.
fn device_bytes(point: &Point) -> u64 {
    (point.value_bytes + ENTRY_BYTES).next_multiple_of(BLOCK_BYTES)
}

fn depth(point: &Point) -> usize {
    point.threads as usize
}

/// Heads of the columns of `fio`, in the order of [`policies`].
const POLICIES: [&str; 3] = ["as often", "by depth", "each"];

fn policies(point: &Point, writes_a_sync: u64) -> [Syncs; 3] {
    let by_depth = Syncs::After(u64::from(point.threads));
    [Syncs::After(writes_a_sync), by_depth, Syncs::Each]
}

/// One round at a point; bytes a second.
struct Round {
    ours: f64,
    writes_a_sync: f64,
    fio: [f64; 3],
}

fn measure(figure: &'static Figure, asked: Asked<'_>) -> Result<(Shown, Value)> {
    let arguments = asked.arguments;
    fio::check_installed()?;
    let asked_for = (arguments.points.as_slice(), arguments.all_points);
    let points = chosen::points(figure.name, figure.points, asked_for)?;
    let bytes = ((FILE_BYTES * asked.scale) as u64).next_multiple_of(1 << 20);
    let rounds = asked.repeat;
    let limit = Duration::from_secs_f64(arguments.seconds);
    let directory = place::prepare(&arguments.dir)?;
    place::check_room(&directory, bytes + (1 << 20))?;
    let folder = RunFolder::create(&directory, "beside-fio")?;
    let (mut rows, mut found) = (Vec::new(), Vec::new());
    for point in points {
        let mut measured = Vec::new();
        for round in 1..=rounds {
            output::complain(&format!("kvzone: {}, round {round}", point.label));
            measured.push(one_round(folder.path(), point, bytes, limit)?);
        }
        rows.push(row(point, &measured));
        found.extend(measured.iter().map(|round| {
            json!({
                "point": point.label, "bytes_per_second": round.ours,
                "writes_a_sync": round.writes_a_sync, "fio_bytes_per_second": round.fio,
            })
        }));
    }
    let mut heads = vec![
        figure.axis.to_string(),
        "MB/s".into(),
        "writes a sync".into(),
    ];
    heads.extend(POLICIES.map(|policy| format!("fio, synced {policy}, MB/s: ratio")));
    let grid = Grid {
        heads,
        words: 1,
        rows,
    };
    let shown = Shown {
        grids: vec![("", grid)],
        claims: Vec::new(),
        conditions: format!(
            "{rounds} rounds in turns of {} s or {} MB; medians, and alphard : fio of each round.\n",
            arguments.seconds,
            bytes / 1_000_000
        ),
        charts: String::new(),
    };
    Ok((shown, json!({"schema": "kvzone-fio/1", "rounds": found})))
}

fn row(point: &Point, rounds: &[Round]) -> Vec<String> {
    let median = |of: &dyn Fn(&Round) -> f64| {
        let all: Vec<f64> = rounds.iter().map(of).collect();
        three_digits(fio::median(&all))
    };
    let mut row = vec![point.label.to_string(), median(&|round| round.ours / 1e6)];
    row.push(median(&|round| round.writes_a_sync));
    for policy in 0..POLICIES.len() {
        let pairs: Vec<(f64, f64)> = rounds
            .iter()
            .map(|round| (round.ours, round.fio[policy]))
            .collect();
        let ratio = ratio_text(compare(&pairs));
        let rate = median(&|round| round.fio[policy] / 1e6);
        row.push(format!("{rate}: {ratio}"));
    }
    row
}

fn one_round(folder: &Path, point: &Point, bytes: u64, limit: Duration) -> Result<Round> {
    let (ours, writes_a_sync) = of_alphard(&folder.join("store"), point, bytes, limit)?;
    let mut rates = [0.0; 3];
    let all = policies(point, writes_a_sync.round() as u64);
    for (syncs, rate) in all.into_iter().zip(&mut rates) {
        let writes = WritePoint {
            block_bytes: device_bytes(point),
            depth: depth(point),
            syncs,
        };
        let file = folder.join("file");
        *rate = fio::write_file(&file, bytes, writes, limit)?;
        // The next one begins with a file that was never written, too.
        std::fs::remove_file(&file).map_err(|error| Error::machine("remove", &file, error))?;
    }
    Ok(Round {
        ours,
        writes_a_sync,
        fio: rates,
    })
}

/// Device bytes a second of inserts, and inserts a sync.
fn of_alphard(path: &Path, point: &Point, bytes: u64, limit: Duration) -> Result<(f64, f64)> {
    let store = Options::new()
        .set("size", bytes)
        .set("extend_bytes", bytes)
        .set("block_bytes", BLOCK_BYTES)
        .create(path, "alphard")?;
    // Begins the epoch, and takes the space into use.
    store.with_durability(Durability::Synced).put("first", "")?;
    let syncs = || Ok::<_, Error>(store.stats()?.number("syncs").unwrap_or(0));
    let syncs_before = syncs()?;
    let most = (bytes / device_bytes(point)).saturating_sub(64);
    let (done, answers) = sync_channel(depth(point));
    let mut random = Random::new(1);
    let words = (0..point.value_bytes / 8).flat_map(|_| random.next_u64().to_le_bytes());
    let value: Vec<u8> = words.collect();
    let submit = |number: u64| {
        let done = done.clone();
        let request = Request::Put {
            key: number.to_be_bytes()[1..].to_vec(),
            value: value.clone(),
            durability: Durability::Synced,
        };
        let tell = move |answer: cambium::Result<_>| _ = done.send(answer.map(|_| ()));
        store.submit(request, Box::new(tell));
    };
    let begin = Instant::now();
    let (mut sent, mut answered) = (0, 0);
    while answered < sent || sent == 0 {
        let full = sent - answered >= u64::from(point.threads);
        if !full && sent < most && (sent == 0 || begin.elapsed() < limit) {
            submit(sent);
            sent += 1;
            continue;
        }
        // A completion comes exactly once.
        answers.recv().unwrap_or(Err(cambium::Error::Closed))?;
        answered += 1;
    }
    let seconds = begin.elapsed().as_secs_f64().max(1e-9);
    let synced = (syncs()? - syncs_before).max(1);
    store.close()?;
    std::fs::remove_dir_all(path).map_err(|error| Error::machine("remove", path, error))?;
    let rate = (answered * device_bytes(point)) as f64 / seconds;
    Ok((rate, answered as f64 / synced as f64))
}
