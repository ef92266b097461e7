//! Writing: requests, and how a group of them becomes a plan.
//!
//! Writers make tables and read pieces of the index themselves, then queue.
//! The leader of a group turns its requests into entries, in the order of
//! arrival, and hands them to [`crate::commit`]. A request that depends on the
//! current state (preconditions, ranges) is planned when everything before it
//! has been applied.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_api::{Precondition, ReadSet};
use cambium_base::{Durability, Error, Result, SequenceNumber};
use cambium_index::Slot;
use cambium_io::sync::atomic::Ordering;

use crate::core::{Core, Writer, lock};
use crate::data_file::DataFile;
use crate::format::{ENTRY_PREFIX_BYTES, kind};
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
    /// From the first key to the second, exclusive; `None` is open above.
    DeleteRange {
        from: u64,
        to: Option<u64>,
    },
}

/// What a writer submits.
#[derive(Debug)]
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

/// An entry on its way.
pub(crate) struct Planned {
    pub table: Arc<Table>,
    pub file: Arc<DataFile>,
    pub key: u64,
    pub removes: bool,
    pub value: Vec<u8>,
    pub flags: u8,
    pub auxiliary: u32,
    pub batch_index: u32,
    pub batch_remaining: u32,
    pub position: u64,
}

impl Planned {
    pub fn kind(&self) -> u8 {
        match self.removes {
            true => kind::DELETE,
            false => kind::PUT,
        }
    }

    pub fn payload_bytes(&self) -> u64 {
        (ENTRY_PREFIX_BYTES + self.value.len()) as u64
    }
}

/// Requests that are written together.
#[derive(Default)]
pub(crate) struct Plan {
    pub entries: Vec<Planned>,
    /// For each request its place in the group, and how many entries it has.
    pub requests: Vec<(usize, usize)>,
    pub durability: Option<Durability>,
    pub user_bytes: u64,
}

impl Core {
    /// Writes a request through the queue.
    pub fn write_request(&self, request: WriteRequest) -> Result<SequenceNumber> {
        self.check_writable()?;
        self.prepare(&request)?;
        let synced = request.durability == Durability::Synced;
        let answer = self
            .queue
            .submit(&self.health, request, synced, |group| self.lead(group));
        if self.checkpoint_due.load(Ordering::Acquire) {
            self.on_checkpoint_due();
        }
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
                Change::DeleteRange { .. } => {}
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
            } => self.poisoned(error),
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
            if request.needs_current_state() && !plan.requests.is_empty() {
                self.commit_plan(&mut writer, std::mem::take(&mut plan), &mut answers);
            }
            if let Err(error) = self.plan_request(member, request, &mut plan) {
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
    fn plan_request(&self, member: usize, request: WriteRequest, plan: &mut Plan) -> Result<()> {
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
        let first_in_plan = plan.requests.is_empty();
        let mut entries = Vec::with_capacity(request.changes.len());
        let changes = if request.needs_current_state() {
            self.resolve_ranges(request.changes)?
        } else {
            request.changes
        };
        // Neighbours share a table, and a piece of its index.
        let mut last: Option<Arc<Table>> = None;
        let mut prepared = 0..0;
        for change in changes {
            let (key, value, removes) = match change {
                Change::Put { key, value } => (key, value, false),
                Change::Delete { key, value } => (key, value, true),
                Change::DeleteRange { .. } => continue,
            };
            let table = match &last {
                Some(table) if table.number == self.table_number(key) => table.clone(),
                _ => match self.table_of(key)? {
                    Some(table) => last.insert(table).clone(),
                    None => {
                        assert!(removes, "the tables of puts were made before");
                        continue;
                    }
                },
            };
            if removes {
                table.load_piece(table.piece_of(key).0)?;
            } else if !prepared.contains(&key) {
                self.prepare_piece(&table, key)?;
                prepared = table.keys_of_piece(key);
            }
            // Removing what is not there needs no entry; what the slot says
            // holds only if nothing planned before could have put the key.
            if removes && first_in_plan && table.locate(key)?.is_none() {
                continue;
            }
            let file = table.current_file(table.place_of(key));
            entries.push(Planned {
                file,
                key,
                removes,
                value,
                table,
                flags: request.flags,
                auxiliary: 0,
                batch_index: entries.len() as u32,
                batch_remaining: 0,
                position: 0,
            });
        }
        let count = entries.len();
        if self.history.open_snapshots() > 0
            && self.history.held() + (plan.entries.len() + count) as u64
                > self.tuning.snapshot_limit
        {
            return Err(Error::SnapshotLimit {
                held: self.history.held(),
                option: "snapshot_limit",
            });
        }
        for (index, entry) in entries.iter_mut().enumerate() {
            entry.batch_remaining = (count - 1 - index) as u32;
        }
        if let Some(last) = entries.last_mut() {
            last.auxiliary = request.string_keys as u32;
        }
        plan.entries.append(&mut entries);
        plan.requests.push((member, count));
        plan.user_bytes += request.user_bytes;
        plan.durability = plan.durability.max(Some(request.durability));
        Ok(())
    }

    /// Replaces ranges by the keys that are in them now; a later change of a
    /// key wins over an earlier one.
    fn resolve_ranges(&self, changes: Vec<Change>) -> Result<Vec<Change>> {
        let mut resolved: BTreeMap<u64, Option<Vec<u8>>> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Put { key, value } => _ = resolved.insert(key, Some(value)),
                Change::Delete { key, .. } => _ = resolved.insert(key, None),
                Change::DeleteRange { from, to } => {
                    let within = |key: u64| key >= from && to.is_none_or(|to| key < to);
                    for (key, value) in resolved.iter_mut() {
                        if within(*key) {
                            *value = None;
                        }
                    }
                    self.for_each_key(from, to, |key| {
                        resolved.insert(key, None);
                    })?;
                }
            }
        }
        let changes = resolved.into_iter().map(|(key, value)| match value {
            Some(value) => Change::Put { key, value },
            None => Change::Delete {
                key,
                value: Vec::new(),
            },
        });
        Ok(changes.collect())
    }

    /// Calls `visit` for each key of a range that has an entry now.
    pub fn for_each_key(
        &self,
        from: u64,
        to: Option<u64>,
        mut visit: impl FnMut(u64),
    ) -> Result<()> {
        let last = match to {
            Some(0) => return Ok(()),
            Some(to) => to - 1,
            None => u64::MAX,
        };
        if from > last {
            return Ok(());
        }
        for number in self.table_numbers() {
            if number < self.table_number(from) || number > self.table_number(last) {
                continue;
            }
            let Some(table) = self.table(number)? else {
                continue;
            };
            let per_piece = self.shape.slots_per_piece() as u64;
            for piece in 0..table.piece_count() {
                let first = table.first_key.saturating_add(piece as u64 * per_piece);
                if first > last || first.saturating_add(per_piece - 1) < from {
                    continue;
                }
                if table.piece(piece).slots.is_none() && table.piece(piece).on_disk == 0 {
                    continue;
                }
                table.load_piece(piece)?;
                // The piece is free again before `visit`, which may read.
                let keys: Vec<u64> = {
                    let state = table.piece(piece);
                    let Some(slots) = &state.slots else { continue };
                    (0..slots.len())
                        .filter(|&slot| matches!(slots.get(slot), Slot::Position(_)))
                        .filter_map(|slot| first.checked_add(slot as u64))
                        .filter(|key| (from..=last).contains(key))
                        .collect()
                };
                keys.into_iter().for_each(&mut visit);
            }
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
        if plan.requests.is_empty() {
            return;
        }
        match self.write_plan(writer, &mut plan) {
            Ok(first) => {
                let mut last = first - 1;
                for &(member, count) in &plan.requests {
                    last += count as u64;
                    answers[member] = Some(Ok(SequenceNumber(last)));
                }
            }
            Err(error)
                if error.is_no_space()
                    && plan.requests.len() > 1
                    && self.health.failure().is_none() =>
            {
                let durability = plan.durability;
                let mut entries = plan.entries.into_iter();
                for (member, count) in plan.requests {
                    let alone = Plan {
                        entries: entries.by_ref().take(count).collect(),
                        requests: vec![(member, count)],
                        durability,
                        user_bytes: 0,
                    };
                    self.commit_plan(writer, alone, answers);
                }
            }
            Err(error) => {
                for &(member, _) in &plan.requests {
                    answers[member] = Some(Err(error.clone()));
                }
            }
        }
    }
}
