//! Getting many values at once: level by level, so that the nodes of a level
//! go to the device together.

use cambium_base::Result;

use crate::node_store::{NodeAddress, NodeReader};

use super::search::{Descent, Step};

/// A key that is still looked for.
struct Search {
    key: usize,
    address: NodeAddress,
    descent: Descent,
}

/// The values of `keys`, in any order, in the tree under `root`: one
/// [`NodeReader::read_many`] a level, each node read once.
///
/// # Errors
/// What the reader answers; `Corruption` for a node that cannot be.
///
/// ```
/// use cambium_index::MemoryNodes;
/// use cambium_index::btree::{self, KeyLayout, TreeOptions};
/// let mut nodes = MemoryNodes::new(4096);
/// let options = TreeOptions::new(KeyLayout::Variable);
/// let mut entries = [("ash", 1), ("oak", 2)].map(|(key, value)| Ok((key.into(), value))).into_iter();
/// let root = btree::build(&mut nodes, &options, b"", &mut entries).unwrap().unwrap();
/// let values = btree::get_many(&nodes, root, &[b"oak", b"elm", b"ash"]).unwrap();
/// assert_eq!(values, [Some(2), None, Some(1)]);
/// ```
pub fn get_many<R: NodeReader + ?Sized>(
    reader: &R,
    root: NodeAddress,
    keys: &[&[u8]],
) -> Result<Vec<Option<u64>>> {
    let mut values = vec![None; keys.len()];
    let mut open: Vec<Search> = (0..keys.len())
        .map(|key| Search {
            key,
            address: root,
            descent: Descent::default(),
        })
        .collect();
    while !open.is_empty() {
        let mut addresses: Vec<NodeAddress> = open.iter().map(|search| search.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let nodes = reader.read_many(&addresses)?;
        let mut next = Vec::with_capacity(open.len());
        for mut search in open {
            let at = addresses.binary_search(&search.address).ok();
            let Some(node) = at.and_then(|at| nodes.get(at)) else {
                let what = "the reader left it out of several that it was asked for".to_string();
                return Err(reader.corrupt(search.address, what));
            };
            match search.descent.step(node, keys[search.key]) {
                Ok(Step::Child(child)) => {
                    search.address = child;
                    next.push(search);
                }
                Ok(Step::Found(value)) => values[search.key] = Some(value),
                Ok(Step::Missing) => (),
                Err(what) => return Err(reader.corrupt(search.address, what)),
            }
        }
        open = next;
    }
    Ok(values)
}
