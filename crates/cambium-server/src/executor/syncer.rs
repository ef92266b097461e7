//! Group commit: answers wait for the sync that covers their writes.
//!
//! While one sync runs, the writes of all connections go on reaching the operating system,
//! and their answers gather here. The next sync covers all of them.

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
    loop {
        held.wait(None);
        held.take(&mut rounds);
        let begun = clock.monotonic();
        let outcome = store.sync();
        let ended = clock.monotonic();
        metrics.syncs.record(ended - begun, 1);
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
        outbox.send(outputs);
        called.into_iter().for_each(|called| called.send(&outcome));
        if is_over {
            return;
        }
    }
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
