//! What the server knows of one client.

use std::collections::BTreeSet;
use std::time::Duration;

use rustls::pki_types::CertificateDer;

use crate::commands::Command;
use crate::keyspace::Watched;
use crate::messages::{Handle, Input, Next};
use crate::resp::OwnedArguments;
use crate::resp::reply::Reply;

/// One client.
#[derive(Debug)]
pub struct Session {
    /// Its connection.
    pub handle: Handle,
    /// Its address.
    pub peer: String,
    /// The server's address that it connected to.
    pub local: String,
    /// The certificate that it has shown, which the authority has signed.
    pub certificate: Option<Box<CertificateDer<'static>>>,
    /// Its name, by CLIENT SETNAME.
    pub name: Vec<u8>,
    /// The database that its commands are about.
    pub database: u8,
    /// It has yet to authenticate itself.
    pub is_stranger: bool,
    /// Commands between MULTI and EXEC.
    pub queue: Option<Queue>,
    /// Keys it watches.
    pub watched: Vec<Watched>,
    /// Channels and patterns it has subscribed to.
    pub channels: BTreeSet<Vec<u8>>,
    /// See `channels`.
    pub patterns: BTreeSet<Vec<u8>>,
    /// Answers that wait for the end of the round.
    pub reply: Reply,
    /// Parts of those answers that hold only if the round is written.
    pub pending: Vec<(usize, usize)>,
    /// The last round whose sync its answers wait for.
    pub waits_for: u64,
    /// In a cluster: batches of partitions that have to be committed before its answers leave.
    pub needs: Vec<(u8, u64)>,
    /// It reads from members that are not the head, too: READONLY.
    pub is_readonly: bool,
    /// The node that it is the predecessor's link of.
    pub link: Option<String>,
    /// What happens behind the answers.
    pub next: Option<Next>,
    /// A buffer that is used no more.
    pub spent: Option<Vec<u8>>,
    /// It is in the list of those with something to send.
    pub is_listed: bool,
    /// Commands that go on when a helper thread has answered.
    pub waiting: Option<Input>,
    /// Keys that were fetched for the next of them.
    pub fetched: Vec<Vec<u8>>,
    /// The number of fetches that the first of them has waited for.
    pub fetches: usize,
    /// The command that a helper thread runs, and when its round began.
    pub job: Option<(&'static Command, Duration)>,
    /// Whether its commands are answered: CLIENT REPLY.
    pub answers: Answers,
    /// Its EXEC runs.
    pub is_in_exec: bool,
    /// Milliseconds since 1970 when it connected, and at its last command.
    pub opened: u64,
    /// See `opened`.
    pub active: u64,
    /// The name of its last command.
    pub last_command: &'static str,
}

/// Commands of a transaction.
#[derive(Debug, Default)]
pub struct Queue {
    /// In order.
    pub commands: Vec<OwnedArguments>,
    /// One was refused: EXEC refuses all.
    pub is_aborted: bool,
    /// Memory that the commands take.
    pub bytes: usize,
}

/// Whether commands are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// They are.
    On,
    /// The next one is not.
    SkipNext,
    /// They are not.
    Off,
}

impl Session {
    /// A client that has just connected.
    pub fn new(
        handle: Handle,
        peer: String,
        local: String,
        is_stranger: bool,
        now: u64,
    ) -> Session {
        Session {
            handle,
            peer,
            local,
            certificate: None,
            name: Vec::new(),
            database: 0,
            is_stranger,
            queue: None,
            watched: Vec::new(),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            reply: Reply::default(),
            pending: Vec::new(),
            waits_for: 0,
            needs: Vec::new(),
            is_readonly: false,
            link: None,
            next: None,
            spent: None,
            is_listed: false,
            waiting: None,
            fetched: Vec::new(),
            fetches: 0,
            job: None,
            answers: Answers::On,
            is_in_exec: false,
            opened: now,
            active: now,
            last_command: "NULL",
        }
    }

    /// Channels and patterns together.
    pub fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// True from the moment its connection is to end.
    pub fn is_closing(&self) -> bool {
        matches!(self.next, Some(Next::Close))
    }

    /// Puts `error` in place of the answers that hold only if the round is written.
    pub fn replace_pending(&mut self, error: &str) {
        let answers = std::mem::take(&mut self.reply.bytes);
        let mut kept_to = 0;
        for (from, to) in std::mem::take(&mut self.pending) {
            self.reply.bytes.extend_from_slice(&answers[kept_to..from]);
            self.reply.error(error);
            kept_to = to;
        }
        self.reply.bytes.extend_from_slice(&answers[kept_to..]);
    }
}
