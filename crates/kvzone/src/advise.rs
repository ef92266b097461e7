//! `kvzone advise`: which store, with which settings, for a workload on this
//! machine; measured, with the reasons.
//!
//! ```text
//!  every store that is here and can do it ──one round, some seconds──▶ the best few
//!  the best few, set alike and tuned ──rounds that take turns──▶ ranking, reasons
//! ```
//!
//! The workload is described by the options of `kvzone run`, or by its job file:
//! what `advise` measures, `run` measures again with the same words, and the
//! command for that is the last line. Screening with one round may only leave out
//! what is far behind: whoever is within [`NEAR`] of the best goes on, whatever
//! the number asked for.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use kvzone_core::adapter::Profile;
use kvzone_core::driver;
use kvzone_core::error::{Error, Result};
use kvzone_core::job::Until;
use kvzone_core::record::Report;
use kvzone_core::report::advice::{self, Advice};
use kvzone_core::report::figure::Figure;
use kvzone_core::report::text::bytes;
use kvzone_core::workload;

use crate::output;
use crate::run::campaign::{Campaign, Contender};
use crate::run::{RunArguments, Stage, write_json};
use crate::{stores, words};

/// Candidates this near to the best in the screening stay, by their factor.
const NEAR: f64 = 1.5;

/// Options of `kvzone advise`.
#[derive(Debug, Args)]
pub(crate) struct AdviseArguments {
    /// What counts: ops, p50, p99, cpu, write-amp, space, memory
    #[arg(long, value_name = "FIGURE", default_value = "ops")]
    goal: String,
    /// Stores that the screening lets through; more if they are near each other
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    shortlist: u32,
    /// Seconds of each measured phase of the screening
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = crate::run::parse::parse_positive)]
    screening_seconds: f64,
    #[command(flatten)]
    run: RunArguments,
}

pub(crate) fn run(arguments: AdviseArguments) -> Result<ExitCode> {
    let goal = Figure::find(&arguments.goal)?;
    let typed = words::without(std::env::args_os().skip(2).collect(), &OWN, &[]);
    let mut options = arguments.run.clone().with_job_file(typed.clone())?;
    options.use_all_stores();
    let campaign = options.campaign()?;
    let [load] = campaign.loads.as_slice() else {
        let count = campaign.loads.len();
        return Err(Error::Usage(format!(
            "{count} workloads: advice is for one; a mix of operations is one (--mix)"
        )));
    };
    let phase = workload::find(&load.workload)?.measured_phase();
    let json = options
        .json
        .as_deref()
        .map(crate::run::create)
        .transpose()?;
    let mut stage = Stage::new()?;
    let finalists = screen(&campaign, &arguments, goal, &mut stage)?;
    let last = Campaign {
        contenders: settings_of(&campaign, &finalists)?,
        ..campaign.clone()
    };
    let outcome = last.run(&mut stage)?.whole()?;
    stage.close();
    let found = advice::rank(&outcome.report, phase, goal);
    if let Some((path, mut file)) = json {
        write_json(path, &mut file, &outcome.report)?;
    }
    if found.ranking.is_empty() {
        let unranked = found.unranked.iter();
        let reasons: Vec<String> = unranked
            .map(|(name, why)| format!("{name}: {why}"))
            .collect();
        return Err(Error::Usage(format!(
            "none of these stores can do this workload: {}",
            reasons.join("; ")
        )));
    }
    let mut text = advice::render(&found);
    for warning in &outcome.warnings {
        text += &format!("Warning: {warning}\n");
    }
    text += &what_else(&campaign, &outcome.report);
    text += &format!("Measure it again: {}\n", again(&found, &typed));
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// One short round of everybody; answers who goes on, the best first.
fn screen(
    campaign: &Campaign,
    arguments: &AdviseArguments,
    goal: Figure,
    stage: &mut Stage,
) -> Result<Vec<String>> {
    if campaign.contenders.len() <= arguments.shortlist as usize {
        return Ok(campaign.stores());
    }
    let mut short = Campaign {
        repeat: 1,
        ..campaign.clone()
    };
    short.job.reopen = None;
    for load in &mut short.loads {
        load.until = Until::Seconds(arguments.screening_seconds);
    }
    let outcome = short.run(stage)?.whole()?;
    let phase = workload::find(&campaign.loads[0].workload)?.measured_phase();
    let found = advice::rank(&outcome.report, phase, goal);
    output::complain(&format!(
        "kvzone: screening, one round by {}:",
        goal.heading
    ));
    let mut passed = Vec::new();
    for (place, candidate) in found.ranking.iter().enumerate() {
        let factor = candidate
            .against_best
            .as_ref()
            .map_or(1.0, |found| found.ratio);
        let is_near = factor.max(1.0 / factor) <= NEAR;
        let passes = place < arguments.shortlist as usize || is_near;
        let value = candidate.medians[advice::place(&goal)].map(|value| goal.text(value));
        output::complain(&format!(
            "kvzone:   {} {}{}",
            candidate.name,
            value.unwrap_or_default(),
            if passes { ", measured further" } else { "" }
        ));
        if passes {
            passed.push(candidate.store.clone());
        }
    }
    for (name, reason) in &found.unranked {
        output::complain(&format!("kvzone:   {name} is out: {reason}"));
    }
    match passed.is_empty() {
        true => Err(Error::Usage(
            "no store that is here can do this workload; `kvzone list stores` shows what could be fetched".to_string(),
        )),
        false => Ok(passed),
    }
}

/// Each finalist with the settings of the profile asked for, and tuned where
/// that is not the same.
fn settings_of(campaign: &Campaign, finalists: &[String]) -> Result<Vec<Contender>> {
    let mut all = Vec::new();
    for contender in &campaign.contenders {
        if !finalists.contains(&contender.store) {
            continue;
        }
        let settings = |profile: Profile| {
            let asked = Contender {
                profile: Some(profile),
                ..contender.clone()
            };
            let job = campaign.job(&asked, &campaign.loads[0], 0, &campaign.directory);
            stores::find(&contender.store)?.settings(&driver::open_request(&job))
        };
        let is_tunable = match (settings(campaign.job.profile), settings(Profile::Tuned)) {
            (Ok(asked), Ok(tuned)) => asked != tuned,
            // Its worker says what it cannot do.
            (Err(Error::Unsupported { .. }), _) | (_, Err(Error::Unsupported { .. })) => false,
            (asked, tuned) => asked.and(tuned).map(|_| false)?,
        };
        all.push(Contender {
            variant: is_tunable.then(|| "as asked".to_string()),
            ..contender.clone()
        });
        if is_tunable {
            all.push(Contender {
                profile: Some(Profile::Tuned),
                variant: Some("tuned".to_string()),
                ..contender.clone()
            });
        }
    }
    Ok(all)
}

/// What was not varied, and may decide.
fn what_else(campaign: &Campaign, report: &Report) -> String {
    let load = &campaign.loads[0];
    let data = load.keys as f64 * (load.key_bytes.mean() + load.value_bytes.mean());
    let memory = report.machine["memory_bytes"].as_f64();
    let mut text = String::from("What may change the answer, and was not measured:\n");
    if campaign.job.memory_limit_bytes.is_none() && memory.is_some_and(|memory| data < memory / 2.0)
    {
        text += &format!(
            "  the data ({}) fits into this machine's memory: if yours will not, give --memory and --cold\n",
            bytes(data)
        );
    }
    text += &format!(
        "  writes were {}: --durability says otherwise\n",
        campaign.job.durability
    );
    if load.rate.is_none() {
        text +=
            "  operations came as fast as they went: latency at the rate you have takes --rate\n";
    }
    text
}

/// Options of `advise` alone, which have values.
const OWN: [&str; 3] = ["--goal", "--shortlist", "--screening-seconds"];

/// The command that measures the ranked stores again, enough for a claim.
fn again(found: &Advice, typed: &[OsString]) -> String {
    let mut stores: Vec<&str> = Vec::new();
    for candidate in &found.ranking {
        if !stores.contains(&candidate.store.as_str()) {
            stores.push(&candidate.store);
        }
    }
    let chosen = ["--stores", "--repeat", "--json", "--html"];
    let rest = words::quoted(&words::without(typed.to_vec(), &chosen, &[]));
    let stores = stores.join(",");
    let mut command = format!("kvzone run --stores {stores} --repeat 5 {rest}");
    let tuned = found
        .ranking
        .first()
        .is_some_and(|best| best.name.ends_with("(tuned)"));
    if tuned && !command.contains("--profile") {
        command += " --profile tuned";
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_to_measure_again_has_the_words_of_the_workload_alone() {
        let words = [
            "--goal",
            "p99",
            "--mix=read=1",
            "--stores=a,b",
            "--shortlist=2",
            "--dir",
            "a b",
            "--repeat",
            "3",
        ];
        let typed = words::without(words.map(OsString::from).to_vec(), &OWN, &[]);
        let found = Advice {
            goal: Figure::find("ops").unwrap(),
            ranking: Vec::new(),
            unranked: Vec::new(),
        };
        let command = again(&found, &typed);
        assert_eq!(
            command,
            "kvzone run --stores  --repeat 5 --mix=read=1 --dir 'a b'"
        );
    }
}
