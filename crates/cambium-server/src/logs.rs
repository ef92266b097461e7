//! The log on standard error: events of the server and of its store.
//!
//! An event is one line, as text for people or as JSON for programs that collect logs. Standard
//! output has the line that says that the server is ready, and nothing else.
//!
//! A thread of its own writes the lines: where nobody reads them, clients do not wait. Lines for
//! which there is no room are left out, and their number is told when there is.
//!
//! | level | what is told |
//! |---|---|
//! | `error` | writes fail, a port or a thread fails |
//! | `warn` | the store stalls or puts work off; clients are refused, as there are too many |
//! | `info` | start and stop; the store opens, recovers, compacts; writes work again |
//! | `debug` | the store flushes; handshakes and passwords fail |

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cambium_io::sync::atomic::{AtomicU64, Ordering};
use clap::ValueEnum;
use serde::Deserialize;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::mailbox::Mailbox;

/// Lines that wait to be written.
const MOST_LINES: usize = 4_096;
/// How long the end of the server waits for them.
const LAST_LINES_TIME: Duration = Duration::from_secs(1);

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

/// Lines on their way to standard error.
#[derive(Debug, Default)]
struct Lines {
    waiting: Mailbox<Line>,
    left_out: AtomicU64,
    /// The thread answers [`Line::Last`].
    ended: Mailbox<()>,
}

#[derive(Debug)]
enum Line {
    Text(Vec<u8>),
    /// None follows.
    Last,
}

impl Lines {
    /// Writes lines until the last.
    fn write(&self) {
        let (mut lines, mut is_over) = (Vec::new(), false);
        while !is_over {
            self.waiting.wait(None);
            self.waiting.take(&mut lines);
            let mut bytes = Vec::new();
            for line in lines.drain(..) {
                match line {
                    Line::Text(text) => bytes.extend(text),
                    Line::Last => is_over = true,
                }
            }
            let left_out = self.left_out.swap(0, Ordering::Relaxed);
            if left_out > 0 {
                tracing::warn!(left_out, "lines of the log are left out: nobody reads them");
            }
            // A log that nobody can write stops nothing.
            _ = io::stderr().write_all(&bytes);
        }
        self.ended.send([()]);
    }
}

impl Write for &Lines {
    /// Takes one line: an event is one write.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self
            .waiting
            .send_below(MOST_LINES, Line::Text(line.to_vec()))
        {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where events go.
struct Sink(Arc<Lines>);

impl<'a> MakeWriter<'a> for Sink {
    type Writer = &'a Lines;

    fn make_writer(&'a self) -> &'a Lines {
        &self.0
    }
}

/// The log. Dropped, it waits a moment for its last lines.
#[derive(Debug)]
pub struct Log(Arc<Lines>);

impl Drop for Log {
    fn drop(&mut self) {
        self.0.waiting.send([Line::Last]);
        self.0.ended.wait(Some(LAST_LINES_TIME));
    }
}

/// Begins to write events of all threads, until the answer is dropped.
///
/// # Errors
/// The system has no thread left.
pub fn start(format: Format, level: Level) -> io::Result<Log> {
    let lines: Arc<Lines> = Arc::default();
    let writing = lines.clone();
    let thread = thread::Builder::new().name("log".to_string());
    thread.spawn(move || writing.write())?;
    let log = tracing_subscriber::fmt()
        .with_writer(Sink(lines.clone()))
        .with_max_level(LevelFilter::from(level))
        .log_internal_errors(false);
    // It fails if this process has a log already, which stays as it is.
    _ = match format {
        Format::Text => log.with_ansi(false).try_init(),
        Format::Json => log.json().flatten_event(true).try_init(),
    };
    Ok(Log(lines))
}
