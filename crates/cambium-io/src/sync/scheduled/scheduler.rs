//! A scheduler of threads that follows from a seed.
//!
//! The threads of a run are coroutines on the thread that called [`run`], so a switch
//! costs nanoseconds. At each **point** (see [`point`]) the running thread calls its
//! [`Schedule`], which chooses the thread that goes on. A thread that
//! waits for an object is *blocked* on the object's address until a thread that
//! changes the object wakes it, or until its time is over. Time is simulated: each
//! point takes a little, and when all threads wait, it jumps to the earliest deadline.
//!
//! | state | becomes | by |
//! |---|---|---|
//! | ready | running | [`Schedule::choose`] |
//! | running | ready | [`point`], [`yield_now`] |
//! | running | blocked | [`block`], [`park`], [`Scheduler::wait_for_end`] |
//! | blocked | ready | [`wake`], [`wake_one`], [`Scheduler::unpark`], its deadline |
//! | running | ended | the end of its closure |
//!
//! A run fails if a thread panics, if all threads wait for each other, or if it does
//! not end within its points. The coroutines of a failed run are leaked: to unwind them
//! would run destructors in an order that the program never has.
//!
//! Coroutines share the thread-locals of their thread. Code below the scheduler takes
//! a thread-local's value out and puts it back; it never holds a borrow over a point.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::super::schedule::{Choice, Schedule, next_script};

/// Decides for the threads of one run.
pub struct Scheduler {
    state: Mutex<State>,
}

struct State {
    schedule: Schedule,
    tasks: Vec<Task>,
    running: usize,
    now: Duration,
    points: u64,
    failure: Option<String>,
}

type Start = Box<dyn FnOnce() + Send>;

struct Task {
    name: String,
    /// The closure of the task, until the task begins.
    start: Option<Start>,
    status: Status,
    /// An unpark that came before its park.
    token: bool,
    timed_out: bool,
}

#[derive(Debug)]
enum Status {
    Ready,
    Blocked(Waiting),
    Ended,
}

/// The object that a thread waits for.
#[derive(Debug)]
pub struct Waiting {
    what: &'static str,
    address: usize,
    limit: Option<Duration>,
}

impl Waiting {
    /// A wait for an object at an address.
    pub fn new(what: &'static str, address: usize) -> Self {
        Waiting {
            what,
            address,
            limit: None,
        }
    }

    /// The same, no longer than `limit`.
    #[must_use]
    pub fn at_most(self, limit: Option<Duration>) -> Self {
        Waiting { limit, ..self }
    }
}

/// Names for waits that are not for an object: no object lies at these addresses.
const PARKED: usize = 1;
const UNTIL_END: usize = 1 << 20;

/// The coroutine that runs on this thread.
#[derive(Clone)]
struct Current {
    scheduler: Arc<Scheduler>,
    task: usize,
    yielder: *const Yielder<(), ()>,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// How a run ended.
#[derive(Debug)]
pub struct Run<T> {
    /// The program's answer, or the reason why the run failed.
    pub outcome: Result<T, String>,
    /// The decisions that were taken, for [`Schedule::replay`].
    pub choices: Vec<Choice>,
    /// Points that the threads passed.
    pub points: u64,
}

/// Runs a program, and the threads that it starts, under a schedule.
pub fn run<T: Send + 'static>(
    schedule: Schedule,
    program: impl FnOnce() -> T + Send + 'static,
) -> Run<T> {
    assert!(!is_scheduled(), "a scheduled thread starts no other run");
    let scheduler = Arc::new(Scheduler {
        state: Mutex::new(State {
            schedule,
            tasks: Vec::new(),
            running: 0,
            now: Duration::from_secs(1),
            points: 0,
            failure: None,
        }),
    });
    let answer = Arc::new(Mutex::new(None));
    let place = answer.clone();
    scheduler.add_task("the program", move || {
        let answer = program();
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    });
    scheduler.resume_until_over();
    let mut state = scheduler.state();
    let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
    Run {
        outcome: match (state.failure.clone(), answer) {
            (None, Some(answer)) => Ok(answer),
            (failure, _) => Err(failure.unwrap_or_default()),
        },
        choices: state.schedule.take_choices(),
        points: state.points,
    }
}

/// Runs a program under every interleaving with at most `preemptions` preemptions, or
/// under the first `most` of them, depth first. Returns their number.
///
/// ```
/// # #[cfg(feature = "scheduled")] {
/// use cambium_io::sync::{scheduler, thread};
/// let count = scheduler::explore(2, 1_000, || {
///     let other = thread::spawn(|| 1);
///     assert_eq!(other.join().ok(), Some(1));
/// });
/// assert!(count > 1);
/// # }
/// ```
///
/// # Panics
/// At the first interleaving that fails, with its decisions.
pub fn explore(preemptions: usize, most: u64, program: impl Fn() + Clone + Send + 'static) -> u64 {
    let (mut count, mut script) = (0, Some(Vec::new()));
    while let Some(decisions) = script.take().filter(|_| count < most) {
        let schedule = Schedule::replay(decisions.clone(), preemptions);
        let run = run(schedule, program.clone());
        if let Err(what) = run.outcome {
            panic!("interleaving {count}, decisions {decisions:?}: {what}");
        }
        count += 1;
        script = next_script(&run.choices);
    }
    count
}

/// True on threads of a run.
pub fn is_scheduled() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// The run and the task of this thread.
pub fn current() -> Option<(Arc<Scheduler>, usize)> {
    CURRENT.with_borrow(|current| {
        let current = current.as_ref()?;
        Some((current.scheduler.clone(), current.task))
    })
}

fn with_current(act: impl FnOnce(&Arc<Scheduler>, usize)) -> bool {
    let Some((scheduler, task)) = current() else {
        return false;
    };
    act(&scheduler, task);
    true
}

/// A place where another thread may run. False on a thread that is not scheduled.
pub fn point() -> bool {
    with_current(|scheduler, task| scheduler.pass(task, false))
}

/// A point at which the thread lets others run first. False where not scheduled.
pub fn yield_now() -> bool {
    with_current(|scheduler, task| scheduler.pass(task, true))
}

/// Simulated time since the run began.
pub fn scheduled_time() -> Option<Duration> {
    current().map(|(scheduler, _)| scheduler.state().now)
}

/// Time for waits of threads that are not scheduled.
pub(super) fn real_time() -> Duration {
    static BEGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    #[allow(clippy::disallowed_methods)]
    BEGIN.get_or_init(std::time::Instant::now).elapsed()
}

/// Waits until a thread wakes the address, or until the time is over: then true.
pub fn block(waiting: Waiting) -> bool {
    let mut timed_out = false;
    with_current(|scheduler, task| timed_out = scheduler.wait(task, waiting));
    timed_out
}

/// Makes all threads ready that wait for an address.
pub fn wake(address: usize) {
    with_current(|scheduler, _| scheduler.state().wake(address, usize::MAX));
}

/// Makes one thread ready that waits for an address.
pub fn wake_one(address: usize) {
    with_current(|scheduler, _| scheduler.state().wake(address, 1));
}

/// Waits for an unpark. False on a thread that is not scheduled.
pub fn park(limit: Option<Duration>) -> bool {
    with_current(|scheduler, task| {
        scheduler.pass(task, false);
        if !std::mem::take(&mut scheduler.state().tasks[task].token) {
            let waiting = Waiting::new("an unpark", PARKED + task).at_most(limit);
            scheduler.wait(task, waiting);
            scheduler.state().tasks[task].token = false;
        }
    })
}

impl Scheduler {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task, ready to begin.
    pub fn add_task(self: &Arc<Self>, name: &str, run: impl FnOnce() + Send + 'static) -> usize {
        let mut state = self.state();
        let task = state.tasks.len();
        let scheduler = self.clone();
        let start = move || {
            let outcome = catch_unwind(AssertUnwindSafe(run));
            let mut state = scheduler.state();
            if let Err(panic) = outcome {
                let name = state.tasks[task].name.clone();
                state.fail(format!("thread {name} panicked: {}", panic_text(&*panic)));
            }
            state.end(task);
        };
        state.tasks.push(Task {
            name: name.to_string(),
            start: Some(Box::new(start)),
            status: Status::Ready,
            token: false,
            timed_out: false,
        });
        state.schedule.add_task();
        task
    }

    /// Resumes the chosen task, again and again, until all tasks have ended or the run
    /// has failed.
    fn resume_until_over(self: &Arc<Self>) {
        let mut coroutines: Vec<Option<Coroutine<(), (), ()>>> = Vec::new();
        loop {
            let (task, start) = {
                let mut state = self.state();
                if state.failure.is_some() || state.is_over() {
                    break;
                }
                let task = state.running;
                (task, state.tasks[task].start.take())
            };
            if let Some(start) = start {
                coroutines.resize_with(coroutines.len().max(task + 1), || None);
                coroutines[task] = Some(self.coroutine(task, start));
            }
            let Some(coroutine) = &mut coroutines[task] else {
                break;
            };
            if let CoroutineResult::Return(()) = coroutine.resume(()) {
                let ended = coroutines[task].take();
                let stack = ended.map(Coroutine::into_stack);
                STACKS.with_borrow_mut(|stacks| stacks.extend(stack));
            }
            CURRENT.take();
        }
        coroutines.into_iter().for_each(std::mem::forget);
    }

    fn coroutine(self: &Arc<Self>, task: usize, start: Start) -> Coroutine<(), (), ()> {
        let stack = STACKS.with_borrow_mut(Vec::pop).unwrap_or_default();
        let scheduler = self.clone();
        Coroutine::with_stack(stack, move |yielder, ()| {
            CURRENT.set(Some(Current {
                scheduler,
                task,
                yielder,
            }));
            start();
        })
    }

    fn pass(&self, task: usize, gives_way: bool) {
        // The other coroutines share this thread: a switch would show them the panic.
        if std::thread::panicking() {
            return;
        }
        let mut state = self.state();
        state.count_a_point();
        state.choose(Some(task), gives_way);
        self.hand_over(state, task);
    }

    fn wait(&self, task: usize, waiting: Waiting) -> bool {
        let mut state = self.state();
        let deadline = waiting.limit.map(|limit| state.now.saturating_add(limit));
        state.tasks[task].timed_out = false;
        state.tasks[task].status = Status::Blocked(Waiting {
            limit: deadline,
            ..waiting
        });
        state.choose(None, false);
        self.hand_over(state, task);
        self.state().tasks[task].timed_out
    }

    /// Suspends this coroutine unless it is its turn; for ever in a run that failed.
    fn hand_over(&self, state: MutexGuard<'_, State>, from: usize) {
        if state.running == from && state.failure.is_none() {
            return;
        }
        drop(state);
        let Some(current) = CURRENT.take() else {
            return;
        };
        // SAFETY: the yielder lies on the stack of the coroutine that runs now, and
        // lives as long as its closure, in which this call is.
        unsafe { &*current.yielder }.suspend(());
        CURRENT.set(Some(current));
    }

    /// Blocks this thread until a task has ended.
    pub fn wait_for_end(&self, task: usize) {
        let Some((_, here)) = current() else { return };
        while !self.has_ended(task) {
            self.wait(here, Waiting::new("the end of a thread", UNTIL_END + task));
        }
    }

    /// True if a task has ended.
    pub fn has_ended(&self, task: usize) -> bool {
        matches!(self.state().tasks[task].status, Status::Ended)
    }

    /// Lets a parked task go on, now or at its next park.
    pub fn unpark(&self, task: usize) {
        point();
        let mut state = self.state();
        state.tasks[task].token = true;
        state.wake(PARKED + task, 1);
    }
}

impl State {
    fn is_over(&self) -> bool {
        let ended = |task: &Task| matches!(task.status, Status::Ended);
        self.tasks.iter().all(ended)
    }

    fn count_a_point(&mut self) {
        self.points += 1;
        self.now += self.schedule.time_of_a_point();
        self.schedule.pass(self.points);
        if self.points > self.schedule.most_points() {
            let what = format!("no end after {} points: {}", self.points, self.tasks());
            self.fail(what);
        }
    }

    fn wake(&mut self, address: usize, most: usize) {
        let mut waiting: Vec<usize> = Vec::new();
        for (number, task) in self.tasks.iter().enumerate() {
            if matches!(&task.status, Status::Blocked(waiting) if waiting.address == address) {
                waiting.push(number);
            }
        }
        while waiting.len() > most {
            let kept = self.schedule.pick(waiting.len());
            waiting.swap_remove(kept);
        }
        for number in waiting {
            self.tasks[number].status = Status::Ready;
        }
    }

    fn end(&mut self, task: usize) {
        self.tasks[task].status = Status::Ended;
        self.wake(UNTIL_END + task, usize::MAX);
        self.choose(None, false);
    }

    /// Chooses the task that runs next; `here` is the running task if it can go on.
    fn choose(&mut self, here: Option<usize>, gives_way: bool) {
        self.end_waits();
        let ready = |state: &State| -> Vec<usize> {
            let ready = |task: &Task| matches!(task.status, Status::Ready);
            let numbers = 0..state.tasks.len();
            numbers.filter(|&n| ready(&state.tasks[n])).collect()
        };
        let mut candidates = ready(self);
        if candidates.is_empty() {
            let deadlines = self.tasks.iter().filter_map(Task::deadline);
            match deadlines.min() {
                Some(deadline) => self.now = deadline,
                None if self.is_over() => return,
                None => {
                    self.fail(format!("all threads wait: {}", self.tasks()));
                    return;
                }
            }
            self.end_waits();
            candidates = ready(self);
        }
        self.running = self.schedule.choose(&candidates, here, gives_way);
    }

    fn end_waits(&mut self) {
        for task in &mut self.tasks {
            if task.deadline().is_some_and(|deadline| deadline <= self.now) {
                task.status = Status::Ready;
                task.timed_out = true;
            }
        }
    }

    /// Names each task and its state, for a message.
    fn tasks(&self) -> String {
        let tasks = self.tasks.iter().map(|task| format!("{task:?}"));
        tasks.collect::<Vec<_>>().join("; ")
    }

    fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }
}

impl Task {
    fn deadline(&self) -> Option<Duration> {
        match &self.status {
            Status::Blocked(waiting) => waiting.limit,
            _ => None,
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.status {
            Status::Blocked(waiting) => write!(f, "{} waits for {}", self.name, waiting.what),
            other => write!(f, "{}: {other:?}", self.name),
        }
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scheduler")
            .field(&self.state().tasks)
            .finish()
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
