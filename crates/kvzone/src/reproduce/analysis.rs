//! Figure 10: when it pays to extend a leaf tree. Nothing is measured; the
//! equations of section 3.2.3 are computed, with the parameters of the figure.

use cambium_index::hbtrie::extension::analysis::Analysis;
use kvzone_core::report::text::{grouped, three_digits};
use serde_json::Value;

use super::claims::Claim;
use super::figure::{Defaults, Figure, How, Takes};
use super::present::{Grid, Shown};

/// Branches of the figure's curves.
const BRANCHES: [u64; 4] = [2, 8, 64, 256];

/// Documents at which the curves of 10a are shown.
const DOCUMENTS: [u64; 10] = [56, 112, 224, 448, 896, 1_792, 3_584, 7_168, 14_336, 100_000];

/// Branches at which the curve of 10b is shown.
const HEIGHT_BRANCHES: [u64; 10] = [2, 4, 8, 16, 32, 56, 64, 128, 192, 256];

/// Numbers of documents over which 10b averages.
const STEPS: u32 = 1_000;

/// The figure.
pub(super) const FIGURES: &[Figure] = &[Figure {
    name: "forestdb/fig10",
    title: "ForestDB paper, figure 10: space and height when a leaf tree is extended",
    ..Figure::plain(How::Tables(
        Defaults {
            scale: 1.0,
            rounds: 1,
            takes: Takes::Nothing,
        },
        |_, _| Ok((show(), Value::Null)),
    ))
}];

/// Both halves of the figure.
fn show() -> Shown {
    // B = 4,096, c = 8, k = 64, v = 8.
    let analysis = Analysis::new(4096, 8, 64);
    let heads = |first: &str, rest: &[u64], what: &str| {
        let others = rest.iter().map(|b| format!("b = {b}{what}"));
        std::iter::once(first.to_string())
            .chain(others)
            .collect::<Vec<String>>()
    };
    let space = Grid {
        heads: heads("documents n", &BRANCHES, ": space after / before"),
        words: 0,
        rows: DOCUMENTS
            .iter()
            .map(|&n| {
                let ratios = BRANCHES.map(|b| three_digits(analysis.space_ratio(n, b)));
                std::iter::once(grouped(n as f64)).chain(ratios).collect()
            })
            .collect(),
    };
    let height = Grid {
        heads: ["branches b", "height after / before, mean", "b >= fL"]
            .map(str::to_string)
            .to_vec(),
        words: 0,
        rows: HEIGHT_BRANCHES
            .iter()
            .map(|&b| {
                let above = if b >= analysis.leaf_fanout() {
                    "yes"
                } else {
                    "no"
                };
                let ratio = three_digits(analysis.height_ratio(b, STEPS));
                vec![b.to_string(), ratio, above.to_string()]
            })
            .collect(),
    };
    Shown {
        grids: vec![
            (
                "Space after an extension over space before (figure 10a)",
                space,
            ),
            (
                "Height after an extension over height before, mean for n from b fL to b fL² (figure 10b)",
                height,
            ),
        ],
        claims: claims(&analysis),
        conditions: "Computed by equations (1) to (7): B = 4,096, k = 64, c = 8, v = 8.\n"
            .to_string(),
        charts: String::new(),
    }
}

fn claims(analysis: &Analysis) -> Vec<Claim> {
    let fanouts = (
        analysis.leaf_fanout(),
        analysis.trie_fanout(),
        analysis.new_leaf_fanout(),
    );
    let (leaf, trie, new) = fanouts;
    let shrinks = BRANCHES.iter().all(|&b| {
        let even = b * leaf;
        analysis.space_ratio(even + 1, b) <= 1.0 && analysis.space_ratio(even / 2, b) > 1.0
    });
    let (few, many) = (
        analysis.height_ratio(8, STEPS),
        analysis.height_ratio(256, STEPS),
    );
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
        Claim::new(
            "the height grows where b < fL, and shrinks where b is greater",
            Some((
                format!(
                    "{} at b = 8, {} at b = 256",
                    three_digits(few),
                    three_digits(many)
                ),
                few > 1.0 && many < 1.0,
            )),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_of_the_analysis_holds() {
        let shown = show();
        for claim in &shown.claims {
            assert!(claim.holds, "{claim:?}");
        }
        assert_eq!(shown.grids[0].1.rows.len(), DOCUMENTS.len());
        assert_eq!(shown.grids[1].1.rows[0][0], "2");
    }
}
