//! Group commit.
//!
//! Writers put requests into a queue. The first one finds no leader and
//! becomes it: it takes everything that waits, does the work of all (one write
//! a file, one sync for the group), and hands out the answers. Requests that arrive
//! during that work form the next group, led by its first member. A lone writer pays
//! one uncontended lock.
//!
//! A group that will be synced is worth a short wait: the members of the last groups
//! have just got their answers and come back soon. So a leader sleeps until as many wait
//! as were in the larger of the last two groups. It stops as soon as nobody has arrived
//! for [`PAUSE`], and after two groups of one no leader waits. The leader sleeps and does
//! not yield: beside busy processes each yield costs a time slice of theirs, several
//! milliseconds.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Duration;

use cambium_base::{Error, Result};
use cambium_io::sync::thread::Thread;
use cambium_io::sync::{Condvar, Mutex, MutexGuard};

use crate::health::Health;

/// A leader that expects more members goes ahead when none has arrived for so long. A
/// sync takes hundreds of microseconds.
const PAUSE: Duration = Duration::from_micros(100);

/// A queue of requests `T` answered with `A`.
#[derive(Debug)]
pub struct CommitQueue<T, A> {
    state: Mutex<State<T, A>>,
    /// As many wait as the leader expects.
    gathered: Condvar,
}

#[derive(Debug)]
struct State<T, A> {
    next_ticket: u64,
    leader_active: bool,
    waiting: Vec<Waiting<T>>,
    answers: HashMap<u64, A>,
    /// Sizes of the last two groups.
    recent_groups: [usize; 2],
    /// A leader has panicked: the queue answers nothing more.
    is_broken: bool,
}

#[derive(Debug)]
struct Waiting<T> {
    ticket: u64,
    request: T,
    /// `None` for the next leader.
    thread: Option<Thread>,
}

impl<T, A> Default for CommitQueue<T, A> {
    fn default() -> Self {
        CommitQueue {
            state: Mutex::new(State {
                next_ticket: 0,
                leader_active: false,
                waiting: Vec::new(),
                answers: HashMap::new(),
                recent_groups: [1; 2],
                is_broken: false,
            }),
            gathered: Condvar::new(),
        }
    }
}

impl<T, A> State<T, A> {
    /// How many members the next group may have.
    fn expected(&self) -> usize {
        self.recent_groups[0].max(self.recent_groups[1])
    }
}

/// The answer to the members of a group whose leader has panicked.
fn broken() -> Error {
    let source = std::io::Error::other("the thread that wrote for a group of writers panicked");
    Error::poisoned_by(&Error::io("commit", "the store", source))
}

impl<T, A> CommitQueue<T, A> {
    fn state(&self) -> MutexGuard<'_, State<T, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a request and waits for its answer. If this thread becomes the
    /// leader it calls `lead` with the group, in the order of arrival; `lead`
    /// answers one `A` for each, in the same order. `patient` says that
    /// waiting a moment for more members pays: the group will be synced.
    ///
    /// If `lead` panics, the leader's thread goes on panicking. Nobody knows how far the
    /// writes of its group came, so the store is poisoned.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a leader has panicked; those of `lead` are in the answer.
    pub fn submit(
        &self,
        health: &Health,
        request: T,
        patient: bool,
        lead: impl Fn(Vec<T>) -> Vec<A>,
    ) -> Result<A> {
        let mut state = self.state();
        if state.is_broken {
            return Err(broken());
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let leads = !state.leader_active;
        state.leader_active = true;
        state.waiting.push(Waiting {
            ticket,
            request,
            thread: (!leads).then(cambium_io::sync::thread::current),
        });
        if !leads {
            if state.waiting.len() == state.expected() {
                self.gathered.notify_one();
            }
            drop(state);
            if let Some(answer) = self.await_answer(ticket)? {
                return Ok(answer);
            }
        } else {
            drop(state);
        }
        Ok(self.lead_group(health, ticket, patient, &lead))
    }

    /// Waits for the answer of a leader; `None` if this thread is the next leader.
    fn await_answer(&self, ticket: u64) -> Result<Option<A>> {
        loop {
            cambium_io::sync::thread::park();
            let mut state = self.state();
            if let Some(answer) = state.answers.remove(&ticket) {
                return Ok(Some(answer));
            }
            if state.is_broken {
                return Err(broken());
            }
            // Woken as the next leader, or for no reason at all.
            let first = state.waiting.first_mut();
            if first.is_some_and(|first| first.ticket == ticket && first.thread.is_none()) {
                return Ok(None);
            }
        }
    }

    fn lead_group(
        &self,
        health: &Health,
        ticket: u64,
        patient: bool,
        lead: &impl Fn(Vec<T>) -> Vec<A>,
    ) -> A {
        let group = {
            let mut state = self.state();
            if patient {
                state = self.await_company(state);
            }
            let group = std::mem::take(&mut state.waiting);
            state.recent_groups = [state.recent_groups[1], group.len()];
            group
        };
        let (members, requests): (Vec<_>, Vec<_>) = group
            .into_iter()
            .map(|waiting| ((waiting.ticket, waiting.thread), waiting.request))
            .unzip();
        let mut leadership = Leadership {
            queue: self,
            health,
            members,
        };
        let answers = lead(requests);
        assert_eq!(
            answers.len(),
            leadership.members.len(),
            "one answer a request"
        );
        let members = std::mem::take(&mut leadership.members);
        let mut own = None;
        let mut woken = Vec::with_capacity(members.len());
        {
            let mut state = self.state();
            for ((member, thread), answer) in members.into_iter().zip(answers) {
                if member == ticket {
                    own = Some(answer);
                } else {
                    state.answers.insert(member, answer);
                    woken.extend(thread);
                }
            }
        }
        drop(leadership);
        woken.iter().for_each(Thread::unpark);
        own.expect("a leader is a member of its group")
    }

    /// Waits for more members while they arrive and more are expected.
    fn await_company<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<T, A>>,
    ) -> MutexGuard<'a, State<T, A>> {
        let mut seen = 0;
        while state.waiting.len() < state.expected() && state.waiting.len() > seen {
            seen = state.waiting.len();
            let woken = self.gathered.wait_timeout(state, PAUSE);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}

/// Held while a group is led. Makes the first waiter the next leader, or leaves none; after
/// a panic of the leader it wakes everybody with nothing but an error.
struct Leadership<'a, T, A> {
    queue: &'a CommitQueue<T, A>,
    health: &'a Health,
    /// The group, until its answers are there.
    members: Vec<(u64, Option<Thread>)>,
}

impl<T, A> Drop for Leadership<'_, T, A> {
    fn drop(&mut self) {
        if cambium_io::sync::thread::panicking() {
            return self.give_up();
        }
        let mut state = self.queue.state();
        let next = state.waiting.first_mut();
        match next.and_then(|first| first.thread.take()) {
            Some(thread) => thread.unpark(),
            None => state.leader_active = false,
        }
    }
}

impl<T, A> Leadership<'_, T, A> {
    fn give_up(&mut self) {
        _ = self.health.poison(broken());
        let mut state = self.queue.state();
        state.is_broken = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        let later = waiting.into_iter().filter_map(|waiting| waiting.thread);
        let members = self.members.drain(..).filter_map(|(_, thread)| thread);
        members.chain(later).for_each(|thread| thread.unpark());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    #[test]
    fn each_request_gets_its_own_answer_and_groups_form() {
        let (queue, health) = (CommitQueue::<u64, u64>::default(), Health::default());
        let groups = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (queue, health, groups) = (&queue, &health, &groups);
                scope.spawn(move || {
                    for round in 0..500 {
                        let request = thread * 1_000 + round;
                        let answer = queue.submit(health, request, true, |group| {
                            groups.fetch_add(1, Ordering::Relaxed);
                            group.into_iter().map(|request| request * 2).collect()
                        });
                        assert_eq!(answer.unwrap(), request * 2);
                    }
                });
            }
        });
        assert!(groups.load(Ordering::Relaxed) <= 4_000);
        assert!(queue.state().answers.is_empty() && !queue.state().leader_active);
    }

    #[test]
    fn after_two_groups_of_one_no_leader_waits() {
        let (queue, health) = (CommitQueue::<(), ()>::default(), Health::default());
        queue.state().recent_groups = [16; 2];
        let alone = || queue.submit(&health, (), true, |group| group);
        alone().unwrap();
        assert_eq!(queue.state().expected(), 16);
        alone().unwrap();
        assert_eq!(queue.state().expected(), 1);
    }

    #[test]
    fn a_leader_that_panics_leaves_nobody_waiting() {
        let (queue, health) = (CommitQueue::<u64, u64>::default(), Health::default());
        let (begun, has_begun) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let may_go = std::sync::Mutex::new(may_go);
        let wait = || {
            begun.send(()).unwrap();
            may_go.lock().unwrap().recv().unwrap();
        };
        let lead = |group: Vec<u64>| {
            wait();
            assert!(!group.contains(&1), "the leader panics");
            group
        };
        std::thread::scope(|scope| {
            let submit = |request| queue.submit(&health, request, false, lead);
            let first = scope.spawn(move || submit(0));
            has_begun.recv().unwrap();
            // The next group: one of them leads, and panics; the others are members.
            let group: Vec<_> = (1..4).map(|_| scope.spawn(move || submit(1))).collect();
            while queue.state().waiting.len() < 3 {
                std::thread::yield_now();
            }
            go.send(()).unwrap();
            assert_eq!(first.join().unwrap().unwrap(), 0);
            has_begun.recv().unwrap();
            // They wait behind that group.
            let later = scope.spawn(move || submit(2));
            while queue.state().waiting.is_empty() {
                std::thread::yield_now();
            }
            go.send(()).unwrap();
            let answers = group.into_iter().map(|member| member.join());
            let panicked = answers.filter(|answer| match answer {
                Ok(answer) => matches!(answer, Err(Error::Poisoned { .. })),
                Err(_) => true,
            });
            assert_eq!(panicked.count(), 3);
            assert!(later.join().unwrap().is_err());
        });
        assert!(health.failure().is_some());
        assert!(queue.submit(&health, 3, false, lead).is_err());
    }
}
