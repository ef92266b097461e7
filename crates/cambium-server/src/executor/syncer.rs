//! Group commit: answers wait for the sync that covers their writes.
//!
//! While one sync runs, the writes of all connections go on reaching the operating system,
//! and their answers gather here. The next sync covers all of them. It begins when as many
//! connections wait as the last one has answered, since those have probably sent more by then,
//! or after a part of the time that a sync takes: without that, the first of them would get a
//! sync of its own, and all others would wait for it and for another one.

use std::sync::Arc;
use std::time::Duration;

use cambium::Store;
use cambium_io::environment::Clock;
use cambium_io::sync::atomic::{AtomicU64, Ordering};

use super::called::Called;
use crate::commands::WRITE_FAILED;
use crate::mailbox::Mailbox;
use crate::messages::{Event, Next, Output};
use crate::metrics::{Calls, Metrics};
use crate::network::Outbox;
use crate::resp::reply::Reply;

/// A sync waits for more writes at most for one part in so many of the last one's time.
const GATHERING_PART: u32 = 4;

/// Answers of a round that wait for a sync.
#[derive(Debug)]
pub enum Held {
    /// A round, all of whose writes the operating system has.
    Round(Round),
    /// No more come.
    Over,
}

/// Answers of one round that wait for its sync.
#[derive(Debug)]
pub struct Round {
    /// Its number.
    pub number: u64,
    /// The answers.
    pub answers: Vec<Output>,
    /// Answers of Thrift calls.
    pub called: Vec<Called>,
    /// The commands that `answers` are of.
    pub calls: Calls,
    /// When it began, by the monotonic clock.
    pub begun: Duration,
}

/// Syncs the store as long as answers come. In a cluster, `inbox` hears of each sync.
pub fn run(
    store: &Store,
    inbox: Option<&Mailbox<Event>>,
    held: &Mailbox<Held>,
    outbox: &Outbox,
    synced: &AtomicU64,
    metrics: &Metrics,
    clock: &dyn Clock,
) {
    let mut rounds = Vec::new();
    let (mut expected, mut usual) = (0, Duration::ZERO);
    loop {
        held.wait(None);
        held.take(&mut rounds);
        gather(held, &mut rounds, expected, usual / GATHERING_PART, clock);
        let begun = clock.monotonic();
        let outcome = store.sync();
        let ended = clock.monotonic();
        metrics.syncs.record(ended - begun, 1);
        usual = ended - begun;
        if let Err(error) = &outcome {
            metrics.write_ended(Some(error));
        }
        let (mut outputs, mut is_over, mut last) = (Vec::new(), false, 0);
        let mut called = Vec::new();
        for round in rounds.drain(..) {
            match round {
                Held::Round(round) => {
                    last = round.number;
                    outputs.extend(round.answers);
                    called.extend(round.called);
                    metrics.record(&round.calls, ended - round.begun);
                }
                Held::Over => is_over = true,
            }
        }
        match &outcome {
            Ok(()) => {
                synced.fetch_max(last, Ordering::Release);
                if let Some(inbox) = inbox {
                    inbox.send([Event::Synced(last)]);
                }
            }
            Err(error) => outputs.iter_mut().for_each(|output| refuse(output, error)),
        }
        expected = outputs.len();
        outbox.send(outputs);
        called.into_iter().for_each(|called| called.send(&outcome));
        if is_over {
            return;
        }
    }
}

/// Waits until the answers of `expected` connections are there, at most for `patience`.
fn gather(
    held: &Mailbox<Held>,
    rounds: &mut Vec<Held>,
    expected: usize,
    patience: Duration,
    clock: &dyn Clock,
) {
    let until = clock.monotonic() + patience;
    let mut more = Vec::new();
    while count(rounds) < expected {
        let left = until.saturating_sub(clock.monotonic());
        if left.is_zero() {
            return;
        }
        held.wait(Some(left));
        held.take(&mut more);
        rounds.append(&mut more);
    }
}

/// Connections that wait for answers; no bound once the server stops.
fn count(rounds: &[Held]) -> usize {
    let answers = rounds.iter().map(|round| match round {
        Held::Round(round) => round.answers.len(),
        Held::Over => usize::MAX / 2,
    });
    answers.fold(0, usize::saturating_add)
}

/// Nobody knows how far the writes have come: the answers become one error, and the client
/// has to connect again.
fn refuse(output: &mut Output, error: &cambium::Error) {
    let mut reply = Reply::default();
    reply.error(&format!("{WRITE_FAILED}{error}"));
    output.bytes = reply.bytes;
    output.next = Next::Close;
}

/// What the executor needs to hold answers back.
#[derive(Debug)]
pub struct Syncing {
    /// To the thread.
    pub held: Arc<Mailbox<Held>>,
    /// The last round that is synced.
    pub synced: Arc<AtomicU64>,
}

impl Syncing {
    /// The last round that is synced.
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Handle;
    use cambium_io::SystemClock;

    fn round(answers: u32) -> Held {
        let output = |slot| Output {
            handle: Handle { slot, id: 1 },
            bytes: Vec::new(),
            spent: None,
            next: Next::Read,
            is_stranger: false,
            is_subscriber: false,
        };
        Held::Round(Round {
            number: 1,
            answers: (0..answers).map(output).collect(),
            called: Vec::new(),
            calls: Calls::default(),
            begun: Duration::ZERO,
        })
    }

    #[test]
    fn a_sync_waits_for_the_clients_of_the_last_one_and_not_for_ever() {
        let (held, clock) = (Mailbox::default(), SystemClock);
        let mut rounds = vec![round(2)];
        held.send([round(3), round(1)]);
        let long = Duration::from_secs(60);
        gather(&held, &mut rounds, 6, long, &clock);
        assert_eq!(count(&rounds), 6);
        held.send([Held::Over]);
        gather(&held, &mut rounds, 7, long, &clock);
        assert_eq!(rounds.len(), 4);
        let begun = clock.monotonic();
        gather(
            &held,
            &mut vec![round(1)],
            2,
            Duration::from_millis(20),
            &clock,
        );
        assert!(clock.monotonic() - begun >= Duration::from_millis(20));
    }
}
