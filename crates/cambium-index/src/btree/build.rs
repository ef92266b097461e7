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
    let node_bytes = writer.node_bytes();
    options.validate(node_bytes, metadata)?;
    let mut levels = Levels::new(options, node_bytes);
    let mut before: Option<Vec<u8>> = None;
    for entry in entries {
        let (key, value) = entry?;
        options.check_key(&key, node_bytes)?;
        if before.as_ref().is_some_and(|before| *before >= key) {
            return Err(Error::InvalidArgument(
                "the entries of a bulk load are not in strictly ascending order".to_string(),
            ));
        }
        levels.push_entry(writer, &key, value)?;
        before = Some(key);
    }
    levels.finish(writer, metadata, RightEdge::Appended)
}
