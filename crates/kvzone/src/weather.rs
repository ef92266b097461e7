//! What else the machine was doing.
//!
//! A measurement on a busy machine measures the neighbours too. Between two
//! looks at the kernel's counters, everything that was neither idle nor this
//! process and its workers is foreign; time that the hypervisor gave to other
//! machines is stolen.

use std::fs;

use serde_json::{Value, json};

use crate::counters::ticks;

/// Shares of all processors' time above which a warning is due.
const FOREIGN: f64 = 0.10;
const STOLEN: f64 = 0.02;

/// Clock ticks of all processors together below which shares are chance: our
/// own are counted when a worker has ended, in ticks of ten milliseconds.
const ENOUGH: u64 = 200;

/// Processor time in clock ticks, since the machine started or between two
/// looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Weather {
    all: u64,
    idle: u64,
    stolen: u64,
    /// This process and the workers that it waited for.
    own: u64,
    /// Processes that wanted to run, over the last minute.
    load: f64,
}

impl Weather {
    pub(crate) fn now() -> Option<Weather> {
        let read = |path| fs::read_to_string(path).ok();
        let load = read("/proc/loadavg")?;
        let load = load.split_whitespace().next()?.parse().ok()?;
        Weather::parse(&read("/proc/stat")?, &read("/proc/self/stat")?, load)
    }

    fn parse(machine: &str, process: &str, load: f64) -> Option<Weather> {
        let first = machine.lines().next()?.strip_prefix("cpu ")?;
        // user nice system idle iowait irq softirq steal guest guest_nice;
        // the last two are in the first two already.
        let times: Vec<u64> = first
            .split_whitespace()
            .take(8)
            .map(|time| time.parse().ok())
            .collect::<Option<_>>()?;
        Some(Weather {
            all: times.iter().sum(),
            idle: times.get(3)? + times.get(4)?,
            stolen: times.get(7).copied().unwrap_or(0),
            own: ticks(process).iter().sum(),
            load,
        })
    }

    /// What happened since `earlier`; the load is that of `earlier`, before
    /// our own work made it larger.
    pub(crate) fn since(&self, earlier: &Weather) -> Weather {
        Weather {
            all: self.all.saturating_sub(earlier.all),
            idle: self.idle.saturating_sub(earlier.idle),
            stolen: self.stolen.saturating_sub(earlier.stolen),
            own: self.own.saturating_sub(earlier.own),
            load: earlier.load,
        }
    }

    fn share(&self, ticks: u64) -> f64 {
        if self.all == 0 {
            return 0.0;
        }
        ticks as f64 / self.all as f64
    }

    fn foreign(&self) -> f64 {
        let ours = self.idle + self.stolen + self.own;
        self.share(self.all.saturating_sub(ours))
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.all < ENOUGH {
            return found;
        }
        let foreign = self.foreign();
        if foreign > FOREIGN {
            found.push(format!(
                "{:.0} % of the machine's processor time went to other work (the kernel's included): \
                 believe CPU time and ratios more than rates",
                foreign * 100.0
            ));
        }
        let stolen = self.share(self.stolen);
        if stolen > STOLEN {
            found.push(format!(
                "{:.0} % of the processor time was taken by other machines of this host",
                stolen * 100.0
            ));
        }
        found
    }

    pub(crate) fn to_json(self) -> Value {
        json!({
            "foreign_cpu_share": self.foreign(),
            "stolen_cpu_share": self.share(self.stolen),
            "load_average_before": self.load,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 2 3\n";

    fn process(ticks: u64) -> String {
        format!("42 (a ) b) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 5\n")
    }

    fn between(after: &str, own: u64) -> Weather {
        let before = Weather::parse(BEFORE, &process(0), 0.5).unwrap();
        let after = Weather::parse(after, &process(own), 9.0).unwrap();
        after.since(&before)
    }

    #[test]
    fn our_own_work_is_no_foreign_load() {
        let found = between("cpu  150 0 150 900 0 0 0 0 0 0\n", 100);
        assert_eq!(found.foreign(), 0.0);
        assert!(found.warnings().is_empty());
        assert_eq!(found.load, 0.5);
    }

    #[test]
    fn foreign_load_and_stolen_time_are_told() {
        let found = between("cpu  150 0 150 890 0 0 0 10 0 0\n", 40);
        assert_eq!(found.foreign(), 0.3);
        let warnings = found.warnings();
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].starts_with("30 %"), "{warnings:?}");
        assert!(warnings[1].starts_with("5 %"), "{warnings:?}");
    }

    #[test]
    fn the_machine_at_hand_can_be_asked() {
        match Weather::now() {
            Some(weather) => assert!(weather.all > weather.idle),
            None => println!("SKIPPED: no /proc here"),
        }
    }
}
