//! What the P-Fetch paper says of each figure, held against what was measured.

use kvzone_core::report::text::three_digits;

use super::super::claims::Claim;
use super::child::Answer;
use super::figures::Kind;
use super::present::{Measured, Presented};

/// Two that differ by no more than this make no difference.
const ALIKE: f64 = 1.1;

type Found = Option<(String, bool)>;

/// The figure's sentences.
pub(super) fn claims(shown: &Presented) -> Vec<Claim> {
    match shown.figure.kind {
        Kind::Sorting => sorting(shown),
        Kind::Backends { direct } => backends(shown, direct),
        Kind::Throughput => throughput(shown),
        Kind::Batch => batches(shown),
        Kind::ReadAhead => read_ahead(shown),
        // Ours alone.
        Kind::Fio | Kind::Steady => Vec::new(),
    }
}

fn find<'a>(shown: &'a Presented, title: &str) -> Option<&'a Measured> {
    // Of the largest data, where there are several.
    let with_title = |one: &&Measured| one.case.title == title;
    shown.measured.iter().rev().find(with_title)
}

fn seconds(shown: &Presented, title: &str, pick: fn(&Answer) -> f64) -> Option<f64> {
    find(shown, title)?.median(pick)
}

/// How many times as much of something one case has as another.
fn times(shown: &Presented, pick: fn(&Answer) -> f64, of: &str, to: &str) -> Option<f64> {
    let (of, to) = (seconds(shown, of, pick)?, seconds(shown, to, pick)?);
    (to > 0.0).then(|| of / to)
}

/// A speed: how many times as long the other takes.
fn faster(shown: &Presented, pick: fn(&Answer) -> f64, which: &str, than: &str) -> Found {
    let ratio = times(shown, pick, than, which)?;
    Some((format!("{} times", three_digits(ratio)), ratio > 1.0))
}

fn alike(ratio: Option<f64>) -> Found {
    let ratio = ratio?;
    let is_alike = ratio < ALIKE && ratio > 1.0 / ALIKE;
    Some((format!("{} times", three_digits(ratio)), is_alike))
}

fn sorting(shown: &Presented) -> Vec<Claim> {
    let all = "all sorted (as published)";
    let share = |pick: fn(&Answer) -> f64| times_of_one(shown, all, pick);
    let percent = |share: f64| format!("{} %", three_digits(share * 100.0));
    let search = share(|answer| answer.tree_search);
    let read = share(|answer| answer.read);
    vec![
        Claim::new(
            "tree search is under 1 % of a compaction",
            search.map(|share| (percent(share), share < 0.01)),
        ),
        Claim::new(
            "reading takes longer than tree search: 45 % of it",
            read.zip(search)
                .map(|(read, search)| (percent(read), read > search)),
        ),
        Claim::new(
            "sorting offsets makes no difference to reading",
            alike(times(shown, |answer| answer.read, "not sorted", all)),
        ),
    ]
}

/// A phase's share of the whole.
fn times_of_one(shown: &Presented, title: &str, pick: fn(&Answer) -> f64) -> Option<f64> {
    let whole = seconds(shown, title, |answer| answer.total)?;
    (whole > 0.0).then_some(seconds(shown, title, pick)? / whole)
}

fn backends(shown: &Presented, direct: bool) -> Vec<Claim> {
    let read: fn(&Answer) -> f64 = |answer| answer.read;
    let whole: fn(&Answer) -> f64 = |answer| answer.total;
    let mut claims = Vec::new();
    if direct {
        claims.push(Claim::new(
            "reading is faster by aio than by sync: 8 to 10 times",
            faster(shown, read, "aio", "sync"),
        ));
        claims.push(Claim::new(
            "the whole is faster by aio than by sync",
            faster(shown, whole, "aio", "sync"),
        ));
    } else {
        claims.push(Claim::new(
            "reading is faster by aio than by sync, though it is not asynchronous then",
            faster(shown, read, "aio", "sync"),
        ));
        claims.push(Claim::new(
            "reading is faster by io_uring than by aio",
            faster(shown, read, "io_uring", "aio"),
        ));
    }
    claims.push(Claim::new(
        "reading is faster by io_uring than by sync: 5 to 10 times",
        faster(shown, read, "io_uring", "sync"),
    ));
    claims.push(Claim::new(
        "the whole is faster by io_uring than by sync: 1.3 to 3.5 times",
        faster(shown, whole, "io_uring", "sync"),
    ));
    claims
}

fn throughput(shown: &Presented) -> Vec<Claim> {
    let rate: fn(&Answer) -> f64 = |answer| answer.operations_per_second.unwrap_or(0.0);
    let more = |of: &str, mode: &str| {
        let (of, to) = (format!("{of}, {mode}"), format!("sync, {mode}"));
        let ratio = times(shown, rate, &of, &to)?;
        Some((format!("{} times", three_digits(ratio)), ratio > 1.0))
    };
    vec![
        Claim::new("direct: more by aio than by sync", more("aio", "direct")),
        Claim::new(
            "direct: more by io_uring than by sync",
            more("io_uring", "direct"),
        ),
        Claim::new(
            "buffered: more by io_uring than by sync",
            more("io_uring", "buffered"),
        ),
    ]
}

fn batches(shown: &Presented) -> Vec<Claim> {
    let read: fn(&Answer) -> f64 = |answer| answer.read;
    let gain = |io: &str| {
        let (large, small) = (format!("{io}, batch 256"), format!("{io}, batch 1"));
        times(shown, read, &small, &large)
    };
    let faster = |io: &str| {
        let ratio = gain(io)?;
        Some((format!("{} times", three_digits(ratio)), ratio > 1.0))
    };
    vec![
        Claim::new(
            "aio: a batch of 256 reads faster than one of 1, up to ten times",
            faster("aio"),
        ),
        Claim::new(
            "io_uring: a batch of 256 reads faster than one of 1, up to ten times",
            faster("io_uring"),
        ),
        Claim::new("sync: the batch makes no difference", alike(gain("sync"))),
    ]
}

fn read_ahead(shown: &Presented) -> Vec<Claim> {
    let size: fn(&Answer) -> f64 =
        |answer| answer.device_read_bytes as f64 / answer.device_reads.max(1) as f64;
    let larger = times(shown, size, "aio, ahead 512 KiB", "sync, ahead 512 KiB");
    vec![
        Claim::new(
            "at 512 KiB the device sees larger reads by aio than by sync: three times",
            larger.map(|ratio| (format!("{} times", three_digits(ratio)), ratio > 1.0)),
        ),
        Claim::new(
            "aio: reading is faster at 512 KiB than at 4 KiB: 2.7 times",
            faster(
                shown,
                |answer| answer.read,
                "aio, ahead 512 KiB",
                "aio, ahead 4 KiB",
            ),
        ),
    ]
}
