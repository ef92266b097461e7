//! What the operating system says of the machine, for reports.

use kvzone_core::device::report::Machine;
use serde_json::{Value, json};

use crate::counters::field;
use crate::place::Disk;
use crate::weather::Weather;

/// Asks; what is not said is `None`.
pub(crate) fn detect() -> Machine {
    let memory = std::fs::read_to_string("/proc/meminfo").ok();
    let kibibytes = memory.and_then(|text| field(&text, "MemTotal:"));
    Machine {
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .ok()
            .map(|text| text.trim().to_string()),
        processors: std::thread::available_parallelism().ok().map(usize::from),
        memory_bytes: kibibytes.map(|count| count * 1024),
    }
}

/// Everything that is known of the machine, its disk, and what else it did.
pub(crate) fn describe(disk: &Disk, between: Option<&Weather>) -> Value {
    let mut all = json!(detect());
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model.to_string());
    all["processor"] = model.into();
    all["disk"] = json!(disk);
    all["weather"] = between.map(|weather| weather.to_json()).into();
    all
}
