//! Repair: a damaged store is brought back to what can be read.
//!
//! The log is the truth. A repair only adds files until it has a whole store
//! beside the old one, and then switches by one write of the superblock:
//!
//! 1. Where the store was not closed, the tails after the last checkpoint and the
//!    commit logs are read and accepted, across gaps too ([`tails`]).
//! 2. Every data file is read ([`place`]). One with damage or with a tail is copied:
//!    its sound live entries, and the accepted entries after the last checkpoint.
//! 3. Every index is built anew from the data files.
//! 4. Both copies of the superblock name the result, a closed store. Until here a
//!    killed repair has changed nothing but damaged headers, and can run again.
//! 5. The store is opened; no recovery follows. Since the superblock says that string keys
//!    were not counted, the opening counts them, and puts them back into the buckets they
//!    belong to. So does the next opening where the repair is killed here.
//! 6. The store is closed and checked; what the check finds goes into the report.
//!
//! Each loss is a finding. Where the superblock itself is lost, the catalog is
//! made anew from the headers of the files ([`catalog`]).

mod catalog;
mod place;
mod tails;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    CheckReport, Finding, FindingKind, OptionValues, Progress, ProgressSink, Seeded,
};
use cambium_base::{Durability, Error, Result, Value};
use cambium_index::BucketMap;
use cambium_io::{Environment, File, OpenOptions};
use cambium_storage::consumers::{CONSUMERS_NAME, Consumers};
use cambium_storage::file_header::FileHeader;
use cambium_storage::marker::{self, FilesOfEngine, Marker};
use cambium_storage::superblock::{self, Superblock, SuperblockContent};

use crate::bucket::Bucket;
use crate::catalog::{Catalog, UNCOUNTED};
use crate::core::Core;
use crate::data_file::Home;
use crate::format::{self, COMMIT_MAGIC, DATA_MAGIC, FORMAT_VERSION};
use crate::open::write_commit_header;
use crate::options::{ENGINE, Keys, Tuning};
use crate::rebuild::write_index;
use crate::seeded_bug::SeededBug;
use crate::write::{Change, WriteRequest};
use catalog::LostCatalog;
use place::OldIndex;
use tails::{PlaceTail, PlaceTails};

/// Repairs a store; each loss is a finding.
pub(crate) fn repair(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let (tuning, _) = Tuning::of_opening(options)?;
    let file_system = &*environment.file_system;
    let magics = [DATA_MAGIC, format::INDEX_MAGIC, COMMIT_MAGIC].map(|magic| ("", magic));
    let files = FilesOfEngine {
        magics: &magics,
        has_name: crate::open::is_of_zdb_alone,
    };
    let known = || marker::known_marker(file_system, path, ENGINE, FORMAT_VERSION, files);
    let (marker, damage, held) = marker::mend_and_lock(file_system, path, known)?;
    let mut repair = Repair {
        environment,
        path,
        marker: &marker,
        report: CheckReport::default(),
        seeded_bug: tuning.seeded_bug,
    };
    repair.build(progress)?;
    repair.mend_consumers()?;
    drop(held);
    let mut report = repair.report;
    crate::open::open(environment, path, options, progress)?.close()?;
    if let Some(damage) = damage {
        report.note_mended(damage, "it is made anew")?;
    }
    prove(environment, path, (options, progress), &mut report)?;
    Ok(report)
}

/// Checks the result: what is still wrong is a finding of the repair.
fn prove(
    environment: &Environment,
    path: &Path,
    (options, progress): (&OptionValues, &dyn ProgressSink),
    report: &mut CheckReport,
) -> Result<()> {
    let proof = crate::check::check(environment, path, options, progress)?;
    report.entries = proof.entries;
    report.files = proof.files;
    report.bytes = proof.bytes;
    for finding in proof.findings {
        if finding.kind == FindingKind::Damage {
            let what = format!("after the repair: {}", finding.what);
            report.findings.push(Finding { what, ..finding });
        }
    }
    Ok(())
}

/// Counts the string keys where they lie: for a store that is open for reading.
pub(crate) fn count_for_reading(core: &Core) -> Result<()> {
    let mut numbers = Vec::new();
    core.for_each_key(|number| numbers.push(number))?;
    let mut keys = 0;
    for number in numbers {
        keys += core.read_bucket(number, None)?.pairs.len() as u64;
    }
    core.buckets.recovered(core.buckets.count(), keys);
    Ok(())
}

/// Counts the string keys, and moves those that a lost split left in a bucket
/// where no reader looks for them, in one batch.
pub(crate) fn count_string_keys(core: &Arc<Core>) -> Result<()> {
    let mut numbers = Vec::new();
    core.for_each_key(|number| numbers.push(number))?;
    let count = core.buckets.count();
    let map = BucketMap::new(count);
    let mut keys = 0;
    let mut changed: BTreeMap<u64, Bucket> = BTreeMap::new();
    let mut strays = Vec::new();
    for number in numbers {
        let mut bucket = Bucket::of(core.read_bucket(number, None)?.pairs);
        let at_home = |(key, _): &(Value, Value)| map.bucket(core.buckets.hash(key)) == number;
        if bucket.pairs.iter().all(at_home) {
            keys += bucket.pairs.len() as u64;
            continue;
        }
        let (kept, moved): (Vec<_>, Vec<_>) = bucket.pairs.drain(..).partition(at_home);
        keys += kept.len() as u64;
        changed.insert(number, Bucket::of(kept));
        strays.extend(moved);
    }
    for (key, value) in strays {
        let number = map.bucket(core.buckets.hash(&key));
        let target = match changed.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                vacant.insert(Bucket::of(core.read_bucket(number, None)?.pairs))
            }
        };
        // The pair of the right bucket is newer.
        if target.pairs.iter().all(|(known, _)| *known != key) {
            target.pairs.push((key, value));
            keys += 1;
        }
    }
    if !changed.is_empty() {
        let changes = changed.into_iter().map(|(key, bucket)| Change::Put {
            key,
            value: bucket.encode(),
        });
        core.write_request(WriteRequest::new(changes.collect(), Durability::Written))?;
    }
    core.buckets.recovered(count, keys);
    // The checkpoint of the close writes the count.
    core.begin_session()
}

/// Reads a whole file: the next recovery may have to.
fn read_through(file: &dyn File) -> Result<()> {
    let mut chunk = vec![0; 1 << 16];
    let mut offset = 0;
    loop {
        match file.read_at(&mut chunk, offset)? {
            0 => return Ok(()),
            count => offset += count as u64,
        }
    }
}

/// The entries beside those of the data files before their replay offsets.
enum Found<'a> {
    /// The store was closed.
    Nothing,
    /// The store was not closed.
    Tails(&'a mut PlaceTails),
    /// No superblock is left.
    Lost(&'a LostCatalog),
}

struct Repair<'a> {
    environment: &'a Environment,
    path: &'a Path,
    marker: &'a Marker,
    report: CheckReport,
    seeded_bug: Seeded<SeededBug>,
}

impl Repair<'_> {
    fn note(&mut self, file: &Path, offset: u64, what: impl Into<String>) {
        self.report.findings.push(Finding {
            kind: FindingKind::Damage,
            file: file.to_path_buf(),
            offset,
            what: what.into(),
        });
    }

    fn home(&self, catalog: &Catalog) -> Home {
        Home {
            file_system: self.environment.file_system.clone(),
            folder: self.path.to_path_buf(),
            store: self.marker.store,
            shape: catalog.shape,
            writable: true,
            seeded_bug: Seeded::default(),
        }
    }

    /// Makes a whole store beside the damaged one, and switches to it.
    fn build(&mut self, progress: &dyn ProgressSink) -> Result<()> {
        let (mut catalog, newest, lost) = match self.catalog()? {
            Some((catalog, newest)) => (catalog, newest, None),
            None => {
                let (catalog, lost) = self.catalog_from_files()?;
                (catalog, (1 << 32, 1), Some(lost))
            }
        };
        self.number_files_above_all(&mut catalog)?;
        self.mend_commit_logs(&mut catalog)?;
        let home = self.home(&catalog);
        let mut tails = match catalog.clean || lost.is_some() {
            true => None,
            false => Some(self.accepted_tails(&home, &mut catalog, progress)?),
        };
        let numbers: Vec<u64> = catalog.tables.keys().copied().collect();
        for (done, &number) in numbers.iter().enumerate() {
            progress.report(Progress {
                phase: "repair",
                done: done as u64,
                total: Some(numbers.len() as u64),
            });
            let found = match (&lost, &mut tails) {
                (Some(lost), _) => Found::Lost(lost),
                (None, Some(tails)) => Found::Tails(tails),
                (None, None) => Found::Nothing,
            };
            self.repair_table(&home, &mut catalog, number, found)?;
        }
        if lost.is_some() {
            let last = catalog.durable_sequence;
            catalog.name_closed(last);
        }
        self.end_history(&mut catalog);
        if lost.is_some() || tails.is_some() {
            // Everything that was found is in the data files now.
            catalog.last_session += 1;
            catalog.session = catalog.last_session;
        }
        if catalog.shape.keys == Keys::String {
            catalog.string_keys = UNCOUNTED;
        }
        self.environment.file_system.sync_directory(self.path)?;
        if self.seeded_bug.is(SeededBug::EmptyIndexNamed) {
            let mut empty = catalog.clone();
            for table in empty.tables.values_mut() {
                table.pieces.fill(0);
            }
            self.write_superblock(&empty, newest)?;
        }
        self.write_superblock(&catalog, newest)
    }

    /// Removes the list of consumers where it is damaged: each begins anew.
    fn mend_consumers(&mut self) -> Result<()> {
        let files = &*self.environment.file_system;
        match Consumers::read(files, self.path, self.marker.store) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.report.take(error)?;
                files.remove(&self.path.join(CONSUMERS_NAME))
            }
        }
    }

    /// Lets the change feed begin anew after the repair: entries that were copied or lost
    /// leave gaps in what it would show.
    fn end_history(&mut self, catalog: &mut Catalog) {
        let past = std::mem::take(&mut catalog.past);
        catalog.past.lost = catalog.durable_sequence;
        for kept in past.kept {
            self.report.findings.push(Finding {
                kind: FindingKind::Note,
                file: kept.path(self.path),
                offset: 0,
                what: "the repair ends the history of changes, and removes this file of it".into(),
            });
        }
    }

    /// The catalog of the newest sound superblock, with its generation and copy.
    fn catalog(&mut self) -> Result<Option<(Catalog, (u64, usize))>> {
        let file_system = &*self.environment.file_system;
        let store = &self.marker.store;
        // The older copy may lead to less where files are damaged, so a copy that cannot be
        // read is read once more.
        let found = superblock::read(file_system, self.path, store, FORMAT_VERSION)
            .or_else(|_| superblock::read_either(file_system, self.path, store, FORMAT_VERSION));
        let content = match found {
            Ok(content) => content,
            Err(error) => {
                self.report.take(error)?;
                return Ok(None);
            }
        };
        self.report.note_other_copy(content.other_copy.as_ref());
        let catalog = Catalog::decode(&content.payload);
        if catalog.is_none() {
            let copy = superblock::copy_path(self.path, content.copy);
            self.note(&copy, 0, "no catalog of this format");
        }
        Ok(catalog.map(|catalog| (catalog, (content.generation, content.copy))))
    }

    /// A file that no catalog names may belong to one that was lost: its name is
    /// not used again.
    fn number_files_above_all(&self, catalog: &mut Catalog) -> Result<()> {
        for entry in self.environment.file_system.list(self.path)? {
            let number = format::number_of(&entry.name.to_string_lossy());
            catalog.next_file = catalog.next_file.max(number.unwrap_or(0) + 1);
        }
        Ok(())
    }

    /// Writes damaged headers of commit logs anew, and makes logs that are missing.
    fn mend_commit_logs(&mut self, catalog: &mut Catalog) -> Result<()> {
        let file_system = &*self.environment.file_system;
        for log in 0..2 {
            let path = format::commit_path(self.path, log);
            let identity = self.home(catalog).identity(catalog.commit_logs[log]);
            let sound = file_system.open(&path, OpenOptions::READ).and_then(|file| {
                FileHeader::read(&*file, COMMIT_MAGIC, FORMAT_VERSION)?
                    .check_identity(&path, &identity)?;
                match catalog.clean {
                    true => read_through(&*file),
                    false => Ok(()),
                }
            });
            let Err(error) = sound else { continue };
            let unreadable = matches!(
                error,
                Error::Io {
                    operation: "read",
                    ..
                }
            );
            match catalog.clean && unreadable {
                // The closed store needs no frame, so the log begins anew.
                true => self.note(&path, 0, error.to_string()),
                false => self.report.take(error)?,
            }
            let (shape, hash_seed) = (&catalog.shape, catalog.hash_seed);
            let access = OpenOptions {
                truncate: catalog.clean && unreadable,
                ..OpenOptions::CREATE
            };
            write_commit_header(file_system, (&path, access), shape, hash_seed, identity)?;
        }
        Ok(())
    }

    /// Repairs the data files of a table, and builds its index anew.
    fn repair_table(
        &mut self,
        home: &Home,
        catalog: &mut Catalog,
        number: u64,
        mut found: Found<'_>,
    ) -> Result<()> {
        let Some(mut entry) = catalog.tables.get(&number).cloned() else {
            return Ok(());
        };
        let mut old = OldIndex::new(number, &entry);
        let mut contents = Vec::with_capacity(entry.files.len());
        for (place, data) in entry.files.iter_mut().enumerate() {
            let at = (number, place as u32);
            let content = match &mut found {
                Found::Lost(lost) => self.merge_place(home, catalog, (data, at), lost)?,
                Found::Tails(tails) => {
                    data.successor = None;
                    let tail = tails.remove(&at).unwrap_or_default();
                    self.repair_place(home, catalog, (data, at), &mut old, tail)?
                }
                Found::Nothing => {
                    let tail = PlaceTail::default();
                    self.repair_place(home, catalog, (data, at), &mut old, tail)?
                }
            };
            (data.entries, data.live) = (content.entries, content.live.len() as u64);
            contents.push(content);
        }
        entry.index = catalog.new_file(self.environment.randomness.next_u64());
        entry.pieces = write_index(home, number, entry.index, &contents)?;
        catalog.tables.insert(number, entry);
        Ok(())
    }

    /// Writes both copies, the newest sound one last.
    fn write_superblock(&self, catalog: &Catalog, newest: (u64, usize)) -> Result<()> {
        let (generation, copy) = newest;
        let content = SuperblockContent {
            payload: Vec::new(),
            generation,
            copy,
            other_copy: None,
        };
        let mut superblock = Superblock::resume(
            &self.environment.file_system,
            self.path,
            self.marker.store,
            FORMAT_VERSION,
            &content,
        );
        // A sector of the older copy may be one that cannot be read.
        let payload = catalog.encode();
        superblock.renew(&payload)?;
        superblock.write(&payload)?;
        self.environment.file_system.sync_directory(self.path)
    }
}
