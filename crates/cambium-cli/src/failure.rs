//! How commands end.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use cambium::Error;

use crate::notation::is_hidden;

/// The exit statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Done.
    Done = 0,
    /// The key was not found, or there are findings.
    Negative = 1,
    /// Wrong usage, or unsupported by the engine.
    Usage = 2,
    /// The store, the disk or (part of) the input failed.
    Failed = 3,
}

/// Why a command stopped early.
#[derive(Debug)]
pub enum Failure {
    /// Whoever read standard output went away: nothing more to do, no failure.
    ReaderGone,
    /// To be told on standard error.
    Stop {
        /// The exit status.
        status: Status,
        /// One line: what, where, expected, remedy.
        message: String,
    },
}

impl Failure {
    /// The user asked for something that cannot be.
    pub fn usage(message: impl Into<String>) -> Self {
        Failure::Stop {
            status: Status::Usage,
            message: message.into(),
        }
    }

    /// There is no such thing, or not all is well.
    pub fn negative(message: impl Into<String>) -> Self {
        Failure::Stop {
            status: Status::Negative,
            message: message.into(),
        }
    }

    /// The input or the machine failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Failure::Stop {
            status: Status::Failed,
            message: message.into(),
        }
    }

    /// Another message for an error, with its status.
    pub fn from_status_of(error: &Error, message: String) -> Self {
        Failure::Stop {
            status: status_of(error),
            message,
        }
    }

    /// Writing standard output failed.
    pub fn output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::failed(format!("standard output: {error}")),
        }
    }

    /// A repair ended: of damage that it refuses to mend the error says all there is to say.
    pub fn of_repair(error: Error) -> Self {
        match error {
            Error::Corruption { .. } => Failure::failed(error.to_string()),
            other => other.into(),
        }
    }

    /// A file that is not the store's could not be used.
    pub fn file(path: &Path, error: &dyn Display) -> Self {
        Failure::failed(format!("{}: {error}", path.display()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if let Error::Io { source, .. } = &error {
            // Stores do not write to pipes: only standard output, handed to
            // an engine as a writer, can answer this.
            if source.kind() == io::ErrorKind::BrokenPipe {
                return Failure::ReaderGone;
            }
        }
        let status = status_of(&error);
        Failure::Stop {
            status,
            message: format!("{error}{}", remedy(&error)),
        }
    }
}

impl From<cambium_foreign::Error> for Failure {
    fn from(error: cambium_foreign::Error) -> Self {
        Failure::failed(error.to_string())
    }
}

fn status_of(error: &Error) -> Status {
    match error {
        Error::InvalidArgument(_) | Error::Unsupported { .. } | Error::LimitExceeded(_) => {
            Status::Usage
        }
        Error::NotFound { .. } | Error::PreconditionFailed { .. } => Status::Negative,
        _ => Status::Failed,
    }
}

/// What to do, where the error itself does not say.
fn remedy(error: &Error) -> &'static str {
    match error {
        Error::Corruption { .. } => {
            "; `cambium check` lists the damage, `cambium repair` brings back what can be read"
        }
        Error::Locked { .. } => {
            "; wait until that process is done with the store (`--wait 10s` does), or end it"
        }
        Error::HistoryLost { .. } => "; `changes --after` with that number shows them",
        Error::NoSpace { .. } => "; make room and try again, nothing was lost",
        _ => "",
    }
}

/// Says a line on standard error. That nobody listens is no reason to stop.
pub fn talk(message: &str) {
    let hides = |one: char| one != '\n' && (one.is_control() || is_hidden(one));
    if !message.contains(hides) {
        _ = writeln!(io::stderr(), "cambium: {message}");
        return;
    }
    // Names of files may hold anything, also what a terminal obeys.
    let escaped = message
        .split_inclusive(hides)
        .map(|part| match part.chars().next_back() {
            Some(last) if hides(last) => part.replace(last, &last.escape_unicode().to_string()),
            _ => part.to_string(),
        });
    _ = writeln!(io::stderr(), "cambium: {}", escaped.collect::<String>());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(error: Error) -> Status {
        match Failure::from(error) {
            Failure::Stop { status, .. } => status,
            Failure::ReaderGone => Status::Done,
        }
    }

    #[test]
    fn each_error_has_the_status_of_the_contract() {
        let invalid = Error::InvalidArgument(String::new());
        assert_eq!(status(invalid), Status::Usage);
        assert_eq!(status(Error::corruption("f", 0, "x")), Status::Failed);
        let missing = Error::NotFound {
            kind: "snapshot",
            name: "x".into(),
        };
        assert_eq!(status(missing), Status::Negative);
        let pipe = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(status(Error::io("write", "-", pipe)), Status::Done);
    }
}
