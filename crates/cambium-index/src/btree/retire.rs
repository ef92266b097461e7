//! Giving up a whole tree.

use std::collections::HashSet;

use cambium_base::Result;

use crate::node_store::{NodeAddress, NodeWriter};

use super::node::{read_node, view};

/// Retires every node of the tree under `root`. Reads its index nodes, not its
/// leaves.
///
/// # Errors
/// `Corruption`, also if an index node is reached twice; what the writer
/// answers.
pub fn retire_all<W: NodeWriter + ?Sized>(writer: &mut W, root: NodeAddress) -> Result<()> {
    let mut seen = HashSet::new();
    let mut open = vec![(root, None)];
    while let Some((address, level)) = open.pop() {
        writer.retire(address);
        if level == Some(0) {
            continue;
        }
        let node = read_node(writer, address, level)?;
        let node = view(writer, address, &node)?;
        if node.level() == 0 {
            continue;
        }
        // A damaged tree may share its nodes, and be endless for that.
        if !seen.insert(address) {
            return Err(writer.corrupt(address, "two nodes have this one as a child".to_string()));
        }
        let below = Some(node.level() - 1);
        open.extend((0..node.values()).map(|position| (node.child(position), below)));
    }
    Ok(())
}
