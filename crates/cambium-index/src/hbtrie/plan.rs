//! What a batch of changes meets, found before anything is written.
//!
//! All changes descend together, level by level: in each round the nodes that any of
//! them needs next are read with one [`NodeReader::read_many`]. What comes out is the
//! list of trees that changes pass through, parents before children, and for each the
//! entries that are touched. Then the keys of old documents that must be known (to tell
//! them from new keys that share their piece) are asked for at once.
//!
//! So the write pass knows everything beforehand: it works through the list from its
//! end, children before parents, without recursion. A trie may be tens of thousands of
//! trees deep where long keys meet small chunks.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

use cambium_base::Result;

use crate::node_store::{Node, NodeAddress, NodeReader};

use super::apply::Change;
use super::documents::Documents;
use super::head::{Head, Kind, OwnedHead, compare_with_path};
use super::link::Link;
use super::piece::View;
use super::trees::{self, Descent, Step};
use super::truncation;

/// Bytes of nodes that are read together, at most.
const BYTES_READ_TOGETHER: usize = 1 << 20;

/// One change of a sorted batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyChange<'c> {
    pub key: &'c [u8],
    pub change: Change,
}

/// A tree that changes pass through.
#[derive(Debug)]
pub(super) struct Visit {
    pub root: NodeAddress,
    pub head: OwnedHead,
    pub view: View,
    /// Where the skipped prefix begins: all before it agrees with the changes.
    pub start: usize,
    /// All changes that lead here.
    pub changes: Range<usize>,
    /// Those among them whose keys belong into this tree; the others leave its skipped
    /// prefix, below or above.
    pub inside: Range<usize>,
    /// The key of any document below, where the skipped prefix had to be asked for.
    pub representative: Option<Vec<u8>>,
    /// The entries touched by the changes inside, in order.
    pub groups: Vec<Group>,
}

/// Changes that share a piece.
#[derive(Debug)]
pub(super) struct Group {
    pub changes: Range<usize>,
    pub found: Found,
    /// In a truncated leaf tree, how much of what the tree sees of a key counts: the
    /// found document's piece, or where nothing was found so many bytes as tell the
    /// key from the tree's others.
    pub bytes: usize,
}

/// What hangs at a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Document {
        document: u64,
        /// Whether its key goes on after the piece.
        goes_on: bool,
    },
    /// A sub-tree: the visit of that number.
    Visit(usize),
}

/// All that a batch meets.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Parents before children; the root first.
    pub visits: Vec<Visit>,
    /// The keys of old documents that had to be known.
    pub keys: BTreeMap<u64, Vec<u8>>,
}

/// A sub-tree that is to be visited.
struct Opening {
    /// The visit and group it hangs in.
    parent: Option<(usize, usize)>,
    root: NodeAddress,
    start: usize,
    changes: Range<usize>,
}

/// A group on its way down its tree.
struct Probe {
    visit: usize,
    group: usize,
    address: NodeAddress,
    descent: Descent,
}

/// Makes plans.
pub(super) struct Planner<'p> {
    pub reader: &'p dyn NodeReader,
    pub documents: &'p dyn Documents,
    pub chunk_bytes: usize,
    pub changes: &'p [KeyChange<'p>],
}

impl Planner<'_> {
    /// How many nodes are read together.
    fn read_together(&self) -> usize {
        (BYTES_READ_TOGETHER / self.reader.node_bytes()).max(1)
    }

    /// What the changes meet in the trie under `root`.
    pub fn plan(&self, root: NodeAddress) -> Result<Plan> {
        let mut plan = Plan::default();
        let mut probes = Vec::new();
        let mut openings = vec![Opening {
            parent: None,
            root,
            start: 0,
            changes: 0..self.changes.len(),
        }];
        while !openings.is_empty() || !probes.is_empty() {
            let mut next = Vec::new();
            let mut below = Vec::new();
            self.open_all(&mut plan, &openings, &mut below)?;
            below.append(&mut probes);
            self.advance(&mut plan, &below, &mut probes, &mut next)?;
            openings = next;
        }
        for visit in &mut plan.visits {
            merge_groups(visit);
        }
        self.ask_keys(&mut plan)?;
        Ok(plan)
    }

    /// Turns openings into visits; each group's probe begins at the root.
    fn open_all(
        &self,
        plan: &mut Plan,
        openings: &[Opening],
        probes: &mut Vec<Probe>,
    ) -> Result<()> {
        for some in openings.chunks(self.read_together()) {
            let roots: Vec<NodeAddress> = some.iter().map(|opening| opening.root).collect();
            let nodes = self.reader.read_many(&roots)?;
            let asked = self.representatives(some, &nodes)?;
            for ((opening, node), representative) in some.iter().zip(&nodes).zip(asked) {
                let number = plan.visits.len();
                let visit = self.open(opening, node, representative)?;
                probes.extend((0..visit.groups.len()).map(|group| Probe {
                    visit: number,
                    group,
                    address: visit.root,
                    descent: Descent::default(),
                }));
                plan.visits.push(visit);
                if let Some((parent, group)) = opening.parent {
                    plan.visits[parent].groups[group].found = Found::Visit(number);
                }
            }
        }
        Ok(())
    }

    /// For each tree whose skipped prefix is not all known, the key of a document
    /// below it; read together.
    fn representatives(
        &self,
        openings: &[Opening],
        nodes: &[Node],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut wanted = Vec::new();
        let mut documents = Vec::new();
        for (at, (opening, node)) in openings.iter().zip(nodes).enumerate() {
            let head = trees::head(self.reader, opening.root, node)?;
            if !head.is_known(opening.start) {
                wanted.push(at);
                documents.push(trees::last_document(self.reader, opening.root)?);
            }
        }
        let mut keys = vec![None; openings.len()];
        if wanted.is_empty() {
            return Ok(keys);
        }
        for (at, key) in wanted.into_iter().zip(self.documents.keys(&documents)?) {
            keys[at] = Some(key);
        }
        Ok(keys)
    }

    fn open(
        &self,
        opening: &Opening,
        node: &Node,
        representative: Option<Vec<u8>>,
    ) -> Result<Visit> {
        let head = trees::head_below(self.reader, opening.root, node, opening.start)?;
        if let Some(key) = &representative {
            if key.len() < head.position {
                let what = format!(
                    "a document below has a key of {} bytes, the tree is at position {}",
                    key.len(),
                    head.position
                );
                return Err(self.reader.corrupt(opening.root, what));
            }
        }
        let path = representative.as_deref().map(|key| &key[..head.position]);
        let inside = self.inside(&opening.changes, head, path, opening.start);
        let view = trees::view(head, self.chunk_bytes, self.reader.node_bytes());
        let groups = self.groups(view, inside.clone());
        Ok(Visit {
            root: opening.root,
            head: head.to_owned(),
            view,
            start: opening.start,
            changes: opening.changes.clone(),
            inside,
            representative,
            groups,
        })
    }

    /// The changes that belong into a tree. They are one range, since the tree's keys
    /// are one range of all keys.
    fn inside(
        &self,
        changes: &Range<usize>,
        head: Head<'_>,
        path: Option<&[u8]>,
        start: usize,
    ) -> Range<usize> {
        let side = |change: &KeyChange<'_>| match path {
            Some(path) => compare_with_path(change.key, path),
            None => head.compare(change.key, start).unwrap_or(Ordering::Equal),
        };
        let all = &self.changes[changes.clone()];
        let below = all.partition_point(|change| side(change) == Ordering::Less);
        let within = all.partition_point(|change| side(change) != Ordering::Greater);
        changes.start + below..changes.start + within
    }

    fn groups(&self, view: View, inside: Range<usize>) -> Vec<Group> {
        let mut groups = Vec::new();
        let mut at = inside.start;
        while at < inside.end {
            let run = view.run_length(inside.end - at, |i| (self.changes[at + i].key, false));
            groups.push(Group {
                changes: at..at + run,
                found: Found::Nothing,
                bytes: 0,
            });
            at += run;
        }
        groups
    }

    /// One round: each probe takes a step.
    fn advance(
        &self,
        plan: &mut Plan,
        probes: &[Probe],
        next: &mut Vec<Probe>,
        openings: &mut Vec<Opening>,
    ) -> Result<()> {
        let most = self.read_together();
        let mut rest = probes;
        let mut addresses = Vec::new();
        while !rest.is_empty() {
            addresses.clear();
            let mut count = 0;
            for probe in rest {
                if addresses.last() != Some(&probe.address) {
                    if addresses.len() == most {
                        break;
                    }
                    addresses.push(probe.address);
                }
                count += 1;
            }
            let nodes = self.reader.read_many(&addresses)?;
            let (some, later) = rest.split_at(count);
            let mut node = 0;
            for probe in some {
                if addresses[node] != probe.address {
                    node += 1;
                }
                self.step(plan, probe, &nodes[node], next, openings)?;
            }
            rest = later;
        }
        Ok(())
    }

    fn step(
        &self,
        plan: &mut Plan,
        probe: &Probe,
        node: &Node,
        next: &mut Vec<Probe>,
        openings: &mut Vec<Opening>,
    ) -> Result<()> {
        let visit = &mut plan.visits[probe.visit];
        let group = &mut visit.groups[probe.group];
        let key = self.changes[group.changes.start].key;
        let piece = visit.view.piece(key);
        let mut descent = probe.descent;
        let corrupt = |what| self.reader.corrupt(probe.address, what);
        let mut goes_on = key.len() > visit.view.end();
        let step = if visit.view.kind == Kind::Truncated {
            let met = truncation::meet(&mut descent, node, &piece).map_err(corrupt)?;
            group.bytes = met.bytes.max(group.bytes);
            if let Some(piece_bytes) = met.piece_bytes {
                group.bytes = piece_bytes;
            }
            goes_on = met.goes_on;
            met.step
        } else {
            descent.step(node, piece.as_bytes()).map_err(corrupt)?
        };
        match step {
            Step::Child(address) => next.push(Probe {
                address,
                descent,
                ..*probe
            }),
            Step::Missing => {}
            Step::Found(bits) => match trees::link(self.reader, probe.address, bits)? {
                Link::Document(document) => group.found = Found::Document { document, goes_on },
                Link::Tree(root) => openings.push(Opening {
                    parent: Some((probe.visit, probe.group)),
                    root,
                    start: visit.view.end(),
                    changes: group.changes.clone(),
                }),
            },
        }
        Ok(())
    }

    /// Asks for the keys of all old documents that a change may replace or may have to
    /// stand beside. A piece that holds a key's end says which key it is; no document
    /// is asked for there.
    fn ask_keys(&self, plan: &mut Plan) -> Result<()> {
        let mut wanted = Vec::new();
        for visit in &plan.visits {
            for group in &visit.groups {
                if let Found::Document { document, goes_on } = group.found {
                    if goes_on && self.must_be_known(group, document) {
                        wanted.push(document);
                    }
                }
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let keys = self.documents.keys(&wanted)?;
        plan.keys = wanted.into_iter().zip(keys).collect();
        Ok(())
    }

    fn must_be_known(&self, group: &Group, document: u64) -> bool {
        let changes = &self.changes[group.changes.clone()];
        changes.iter().any(|change| match change.change {
            // Beside others it does not tell whether these have the same key.
            Change::Move { from, .. } if from == document => changes.len() > 1,
            change if change.keeps(document) => false,
            Change::Put(_) | Change::Move { .. } => true,
            Change::Remove => self.documents.may_match(document, change.key),
        })
    }
}

/// In a truncated leaf tree several changes can meet one document whose piece is
/// shorter than what tells them apart: they are one group.
fn merge_groups(visit: &mut Visit) {
    if visit.view.kind != Kind::Truncated {
        return;
    }
    visit.groups.dedup_by(|later, earlier| {
        let same = matches!(earlier.found, Found::Document { .. }) && later.found == earlier.found;
        if same {
            earlier.changes.end = later.changes.end;
        }
        same
    });
}
