//! Making, opening and checking stores of engine `memory`.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cambium_api::changes::HISTORY_BYTES;
use cambium_api::{
    CheckReport, Engine, EngineKind, Error, Finding, FindingKind, OptionSpec, OptionValues,
    ProgressSink, Result,
};
use cambium_io::{Environment, FileLock, LockMode};
use cambium_storage::store_lock::lock_for_reading;

use super::Bug;
use super::engine::{MemoryStore, Settings};
use super::history::History;
use super::log::{FORMAT_VERSION, LOG_NAME, Log, NEW_NAME, Recovered};
use super::state::Moment;

/// The engine's name.
pub(super) const ENGINE: &str = "memory";
pub(super) const LOCK_NAME: &str = "LOCK";

/// Engine `memory` as a kind of store.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryKind;

const OPTIONS: [OptionSpec; 1] = [HISTORY_BYTES];

fn settings(options: &OptionValues) -> Result<Settings> {
    let mut options = options.clone();
    let bug = match options.take("seeded_bug") {
        None => None,
        Some(name) => {
            let known = Bug::ALL.iter().find(|(_, known)| *known == name);
            let known = known.map(|(bug, _)| *bug);
            Some(known.ok_or_else(|| {
                Error::InvalidArgument(format!("engine {ENGINE} has no seeded bug {name:?}"))
            })?)
        }
    };
    let history_bytes = options.take_u64(HISTORY_BYTES.name)?.unwrap_or(1 << 30);
    options.finish(ENGINE, &OPTIONS)?;
    Ok(Settings { bug, history_bytes })
}

/// Makes the folder if it is not there; refuses one that holds anything but
/// what a creation that did not finish left.
fn prepare_folder(environment: &Environment, path: &Path) -> Result<()> {
    let files = &environment.file_system;
    if files.metadata(path)?.is_none() {
        files.create_directory(path)?;
        if let Some(parent) = path.parent() {
            files.sync_directory(parent)?;
        }
        return Ok(());
    }
    for entry in files.list(path)? {
        let name = entry.name.to_string_lossy();
        if name != LOCK_NAME && name != NEW_NAME {
            return Err(Error::AlreadyExists {
                path: path.to_path_buf(),
                what: format!("the folder holds {name}"),
            });
        }
    }
    // A creation that was cut short may have left the folder's own name
    // unsynced.
    match path.parent() {
        Some(parent) => files.sync_directory(parent),
        None => Ok(()),
    }
}

/// Takes the lock, or `NotAStore` where there is no folder to hold one.
fn lock(environment: &Environment, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
    if environment.file_system.metadata(path)?.is_none() {
        return Err(Error::NotAStore {
            path: path.to_path_buf(),
            what: "there is nothing".to_string(),
        });
    }
    if environment
        .file_system
        .metadata(&path.join(LOG_NAME))?
        .is_none()
    {
        return Err(Error::NotAStore {
            path: path.to_path_buf(),
            what: format!("there is no {LOG_NAME}"),
        });
    }
    match mode {
        LockMode::Shared => lock_for_reading(&*environment.file_system, path),
        _ => environment.file_system.lock(&path.join(LOCK_NAME), mode),
    }
}

/// Cuts what is not valid off the log and makes the rest durable, before anything is
/// appended.
fn settle(recovered: &Recovered) -> Result<()> {
    let is_cut = recovered.length > recovered.log.end();
    if is_cut {
        recovered.log.cut_back()?;
    }
    if recovered.log.rewrite(recovered.base)? || is_cut {
        recovered.log.sync()?;
    }
    Ok(())
}

impl EngineKind for MemoryKind {
    fn name(&self) -> &'static str {
        ENGINE
    }

    fn format_version(&self) -> u32 {
        FORMAT_VERSION
    }

    fn summary(&self) -> &'static str {
        "an ordered map in memory over a log of batches: the model of the tests"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &OPTIONS
    }

    fn create(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
    ) -> Result<Arc<dyn Engine>> {
        let settings = settings(options)?;
        prepare_folder(environment, path)?;
        let lock = environment
            .file_system
            .lock(&path.join(LOCK_NAME), LockMode::Exclusive)?;
        let moment = Moment::default();
        let history = History::default();
        let log = Log::create(environment, path, None, &history, settings.bug)?;
        log.install(environment, path)?;
        let contents = (log, moment, history);
        let store = MemoryStore::new(environment, path, contents, (lock, true), settings)?;
        Ok(Arc::new(store))
    }

    fn open(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        _progress: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>> {
        let settings = settings(options)?;
        let bug = settings.bug;
        let lock = lock(environment, path, LockMode::Exclusive)?;
        // The process that made or renamed the log may have died before it
        // synced the folder: a synced write to a log without a durable name
        // would be lost.
        if bug != Some(Bug::FolderUnsynced) {
            environment.file_system.sync_directory(path)?;
        }
        let mut recovered = Log::read(environment, path, true, bug)?;
        if bug != Some(Bug::TornTailKept) {
            settle(&recovered)?;
            recovered.history.synced = recovered.moment.sequence;
        }
        if bug == Some(Bug::SequenceReused) {
            recovered.moment.sequence = Default::default();
        }
        let contents = (recovered.log, recovered.moment, recovered.history);
        let store = MemoryStore::new(environment, path, contents, (lock, true), settings)?;
        Ok(Arc::new(store))
    }

    fn open_read_only(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        _progress: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>> {
        let settings = settings(options)?;
        let lock = lock(environment, path, LockMode::Shared)?;
        let cuts = settings.bug == Some(Bug::ReaderCuts);
        let recovered = Log::read(environment, path, cuts, settings.bug)?;
        if cuts {
            settle(&recovered)?;
        }
        let contents = (recovered.log, recovered.moment, recovered.history);
        let store = MemoryStore::new(environment, path, contents, (lock, false), settings)?;
        Ok(Arc::new(store))
    }

    fn check(
        &self,
        environment: &Environment,
        path: &Path,
        _options: &OptionValues,
        _progress: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        let recovered = match Log::read(environment, path, false, None) {
            Ok(recovered) => recovered,
            Err(Error::Corruption { file, offset, what }) => {
                let finding = Finding {
                    kind: FindingKind::Damage,
                    file,
                    offset,
                    what,
                };
                return Ok(CheckReport {
                    findings: vec![finding],
                    ..CheckReport::default()
                });
            }
            Err(error) => return Err(error),
        };
        Ok(report(path, &recovered))
    }

    fn inspect(&self, environment: &Environment, path: &Path, to: &mut dyn Write) -> Result<()> {
        let recovered = Log::read(environment, path, false, None)?;
        super::engine::write_moment(&recovered.moment, path, to)
    }

    fn repair(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        let report = self.check(environment, path, options, progress)?;
        self.open(environment, path, options, progress)?.close()?;
        Ok(report)
    }
}

/// What a log that could be read looks like.
pub(super) fn report(path: &Path, recovered: &Recovered) -> CheckReport {
    let mut report = CheckReport {
        entries: recovered.moment.map.len() as u64,
        bytes: recovered.log.end(),
        files: 1,
        ..CheckReport::default()
    };
    if recovered.length > recovered.log.end() {
        report.findings.push(Finding {
            kind: FindingKind::Note,
            file: path.join(LOG_NAME),
            offset: recovered.log.end(),
            what: format!(
                "{} bytes that are no valid record: a torn tail",
                recovered.length - recovered.log.end()
            ),
        });
    }
    report
}
