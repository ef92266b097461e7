//! A bound on how long a case may run.
//!
//! Damage can send an engine round in a circle, and a test that never ends
//! tells nobody where. Cases run on a thread of their own, which says before
//! each what comes next; when it falls silent, the case is named and the
//! thread is left behind.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Longest a case may run: thousands of times what one takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// In so many parts it is waited. A machine that stood still meanwhile counts as
/// one of them, however long it did.
const PARTS: u32 = 30;

enum Message<T> {
    Next(String),
    Done(Result<T, String>),
}

/// Says what comes next.
pub(crate) struct Announcer<T>(Sender<Message<T>>);

impl<T> Announcer<T> {
    /// Names the case that begins; the one before has ended.
    pub(crate) fn next(&self, case: String) {
        // Whoever listens has given up: the answer will reach nobody either.
        _ = self.0.send(Message::Next(case));
    }
}

/// Runs cases; an error of theirs, and a case that does not end, is an error.
pub(crate) fn watched<T: Send + 'static>(
    run: impl FnOnce(&Announcer<T>) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    watched_for(PATIENCE, run)
}

fn watched_for<T: Send + 'static>(
    patience: Duration,
    run: impl FnOnce(&Announcer<T>) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let announcer = Announcer(sender);
        let outcome = run(&announcer);
        _ = announcer.0.send(Message::Done(outcome));
    });
    let mut current = "the beginning".to_string();
    let mut waited = 0;
    loop {
        match receiver.recv_timeout(patience / PARTS) {
            Ok(Message::Next(case)) => {
                current = case;
                waited = 0;
            }
            Ok(Message::Done(outcome)) => return outcome,
            Err(RecvTimeoutError::Timeout) if waited + 1 < PARTS => waited += 1,
            Err(RecvTimeoutError::Timeout) => {
                let seconds = patience.as_secs_f64();
                return Err(format!("{current}: still running after {seconds} seconds"));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(format!("{current}: a panic")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_does_not_end_is_named() {
        let outcome = watched_for(Duration::from_millis(50), |announcer| {
            announcer.next("first".to_string());
            announcer.next("endless".to_string());
            std::thread::park_timeout(Duration::from_secs(5));
            Ok(())
        });
        let what = outcome.err().unwrap_or_default();
        assert!(what.starts_with("endless: still running"), "{what}");
        assert_eq!(watched(|_| Ok(7)), Ok(7));
    }
}
