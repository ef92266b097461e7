//! Checkpoints: another folder with the same tables, and a manifest of its own.
//!
//! Tables never change, so a checkpoint gives each a second name in the other folder. The
//! manifest there begins with a base: the version and the owner's note, both as of one
//! edit. What is in memtables is not part of it: flush first.

use std::collections::BTreeSet;
use std::path::Path;

use cambium_base::Result;
use cambium_io::sync::atomic::Ordering;

use crate::format::table_name;
use crate::manifest::Manifest;
use crate::tree::{Context, Tree, lock};

impl Tree {
    /// Makes a tree in `folder`, which is made if it is not there, that holds all tables as
    /// of the last edit. `share` puts a file of this tree at a path of that folder, durable
    /// but for its name, or answers false: then this answers `None`, and what was made until
    /// then is left. Answers the owner's note of that edit. Durable when this returns, but
    /// for the name of `folder` in its parent.
    ///
    /// # Errors
    /// Errors of the file system, and of `share`.
    pub fn checkpoint(
        &self,
        folder: &Path,
        share: &mut dyn FnMut(&Path, &Path) -> Result<bool>,
    ) -> Result<Option<Vec<u8>>> {
        self.check_open()?;
        let (versions, base) = {
            let _manifest = lock(&self.manifest);
            let version = self.view.load().version.clone();
            let base = self.base_of(&version);
            let mut versions = vec![version];
            versions.extend(lock(&self.kept).values().cloned());
            (versions, base)
        };
        let environment = &self.context.environment;
        if environment.file_system.metadata(folder)?.is_none() {
            environment.file_system.create_directory(folder)?;
        }
        // A table that an edit takes out meanwhile stays while `versions` are held.
        let files = versions.iter().flat_map(|version| version.files());
        let numbers: BTreeSet<u64> = files.map(|(_, file)| file.metadata.number).collect();
        for number in numbers {
            let name = table_name(number);
            if !share(&self.context.folder.join(&name), &folder.join(&name))? {
                return Ok(None);
            }
        }
        let options = &self.context.options;
        let copy = Context::new(environment, folder, self.context.store, options);
        copy.next_file.store(base.next_file, Ordering::Release);
        Manifest::create(&copy, &base)?;
        drop(versions);
        Ok(Some(base.note))
    }
}
