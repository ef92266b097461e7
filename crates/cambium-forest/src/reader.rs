//! Opening for reading alone, beside a process that writes.
//!
//! A reader shows one moment: the newest database header and the whole batches that the log
//! holds behind it. It writes nothing, and the two processes exchange no messages. The moment
//! stays readable because of what the writer does to a database file:
//!
//! | the writer | the reader |
//! |---|---|
//! | appends records, nodes and headers | ends its log at the last record that it has met |
//! | replaces the file by a compaction, and removes its name | has the file open |
//! | gives the beginning of a file back (a cleaned tail, or what only consumers need) | holds a shared lock of each file that it has open; the writer frees space only under an exclusive one, and rewrites the store where it gets none |
//! | dies, and is followed by a writer that recovers | has met no more than what that writer keeps, and writes over itself |
//!
//! While the reader reads superblock and log, the writer changes both. A copy of the
//! superblock or the last record may then be half written, and the file may be replaced between
//! two steps. Each such sight looks like damage and is gone a moment later, while damage
//! stays. So an opening that fails is repeated until it fails in the same way several times.
//!
//! A [refresh](Core::refresh) takes a newer moment. While the superblock is the same, it reads
//! what the log has gained; otherwise it begins again at the newest header. Snapshots and
//! cursors keep the view that they have, with its file.
//!
//! One moment is not kept: a write that fails for lack of space, although its space was taken
//! before, is cut off the log again. A reader that met it in between shows it, or answers
//! `Corruption` where something else lies there by now, until its next refresh.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cambium_api::{OptionValues, ProgressSink};
use cambium_base::{Error, Result};
use cambium_io::sync::atomic::Ordering;
use cambium_io::{Environment, FileLock, LockMode};
use cambium_storage::store_lock::Unlocked;
use cambium_storage::superblock::{self, Superblock};

use crate::buffer::KeptMoments;
use crate::core::{Core, Maintenance, lock};
use crate::database::Database;
use crate::format::{self, FORMAT_VERSION, Root};
use crate::memory;
use crate::open::{attach, newest_state, read_marker, read_root, view_of};
use crate::options::{ENGINE, Tuning};
use crate::replay::{Accepted, ReaderRule, ReplayStart};
use crate::seeded_bug::SeededBug;
use crate::view::View;

/// An opening that fails in the same way so often has met damage.
const SAME_FAILURES: u32 = 4;
/// Openings that fail in different ways, before the reader gives up.
const MOST_FAILURES: u32 = 200;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(2);

/// Opens a store for reading alone, and changes nothing. Other processes may read it, and one
/// may write it.
pub(crate) fn open_read_only(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<Arc<Core>> {
    let mut options = options.clone();
    let plan = memory::plan(environment, &mut options)?;
    let (tuning, fixed) = Tuning::of_opening(&options)?;
    let environment = &tuning.segmented(environment);
    let core = settled(environment, || {
        open_once(environment, path, tuning, progress)
    })?;
    _ = core.memory.set(plan);
    fixed.check_fixed(&core.shape.as_options())?;
    Ok(core)
}

/// Repeats what reads a store that another process may be writing, while it meets what may
/// pass.
fn settled<T>(environment: &Environment, mut read: impl FnMut() -> Result<T>) -> Result<T> {
    let (mut before, mut same) = (String::new(), 0);
    for _ in 0..MOST_FAILURES {
        let error = match read() {
            Err(error) if may_pass(&error) => error,
            other => return other,
        };
        let failure = error.to_string();
        same = if failure == before { same + 1 } else { 1 };
        if same == SAME_FAILURES {
            return Err(error);
        }
        before = failure;
        environment.clock.sleep(PAUSE);
    }
    read()
}

/// True for what a reader meets where a writer is at work.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Corruption { .. } | Error::Locked { .. } => true,
        Error::Io { source, .. } => {
            matches!(
                source.kind(),
                ErrorKind::NotFound | ErrorKind::UnexpectedEof
            )
        }
        _ => false,
    }
}

fn open_once(
    environment: &Environment,
    path: &Path,
    tuning: Tuning,
    progress: &dyn ProgressSink,
) -> Result<Arc<Core>> {
    let store = read_marker(&*environment.file_system, path)?.store;
    let (_, named) = read_root(environment, path, store)?;
    let held = lock_file(environment, path, &named)?;
    let core = attach(
        environment,
        path,
        store,
        tuning,
        (Box::new(Unlocked), false),
    )?;
    let mut maintenance = lock(&core.maintenance);
    // Its space may have been given back before it was locked.
    refuse_replaced(path, &named, &maintenance.root)?;
    let view = core.view.load_full();
    _ = view.database.reader_lock.set(held);
    if !maintenance.root.clean {
        let start = ReplayStart {
            reader: Some(ReaderRule {
                newest_header: core.newest_header_for_reader(&maintenance),
                until_zeros: false,
            }),
            ..maintenance.replay_start()
        };
        let (_, accepted) = core.replay(&view.database, &start, progress)?;
        core.take_replayed(&mut maintenance, View::clone(&view), accepted);
        cambium_io::events::recovered(ENGINE, path, core.visible.load(Ordering::Acquire));
    }
    drop(maintenance);
    Ok(core)
}

/// The lock that keeps the writer from giving back a part of a database file.
fn lock_file(environment: &Environment, folder: &Path, root: &Root) -> Result<Box<dyn FileLock>> {
    let path = format::database_path(folder, root.file.number);
    environment.file_system.lock(&path, LockMode::SharedData)
}

/// Fails where a compaction has replaced a file that was to be opened.
fn refuse_replaced(folder: &Path, named: &Root, now: &Root) -> Result<()> {
    if named.file == now.file {
        return Ok(());
    }
    let path = format::database_path(folder, named.file.number);
    Err(Error::io("open", path, ErrorKind::NotFound.into()))
}

impl Core {
    /// Takes a newer moment, if the store was opened for reading alone.
    pub fn refresh(&self) -> Result<()> {
        self.check_open()?;
        if self.home.writable {
            return Ok(());
        }
        settled(&self.environment, || {
            let mut maintenance = lock(&self.maintenance);
            self.check_open()?;
            let files = &*self.environment.file_system;
            let now = superblock::read(files, &self.path, &self.home.store, FORMAT_VERSION)?;
            if now.generation != maintenance.superblock.generation() {
                self.take_newest_header(&mut maintenance)
            } else if maintenance.root.clean {
                Ok(())
            } else {
                self.follow_log(&mut maintenance)
            }
        })
    }

    /// Takes what the log has gained behind the same header.
    fn follow_log(&self, maintenance: &mut Maintenance) -> Result<()> {
        let view = self.view.load_full();
        let accepted = self.replay_rest(&view.database, maintenance)?;
        self.take_replayed(maintenance, View::clone(&view), accepted);
        Ok(())
    }

    /// What the log has behind the last record that was met.
    fn replay_rest(&self, database: &Database, maintenance: &Maintenance) -> Result<Accepted> {
        let rule = ReaderRule {
            newest_header: self.newest_header_for_reader(maintenance),
            until_zeros: true,
        };
        let start = match maintenance.root.clean {
            true => maintenance.replay_start(),
            false => ReplayStart {
                offset: maintenance.read_to,
                session: maintenance.root.session,
                sequence: self.visible.load(Ordering::Acquire),
                end: maintenance.read_to,
                synced_through: self.synced_through.load(Ordering::Acquire),
                reader: None,
            },
        };
        let start = ReplayStart {
            reader: Some(rule),
            ..start
        };
        Ok(self.replay(database, &start, &())?.1)
    }

    /// Begins again at the newest header.
    fn take_newest_header(&self, maintenance: &mut Maintenance) -> Result<()> {
        let before = self.view.load_full();
        let (opened, superblock, root) = self.open_named()?;
        let mut newest = newest_state(&opened, superblock, root)?;
        // What is cached of a file stays. Its log ends where readers have met it: the header
        // lies behind that.
        let database = match root.file == before.database.file {
            true => before.database.clone(),
            false => opened,
        };
        let replayed = match newest.root.clean {
            true => None,
            false => {
                let start = ReplayStart {
                    reader: Some(ReaderRule {
                        newest_header: self.newest_header_for_reader(&newest),
                        until_zeros: true,
                    }),
                    ..newest.replay_start()
                };
                Some(self.replay(&database, &start, &())?.1)
            }
        };
        if root.file != before.database.file {
            self.end_replaced(&before.database, maintenance)?;
        }
        let header = &newest.header;
        self.history.follow(&self.home, header, database.clone())?;
        let view = view_of(header, database, &self.home, self.hash_seed);
        let accepted = replayed.unwrap_or_else(|| Accepted {
            cut: header.sequence,
            promised: header.sequence,
            end: newest.root.end,
            ..Accepted::default()
        });
        self.take_replayed(&mut newest, view, accepted);
        *maintenance = newest;
        Ok(())
    }

    /// The header behind which a rollback ends the replay of a reader.
    fn newest_header_for_reader(&self, maintenance: &Maintenance) -> u64 {
        match self.has_bug(SeededBug::ReaderPassesRollback) {
            true => u64::MAX,
            false => maintenance.root.header,
        }
    }

    /// The file that the superblock names, and what the superblock says once the file is
    /// locked: the writer may have given back, or written over, what earlier headers reach.
    fn open_named(&self) -> Result<(Arc<Database>, Superblock, Root)> {
        let read = || read_root(&self.environment, &self.path, self.home.store);
        let (_, named) = read()?;
        let held = lock_file(&self.environment, &self.path, &named)?;
        let (superblock, root) = read()?;
        refuse_replaced(&self.path, &named, &root)?;
        let end = root.clean.then_some(root.end);
        let database = Database::open(&self.home, root.file, &self.tuning, end, root.shape)?;
        _ = database.reader_lock.set(held);
        Ok((Arc::new(database), superblock, root))
    }

    /// Meets the rest of a file that a compaction has replaced, for feeds that read it.
    fn end_replaced(&self, replaced: &Database, maintenance: &Maintenance) -> Result<()> {
        let rest = self.replay_rest(replaced, maintenance)?;
        replaced.log.follow_to(rest.end);
        replaced.end_with(rest.cut);
        Ok(())
    }

    /// Shows a view with what was replayed behind it.
    fn take_replayed(&self, maintenance: &mut Maintenance, view: View, accepted: Accepted) {
        let Accepted {
            found,
            cut,
            promised,
            end,
            ..
        } = accepted;
        maintenance.read_to = end;
        view.database.log.follow_to(end);
        let newest_header = maintenance.root.header;
        view.database
            .newest_header
            .store(newest_header, Ordering::Release);
        let kept = match self.has_bug(SeededBug::RefreshDropsPinned) {
            true => KeptMoments::default(),
            false => self.kept_moments(),
        };
        let view = self.refill(view, found, &kept);
        self.synced_through.fetch_max(promised, Ordering::AcqRel);
        let _writer = lock(&self.writer);
        // Both at once for who pins a moment.
        let _pins = lock(&self.pins);
        self.visible.store(cut, Ordering::Release);
        self.change_view(|_| view);
    }
}
