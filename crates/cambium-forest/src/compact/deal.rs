//! Dealing out: documents that lie scattered over the old file are brought
//! together before they are copied.
//!
//! A window of small documents of a file that was written in any order of keys
//! is one read for each of them, of a whole unit of the device. So the old file
//! is passed once from start to end, in large reads, and each document is dealt
//! out to its window's bucket in a scratch file; copying reads the bucket. That
//! is a distribution sort whose keys are known beforehand: the index says which
//! window a document belongs to, so no key is compared, nothing that is stale is
//! moved, and what already lies in key order is left where it is.
//!
//! ```text
//! survey   the index is walked: (document, window) ─▶ list of the document's stretch
//! deal     stretch by stretch: list sorted by offset, old file read on and on,
//!          documents ─▶ buckets of a group of windows
//! copy     window by window: bucket, and what was not dealt from the old file
//! ```
//!
//! A **stretch** is a part of the old file. It is dealt where that is cheaper, by
//! a model of the device in which a read costs as much as so many bytes:
//!
//! ```text
//! one by one   reads that its windows would need · READ_COST + live bytes
//! dealt        bytes passed + 2 · live bytes
//! ```
//!
//! Lists and buckets gather in memory of fixed size ([`super::scratch`]). Where
//! there are more windows than buckets can gather in it, the windows are dealt
//! group by group, and the old file is passed for each group.
//!
//! Named snapshots' trees are not dealt: they share most of their documents with
//! the newest state. Where there is no room for a scratch file, copying goes on
//! without ([`super::plan`]).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use cambium_base::Result;
use cambium_index::NodeAddress;
use cambium_io::File;

use super::fetch::Window;
use super::plan::{LARGEST_GAP, Plan, Span, WindowFill};
use super::scratch::{Buckets, Chunk, Scratch, least_chunk};
use super::settings::Settings;
use crate::core::Core;
use crate::database::Database;
use crate::document::DocumentAddress;
use crate::index::IndexCursor;

/// What a read of its own costs, in bytes that could be passed meanwhile.
const READ_COST: u64 = 16 << 10;
/// Dealing has to be so many times cheaper: it writes.
const WORTH: u64 = 2;
/// Larger documents are not dealt.
const LARGEST_DEALT: u64 = 8 << 10;
/// What is passed rather than left out of a read, and the largest read.
const PASSED_GAP: u64 = 64 << 10;
const LARGEST_READ: u64 = 256 << 10;
/// Chunks are no larger than this: no more is gained.
const LARGEST_CHUNK: usize = 256 << 10;
/// Chunks of this size are worth a write of their own.
const SMALL_CHUNK: usize = 16 << 10;
/// Documents of the index that a step surveys.
const SURVEYED_TOGETHER: usize = 1 << 14;

/// Where a window's dealt documents are.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub file: Arc<dyn File>,
    pub chunks: Vec<Chunk>,
}

#[derive(Debug)]
enum Stage {
    /// The index is walked.
    Survey,
    /// Windows of the group are dealt to.
    Deal(Dealer),
    /// Windows of the group can be copied.
    Dealt,
}

/// Dealing out the documents of one compaction.
#[derive(Debug)]
pub(super) struct Dealing {
    scratch: Scratch,
    stage: Stage,
    /// Roots of trees that are not surveyed yet, and the cursor of one that is.
    roots: VecDeque<NodeAddress>,
    cursor: Option<IndexCursor>,
    fill: WindowFill,
    /// Windows that have documents, and their documents, so far.
    windows: u32,
    documents: u64,
    /// Bytes between documents that the reads of a window may pass.
    gaps: u64,
    /// Documents and their windows, by the stretch they lie in.
    lists: Buckets,
    stretch_bytes: u64,
    /// By stretch: whether it is dealt.
    scattered: Vec<bool>,
    /// Windows whose documents are dealt, and their buckets.
    group: Range<u32>,
    records: Option<Buckets>,
    /// The longest document that is dealt.
    longest: u64,
    /// Memory for lists, for buckets, and for a read.
    memory: [u64; 3],
    most_windows: u32,
}

/// The pass over the old file for a group.
#[derive(Debug, Default)]
struct Dealer {
    next_stretch: usize,
    /// Documents of the stretch that is passed, by offset, and their windows.
    stretch: VecDeque<(DocumentAddress, u32)>,
    /// Windows of the documents of each read that is under way.
    reading: VecDeque<Vec<u32>>,
    is_over: bool,
}

impl Dealing {
    /// Will deal out the documents of some trees of `from`, in the order of
    /// these trees.
    pub fn new(
        settings: &Settings,
        scratch: Scratch,
        from: &Database,
        roots: VecDeque<NodeAddress>,
        fill: WindowFill,
    ) -> Dealing {
        let memory = settings.tuning.memory_bytes;
        let memory = [memory / 8, memory / 4, memory / 8];
        let unit = scratch.unit();
        let small = SMALL_CHUNK.min((settings.tuning.memory_bytes >> 12) as usize);
        let small = small.next_multiple_of(unit).max(least_chunk(unit)) as u64;
        let most_stretches = (memory[0] / small).max(1);
        let end = from.log.end();
        let stretch_bytes = end
            .div_ceil(most_stretches)
            .max(LARGEST_READ.min(memory[2]));
        let stretches = end.div_ceil(stretch_bytes) as usize;
        Dealing {
            stage: Stage::Survey,
            roots,
            cursor: None,
            fill,
            windows: 0,
            documents: 0,
            gaps: settings.gap_bytes(),
            lists: Buckets::new(&scratch, stretches, memory[0], 4 * SMALL_CHUNK),
            stretch_bytes,
            scattered: vec![false; stretches],
            group: 0..0,
            records: None,
            longest: 0,
            memory,
            most_windows: u32::try_from(memory[1] / small).unwrap_or(u32::MAX).max(1),
            scratch,
        }
    }

    /// True if a window cannot be planned before more is dealt.
    pub fn lacks(&self, window: u32) -> bool {
        match self.stage {
            Stage::Survey | Stage::Deal(_) => true,
            Stage::Dealt => window >= self.group.end && window < self.windows,
        }
    }

    /// True if a document of a window is in the window's bucket.
    pub fn has_dealt(&self, window: u32, address: DocumentAddress) -> bool {
        self.group.contains(&window)
            && !address.is_packed()
            && address.most_bytes() <= self.longest
            && self.scattered[self.stretch_of(address)]
    }

    fn stretch_of(&self, address: DocumentAddress) -> usize {
        (address.offset() / self.stretch_bytes) as usize
    }

    /// A window's bucket; it is taken once.
    pub fn take_bucket(&mut self, window: u32) -> Option<Bucket> {
        let records = self.records.as_mut()?;
        let place = window.checked_sub(self.group.start)?;
        let chunks = (window < self.group.end).then(|| records.take(place as usize))?;
        (!chunks.is_empty()).then(|| Bucket {
            file: self.scratch.file().clone(),
            chunks,
        })
    }

    /// Removes the scratch file.
    pub fn end(self) {
        self.scratch.remove();
    }

    /// True while the index is walked.
    pub fn is_surveying(&self) -> bool {
        matches!(self.stage, Stage::Survey)
    }

    /// True while documents of a group are dealt out.
    pub fn is_dealing(&self) -> bool {
        matches!(self.stage, Stage::Deal(_))
    }

    /// Windows whose documents are dealt or copied, and all.
    pub fn windows_dealt(&self) -> (u32, u32) {
        (self.group.end, self.windows)
    }

    /// Walks a piece of the index.
    pub fn survey(&mut self, core: &Core, from: &Database) -> Result<()> {
        let nodes = core.nodes_in_passing(from);
        for _ in 0..SURVEYED_TOGETHER {
            let Some(cursor) = &mut self.cursor else {
                let Some(root) = self.roots.pop_front() else {
                    self.scratch.settle()?;
                    self.begin_group(0);
                    return Ok(());
                };
                let mut cursor = core.index.cursor(root);
                cursor.begin(&nodes, true)?;
                self.cursor = Some(cursor);
                continue;
            };
            let Some(address) = cursor.advance(&nodes, true)? else {
                // Each tree begins with a window of its own.
                self.cursor = None;
                self.fill.empty();
                continue;
            };
            let is_first = self.fill.is_empty();
            if !self.fill.takes(address) {
                self.fill.empty();
                self.fill.takes(address);
                self.windows += 1;
            }
            self.windows += u32::from(is_first);
            // Packed ones lie beside their neighbours already.
            if address.is_packed() {
                continue;
            }
            self.documents += 1;
            let (stretch, window) = (self.stretch_of(address), self.windows - 1);
            let window = window.to_le_bytes();
            self.lists
                .push(&mut self.scratch, stretch, address.0, &window)?;
        }
        Ok(())
    }

    /// The windows from `first` on come next.
    pub fn begin_group(&mut self, first: u32) {
        let end = first.saturating_add(self.most_windows).min(self.windows);
        let count = (end - first) as usize;
        let records = Buckets::new(&self.scratch, count, self.memory[1], LARGEST_CHUNK);
        self.longest = LARGEST_DEALT.min(records.longest() as u64);
        self.group = first..end;
        self.records = Some(records);
        self.stage = Stage::Deal(Dealer::default());
    }

    /// What is to be read next of the old file; `None` at its end, when the
    /// group can be copied once the last read is dealt.
    pub fn next_read(&mut self, from: &Database) -> Result<Option<Plan>> {
        let Stage::Deal(mut dealer) = std::mem::replace(&mut self.stage, Stage::Dealt) else {
            return Ok(None);
        };
        let planned = self.plan_read(&mut dealer, from);
        self.stage = Stage::Deal(dealer);
        planned
    }

    fn plan_read(&mut self, dealer: &mut Dealer, from: &Database) -> Result<Option<Plan>> {
        while dealer.stretch.is_empty() {
            if dealer.next_stretch == self.scattered.len() {
                dealer.is_over = true;
                return Ok(None);
            }
            dealer.stretch = self.open_stretch(dealer.next_stretch, from)?;
            dealer.next_stretch += 1;
        }
        let mut windows = Vec::new();
        let mut plan = Plan::default();
        let mut bytes = 0;
        while let Some(&(address, window)) = dealer.stretch.front() {
            let start = address.offset();
            let end = start + from.most_to_read(address);
            let last = plan.spans.last_mut().filter(|last| {
                start <= last.end + PASSED_GAP && end.max(last.end) - last.start <= LARGEST_READ
            });
            bytes += match &last {
                Some(last) => end.saturating_sub(last.end),
                None => end - start,
            };
            if bytes > self.memory[2] && !windows.is_empty() {
                break;
            }
            match last {
                Some(last) => last.end = last.end.max(end),
                None => plan.spans.push(Span { start, end }),
            }
            let span = plan.spans.len() as u32 - 1;
            plan.documents.push((address, span));
            windows.push(window);
            dealer.stretch.pop_front();
        }
        dealer.reading.push_back(windows);
        Ok(Some(plan))
    }

    /// The documents of a stretch that are dealt now, by offset.
    fn open_stretch(
        &mut self,
        stretch: usize,
        from: &Database,
    ) -> Result<VecDeque<(DocumentAddress, u32)>> {
        let mut documents = Vec::new();
        let mut sound = true;
        self.lists.visit(&self.scratch, stretch, |whose, window| {
            match window.try_into().map(u32::from_le_bytes) {
                Ok(window) if window < self.windows => {
                    documents.push((DocumentAddress(whose), window));
                }
                _ => sound = false,
            }
            Ok(())
        })?;
        if !sound {
            return Err(from.damage(0, "the scratch file of its compaction is damaged"));
        }
        documents.sort_unstable_by_key(|(address, _)| address.offset());
        // The stretch's part of what the reads of each window may pass.
        let gaps = self.gaps as f64 * documents.len() as f64 / self.documents.max(1) as f64;
        self.scattered[stretch] = is_worth_dealing(&documents, self.windows, gaps as u64);
        if !self.scattered[stretch] {
            return Ok(VecDeque::new());
        }
        documents.retain(|(address, window)| self.has_dealt(*window, *address));
        Ok(documents.into())
    }

    /// Deals out what was read. True when the group can be copied.
    pub fn deal(&mut self, from: &Database, read: Option<&Window>) -> Result<bool> {
        let Stage::Deal(dealer) = &mut self.stage else {
            return Ok(true);
        };
        let windows = dealer.reading.pop_front();
        let is_done = dealer.is_over && dealer.reading.is_empty();
        let Some(records) = &mut self.records else {
            return Ok(true);
        };
        if let (Some(read), Some(windows)) = (read, windows) {
            for ((address, span), window) in read.plan.documents.iter().zip(windows) {
                let content = read.bytes_at(*span, address.offset());
                let length = (from.most_to_read(*address) as usize).min(content.len());
                let bucket = (window - self.group.start) as usize;
                records.push(&mut self.scratch, bucket, address.0, &content[..length])?;
            }
        }
        if is_done {
            records.close(&mut self.scratch)?;
            if self.group.end == self.windows {
                self.lists = Buckets::new(&self.scratch, 0, 0, 0);
            }
            self.stage = Stage::Dealt;
        }
        Ok(is_done)
    }
}

/// Whether the documents of a stretch, by offset, are cheaper dealt than read
/// by their windows, where the reads of each window may pass `gaps` bytes between
/// documents.
fn is_worth_dealing(documents: &[(DocumentAddress, u32)], windows: u32, gaps: u64) -> bool {
    let mut ends = vec![(0, gaps); windows as usize];
    let (mut reads, mut live, mut passed, mut bridged) = (0, 0, 0, 0);
    let mut passed_to = 0;
    for &(address, window) in documents {
        let (start, bytes) = (address.offset(), address.most_bytes());
        let end = start + bytes;
        let (last, left) = &mut ends[window as usize];
        let gap = start.saturating_sub(*last);
        if *last == 0 || gap > LARGEST_GAP.min(*left) {
            reads += 1;
        } else {
            *left -= gap;
            bridged += gap;
        }
        *last = end;
        live += bytes;
        let is_passed = passed_to > 0 && start <= passed_to + PASSED_GAP;
        passed += end - if is_passed { passed_to.min(end) } else { start };
        passed_to = end.max(passed_to);
    }
    reads * READ_COST + live + bridged > WORTH * (passed + 2 * live)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(
        count: u64,
        bytes: u64,
        window: impl Fn(u64) -> u32,
    ) -> Vec<(DocumentAddress, u32)> {
        let place = |number| 4096 + number * 2 * bytes;
        (0..count)
            .map(|number| {
                (
                    DocumentAddress::new(place(number), bytes, b"k"),
                    window(number),
                )
            })
            .collect()
    }

    #[test]
    fn small_documents_are_dealt_where_they_lie_scattered() {
        let scattered = |number| (number * 7 % 40) as u32;
        let is_worth = |all: &[_]| is_worth_dealing(all, 40, 1 << 20);
        assert!(is_worth(&documents(1000, 512, scattered)));
        assert!(is_worth(&documents(1000, 1500, scattered)));
        // Twice the bytes of a read's cost, and nothing is won.
        assert!(!is_worth(&documents(1000, 32 << 10, scattered)));
        let in_order = |number| (number / 100) as u32;
        assert!(!is_worth(&documents(1000, 512, in_order)));
        assert!(!is_worth(&[]));
    }

    /// Tiny documents lie so close that each window's reads could be joined, were
    /// there memory for all that lies between.
    #[test]
    fn tiny_documents_are_dealt_where_windows_cannot_hold_what_lies_between() {
        let few = |number| (number % 2) as u32;
        let tiny = documents(10_000, 64, few);
        assert!(!is_worth_dealing(&tiny, 2, 1 << 20));
        assert!(is_worth_dealing(&tiny, 2, 64 << 10));
    }
}
