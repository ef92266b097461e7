//! Which store: candidates ranked by one figure, what each loses by, and what
//! would change the answer.
//!
//! A candidate is a store with settings: one variant of a report's runs. It is
//! held against the best by the ratio inside each round
//! ([`crate::statistics::verdict::compare_rounds`]). A candidate that noise does not
//! tell from the best is level with it, and said to be; among those that are
//! level the other figures decide, and that is for people.

use crate::record::{Phase, Report, Run, Status};
use crate::report::figure::Figure;
use crate::report::grid::Grid;
use crate::report::text::or_dash;
use crate::statistics::median;
use crate::statistics::verdict::{Comparison, ROUNDS_FOR_A_CLAIM, Verdict, compare_rounds};

/// Other figures are worth a word where they differ by this factor.
const NOTABLE: f64 = 1.2;

/// A store with settings, and what it reached.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The store, and its variant in brackets.
    pub name: String,
    pub store: String,
    /// Medians of all figures, in the order of [`Figure::deciding`].
    pub medians: Vec<Option<f64>>,
    /// The goal's figure, this by the best; None for the best itself.
    pub against_best: Option<Comparison>,
    /// The goal's figure in each round.
    pub rounds: Vec<(u32, f64)>,
}

#[derive(Clone, Debug)]
pub struct Advice {
    pub goal: Figure,
    pub ranking: Vec<Candidate>,
    /// Who did not end well, with the reason.
    pub unranked: Vec<(String, String)>,
}

pub fn rank(report: &Report, phase: Phase, goal: Figure) -> Advice {
    let mut names: Vec<String> = Vec::new();
    for run in &report.runs {
        let name = name_of(run);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut advice = Advice {
        goal,
        ranking: Vec::new(),
        unranked: Vec::new(),
    };
    for name in names {
        let own = || report.runs.iter().filter(|run| name_of(run) == name);
        if let Some(broken) = own().find(|run| run.status != Status::Ok) {
            let reason = broken.error.clone().unwrap_or_default();
            advice.unranked.push((name.clone(), reason));
            continue;
        }
        let measured: Vec<&Run> = own().filter(|run| run.phase == phase).collect();
        let figure = |figure: &Figure| {
            let values: Vec<f64> = measured
                .iter()
                .filter_map(|run| figure.value(run))
                .collect();
            median(&values)
        };
        let Some(first) = measured.first().filter(|_| figure(&goal).is_some()) else {
            let reason = format!("no {} was measured", goal.heading);
            advice.unranked.push((name.clone(), reason));
            continue;
        };
        advice.ranking.push(Candidate {
            store: first.store.clone(),
            medians: Figure::deciding().map(figure).collect(),
            against_best: None,
            rounds: measured
                .iter()
                .filter_map(|run| Some((run.repeat, goal.value(run)?)))
                .collect(),
            name,
        });
    }
    advice.sort();
    advice.hold_against_best();
    advice
}

fn name_of(run: &Run) -> String {
    match run.extra.get("variant").and_then(|found| found.as_str()) {
        Some(variant) => format!("{} ({variant})", run.store),
        None => run.store.clone(),
    }
}

/// Where a figure stands among all.
pub fn place(figure: &Figure) -> usize {
    let found = Figure::deciding().position(|other| other.name == figure.name);
    found.unwrap_or(0)
}

impl Candidate {
    fn figure(&self, figure: &Figure) -> Option<f64> {
        self.medians[place(figure)]
    }
}

impl Advice {
    fn sort(&mut self) {
        let goal = self.goal;
        self.ranking.sort_by(|left, right| {
            let of = |one: &Candidate| one.figure(&goal).unwrap_or(f64::NAN);
            match goal.more_is_better {
                true => of(right).total_cmp(&of(left)),
                false => of(left).total_cmp(&of(right)),
            }
        });
    }

    fn hold_against_best(&mut self) {
        if let Some((best, others)) = self.ranking.split_first_mut() {
            for other in others {
                other.against_best = compare_rounds(&other.rounds, &best.rounds);
            }
        }
    }

    /// True if noise does not tell this candidate from the best.
    fn is_level(&self, candidate: &Candidate) -> bool {
        let found = candidate.against_best.as_ref();
        found.is_some_and(|found| matches!(found.verdict, Verdict::Equal | Verdict::Noise))
    }

    /// Names of the candidates that may be called the best.
    pub fn best(&self) -> Vec<&str> {
        let level = self.ranking.iter().skip(1).filter(|one| self.is_level(one));
        let first = self.ranking.iter().take(1);
        first.chain(level).map(|one| one.name.as_str()).collect()
    }

    /// The answer in sentences: who, why, what it costs, what would change it.
    pub fn sentences(&self) -> Vec<String> {
        let Some(best) = self.ranking.first() else {
            return vec!["No store can be recommended: none ended well.".to_string()];
        };
        let mut said = Vec::new();
        let named = self.best();
        said.push(match named.len() {
            1 => format!(
                "Take {}: it is the best in {}.",
                best.name, self.goal.heading
            ),
            _ => format!(
                "Take one of {}: noise does not tell them apart in {}.",
                named.join(", "),
                self.goal.heading
            ),
        });
        let behind = self.ranking.iter().skip(1).find(|one| !self.is_level(one));
        if let Some((next, found)) = behind.and_then(|one| Some((one, one.against_best.as_ref()?)))
        {
            said.push(format!(
                "{} has {} times its {}.",
                next.name,
                found.text(),
                self.goal.heading
            ));
        }
        for figure in Figure::deciding().filter(|figure| figure.name != self.goal.name) {
            said.extend(self.other_figure(best, figure));
        }
        if best.rounds.len() < ROUNDS_FOR_A_CLAIM {
            said.push(format!(
                "{} rounds: fewer than the {ROUNDS_FOR_A_CLAIM} that a claim needs.",
                best.rounds.len()
            ));
        }
        said
    }

    /// Who would be taken if another figure were what counts.
    fn other_figure(&self, best: &Candidate, figure: &Figure) -> Option<String> {
        let own = best.figure(figure)?;
        let better = |one: &&Candidate| one.figure(figure).is_some();
        let other = self.ranking.iter().filter(better).max_by(|left, right| {
            let of = |one: &Candidate| {
                let value = one.figure(figure).unwrap_or(f64::NAN);
                if figure.more_is_better { value } else { -value }
            };
            of(left).total_cmp(&of(right))
        })?;
        let value = other.figure(figure)?;
        let factor = match figure.more_is_better {
            true => value / own,
            false => own / value,
        };
        let notable = other.name != best.name && factor.is_finite() && factor > NOTABLE;
        notable.then(|| {
            format!(
                "If {} counted most, it would be {}: {} instead of {}.",
                figure.heading,
                other.name,
                figure.text(value),
                figure.text(own)
            )
        })
    }
}

/// The ranking as a table, and the answer beneath it, ending with a new line.
pub fn render(advice: &Advice) -> String {
    let mut heads = vec!["".to_string(), "store".to_string()];
    heads.extend(Figure::deciding().map(|figure| figure.heading.to_string()));
    heads.push(format!("{} : best", advice.goal.heading));
    let row = |(number, candidate): (usize, &Candidate)| {
        let figures = Figure::deciding().zip(&candidate.medians);
        let figures = figures.map(|(figure, &value)| or_dash(value, |value| figure.text(value)));
        let against = candidate.against_best.as_ref();
        [(number + 1).to_string(), candidate.name.clone()]
            .into_iter()
            .chain(figures)
            .chain([against.map_or_else(String::new, Comparison::text)])
            .collect()
    };
    let table = Grid {
        heads,
        words: 2,
        rows: advice.ranking.iter().enumerate().map(row).collect(),
    };
    let mut text = table.terminal();
    for (name, reason) in &advice.unranked {
        text += &format!("Not ranked: {name}: {reason}\n");
    }
    text += "\n";
    for sentence in advice.sentences() {
        text += &sentence;
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::tests::{report, run};

    fn rounds(stores: &[(&str, [f64; 5])]) -> Vec<Run> {
        let of = |&(store, rates): &(&str, [f64; 5])| {
            let rates = rates.into_iter().zip(0..);
            rates
                .map(|(rate, round)| run(store, round, rate))
                .collect::<Vec<_>>()
        };
        stores.iter().flat_map(of).collect()
    }

    const EVEN: [f64; 5] = [100.0, 101.0, 99.0, 100.0, 100.0];

    fn advice(runs: Vec<Run>) -> Advice {
        rank(&report(runs), Phase::Load, Figure::find("ops").unwrap())
    }

    #[test]
    fn the_fastest_is_taken_and_what_the_next_loses_is_told() {
        let found = advice(rounds(&[
            ("slow", EVEN.map(|rate| rate / 2.0)),
            ("fast", EVEN),
        ]));
        assert_eq!(found.best(), ["fast"]);
        let text = render(&found);
        assert!(
            text.contains("Take fast: it is the best in ops/s."),
            "{text}"
        );
        assert!(
            text.contains("slow has 0.50 [0.50, 0.50] times its ops/s"),
            "{text}"
        );
    }

    #[test]
    fn stores_that_noise_does_not_tell_apart_are_all_named() {
        let noisy = [60.0, 140.0, 80.0, 120.0, 99.0];
        let found = advice(rounds(&[("a", EVEN), ("b", noisy), ("c", [10.0; 5])]));
        assert_eq!(found.best(), ["a", "b"]);
        assert!(found.sentences()[0].contains("noise does not tell them apart"));
    }

    #[test]
    fn another_figure_would_change_the_answer_and_a_broken_store_is_not_ranked() {
        let mut runs = rounds(&[("big", EVEN), ("small", EVEN.map(|rate| rate / 3.0))]);
        for run in runs.iter_mut().filter(|run| run.store == "small") {
            run.space_bytes = Some(1024);
        }
        let mut broken = run("broken", 0, 900.0);
        broken.status = Status::Crashed;
        broken.error = Some("SIGSEGV".to_string());
        runs.push(broken);
        let found = advice(runs);
        assert_eq!(found.ranking.len(), 2);
        let text = render(&found);
        let expected = "If space counted most, it would be small: 1 KiB instead of 4 KiB.";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("Not ranked: broken: SIGSEGV"), "{text}");
        assert!(advice(Vec::new()).sentences()[0].contains("none ended well"));
    }

    #[test]
    fn less_is_better_where_it_is() {
        let mut runs = rounds(&[("a", EVEN), ("b", EVEN)]);
        for run in runs.iter_mut().filter(|run| run.store == "b") {
            run.write_amplification = Some(1.0);
        }
        let goal = Figure::find("write-amp").unwrap();
        let found = rank(&report(runs), Phase::Load, goal);
        assert_eq!(found.best(), ["b"]);
    }
}
