//! The claims of the P-Fetch paper for each figure, held against the measurements.

use super::super::claims::{Claim, Found, above, below, percent, times};
use super::super::figure::Column;
use super::super::measured::Measured;
use super::figures::{RATE, READ, READ_SIZE, TREE_SEARCH, WHOLE};

/// Two that differ by no more than this make no difference.
const ALIKE: f64 = 1.1;

/// The figure at the largest data, where there are several.
fn of(it: &Measured, title: &str, column: Column) -> Option<f64> {
    it.figure(it.labels().last()?, title, column)
}

/// How many times as much of something one case has as another.
fn more(it: &Measured, column: Column, which: &str, than: &str) -> Found {
    times(Some(of(it, which, column)? / of(it, than, column)?))
}

/// A speed: how many times as long the other takes.
fn faster(it: &Measured, column: Column, which: &str, than: &str) -> Found {
    more(it, column, than, which)
}

fn is_alike(ratios: &[f64]) -> bool {
    let is_alike = |ratio: &f64| *ratio < ALIKE && *ratio > 1.0 / ALIKE;
    ratios.iter().all(is_alike)
}

/// Figure 2.
pub(super) fn sorting(it: &Measured) -> Vec<Claim> {
    let all = "all sorted (as published)";
    let share = |column| Some(of(it, all, column)? / of(it, all, WHOLE)?);
    let (search, read) = (share(TREE_SEARCH), share(READ));
    vec![
        Claim::on(
            "tree search is under 1 % of a compaction",
            percent(search),
            below(0.01),
        ),
        Claim::on(
            "reading takes longer than tree search: 45 % of it",
            search.and(percent(read)),
            |read| search.is_some_and(|search| read[0] > search),
        ),
        Claim::on(
            "sorting offsets makes no difference to reading",
            more(it, READ, "not sorted", all),
            is_alike,
        ),
    ]
}

/// The first of both is the faster in a phase.
fn is_faster(it: &Measured, paper: &'static str, phase: Column, both: [&str; 2]) -> Claim {
    Claim::on(paper, faster(it, phase, both[0], both[1]), above(1.0))
}

/// Figures 4 and 5.
pub(super) fn direct(it: &Measured) -> Vec<Claim> {
    let mut claims = vec![
        is_faster(
            it,
            "reading is faster by aio than by sync: 8 to 10 times",
            READ,
            ["aio", "sync"],
        ),
        is_faster(
            it,
            "the whole is faster by aio than by sync",
            WHOLE,
            ["aio", "sync"],
        ),
    ];
    claims.extend(by_io_uring(it));
    claims
}

/// Figures 6 and 7.
pub(super) fn buffered(it: &Measured) -> Vec<Claim> {
    let mut claims = vec![
        is_faster(
            it,
            "reading is faster by aio than by sync, though it is not asynchronous then",
            READ,
            ["aio", "sync"],
        ),
        is_faster(
            it,
            "reading is faster by io_uring than by aio",
            READ,
            ["io_uring", "aio"],
        ),
    ];
    claims.extend(by_io_uring(it));
    claims
}

fn by_io_uring(it: &Measured) -> [Claim; 2] {
    [
        is_faster(
            it,
            "reading is faster by io_uring than by sync: 5 to 10 times",
            READ,
            ["io_uring", "sync"],
        ),
        is_faster(
            it,
            "the whole is faster by io_uring than by sync: 1.3 to 3.5 times",
            WHOLE,
            ["io_uring", "sync"],
        ),
    ]
}

/// Figure 8.
pub(super) fn throughput(it: &Measured) -> Vec<Claim> {
    let claim = |paper, which, than| Claim::on(paper, more(it, RATE, which, than), above(1.0));
    vec![
        claim(
            "direct: more by aio than by sync",
            "aio, direct",
            "sync, direct",
        ),
        claim(
            "direct: more by io_uring than by sync",
            "io_uring, direct",
            "sync, direct",
        ),
        claim(
            "buffered: more by io_uring than by sync",
            "io_uring, buffered",
            "sync, buffered",
        ),
    ]
}

/// Figure 9.
pub(super) fn batches(it: &Measured) -> Vec<Claim> {
    let gain = |large, small| faster(it, READ, large, small);
    vec![
        Claim::on(
            "aio: a batch of 256 reads faster than one of 1, up to ten times",
            gain("aio, batch 256", "aio, batch 1"),
            above(1.0),
        ),
        Claim::on(
            "io_uring: a batch of 256 reads faster than one of 1, up to ten times",
            gain("io_uring, batch 256", "io_uring, batch 1"),
            above(1.0),
        ),
        Claim::on(
            "sync: the batch makes no difference",
            gain("sync, batch 256", "sync, batch 1"),
            is_alike,
        ),
    ]
}

/// Figure 10.
pub(super) fn read_ahead(it: &Measured) -> Vec<Claim> {
    vec![
        Claim::on(
            "at 512 KiB the device sees larger reads by aio than by sync: three times",
            more(it, READ_SIZE, "aio, ahead 512 KiB", "sync, ahead 512 KiB"),
            above(1.0),
        ),
        is_faster(
            it,
            "aio: reading is faster at 512 KiB than at 4 KiB: 2.7 times",
            READ,
            ["aio, ahead 512 KiB", "aio, ahead 4 KiB"],
        ),
    ]
}
