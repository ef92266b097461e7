//! What a worker process tells the process that started it.
//!
//! ```text
//!  kvzone run                               kvzone worker
//!     │ makes a cgroup, starts ───────────────▶ │ waits
//!     │ puts it into the cgroup                 │
//!     │ standard input: one Job, then the end ─▶│ opens the store, works
//!     │ ◀─ one Event a line, as JSON ────────── │
//! ```
//!
//! Lines go to a copy of standard output that only the worker's own code
//! knows; standard output itself becomes standard error, so that a library
//! that prints cannot put a word between. The last event is
//! [`Event::Done`] or [`Event::Failed`]; a stream that ends without one is a
//! crash, and one in which nothing moves for too long a hang.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::record::{Run, Status};

/// The stage in which a store is written to until its process is killed.
pub const LAST_WRITES: &str = "writing until the kill";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// The store is known; it is opened next.
    Started {
        version: Option<String>,
        settings: BTreeMap<String, String>,
    },
    /// What is done from here on: `open`, `load`, `settle`, `run`.
    Stage {
        stage: String,
        /// Operations are reported while it lasts, so that their standing
        /// still is a hang.
        counted: bool,
    },
    Progress {
        operations: u64,
    },
    Finished {
        run: Box<Run>,
    },
    /// The process ends itself next, as its job says; it sends nothing more.
    Kills,
    /// Something people should know: pages that stayed in the cache.
    Note {
        text: String,
    },
    Failed {
        status: Status,
        error: String,
    },
    Done,
}

impl Event {
    pub fn line(&self) -> Result<String> {
        serde_json::to_string(self)
            .map(|text| text + "\n")
            .map_err(|error| Error::Usage(format!("an event that is no JSON: {error}")))
    }

    pub fn parse(line: &str) -> Result<Event> {
        serde_json::from_str(line).map_err(|error| {
            Error::Usage(format!("a worker said what is no event: {error}: {line}"))
        })
    }
}

pub fn status_of(error: &Error) -> Status {
    match error {
        Error::Unsupported { .. } => Status::Unsupported,
        Error::Missing { .. } => Status::Missing,
        Error::WrongData { .. } => Status::Wrong,
        _ => Status::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_one_line_each_and_come_back_the_same() {
        let events = [
            Event::Started {
                version: Some("1.2\n3".to_string()),
                settings: BTreeMap::from([("a".to_string(), "b".to_string())]),
            },
            Event::Stage {
                stage: "load".to_string(),
                counted: true,
            },
            Event::Progress { operations: 7 },
            Event::Failed {
                status: Status::Wrong,
                error: "two\nlines".to_string(),
            },
            Event::Done,
        ];
        for event in events {
            let line = event.line().unwrap();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert_eq!(Event::parse(line.trim_end()).unwrap(), event);
        }
        assert!(Event::parse("printed by a library").is_err());
    }

    #[test]
    fn each_error_is_marked_by_what_it_means_for_the_comparison() {
        let missing = Error::Missing {
            store: "x".to_string(),
            what: "libx".to_string(),
            remedy: "make peers".to_string(),
        };
        assert_eq!(status_of(&missing), Status::Missing);
        assert_eq!(status_of(&Error::store("x", "put", "no")), Status::Failed);
        let wrong = Error::WrongData {
            store: "x".to_string(),
            what: "key 1".to_string(),
        };
        assert_eq!(status_of(&wrong), Status::Wrong);
    }
}
