//! Planning a write: what it replaces, and where its entries go. A request is refused here
//! or not at all, but for failures of the device.

use cambium_api::Operation;
use cambium_base::{Error, Extent, Result, Value};
use cambium_io::StepOutcome;
use cambium_io::sync::MutexGuard;

use crate::core::{Core, Writer, read};
use crate::format::{self, blocks_for};
use crate::seeded_bug::SeededBug;
use crate::state::KeyName;
use crate::write::WriteRequest;

/// More waiting than so many times the coalescing limit, and a write that cannot
/// be done is refused before it is planned.
const MOST_PENDING: usize = 4;

/// What is erased at once to make room for a write.
const ROOM_BYTES: u64 = 1 << 20;
/// After so many steps a write waits only for those that let tombstones go.
const MOST_STEPS: u32 = 1024;

/// An operation with all that it needs to be done.
pub(crate) struct Planned<'a> {
    pub key: &'a [u8],
    /// `None` deletes.
    pub value: Option<&'a [u8]>,
    pub name: KeyName,
    pub before: Option<Extent>,
    pub extent: Extent,
}

impl Planned<'_> {
    /// Where the key's value is afterwards.
    pub fn after(&self) -> Option<Extent> {
        self.value.map(|_| self.extent)
    }

    /// The bits by which the digest of all live extents changes.
    pub fn changes_digest_by(&self) -> u64 {
        let extents = [self.before, self.after()].into_iter().flatten();
        extents.fold(0, |digest, extent| {
            digest ^ format::digest_of(self.name.slot, extent)
        })
    }
}

impl Core {
    /// As [`Core::plan`]; where there is no space, tombstones are let go as far as they
    /// can, which is else the background's to do. The writer lock is let go for that: what
    /// was planned before is there to be written by anybody.
    pub fn plan_with_room<'a>(
        &'a self,
        mut writer: MutexGuard<'a, Writer>,
        request: &WriteRequest,
    ) -> (MutexGuard<'a, Writer>, Result<u64>) {
        let mut steps = 0;
        loop {
            let planned = self
                .check_writable()
                .and_then(|()| self.plan(&mut writer, request));
            let error = match planned {
                Err(error) if error.is_no_space() && !writer.tombstones.is_empty() => error,
                other => return (writer, other),
            };
            let before = (writer.tombstones.len(), writer.allocator.free_blocks());
            // Only what is said to be durable can be erased.
            let settled = self.settle(&mut writer);
            drop(writer);
            self.environment
                .wait_for_background(&|| self.health.is_closed());
            let stepped = settled.and_then(|()| self.step(ROOM_BYTES));
            writer = self.lock_to_lead();
            steps += 1;
            let goes_on = match stepped {
                _ if writer.tombstones.len() < before.0 => true,
                // The background had some of it while it erased headers there.
                Ok(_) if writer.allocator.free_blocks() > before.1 => steps < MOST_STEPS,
                // One may erase headers without the last that a tombstone waits for, or
                // copy to a mirror first.
                Ok(outcome) => outcome == StepOutcome::Again && steps < MOST_STEPS,
                Err(failed) if failed.is_no_space() => false,
                Err(failed) => return (writer, Err(failed)),
            };
            if !goes_on {
                return (writer, Err(error));
            }
        }
    }

    /// Gives a request its numbers and its space, and makes it visible.
    fn plan(&self, writer: &mut Writer, request: &WriteRequest) -> Result<u64> {
        for (index, precondition) in request.preconditions.iter().enumerate() {
            let current = self.current(precondition.key())?;
            if !precondition.holds(current.as_deref()) {
                return Err(Error::PreconditionFailed { index });
            }
        }
        if let Some(reads) = &request.unchanged {
            self.recent.check(reads)?;
        }
        if writer.outgoing.waiting_bytes() > MOST_PENDING * self.tuning.coalesce_bytes {
            self.flush(writer)?;
        }
        let mut planned = Vec::with_capacity(request.operations.len());
        for operation in &request.operations {
            planned.extend(self.resolve(writer, operation)?);
        }
        if planned.is_empty() {
            return Ok(writer.next_sequence - 1);
        }
        self.check_snapshots(planned.len())?;
        let adds = planned.iter().filter(|entry| entry.value.is_some()).count() as u64;
        if adds > 0 {
            self.reserve_index(writer, adds)?;
        }
        self.begin_session(writer)?;
        self.collect_unpinned(writer);
        self.allocate(writer, &mut planned)?;
        if let Err(error) = self.reserve(&planned) {
            give_back(writer, &planned);
            return Err(error);
        }
        self.forget_kept(&planned);
        Ok(self.apply(writer, &planned))
    }

    /// What an operation replaces; `None` for a delete of what is not there.
    fn resolve<'a>(
        &self,
        writer: &mut Writer,
        operation: &'a Operation,
    ) -> Result<Option<Planned<'a>>> {
        let (key, value) = match operation {
            Operation::Put { key, value } => (key, Some(value.as_slice())),
            Operation::Delete { key } => (key, None),
            Operation::DeleteRange { .. } => return Err(crate::engine::unordered("delete_range")),
        };
        let (name, candidates) = {
            let state = read(&self.state);
            let name = state.name(key);
            (name, state.index.find(name.slot).collect::<Vec<_>>())
        };
        let before = self.choose(writer, name, &candidates)?;
        if before.is_none() && value.is_none() {
            return Ok(None);
        }
        let block_bytes = self.block_bytes;
        let blocks = value.map_or(1, |value| blocks_for(key.len(), value.len(), block_bytes));
        Ok(Some(Planned {
            key,
            value,
            name,
            before,
            extent: Extent { block: 0, blocks },
        }))
    }

    /// Which of the extents under a slot is the key's. One that is whole in its
    /// slot needs no look; a longer one is compared by its second hash, which the
    /// entry's header has if memory has it no more.
    fn choose(
        &self,
        writer: &mut Writer,
        name: KeyName,
        candidates: &[Extent],
    ) -> Result<Option<Extent>> {
        if name.slot.is_exact() {
            return Ok(candidates.first().copied());
        }
        for &extent in candidates {
            let known = writer.key_checks.get(&extent.block).copied();
            let check = known.map_or_else(|| self.key_check_at(extent), Ok)?;
            if check == name.check {
                return Ok(Some(extent));
            }
        }
        Ok(None)
    }

    /// The second hash of the key whose entry lies at an extent, which cannot go
    /// away now. With the first it makes 120 bits under a secret: two keys that
    /// agree in them are taken for one, here as in recovery.
    fn key_check_at(&self, extent: Extent) -> Result<u64> {
        let first = Extent {
            blocks: 1,
            ..extent
        };
        let head = self.read_extent(first)?;
        let decode =
            |head: &[u8]| format::decode_header(head, extent.block, self.block_bytes, self.seed);
        let mut members = self.volume.readable();
        let header = decode(&head).or_else(|| {
            // Damaged on one member: perhaps not on the other.
            members.find_map(|member| decode(&self.volume.read_from(member, first).ok()?))
        });
        match header {
            Some(header) => Ok(header.key_check),
            None => Err(self.volume.damage(
                extent.block,
                "the index points here, and no entry header matches its checksum",
            )),
        }
    }

    /// The value that a key has now, for a precondition.
    fn current(&self, key: &[u8]) -> Result<Option<Value>> {
        let moment = read(&self.state).visible;
        // The writer lock is held: what is live stays where it is.
        self.get_at(key, moment)
    }

    fn check_snapshots(&self, changes: usize) -> Result<()> {
        let state = read(&self.state);
        if state.pins() == 0 || state.changes() + changes as u64 <= self.tuning.snapshot_limit {
            return Ok(());
        }
        Err(Error::SnapshotLimit {
            held: state.changes(),
            option: "snapshot_limit",
        })
    }

    /// Finds space for each entry, right after the one before it where that is
    /// free; all of them or none.
    fn allocate(&self, writer: &mut Writer, planned: &mut [Planned<'_>]) -> Result<()> {
        let blocks = |extent: Extent| u64::from(extent.blocks);
        let puts = planned.iter().filter(|entry| entry.value.is_some());
        let taken: u64 = puts.map(|entry| blocks(entry.extent)).sum();
        let replaced = planned.iter().filter_map(|entry| entry.before);
        let may_use_reserve = taken <= replaced.map(blocks).sum();
        let mut behind = None;
        for at in 0..planned.len() {
            let blocks = planned[at].extent.blocks;
            match self.find_space(writer, blocks, behind, may_use_reserve) {
                Ok(extent) => {
                    planned[at].extent = extent;
                    behind = Some(extent);
                }
                Err(error) => {
                    give_back(writer, &planned[..at]);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes the space of holes that entries will be written to, while the request can still
    /// be refused.
    fn reserve(&self, planned: &[Planned<'_>]) -> Result<()> {
        if self.tuning.discard_bytes == 0 || self.has_bug(SeededBug::HolesUnreserved) {
            return Ok(());
        }
        planned
            .chunk_by(|one, next| one.extent.end() == u64::from(next.extent.block))
            .try_for_each(|run| {
                let blocks = run.iter().map(|entry| u64::from(entry.extent.blocks)).sum();
                self.volume.reserve(run[0].extent.block, blocks)
            })
    }
}

/// Gives extents back that nothing was written to.
fn give_back(writer: &mut Writer, planned: &[Planned<'_>]) {
    for taken in planned {
        writer.allocator.free(taken.extent);
    }
}
