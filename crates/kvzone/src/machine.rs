//! What the operating system says of the machine, for reports.

use kvzone_core::device::report::Machine;

/// Asks; what is not said is `None`.
pub(crate) fn detect() -> Machine {
    let memory = std::fs::read_to_string("/proc/meminfo").ok();
    let kibibytes = memory.as_deref().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    Machine {
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .ok()
            .map(|text| text.trim().to_string()),
        processors: std::thread::available_parallelism().ok().map(usize::from),
        memory_bytes: kibibytes.map(|count| count * 1024),
    }
}
