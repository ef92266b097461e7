//! Taking expired entries away.
//!
//! A sweep is a pass over all entries, in steps. A step reads a stretch of a snapshot, and
//! deletes what has expired there in one transaction, which leaves alone what is written
//! meanwhile. The engine's compaction gives the space back. The next sweep begins when an
//! entry has expired since, and after a rest of ten times as long as the last one took, so
//! that sweeping never takes more than a tenth of the device.

use std::time::Duration;

use cambium_api::{Entry, IterationOrder, ResumeToken, Snapshot, Transaction, TransactionView};
use cambium_base::{Durability, Error, Result};
use cambium_io::StepOutcome;
use cambium_io::sync::atomic::Ordering;

use crate::form::Form;
use crate::seeded_bug::SeededBug;
use crate::store::{Base, Shared};

/// Rest after a sweep, in times of its length.
const RESTS: u32 = 10;
const LEAST_REST: Duration = Duration::from_secs(1);

/// How far sweeping has come.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    pass: Option<Pass>,
    /// Of the clock that never goes back.
    rests_until: Duration,
}

#[derive(Debug)]
struct Pass {
    began: Duration,
    /// Namespaces that are left, the one under way last.
    namespaces: Vec<String>,
    resume: Option<ResumeToken>,
}

impl Sweep {
    /// Does a piece of a sweep that reads about `budget` bytes, if one is due.
    pub fn step(&mut self, base: &Base, budget: u64) -> Result<StepOutcome> {
        let clock = &base.shared.environment.clock;
        let Some(pass) = &mut self.pass else {
            if !base.shared.expiry.is_due() || clock.monotonic() < self.rests_until {
                return Ok(StepOutcome::Idle);
            }
            let mut namespaces = base.engine.list_namespaces()?;
            namespaces.reverse();
            base.shared.expiry.begin_sweep();
            self.pass = Some(Pass {
                began: clock.monotonic(),
                namespaces,
                resume: None,
            });
            return Ok(StepOutcome::Again);
        };
        if let Err(error) = pass.step(base, budget) {
            // The next sweep tries again.
            self.end(base);
            return Err(error);
        }
        if pass.namespaces.is_empty() {
            self.end(base);
            return Ok(StepOutcome::Idle);
        }
        Ok(StepOutcome::Again)
    }

    /// The next step need not wait until a rest is over.
    pub fn end_rest(&mut self) {
        self.rests_until = Duration::ZERO;
    }

    fn end(&mut self, base: &Base) {
        let now = base.shared.environment.clock.monotonic();
        if let Some(pass) = self.pass.take() {
            if !pass.namespaces.is_empty() {
                base.shared.expiry.forget();
            }
            let took = now.saturating_sub(pass.began);
            self.rests_until = now + (took * RESTS).max(LEAST_REST);
        }
    }
}

impl Pass {
    fn step(&mut self, base: &Base, budget: u64) -> Result<()> {
        let Some(name) = self.namespaces.last().cloned() else {
            return Ok(());
        };
        let snapshot = base.engine.snapshot()?;
        let snapshot = match name.is_empty() {
            true => Some(snapshot),
            false => snapshot.namespace(&name)?,
        };
        let expired = match snapshot {
            Some(snapshot) => self.read(base, &*snapshot, budget)?,
            // It was dropped meanwhile.
            None => {
                self.next_namespace();
                Vec::new()
            }
        };
        match expired.is_empty() {
            true => Ok(()),
            false => delete(base, &name, &expired),
        }
    }

    fn next_namespace(&mut self) {
        self.namespaces.pop();
        self.resume = None;
    }

    /// The keys of a stretch that have expired.
    fn read(&mut self, base: &Base, snapshot: &dyn Snapshot, budget: u64) -> Result<Vec<Vec<u8>>> {
        let shared = &base.shared;
        let mut cursor = snapshot.iterate(IterationOrder::Any, self.resume.as_ref())?;
        let (mut expired, mut bytes) = (Vec::new(), 0);
        let mut resume = None;
        while let Some(Entry { key, value }) = cursor.next()? {
            bytes += (key.len() + value.len()) as u64;
            let form = shared.form_of(&key, &value)?;
            match form.expires {
                Some(_) if is_garbage(shared, form) => expired.push(key.to_vec()),
                Some(moment) => shared.expiry.note(moment),
                None => {}
            }
            if bytes >= budget {
                resume = cursor.resume_token();
                if resume.is_some() {
                    break;
                }
            }
        }
        shared.environment.pay_for_background(bytes);
        match resume.is_some() {
            true => self.resume = resume,
            false => self.next_namespace(),
        }
        Ok(expired)
    }
}

/// True if an entry has expired.
fn is_garbage(shared: &Shared, form: Form) -> bool {
    let takes_all = shared.seeded(SeededBug::SweepTakesAll);
    shared.has_expired(form, None) || (takes_all && form.expires.is_some())
}

/// Deletes entries that are still expired, unless another write of one comes between: then
/// all stay until the next sweep.
fn delete(base: &Base, namespace: &str, keys: &[Vec<u8>]) -> Result<()> {
    // A transaction would make a namespace anew that was dropped meanwhile.
    let mut namespaces = base.engine.list_namespaces()?.into_iter();
    if !namespaces.any(|name| name == namespace) {
        return Ok(());
    }
    let transaction = Transaction::begin(&base.engine, Durability::Buffered, None)?;
    let other;
    let view: &TransactionView = match namespace {
        "" => &transaction,
        name => {
            other = transaction.namespace(name)?;
            &other
        }
    };
    let mut deleted = 0;
    for key in keys {
        if let Some(stored) = view.get(key)? {
            let form = base.shared.form_of(key, &stored)?;
            if is_garbage(&base.shared, form) {
                view.delete(key)?;
                deleted += 1;
            }
        }
    }
    match transaction.commit() {
        Ok(_) => {
            base.shared
                .counters
                .swept
                .fetch_add(deleted, Ordering::Relaxed);
            Ok(())
        }
        Err(Error::Conflict { .. }) => {
            base.shared.expiry.forget();
            Ok(())
        }
        Err(other) => Err(other),
    }
}
