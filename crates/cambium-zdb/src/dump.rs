//! A store as text for people.
use std::io::Write;
use std::path::Path;

use cambium_base::Result;
use cambium_io::Environment;

use crate::core::Core;

pub(crate) fn inspect(_: &Environment, _: &Path, _: &mut dyn Write) -> Result<()> {
    Ok(())
}
pub(crate) fn dump(_: &Core, _: &mut dyn Write) -> Result<()> {
    Ok(())
}
