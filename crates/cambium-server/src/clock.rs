//! The wall clock, to the microsecond.
//!
//! The clock of the store goes in steps of some milliseconds. Clients of Redis compare moments
//! of their own with PTTL, and see such steps.

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// Milliseconds since 1970.
pub fn now_millis() -> u64 {
    now_micros() / 1000
}
