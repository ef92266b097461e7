//! The analysis of section 3.2.3 of ForestDB 2016, its equations (1) to (7), and the
//! two curves of its figure 10.
//!
//! The symbols are the paper's: `n` documents in a leaf tree of blocks of `B` bytes,
//! keys of `k` bytes, chunks of `c`, values and pointers of `v`, `b` branches a chunk.

/// Bytes of a value or pointer: the paper's `v`.
const VALUE_BYTES: usize = 8;

/// The parameters of a leaf tree that do not depend on its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Analysis {
    block_bytes: usize,
    chunk_bytes: usize,
    key_bytes: usize,
}

impl Analysis {
    /// Blocks of `block_bytes`, chunks of `chunk_bytes`, keys of `key_bytes`.
    ///
    /// ```
    /// use cambium_index::hbtrie::extension::analysis::Analysis;
    /// // The parameters of figure 10, and the fanouts that the paper states for them.
    /// let figure10 = Analysis::new(4096, 8, 64);
    /// assert_eq!(figure10.leaf_fanout(), 56);
    /// assert_eq!(figure10.trie_fanout(), 256);
    /// assert_eq!(figure10.new_leaf_fanout(), 64);
    /// ```
    pub fn new(block_bytes: usize, chunk_bytes: usize, key_bytes: usize) -> Self {
        Analysis {
            block_bytes,
            chunk_bytes,
            key_bytes,
        }
    }

    fn fanout(&self, key_bytes: usize) -> u64 {
        // A fanout below two is no tree.
        (self.block_bytes / key_bytes.saturating_add(VALUE_BYTES)).max(2) as u64
    }

    /// Entries of a node of the leaf tree, `fL`: equation (1).
    pub fn leaf_fanout(&self) -> u64 {
        self.fanout(self.key_bytes)
    }

    /// Entries of a node of the leaf trees after the extension: equation (4).
    pub fn new_leaf_fanout(&self) -> u64 {
        self.fanout(self.key_bytes.saturating_sub(self.chunk_bytes))
    }

    /// Entries of a node of a trie tree, `fN`: equation (5).
    pub fn trie_fanout(&self) -> u64 {
        self.fanout(self.chunk_bytes)
    }

    /// Blocks of the leaf tree: equation (2).
    pub fn blocks(&self, documents: u64) -> u64 {
        documents.div_ceil(self.leaf_fanout())
    }

    /// Height of the leaf tree: equation (3).
    pub fn height(&self, documents: u64) -> u32 {
        ceiling_logarithm(self.leaf_fanout(), documents, 1)
    }

    /// Blocks after the extension into `branches`: equation (6).
    pub fn blocks_after(&self, documents: u64, branches: u64) -> u64 {
        let below = documents.div_ceil(branches * self.new_leaf_fanout());
        branches.div_ceil(self.trie_fanout()) + branches * below
    }

    /// Height after the extension into `branches`: equation (7).
    pub fn height_after(&self, documents: u64, branches: u64) -> u32 {
        ceiling_logarithm(self.trie_fanout(), branches, 1)
            + ceiling_logarithm(self.new_leaf_fanout(), documents, branches)
    }

    /// The paper's two conditions for an extension.
    pub fn extends(&self, documents: u64, branches: u64) -> bool {
        let fanout = self.leaf_fanout();
        documents > branches.saturating_mul(fanout) && branches >= fanout
    }

    /// Figure 10a: space after the extension over space before.
    pub fn space_ratio(&self, documents: u64, branches: u64) -> f64 {
        self.blocks_after(documents, branches) as f64 / self.blocks(documents) as f64
    }

    /// Figure 10b: height after over height before, the mean for `steps` numbers of
    /// documents spread evenly over the logarithm from `b·fL` to `b·fL²`.
    pub fn height_ratio(&self, branches: u64, steps: u32) -> f64 {
        let fanout = self.leaf_fanout() as f64;
        let ratios = (0..steps).map(|step| {
            let exponent = 1.0 + (f64::from(step) + 0.5) / f64::from(steps);
            let documents = (branches as f64 * fanout.powf(exponent)) as u64;
            f64::from(self.height_after(documents, branches)) / f64::from(self.height(documents))
        });
        ratios.sum::<f64>() / f64::from(steps.max(1))
    }
}

/// The smallest `h` with `base^h >= numerator / denominator`.
fn ceiling_logarithm(base: u64, numerator: u64, denominator: u64) -> u32 {
    let mut reached = u128::from(denominator);
    let mut height = 0;
    while reached < u128::from(numerator) {
        reached *= u128::from(base);
        height += 1;
    }
    height
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURE10: fn() -> Analysis = || Analysis::new(4096, 8, 64);

    #[test]
    fn logarithms_round_up_and_exact_powers_do_not() {
        assert_eq!(ceiling_logarithm(56, 1, 1), 0);
        assert_eq!(ceiling_logarithm(56, 56, 1), 1);
        assert_eq!(ceiling_logarithm(56, 57, 1), 2);
        assert_eq!(ceiling_logarithm(64, 4096, 1), 2);
        assert_eq!(ceiling_logarithm(64, 513, 8), 2);
    }

    #[test]
    fn figure_10a_space_shrinks_from_b_times_leaf_fanout_on() {
        let figure = FIGURE10();
        for branches in [2, 8, 64, 256] {
            let break_even = branches * figure.leaf_fanout();
            assert!(
                figure.space_ratio(break_even / 2, branches) > 1.0,
                "b={branches}"
            );
            assert!(
                figure.space_ratio(break_even + 1, branches) <= 1.0,
                "b={branches}"
            );
            // In the end only the shorter keys count: fL / fLnew = 56 / 64.
            let limit = figure.space_ratio(break_even * 1000, branches);
            assert!((limit - 0.875).abs() < 0.01, "b={branches}: {limit}");
        }
        // With fewer documents, more branches cost more space.
        let at_500 = [2, 8, 64, 256].map(|branches| figure.space_ratio(500, branches));
        assert!(
            at_500.windows(2).all(|pair| pair[0] <= pair[1]),
            "{at_500:?}"
        );
    }

    #[test]
    fn figure_10b_height_shrinks_when_branches_pass_the_leaf_fanout() {
        let figure = FIGURE10();
        for branches in [2, 4, 8, 16] {
            assert!(figure.height_ratio(branches, 200) > 1.0, "b={branches}");
        }
        for branches in [64, 128, 192, 256] {
            assert!(figure.height_ratio(branches, 200) <= 1.0, "b={branches}");
        }
    }

    #[test]
    fn both_conditions_are_needed() {
        let figure = FIGURE10();
        assert!(figure.extends(56 * 56 + 1, 56));
        assert!(!figure.extends(56 * 56, 56), "n = b·fL is not enough");
        assert!(!figure.extends(1_000_000, 55), "b < fL");
        assert!(!figure.extends(1_000_000, 1_000_000), "every key a branch");
    }
}
