//! Which documents are carried over next, and in which reads they come.
//!
//! A plan is a window of one tree: as many documents as fit in a share of the
//! memory that a compaction may take. Finding them is the phase *tree search*,
//! putting them into the order of reading the phase *sort* (`P-Fetch`, section
//! III). Documents that lie close together are read at once.

use std::collections::{HashMap, VecDeque};

use cambium_base::{Error, Result};

use super::deal::{Bucket, Dealing};
use super::fetch::BUFFER_UNIT;
use super::proof::Account;
use super::settings::{Settings, SortRule};
use crate::database::Database;
use crate::document::{DocumentAddress, PACKED_BLOCK_BYTES};
use crate::index::IndexCursor;
use crate::nodes::{Nodes, PassingNodes};

/// Documents no further apart than this are read together: about what the
/// device moves in the time of a read of its own.
pub(super) const LARGEST_GAP: u64 = 8 << 10;
/// Memory for a document beside its bytes, about: address, place, key in the
/// list of changes.
const DOCUMENT_OVERHEAD: u64 = 192;
/// Most documents of a window: the index takes them in at once.
const WINDOW_DOCUMENTS: usize = 1 << 16;
/// The span of a document that lies in the window's bucket.
pub(super) const IN_BUCKET: u32 = u32::MAX;

/// How full a window is. All readers get the same answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowFill {
    documents: usize,
    bytes: u64,
    /// A window's bytes at most. The rest is for what lies between documents
    /// that are read together.
    most: u64,
    /// Bytes that each takes beside its own.
    overhead: u64,
    /// Start of the packed block that the last packed document is in.
    block: u64,
}

impl WindowFill {
    /// An empty one. Reads will begin and end at multiples of `unit`.
    pub fn new(settings: &Settings, unit: u64) -> WindowFill {
        WindowFill {
            documents: 0,
            bytes: 0,
            most: settings.window_bytes() - settings.gap_bytes(),
            overhead: 2 * (unit - 1) + DOCUMENT_OVERHEAD,
            block: 0,
        }
    }

    /// Takes a document in; false if it is for the next window.
    pub fn takes(&mut self, address: DocumentAddress) -> bool {
        let cost = match address.is_packed() {
            false => address.most_bytes() + self.overhead,
            // Its block is read whole, once: what a tree has of it comes together.
            true if self.block == address.start() && self.documents > 0 => DOCUMENT_OVERHEAD,
            true => PACKED_BLOCK_BYTES + self.overhead,
        };
        let is_full = self.documents == WINDOW_DOCUMENTS || self.bytes + cost > self.most;
        if is_full && self.documents > 0 {
            return false;
        }
        self.documents += 1;
        self.bytes += cost;
        self.block = address.start();
        true
    }

    /// How many windows documents of so many bytes in all make at most beside the
    /// first, about: one that does not fit any more may leave half of a window empty,
    /// and reads may begin and end at units as small devices have.
    pub fn windows_of(documents: u64, bytes: u64, settings: &Settings) -> u64 {
        let fill = WindowFill::new(settings, BUFFER_UNIT as u64);
        let taken = bytes.saturating_add(documents.saturating_mul(fill.overhead));
        let by_bytes = (taken.saturating_mul(2) / fill.most.max(1)).min(documents);
        by_bytes.max(documents / WINDOW_DOCUMENTS as u64)
    }

    /// The next window begins.
    pub fn empty(&mut self) {
        (self.documents, self.bytes) = (0, 0);
    }

    pub fn is_empty(&self) -> bool {
        self.documents == 0
    }
}

/// A read of one document or of several that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Bytes from the start of the file.
    pub start: u64,
    /// Behind the last byte.
    pub end: u64,
}

/// Documents that are carried over together.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Which tree they are of.
    pub tree: usize,
    /// In the order of writing, each with the number of its span.
    pub documents: Vec<(DocumentAddress, u32)>,
    /// In the order of reading.
    pub spans: Vec<Span>,
    /// Where documents are that were dealt out.
    pub bucket: Option<Bucket>,
    /// They are the last of their tree.
    pub ends_tree: bool,
    /// Documents between them that are in the new file already.
    pub shared: Account,
}

/// One tree to be copied: a namespace's, or one of a named snapshot.
#[derive(Debug)]
pub(super) struct Source {
    cursor: IndexCursor,
    begun: bool,
    /// Addresses that the cursor has passed and the walk has not: the rest of a leaf.
    passed: VecDeque<DocumentAddress>,
    /// An address that did not fit into the last window.
    pub left_over: Option<DocumentAddress>,
    /// All addresses in the order of their offsets, for `sort=global`.
    pub in_order: Option<VecDeque<DocumentAddress>>,
    /// What the walk has met.
    pub account: Account,
}

impl Source {
    pub fn new(cursor: IndexCursor) -> Self {
        Source {
            cursor,
            begun: false,
            passed: VecDeque::new(),
            left_over: None,
            in_order: None,
            account: Account::default(),
        }
    }

    /// The next document of the walk.
    fn walk(&mut self, nodes: &PassingNodes<'_>) -> Result<Option<DocumentAddress>> {
        if !self.begun {
            self.cursor.begin(nodes, true)?;
            self.begun = true;
        }
        if self.passed.is_empty() {
            let passed = &mut self.passed;
            self.cursor.advance_many(nodes, true, |address| {
                passed.push_back(address);
                true
            })?;
        }
        let found = self.passed.pop_front();
        if let Some(address) = found {
            self.account.add(address);
        }
        Ok(found)
    }

    fn next(&mut self, nodes: &PassingNodes<'_>) -> Result<Option<DocumentAddress>> {
        if let Some(address) = self.left_over.take() {
            return Ok(Some(address));
        }
        match &mut self.in_order {
            Some(all) => Ok(all.pop_front()),
            None => self.walk(nodes),
        }
    }

    /// Walks the whole tree, as published: what memory that takes grows with
    /// the store, so it is bounded here.
    fn walk_all(&mut self, nodes: &PassingNodes<'_>, settings: &Settings) -> Result<()> {
        let most = settings.tuning.memory_bytes / size_of::<DocumentAddress>() as u64;
        let mut all = Vec::new();
        while let Some(address) = self.walk(nodes)? {
            if all.len() as u64 == most {
                return Err(Error::LimitExceeded(format!(
                    "sort=global keeps 8 bytes a document, and compaction_memory_bytes={} is not \
                     enough for all of them; raise it, or sort by windows",
                    settings.tuning.memory_bytes
                )));
            }
            all.push(address);
        }
        self.in_order = Some(all.into());
        Ok(())
    }
}

/// Searches a tree for the next window; answers it with seconds of the search
/// and of the sort. A tree always ends with a plan that says so. What was dealt
/// out to the window is read from its bucket; what was moved before is left out.
pub(super) fn next_plan(
    nodes: PassingNodes<'_>,
    settings: &Settings,
    mut fill: WindowFill,
    tree: usize,
    source: &mut Source,
    dealt: Option<(&mut Dealing, u32)>,
    moved: Option<&HashMap<u64, u64>>,
) -> Result<(Plan, f64, f64)> {
    let Nodes { core, database } = nodes.0;
    let clock = &core.environment.clock;
    let began = clock.monotonic();
    let mut sorting = 0.0;
    if settings.tuning.sort == SortRule::Global && source.in_order.is_none() {
        source.walk_all(&nodes, settings)?;
        let searched = clock.monotonic();
        if let Some(all) = &mut source.in_order {
            all.make_contiguous()
                .sort_unstable_by_key(|address| address.offset());
        }
        sorting += (clock.monotonic() - searched).as_secs_f64();
    }
    let mut addresses = Vec::new();
    let mut ends_tree = false;
    let mut shared = Account::default();
    while shared.documents < WINDOW_DOCUMENTS as u64 {
        let Some(address) = source.next(&nodes)? else {
            ends_tree = true;
            break;
        };
        if let Some(&to) = moved.and_then(|moved| moved.get(&address.0)) {
            shared.add(DocumentAddress(to));
            continue;
        }
        if !fill.takes(address) {
            source.left_over = Some(address);
            break;
        }
        addresses.push(address);
    }
    let searched = clock.monotonic();
    let mut plan = match &dealt {
        Some((dealing, window)) => in_reads(database, settings, addresses, |address| {
            dealing.has_dealt(*window, address)
        }),
        None => in_reads(database, settings, addresses, |_| false),
    };
    plan.tree = tree;
    plan.ends_tree = ends_tree;
    plan.shared = shared;
    plan.bucket = dealt.and_then(|(dealing, window)| dealing.take_bucket(window));
    let search = (searched - began).as_secs_f64() - sorting;
    sorting += (clock.monotonic() - searched).as_secs_f64();
    Ok((plan, search, sorting))
}

/// Puts documents into reads.
fn in_reads(
    database: &Database,
    settings: &Settings,
    addresses: Vec<DocumentAddress>,
    is_dealt: impl Fn(DocumentAddress) -> bool,
) -> Plan {
    let mut documents: Vec<(DocumentAddress, u32)> = addresses
        .into_iter()
        .map(|address| (address, IN_BUCKET))
        .collect();
    let mut order: Vec<u32> = (0..documents.len() as u32)
        .filter(|&place| !is_dealt(documents[place as usize].0))
        .collect();
    if settings.tuning.sort.reads_by_offset() {
        order.sort_unstable_by_key(|&place| documents[place as usize].0.offset());
    }
    let mut spans: Vec<Span> = Vec::new();
    let largest = settings.tuning.coalesce_bytes;
    let mut gaps_left = settings.gap_bytes();
    for place in order {
        let (address, span) = &mut documents[place as usize];
        let start = address.start();
        let end = start + database.most_to_read(*address);
        match spans.last_mut() {
            Some(last)
                if start >= last.start
                    && start <= last.end + LARGEST_GAP.min(gaps_left)
                    && end.max(last.end) - last.start <= largest =>
            {
                gaps_left -= start.saturating_sub(last.end);
                last.end = end.max(last.end);
            }
            _ => spans.push(Span { start, end }),
        }
        *span = spans.len() as u32 - 1;
    }
    Plan {
        tree: 0,
        documents,
        spans,
        bucket: None,
        ends_tree: false,
        shared: Account::default(),
    }
}
