//! Named snapshots and rollback.
//!
//! A named snapshot is a set of roots in the database header. The file is
//! append-only, so keeping a state costs nothing but the promise not to let its
//! nodes and documents go: a compaction carries them along.
//!
//! A rollback makes a kept state the newest again: the roots of a new header are
//! those of the snapshot, and replay begins after it. It takes a sequence number
//! of its own, so that readers before and after it differ. Snapshots and cursors
//! that are open keep what they see.

use std::sync::Arc;

use cambium_api::Written;
use cambium_base::{Error, Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;

use crate::addresses::Known;
use crate::buffer::Buffer;
use crate::core::{Core, Maintenance, lock};
use crate::flush::{Copies, SealPoint};
use crate::format::{DatabaseHeader, NamedSnapshot};
use crate::seeded_bug::SeededBug;
use crate::view::{Names, Pin, Roots, View};
use crate::write::MAX_NAME_BYTES;

/// The moment that a named snapshot keeps.
pub(crate) fn pin_of(
    core: &Core,
    newest: &Pin,
    snapshot: &NamedSnapshot,
    names: Names,
) -> Result<Pin> {
    let mut pin = newest.again()?;
    pin.view = Arc::new(View {
        database: newest.view.database.clone(),
        active: Arc::new(Buffer::new(core.hash_seed, 0)),
        sealed: None,
        run: Arc::default(),
        roots: Arc::new(Roots {
            sequence: snapshot.sequence,
            namespaces: snapshot.namespaces.iter().copied().collect(),
        }),
        names: Arc::new(names),
        known: Known::nothing(),
        era: newest.view.era.clone(),
    });
    Ok(pin)
}

impl Core {
    /// Names and numbers of all namespaces, by name.
    pub fn namespaces(&self) -> Vec<(String, u16)> {
        let view = self.view.load();
        let names = view.names.iter();
        names
            .map(|(name, number)| (name.to_string(), number))
            .collect()
    }

    /// Keeps the state now under a name, durably.
    pub fn create_named_snapshot(self: &Arc<Self>, name: &str) -> Result<()> {
        self.check_writable()?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(Error::InvalidArgument(format!(
                "snapshot name {name:?}: names have 1 to {MAX_NAME_BYTES} bytes"
            )));
        }
        let mut maintenance = lock(&self.maintenance);
        if maintenance
            .header
            .snapshots
            .iter()
            .any(|snapshot| snapshot.name == name)
        {
            return Err(Error::AlreadyExists {
                path: self.path.clone(),
                what: format!("a snapshot named {name:?} is there; delete it first"),
            });
        }
        self.begin_session_locked(&mut maintenance)?;
        let hold = {
            let _writer = lock(&self.writer);
            let view = self.view.load();
            let numbers = view.names.numbers().collect();
            self.meanwhile.hold(view.database.log.end(), numbers)
        };
        // What a failed flush left goes first, then what was written since.
        for _ in 0..2 {
            self.flush_locked(&mut maintenance)?;
        }
        let view = self.view.load_full();
        let snapshot = NamedSnapshot {
            name: name.to_string(),
            sequence: view.roots.sequence,
            namespaces: view
                .names
                .numbers()
                .map(|number| (number, view.root(number)))
                .collect(),
        };
        let mut snapshots = maintenance.header.snapshots.clone();
        snapshots.push(snapshot.clone());
        self.publish_snapshots(&mut maintenance, snapshots)?;
        let position = maintenance.header.replay_from;
        self.meanwhile.stop(hold, &snapshot, position);
        Ok(())
    }

    /// Names of kept states.
    pub fn list_named_snapshots(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.check_open()?;
        let maintenance = lock(&self.maintenance);
        let snapshots = maintenance.header.snapshots.iter();
        Ok(snapshots
            .map(|snapshot| (snapshot.name.clone(), SequenceNumber(snapshot.sequence)))
            .collect())
    }

    /// What is visible now, and the header with the named snapshots whose roots lie
    /// in the same file: a compaction puts both into another one, under this lock.
    pub fn pin_with_header(self: &Arc<Self>) -> Result<(Pin, DatabaseHeader)> {
        let maintenance = lock(&self.maintenance);
        Ok((self.pin()?, maintenance.header.clone()))
    }

    /// A kept state, to be read.
    pub fn pin_named(self: &Arc<Self>, name: &str) -> Result<Pin> {
        let (newest, header) = self.pin_with_header()?;
        let mut snapshots = header.snapshots.iter();
        let found = snapshots.find(|snapshot| snapshot.name == name);
        let snapshot = found.ok_or_else(|| not_found(name))?;
        let names = header.names_of(snapshot).into_iter().collect();
        pin_of(self, &newest, snapshot, names)
    }

    /// Lets a kept state go, durably.
    pub fn drop_named_snapshot(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let mut maintenance = lock(&self.maintenance);
        find(&maintenance, name)?;
        self.begin_session_locked(&mut maintenance)?;
        let mut snapshots = maintenance.header.snapshots.clone();
        snapshots.retain(|snapshot| snapshot.name != name);
        self.publish_snapshots(&mut maintenance, snapshots)?;
        self.note_less_kept();
        Ok(())
    }

    /// A header like the newest, with another list of snapshots.
    fn publish_snapshots(
        &self,
        maintenance: &mut Maintenance,
        snapshots: Vec<NamedSnapshot>,
    ) -> Result<()> {
        let view = self.view.load_full();
        let header = DatabaseHeader {
            snapshots,
            ..maintenance.header.clone()
        };
        if self.has_bug(SeededBug::SnapshotUnwritten) {
            maintenance.header = header;
            return Ok(());
        }
        let (database, roots) = (&view.database, &view.roots);
        self.publish(maintenance, database, header, roots, Copies::Two)
    }

    /// Brings the store back to a kept state. A compaction that runs carries over what
    /// is undone, and is given up; one that was called answers `Cancelled`.
    pub fn rollback(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        find(&lock(&self.maintenance), name)?;
        self.cancellations.fetch_add(1, Ordering::AcqRel);
        // Held to the end: a compaction that began meanwhile would carry over what
        // is undone.
        let mut running = lock(&self.compaction);
        self.health.check_open()?;
        self.abandon(running.take());
        let mut maintenance = lock(&self.maintenance);
        find(&maintenance, name)?;
        self.begin_session_locked(&mut maintenance)?;
        let snapshot = find(&maintenance, name)?.clone();
        let mut writer = lock(&self.writer);
        let view = self.view.load_full();
        self.flush_log(&view.database.log)?;
        self.sync_log(&view.database)?;
        let roots = Roots {
            sequence: writer.next_sequence,
            namespaces: snapshot.namespaces.iter().copied().collect(),
        };
        let mut names = names_after(&maintenance.header, &snapshot, &view);
        if self.has_bug(SeededBug::RollbackLosesDropped) {
            names = Names::clone(&view.names);
        }
        let point = SealPoint {
            sequence: writer.next_sequence,
            replay_from: view.database.log.end(),
            session: writer.session,
        };
        let kept = snapshot.sequence;
        let state = (roots, names);
        self.publish_rollback(&mut maintenance, &mut writer, &view, state, (point, kept))
    }

    fn publish_rollback(
        &self,
        maintenance: &mut Maintenance,
        writer: &mut crate::core::Writer,
        view: &View,
        (roots, names): (Roots, Names),
        (point, kept): (SealPoint, u64),
    ) -> Result<()> {
        let header = DatabaseHeader {
            sequence: point.sequence,
            replay_from: point.replay_from,
            replay_session: point.session,
            ..maintenance.header.clone()
        };
        let names = Arc::new(names);
        let next = writer.next_namespace;
        let mut header = self.complete_with(header, maintenance, (&roots, &names), next);
        header.rolled_back_to = Some(kept);
        header.changes_from = point.sequence;
        header.kept_files.clear();
        if self.has_bug(SeededBug::RollbackReplayed) {
            header.replay_from = maintenance.header.replay_from;
            header.sequence = kept;
        }
        let record = crate::format::header_record(
            point.sequence,
            writer.next_sequence - 1,
            writer.session,
            false,
        );
        let appended = self.append_header(&view.database, &header, &record, Copies::Two)?;
        self.sync_header(&view.database)?;
        let before = maintenance.root;
        maintenance.root.name(&appended, &view.database);
        // Both copies: losing one later must not bring back what was undone.
        if let Err(error) = maintenance.write_root_twice() {
            maintenance.root = before;
            return Err(self.health.poison(error));
        }
        maintenance.header = header;
        maintenance.sealed_at = None;
        maintenance.packed_at = None;
        writer.next_sequence = point.sequence + 1;
        self.synced_through.store(point.sequence, Ordering::Release);
        self.history.roll_back(point.sequence);
        writer.unsynced = false;
        let known = Known::for_documents(roots.documents(), &self.home.cache, self.hash_seed);
        let roots = Arc::new(roots);
        let lingers = self.has_bug(SeededBug::RollbackKeepsBuffer);
        self.change_view(|view| View {
            database: view.database.clone(),
            active: match lingers {
                true => view.active.clone(),
                false => Arc::default(),
            },
            sealed: None,
            run: Arc::default(),
            roots,
            names,
            known,
            era: view.era.clone(),
        });
        self.visible.store(point.sequence, Ordering::Release);
        self.recent.note([(point.sequence, Written::Everything)]);
        self.forget_kept();
        Ok(())
    }
}

/// The namespaces after a rollback: those that the snapshot has, one that was
/// dropped since among them. Those made since stay, empty, unless one that is
/// back has their name.
fn names_after(header: &DatabaseHeader, snapshot: &NamedSnapshot, view: &View) -> Names {
    let mut names: Names = header.names_of(snapshot).into_iter().collect();
    for (name, number) in view.names.iter() {
        if names.number(name).is_none() {
            names.insert(name.to_string(), number);
        }
    }
    names
}

fn find<'a>(maintenance: &'a Maintenance, name: &str) -> Result<&'a NamedSnapshot> {
    maintenance
        .header
        .snapshots
        .iter()
        .find(|snapshot| snapshot.name == name)
        .ok_or_else(|| not_found(name))
}

fn not_found(name: &str) -> Error {
    Error::NotFound {
        kind: "snapshot",
        name: name.to_string(),
    }
}
