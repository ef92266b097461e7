//! Runs of blocks.

/// Blocks that follow one another on a device or in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The first block.
    pub block: u32,
    /// How many blocks.
    pub blocks: u32,
}

impl Extent {
    /// The block behind the last. Numbers of blocks fit 32 bits; their sum may not.
    pub fn end(self) -> u64 {
        u64::from(self.block) + u64::from(self.blocks)
    }
}
