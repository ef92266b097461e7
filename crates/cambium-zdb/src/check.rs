//! Verifying a store.
use std::path::Path;
use std::sync::Arc;

use cambium_api::{CheckReport, ProgressSink};
use cambium_base::Result;
use cambium_io::Environment;

use crate::core::Core;

pub(crate) fn check(_: &Environment, _: &Path, _: &dyn ProgressSink) -> Result<CheckReport> {
    Ok(CheckReport::default())
}
pub(crate) fn check_open_store(_: &Arc<Core>, _: &dyn ProgressSink) -> Result<CheckReport> {
    Ok(CheckReport::default())
}
