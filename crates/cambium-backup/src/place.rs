//! The folder of backups: what is in it, what a crash left, what is to be kept.

use std::cmp::Reverse;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{CheckReport, Finding, FindingKind, UnixMillis};
use cambium_base::{Error, Result, SequenceNumber, StoreId, hexdump};
use cambium_io::{DirectoryEntry, Environment, FileKind, FileLock, FileSystem, LockMode};

use crate::text::Fields;
use crate::{archive, text};

/// The file that makes a folder a place of backups.
const MARKER_NAME: &str = "BACKUPS";
const MARKER_LINE: &str = "cambium backups";
const FULL_LINE: &str = "cambium full backup";
/// Ends the name of a full backup's description.
const DESCRIPTION_END: &str = "-full.backup";
const LOCK_NAME: &str = "LOCK";

/// What a backup consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupKind {
    /// A copy of the store.
    Full,
    /// What was written since the backup before.
    Changes,
}

impl fmt::Display for BackupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BackupKind::Full => "full",
            BackupKind::Changes => "changes",
        })
    }
}

/// One backup: a state of the store that can be restored, unless it is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Its number; never given twice in a place.
    pub number: u32,
    /// What it consists of.
    pub kind: BackupKind,
    /// Where it begins: the backup before it ends there.
    pub after: SequenceNumber,
    /// The last write in it.
    pub through: SequenceNumber,
    /// When it was taken; zero where damage hides it.
    pub taken: UnixMillis,
    /// Bytes of its files.
    pub bytes: u64,
    /// Why it cannot be restored, as far as its end or its description shows. Damage elsewhere
    /// is found by a check.
    pub damage: Option<Finding>,
    /// The folder of a full backup, the file of an archive.
    pub(crate) path: PathBuf,
}

/// A folder of backups of one store.
#[derive(Debug)]
pub struct Place {
    pub(crate) environment: Environment,
    pub(crate) folder: PathBuf,
    pub(crate) id: StoreId,
    /// Of the store that is backed up here.
    pub(crate) store: StoreId,
    /// The number of the newest backup, as [`MARKER_NAME`] has it; 0 where it names none.
    newest: u32,
    /// Why [`MARKER_NAME`] cannot be read.
    damage: Option<Error>,
}

/// True for a folder of backups: it has the file that makes it one, or a full backup.
///
/// # Errors
/// Those of the file system.
pub fn is_place(files: &dyn FileSystem, folder: &Path) -> Result<bool> {
    if files.metadata(&folder.join(MARKER_NAME))?.is_some() {
        return Ok(true);
    }
    let found = files.metadata(folder)?;
    let is_folder = found.is_some_and(|found| found.kind == FileKind::Directory);
    Ok(is_folder && !descriptions(files, folder)?.is_empty())
}

/// The descriptions of full backups, the newest first.
fn descriptions(files: &dyn FileSystem, folder: &Path) -> Result<Vec<PathBuf>> {
    let names = files.list(folder)?.into_iter().map(|entry| entry.name);
    let numbered = names.filter_map(|name| {
        let number = number_before(&name.to_string_lossy(), DESCRIPTION_END)?;
        Some((number, folder.join(name)))
    });
    let mut numbered: Vec<_> = numbered.collect();
    numbered.sort_by_key(|(number, _)| Reverse(*number));
    Ok(numbered.into_iter().map(|(_, path)| path).collect())
}

/// The ids of place and store, which [`MARKER_NAME`] and each description have.
fn ids(fields: &Fields) -> Option<(StoreId, StoreId)> {
    let id = |name| -> Option<StoreId> {
        let bytes = hexdump::from_hex(&fields.parse::<String>(name)?)?;
        Some(StoreId(bytes.try_into().ok()?))
    };
    Some((id("place")?, id("store")?))
}

impl Place {
    /// Opens a folder of backups.
    ///
    /// # Errors
    /// `NotFound` where it is none, `Corruption`, and those of the file system.
    pub fn open(environment: &Environment, folder: &Path) -> Result<Place> {
        let files = &*environment.file_system;
        if !is_place(files, folder)? {
            return Err(Error::NotFound {
                kind: "folder of backups",
                name: folder.display().to_string(),
            });
        }
        let path = folder.join(MARKER_NAME);
        let read = text::read(files, &path, MARKER_LINE).and_then(|fields| match ids(&fields) {
            Some(ids) => Ok((ids, fields.parse("newest").unwrap_or(0))),
            None => Err(Error::corruption(
                &path,
                0,
                "expected the ids of place and store",
            )),
        });
        let (((id, store), newest), damage) = match read {
            Ok(read) => (read, None),
            Err(error) if is_damage(&error) => {
                let described = Place::described_ids(files, folder)?;
                let ids = described.ok_or_else(|| {
                    let what = "this file is missing or damaged, and no description of a full backup (`NUMBER-full.backup`) names the place and its store; each NUMBER-full is a store by itself; back up to another folder";
                    Error::corruption(&path, 0, what)
                })?;
                ((ids, 0), Some(error))
            }
            Err(error) => return Err(error),
        };
        Ok(Place {
            environment: environment.clone(),
            folder: folder.to_path_buf(),
            id,
            store,
            newest,
            damage,
        })
    }

    /// The ids in the newest description that is sound.
    fn described_ids(files: &dyn FileSystem, folder: &Path) -> Result<Option<(StoreId, StoreId)>> {
        for path in descriptions(files, folder)? {
            match text::read(files, &path, FULL_LINE) {
                Ok(fields) => {
                    if let Some(ids) = ids(&fields) {
                        return Ok(Some(ids));
                    }
                }
                Err(error) if error.is_corruption() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Names the newest backup in [`MARKER_NAME`], durably: its files may get lost. Writes the
    /// file anew where it is damaged.
    pub(crate) fn name_newest(&self, number: u32) -> Result<()> {
        match self.damage.is_none() && self.newest == number {
            true => Ok(()),
            false => write_marker(self.files(), &self.folder, (self.id, self.store), number),
        }
    }

    /// Adds the damage of [`MARKER_NAME`] to a check's findings.
    pub(crate) fn report_damage(&self, report: &mut CheckReport) -> Result<()> {
        let Some(error) = &self.damage else {
            return Ok(());
        };
        let how = "the full backups say what it said, but not whether the newest backup is missing; the next backup writes it anew";
        report.note_mended(error.clone(), how)?;
        if let Some(finding) = report.findings.last_mut() {
            finding.kind = FindingKind::Degraded;
        }
        Ok(())
    }

    /// Opens a folder of backups of a store, or makes it of one that is empty or not there.
    ///
    /// # Errors
    /// `AlreadyExists` where the folder holds something else, or another store's backups;
    /// `Corruption`, and those of the file system.
    pub fn open_or_create(
        environment: &Environment,
        folder: &Path,
        store: StoreId,
    ) -> Result<Place> {
        let files = &*environment.file_system;
        let refuse = |what: &str| {
            Err(Error::AlreadyExists {
                path: folder.to_path_buf(),
                what: what.to_string(),
            })
        };
        if is_place(files, folder)? {
            let place = Place::open(environment, folder)?;
            return match place.store == store {
                true => Ok(place),
                false => refuse("it holds the backups of another store; choose another folder"),
            };
        }
        if files.metadata(folder)?.is_none() {
            files.create_directory(folder)?;
            files.sync_directory(parent_of(folder))?;
        }
        let is_left = |name: &Path| {
            name == Path::new(LOCK_NAME) || name == Path::new(MARKER_NAME).with_extension("draft")
        };
        if files
            .list(folder)?
            .iter()
            .any(|entry| !is_left(&entry.name))
        {
            return refuse("the folder is not empty; backups need a folder of their own");
        }
        let mut id = [0; 16];
        environment.randomness.fill(&mut id);
        write_marker(files, folder, (StoreId(id), store), 0)?;
        Place::open(environment, folder)
    }

    /// All backups, oldest first. One that cannot be restored has its
    /// [`damage`](Backup::damage).
    ///
    /// # Errors
    /// Those of the file system.
    pub fn list(&self) -> Result<Vec<Backup>> {
        let files = self.files();
        let mut backups = Vec::new();
        for entry in files.list(&self.folder)? {
            let name = entry.name.to_string_lossy();
            let path = self.folder.join(&entry.name);
            let (number, kind, after, through, path) =
                if let Some(number) = number_before(&name, DESCRIPTION_END) {
                    let none = SequenceNumber(0);
                    let folder = self.full_folder(number);
                    (number, BackupKind::Full, none, none, folder)
                } else if let Some((number, after, through)) = parse_archive_name(&name) {
                    (number, BackupKind::Changes, after, through, path)
                } else {
                    continue;
                };
            let mut backup = Backup {
                number,
                kind,
                after,
                through,
                taken: UnixMillis(0),
                bytes: 0,
                damage: None,
                path,
            };
            let read = match kind {
                BackupKind::Full => self.read_full(&mut backup),
                BackupKind::Changes => self.read_end(&mut backup),
            };
            if let Err(error) = read {
                let mut report = CheckReport::default();
                report.take(error)?;
                backup.damage = report.findings.pop();
            }
            backups.push(backup);
        }
        backups.sort_by_key(|backup| backup.number);
        mark_broken_chains(&mut backups);
        if backups.last().map_or(0, |last| last.number) < self.newest {
            backups.push(self.missing_newest());
        }
        Ok(backups)
    }

    /// The newest backup, of which only the name in [`MARKER_NAME`] is left.
    fn missing_newest(&self) -> Backup {
        let number = self.newest;
        let path = self.folder.join(MARKER_NAME);
        let what = format!(
            "this names backup {number} as the newest; expected a file `{number:04}-AFTER-THROUGH.changes` or `{number:04}{DESCRIPTION_END}`: it is missing"
        );
        Backup {
            number,
            kind: BackupKind::Changes,
            after: SequenceNumber(0),
            through: SequenceNumber(0),
            taken: UnixMillis(0),
            bytes: 0,
            damage: Some(Finding {
                kind: FindingKind::Damage,
                file: path.clone(),
                offset: 0,
                what,
            }),
            path,
        }
    }

    /// Fills in what an archive's length and end say.
    fn read_end(&self, backup: &mut Backup) -> Result<()> {
        let found = self.files().metadata(&backup.path)?;
        backup.bytes = found.map_or(0, |found| found.length);
        backup.taken = archive::read_taken(self.files(), &backup.path, backup.through)?;
        Ok(())
    }

    /// Fills in what the folder and the description of a full backup say.
    fn read_full(&self, backup: &mut Backup) -> Result<()> {
        let files = self.files();
        if files.metadata(&backup.path)?.is_none() {
            return Err(Error::corruption(
                &backup.path,
                0,
                "the folder of this full backup is missing",
            ));
        }
        backup.bytes = folder_bytes(files, &backup.path)?;
        let path = self.description(backup.number);
        let fields = text::read(files, &path, FULL_LINE)?;
        let numbers = ["after", "through", "taken"].map(|name| fields.parse::<u64>(name));
        let ([Some(after), Some(through), Some(taken)], Some(true)) = (
            numbers,
            fields.parse::<u32>("number").map(|it| it == backup.number),
        ) else {
            return Err(Error::corruption(
                path,
                0,
                "expected what this full backup holds",
            ));
        };
        backup.after = SequenceNumber(after);
        backup.through = SequenceNumber(through);
        backup.taken = UnixMillis(taken);
        Ok(())
    }

    /// Removes the oldest chains, so that `chains` with a sound full backup, at least one, are
    /// left. Answers the backups that went.
    ///
    /// # Errors
    /// `InvalidArgument` for no chains at all, and as of [`Place::list`]; what was removed until then is gone.
    pub fn keep(&self, chains: usize) -> Result<Vec<Backup>> {
        if chains == 0 {
            return Err(Error::InvalidArgument(
                "to keep 0 chains of backups: keep 1 or more, or remove the folder".to_string(),
            ));
        }
        let _held = self.lock(LockMode::Exclusive)?;
        let backups = self.list()?;
        let begins: Vec<usize> = (0..backups.len())
            .filter(|&place| {
                backups[place].kind == BackupKind::Full && backups[place].damage.is_none()
            })
            .collect();
        let Some(first) = begins.len().checked_sub(chains) else {
            return Ok(Vec::new());
        };
        let files = self.files();
        let (gone, kept) = backups.split_at(begins[first]);
        // The newest first: what is left of a chain can be restored at every moment.
        for backup in gone.iter().rev() {
            let path = match backup.kind {
                BackupKind::Changes => backup.path.clone(),
                BackupKind::Full => self.description(backup.number),
            };
            files.remove(&path)?;
            files.sync_directory(&self.folder)?;
        }
        // This includes full copies that an earlier call did not come to.
        for entry in files.list(&self.folder)? {
            let number = number_before(&entry.name.to_string_lossy(), "-full");
            if number.is_some_and(|number| number < kept[0].number) {
                remove(files, &self.folder, &entry)?;
                files.sync_directory(&self.folder)?;
            }
        }
        Ok(gone.to_vec())
    }

    /// Removes what backups left that did not come to their end.
    pub(crate) fn remove_leftovers(&self, backups: &[Backup]) -> Result<()> {
        let files = self.files();
        for entry in files.list(&self.folder)? {
            let name = entry.name.to_string_lossy();
            let path = self.folder.join(&entry.name);
            if let Some(number) = number_before(&name, "-full") {
                let known = backups.iter().any(|backup| backup.number == number);
                let later = backups.last().is_some_and(|last| last.number > number);
                // With later backups behind it, it was one itself: a check says what is lost.
                if entry.kind == FileKind::Directory && !known && !later {
                    remove_folder(files, &path)?;
                }
            } else if name.ends_with(".draft") && entry.kind == FileKind::File {
                files.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Says durably that a full backup is whole.
    pub(crate) fn describe_full(
        &self,
        number: u32,
        (after, through): (SequenceNumber, SequenceNumber),
        taken: UnixMillis,
    ) -> Result<()> {
        let fields = [
            ("number", number.to_string()),
            ("after", after.to_string()),
            ("through", through.to_string()),
            ("taken", taken.0.to_string()),
            ("place", self.id.to_string()),
            ("store", self.store.to_string()),
        ];
        let path = self.description(number);
        text::write(self.files(), &path, FULL_LINE, &fields)
    }

    pub(crate) fn full_folder(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number:04}-full"))
    }

    fn description(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number:04}{DESCRIPTION_END}"))
    }

    pub(crate) fn archive_path(
        &self,
        number: u32,
        after: SequenceNumber,
        through: SequenceNumber,
    ) -> PathBuf {
        let name = format!("{number:04}-{after}-{through}.changes");
        self.folder.join(name)
    }

    pub(crate) fn archive_draft(&self) -> PathBuf {
        self.folder.join("changes.draft")
    }

    /// The name of the consumer that keeps what follows a backup.
    pub(crate) fn consumer(&self, number: u32) -> String {
        format!("{}{number}", self.consumers())
    }

    /// The beginning of the names of all consumers of this place.
    pub(crate) fn consumers(&self) -> String {
        format!("backup {} ", self.id)
    }

    pub(crate) fn lock(&self, mode: LockMode) -> Result<Box<dyn FileLock>> {
        self.files().lock(&self.folder.join(LOCK_NAME), mode)
    }

    pub(crate) fn files(&self) -> &dyn FileSystem {
        &*self.environment.file_system
    }

    pub(crate) fn now(&self) -> UnixMillis {
        let clock: &Arc<_> = &self.environment.clock;
        UnixMillis(clock.wall_nanoseconds() / 1_000_000)
    }
}

/// Makes a folder a place of backups, or names the newest one there.
fn write_marker(
    files: &dyn FileSystem,
    folder: &Path,
    (place, store): (StoreId, StoreId),
    newest: u32,
) -> Result<()> {
    let fields = [
        ("place", place.to_string()),
        ("store", store.to_string()),
        ("newest", newest.to_string()),
    ];
    text::write(files, &folder.join(MARKER_NAME), MARKER_LINE, &fields)
}

/// True for a file that is damaged, or not there.
fn is_damage(error: &Error) -> bool {
    CheckReport::default().take(error.clone()).is_ok()
}

/// Marks the archives that do not go on where a sound backup ends.
fn mark_broken_chains(backups: &mut [Backup]) {
    let mut end = None;
    for backup in backups {
        let follows = backup.kind == BackupKind::Full || end == Some(backup.after);
        if !follows && backup.damage.is_none() {
            backup.damage = Some(Finding {
                kind: FindingKind::Damage,
                file: backup.path.clone(),
                offset: 0,
                what: "the backup that ends where this one begins is missing or damaged"
                    .to_string(),
            });
        }
        end = backup.damage.is_none().then_some(backup.through);
    }
}

/// The number in a name that ends so.
fn number_before(name: &str, end: &str) -> Option<u32> {
    name.strip_suffix(end)?.parse().ok()
}

fn parse_archive_name(name: &str) -> Option<(u32, SequenceNumber, SequenceNumber)> {
    let mut parts = name.strip_suffix(".changes")?.split('-');
    let number = parts.next()?.parse().ok()?;
    let (after, through) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let is_whole = parts.next().is_none();
    is_whole.then_some((number, SequenceNumber(after), SequenceNumber(through)))
}

/// The folder that names this one.
pub(crate) fn parent_of(folder: &Path) -> &Path {
    match folder.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn folder_bytes(files: &dyn FileSystem, folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in files.list(folder)? {
        let path = folder.join(&entry.name);
        bytes += match entry.kind {
            FileKind::Directory => folder_bytes(files, &path)?,
            _ => files.metadata(&path)?.map_or(0, |found| found.allocated),
        };
    }
    Ok(bytes)
}

pub(crate) fn remove_folder(files: &dyn FileSystem, folder: &Path) -> Result<()> {
    for entry in files.list(folder)? {
        remove(files, folder, &entry)?;
    }
    files.remove_directory(folder)
}

/// Removes a file of a folder, or a folder in it with all that it holds.
pub(crate) fn remove(files: &dyn FileSystem, folder: &Path, entry: &DirectoryEntry) -> Result<()> {
    let path = folder.join(&entry.name);
    match entry.kind {
        FileKind::Directory => remove_folder(files, &path),
        _ => files.remove(&path),
    }
}
