//! Creating, opening, committing edits, closing.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use cambium_base::{Error, Result, StoreId};
use cambium_io::Environment;
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use cambium_io::sync::{Mutex, OnceLock, RwLock};

use crate::format::{LEVELS, number_in_name};
use crate::job::Jobs;
use crate::kept::KeptVersions;
use crate::manifest::{AppendFailure, Edit, Manifest};
use crate::memtable::Memtable;
use crate::options::Options;
use crate::owner::Owner;
use crate::recovery::{Recovered, recover};
use crate::seeded_bug::SeededBug;
use crate::tree::{Context, Tree, View, lock};
use crate::version::{Level, TableFile, Version};

impl Tree {
    /// Makes an empty tree in `folder`, which is made if it is not there and
    /// should be the tree's alone. Durable when this returns, but for the name
    /// of `folder` in its parent: sync that.
    ///
    /// # Errors
    /// An option that makes no sense; errors of writing. What was made until
    /// then is left.
    pub fn create(
        environment: &Environment,
        folder: &Path,
        store: StoreId,
        options: &Options,
        owner: Arc<dyn Owner>,
    ) -> Result<Arc<Tree>> {
        options.validate()?;
        if environment.file_system.metadata(folder)?.is_none() {
            environment.file_system.create_directory(folder)?;
        }
        let context = Context::new(environment, folder, store, options);
        let note = owner.full_note();
        let base = Edit {
            base: true,
            comparator: Some(options.comparator.clone()),
            filter: Some(options.filter_name().to_owned()),
            note: note.clone(),
            ..Edit::default()
        };
        let manifest = Manifest::create(&context, &base)?;
        owner.committed(&note, true)?;
        let recovered = Recovered {
            manifest,
            version: Version::default(),
            kept: KeptVersions::new(),
            flushed: 0,
        };
        Ok(Tree::assemble(context, owner, recovered))
    }

    /// Opens the tree in `folder`. Nothing is written before the first edit, so
    /// this serves reading alone as well. The owner gets the notes of all edits,
    /// in order; then it writes what was not flushed into the tree again.
    ///
    /// # Errors
    /// Damage, a newer format, an unknown comparator or filter policy, errors of
    /// reading, and what the owner says to its notes.
    pub fn open(
        environment: &Environment,
        folder: &Path,
        store: StoreId,
        options: &Options,
        owner: Arc<dyn Owner>,
    ) -> Result<Arc<Tree>> {
        options.validate()?;
        let context = Context::new(environment, folder, store, options);
        let recovered = recover(&context, owner.as_ref())?;
        Ok(Tree::assemble(context, owner, recovered))
    }

    fn assemble(context: Context, owner: Arc<dyn Owner>, recovered: Recovered) -> Arc<Tree> {
        let view = View {
            active: Arc::new(Memtable::new(context.options.memtable_bytes)),
            sealed: Vec::new(),
            version: Arc::new(recovered.version),
        };
        Arc::new(Tree {
            context: Arc::new(context),
            owner,
            view: ArcSwap::from_pointee(view),
            rotation: RwLock::default(),
            change: Mutex::default(),
            manifest: Mutex::new(recovered.manifest),
            kept: Mutex::new(recovered.kept),
            past: ArcSwap::default(),
            jobs: Mutex::new(Jobs::default()),
            closed: AtomicBool::new(false),
            resting: AtomicBool::new(false),
            sweeping: AtomicBool::new(false),
            poison: OnceLock::new(),
            flushed_sequence: AtomicU64::new(recovered.flushed),
        })
    }

    /// Makes an edit durable, then visible. `note` is asked under the
    /// manifest's lock; `flushed` is how many of the oldest sealed memtables
    /// the edit's tables stand for.
    ///
    /// A full disk changes nothing; any other failure poisons the tree.
    pub(crate) fn commit(
        &self,
        edit: Edit,
        flushed: usize,
        note: impl FnOnce() -> Vec<u8>,
    ) -> Result<()> {
        self.commit_and_show(edit, note, |next| {
            self.change_view(|view| View {
                active: view.active.clone(),
                sealed: view.sealed[..view.sealed.len() - flushed].to_vec(),
                version: next,
            });
        })
    }

    /// Makes an edit durable, and has `show` make its version visible.
    pub(crate) fn commit_and_show(
        &self,
        edit: Edit,
        note: impl FnOnce() -> Vec<u8>,
        show: impl FnOnce(Arc<Version>),
    ) -> Result<()> {
        self.check_writable()?;
        let mut manifest = lock(&self.manifest);
        // Somebody else may have met an error while this waited.
        self.check_writable()?;
        let version = self.view.load().version.clone();
        if manifest.needs_base() {
            let base = self.base_of(&version);
            manifest
                .replace(&self.context, &base)
                .map_err(|failure| self.unless_refused(failure))?;
        }
        let options = &self.context.options;
        if !edit.added.is_empty() && !options.has_bug(SeededBug::FolderUnsynced) {
            self.context
                .environment
                .file_system
                .sync_directory(&self.context.folder)
                .map_err(|error| self.poisoned_by(error))?;
        }
        let before = self.flushed_sequence();
        let edit = Edit {
            next_file: self.context.next_file.load(Ordering::Acquire),
            flushed: edit.flushed.max(before),
            note: note(),
            ..edit
        };
        let synced = !options.has_bug(SeededBug::EditUnsynced);
        manifest
            .append(&edit, synced)
            .map_err(|failure| self.unless_refused(failure))?;
        if edit.changes_kept() {
            // No log can do it again: if it is lost, that is damage.
            manifest
                .confirm()
                .map_err(|error| self.poisoned_by(error))?;
        }
        if !edit.note.is_empty() {
            self.owner
                .committed(&edit.note, false)
                .map_err(|error| self.poisoned_by(error))?;
        }
        let next = match &edit.installed {
            Some(name) => self.installed(&version, name)?,
            None => Arc::new(self.applied(&version, &edit)),
        };
        self.note_kept(&edit, &next);
        self.flushed_sequence.store(edit.flushed, Ordering::Release);
        show(next);
        Ok(())
    }

    /// An edit that a full disk refused leaves the tree as it was.
    fn unless_refused(&self, failure: AppendFailure) -> Error {
        match failure {
            AppendFailure::Full(error) => error,
            AppendFailure::Final(error) => self.poisoned_by(error),
        }
    }

    /// Stops all further edits; answers the error. Lack of space that stops edits is
    /// answered as [`Error::Poisoned`], since `NoSpace` says that nothing changed.
    fn poisoned_by(&self, error: Error) -> Error {
        _ = self.poison.set(error.clone());
        let is_raw = self.context.options.has_bug(SeededBug::PoisonAnsweredRaw);
        match error.is_no_space() && !is_raw {
            true => Error::poisoned_by(&error),
            false => error,
        }
    }

    pub(crate) fn base_of(&self, version: &Version) -> Edit {
        let options = &self.context.options;
        Edit {
            base: true,
            next_file: self.context.next_file.load(Ordering::Acquire),
            flushed: self.flushed_sequence(),
            comparator: Some(options.comparator.clone()),
            filter: Some(options.filter_name().to_owned()),
            added: version
                .files()
                .map(|(level, file)| (level, file.metadata.clone()))
                .collect(),
            kept: self.kept_tables(),
            note: self.owner.full_note(),
            ..Edit::default()
        }
    }

    /// The version after an edit; tables that it leaves out become obsolete.
    fn applied(&self, version: &Version, edit: &Edit) -> Version {
        let mut levels = <[Level; LEVELS]>::default();
        let mut moved: Vec<&Arc<TableFile>> = Vec::new();
        for (level, file) in version.files() {
            let number = file.metadata.number;
            if !edit.removed.contains(&(level, number)) {
                levels[level].push(file.clone());
            } else if edit.added.iter().any(|(_, table)| table.number == number) {
                moved.push(file);
            } else {
                file.set_obsolete(true);
            }
        }
        for (level, table) in &edit.added {
            let same = |file: &&&Arc<TableFile>| file.metadata.number == table.number;
            let file = match moved.iter().find(same) {
                Some(file) => Arc::clone(file),
                None => TableFile::new(table.clone(), &self.context.graveyard),
            };
            levels[*level].push(file);
        }
        Version::new(levels)
    }

    /// Commits an edit with nothing but a note; synced when this returns.
    ///
    /// # Errors
    /// `NoSpace` changes nothing; others poison the tree.
    pub fn commit_note(&self, note: &[u8]) -> Result<()> {
        self.commit(Edit::default(), 0, || note.to_vec())
    }

    /// Removes the files in the folder that the tree does not know: what jobs
    /// left behind when a process died. Answers their names. To be called when
    /// nothing is left that could ask for one of them.
    ///
    /// # Errors
    /// Errors of the file system; what was removed until then is gone.
    pub fn remove_unknown_files(&self) -> Result<Vec<String>> {
        self.check_writable()?;
        let mut removed = Vec::new();
        let file_system = &self.context.environment.file_system;
        // No job may begin a file meanwhile, and no edit name one.
        let jobs = lock(&self.jobs);
        if jobs.held || jobs.any() {
            return Ok(removed);
        }
        let manifest = lock(&self.manifest);
        let next = self.context.next_file.load(Ordering::Acquire);
        for entry in file_system.list(&self.context.folder)? {
            let Some(number) = number_in_name(&entry.name) else {
                continue;
            };
            // A reader may hold tables that no edit names any more.
            let known = number == manifest.number()
                || number >= next
                || self.context.graveyard.is_held(number);
            if !known {
                file_system.remove(&self.context.folder.join(&entry.name))?;
                removed.push(entry.name.to_string_lossy().into_owned());
            }
        }
        Ok(removed)
    }

    /// Closes the tree: jobs are given up, and the superblock says how many
    /// edits there are. What is in memtables is not flushed. Calls after this
    /// answer [`Error::Closed`]; cursors go on.
    ///
    /// # Errors
    /// What poisoned the tree, or an error of the superblock.
    pub fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        lock(&self.jobs).abandon();
        if let Some(original) = self.poison.get() {
            return Err(Error::poisoned_by(original));
        }
        lock(&self.manifest).confirm_both()
    }
}
