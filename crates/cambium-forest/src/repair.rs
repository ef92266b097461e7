//! repair
use std::path::Path;
use cambium_api::{CheckReport, ProgressSink};
use cambium_base::Result;
use cambium_io::Environment;
pub(crate) fn repair(e: &Environment, p: &Path, s: &dyn ProgressSink) -> Result<CheckReport> { crate::check::check(e,p,s) }
