//! The choice of a tail where there is little room: a walk through the tries counts the bytes
//! that its cleaning would write.

use cambium_base::Result;

use super::Tail;
use crate::core::{Core, Maintenance, lock};
use crate::nodes::LARGEST_RUN;
use crate::view::View;

/// Lengths that are looked at.
const LENGTHS: usize = 1024;
/// Blocks that the header of a cleaning takes, in two copies.
const HEADER_BLOCKS: u64 = 6;

/// Live bytes and leaves of a tail, counted in parts of equal length.
struct Parts {
    bytes: u64,
    /// Bytes of live documents.
    live: Vec<u64>,
    /// Leaves that lie there, or whose first document in the tail does.
    leaves: Vec<u64>,
}

impl Core {
    /// A tail of `wanted` bytes at most whose cleaning has room, and may give back more than
    /// it takes.
    pub(super) fn tail_that_fits(
        &self,
        maintenance: &Maintenance,
        view: &View,
        (wanted, room): (u64, u64),
    ) -> Result<Option<Tail>> {
        let log = &view.database.log;
        let state = (log.begin(), log.end());
        let known = *lock(&self.cleaning.fits_none);
        let is_known = |(before, had): ((u64, u64), u64)| {
            before == state && room < had.saturating_add(self.least_tail())
        };
        if known.is_some_and(is_known) {
            return Ok(None);
        }
        let parts = self.parts_of_tail(view, wanted)?;
        let header = HEADER_BLOCKS * u64::from(self.shape.block_bytes);
        // One that writes more than it gives back leaves what the next flush needs.
        let largest_run = u64::from(LARGEST_RUN) * u64::from(self.shape.node_bytes);
        let left = room.min(2 * (self.nodes_grown(view, 0) + header));
        let (mut live, mut leaves, mut most) = (0, 0, 0);
        for part in 0..LENGTHS {
            live += parts.live[part];
            leaves += parts.leaves[part];
            // The last run of nodes may stay nearly empty.
            let nodes = self.nodes_grown(view, leaves);
            let written = live + header + nodes + nodes.min(largest_run);
            // A cleaning writes the entries that it moves in one piece, which a later one has to
            // move at once.
            if written > room || live > self.kept_tail(view) {
                break;
            }
            let length = (part as u64 + 1) * parts.bytes;
            if room - written + length >= left {
                most = length;
            }
        }
        // This tail may hold little that is stale. A round through the whole log gives back this
        // share of each tail on average.
        let used = log.used_bytes();
        let stale = used.saturating_sub(self.live_bytes(view));
        let is_worth =
            |bytes: u64| stale as f64 / used.max(1) as f64 * bytes as f64 > header as f64;
        let mut length = most;
        while length >= self.least_tail() {
            // It may be longer: a tail ends at certain places.
            let tail = self.tail_of(maintenance, &view.database, length)?;
            if let Some(tail) = tail.filter(|tail| tail.bytes <= most) {
                if is_worth(tail.bytes) {
                    return Ok(Some(tail));
                }
                break;
            }
            length = length / 8 * 7;
        }
        *lock(&self.cleaning.fits_none) = Some((state, room));
        Ok(None)
    }

    fn parts_of_tail(&self, view: &View, wanted: u64) -> Result<Parts> {
        let database = &view.database;
        let (begin, bytes) = (database.log.begin(), (wanted / LENGTHS as u64).max(1));
        let mut parts = Parts {
            bytes,
            live: vec![0; LENGTHS],
            leaves: vec![0; LENGTHS],
        };
        let nodes = self.nodes_in_passing(database);
        let part_of = |offset: u64| (offset.saturating_sub(begin) / bytes) as usize;
        for root in view.roots.namespaces.values().filter_map(|root| root.root) {
            let mut cursor = self.index.cursor(root);
            cursor.begin(&nodes, true)?;
            let mut more = true;
            while more {
                let (mut first, mut one) = (LENGTHS, None);
                more = cursor.advance_many(&nodes, true, |address| {
                    one.get_or_insert(address);
                    let part = part_of(address.start());
                    if let Some(live) = parts.live.get_mut(part) {
                        *live += address.most_bytes();
                        first = first.min(part);
                    }
                    true
                })?;
                if let (Some(leaf), Some(one)) = (cursor.nodes_on_way().last(), one) {
                    let part = part_of(leaf.0 * database.node_bytes());
                    if part < first {
                        // A node is written anew with a document below it.
                        first = part;
                        parts.live[part] += one.most_bytes();
                    }
                }
                if let Some(leaves) = parts.leaves.get_mut(first) {
                    *leaves += 1;
                }
            }
        }
        Ok(parts)
    }
}
