//! Group commit: answers wait for the sync that covers their writes.
//!
//! While one sync runs, the writes of all connections go on reaching the operating system,
//! and their answers gather here. The next sync covers all of them.

use std::sync::Arc;

use cambium::Store;
use cambium_io::sync::atomic::{AtomicU64, Ordering};

use super::WRITE_FAILED;
use crate::mailbox::Mailbox;
use crate::messages::{Next, Output};
use crate::network::Outbox;
use crate::resp::reply::Reply;

/// Answers of a round that wait for a sync.
#[derive(Debug)]
pub enum Held {
    /// The round, all of whose writes the operating system has, and the answers.
    Round(u64, Vec<Output>),
    /// No more come.
    Over,
}

/// Syncs the store as long as answers come.
pub fn run(store: &Store, held: &Mailbox<Held>, outbox: &Outbox, synced: &AtomicU64) {
    let mut rounds = Vec::new();
    loop {
        held.receive(&mut rounds, None);
        let outcome = store.sync();
        let (mut outputs, mut is_over, mut last) = (Vec::new(), false, 0);
        for round in rounds.drain(..) {
            match round {
                Held::Round(number, answers) => {
                    last = number;
                    outputs.extend(answers);
                }
                Held::Over => is_over = true,
            }
        }
        match outcome {
            Ok(()) => _ = synced.fetch_max(last, Ordering::Release),
            Err(error) => outputs.iter_mut().for_each(|output| refuse(output, &error)),
        }
        outbox.send(outputs);
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
