//! The ledger: what the manifest says of the value log, and which moments readers
//! hold.
//!
//! The tree asks its owner for both. For each segment the ledger knows how many
//! bytes of records tables have ever pointed to, and how many of those are garbage
//! by now: an entry that a flush or a compaction drops was the only one that led to
//! its record. The difference is what is *live*, exactly as of the tables on the
//! device, since the counts ride on the edits that change them ([`crate::note`]).
//! What a crash takes back of the tables it takes back of the ledger.
//!
//! Entries that are hidden and not dropped yet still count as live: how much that
//! may be is up to the tree's levels. Collection asks the tree about each value
//! before it moves it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use cambium_base::{Error, Result};
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use cambium_io::sync::{Mutex, MutexGuard, OnceLock};
use cambium_lsm::{DropObserver, EntryKind, EntryRef, JobKind, Owner};

use crate::core::{Core, lock};
use crate::format::{SegmentKind, Stored};
use crate::holes::{DeadRecords, HoleLedger, HoleRule};
use crate::note::{self, Head, KeptState, NoteItem, SegmentNote, Traffic};

/// What is known of a segment that tables may point into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub kind: SegmentKind,
    /// Bytes of records that tables have pointed to.
    pub value_bytes: u64,
    /// Of those, no longer.
    pub garbage_bytes: u64,
    /// Where its records end.
    pub end: u64,
    /// The last write in a written segment.
    pub last: u64,
}

impl Account {
    /// Bytes of records that tables point to.
    pub fn live_bytes(&self) -> u64 {
        self.value_bytes.saturating_sub(self.garbage_bytes)
    }
}

/// The state that the notes committed so far add up to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LedgerState {
    pub head: Head,
    pub next_file: u32,
    pub segments: BTreeMap<u32, Account>,
    pub namespaces: BTreeMap<u16, String>,
    /// No namespace has had this number yet, or a higher one.
    pub next_namespace: u32,
    /// Namespaces that were dropped and that changes may be of: names, and the numbers of the
    /// writes that dropped them.
    pub dropped_namespaces: BTreeMap<u16, (String, u64)>,
    /// Named snapshots by name.
    pub kept: BTreeMap<String, KeptState>,
    pub traffic: Traffic,
    /// Segments that were dropped, and whose files may still be there.
    pub dropped: Vec<u32>,
    /// Garbage that notes told of since the store was opened, bytes; and what collections
    /// found out by themselves, which no note will tell of.
    pub garbage_told: u64,
    /// Dead records whose space goes back before their segment does.
    pub holes: HoleLedger,
    /// The log does not have all changes up to here.
    pub lost_through: u64,
    /// The log was synced up to here.
    pub promised: u64,
    /// Writes that rollbacks undid: after the first number, up to the second.
    pub undone: Vec<(u64, u64)>,
    /// Collections under way end history up to here; no note says so yet.
    pub taken_through: u64,
    /// Some consumer needs all changes after this number. No note says so: opening reads it
    /// from the list of consumers.
    pub needed_after: Option<u64>,
}

impl LedgerState {
    /// Applies one item of a note that was committed when writes up to `moment`
    /// were visible.
    fn apply(&mut self, item: NoteItem, rule: &HoleRule, moment: u64) {
        match item {
            NoteItem::Head(head) => self.head = head,
            NoteItem::Segment(segment) => {
                let garbage_bytes = self
                    .segments
                    .get(&segment.number)
                    .map_or(0, |known| known.garbage_bytes);
                let account = Account {
                    kind: segment.kind,
                    value_bytes: segment.value_bytes,
                    garbage_bytes,
                    end: segment.end,
                    last: segment.last,
                };
                self.segments.insert(segment.number, account);
            }
            // Of a segment that was dropped meanwhile there is nothing to know.
            NoteItem::Garbage { segment, bytes } => {
                if let Some(account) = self.segments.get_mut(&segment) {
                    self.garbage_told += bytes;
                    account.garbage_bytes += bytes;
                }
            }
            NoteItem::Hole {
                segment,
                offset,
                bytes,
            } => {
                // A named snapshot may point there.
                if self.segments.contains_key(&segment) && !self.is_kept(segment) {
                    self.holes
                        .add(rule, segment, (offset, offset + bytes), moment);
                }
            }
            NoteItem::Dropped(number) => {
                self.holes.forget(number);
                if let Some(account) = self.segments.remove(&number) {
                    self.lost_through = self.lost_through.max(account.last);
                    self.dropped.push(number);
                }
            }
            NoteItem::NextFile(number) => self.next_file = self.next_file.max(number),
            NoteItem::Namespace { number, name } => {
                self.next_namespace = self.next_namespace.max(u32::from(number) + 1);
                self.dropped_namespaces.remove(&number);
                self.namespaces.insert(number, name);
            }
            NoteItem::Traffic(traffic) => self.traffic = traffic,
            NoteItem::HistoryLost(through) => self.lost_through = self.lost_through.max(through),
            NoteItem::Keep { name, sequence } => self.keep(name, sequence),
            NoteItem::Kept(name, state) => _ = self.kept.insert(name, state),
            NoteItem::Released(name) => _ = self.kept.remove(&name),
            NoteItem::RolledBack { name, sequence } => self.roll_back(&name, sequence),
            NoteItem::Undone(after, through) => self.undone.push((after, through)),
            NoteItem::Synced(through) => self.promised = self.promised.max(through),
            NoteItem::NextNamespace(number) => {
                self.next_namespace = self.next_namespace.max(number);
            }
            NoteItem::NamespaceDropped { number, sequence } => {
                if let Some(name) = self.namespaces.remove(&number) {
                    self.dropped_namespaces.insert(number, (name, sequence));
                }
            }
        }
    }

    /// The state that a note of everything says; `None` where it is of no known format.
    pub fn of_note(note: &[u8], rule: &HoleRule) -> Option<LedgerState> {
        let mut state = LedgerState::default();
        for item in note::decode(note)? {
            state.apply(item, rule, 0);
        }
        Some(state)
    }

    /// The whole state as one note.
    fn full_note(&self) -> Vec<u8> {
        let mut items = vec![
            NoteItem::Head(self.head),
            NoteItem::NextFile(self.next_file),
            NoteItem::Traffic(self.traffic),
            NoteItem::HistoryLost(self.lost_through),
            NoteItem::NextNamespace(self.next_namespace),
            NoteItem::Synced(self.promised),
        ];
        for (&number, account) in &self.segments {
            items.push(NoteItem::Segment(SegmentNote {
                number,
                kind: account.kind,
                value_bytes: account.value_bytes,
                end: account.end,
                last: account.last,
            }));
            if account.garbage_bytes > 0 {
                items.push(NoteItem::Garbage {
                    segment: number,
                    bytes: account.garbage_bytes,
                });
            }
        }
        items.extend(self.holes.items());
        let undone = self.undone.iter();
        items.extend(undone.map(|&(after, through)| NoteItem::Undone(after, through)));
        let namespace = |(&number, name): (&u16, &String)| NoteItem::Namespace {
            number,
            name: name.clone(),
        };
        for (&number, (name, sequence)) in &self.dropped_namespaces {
            if *sequence > self.lost_through {
                items.push(namespace((&number, name)));
                let sequence = *sequence;
                items.push(NoteItem::NamespaceDropped { number, sequence });
            }
        }
        items.extend(self.namespaces.iter().map(namespace));
        let kept = self.kept.iter();
        items.extend(kept.map(|(name, state)| NoteItem::Kept(name.clone(), state.clone())));
        note::encode(&items)
    }

    /// Bytes of all segments that tables may point into, what went back of them
    /// left out, and the live ones.
    pub fn total_and_live(&self) -> (u64, u64) {
        self.segments
            .iter()
            .fold((0, 0), |(total, live), (&number, account)| {
                let kept = self.kept_bytes(number, account);
                (total + kept, live + account.live_bytes())
            })
    }

    /// Bytes of a segment, what went back of it left out.
    pub fn kept_bytes(&self, number: u32, account: &Account) -> u64 {
        account.end.saturating_sub(self.holes.given_back(number))
    }
}

/// Owner of the tree.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The tree's folder, for messages.
    folder: PathBuf,
    state: Mutex<LedgerState>,
    /// Moments that readers hold, and how many hold each.
    pub pins: Mutex<BTreeMap<u64, usize>>,
    /// Every write up to here is seen by readers.
    pub visible: AtomicU64,
    /// Every write up to here survives a crash.
    pub synced: Arc<AtomicU64>,
    /// The number of the last rollback since the store was opened.
    pub rolled_back: AtomicU64,
    /// Who syncs the log before tables point into it.
    pub core: OnceLock<Weak<Core>>,
    /// There is no log to sync: a repair writes the tree alone.
    no_log: AtomicBool,
    /// Which dead records become holes.
    pub hole_rule: HoleRule,
}

impl Ledger {
    /// A ledger with a state, of a tree in a folder.
    pub fn new(folder: PathBuf, state: LedgerState, hole_rule: HoleRule) -> Arc<Self> {
        Arc::new(Ledger {
            hole_rule,
            folder,
            visible: AtomicU64::new(state.head.sequence),
            synced: Arc::new(AtomicU64::new(state.head.sequence)),
            rolled_back: AtomicU64::new(0),
            state: Mutex::new(state),
            pins: Mutex::new(BTreeMap::new()),
            core: OnceLock::new(),
            no_log: AtomicBool::new(false),
        })
    }

    /// The state that the notes committed so far add up to.
    pub fn state(&self) -> MutexGuard<'_, LedgerState> {
        lock(&self.state)
    }

    /// Start and end of each hole of a segment, ascending.
    pub fn holes_of(&self, segment: u32) -> Vec<(u64, u64)> {
        let state = self.state();
        state
            .holes
            .of(segment)
            .map_or_else(Vec::new, |holes| holes.runs().collect())
    }

    /// Every write up to here is seen by readers.
    pub fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Every write up to here survives a crash.
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// For a repair, which has synced nothing of a log to be replayed: flushes
    /// need wait for no log.
    pub fn repairing(&self, visible: u64) {
        self.visible.store(visible, Ordering::Release);
        self.no_log.store(true, Ordering::Release);
    }

    /// Pins what is visible now.
    pub fn pin_visible(&self) -> u64 {
        self.pin_visible_with(|| ()).0
    }

    /// The same; answers what [`Ledger::publish`] changes as of that moment.
    pub fn pin_visible_with<T>(&self, published: impl FnOnce() -> T) -> (u64, T) {
        let mut pins = lock(&self.pins);
        let moment = self.visible();
        *pins.entry(moment).or_insert(0) += 1;
        (moment, published())
    }

    /// Has a change be seen together with a number, which is the newest then: a reader that
    /// pins sees both or neither.
    pub fn publish(&self, sequence: u64, change: &mut dyn FnMut()) {
        let _pins = lock(&self.pins);
        change();
        self.visible.store(sequence, Ordering::Release);
    }

    /// Pins a moment that is pinned already once more.
    pub fn pin_again(&self, moment: u64) {
        *lock(&self.pins).entry(moment).or_insert(0) += 1;
    }

    /// Lets a pinned moment go.
    pub fn unpin(&self, moment: u64) {
        let mut pins = lock(&self.pins);
        if let Some(count) = pins.get_mut(&moment) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&moment);
            }
        }
    }

    /// The oldest moment that is pinned.
    pub fn oldest_pin(&self) -> Option<u64> {
        lock(&self.pins).keys().next().copied()
    }
}

impl Owner for Ledger {
    fn protected_moments(&self) -> Vec<u64> {
        let pins = lock(&self.pins);
        let visible = self.visible();
        let mut moments: Vec<u64> = pins.keys().copied().filter(|&pin| pin < visible).collect();
        moments.push(visible);
        moments
    }

    fn begin_job(&self, _: JobKind) -> Box<dyn DropObserver> {
        Box::new(GarbageCount {
            bytes: BTreeMap::new(),
            dead: DeadRecords::new(self.hole_rule),
            synced: self.synced.clone(),
        })
    }

    fn before_flush(&self, _: &[Vec<u8>]) -> Result<()> {
        if self.no_log.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.core.get().and_then(Weak::upgrade) {
            Some(core) => core.sync_sealed_log(),
            None => Err(Error::Closed),
        }
    }

    fn committed(&self, note: &[u8], full: bool) -> Result<()> {
        let items = note::decode(note).ok_or_else(|| {
            Error::corruption(
                &self.folder,
                0,
                "a note of the manifest is of no format known here",
            )
        })?;
        // During an opening there are no readers yet.
        let moment = match self.core.get() {
            Some(_) => self.visible(),
            None => 0,
        };
        let mut state = self.state();
        if full {
            *state = LedgerState::default();
        }
        // A snapshot has what the edit makes, its garbage left out.
        let (keeps, changes): (Vec<_>, Vec<_>) = items
            .into_iter()
            .partition(|item| matches!(item, NoteItem::Keep { .. }));
        for item in changes.into_iter().chain(keeps) {
            state.apply(item, &self.hole_rule, moment);
        }
        Ok(())
    }

    fn full_note(&self) -> Vec<u8> {
        self.state().full_note()
    }
}

/// Counts the garbage that a job leaves.
#[derive(Debug)]
struct GarbageCount {
    bytes: BTreeMap<u32, u64>,
    dead: DeadRecords,
    /// The ledger's.
    synced: Arc<AtomicU64>,
}

impl DropObserver for GarbageCount {
    fn dropped(&mut self, dropped: EntryRef<'_>) {
        if dropped.kind != EntryKind::Value {
            return;
        }
        if let Some(Stored::Pointer(pointer)) = Stored::decode(dropped.value) {
            let bytes = pointer.record_bytes(dropped.key.len());
            *self.bytes.entry(pointer.segment).or_insert(0) += bytes;
            self.dead.add(pointer.segment, pointer.offset, bytes);
        }
    }

    fn into_note(self: Box<Self>, sealed: &[Vec<u8>]) -> Vec<u8> {
        let mut note = sealed.concat();
        // Should all of the log be lost that was synced since the head, the edit tells.
        NoteItem::Synced(self.synced.load(Ordering::Acquire)).encode(&mut note);
        for (segment, bytes) in self.bytes {
            NoteItem::Garbage { segment, bytes }.encode(&mut note);
        }
        for hole in self.dead.into_items() {
            hole.encode(&mut note);
        }
        note
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u32, value_bytes: u64) -> NoteItem {
        NoteItem::Segment(SegmentNote {
            number,
            kind: SegmentKind::Written,
            value_bytes,
            end: value_bytes + 4096,
            last: u64::from(number) * 10,
        })
    }

    #[test]
    fn garbage_outlives_a_segments_growth_and_goes_with_the_segment() {
        let ledger = Ledger::new(
            PathBuf::from("keys"),
            LedgerState::default(),
            HoleRule::default(),
        );
        let commit = |items: &[NoteItem]| ledger.committed(&note::encode(items), false).unwrap();
        let garbage = NoteItem::Garbage {
            segment: 1,
            bytes: 30,
        };
        commit(&[segment(1, 100), garbage.clone()]);
        commit(&[segment(1, 150)]);
        assert_eq!(ledger.state().total_and_live(), (150 + 4096, 120));
        commit(&[NoteItem::Dropped(1), garbage]);
        assert_eq!(ledger.state().total_and_live(), (0, 0));
        assert_eq!(ledger.state().dropped, vec![1]);
    }

    #[test]
    fn a_full_note_gives_the_state_again() {
        let ledger = Ledger::new(
            PathBuf::from("keys"),
            LedgerState::default(),
            HoleRule::default(),
        );
        let items = [
            segment(1, 100),
            NoteItem::Garbage {
                segment: 1,
                bytes: 30,
            },
            NoteItem::NextFile(5),
            NoteItem::Namespace {
                number: 1,
                name: "people".to_string(),
            },
        ];
        ledger.committed(&note::encode(&items), true).unwrap();
        let other = Ledger::new(
            PathBuf::from("keys"),
            LedgerState::default(),
            HoleRule::default(),
        );
        other.committed(&ledger.full_note(), true).unwrap();
        assert_eq!(other.state().segments, ledger.state().segments);
        assert_eq!(other.full_note(), ledger.full_note());
    }

    #[test]
    fn what_is_visible_is_protected_last() {
        let ledger = Ledger::new(
            PathBuf::from("keys"),
            LedgerState::default(),
            HoleRule::default(),
        );
        ledger.visible.store(5, Ordering::Release);
        assert_eq!(ledger.pin_visible(), 5);
        ledger.visible.store(9, Ordering::Release);
        assert_eq!(ledger.protected_moments(), vec![5, 9]);
        ledger.unpin(5);
        assert_eq!(ledger.protected_moments(), vec![9]);
    }
}
