//! Figure 10: when it pays to extend a leaf tree. Nothing is measured; the
//! equations of section 3.2.3 are computed, with the parameters of the figure.

use cambium_index::hbtrie::extension::analysis::Analysis;
use kvzone_core::report::text::{grouped, three_digits};
use serde_json::{Value, json};

use super::claims::{Claim, each};
use super::figure::{Column, Contestant, Defaults, Figure, How, Layout, Takes, store};
use super::measured::{Cell, Measured, PointUsed};
use super::runner::Asked;

/// Branches of the figure's curves, and those at which the curve of 10b is shown too.
const BRANCHES: &[Contestant] = &[
    store("b = 2"),
    store("b = 8"),
    store("b = 64"),
    store("b = 256"),
];

fn branches(one: &Contestant) -> Option<u64> {
    one.label.trim_start_matches("b = ").parse().ok()
}

/// Documents at which the curves of 10a are shown.
const DOCUMENTS: [u64; 10] = [56, 112, 224, 448, 896, 1_792, 3_584, 7_168, 14_336, 100_000];

/// Numbers of documents over which 10b averages, from b fL to b fL².
const STEPS: u32 = 1_000;
/// The point that is such a mean.
const HEIGHT: &str = "height, mean";

const RATIO: Column = Column::new("after : before", three_digits, |row| row.number("/ratio"));

/// The figure.
pub(super) const FIGURES: &[Figure] = &[Figure {
    name: "forestdb/fig10",
    title: "ForestDB paper, figure 10: space and height when a leaf tree is extended",
    axis: "documents",
    what: "computed by equations (1) to (7) for so many branches: B = 4,096, k = 64, c = 8, \
        v = 8; (a) space after an extension by space before, (b) the same of the height, mean \
        for n from b fL to b fL²",
    stores: BRANCHES,
    layout: Layout::Beside,
    columns: &[RATIO],
    claims,
    ..Figure::plain(How::Cells(
        Defaults {
            scale: 1.0,
            rounds: 1,
            takes: Takes::Nothing,
        },
        compute,
    ))
}];

/// B = 4,096, c = 8, k = 64, v = 8.
fn analysis() -> Analysis {
    Analysis::new(4096, 8, 64)
}

/// Both halves of the figure.
fn compute(
    figure: &'static Figure,
    asked: Asked<'_>,
) -> kvzone_core::error::Result<(Measured, Value)> {
    let analysis = analysis();
    let mut measured = Measured {
        repeat: 0,
        ..asked.nothing(figure.stores.to_vec())
    };
    let documents = DOCUMENTS
        .iter()
        .map(|&n| (format!("space, {}", grouped(n as f64)), Some(n)));
    for (place, (label, n)) in documents.chain([(HEIGHT.to_string(), None)]).enumerate() {
        measured.points.push(PointUsed::at(&label, String::new()));
        for one in figure.stores {
            let branches = branches(one).unwrap_or(1);
            let ratio = match n {
                Some(n) => analysis.space_ratio(n, branches),
                None => analysis.height_ratio(branches, STEPS),
            };
            let found = json!({"ratio": ratio});
            measured.cells.push(Cell::once(place, one.label, found));
        }
    }
    Ok((measured, json!({"schema": "kvzone-analysis/1"})))
}

fn claims(it: &Measured) -> Vec<Claim> {
    let analysis = analysis();
    let fanouts = (
        analysis.leaf_fanout(),
        analysis.trie_fanout(),
        analysis.new_leaf_fanout(),
    );
    let (leaf, trie, new) = fanouts;
    let shrinks = BRANCHES.iter().filter_map(branches).all(|b| {
        let even = b * leaf;
        analysis.space_ratio(even + 1, b) <= 1.0 && analysis.space_ratio(even / 2, b) > 1.0
    });
    vec![
        Claim::new(
            "fL, fN and fL new are 56, 256 and 64",
            Some((
                format!("{leaf}, {trie} and {new}"),
                fanouts == (56, 256, 64),
            )),
        ),
        Claim::new(
            "space shrinks from n > b fL on, whatever b is",
            Some((
                if shrinks {
                    "so for all four b"
                } else {
                    "not for all b"
                }
                .to_string(),
                shrinks,
            )),
        ),
        Claim::on(
            "the height grows where b < fL, and shrinks where b is greater",
            each(&["b = 8", "b = 256"], |b| it.figure(HEIGHT, b, RATIO)),
            |height| height[0] > 1.0 && height[1] < 1.0,
        ),
    ]
}
