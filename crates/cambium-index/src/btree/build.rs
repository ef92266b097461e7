//! Bulk loading: full nodes, bottom-up, from sorted entries.

use cambium_base::{Error, Result};

use crate::node_store::{NodeAddress, NodeWriter};

use super::finish::RightEdge;
use super::levels::Levels;
use super::options::TreeOptions;

/// Makes a tree of `entries`, which come in strictly ascending order of their
/// keys. `None` if there are none. Every node but the last of each level is
/// full (up to a thirty-second, where that makes a separator shorter); memory
/// is a few nodes a level.
///
/// # Errors
/// `InvalidArgument` for keys out of order or of a wrong length,
/// `LimitExceeded` for too long ones; what the entries and the writer answer.
pub fn build<W: NodeWriter + ?Sized>(
    writer: &mut W,
    options: &TreeOptions,
    metadata: &[u8],
    entries: &mut dyn Iterator<Item = Result<(Vec<u8>, u64)>>,
) -> Result<Option<NodeAddress>> {
    let mut building = Building::new(options, metadata, writer.node_bytes())?;
    for entry in entries {
        let (key, value) = entry?;
        building.push(writer, &key, value)?;
    }
    building.finish(writer)
}

/// A tree that is being made, an entry at a time: what [`build`] does, for whoever
/// cannot do it at once. All calls get the same writer.
#[derive(Debug)]
pub struct Building {
    options: TreeOptions,
    metadata: Vec<u8>,
    levels: Levels,
    before: Option<Vec<u8>>,
}

impl Building {
    /// Of nodes of so many bytes, with what the tree's owner keeps in its root.
    ///
    /// # Errors
    /// `InvalidArgument` for options or metadata that nodes of that size cannot have.
    pub fn new(options: &TreeOptions, metadata: &[u8], node_bytes: usize) -> Result<Self> {
        options.validate(node_bytes, metadata)?;
        Ok(Building {
            options: *options,
            metadata: metadata.to_vec(),
            levels: Levels::new(options, node_bytes),
            before: None,
        })
    }

    /// Takes the next entry; its key is behind the one before it.
    ///
    /// # Errors
    /// As [`build`].
    pub fn push<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        key: &[u8],
        value: u64,
    ) -> Result<()> {
        self.options.check_key(key, self.levels.node_bytes)?;
        if self
            .before
            .as_ref()
            .is_some_and(|before| &before[..] >= key)
        {
            return Err(Error::InvalidArgument(
                "the entries of a bulk load are not in strictly ascending order".to_string(),
            ));
        }
        self.levels.push_entry(writer, key, value)?;
        let before = self.before.get_or_insert_default();
        before.clear();
        before.extend_from_slice(key);
        Ok(())
    }

    /// The root; `None` if there was no entry.
    ///
    /// # Errors
    /// What the writer answers.
    pub fn finish<W: NodeWriter + ?Sized>(self, writer: &mut W) -> Result<Option<NodeAddress>> {
        self.levels
            .finish(writer, &self.metadata, RightEdge::Appended)
    }
}
