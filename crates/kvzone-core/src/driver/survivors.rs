//! What was acknowledged, held against what is there after the process was killed.
//!
//! Each key that was ever written is read from the store that was opened again. The
//! last write of it that was acknowledged must be there; so may one that had been
//! asked for and not answered. Everything else is a loss: nothing came, or an older
//! version, or a key that had been deleted. A value that nobody wrote is worse than a
//! loss, and is told at every durability.
//!
//! A store that promised no more than `buffered` may lose what it had in memory. One
//! that promised `written` or `synced` may lose nothing by the death of its process;
//! what a power cut would take is not seen here.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::ledger;
use super::plan::Plan;
use crate::adapter::{DurabilityName, Session};
use crate::error::{Error, Result};
use crate::record::AfterKill;
use crate::values::hexadecimal;
use crate::versions::Known;

/// Reads between two signs of life.
const REPORT_EVERY: u64 = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Survivors {
    #[serde(flatten)]
    counts: AfterKill,
    /// About the first that is not as it should be.
    first: Option<String>,
}

pub(super) fn known(plan: &Plan, threads: u32, run: &Path) -> Result<BTreeMap<u64, Known>> {
    let mut later = BTreeMap::new();
    let mut take = |number: u64, bits: u32| match number < plan.versions.count() {
        true => plan.versions.set(number, Known::of_bits(bits)),
        false => {
            later.insert(number, Known::of_bits(bits));
        }
    };
    ledger::read(&ledger::before(run), &mut take)?;
    for thread in 0..u64::from(threads) {
        ledger::read(&ledger::of_thread(run, thread), &mut take)?;
    }
    Ok(later)
}

impl Survivors {
    /// Reads everything that was written.
    pub(super) fn count(
        plan: &Plan,
        later: &BTreeMap<u64, Known>,
        session: &mut dyn Session,
        progress: &dyn Fn(u64),
    ) -> Result<Survivors> {
        let mut found = Survivors::default();
        let loaded = (0..plan.versions.count()).map(|number| (number, plan.versions.known(number)));
        let later = later.iter().map(|(&number, &known)| (number, known));
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for (done, (number, known)) in (1..).zip(loaded.chain(later)) {
            key.clear();
            plan.keys.append(number, &mut key);
            let is_there = session.get(&key, &mut value)?;
            found.look(plan, number, known, &key, is_there.then_some(&*value));
            if done % REPORT_EVERY == 0 {
                progress(done);
            }
        }
        Ok(found)
    }

    fn look(&mut self, plan: &Plan, number: u64, known: Known, key: &[u8], value: Option<&[u8]>) {
        let allowed = known.allowed();
        let is_right = allowed.is_right(&plan.values, number, value);
        let answered = known.answered();
        let counts = &mut self.counts;
        counts.acknowledged += u64::from(answered > 0);
        counts.survived += u64::from(answered > 0 && is_right);
        counts.lost = counts.acknowledged - counts.survived;
        counts.unanswered += u64::from(known.is_under_way());
        if is_right {
            return;
        }
        let is_older = value.is_none_or(|value| {
            (0..=answered).any(|version| plan.values.matches(value, number, version))
        });
        counts.damaged += u64::from(!is_older);
        if self.first.is_none() {
            let expected = match (answered, allowed.present) {
                (0, _) => "nothing, as it was never written".to_string(),
                (_, false) => "nothing, as it was deleted".to_string(),
                (version, true) => format!("version {version}"),
            };
            let came = value.map_or("nothing".to_string(), |value| plan.values.describe(value));
            let key = hexadecimal(key);
            self.first = Some(format!(
                "key number {number} ({key}): expected {expected}, came {came}"
            ));
        }
    }

    pub(super) fn failure(&self, store: &str, durability: DurabilityName) -> Option<Error> {
        let may_lose = durability == DurabilityName::Buffered;
        // What a key holds that was never written, or comes back, is no loss by count.
        let AfterKill {
            acknowledged,
            lost,
            damaged,
            ..
        } = self.counts;
        let is_whole = self.first.is_none() || may_lose && damaged == 0;
        if is_whole {
            return None;
        }
        let first = self.first.as_deref().unwrap_or_default();
        Some(Error::WrongData {
            store: store.to_string(),
            what: format!(
                "after a kill {lost} of {acknowledged} writes that it had acknowledged as \
                 {durability} were lost, {damaged} keys held what nobody wrote; the first: {first}"
            ),
        })
    }
}
