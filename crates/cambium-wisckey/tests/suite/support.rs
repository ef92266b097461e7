//! Helpers that several suites share.

use cambium_api::{Engine, OptionValues};
use cambium_io::StepOutcome;
use cambium_testkit::stores;
pub use cambium_testkit::stores::number;

/// Options, and some of them changed.
pub fn options_of(base: &[(&str, &str)], changes: &[(&str, &str)]) -> OptionValues {
    stores::options(&[base, changes])
}

/// Takes steps until there is no work.
pub fn work_until_idle(store: &dyn Engine) {
    for _ in 0..100_000 {
        if store.step(1 << 20).unwrap() != StepOutcome::Again {
            return;
        }
    }
    panic!("background work does not end");
}
