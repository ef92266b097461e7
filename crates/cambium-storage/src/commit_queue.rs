//! Group commit.
//!
//! Writers put requests into a queue. The first one finds no leader and
//! becomes it: it takes everything that waits, does the work of all (one write
//! a file, one sync for the group), and hands out the answers. Whoever came
//! meanwhile forms the next group, led by its first member. A lone writer pays
//! one uncontended lock.
//!
//! A leader may leave a rest that needs nobody's order, such as a sync: then the next
//! group is led while it is done ([`CommitQueue::submit_in_two`]).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// How often a leader that expects company lets other threads run first. A
/// sync takes hundreds of microseconds; a yield takes a few.
const MOST_YIELDS: usize = 48;

/// What a leader has made of a group.
#[derive(Debug)]
pub enum Led<A, P> {
    /// All of it is done: one answer a request.
    Done(Vec<A>),
    /// What is left is done while the next group is led.
    Rest(P),
}

/// A queue of requests `T` answered with `A`.
#[derive(Debug)]
pub struct CommitQueue<T, A> {
    state: Mutex<State<T, A>>,
}

#[derive(Debug)]
struct State<T, A> {
    next_ticket: u64,
    leader_active: bool,
    waiting: Vec<Waiting<T>>,
    answers: HashMap<u64, A>,
    /// Size of the last groups: how much company a leader may expect.
    recent_group: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    ticket: u64,
    request: T,
    /// `None` for the one who will lead.
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
                recent_group: 1,
            }),
        }
    }
}

impl<T, A> CommitQueue<T, A> {
    fn state(&self) -> MutexGuard<'_, State<T, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a request and waits for its answer. If this thread becomes the
    /// leader it calls `lead` with the group, in the order of arrival; `lead`
    /// answers one `A` for each, in the same order. `patient` says that
    /// waiting a moment for company pays: the group will be synced.
    pub fn submit(&self, request: T, patient: bool, lead: impl Fn(Vec<T>) -> Vec<A>) -> A {
        let lead = |group| Led::<A, Vec<A>>::Done(lead(group));
        self.submit_in_two(request, patient, lead, |answers| answers)
    }

    /// The same, but `lead` may leave a rest for `finish`, which gives the answers.
    /// Groups are led one after the other; a rest is finished while the next group is
    /// led, or finished.
    pub fn submit_in_two<P>(
        &self,
        request: T,
        patient: bool,
        lead: impl Fn(Vec<T>) -> Led<A, P>,
        finish: impl Fn(P) -> Vec<A>,
    ) -> A {
        let mut state = self.state();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let leads = !state.leader_active;
        state.leader_active = true;
        state.waiting.push(Waiting {
            ticket,
            request,
            thread: (!leads).then(std::thread::current),
        });
        if !leads {
            drop(state);
            loop {
                std::thread::park();
                let mut state = self.state();
                if let Some(answer) = state.answers.remove(&ticket) {
                    return answer;
                }
                // Woken as the next leader, or for no reason at all.
                let first = state.waiting.first_mut();
                if first.is_some_and(|first| first.ticket == ticket && first.thread.is_none()) {
                    drop(state);
                    return self.lead_group(ticket, patient, &lead, &finish);
                }
            }
        }
        drop(state);
        self.lead_group(ticket, patient, &lead, &finish)
    }

    fn lead_group<P>(
        &self,
        ticket: u64,
        patient: bool,
        lead: &impl Fn(Vec<T>) -> Led<A, P>,
        finish: &impl Fn(P) -> Vec<A>,
    ) -> A {
        if patient {
            self.await_company();
        }
        let group = {
            let mut state = self.state();
            let group = std::mem::take(&mut state.waiting);
            // Remembers large groups, forgets them slowly.
            state.recent_group = group.len().max(state.recent_group - state.recent_group / 4);
            group
        };
        let (tickets, requests): (Vec<_>, Vec<_>) = group
            .into_iter()
            .map(|waiting| ((waiting.ticket, waiting.thread), waiting.request))
            .unzip();
        // If `lead` panics, the queue must not wait for ever on a dead leader.
        let release = ReleaseLeadership { queue: self };
        let (answers, release) = match lead(requests) {
            Led::Done(answers) => (answers, Some(release)),
            Led::Rest(rest) => {
                drop(release);
                (finish(rest), None)
            }
        };
        assert_eq!(answers.len(), tickets.len(), "one answer a request");
        let mut own = None;
        let mut woken = Vec::with_capacity(tickets.len());
        {
            let mut state = self.state();
            for ((member, thread), answer) in tickets.into_iter().zip(answers) {
                if member == ticket {
                    own = Some(answer);
                } else {
                    state.answers.insert(member, answer);
                    woken.extend(thread);
                }
            }
        }
        drop(release);
        woken.iter().for_each(Thread::unpark);
        own.expect("a leader is a member of its group")
    }

    fn await_company(&self) {
        for _ in 0..MOST_YIELDS {
            {
                let state = self.state();
                if state.waiting.len() >= state.recent_group {
                    return;
                }
            }
            std::thread::yield_now();
        }
    }
}

/// Makes the first waiter the leader, or leaves none.
struct ReleaseLeadership<'a, T, A> {
    queue: &'a CommitQueue<T, A>,
}

impl<T, A> Drop for ReleaseLeadership<'_, T, A> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        match state
            .waiting
            .first_mut()
            .and_then(|first| first.thread.take())
        {
            Some(thread) => thread.unpark(),
            None => state.leader_active = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn each_request_gets_its_own_answer_and_groups_form() {
        let queue = CommitQueue::<u64, u64>::default();
        let groups = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (queue, groups) = (&queue, &groups);
                scope.spawn(move || {
                    for round in 0..500 {
                        let request = thread * 1_000 + round;
                        let answer = queue.submit(request, true, |group| {
                            groups.fetch_add(1, Ordering::Relaxed);
                            group.into_iter().map(|request| request * 2).collect()
                        });
                        assert_eq!(answer, request * 2);
                    }
                });
            }
        });
        assert!(groups.load(Ordering::Relaxed) <= 4_000);
        assert!(queue.state().answers.is_empty() && !queue.state().leader_active);
    }

    #[test]
    fn a_rest_is_finished_while_the_next_group_is_led() {
        let queue = CommitQueue::<u64, u64>::default();
        let begun = AtomicU64::new(0);
        let both = std::sync::Barrier::new(2);
        let plus_one = |group: Vec<u64>| group.into_iter().map(|request| request + 1).collect();
        let lead = |group: Vec<u64>| {
            if group == [0] {
                begun.store(1, Ordering::Release);
                return Led::Rest(group);
            }
            both.wait();
            Led::Done(plus_one(group))
        };
        let finish = |group| {
            // Ends when the next group is led: that waits for nothing of this one.
            both.wait();
            plus_one(group)
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| queue.submit_in_two(0, false, lead, finish));
            while begun.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            let second = queue.submit_in_two(7, false, lead, finish);
            assert_eq!((first.join().unwrap(), second), (1, 8));
        });
        assert!(!queue.state().leader_active);
    }
}
