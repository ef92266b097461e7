//! Progress, on a terminal only.

use std::fmt;
use std::io::IsTerminal;
use std::time::Duration;

use cambium::{Progress, ProgressSink};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::failure::talk;

/// Time between two pictures of the bar.
const TICK: Duration = Duration::from_millis(120);

/// A progress bar on standard error; nothing at all where that is no terminal.
/// It shows itself with the first report, so that quick work shows none.
#[derive(Debug)]
pub struct Meter {
    bar: ProgressBar,
}

impl Meter {
    /// A bar that counts `unit`s.
    pub fn new(unit: Unit) -> Self {
        if !std::io::stderr().is_terminal() {
            return Meter {
                bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
            };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let template = match unit {
            Unit::Steps => "{spinner} {msg} {wide_bar} {human_pos}/{human_len} {rate} {eta}",
            Unit::Bytes => "{spinner} {msg} {bytes} {bytes_per_sec} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.with_key("rate", write_rate));
        }
        Meter { bar }
    }

    /// Counts up to `position`, under a text.
    pub fn set(&self, position: u64, text: String) {
        self.bar.set_position(position);
        self.bar.set_message(text);
    }

    /// Says a line without tearing the bar.
    pub fn say(&self, message: &str) {
        self.bar.suspend(|| talk(message));
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// What a meter counts.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    /// Anything, of a known number.
    Steps,
    /// Bytes, of an unknown number.
    Bytes,
}

impl ProgressSink for Meter {
    fn report(&self, progress: Progress) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.enable_steady_tick(TICK);
        self.bar.set_length(progress.total.unwrap_or(progress.done));
        self.set(progress.done, progress.phase.to_string());
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Whole steps a second: what lies behind the point tells nobody anything.
fn write_rate(state: &ProgressState, to: &mut dyn fmt::Write) {
    // A drawing that fails has nobody to be told.
    _ = write!(to, "{}/s", HumanCount(state.per_sec() as u64));
}
