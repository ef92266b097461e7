//! The strategies by which a scheduler chooses the thread that runs next.
//!
//! - **Random walk**: at each point the running thread goes on, or with a probability
//!   that is drawn for the run another takes over.
//! - **PCT** (Burckhardt et al., *A Randomized Scheduler with Probabilistic Guarantees
//!   of Finding Bugs*, ASPLOS 2010): the ready thread of the highest random priority
//!   runs; at a few random points the running thread's priority becomes the lowest.
//!   PCT finds a bug of depth `d` among `k` points and `n` threads with a probability of
//!   at least `1/(n·k^(d-1))`.
//! - **Replay**: the scheduler takes the decisions of a script, and preempts no thread
//!   after its end. [`next_script`] goes through all interleavings with a limited number
//!   of preemptions.

use std::time::Duration;

use crate::simulated::Generator;

/// A decision: the number of options, and the option that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The index of the option that was taken; 0 means no preemption.
    pub taken: usize,
    /// The number of options.
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
        /// At a point another thread takes over with a probability of `1/stay`.
        stay: u64,
    },
    Pct {
        /// A priority for each task; the ready task of the largest runs.
        priorities: Vec<u64>,
        /// Points until the next change of priorities.
        until_change: u64,
        /// The average number of points between two changes.
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

/// The default limit of points in a run; programs of the suites pass far fewer.
const MOST_POINTS: u64 = 4_000_000;
/// After so many points in a row another thread runs. Otherwise a thread that polls
/// would keep the thread from running whose work it waits for.
const FAIR: u64 = 20_000;
/// After so many points PCT becomes a random walk. Otherwise several threads that poll
/// would keep each other above the thread whose work they wait for.
const MOST_POINTS_OF_PRIORITIES: u64 = 1_000_000;

impl Schedule {
    fn new(strategy: Strategy, mut generator: Generator) -> Self {
        // Waits with a limit end early in some runs, and late in others.
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

    /// Replays the decisions of a script, and preempts no thread after its end. The
    /// run offers at most `preemptions` preemptions.
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

    /// Told how many points there were.
    pub(super) fn pass(&mut self, points: u64) {
        if points == MOST_POINTS_OF_PRIORITIES && matches!(self.strategy, Strategy::Pct { .. }) {
            self.strategy = Strategy::RandomWalk { stay: 8 };
        }
    }

    pub(super) fn time_of_a_point(&self) -> Duration {
        self.time_of_a_point
    }

    pub(super) fn add_task(&mut self) {
        if let Strategy::Pct { priorities, .. } = &mut self.strategy {
            // Lowered priorities are below all of these.
            priorities.push((1 << 33) + self.generator.below(1 << 32));
        }
    }

    /// Picks one of `count` threads that wait for the same object.
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

    /// Chooses the next of the ready tasks. `here` is the running task, if it can go
    /// on; `gives_way` means that it yields.
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
                        // Take turns: a thread that yields in a loop makes no decision.
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

/// Returns the next script in depth-first order, if there is one. `choices` are the
/// decisions of the last run.
pub fn next_script(choices: &[Choice]) -> Option<Vec<usize>> {
    let last = choices
        .iter()
        .rposition(|choice| choice.taken + 1 < choice.options)?;
    let mut script: Vec<usize> = choices[..last].iter().map(|choice| choice.taken).collect();
    script.push(choices[last].taken + 1);
    Some(script)
}
