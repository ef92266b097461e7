//! Copying an open store: a new one, in a file of the same size, gets all live entries of a
//! moment. It has no consumers and no history, but keeps history from then on if the store does.

use std::path::Path;

use cambium_api::backup::copy_entries;
use cambium_api::{OptionValues, ProgressSink};
use cambium_base::Result;

use crate::core::{Core, lock, read};
use crate::cursor::HashCursor;
use crate::engine::run;
use crate::memory::index_bytes;

/// Writes the entries of a cursor into a new store.
pub(crate) fn back_up(
    core: &Core,
    mut cursor: HashCursor,
    destination: &Path,
    progress: &dyn ProgressSink,
) -> Result<()> {
    let superblock = lock(&core.writer).superblock;
    let size = u64::from(superblock.total_blocks) * u64::from(core.block_bytes);
    let history = superblock.history_lost.map_or("off", |_| "on");
    let options = OptionValues::from([
        ("size", size.to_string().as_str()),
        ("block_bytes", core.block_bytes.to_string().as_str()),
        ("history", history),
    ]);
    // Before it has its marker it is no store: a copy is whole, or none.
    let entries = read(&core.state).index.len() as u64;
    let changes = superblock.history_lost.map_or(0, |_| entries);
    let index_bytes = index_bytes(entries, 0, changes);
    let making = crate::create::make(&core.environment, destination, &options, index_bytes)?;
    making.conclude_closed(&core.path, |filled| {
        let copy = run(filled);
        copy_entries(&mut cursor, &*copy, &mut 0, progress)?;
        copy.sync()?;
        copy.close()
    })
}
