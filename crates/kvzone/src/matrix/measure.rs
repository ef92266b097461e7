//! Measuring: every unit that is missing, in rounds that take turns.

use std::path::Path;

use kvzone_core::error::Result;
use kvzone_core::record::{Run, Status};
use kvzone_core::statistics::rounds;
use kvzone_core::statistics::verdict::ROUNDS_FOR_A_CLAIM;

use super::ours;
use super::programs::Program;
use super::results::{Results, Unit};
use super::table::{self, NULL};
use crate::run::Stage;
use crate::run::campaign::{Campaign, what_happened};

/// Extra rounds of a program whose rounds differ too much.
const MORE_ROUNDS: u32 = 2;

pub(super) struct Measuring<'a> {
    /// Whether programs whose rounds differ too much have further ones.
    pub(super) repeats_unsteady: bool,
    pub(super) directory: &'a Path,
    pub(super) results: &'a mut Results,
    pub(super) stage: &'a mut Stage,
}

impl Measuring<'_> {
    /// Measures everything that is missing; false if somebody wanted the end.
    pub(super) fn run(&mut self) -> Result<bool> {
        let conditions = self.results.head.conditions.clone();
        for (program, size) in conditions.all() {
            let campaign = conditions.campaign(program, size, self.directory)?;
            for round in 0..conditions.rounds + MORE_ROUNDS {
                if round >= conditions.rounds && !self.wants_more(program, size.0) {
                    break;
                }
                for at in rounds::order(conditions.seed, round, campaign.contenders.len()) {
                    if !self.unit(&campaign, at, (program, size.0, round))? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// One program of one store in one round, unless it is there; false if somebody
    /// wanted the end.
    fn unit(
        &mut self,
        campaign: &Campaign,
        at: usize,
        (program, value_bytes, round): (Program, u64, u32),
    ) -> Result<bool> {
        let contender = &campaign.contenders[at];
        let is_there = self
            .results
            .has((program, value_bytes), &contender.store, round);
        // The harness's own cost does not vary: one round says it.
        if is_there || contender.store == NULL && round > 0 {
            return Ok(true);
        }
        let (name, store) = (program.name(), &contender.store);
        let what = format!(
            "{name} of {value_bytes} bytes, round {}, {store}",
            round + 1
        );
        let done = self.results.units.len();
        self.stage.begins(done, self.total().max(done + 1), &what);
        let turn = (&campaign.loads[0], round);
        let outcome = campaign.turn(self.directory, contender, turn, self.stage)?;
        if outcome.stopped {
            return Ok(false);
        }
        for run in outcome.runs.iter().filter(|run| is_failure(run)) {
            self.stage.note(&what_happened(run));
        }
        self.results.add(Unit {
            program,
            value_bytes,
            store: store.clone(),
            round,
            runs: outcome.runs,
            notes: outcome.notes,
        })?;
        Ok(!self.stage.is_stopped())
    }

    /// Units without extra rounds: every store in each, but `null` in one.
    fn total(&self) -> usize {
        let conditions = &self.results.head.conditions;
        let stores = conditions.stores.len() - 1;
        conditions.all().count() * (stores * conditions.rounds as usize + 1)
    }

    /// True if rounds of the program differ too much, and verdicts are asked for.
    fn wants_more(&self, program: Program, value_bytes: u64) -> bool {
        let claims = self.results.head.conditions.rounds as usize >= ROUNDS_FOR_A_CLAIM;
        let is_unsteady = || {
            let rows = table::rows(self.results, &ours());
            let mut own = rows
                .iter()
                .filter(|row| row.cell.program == program && row.value_bytes == value_bytes);
            own.any(table::Row::is_unsteady)
        };
        claims && self.repeats_unsteady && is_unsteady()
    }
}

/// Failures are told at once; a capability that a store lacks is shown in the table alone.
pub(super) fn is_failure(run: &Run) -> bool {
    !matches!(run.status, Status::Ok | Status::Unsupported)
}
