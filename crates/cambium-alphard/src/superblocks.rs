//! Superblocks on their members: two copies each, written one after the other, so that a
//! crash leaves one; read, the sound one with the highest generation counts.

use std::sync::Arc;

use cambium_base::{Result, StoreId};
use cambium_io::File;

use crate::format::{SUPERBLOCK_BYTES, Superblock};
use crate::members::all_of;
use crate::volume::{Volume, buffer};

impl Volume {
    /// Writes both copies of a superblock, one after the other, each synced: a
    /// crash while one is written leaves the other. Generation `n` goes to copy
    /// `(n + 1) % 2`, and counts when it is durable: after a failure the copy that
    /// may be torn is the next one written.
    ///
    /// It says which members are current. One that is lost meanwhile makes it
    /// another one, which is written once more. One that becomes current says so
    /// when it is durable on those that were: it must not know alone.
    pub fn write_superblock(&self, superblock: &mut Superblock) -> Result<()> {
        let all = all_of(self.member_count());
        loop {
            let were = superblock.current;
            superblock.current = self.current();
            for _ in 0..2 {
                let next = Superblock {
                    generation: superblock.generation + 1,
                    ..*superblock
                };
                if next.current & !were == 0 {
                    self.write_copy(&next, all, false)?;
                } else {
                    self.write_copy(&next, were, false)?;
                    self.write_copy(&next, all & !were, true)?;
                }
                *superblock = next;
            }
            if superblock.current == self.current() {
                return Ok(());
            }
        }
    }

    /// Writes a copy of a superblock to some members, durably.
    fn write_copy(&self, superblock: &Superblock, some: u32, spare: bool) -> Result<()> {
        self.on(some, spare, |member, file| {
            write_to(member, &**file, superblock)
        })?;
        self.on(some, spare, |_, file| file.sync_data())
    }
}

/// Writes a superblock to members that no volume is made of yet: both copies, one after the
/// other, each synced. It is that of a store that was not closed, so that its entries are
/// looked for.
pub(crate) fn write_superblock_of(
    members: &[(usize, Arc<dyn File>)],
    superblock: &mut Superblock,
    current: u32,
) -> Result<()> {
    superblock.current = current;
    superblock.clean = false;
    superblock.image_id = 0;
    for _ in 0..2 {
        superblock.generation += 1;
        for (member, file) in members {
            write_to(*member, &**file, superblock)?;
        }
        for (_, file) in members {
            file.sync_data()?;
        }
    }
    Ok(())
}

/// Writes the copy of a superblock whose turn it is.
fn write_to(member: usize, file: &dyn File, superblock: &Superblock) -> Result<()> {
    let own = Superblock {
        member: member as u32,
        ..*superblock
    };
    let mut bytes = buffer(SUPERBLOCK_BYTES as usize);
    bytes.copy_from_slice(&own.encode());
    let copy = (superblock.generation + 1) % 2;
    file.write_at(&bytes, copy * SUPERBLOCK_BYTES)
}

/// The newest sound superblock, and where copies are not sound.
pub(crate) fn read_superblock(file: &dyn File) -> Result<(Option<Superblock>, Vec<u64>)> {
    let mut best: Option<Superblock> = None;
    let mut unsound = Vec::new();
    for copy in 0..2 {
        let mut bytes = buffer(SUPERBLOCK_BYTES as usize);
        let offset = copy * SUPERBLOCK_BYTES;
        let count = file.read_at(&mut bytes, offset)?;
        match Superblock::decode(&bytes[..count], file.path())? {
            Some(found) => {
                if best.is_none_or(|best| found.generation > best.generation) {
                    best = Some(found);
                }
            }
            None => unsound.push(offset),
        }
    }
    Ok((best, unsound))
}

/// True if a copy of the superblock, sound or not, is of a store.
pub(crate) fn is_of_store(file: &dyn File, store: StoreId) -> Result<bool> {
    for copy in 0..2 {
        let mut bytes = buffer(SUPERBLOCK_BYTES as usize);
        let count = file.read_at(&mut bytes, copy * SUPERBLOCK_BYTES)?;
        if Superblock::names(&bytes[..count], store) {
            return Ok(true);
        }
    }
    Ok(false)
}
