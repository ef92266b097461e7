//! Planning a write: what it replaces, and where its entries go. A request is refused here
//! or not at all, but for failures of the device.
//!
//! Small requests of a group are planned as one batch, so that entries of several writers share
//! packs. Recovery keeps such a batch whole or not at all.

use std::collections::HashSet;

use cambium_api::{Operation, Written};
use cambium_base::{Error, Extent, Result, SequenceNumber, Value};
use cambium_io::StepOutcome;
use cambium_io::sync::MutexGuard;

use crate::core::{Core, Writer, read};
use crate::format;
use crate::pack;
use crate::place::Place;
use crate::seeded_bug::SeededBug;
use crate::space::Purpose;
use crate::state::KeyName;
use crate::write::WriteRequest;

/// More waiting than so many times the coalescing limit, and a write that cannot
/// be done is refused before it is planned.
const MOST_PENDING: usize = 4;

/// Fewer entries of a batch lie alone, as a value with a counter beside it: one of them is
/// replaced soon.
const LEAST_PACKED: usize = 4;
/// The planner takes requests together until they have so many bytes.
const TOGETHER_BYTES: u64 = 64 << 10;
/// What is erased at once to make room for a write.
const ROOM_BYTES: u64 = 1 << 20;
/// After so many steps a write waits only for those that let tombstones go.
const MOST_STEPS: u32 = 1024;
/// The same of walks over the device that clean.
const MOST_WALKS: u64 = 4;

/// An operation with all that it needs to be done.
pub(crate) struct Planned<'a> {
    pub key: &'a [u8],
    /// `None` deletes.
    pub value: Option<&'a [u8]>,
    pub name: KeyName,
    pub before: Option<Place>,
    pub place: Place,
}

impl<'a> Planned<'a> {
    /// An operation whose place is to be found.
    pub fn new(
        key: &'a [u8],
        value: Option<&'a [u8]>,
        name: KeyName,
        before: Option<Place>,
    ) -> Self {
        Planned {
            key,
            value,
            name,
            before,
            place: Place::tombstone(0),
        }
    }

    /// Where the key's value is afterwards.
    pub fn after(&self) -> Option<Place> {
        self.value.map(|_| self.place)
    }

    /// Its place where it lies alone, at a block that is to be found.
    fn alone(&self, block_bytes: u32) -> Place {
        match self.value {
            Some(value) => Place::alone(0, (self.key.len(), value.len()), block_bytes),
            None => Place::tombstone(0),
        }
    }

    /// Bytes of key and value that it takes in a pack; `None` if it lies alone.
    fn packed_bytes(&self) -> Option<usize> {
        match self.value {
            None => Some(0),
            Some(value) => self.place.is_small().then(|| self.key.len() + value.len()),
        }
    }

    /// The bits by which the digest of all live extents changes.
    pub fn changes_digest_by(&self) -> u64 {
        let places = [self.before, self.after()].into_iter().flatten();
        places.fold(0, |digest, place| {
            digest ^ format::digest_of(self.name.slot, place)
        })
    }
}

/// Entries as they are written: each pack together, each other one alone.
pub(crate) fn units<'a, 'b>(planned: &'a [Planned<'b>]) -> impl Iterator<Item = &'a [Planned<'b>]> {
    planned.chunk_by(|one, next| {
        next.place.number().is_some_and(|number| number > 0) && one.place.block == next.place.block
    })
}

impl Core {
    /// Plans the first requests of a group, and adds their answers: several together where that
    /// lets their entries share blocks.
    pub fn plan_first<'a>(
        &'a self,
        mut writer: MutexGuard<'a, Writer>,
        requests: &[&WriteRequest],
        answers: &mut Vec<Result<SequenceNumber>>,
    ) -> MutexGuard<'a, Writer> {
        let count = match writer.packs.are_off {
            true => 1,
            false => together(requests),
        };
        if count > 1 {
            let planned = self.plan(&mut writer, &requests[..count], Purpose::Replace);
            if let Ok(numbers) = planned {
                answers.extend(numbers.into_iter().map(Ok));
                return writer;
            }
        }
        // Each has an answer of its own.
        for request in &requests[..count] {
            let (held, answer) = self.plan_with_room(writer, request);
            writer = held;
            answers.push(answer);
        }
        writer
    }

    /// Plans one request. Without space the writer does what is else the background's to do:
    /// it lets tombstones go as far as it can, and cleans. The writer lock is let go for that:
    /// what was planned before is there to be written by anybody.
    fn plan_with_room<'a>(
        &'a self,
        mut writer: MutexGuard<'a, Writer>,
        request: &WriteRequest,
    ) -> (MutexGuard<'a, Writer>, Result<SequenceNumber>) {
        let alone = |numbers: Vec<SequenceNumber>| numbers[0];
        let mut steps = 0;
        let walks = writer.packs.walks;
        loop {
            let planned = self.plan(&mut writer, &[request], Purpose::Replace);
            let error = match planned {
                Err(error)
                    if error.is_no_space()
                        && (!writer.tombstones.is_empty() || writer.packs.waste() > 0) =>
                {
                    error
                }
                other => return (writer, other.map(alone)),
            };
            let before = (writer.tombstones.len(), writer.allocator.free_blocks());
            // Only what is said to be durable can be erased.
            let settled = self.settle(&mut writer);
            drop(writer);
            self.environment
                .wait_for_background(&|| self.health.is_closed());
            let stepped = settled.and_then(|()| self.step(ROOM_BYTES, true));
            writer = self.lock_to_lead();
            steps += 1;
            let goes_on = match stepped {
                _ if writer.tombstones.len() < before.0 => true,
                // The background had some of it while it erased headers there.
                Ok(_) if writer.allocator.free_blocks() > before.1 => steps < MOST_STEPS,
                // One may erase headers without the last that a tombstone waits for, or
                // copy to a mirror first.
                Ok(outcome) => {
                    let may_gain = steps < MOST_STEPS && writer.packs.walks < walks + MOST_WALKS;
                    outcome == StepOutcome::Again && may_gain
                }
                Err(failed) if failed.is_no_space() => false,
                Err(failed) => return (writer, Err(failed)),
            };
            if !goes_on {
                // Nothing more can be given back: the space that cleaning keeps serves deletes.
                let planned = self.plan(&mut writer, &[request], Purpose::LastResort);
                let planned = planned.map(alone).map_err(|last| match last.is_no_space() {
                    true => error,
                    false => last,
                });
                return (writer, planned);
            }
        }
    }

    /// Gives requests their numbers and their space, and makes them visible, all of them or
    /// none; answers the last number of each. They have no key in common. Those that take more
    /// space than they replace get that of [`Purpose::Add`], whatever `purpose` says.
    fn plan(
        &self,
        writer: &mut Writer,
        requests: &[&WriteRequest],
        purpose: Purpose,
    ) -> Result<Vec<SequenceNumber>> {
        // The lock may have been let go since the last look.
        self.check_writable()?;
        if writer.outgoing.waiting_bytes() > MOST_PENDING * self.tuning.coalesce_bytes {
            self.flush(writer)?;
        }
        let mut sought = Vec::with_capacity(requests.len());
        for request in requests {
            self.check_conditions(request)?;
            for operation in &request.operations {
                sought.push(self.seek(key_and_value(operation)?.0));
            }
        }
        let checks = self.read_key_checks(writer, &sought);
        let mut sought = sought.into_iter();
        let last = writer.next_sequence - 1;
        let mut numbers = Vec::with_capacity(requests.len());
        let mut planned = Vec::with_capacity(sought.len());
        for request in requests {
            for (operation, sought) in request.operations.iter().zip(&mut sought) {
                let (key, value) = key_and_value(operation)?;
                let before = self.choose(writer, &sought, &checks)?;
                // A delete of an absent key writes nothing.
                if before.is_some() || value.is_some() {
                    planned.push(Planned::new(key, value, sought.name, before));
                }
            }
            numbers.push(SequenceNumber(last + planned.len() as u64));
        }
        if planned.is_empty() {
            return Ok(numbers);
        }
        self.check_snapshots(planned.len())?;
        let adds = planned.iter().filter(|entry| entry.value.is_some()).count() as u64;
        if adds > 0 {
            self.reserve_index(writer, adds)?;
        }
        self.place(writer, &mut planned, purpose)?;
        let keys = planned.iter().map(|entry| Written::Key(0, entry.key));
        self.recent.note((writer.next_sequence..).zip(keys));
        self.apply(writer, &planned);
        Ok(numbers)
    }

    /// Refuses a request whose conditions do not hold.
    fn check_conditions(&self, request: &WriteRequest) -> Result<()> {
        for (index, precondition) in request.preconditions.iter().enumerate() {
            let current = self.current(precondition.key())?;
            if !precondition.holds(current.as_deref()) {
                return Err(Error::PreconditionFailed { index });
            }
        }
        if let Some(reads) = &request.unchanged {
            self.recent.check(reads)?;
        }
        Ok(())
    }

    /// Gives entries their space; all of them or none.
    pub fn place(
        &self,
        writer: &mut Writer,
        planned: &mut [Planned<'_>],
        purpose: Purpose,
    ) -> Result<()> {
        self.begin_session(writer)?;
        self.collect_unpinned(writer);
        let mut most_blocks = match writer.packs.are_off {
            true => 0,
            false => pack::most_blocks(self.block_bytes),
        };
        // No run of free blocks may be long enough for a whole pack, but for a shorter one.
        while let Err(error) = self.allocate(writer, planned, (purpose, most_blocks)) {
            most_blocks /= 2;
            let is_packed = planned.iter().any(|entry| entry.place.number().is_some());
            if !is_packed || !error.is_no_space() || most_blocks == 0 {
                return Err(error);
            }
        }
        if let Err(error) = self.reserve(planned) {
            give_back(writer, planned);
            return Err(error);
        }
        self.forget_kept(planned);
        Ok(())
    }

    /// The value that a key has now, for a precondition.
    fn current(&self, key: &[u8]) -> Result<Option<Value>> {
        let moment = read(&self.state).visible;
        // The writer lock is held: what is live stays where it is.
        self.get_at(key, moment)
    }

    /// Refuses a number of changes that open snapshots would have to keep beyond their limit.
    pub fn check_snapshots(&self, changes: usize) -> Result<()> {
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
    fn allocate(
        &self,
        writer: &mut Writer,
        planned: &mut [Planned<'_>],
        (purpose, most_blocks): (Purpose, u32),
    ) -> Result<()> {
        for entry in planned.iter_mut() {
            entry.place = entry.alone(self.block_bytes);
        }
        if most_blocks > 0 {
            let least = match purpose {
                Purpose::Move => 2,
                _ => LEAST_PACKED,
            };
            pack_small(planned, (most_blocks, least), self.block_bytes);
        }
        let blocks = |unit: &[Planned<'_>]| u64::from(unit[0].place.extent().blocks);
        let puts = units(planned).filter(|unit| unit[0].value.is_some());
        let taken: u64 = puts.map(blocks).sum();
        let replaced = planned.iter().filter_map(|entry| entry.before);
        // Alone an entry of a pack would take a block.
        let replaced = replaced.map(|place| match place.number() {
            Some(_) => 1,
            None => u64::from(place.extent().blocks),
        });
        let purpose = match (purpose, taken <= replaced.sum()) {
            (Purpose::Replace | Purpose::LastResort, false) => Purpose::Add,
            _ => purpose,
        };
        let mut behind = None;
        let mut at = 0;
        while at < planned.len() {
            let count = units(&planned[at..]).next().map_or(1, <[_]>::len);
            let blocks = planned[at].place.extent().blocks;
            match self.find_space(writer, blocks, behind, purpose) {
                Ok(extent) => {
                    for entry in &mut planned[at..at + count] {
                        entry.place = entry.place.at(extent.block);
                    }
                    behind = Some(extent);
                }
                Err(error) => {
                    give_back(writer, &planned[..at]);
                    return Err(error);
                }
            }
            at += count;
        }
        Ok(())
    }

    /// Takes the space of holes that entries will be written to, while the request can still
    /// be refused.
    fn reserve(&self, planned: &[Planned<'_>]) -> Result<()> {
        if self.tuning.discard_bytes == 0 || self.has_bug(SeededBug::HolesUnreserved) {
            return Ok(());
        }
        let extents: Vec<Extent> = units(planned).map(|unit| unit[0].place.extent()).collect();
        extents
            .chunk_by(|one, next| one.end() == u64::from(next.block))
            .try_for_each(|run| {
                let blocks = run.iter().map(|extent| u64::from(extent.blocks)).sum();
                self.volume.reserve(run[0].block, blocks)
            })
    }
}

/// The key of an operation, and its value unless it deletes.
fn key_and_value(operation: &Operation) -> Result<(&[u8], Option<&[u8]>)> {
    match operation {
        Operation::Put { key, value } => Ok((key, Some(value))),
        Operation::Delete { key } => Ok((key, None)),
        Operation::DeleteRange { .. } => Err(crate::engine::unordered("delete_range")),
    }
}

/// Counts the first requests that are planned together: those without conditions, of few bytes
/// and of different keys.
fn together(requests: &[&WriteRequest]) -> usize {
    if requests.len() < LEAST_PACKED {
        return 1;
    }
    let mut keys: HashSet<&[u8]> = HashSet::new();
    let (mut count, mut bytes) = (0, 0);
    for request in requests {
        bytes += request.user_bytes;
        let is_free = request.preconditions.is_empty() && request.unchanged.is_none();
        if !is_free || bytes > TOGETHER_BYTES {
            break;
        }
        let mut operations = request.operations.iter();
        let is_new = |operation| key_and_value(operation).is_ok_and(|(key, _)| keys.insert(key));
        if !operations.all(is_new) {
            break;
        }
        count += 1;
    }
    match count {
        LEAST_PACKED.. => count,
        _ => 1,
    }
}

/// Puts small entries that follow one another into packs, where that takes fewer blocks than
/// they take alone; so with tombstones. Places tell packs apart by their blocks, which are not
/// those of the device yet.
fn pack_small(planned: &mut [Planned<'_>], (most_blocks, least): (u32, usize), block_bytes: u32) {
    let most = pack::room(most_blocks, block_bytes);
    let most_entries = pack::most_entries(block_bytes);
    let (mut at, mut packs) = (0, 0);
    while at < planned.len() {
        let is_put = planned[at].value.is_some();
        let (mut count, mut contents, mut alone) = (0, 0, 0);
        for entry in &planned[at..] {
            let bytes = entry
                .packed_bytes()
                .filter(|_| entry.value.is_some() == is_put);
            let Some(bytes) = bytes else { break };
            let table = (count + 1) * pack::ROW_BYTES;
            if count == most_entries || count > 0 && table + contents + bytes > most {
                break;
            }
            (count, contents) = (count + 1, contents + bytes);
            alone += entry.place.extent().blocks;
        }
        let blocks = format::blocks_for(count * pack::ROW_BYTES, contents, block_bytes);
        if blocks < alone && count >= least {
            packs += 1;
            let pack = Extent {
                block: packs,
                blocks,
            };
            for (number, entry) in planned[at..at + count].iter_mut().enumerate() {
                entry.place = Place::packed(pack, number);
            }
        }
        at += count.max(1);
    }
}

/// Gives extents back that nothing was written to.
fn give_back(writer: &mut Writer, planned: &[Planned<'_>]) {
    for taken in units(planned) {
        writer.allocator.free(taken[0].place.extent());
    }
}
