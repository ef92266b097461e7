//! The log on standard error: events of the server and of its store.
//!
//! An event is one line, as text for people or as JSON for programs that collect logs. Standard
//! output has the line that says that the server is ready, and nothing else.
//!
//! | level | what is told |
//! |---|---|
//! | `error` | writes fail, a port or a thread fails |
//! | `warn` | the store stalls or puts work off; clients are refused, as there are too many |
//! | `info` | start and stop; the store opens, recovers, compacts; writes work again |
//! | `debug` | the store flushes; handshakes and passwords fail |

use std::io;

use clap::ValueEnum;
use serde::Deserialize;
use tracing::level_filters::LevelFilter;

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// An object a line
    Json,
}

/// The least severe event that is told.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing is told
    Off,
    /// Something has failed
    Error,
    /// Something may need attention
    Warn,
    /// Something has happened
    #[default]
    Info,
    /// For those who look for a fault
    Debug,
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> LevelFilter {
        match level {
            Level::Off => LevelFilter::OFF,
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
        }
    }
}

/// Begins to write events of all threads.
pub fn start(format: Format, level: Level) {
    let log = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(LevelFilter::from(level))
        // A log that nobody can write stops nothing.
        .log_internal_errors(false);
    // It fails if this process has a log already, which stays as it is.
    _ = match format {
        Format::Text => log.with_ansi(false).try_init(),
        Format::Json => log.json().flatten_event(true).try_init(),
    };
}
