//! Who runs next: the strategies of a scheduler.
//!
//! - **Random walk**: at each point the running thread goes on, or with a probability
//!   that is drawn for the run another takes over.
//! - **PCT** (Burckhardt et al., *A Randomized Scheduler with Probabilistic Guarantees
//!   of Finding Bugs*, ASPLOS 2010): the ready thread of the highest random priority
//!   runs; at a few random points the running thread's priority becomes the lowest.
//!   Finds a bug of depth `d` among `k` points and `n` threads with a probability of
//!   at least `1/(n·k^(d-1))`.
//! - **Replay**: given decisions, then none; [`next_script`] goes through all
//!   interleavings with up to so many preemptions.

use std::time::Duration;

use crate::simulated::Generator;

/// A decision: the option that was taken, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which was taken; 0 is to go on without a preemption.
    pub taken: usize,
    /// How many there were.
    pub options: usize,
}

/// Decides which thread runs.
#[derive(Debug)]
pub struct Schedule {
    strategy: Strategy,
    generator: Generator,
    time_of_a_point: Duration,
    most_points: u64,
    /// Points in a row that one thread had while others were ready.
    in_a_row: u64,
}

#[derive(Debug)]
enum Strategy {
    RandomWalk {
        /// One point of so many hands over.
        stay: u64,
    },
    Pct {
        /// One for each task; larger runs first.
        priorities: Vec<u64>,
        /// Points until the next change of priorities.
        until_change: u64,
        /// Changes are so far apart, on average.
        distance: u64,
        /// The next priority below all others.
        lowest: u64,
    },
    Replay {
        script: Vec<usize>,
        taken: Vec<Choice>,
        preemptions: usize,
    },
}

/// Points of a run, unless set: far more than the suites' programs have.
const MOST_POINTS: u64 = 4_000_000;
/// Points in a row after which another thread runs: a loop that polls must not keep
/// the thread that it waits for from running.
const FAIR: u64 = 20_000;

impl Schedule {
    fn new(strategy: Strategy, mut generator: Generator) -> Self {
        // So that waits with a limit end early in some runs, and late in others.
        let microseconds = *generator.pick(&[1, 1, 20, 500]);
        Schedule {
            strategy,
            generator,
            time_of_a_point: Duration::from_micros(microseconds),
            most_points: MOST_POINTS,
            in_a_row: 0,
        }
    }

    /// A random walk or PCT, as the seed decides.
    pub fn random(seed: u64) -> Self {
        let mut generator = Generator::new(seed);
        if generator.chance(1, 2) {
            let stay = *generator.pick(&[2, 4, 8, 32, 128]);
            return Schedule::new(Strategy::RandomWalk { stay }, generator);
        }
        let distance = *generator.pick(&[50, 200, 1_000, 5_000]);
        let strategy = Strategy::Pct {
            priorities: Vec::new(),
            until_change: generator.below(distance),
            distance,
            lowest: 1 << 32,
        };
        Schedule::new(strategy, generator)
    }

    /// The decisions of a script; after its end nobody is preempted. At most
    /// `preemptions` are offered in all.
    pub fn replay(script: Vec<usize>, preemptions: usize) -> Self {
        let taken = Vec::new();
        let strategy = Strategy::Replay {
            script,
            taken,
            preemptions,
        };
        Schedule::new(strategy, Generator::new(0))
    }

    /// Bounds the length of a run.
    #[must_use]
    pub fn at_most(self, points: u64) -> Self {
        Schedule {
            most_points: points,
            ..self
        }
    }

    pub(super) fn most_points(&self) -> u64 {
        self.most_points
    }

    pub(super) fn time_of_a_point(&self) -> Duration {
        self.time_of_a_point
    }

    pub(super) fn add_task(&mut self) {
        if let Strategy::Pct { priorities, .. } = &mut self.strategy {
            // Above all that were lowered.
            priorities.push((1 << 33) + self.generator.below(1 << 32));
        }
    }

    /// One of several that are alike.
    pub(super) fn pick(&mut self, count: usize) -> usize {
        match self.strategy {
            Strategy::Replay { .. } => count - 1,
            _ => self.generator.below(count as u64) as usize,
        }
    }

    pub(super) fn take_choices(&mut self) -> Vec<Choice> {
        match &mut self.strategy {
            Strategy::Replay { taken, .. } => std::mem::take(taken),
            _ => Vec::new(),
        }
    }

    /// The next of the ready tasks; `here` is among them if the running one could
    /// go on, and `gives_way` says that it would rather not.
    pub(super) fn choose(
        &mut self,
        ready: &[usize],
        here: Option<usize>,
        gives_way: bool,
    ) -> usize {
        let stays = here.filter(|_| ready.len() == 1);
        if let Some(only) = stays {
            self.in_a_row = 0;
            return only;
        }
        self.in_a_row += 1;
        let unfair = self.in_a_row > FAIR;
        let next = self.strategy(ready, here, gives_way || unfair);
        if here != Some(next) {
            self.in_a_row = 0;
        }
        next
    }

    fn strategy(&mut self, ready: &[usize], here: Option<usize>, gives_way: bool) -> usize {
        let generator = &mut self.generator;
        match &mut self.strategy {
            Strategy::RandomWalk { stay } => match here {
                Some(here) if !gives_way && !generator.chance(1, *stay) => here,
                _ => *generator.pick(ready),
            },
            Strategy::Pct {
                priorities,
                until_change,
                distance,
                lowest,
            } => {
                if let Some(here) = here {
                    let change = *until_change == 0;
                    *until_change = until_change.saturating_sub(1);
                    if change {
                        *until_change = generator.below(2 * *distance);
                    }
                    if change || gives_way {
                        *lowest -= 1;
                        priorities[here] = *lowest;
                    }
                }
                let highest = ready.iter().max_by_key(|&&task| priorities[task]);
                *highest.unwrap_or(&ready[0])
            }
            Strategy::Replay {
                script,
                taken,
                preemptions,
            } => {
                let mut options = ready.to_vec();
                if let Some(here) = here {
                    if gives_way {
                        // Round the ready ones: a loop that yields is no decision.
                        let after = ready.iter().find(|&&task| task > here);
                        return *after.unwrap_or(&ready[0]);
                    }
                    if *preemptions == 0 {
                        return here;
                    }
                    options.retain(|&task| task != here);
                    options.insert(0, here);
                }
                let index = script.get(taken.len()).copied().unwrap_or(0);
                let index = index.min(options.len() - 1);
                taken.push(Choice {
                    taken: index,
                    options: options.len(),
                });
                if here.is_some() && index > 0 {
                    *preemptions -= 1;
                }
                options[index]
            }
        }
    }
}

/// The script after this one in depth-first order, if there is one: `choices` are
/// the decisions that the last run took.
pub fn next_script(choices: &[Choice]) -> Option<Vec<usize>> {
    let last = choices
        .iter()
        .rposition(|choice| choice.taken + 1 < choice.options)?;
    let mut script: Vec<usize> = choices[..last].iter().map(|choice| choice.taken).collect();
    script.push(choices[last].taken + 1);
    Some(script)
}
