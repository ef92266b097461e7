//! Whether the space of deleted entries comes back while nobody writes.

use cambium_api::{Durability, Engine, Error, IterationOrder, KeyRange};
use cambium_io::StepOutcome;
use cambium_io::simulated::{Generator, SimulatedDisk};

use crate::subject::Subject;

/// Entries that are put before everything is deleted, and bytes of their values.
const ENTRIES: u64 = 300;
const VALUE_BYTES: usize = 400;
/// A store is idle after so many steps that did nothing, one after the other.
const IDLE_STEPS: u32 = 20;
/// Steps within which it must become idle.
const MOST_STEPS: u32 = 20_000;

/// Fills the closed store of a disk, deletes everything by range or key by key, and takes
/// idle steps: then at least half of the values' bytes are free again.
pub(crate) fn check_space(
    subject: &Subject,
    disk: &SimulatedDisk,
    generator: &mut Generator,
) -> Result<(), String> {
    let disk = disk.process_crash();
    let environment = subject.environment(&disk, generator.next_u64());
    let by_range = generator.chance(1, 2);
    let emptied = || -> Result<u64, Error> {
        let store = subject.open(&environment)?;
        forget_consumers(&*store)?;
        for number in 0..ENTRIES {
            let value = [number as u8; VALUE_BYTES];
            store.put(&number.to_be_bytes(), &value, Durability::Written)?;
        }
        idle(&*store)?;
        let full = disk.used_bytes();
        match by_range {
            true => _ = store.delete_range(KeyRange::all(), Durability::Written)?,
            false => delete_each(&*store)?,
        }
        idle(&*store)?;
        Ok(full)
    };
    let full = emptied().map_err(|error| format!("emptying the store: {error}"))?;
    let left = disk.used_bytes();
    if left + ENTRIES * VALUE_BYTES as u64 / 2 <= full {
        return Ok(());
    }
    let how = if by_range { "by range" } else { "key by key" };
    Err(format!(
        "everything was deleted {how}, and the store takes {left} bytes of {full}"
    ))
}

/// What a follower of the sessions before still keeps is no garbage.
fn forget_consumers(store: &dyn Engine) -> Result<(), Error> {
    if store.capabilities().changes {
        for (name, _) in store.list_consumers()? {
            store.move_consumer(&name, None)?;
        }
    }
    Ok(())
}

fn delete_each(store: &dyn Engine) -> Result<(), Error> {
    let mut cursor = store.iterate(IterationOrder::Any, None)?;
    let mut keys = Vec::new();
    while let Some(key) = cursor.next_key()? {
        keys.push(key.to_vec());
    }
    drop(cursor);
    for key in keys {
        store.delete(&key, Durability::Written)?;
    }
    Ok(())
}

/// Takes steps as the background threads do of a store that is left alone.
fn idle(store: &dyn Engine) -> Result<(), Error> {
    let mut rested = 0;
    for _ in 0..MOST_STEPS {
        rested = match store.step(1 << 20)? {
            StepOutcome::Again => 0,
            _ => rested + 1,
        };
        if rested == IDLE_STEPS {
            break;
        }
    }
    Ok(())
}
