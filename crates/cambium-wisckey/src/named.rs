//! Named snapshots and rollback.
//!
//! A named snapshot is a kept version of the tree ([`cambium_lsm::Tree::seal_keeping`]): its
//! tables stay, and so does each segment that they point into. Making one seals the write
//! buffer and flushes it; the edit of that flush keeps the version that it makes:
//!
//! ```text
//!  tables of "monday":  7 9 12          segments 3 (4 MiB live), 5 (1 MiB live)
//!  tables now:          7 13 15 16      segments 3 5 8 9
//!  rollback:            7 9 12          segments 3 5 as on monday; 8 and 9 are empty, and go
//! ```
//!
//! - **What is held.** The ledger notes how many bytes of each segment the snapshot points to.
//!   Collection passes over these segments, they get no holes, and their garbage does not count
//!   towards `space_limit`. Values of them that are moved are moved for the current tables
//!   alone. After the snapshot is dropped they are collected as others are.
//! - **Rollback is one edit** of the manifest, whatever the size of the store. It makes the
//!   version of the snapshot the tree's, discards the write buffers, and moves the head of the
//!   log behind all that was written, so recovery does not replay what was undone. The accounts
//!   of the segments are then those of the snapshot. It takes a sequence number of its own, and
//!   ends history.
//! - **Readers from before** a rollback go on with the view that it replaced. Segments that
//!   only they need lose their names and stay open until these readers are gone.
//!
//! All of this runs under the collection lock. A collection that is going on is given up
//! before: what it has not moved yet, the snapshot points to.

use std::sync::Arc;

use cambium_api::{Statistics, Written};
use cambium_base::{Error, Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;

use crate::core::{Core, lock};
use crate::ledger::LedgerState;
use crate::names::{MAX_NAME_BYTES, Names};
use crate::note::{self, KeptState, NoteItem};
use crate::pin::Pin;
use crate::reserve::Part;
use crate::seeded_bug::SeededBug;
use crate::value_log::{Writer, segment_item};

impl LedgerState {
    /// Keeps the state now under a name.
    pub fn keep(&mut self, name: String, sequence: u64) {
        let segments = self.segments.iter();
        let live = segments.map(|(&number, account)| (number, account.live_bytes()));
        let state = KeptState {
            sequence,
            segments: live.filter(|&(_, bytes)| bytes > 0).collect(),
            undone: self.undone.clone(),
            namespaces: self.namespaces.clone(),
        };
        self.kept.insert(name, state);
    }

    /// Makes the state of a named snapshot the current one.
    pub fn roll_back(&mut self, name: &str, sequence: u64) {
        let Some(kept) = self.kept.get(name) else {
            return;
        };
        for (number, account) in &mut self.segments {
            let live = kept.segments.get(number).copied().unwrap_or(0);
            account.garbage_bytes = account.value_bytes.saturating_sub(live);
        }
        // Namespaces made since stay, empty, unless one that is back has their name.
        let mut namespaces = kept.namespaces.clone();
        for (&number, name) in &self.namespaces {
            if !kept.namespaces.values().any(|kept| kept == name) {
                namespaces.entry(number).or_insert_with(|| name.clone());
            }
        }
        for (number, name) in std::mem::replace(&mut self.namespaces, namespaces) {
            self.dropped_namespaces.insert(number, (name, sequence));
        }
        let live = &self.namespaces;
        let is_gone = |number: &u16, _: &mut (String, u64)| !live.contains_key(number);
        self.dropped_namespaces.retain(is_gone);
        self.lost_through = self.lost_through.max(sequence);
        self.undone.clone_from(&kept.undone);
        self.undone.push((kept.sequence, sequence));
    }

    /// True if a rollback undid the write.
    pub fn is_undone(&self, sequence: u64) -> bool {
        let mut undone = self.undone.iter();
        undone.any(|&(after, through)| after < sequence && sequence <= through)
    }

    /// True if a named snapshot points into the segment.
    pub fn is_kept(&self, segment: u32) -> bool {
        let mut kept = self.kept.values();
        kept.any(|state| state.segments.contains_key(&segment))
    }
}

impl Core {
    /// True if a segment must stay for a named snapshot.
    pub fn is_held_by_snapshot(&self, state: &LedgerState, segment: u32) -> bool {
        state.is_kept(segment) && !self.has_bug(SeededBug::SnapshotSegmentDropped)
    }

    /// Keeps the state now under a name. Durable when it returns, with every write before.
    pub fn create_named_snapshot(self: &Arc<Self>, name: &str) -> Result<()> {
        // A close waits for the end.
        let _under_way = self.stepping.read();
        self.check_writable()?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(Error::InvalidArgument(format!(
                "snapshot name {name:?}: names have 1 to {MAX_NAME_BYTES} bytes"
            )));
        }
        let mut collector = lock(&self.collection);
        if self.ledger.state().kept.contains_key(name) {
            return Err(Error::AlreadyExists {
                path: self.path.clone(),
                what: format!("a snapshot named {name:?} is there; delete it first"),
            });
        }
        self.begin_session()?;
        self.end_run(&mut collector)?;
        let soon = {
            let mut writer = lock(&self.writer);
            self.check_sound()?;
            let keep = NoteItem::Keep {
                name: name.to_string(),
                sequence: writer.next_sequence - 1,
            };
            let note = self.note_of_seal(&mut writer)?;
            self.tree.seal_keeping(note, name, note::encode(&[keep]))
        };
        self.keep_due_reserve();
        let flushed = self.with_reserve(Part::All, || self.tree.flush());
        match flushed {
            Err(_) if !self.tree.cancel_keep(&soon) => Ok(()),
            flushed => flushed,
        }
    }

    /// Names of named snapshots, with the last write that each has.
    pub fn list_named_snapshots(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.check_open()?;
        let state = self.ledger.state();
        let kept = state.kept.iter();
        Ok(kept
            .map(|(name, kept)| (name.clone(), SequenceNumber(kept.sequence)))
            .collect())
    }

    /// Drops a named snapshot, durably. Background work gives its space back.
    pub fn drop_named_snapshot(&self, name: &str) -> Result<()> {
        let _under_way = self.stepping.read();
        self.check_writable()?;
        let _collector = lock(&self.collection);
        self.named_snapshot(name)?;
        self.begin_session()?;
        // No crash may take back a write from before and leave the drop.
        self.sync_all(&mut lock(&self.writer))?;
        let synced = NoteItem::Synced(self.ledger.synced());
        let note = note::encode(&[synced, NoteItem::Released(name.to_string())]);
        self.tree.release_kept(name, &note)?;
        self.remove_unread_tables();
        Ok(())
    }

    /// What the ledger knows of a named snapshot.
    fn named_snapshot(&self, name: &str) -> Result<KeptState> {
        let kept = self.ledger.state().kept.get(name).cloned();
        kept.ok_or_else(|| Error::NotFound {
            kind: "snapshot",
            name: name.to_string(),
        })
    }

    /// A named snapshot to read: what it has, and a pin that sees it also when it is dropped.
    pub fn pin_named(self: &Arc<Self>, name: &str) -> Result<(Pin, KeptState)> {
        // A segment that goes from now on stays open for this pin.
        let pin = self.pin()?;
        let kept = self.named_snapshot(name)?;
        let view = self.tree.kept_view(name).ok_or_else(|| Error::NotFound {
            kind: "snapshot",
            name: name.to_string(),
        })?;
        Ok((pin.seeing(view, kept.sequence), kept))
    }

    /// Brings the store back to a named snapshot, durably.
    pub fn rollback(&self, name: &str) -> Result<()> {
        let _under_way = self.stepping.read();
        self.check_writable()?;
        self.named_snapshot(name)?;
        // A compaction that runs works on what is undone: it answers `Cancelled`.
        self.cancels.fetch_add(1, Ordering::AcqRel);
        let mut collector = lock(&self.collection);
        self.named_snapshot(name)?;
        self.begin_session()?;
        self.end_run(&mut collector)?;
        let held = self.tree.hold_jobs();
        // The manifest will name the segments that hold what is undone.
        self.sync_sealed_log()?;
        let mut writer = lock(&self.writer);
        self.sync_all(&mut writer)?;
        self.roll(&mut writer)?;
        self.sync_names(&mut writer)
            .map_err(|error| self.health.poison(error))?;
        let noted = (writer.unnoted.clone(), writer.pending.clone());
        let sequence = writer.next_sequence;
        let note = self.note_of_rollback(&mut writer, name, sequence);
        let installed = self
            .tree
            .install_kept(&held, name, sequence, &note, |change| {
                self.publish_rollback(sequence, change);
            });
        if let Err(error) = installed {
            writer.next_sequence = sequence;
            (writer.unnoted, writer.pending) = noted;
            return Err(error);
        }
        writer.logged = 0;
        writer.deletes = 0;
        writer.entries = 0;
        self.set_synced(&mut writer, sequence);
        drop((writer, held));
        self.keep_due_reserve();
        self.tree.forget_past(|| self.ledger.oldest_pin());
        self.remove_unread_tables();
        Ok(())
    }

    /// Removes the tables that a rollback or the drop of a snapshot leaves to nobody. What was
    /// asked for is done, so a failure is left to the next step, or has stopped all writes.
    fn remove_unread_tables(&self) {
        _ = self.tree.remove_unread_tables();
        self.notify_background();
    }

    /// What the manifest says of the log after a rollback, which takes the next number.
    fn note_of_rollback(&self, writer: &mut Writer, name: &str, sequence: u64) -> Vec<u8> {
        let place = writer.active.as_ref().map(|active| {
            let first = active.log.geometry().first_offset;
            (active.number, first)
        });
        let (segment, offset) = place.unwrap_or((writer.next_file, 0));
        // The tables of the snapshot point to less of some segments than memtables did that
        // are discarded: the ledger must know all that was ever pointed to.
        let state = self.ledger.state();
        let segments = self.segments.load();
        let changed = segments.values().filter(|segment| {
            let known = state.segments.get(&segment.number);
            let bytes = segment.value_bytes.load(Ordering::Relaxed);
            known.is_some_and(|known| known.value_bytes != bytes || known.end != segment.log.end())
        });
        let changed: Vec<NoteItem> = changed.map(|segment| segment_item(segment)).collect();
        drop(state);
        writer.pending.extend(changed);
        writer.pending.push(NoteItem::RolledBack {
            name: name.to_string(),
            sequence,
        });
        writer.next_sequence = sequence + 1;
        self.note_up_to(writer, segment, offset)
    }

    /// Makes a rollback visible: names, feeds and readers see it at once.
    fn publish_rollback(&self, sequence: u64, change: &mut dyn FnMut()) {
        let names = Arc::new(Names::of(&self.ledger.state()));
        self.ledger.rolled_back.store(sequence, Ordering::Release);
        self.recent.note([(sequence, Written::Everything)]);
        self.ledger.publish(sequence, &mut || {
            self.names.store(names.clone());
            change();
        });
    }

    /// Adds what named snapshots take.
    pub fn snapshot_statistics(&self, state: &LedgerState, all: &mut Statistics) {
        let held = state
            .segments
            .iter()
            .filter(|(number, _)| state.is_kept(**number));
        let garbage = held.map(|(&number, account)| {
            let kept = state.kept_bytes(number, account);
            kept.saturating_sub(account.live_bytes())
        });
        all.count(
            "named_snapshots",
            state.kept.len() as u64,
            "states that are kept under a name",
        );
        all.bytes(
            "named_snapshot_bytes",
            garbage.sum::<u64>() + self.tree.kept_bytes(),
            "garbage of the value log, and tables, that stay only because named snapshots need them",
        );
    }
}
