//! Placing: the documents of a window go into the new file, and their addresses into the
//! new index.
//!
//! Small documents wait for a packed block of their neighbours ([`crate::packed_block`]);
//! a document's address is known once its block is written. Other documents are records
//! of their own, as writers append them.

use cambium_base::Result;
use cambium_io::Advice;
use cambium_storage::record::RecordHeader;

use super::Compaction;
use super::copy::Tree;
use super::fetch::Window;
use crate::core::Core;
use crate::database::{Database, DocumentBytes};
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress, PACKED_BLOCK_BYTES};
use crate::format::{FLAG_KEPT, document_auxiliary, kind, moved_record};
use crate::index::Change;
use crate::nodes::NodeRuns;
use crate::packed_block::{Packer, Packing};
use crate::seeded_bug::SeededBug;

/// Appended bytes are handed to the operating system when so many have gathered; the log
/// keeps no larger buffer.
const HANDED_OVER_BYTES: u64 = 1 << 20;
/// The same where that is a copy into another buffer: it stays in the
/// processor's cache.
const COPIED_BYTES: u64 = 128 << 10;
/// Documents that are looked at together.
const TOUCHED: usize = 8;
/// And brought to the device without waiting for it when this much has.
const HURRIED_BYTES: u64 = 8 << 20;

/// A window that is being written.
#[derive(Debug)]
pub(super) struct Writing {
    pub window: Window,
    next: usize,
    placing: Placing,
    /// Start of the packed block that was verified last.
    verified: Option<u64>,
}

impl Writing {
    pub fn new(window: Window) -> Self {
        Writing {
            window,
            next: 0,
            placing: Placing::default(),
            verified: None,
        }
    }

    /// Looks at the next documents, which lie anywhere in the window, so that the processor
    /// waits for several of them at once.
    fn touch(&self) {
        let next = self.window.plan.documents.iter().skip(self.next);
        for &(address, span) in next.take(TOUCHED) {
            let content = self.window.content(address, span);
            std::hint::black_box((content.first(), content.get(64), content.get(128)));
        }
    }

    /// True when all documents of the window are in the new file.
    pub fn is_done(&self) -> bool {
        self.next == self.window.plan.documents.len()
    }
}

/// Documents of a window on their way into the new file, and the changes of the index.
#[derive(Debug, Default)]
struct Placing {
    /// With the place of each document in the old file, and among the changes.
    appending: Appending<(DocumentAddress, Option<usize>)>,
    /// A document that waits for its block has no address here yet.
    changes: Vec<(Vec<u8>, Change)>,
    key_bytes: u64,
}

impl Placing {
    /// Appends a document, or has it wait for a block. One that named snapshots share and
    /// that is in the new file already is not copied again.
    fn place(
        &mut self,
        compaction: &mut Compaction,
        tree: &mut Tree,
        address: DocumentAddress,
        document: &DocumentBytes<'_>,
    ) -> Result<()> {
        let change = match tree.snapshot {
            // It gets its index of the old one.
            Some(_) => {
                tree.last_key = Some(document.key.to_vec());
                None
            }
            None => {
                self.key_bytes += document.key.len() as u64;
                self.changes.push((document.key.to_vec(), Change::Remove));
                Some(self.changes.len() - 1)
            }
        };
        let moved = compaction.moved.as_ref();
        if let Some(&to) = moved.and_then(|moved| moved.get(&address.0)) {
            self.note(tree, change, DocumentAddress(to));
            return Ok(());
        }
        self.appending.is_kept = tree.snapshot.is_some();
        let placed = self
            .appending
            .append(compaction, document, (address, change))?;
        self.note_placed(compaction, tree, placed);
        Ok(())
    }

    /// Appends what waits.
    fn close(&mut self, compaction: &mut Compaction, tree: &mut Tree) -> Result<()> {
        let placed = self.appending.close(compaction)?;
        self.note_placed(compaction, tree, placed);
        Ok(())
    }

    fn note_placed(
        &mut self,
        compaction: &mut Compaction,
        tree: &mut Tree,
        placed: Vec<((DocumentAddress, Option<usize>), DocumentAddress)>,
    ) {
        for ((from, change), to) in placed {
            if let Some(moved) = &mut compaction.moved {
                moved.insert(from.0, to.0);
            }
            compaction.report.documents += 1;
            self.note(tree, change, to);
        }
    }

    fn note(&mut self, tree: &mut Tree, change: Option<usize>, to: DocumentAddress) {
        tree.placed.add_place(to);
        if let Some(place) = change {
            self.changes[place].1 = Change::Put(to);
        }
    }
}

/// The document at an address in a window, verified. Of a packed block the checksum is
/// computed once for documents that follow one another.
fn read<'w>(
    window: &'w Window,
    (address, span): (DocumentAddress, u32),
    verified: &mut Option<u64>,
    from: &Database,
) -> Result<DocumentBytes<'w>> {
    let content = window.content(address, span);
    let block = address.is_packed().then(|| address.start());
    let document = match block.is_some() && block == *verified {
        true => from.document_in_verified(address, content)?,
        false => from.document_in(address, content)?,
    };
    *verified = block;
    if !address.may_match(document.key) {
        return Err(from.damage(address.offset(), "a document of another key"));
    }
    Ok(document)
}

impl Core {
    /// Appends documents of a window, and takes them into the index when there
    /// are no more of it, or when their keys take much memory.
    pub(super) fn write_documents(
        &self,
        compaction: &mut Compaction,
        tree: &mut Tree,
        writing: &mut Writing,
        budget: u64,
    ) -> Result<()> {
        let clock = &self.environment.clock;
        let from = compaction.source.view.database.clone();
        let sorted = compaction.settings.tuning.sort != super::settings::SortRule::Global;
        let began = clock.monotonic();
        let began_at = compaction.database.log.end();
        let mut bytes = 0;
        while !writing.is_done() && bytes < budget.max(1) {
            if writing.next % TOUCHED == 0 {
                writing.touch();
            }
            let wanted = writing.window.plan.documents[writing.next];
            let address = wanted.0;
            let document = DocumentBytes {
                namespace: tree.namespace,
                ..read(&writing.window, wanted, &mut writing.verified, &from)?
            };
            writing.next += 1;
            if self.has_bug(SeededBug::CompactionDropsDocument) && writing.next == 3 {
                continue;
            }
            let last = writing.placing.changes.last().map(|(key, _)| key);
            let misplaced = last
                .or(tree.last_key.as_ref())
                .is_some_and(|last| document.key <= last.as_slice());
            if sorted && misplaced {
                let what = "a document whose key is not behind the one before it";
                return Err(from.damage(address.offset(), what));
            }
            bytes += address.most_bytes();
            compaction.pace.note_moved(address.most_bytes());
            writing
                .placing
                .place(compaction, tree, address, &document)?;
        }
        let many = writing.placing.key_bytes > compaction.settings.keys_bytes();
        let is_whole = writing.is_done() || many;
        if is_whole {
            writing.placing.close(compaction, tree)?;
        }
        if tree.snapshot.is_some() {
            compaction.kept += compaction.database.log.end() - began_at;
        }
        let written = clock.monotonic();
        compaction.report.phases.write += (written - began).as_secs_f64();
        if tree.snapshot.is_none() && is_whole {
            self.take_into_index(compaction, tree, &mut writing.placing, sorted)?;
            compaction.report.phases.flush_and_commit +=
                (clock.monotonic() - written).as_secs_f64();
        }
        Ok(())
    }

    /// Takes documents that are placed into the index.
    fn take_into_index(
        &self,
        compaction: &mut Compaction,
        tree: &mut Tree,
        placing: &mut Placing,
        sorted: bool,
    ) -> Result<()> {
        let mut changes = std::mem::take(&mut placing.changes);
        placing.key_bytes = 0;
        tree.last_key = changes.last().map(|(key, _)| key.clone());
        if !sorted {
            changes.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        }
        // The old nodes of as many documents, fuller than they are.
        let documents = tree.old.documents.max(1);
        let of_them = tree.old.nodes * changes.len() as u64 / documents;
        compaction.open_run.expect(of_them / 10 * 7);
        self.apply_to_newest(compaction, tree.namespace, changes)
    }

    /// Applies sorted changes to the newest tree of a namespace in the new file, and notes where
    /// its documents lie now.
    pub(super) fn apply_to_newest(
        &self,
        compaction: &mut Compaction,
        namespace: u16,
        changes: Vec<(Vec<u8>, Change)>,
    ) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let places = changes.iter();
        let places = places.map(|(key, change)| (key.as_slice(), change.document()));
        compaction.known.change_all(namespace, places);
        let database = &*compaction.database;
        let root = compaction.roots.entry(namespace).or_default();
        let mut runs = NodeRuns::new(self, database, changes.len() as u64)
            .exclusive(compaction.source.sequence, compaction.session)
            .continuing(std::mem::take(&mut compaction.open_run));
        self.apply_changes(&mut runs, database, root, changes)?;
        runs.finish()?;
        let (open, retired) = runs.into_open();
        compaction.open_run = open;
        for address in retired {
            database.nodes.remove(address.0);
        }
        Ok(())
    }
}

/// Appends documents to the new file: small ones wait for a packed block, each with what
/// it belongs to.
#[derive(Debug)]
pub(super) struct Appending<T> {
    /// The documents are for named snapshots alone.
    is_kept: bool,
    packer: Packer,
    waiting: Vec<T>,
}

impl<T> Default for Appending<T> {
    fn default() -> Self {
        Appending {
            is_kept: false,
            packer: Packer::default(),
            waiting: Vec::new(),
        }
    }
}

impl<T> Appending<T> {
    /// Appends a document with the sequence number it had; answers those that are in the
    /// file now and were not before.
    pub fn append(
        &mut self,
        compaction: &mut Compaction,
        document: &DocumentBytes<'_>,
        whose: T,
    ) -> Result<Vec<(T, DocumentAddress)>> {
        let mut placed = Vec::new();
        let mut packing = self.packer.offer(document);
        if packing == Packing::Full {
            placed = self.close(compaction)?;
            packing = self.packer.offer(document);
        }
        match packing {
            Packing::Taken => self.waiting.push(whose),
            _ => {
                let place = append_record(compaction, document, self.is_kept)?;
                placed.push((whose, place));
            }
        }
        Ok(placed)
    }

    /// Appends what waits: as a block, or as records where it would be a block with much
    /// room left.
    pub fn close(&mut self, compaction: &mut Compaction) -> Result<Vec<(T, DocumentAddress)>> {
        let places = append_packed(compaction, &self.packer, self.is_kept)?;
        self.packer.clear();
        Ok(std::mem::take(&mut self.waiting)
            .into_iter()
            .zip(places)
            .collect())
    }
}

impl Compaction {
    /// Makes room for an append to the new file of up to so many bytes.
    fn make_room(&self, bytes: u64) -> Result<()> {
        let log = &self.database.log;
        self.database.check_room(bytes)?;
        let gathers = match &self.past_cache {
            Some(_) => COPIED_BYTES,
            None => HANDED_OVER_BYTES,
        };
        if log.buffered_bytes() as u64 + bytes > gathers {
            log.flush()?;
        }
        log.reserve(bytes)
    }

    /// The new file ends at `end`: the kernel begins to write what is told not to be
    /// needed, and keeps it until that is done. So no sync finds much to do at once.
    fn hurry(&mut self, end: u64) {
        let cached = self.past_cache.is_none() || self.pace.has_copied();
        if !cached || end - self.unhurried <= HURRIED_BYTES {
            return;
        }
        let start = match self.settings.direct {
            true => self.unhurried.saturating_sub(HURRIED_BYTES),
            false => self.unhurried,
        };
        let file = self.database.log.file();
        file.advise(start, end - start, Advice::DontNeed);
        self.unhurried = end;
    }
}

/// Appends what a packer has to the new file; answers where each of its documents is.
fn append_packed(
    compaction: &mut Compaction,
    packer: &Packer,
    is_kept: bool,
) -> Result<Vec<DocumentAddress>> {
    if !packer.is_worth_a_block() {
        let records = packer.documents();
        return records
            .map(|document| append_record(compaction, &document, is_kept))
            .collect();
    }
    compaction.make_room(2 * PACKED_BLOCK_BYTES)?;
    let log = &compaction.database.log;
    log.pad_to(PACKED_BLOCK_BYTES);
    let auxiliary = document_auxiliary(packer.namespace(), 0);
    let header = moved_record(kind::PACKED, compaction.session, packer.lowest(), auxiliary);
    let header = marked(header, is_kept);
    let start = log.append(&header, &[&packer.encode()]).start;
    let places: Vec<DocumentAddress> = packer.addresses(start).collect();
    let bytes = places.iter().map(|place| place.most_bytes()).sum();
    compaction.pace.note_filled(bytes, PACKED_BLOCK_BYTES);
    compaction.hurry(start);
    Ok(places)
}

/// The header of documents that may be for named snapshots alone.
fn marked(header: RecordHeader, is_kept: bool) -> RecordHeader {
    let flags = header.flags | if is_kept { FLAG_KEPT } else { 0 };
    RecordHeader { flags, ..header }
}

/// Appends a document as a record of its own.
fn append_record(
    compaction: &mut Compaction,
    document: &DocumentBytes<'_>,
    is_kept: bool,
) -> Result<DocumentAddress> {
    let DocumentBytes {
        namespace,
        sequence,
        key,
        value,
    } = *document;
    let auxiliary = document_auxiliary(namespace, key.len());
    let header = moved_record(kind::PUT, compaction.session, sequence, auxiliary);
    let header = marked(header, is_kept);
    let bytes = header.record_bytes((key.len() + value.len()) as u64, DOCUMENT_ALIGNMENT);
    compaction.make_room(bytes)?;
    let offset = compaction.database.log.append(&header, &[key, value]).start;
    let to = DocumentAddress::new(offset, bytes, key);
    compaction.pace.note_filled(to.most_bytes(), bytes);
    compaction.hurry(offset);
    Ok(to)
}
