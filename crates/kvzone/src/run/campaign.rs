//! Several stores, one after the other, in rounds: a campaign.
//!
//! ```text
//!  round 0:  zdb      leveldb  lmdb      each a process and a folder of its own
//!  round 1:  lmdb     zdb      leveldb   the order is the seed's
//!  round 2:  leveldb  lmdb     zdb
//! ```
//!
//! Everything that can be known to be wrong is refused before the first store
//! is opened. After that a campaign goes on whatever a store does: one whose
//! library is missing, or that cannot do a workload, is named once and left
//! out of later rounds; one that fails, crashes or hangs is named each time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kvzone_core::adapter::Profile;
use kvzone_core::driver;
use kvzone_core::error::{Error, Result};
use kvzone_core::job::{Job, Load, Until};
use kvzone_core::record::{Report, Run, SCHEMA, Status};
use kvzone_core::statistics::rounds;
use kvzone_core::workload::{self, Mix};

use crate::place::{self, Disk, RunFolder};
use crate::run::Stage;
use crate::supervisor::{self, supervise};
use crate::weather::Weather;
use crate::{machine, stores};

/// Room that is asked for beside the data: logs that stores preallocate.
const ROOM_BESIDE: u64 = 256 << 20;

/// What the load generator keeps of each key: its version.
const BYTES_OF_A_KEY: u64 = 4;

/// Copies of the data that a store may have on the disk at once, while it
/// compacts.
const COPIES: f64 = 2.5;

#[derive(Clone, Debug, Default)]
pub(crate) struct Contender {
    pub(crate) store: String,
    pub(crate) overrides: BTreeMap<String, String>,
    /// Compact it between load and run.
    pub(crate) compact: bool,
    /// How far its settings go, where not as far as those of all.
    pub(crate) profile: Option<Profile>,
    /// What tells it from another contender of the same store.
    pub(crate) variant: Option<String>,
}

impl Contender {
    pub(crate) fn of(store: &str) -> Contender {
        Contender {
            store: store.to_string(),
            ..Contender::default()
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Campaign {
    pub(crate) contenders: Vec<Contender>,
    pub(crate) loads: Vec<Load>,
    /// The settings that all jobs share; the first round writes a file that is recorded.
    pub(crate) job: Job,
    /// Folders with files that the loads name; they go away with the campaign.
    pub(crate) _kept: Vec<Arc<RunFolder>>,
    pub(crate) repeat: u32,
    /// Decides the order in rounds, and is the seed of the loads.
    pub(crate) seed: u64,
    pub(crate) directory: PathBuf,
    /// With a store that does not get on.
    pub(crate) patience: Duration,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) report: Report,
    pub(crate) warnings: Vec<String>,
    /// Somebody wanted the end before it was reached.
    pub(crate) stopped: bool,
}

impl Outcome {
    /// Itself, if nobody stopped it.
    pub(crate) fn whole(self) -> Result<Outcome> {
        match self.stopped {
            true => Err(Error::Stopped),
            false => Ok(self),
        }
    }
}

impl Campaign {
    pub(crate) fn stores(&self) -> Vec<String> {
        let names = self.contenders.iter();
        names.map(|contender| contender.store.clone()).collect()
    }

    pub(crate) fn job(
        &self,
        contender: &Contender,
        load: &Load,
        repeat: u32,
        folder: &Path,
    ) -> Job {
        Job {
            store: contender.store.clone(),
            repeat,
            folder: folder.to_path_buf(),
            profile: contender.profile.unwrap_or(self.job.profile),
            overrides: contender.overrides.clone(),
            compact: contender.compact,
            record: self.job.record.clone().filter(|_| repeat == 0),
            variant: contender.variant.clone(),
            load: load.clone(),
            ..self.job.clone()
        }
    }

    pub(crate) fn check(&self, directory: &Path) -> Result<()> {
        // First: what checks a load makes its tables.
        let most_keys = self.loads.iter().map(|load| load.keys).max().unwrap_or(0);
        let tables = most_keys.saturating_mul(BYTES_OF_A_KEY);
        place::check_memory(self.job.budget_bytes.saturating_add(tables))?;
        for load in &self.loads {
            driver::check(load, &self.job.steps, self.job.reopen)?;
            for contender in &self.contenders {
                let adapter = stores::find(&contender.store)?;
                let job = self.job(contender, load, 0, directory);
                match adapter.settings(&driver::open_request(&job)) {
                    // Its worker says so, and the others go on.
                    Ok(_) | Err(Error::Unsupported { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        place::check_room(directory, self.room_needed())
    }

    fn room_needed(&self) -> u64 {
        let needed = |load: &Load| {
            // No store keeps all versions of entries that are written again and again.
            let loads = self.job.steps.iter().filter_map(|step| step.act.load());
            let steps = loads.map(room_needed).max().unwrap_or(0);
            room_needed(load).max(steps)
        };
        self.loads.iter().map(needed).max().unwrap_or(0)
    }

    /// One store, one load, one round: a worker, and where it was killed, another that
    /// looks at what is left.
    pub(crate) fn turn(
        &self,
        directory: &Path,
        contender: &Contender,
        (load, repeat): (&Load, u32),
        stage: &mut Stage,
    ) -> Result<supervisor::Outcome> {
        let name = format!(
            "{}-{}-{repeat}",
            contender.store,
            place::file_name(&load.workload)
        );
        let folder = RunFolder::create(directory, &name)?;
        let job = self.job(contender, load, repeat, folder.path());
        let mut outcome = supervise(&job, self.patience, stage)?;
        if outcome.killed {
            let job = Job {
                after_kill: true,
                record: None,
                ..job
            };
            let judged = supervise(&job, self.patience, stage)?;
            outcome.runs.extend(judged.runs);
            outcome.notes.extend(judged.notes);
            outcome.stopped |= judged.stopped;
        }
        Ok(outcome)
    }

    /// Runs everything. An error is one of KVZone's own, or of its arguments.
    pub(crate) fn run(&self, stage: &mut Stage) -> Result<Outcome> {
        let directory = place::prepare(&self.directory)?;
        self.check(&directory)?;
        let disk = Disk::of(&directory);
        let before = Weather::now();
        let mut rest = Rest {
            campaign: self,
            directory: &directory,
            left_out: BTreeSet::new(),
            runs: Vec::new(),
            notes: Vec::new(),
        };
        let total = self.contenders.len() * self.loads.len() * self.repeat as usize;
        let mut done = 0;
        'all: for repeat in 0..self.repeat {
            for load in &self.loads {
                for place in rounds::order(self.seed, repeat, self.contenders.len()) {
                    let contender = &self.contenders[place];
                    let what = format!(
                        "round {} of {}, {} {}",
                        repeat + 1,
                        self.repeat,
                        load.workload,
                        contender.store
                    );
                    stage.begins(done, total, &what);
                    let ended = rest.turn(contender, load, repeat, stage)?;
                    done += usize::from(ended);
                    if stage.is_stopped() {
                        break 'all;
                    }
                }
            }
        }
        let between = before.and_then(|before| Some(Weather::now()?.since(&before)));
        let mut warnings = Vec::new();
        let stopped = done < total;
        if stopped {
            warnings.push(format!("stopped after {done} of {total} workers"));
        }
        if disk.is_memory() {
            warnings.push(format!(
                "{} is a file system in memory: nothing here says how stores do on a disk",
                directory.display()
            ));
        }
        warnings.extend(between.iter().flat_map(Weather::warnings));
        let mut machine = machine::describe(&disk, between.as_ref());
        machine["notes"] = rest.notes.clone().into();
        machine["warnings"] = warnings.clone().into();
        let report = Report {
            schema: SCHEMA.to_string(),
            machine,
            seed: self.seed,
            runs: rest.runs,
        };
        Ok(Outcome {
            report,
            warnings,
            stopped,
        })
    }
}

struct Rest<'a> {
    campaign: &'a Campaign,
    directory: &'a Path,
    /// Store and workload that are known to be in vain.
    left_out: BTreeSet<(String, String)>,
    runs: Vec<Run>,
    notes: Vec<String>,
}

impl Rest<'_> {
    /// False if the worker was ended before its time.
    fn turn(
        &mut self,
        contender: &Contender,
        load: &Load,
        repeat: u32,
        stage: &mut Stage,
    ) -> Result<bool> {
        let known = (
            contender.store.clone() + contender.variant.as_deref().unwrap_or_default(),
            load.workload.clone(),
        );
        if self.left_out.contains(&known) {
            return Ok(true);
        }
        let turn = (load, repeat);
        let outcome = self.campaign.turn(self.directory, contender, turn, stage)?;
        for run in &outcome.runs {
            if run.status != Status::Ok {
                stage.note(&what_happened(run));
            }
            if matches!(run.status, Status::Missing | Status::Unsupported) {
                self.left_out.insert(known.clone());
            }
        }
        for note in outcome.notes {
            if !self.notes.contains(&note) {
                stage.note(&note);
                self.notes.push(note);
            }
        }
        self.runs.extend(outcome.runs);
        Ok(!outcome.stopped)
    }
}

pub(crate) fn what_happened(run: &Run) -> String {
    let reason = run.error.as_deref().unwrap_or("no reason given");
    match run.status {
        // The reason names the store itself.
        Status::Missing | Status::Unsupported => reason.to_string(),
        status => format!("{} {}: {reason}", run.store, status.name()),
    }
}

/// Bytes that the hungriest store may need for a load.
fn room_needed(load: &Load) -> u64 {
    if let Some(trace) = &load.trace {
        let summary = &trace.summary;
        let entries = summary.at_start().entries + summary.values;
        let data = summary.at_start().bytes + summary.key_bytes + summary.value_bytes;
        return ((data + entries * 32) as f64 * COPIES) as u64 + ROOM_BESIDE;
    }
    let mix = workload::find(&load.workload).and_then(|workload| driver::mix(load, workload));
    let writes = mix.is_ok_and(|mix| mix.writes());
    let again = match load.until {
        Until::Operations(count) if writes => count,
        _ => 0,
    };
    let entry = load.key_bytes.mean() + load.value_bytes.mean();
    // Small entries have company: lengths, checksums, slots.
    let data = (load.keys as f64 + again as f64) * (entry + 32.0);
    (data * COPIES) as u64 + ROOM_BESIDE
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvzone_core::job::SizeChoice;

    #[test]
    fn room_grows_with_what_is_written_again() {
        let load = |workload: &str| Load {
            workload: workload.to_string(),
            value_bytes: SizeChoice::Fixed(1000),
            ..Load::default()
        };
        let read = room_needed(&load("read-random"));
        assert!(read > 2_000_000_000);
        assert!(room_needed(&load("overwrite")) > read + 2_000_000_000);
        assert_eq!(room_needed(&load("fill-random")), read);
    }
}
