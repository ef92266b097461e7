//! Group commit.
//!
//! Writers put requests into a queue. The first one finds no leader and
//! becomes it: it takes everything that waits, does the work of all (one write
//! a file, one sync for the group), and hands out the answers. Whoever came
//! meanwhile forms the next group, led by its first member. A lone writer pays
//! one uncontended lock.

use std::collections::HashMap;
use std::sync::PoisonError;

use cambium_io::sync::thread::Thread;
use cambium_io::sync::{Mutex, MutexGuard};

/// How often a leader that expects company lets other threads run first. A
/// sync takes hundreds of microseconds; a yield takes a few.
const MOST_YIELDS: usize = 48;

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
        let mut state = self.state();
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
            drop(state);
            loop {
                cambium_io::sync::thread::park();
                let mut state = self.state();
                if let Some(answer) = state.answers.remove(&ticket) {
                    return answer;
                }
                // Woken as the next leader, or for no reason at all.
                let first = state.waiting.first_mut();
                if first.is_some_and(|first| first.ticket == ticket && first.thread.is_none()) {
                    drop(state);
                    return self.lead_group(ticket, patient, &lead);
                }
            }
        }
        drop(state);
        self.lead_group(ticket, patient, &lead)
    }

    fn lead_group(&self, ticket: u64, patient: bool, lead: &impl Fn(Vec<T>) -> Vec<A>) -> A {
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
        let answers = lead(requests);
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
            cambium_io::sync::thread::yield_now();
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
}
