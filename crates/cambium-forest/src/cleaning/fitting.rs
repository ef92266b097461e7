//! The choice of a tail where there is little room: a walk through the tries counts the bytes
//! that its cleaning would write.

use cambium_base::Result;

use super::Tail;
use crate::core::{Core, Maintenance, lock};
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
    /// Leaves whose first document in the tail lies there.
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
        let (mut live, mut leaves, mut most) = (0, 0, 0);
        for part in 0..LENGTHS {
            live += parts.live[part];
            leaves += parts.leaves[part];
            if live + header + self.nodes_grown(view, leaves) > room {
                break;
            }
            most = (part as u64 + 1) * parts.bytes;
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
        for root in view.roots.namespaces.values().filter_map(|root| root.root) {
            let mut cursor = self.index.cursor(root);
            cursor.begin(&nodes, true)?;
            let mut more = true;
            while more {
                let mut first = LENGTHS;
                more = cursor.advance_many(&nodes, true, |address| {
                    let part = (address.start().saturating_sub(begin) / bytes) as usize;
                    if let Some(live) = parts.live.get_mut(part) {
                        *live += address.most_bytes();
                        first = first.min(part);
                    }
                    true
                })?;
                if let Some(leaves) = parts.leaves.get_mut(first) {
                    *leaves += 1;
                }
            }
        }
        Ok(parts)
    }
}
