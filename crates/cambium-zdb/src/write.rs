//! Writing: requests, and how a group of them becomes a plan.
//!
//! Writers make tables and read pieces of the index themselves. A `Synced` request then
//! queues, so that one sync serves several; any other is a group of its own. Under the
//! writer lock the requests of a group become entries, in the order of arrival, and
//! [`crate::commit`] writes them. A request that depends on the current state
//! (preconditions, ranges) is planned when everything before it has been applied.
//!
//! A put of an integer key whose piece of the index is in memory needs no request.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_api::{Precondition, ReadSet};
use cambium_base::{Durability, Error, Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;
use cambium_storage::room::make_room_for;

use crate::commit::{Entry, Group, Target};
use crate::core::{Core, Writer, lock};
use crate::format::{kind, range_value};
use crate::table::Table;

/// A change of one integer key, or of a range of them.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put {
        key: u64,
        value: Vec<u8>,
    },
    /// Of string keys, with the emptied bucket: it names the keys that went.
    Delete {
        key: u64,
        value: Vec<u8>,
    },
    /// Of integer keys, both bounds included.
    DeleteRange {
        from: u64,
        last: u64,
    },
}

/// What a writer submits.
#[derive(Clone, Debug)]
pub(crate) struct WriteRequest {
    pub changes: Vec<Change>,
    pub durability: Durability,
    /// Checked against the state right before the changes.
    pub preconditions: Vec<(u64, Precondition)>,
    /// Reads of a transaction over integer keys: the commit fails if one was written since.
    pub unchanged: Option<Arc<ReadSet>>,
    /// Flags of every entry.
    pub flags: u8,
    /// How many string keys the request adds or takes away.
    pub string_keys: i32,
    /// It deletes, and puts next to nothing beside.
    pub makes_room: bool,
    /// Bytes of keys and values as the user gave them, for statistics.
    pub user_bytes: u64,
}

impl WriteRequest {
    pub fn new(changes: Vec<Change>, durability: Durability) -> Self {
        WriteRequest {
            changes,
            durability,
            preconditions: Vec::new(),
            unchanged: None,
            flags: 0,
            string_keys: 0,
            makes_room: false,
            user_bytes: 0,
        }
    }

    /// Must see the effect of everything before it in its group.
    fn needs_current_state(&self) -> bool {
        !self.preconditions.is_empty()
            || self.unchanged.is_some()
            || self
                .changes
                .iter()
                .any(|change| matches!(change, Change::DeleteRange { .. }))
    }
}

/// Takes the removals of ranges out of a batch, in their order, and of the other changes those
/// that come last for their key. The ranges may be written first.
fn split_off_ranges(changes: Vec<Change>) -> (Vec<(u64, u64)>, Vec<Change>) {
    let mut ranges = Vec::new();
    let mut others: BTreeMap<u64, Change> = BTreeMap::new();
    for change in changes {
        match change {
            Change::Put { key, .. } | Change::Delete { key, .. } => {
                others.insert(key, change);
            }
            Change::DeleteRange { from, last } => {
                others.retain(|key, _| !(from..=last).contains(key));
                ranges.push((from, last));
            }
        }
    }
    (ranges, others.into_values().collect())
}

/// Requests that are written together.
#[derive(Default)]
struct Plan {
    targets: Vec<Arc<Target>>,
    /// The targets by the numbers of their tables.
    numbers: BTreeMap<u64, usize>,
    entries: Vec<Entry<'static>>,
    /// For each request its place in the group.
    members: Vec<usize>,
    /// For each request how many entries it has.
    counts: Vec<usize>,
    /// The most that a request asks for.
    durability: Option<Durability>,
    user_bytes: u64,
}

impl Core {
    /// Puts a value of an integer key.
    pub fn put(&self, key: u64, value: &[u8], durability: Durability) -> Result<SequenceNumber> {
        if let Some(answer) = self.put_prepared(key, value, durability) {
            self.look_at_checkpoint();
            return answer;
        }
        let value_bytes = value.len() as u64;
        let value = value.to_vec();
        let mut request = WriteRequest::new(vec![Change::Put { key, value }], durability);
        request.user_bytes = 8 + value_bytes;
        self.write_request(request)
    }

    /// Puts a value where nothing has to be read, allocated or synced for it; `None` where
    /// something has, and nothing was done.
    fn put_prepared(
        &self,
        key: u64,
        value: &[u8],
        durability: Durability,
    ) -> Option<Result<SequenceNumber>> {
        if durability == Durability::Synced || !self.session_begun.load(Ordering::Acquire) {
            return None;
        }
        let mut writer = lock(&self.writer);
        let writer = &mut *writer;
        if !writer.targets.contains_key(&self.table_number(key)) {
            let table = self.with_open_table(key, Arc::clone)?;
            self.target(writer, table);
        }
        // Out of the writer and back: counting a reference would change a line that every
        // writer fetches from the one before.
        let targets = std::mem::take(&mut writer.targets);
        let target = targets.get(&self.table_number(key))?;
        self.note_use(&target.table);
        let answer = target.table.is_prepared(key).then(|| {
            self.check_snapshot_limit(1)?;
            let mut group = Group {
                targets: std::slice::from_ref(target),
                entries: &mut [Entry::put(key, value, 0)],
                counts: &[1],
                durability,
                user_bytes: 8 + value.len() as u64,
            };
            self.write_group(writer, &mut group).map(SequenceNumber)
        });
        writer.targets = targets;
        answer
    }

    /// The target that an open table is.
    fn target(&self, writer: &mut Writer, table: Arc<Table>) -> Arc<Target> {
        let known = writer.targets.entry(table.number);
        known
            .or_insert_with(|| Arc::new(Target::new(table)))
            .clone()
    }

    fn look_at_checkpoint(&self) {
        if self.is_checkpoint_due() {
            self.on_checkpoint_due();
        }
    }

    /// Writes a request of integer keys. One that deletes and finds no room compacts data files.
    pub fn write_integers(&self, request: WriteRequest) -> Result<SequenceNumber> {
        if !request.makes_room {
            return self.write_request(request);
        }
        make_room_for(
            || self.write_request(request.clone()),
            || self.give_space_back(),
        )
    }

    /// Writes a request.
    pub fn write_request(&self, request: WriteRequest) -> Result<SequenceNumber> {
        self.check_writable()?;
        self.prepare(&request)?;
        let answer = match request.durability {
            Durability::Synced => self
                .queue
                .submit(&self.health, request, true, |group| self.lead(group)),
            _ => Ok(self.lead(vec![request]).remove(0)),
        };
        self.look_at_checkpoint();
        answer?
    }

    /// Does outside the queue what may need I/O: makes tables, reads pieces.
    fn prepare(&self, request: &WriteRequest) -> Result<()> {
        if !request.changes.is_empty() {
            self.begin_session()?;
        }
        // Neighbours share a piece: looked at once.
        let mut prepared = 0..0;
        for change in &request.changes {
            match change {
                Change::Put { key, .. } if prepared.contains(key) => {}
                Change::Put { key, .. } => {
                    self.ensure_table(*key)?;
                    if let Some(table) = self.table_of(*key)? {
                        if !table.is_prepared(*key) {
                            table.load_piece(table.piece_of(*key).0)?;
                            // The last checkpoint of a close takes this lock: after
                            // `close` returns, no writer allocates space.
                            let _writer = lock(&self.writer);
                            self.check_writable()?;
                            self.prepare_piece(&table, *key)?;
                        }
                        prepared = table.keys_of_piece(*key);
                    }
                }
                Change::Delete { key, .. } => {
                    if let Some(table) = self.table_of(*key)? {
                        table.load_piece(table.piece_of(*key).0)?;
                    }
                }
                Change::DeleteRange { from, last } => {
                    for table in self.tables_within(*from, *last) {
                        table?.load_within(*from, *last)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn prepare_piece(&self, table: &Table, key: u64) -> Result<()> {
        if table.is_prepared(key) {
            return Ok(());
        }
        let prepared = table.prepare_piece(table.piece_of(key).0);
        prepared.map_err(|error| match error {
            Error::Io {
                operation: "allocate",
                ..
            } => self.health.poison(error),
            other => other,
        })
    }

    /// Writes a group, and answers each request of it.
    fn lead(&self, group: Vec<WriteRequest>) -> Vec<Result<SequenceNumber>> {
        let mut writer = lock(&self.writer);
        let mut answers: Vec<Option<Result<SequenceNumber>>> = Vec::new();
        answers.resize_with(group.len(), || None);
        let mut plan = Plan::default();
        for (member, request) in group.into_iter().enumerate() {
            if request.needs_current_state() && !plan.members.is_empty() {
                self.commit_plan(&mut writer, std::mem::take(&mut plan), &mut answers);
            }
            if let Err(error) = self.plan_request(&mut writer, member, request, &mut plan) {
                answers[member] = Some(Err(error));
            }
        }
        self.commit_plan(&mut writer, plan, &mut answers);
        answers
            .into_iter()
            .map(|answer| answer.expect("every request was planned or refused"))
            .collect()
    }

    /// Turns a request into entries.
    fn plan_request(
        &self,
        writer: &mut Writer,
        member: usize,
        request: WriteRequest,
        plan: &mut Plan,
    ) -> Result<()> {
        self.check_writable()?;
        for (index, (key, precondition)) in request.preconditions.iter().enumerate() {
            let current = self.read_latest(*key)?;
            if !precondition.holds(current.as_deref()) {
                return Err(Error::PreconditionFailed { index });
            }
        }
        if let Some(reads) = &request.unchanged {
            self.recent.check(reads)?;
        }
        let first_in_plan = plan.members.is_empty();
        let mut entries = Vec::with_capacity(request.changes.len());
        let mut removed = 0;
        let changes = if request.needs_current_state() {
            let (ranges, changes) = split_off_ranges(request.changes);
            for range in ranges {
                removed += self.plan_range(writer, plan, range, &mut entries)?;
            }
            changes
        } else {
            request.changes
        };
        // Neighbours share a table, and a piece of its index.
        let mut last: Option<usize> = None;
        let mut prepared = 0..0;
        for change in changes {
            let (key, value, removes) = match change {
                Change::Put { key, value } => (key, value, false),
                Change::Delete { key, value } => (key, value, true),
                Change::DeleteRange { .. } => continue,
            };
            let number = self.table_number(key);
            let same = last.filter(|last| plan.targets[*last].table.number == number);
            let Some(target) = same.map_or_else(
                || self.target_of(writer, plan, number),
                |last| Ok(Some(last)),
            )?
            else {
                assert!(removes, "the tables of puts were made before");
                continue;
            };
            last = Some(target);
            let table = &plan.targets[target].table;
            if removes {
                table.load_piece(table.piece_of(key).0)?;
            } else if !prepared.contains(&key) {
                self.prepare_piece(table, key)?;
                prepared = table.keys_of_piece(key);
            }
            // Removing what is not there needs no entry; what the slot says
            // holds only if nothing planned before could have put the key.
            if removes && first_in_plan && table.locate(key)?.is_none() {
                continue;
            }
            entries.push(Entry {
                kind: if removes { kind::DELETE } else { kind::PUT },
                flags: request.flags,
                ..Entry::put(key, value, target)
            });
        }
        let makes_room = request.makes_room || entries.iter().all(Entry::removes);
        let count = entries.len();
        self.check_snapshot_limit(plan.entries.len() + count + removed)?;
        for (index, entry) in entries.iter_mut().enumerate() {
            entry.makes_room = makes_room;
            entry.batch_index = index as u32;
            entry.batch_remaining = (count - 1 - index) as u32;
        }
        if let Some(last) = entries.last_mut() {
            last.auxiliary = request.string_keys as u32;
        }
        plan.entries.append(&mut entries);
        plan.members.push(member);
        plan.counts.push(count);
        plan.user_bytes += request.user_bytes;
        plan.durability = plan.durability.max(Some(request.durability));
        Ok(())
    }

    /// A table's place among the targets of a plan; `None` if there is no such table.
    fn target_of(
        &self,
        writer: &mut Writer,
        plan: &mut Plan,
        number: u64,
    ) -> Result<Option<usize>> {
        if let Some(&known) = plan.numbers.get(&number) {
            return Ok(Some(known));
        }
        let Some(table) = self.table(number)? else {
            return Ok(None);
        };
        plan.targets.push(self.target(writer, table));
        plan.numbers.insert(number, plan.targets.len() - 1);
        Ok(Some(plan.targets.len() - 1))
    }

    /// Refuses entries that would make snapshots keep too many old versions.
    fn check_snapshot_limit(&self, entries: usize) -> Result<()> {
        let held = self.history.held();
        match self.history.open_snapshots() > 0
            && held + entries as u64 > self.tuning.snapshot_limit
        {
            true => Err(Error::SnapshotLimit {
                held,
                option: "snapshot_limit",
            }),
            false => Ok(()),
        }
    }

    /// Turns the removal of a range into an entry for each data file that has live keys of it.
    /// Answers how many old positions open snapshots will need.
    fn plan_range(
        &self,
        writer: &mut Writer,
        plan: &mut Plan,
        (from, last): (u64, u64),
        entries: &mut Vec<Entry<'static>>,
    ) -> Result<usize> {
        let mut removed = 0;
        for table in self.tables_within(from, last) {
            let table = table?;
            table.load_within(from, last)?;
            let places = 0..self.shape.data_files as usize;
            for (place, key) in places.filter_map(|place| {
                let mut live = table.live_within((from, last), Some(place));
                Some((place, live.next()?))
            }) {
                let Some(target) = self.target_of(writer, plan, table.number)? else {
                    continue;
                };
                entries.push(Entry {
                    kind: kind::DELETE_RANGE,
                    last,
                    ..Entry::put(key, range_value(from, last), target)
                });
                if self.history.open_snapshots() > 0 {
                    removed += table.live_within((from, last), Some(place)).count();
                }
            }
        }
        Ok(removed)
    }

    /// The tables that hold keys of a range.
    fn tables_within(&self, first: u64, last: u64) -> impl Iterator<Item = Result<Arc<Table>>> {
        let within = self.table_number(first)..=self.table_number(last);
        let numbers = self.table_numbers().into_iter();
        let numbers = numbers.filter(move |number| within.contains(number));
        numbers.filter_map(move |number| self.table(number).transpose())
    }

    /// Calls `visit` for each key that has an entry now.
    pub fn for_each_key(&self, mut visit: impl FnMut(u64)) -> Result<()> {
        for table in self.tables_within(0, u64::MAX) {
            let table = table?;
            table.load_within(0, u64::MAX)?;
            table.live_within((0, u64::MAX), None).for_each(&mut visit);
        }
        Ok(())
    }

    /// Writes a plan and answers its requests. What does not fit on the disk
    /// together is tried one by one.
    fn commit_plan(
        &self,
        writer: &mut Writer,
        mut plan: Plan,
        answers: &mut [Option<Result<SequenceNumber>>],
    ) {
        if plan.members.is_empty() {
            return;
        }
        let mut write = |entries: &mut [Entry<'_>], counts: &[usize], user_bytes| {
            let mut group = Group {
                targets: &plan.targets,
                entries,
                counts,
                durability: plan.durability.unwrap_or_default(),
                user_bytes,
            };
            self.write_group(writer, &mut group)
        };
        let together = write(&mut plan.entries, &plan.counts, plan.user_bytes);
        let apart = plan.members.len() > 1
            && together.as_ref().is_err_and(Error::is_no_space)
            && self.health.failure().is_none();
        let mut start = 0;
        for (member, &count) in plan.members.iter().zip(&plan.counts) {
            let first = match &together {
                Err(_) if apart => write(&mut plan.entries[start..start + count], &[count], 0),
                Ok(first) => Ok(first + start as u64),
                Err(error) => Err(error.clone()),
            };
            answers[*member] = Some(first.map(|first| SequenceNumber(first + count as u64 - 1)));
            start += count;
        }
    }
}
