//! Kept versions: states of the tree under names, and going back to one.
//!
//! A version is a list of tables that never change, so keeping one costs nothing but the
//! promise not to remove them. The manifest holds that promise: an edit names the version
//! that it makes, and each manifest begins with the tables of all kept versions.
//!
//! ```text
//!  memtable ─ sealed at moment 40, to be kept ─ flush ─▶ edit: table 9 added, note, keep "a"
//!                                                        version "a" = all writes up to 40
//!  flushes and compactions go on: the tables of "a" stay, whatever edits remove them
//!  edit: install "a"  ─▶  the tree's version is "a" again; memtables are discarded
//!  edit: release "a"  ─▶  tables that no other version has are removed
//! ```
//!
//! Memtables are flushed in the order of their seals. So the version that the flush of a
//! memtable makes holds the writes up to its seal, all of them and no others.
//!
//! Readers that have pinned a moment from before an installed version go on with the *past
//! view*, the one that it replaced. [`Tree::forget_past`] drops past views that no pinned
//! moment needs.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cambium_base::{Error, Result};
use cambium_io::sync::write;

use crate::cursor::Cursor;
use crate::entry::{Lookup, Moment};
use crate::job::{Jobs, Slot};
use crate::manifest::Edit;
use crate::memtable::Memtable;
use crate::tree::{Sealed, Tree, View, lock};
use crate::version::{TableMetadata, Version};

/// Time between two looks at jobs that other threads take steps of.
const PATIENCE: Duration = Duration::from_millis(1);

/// Kept versions by name.
pub(crate) type KeptVersions = BTreeMap<String, Arc<Version>>;

/// The name under which a version is to be kept, and the owner's note of it.
#[derive(Debug)]
pub(crate) struct Keep {
    pub name: String,
    pub note: Vec<u8>,
}

/// The view that moments before an installed version read.
#[derive(Clone, Debug)]
pub(crate) struct PastView {
    /// Moments from here on read the tree.
    before: Moment,
    view: Arc<View>,
}

/// A version that is to be kept when its flush ends.
#[derive(Debug)]
pub struct KeptSoon(Weak<Sealed>);

/// No flush and no compaction runs while it lives.
#[derive(Debug)]
pub struct JobsHeld<'a>(&'a Tree);

impl Drop for JobsHeld<'_> {
    fn drop(&mut self) {
        lock(&self.0.jobs).held = false;
    }
}

/// A kept version to read, which stays readable when it is released.
#[derive(Clone, Debug)]
pub struct KeptView(Arc<View>);

impl KeptView {
    /// Its tables.
    pub(crate) fn version(&self) -> Arc<Version> {
        self.0.version.clone()
    }
}

impl Tree {
    /// As [`Tree::seal`]; the version that the flush of this memtable makes is kept under a
    /// name, which must be free. `keep_note` goes with the edit that keeps it.
    pub fn seal_keeping(&self, note: Vec<u8>, name: &str, keep_note: Vec<u8>) -> KeptSoon {
        let keep = Keep {
            name: name.to_owned(),
            note: keep_note,
        };
        let sealed = self.seal_with(note, Some(keep));
        KeptSoon(sealed.map_or_else(Weak::new, |sealed| Arc::downgrade(&sealed)))
    }

    /// Gives up a version whose flush failed. False if it was kept all the same: another
    /// thread has made the flush.
    pub fn cancel_keep(&self, soon: &KeptSoon) -> bool {
        let sealed = soon.0.upgrade();
        sealed.is_some_and(|sealed| lock(&sealed.keep).take().is_some())
    }

    /// Keeps the version of this name no longer. Its tables go unless another version has
    /// them.
    ///
    /// # Errors
    /// `NoSpace` changes nothing; others poison the tree.
    pub fn release_kept(&self, name: &str, note: &[u8]) -> Result<()> {
        self.check_is_kept(name)?;
        let edit = Edit {
            released: Some(name.to_owned()),
            ..Edit::default()
        };
        self.commit(edit, 0, || note.to_vec())
    }

    /// Waits until no thread takes a step of a job, gives up parked jobs, and lets none begin
    /// until the answer is dropped. One caller at a time.
    pub fn hold_jobs(&self) -> JobsHeld<'_> {
        loop {
            let mut jobs = lock(&self.jobs);
            jobs.held = true;
            if !jobs.any_taken() {
                self.give_up_parked(&mut jobs);
                return JobsHeld(self);
            }
            drop(jobs);
            self.context.environment.clock.sleep(PATIENCE);
        }
    }

    fn give_up_parked(&self, jobs: &mut Jobs) {
        for running in &jobs.compactions {
            if let Slot::Parked(job) = &running.slot {
                self.remove_tables(job.finished_outputs());
            }
        }
        jobs.abandon();
    }

    /// Makes a kept version the tree's, and discards all memtables: one edit, whatever the
    /// size of the tree. Its note is the notes of the sealed memtables, then `note`.
    /// The version takes the sequence number `moment`, which must be above all others: moments
    /// below it go on with what they see. `publish` is given the change of the view, and must
    /// make it.
    ///
    /// The caller makes sure that nobody writes, seals or relocates meanwhile.
    ///
    /// # Errors
    /// `NoSpace` changes nothing; others poison the tree.
    pub fn install_kept(
        &self,
        _held: &JobsHeld<'_>,
        name: &str,
        moment: Moment,
        note: &[u8],
        publish: impl FnOnce(&mut dyn FnMut()),
    ) -> Result<()> {
        self.check_is_kept(name)?;
        let edit = Edit {
            installed: Some(name.to_owned()),
            flushed: moment,
            ..Edit::default()
        };
        let view = self.view.load_full();
        let all_notes = || {
            let sealed = view.sealed.iter().rev();
            let sealed: Vec<u8> = sealed.flat_map(|sealed| sealed.note.clone()).collect();
            [sealed.as_slice(), note].concat()
        };
        self.commit_and_show(edit, all_notes, |next| {
            let _rotation = write(&self.rotation);
            let fresh = Arc::new(Memtable::new(self.context.options.memtable_bytes));
            publish(&mut || {
                self.add_past(moment);
                self.change_view(|_| View {
                    active: fresh.clone(),
                    sealed: Vec::new(),
                    version: next.clone(),
                });
            });
        })
    }

    /// Before the view changes: a reader that has loaded the new view finds the old one here.
    fn add_past(&self, before: Moment) {
        let view = self.view.load_full();
        let mut past = self.past.load().to_vec();
        past.push(PastView { before, view });
        self.past.store(Arc::new(past));
    }

    /// True if readers may need views from before an installed version.
    pub fn has_past(&self) -> bool {
        !self.past.load().is_empty()
    }

    /// Drops past views that no moment from the oldest pinned one on reads.
    pub fn forget_past(&self, oldest_pinned: impl FnOnce() -> Option<Moment>) {
        // Installing adds to them under the same lock.
        let _manifest = lock(&self.manifest);
        let oldest_pinned = oldest_pinned();
        let mut past = self.past.load().to_vec();
        past.retain(|past| oldest_pinned.is_some_and(|oldest| oldest < past.before));
        self.past.store(Arc::new(past));
    }

    /// The view that a pinned moment reads.
    pub(crate) fn view_at(&self, moment: Moment) -> Arc<View> {
        let view = self.view.load_full();
        let past = self.past.load();
        let replaced = past.iter().find(|past| moment < past.before);
        replaced.map_or(view, |past| past.view.clone())
    }

    /// Refuses a name that no version is kept under.
    fn check_is_kept(&self, name: &str) -> Result<()> {
        match lock(&self.kept).contains_key(name) {
            true => Ok(()),
            false => Err(Error::NotFound {
                kind: "kept version",
                name: name.to_owned(),
            }),
        }
    }

    /// The tables of all kept versions, for the base of a manifest.
    pub(crate) fn kept_tables(&self) -> Vec<(String, Vec<(usize, TableMetadata)>)> {
        let kept = lock(&self.kept);
        let tables = |version: &Version| {
            let files = version.files();
            files
                .map(|(level, file)| (level, file.metadata.clone()))
                .collect()
        };
        kept.iter()
            .map(|(name, version)| (name.clone(), tables(version)))
            .collect()
    }

    /// The kept version of a name as the next one of the tree, in place of the current one.
    pub(crate) fn installed(&self, current: &Version, name: &str) -> Result<Arc<Version>> {
        self.check_is_kept(name)?;
        let kept = lock(&self.kept);
        let next = kept.get(name).cloned().unwrap_or_default();
        for (_, file) in current.files() {
            file.set_obsolete(true);
        }
        for (_, file) in next.files() {
            file.set_obsolete(false);
        }
        Ok(next)
    }

    /// Keeps and releases what a durable edit says.
    pub(crate) fn note_kept(&self, edit: &Edit, next: &Arc<Version>) {
        let mut kept = lock(&self.kept);
        if let Some(name) = &edit.keep {
            kept.insert(name.clone(), next.clone());
        }
        if let Some(name) = &edit.released {
            kept.remove(name);
        }
    }

    /// The version that is kept under a name.
    pub fn kept_view(&self, name: &str) -> Option<KeptView> {
        let version = lock(&self.kept).get(name)?.clone();
        Some(KeptView(Arc::new(View {
            active: Arc::new(Memtable::new(1)),
            sealed: Vec::new(),
            version,
        })))
    }

    /// Bytes of tables that only kept versions have.
    pub fn kept_bytes(&self) -> u64 {
        let current = self.view.load_full();
        let kept = lock(&self.kept);
        let files = kept.values().flat_map(|version| version.files());
        let all: BTreeMap<u64, u64> = files
            .chain(current.version.files())
            .map(|(_, file)| (file.metadata.number, file.metadata.bytes))
            .collect();
        let current = current.version.files().map(|(_, file)| file.metadata.bytes);
        all.values().sum::<u64>() - current.sum::<u64>()
    }

    /// What a kept version has of a key: as [`Tree::get`].
    ///
    /// # Errors
    /// As there.
    pub fn get_kept(&self, kept: &KeptView, key: &[u8], moment: Moment) -> Result<Lookup> {
        self.check_open()?;
        self.look_up(&kept.0, key, moment)
    }

    /// What a kept version has of several keys: as [`Tree::multi_get`].
    ///
    /// # Errors
    /// As there.
    pub fn multi_get_kept(
        &self,
        kept: &KeptView,
        keys: &[&[u8]],
        moment: Moment,
    ) -> Result<Vec<Lookup>> {
        self.check_open()?;
        self.look_up_many(&kept.0, keys, moment)
    }

    /// A cursor over a kept version: as [`Tree::cursor`].
    ///
    /// # Errors
    /// As there.
    pub fn cursor_kept(
        &self,
        kept: &KeptView,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        moment: Moment,
    ) -> Result<Cursor> {
        self.check_open()?;
        self.cursor_over(kept.0.clone(), from, to, moment)
    }
}
