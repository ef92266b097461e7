//! Repair.
use std::path::Path;

use cambium_api::{CheckReport, ProgressSink};
use cambium_base::Result;
use cambium_io::Environment;

pub(crate) fn repair(_: &Environment, _: &Path, _: &dyn ProgressSink) -> Result<CheckReport> {
    Ok(CheckReport::default())
}
