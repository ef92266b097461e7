//! How stores came back: how long it took to open them again and, after a kill, what
//! had become of the writes that they had acknowledged.
//!
//! Counts are sums over the rounds, also over those in which a store lost something.

use serde::Deserialize;

use crate::adapter::DurabilityName;
use crate::record::{AfterKill, Phase, Run};
use crate::report::text::{duration, grouped, or_dash};
use crate::statistics::median;

#[derive(Clone, Debug, PartialEq)]
pub struct Recovery {
    /// Median seconds of an open.
    pub seconds: Option<f64>,
    /// Where the process was killed.
    pub after_kill: Option<AfterKill>,
}

impl Recovery {
    /// Of a store's runs; none if it was not opened again.
    pub fn of(runs: &[&Run]) -> Option<Recovery> {
        let reopened = runs.iter().filter(|run| run.phase == Phase::Reopen);
        let seconds: Vec<f64> = reopened
            .clone()
            .filter(|run| run.operations > 0)
            .map(|run| run.seconds)
            .collect();
        let mut after_kill = None;
        for found in reopened
            .clone()
            .filter_map(|run| run.extra.get("after_kill"))
        {
            let found = AfterKill::deserialize(found).unwrap_or_default();
            let sum: &mut AfterKill = after_kill.get_or_insert_default();
            sum.acknowledged += found.acknowledged;
            sum.survived += found.survived;
            sum.lost += found.lost;
            sum.damaged += found.damaged;
            sum.unanswered += found.unanswered;
        }
        reopened.clone().next()?;
        Some(Recovery {
            seconds: median(&seconds),
            after_kill,
        })
    }

    /// How long an open took.
    pub fn time(&self) -> String {
        or_dash(self.seconds, |seconds| duration(seconds * 1e9))
    }

    /// What was lost of what, in few characters.
    pub fn loss(&self) -> String {
        let Some(found) = self.after_kill else {
            return "-".to_string();
        };
        let acknowledged = grouped(found.acknowledged as f64);
        format!("{} of {acknowledged}", grouped(found.lost as f64))
    }
}

impl AfterKill {
    /// What it says about the store's promise.
    pub fn verdict(&self, durability: DurabilityName) -> String {
        match (durability, self.damaged, self.lost) {
            (_, 1.., _) => "damaged: it returns what nobody wrote".to_string(),
            (DurabilityName::Buffered, 0, 1..) => {
                "lost what it keeps in memory: buffered promises no more".to_string()
            }
            (_, 0, 1..) => format!("BROKE ITS PROMISE: it had acknowledged them as {durability}"),
            (_, 0, 0) => "kept all that it acknowledged".to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::tests::run;
    use serde_json::json;

    fn reopened(lost: u64) -> Run {
        let mut run = run("a", 0, 1.0);
        (run.phase, run.seconds) = (Phase::Reopen, 0.25);
        let found = json!({
            "acknowledged": 1000, "survived": 1000 - lost, "lost": lost, "damaged": 0,
            "unanswered": 1,
        });
        run.extra.insert("after_kill".to_string(), found);
        run
    }

    #[test]
    fn rounds_add_up_and_a_loss_is_judged_by_the_promise() {
        let runs = [reopened(0), reopened(3)];
        let runs: Vec<&Run> = runs.iter().collect();
        let found = Recovery::of(&runs).unwrap();
        assert_eq!(found.loss(), "3 of 2,000");
        assert_eq!(found.time(), "250 ms");
        let sum = found.after_kill.unwrap();
        assert_eq!((sum.survived, sum.unanswered), (1_997, 2));
        let synced = sum.verdict(DurabilityName::Synced);
        assert_eq!(
            synced,
            "BROKE ITS PROMISE: it had acknowledged them as synced"
        );
        let buffered = sum.verdict(DurabilityName::Buffered);
        assert!(buffered.contains("promises no more"), "{buffered}");
        let whole = AfterKill { lost: 0, ..sum };
        assert!(whole.verdict(DurabilityName::Synced).starts_with("kept"));
        assert_eq!(Recovery::of(&[]), None);
    }
}
