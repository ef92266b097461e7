//! Writing: requests, and how a group of them is committed.
//!
//! A put without other writers beside it goes straight to the log. Otherwise writers
//! queue, and the leader of a group commits its requests in the order of arrival;
//! those that depend on the current state are planned when everything before them
//! has been applied. A commit:
//!
//! 1. The records are appended to the value log, as durable as asked for. This is
//!    the only log: the keys of small values, deletes and ranges are in it too.
//! 2. Keys and value pointers (or small values) go into the tree's write buffer,
//!    and the group becomes visible.
//!
//! A crash between the two leaves records that recovery replays into the tree, or
//! a suffix to be dropped. A failed write or sync stops all further writes; a full
//! disk takes back what was appended.

use std::cell::RefCell;
use std::sync::Arc;

use cambium_api::{Operation, Precondition, ReadSet, Written};
use cambium_base::{Durability, Error, Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;
use cambium_io::sync::with_taken;

use crate::core::{Core, lock};
use crate::format::{
    self, ALIGNMENT, ValuePointer, full_key, full_range, kind, namespace_end, namespace_of,
};
use crate::names::{NO_NAMESPACE, NameChange, Names, not_found};
use crate::segment::Segment;
use crate::value_log::{Appended, LogEntry, Writer};

/// What a writer submits.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    entries: Vec<Planned>,
    durability: Durability,
    /// Checked against the state right before the entries.
    preconditions: Vec<(Vec<u8>, Precondition)>,
    /// Reads of a transaction: the commit fails if one of them was written since.
    unchanged: Option<Arc<ReadSet>>,
    /// A namespace to make, if it is not there.
    pub new_namespace: Option<String>,
    /// A namespace to drop.
    pub dropped_namespace: Option<String>,
    /// Bytes of keys and values as the user gave them, for statistics.
    user_bytes: u64,
}

/// A record on its way, its keys full ones.
#[derive(Debug)]
enum Planned {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
    Namespace(u16, String),
    DropNamespace(Vec<u8>, Vec<u8>),
}

impl Planned {
    fn log_entry(&self) -> LogEntry<'_> {
        match self {
            Planned::Put(key, value) => LogEntry::new(kind::PUT, key.len() as u32, key, value),
            Planned::Delete(key) => LogEntry::new(kind::DELETE, key.len() as u32, key, &[]),
            Planned::DeleteRange(from, to) => {
                LogEntry::new(kind::DELETE_RANGE, from.len() as u32, from, to)
            }
            Planned::DropNamespace(from, to) => {
                LogEntry::new(kind::NAMESPACE_DROPPED, from.len() as u32, from, to)
            }
            Planned::Namespace(number, name) => {
                LogEntry::new(kind::NAMESPACE, u32::from(*number), name.as_bytes(), &[])
            }
        }
    }

    /// The end of a namespace.
    fn drop_of(namespace: u16) -> Self {
        Planned::DropNamespace(full_key(namespace, &[]), namespace_end(namespace))
    }

    /// The number of the namespace that it writes to.
    fn namespace(&self) -> u16 {
        match self {
            Planned::Put(key, _)
            | Planned::Delete(key)
            | Planned::DeleteRange(key, _)
            | Planned::DropNamespace(key, _) => namespace_of(key),
            Planned::Namespace(number, _) => *number,
        }
    }

    /// The change of names that it makes.
    fn name_change(&self) -> Option<NameChange> {
        match self {
            Planned::Namespace(number, name) => Some(NameChange::Made(*number, name.clone())),
            Planned::DropNamespace(..) => Some(NameChange::Dropped(self.namespace())),
            _ => None,
        }
    }

    /// An operation on a namespace; `None` for a range with nothing in it.
    fn of(namespace: u16, operation: Operation) -> Option<Self> {
        match operation {
            Operation::Put { key, value } => Some(Planned::Put(full_key(namespace, &key), value)),
            Operation::Delete { key } => Some(Planned::Delete(full_key(namespace, &key))),
            Operation::DeleteRange { range } => {
                let (from, to) = full_range(namespace, &range);
                (from < to).then_some(Planned::DeleteRange(from, to))
            }
        }
    }
}

impl WriteRequest {
    /// Operations on namespaces.
    pub fn new(
        operations: impl IntoIterator<Item = (u16, Operation)>,
        durability: Durability,
    ) -> Self {
        let mut user_bytes = 0;
        let entries = operations
            .into_iter()
            .filter_map(|(namespace, operation)| {
                user_bytes += operation.bytes();
                Planned::of(namespace, operation)
            })
            .collect();
        WriteRequest {
            entries,
            durability,
            preconditions: Vec::new(),
            unchanged: None,
            new_namespace: None,
            dropped_namespace: None,
            user_bytes,
        }
    }

    /// Adds what must hold.
    #[must_use]
    pub fn with_preconditions(
        mut self,
        namespace: u16,
        preconditions: &[Precondition],
        unchanged: Option<Arc<ReadSet>>,
    ) -> Self {
        self.unchanged = unchanged;
        self.preconditions = preconditions
            .iter()
            .map(|precondition| {
                (
                    full_key(namespace, precondition.key()),
                    precondition.clone(),
                )
            })
            .collect();
        self
    }

    /// Must see the effect of everything before it in its group.
    fn needs_current_state(&self) -> bool {
        !self.preconditions.is_empty() || self.unchanged.is_some() || self.changes_names()
    }

    fn changes_names(&self) -> bool {
        self.new_namespace.is_some() || self.dropped_namespace.is_some()
    }

    fn writes_something(&self) -> bool {
        !self.entries.is_empty() || self.changes_names()
    }
}

/// What a write does to the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TreeEntry<'a> {
    /// The value itself where it is inline, else its length.
    Put {
        key: &'a [u8],
        value_bytes: u32,
        inline: Option<&'a [u8]>,
    },
    Delete(&'a [u8]),
    DeleteRange(&'a [u8], &'a [u8]),
}

/// Requests that are written together.
#[derive(Debug, Default)]
struct Plan {
    entries: Vec<Planned>,
    /// For each request its place in the group, and how many entries it has.
    requests: Vec<(usize, usize)>,
    durability: Durability,
    user_bytes: u64,
}

type Answers = [Option<Result<SequenceNumber>>];

thread_local! {
    /// A full key: no allocation for a put.
    static FULL_KEY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// What the tree holds for an inline value.
    static INLINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Core {
    /// Gives a key a value, without a queue where no other thread writes now.
    pub fn put(
        self: &Arc<Self>,
        namespace: u16,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<SequenceNumber> {
        if durability != Durability::Synced {
            self.prepare()?;
            if let Ok(mut writer) = self.writer.try_lock() {
                let answer = self.put_alone(&mut writer, namespace, key, value, durability);
                let sealed = self.seal_where_due(&mut writer);
                drop(writer);
                self.after_seal(sealed);
                return answer;
            }
        }
        let operation = Operation::Put {
            key: key.to_vec(),
            value: value.to_vec(),
        };
        self.write_request(WriteRequest::new([(namespace, operation)], durability))
    }

    fn put_alone(
        &self,
        writer: &mut Writer,
        namespace: u16,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<SequenceNumber> {
        self.check_writable()?;
        self.check_namespace(namespace)?;
        with_taken(&FULL_KEY, |full| {
            full.clear();
            full.extend_from_slice(&namespace.to_be_bytes());
            full.extend_from_slice(key);
            let entry = LogEntry::new(kind::PUT, full.len() as u32, full, value);
            let appended = self.append(writer, &[entry], durability)?;
            let user_bytes = (key.len() + value.len()) as u64;
            let sequence = appended.sequence;
            self.apply(&appended, &[entry], user_bytes, None);
            Ok(SequenceNumber(sequence))
        })
    }

    /// Writes a request through the queue.
    pub fn write_request(self: &Arc<Self>, request: WriteRequest) -> Result<SequenceNumber> {
        self.check_writable()?;
        if request.writes_something() {
            self.prepare()?;
        }
        let synced = request.durability == Durability::Synced;
        let answer = self
            .queue
            .submit(&self.health, request, synced, |group| self.lead(group));
        let sealed = self.seal_where_due(&mut lock(&self.writer));
        self.after_seal(sealed);
        answer?
    }

    /// What comes before any write: the session, and back-pressure.
    fn prepare(self: &Arc<Self>) -> Result<()> {
        self.check_writable()?;
        self.begin_session()?;
        self.hold_back()
    }

    /// Writes a group, and answers each request of it.
    fn lead(self: &Arc<Self>, group: Vec<WriteRequest>) -> Vec<Result<SequenceNumber>> {
        let mut writer = lock(&self.writer);
        let mut answers: Vec<Option<Result<SequenceNumber>>> = Vec::new();
        answers.resize_with(group.len(), || None);
        let mut plan = Plan::default();
        for (member, request) in group.into_iter().enumerate() {
            if request.needs_current_state() && !plan.requests.is_empty() {
                self.commit_plan(&mut writer, std::mem::take(&mut plan), &mut answers);
            }
            let changes_names = request.changes_names();
            if let Err(error) = self.plan_request(member, request, &writer, &mut plan) {
                answers[member] = Some(Err(error));
            }
            if changes_names {
                // What follows must find the namespace made, or gone.
                self.commit_plan(&mut writer, std::mem::take(&mut plan), &mut answers);
            }
        }
        self.commit_plan(&mut writer, plan, &mut answers);
        answers
            .into_iter()
            .map(|answer| answer.expect("every request was planned or refused"))
            .collect()
    }

    /// Adds a request to a plan.
    fn plan_request(
        self: &Arc<Self>,
        member: usize,
        mut request: WriteRequest,
        writer: &Writer,
        plan: &mut Plan,
    ) -> Result<()> {
        self.check_writable()?;
        for entry in &request.entries {
            self.check_namespace(entry.namespace())?;
        }
        for (index, (key, precondition)) in request.preconditions.iter().enumerate() {
            self.check_namespace(namespace_of(key))?;
            let current = self.get_latest(key)?;
            if !precondition.holds(current.as_deref()) {
                return Err(Error::PreconditionFailed { index });
            }
        }
        if let Some(reads) = &request.unchanged {
            self.recent.check(reads)?;
        }
        if let Some(name) = request.new_namespace {
            if self.names.load().number(&name).is_none() {
                if writer.next_namespace >= u32::from(NO_NAMESPACE) {
                    return Err(Error::LimitExceeded(format!(
                        "a store has up to {NO_NAMESPACE} namespaces in its life, those included \
                         that were dropped: copy it into a new store"
                    )));
                }
                let number = writer.next_namespace as u16;
                request.entries.push(Planned::Namespace(number, name));
            }
        }
        if let Some(name) = request.dropped_namespace {
            let number = self.names.load().number(&name);
            let number = number.ok_or_else(|| not_found(name))?;
            request.entries.push(Planned::drop_of(number));
        }
        let entries = request.entries.iter().map(Planned::log_entry);
        Self::check_batch_bytes(entries.map(|entry| entry.most_bytes()).sum())?;
        plan.requests.push((member, request.entries.len()));
        plan.entries.append(&mut request.entries);
        plan.user_bytes += request.user_bytes;
        plan.durability = match plan.requests.len() {
            1 => request.durability,
            _ => plan.durability.max(request.durability),
        };
        Ok(())
    }

    /// Writes a plan and answers its requests. What does not fit on the disk
    /// together is tried one by one.
    fn commit_plan(&self, writer: &mut Writer, plan: Plan, answers: &mut Answers) {
        if plan.requests.is_empty() {
            return;
        }
        match self.commit(writer, &plan) {
            Ok(first) => {
                let mut last = first - 1;
                for (member, count) in plan.requests {
                    last += count as u64;
                    answers[member] = Some(Ok(SequenceNumber(last)));
                }
            }
            Err(error)
                if error.is_no_space()
                    && plan.requests.len() > 1
                    && self.health.failure().is_none() =>
            {
                let mut entries = plan.entries.into_iter();
                for (member, count) in plan.requests {
                    let alone = Plan {
                        entries: entries.by_ref().take(count).collect(),
                        requests: vec![(member, count)],
                        durability: plan.durability,
                        user_bytes: 0,
                    };
                    self.commit_plan(writer, alone, answers);
                }
            }
            Err(error) => {
                for (member, _) in plan.requests {
                    answers[member] = Some(Err(error.clone()));
                }
            }
        }
    }

    /// Writes a plan; answers the sequence number of its first entry.
    fn commit(&self, writer: &mut Writer, plan: &Plan) -> Result<u64> {
        if plan.entries.is_empty() {
            if plan.durability == Durability::Synced {
                self.sync_all(writer)?;
            }
            return Ok(writer.next_sequence);
        }
        let mut entries: Vec<LogEntry<'_>> = plan.entries.iter().map(Planned::log_entry).collect();
        let mut begin = 0;
        for &(_, count) in &plan.requests {
            for index in 0..count {
                entries[begin + index].batch_index = index as u32;
                entries[begin + index].batch_remaining = (count - 1 - index) as u32;
            }
            begin += count;
        }
        let appended = self.append(writer, &entries, plan.durability)?;
        let numbered = (appended.sequence..).zip(&plan.entries);
        let changes = numbered.filter_map(|(at, entry)| Some((at, entry.name_change()?)));
        let names = self.change_names(writer, changes);
        self.apply(&appended, &entries, plan.user_bytes, names);
        Ok(appended.sequence)
    }

    /// Puts records into the tree and makes them visible. Called under the writer
    /// lock, so that the tree is sealed between groups only. `names`: those from then on, if
    /// they change.
    pub fn apply(
        &self,
        appended: &Appended,
        entries: &[LogEntry<'_>],
        user_bytes: u64,
        names: Option<Arc<Names>>,
    ) {
        let mut logged = 0;
        let mut sequence = appended.sequence;
        {
            let tree = self.tree.writer();
            for entry in entries {
                let value_bytes = entry.second.len();
                let tree_entry = match entry.kind {
                    kind::PUT => Some(TreeEntry::Put {
                        key: entry.first,
                        value_bytes: value_bytes as u32,
                        inline: (value_bytes <= self.tuning.inline_bytes).then_some(entry.second),
                    }),
                    kind::DELETE => Some(TreeEntry::Delete(entry.first)),
                    kind::DELETE_RANGE | kind::NAMESPACE_DROPPED => {
                        Some(TreeEntry::DeleteRange(entry.first, entry.second))
                    }
                    _ => None,
                };
                let header = entry.header(&appended.template, sequence);
                let start = appended.offset + logged;
                logged += header.record_bytes(entry.payload_bytes(), ALIGNMENT);
                self.sample(entry, start..appended.offset + logged);
                if let Some(tree_entry) = tree_entry {
                    let header_bytes = header.header_bytes_before(entry.payload_bytes());
                    let place = (start, header_bytes as u8);
                    self.put_in_tree(&tree, &appended.segment, place, sequence, &tree_entry);
                }
                sequence += 1;
            }
        }
        self.recent.note(noted(entries, appended.sequence));
        match names {
            None => self.ledger.visible.store(sequence - 1, Ordering::Release),
            Some(names) => self
                .ledger
                .publish(sequence - 1, &mut || self.names.store(names.clone())),
        }
        let counters = &self.counters;
        counters.user_bytes.fetch_add(user_bytes, Ordering::Relaxed);
        counters.log_bytes.fetch_add(logged, Ordering::Relaxed);
        counters
            .writes
            .fetch_add(entries.len() as u64, Ordering::Relaxed);
    }

    /// Puts one write, whose record begins at an offset with a header of so many bytes, into
    /// the tree's write buffer.
    pub fn put_in_tree(
        &self,
        tree: &cambium_lsm::Writer<'_>,
        segment: &Segment,
        (offset, header_bytes): (u64, u8),
        sequence: u64,
        entry: &TreeEntry<'_>,
    ) {
        match *entry {
            TreeEntry::Put {
                key,
                inline: Some(value),
                ..
            } => with_taken(&INLINE, |inline| {
                format::encode_inline(value, inline);
                tree.put(sequence, key, inline);
            }),
            TreeEntry::Put {
                key, value_bytes, ..
            } => {
                let pointer = ValuePointer {
                    segment: segment.number,
                    offset,
                    value_bytes,
                    header_bytes,
                };
                tree.put(sequence, key, &pointer.encode());
                segment.add_value_bytes(pointer.record_bytes(key.len()));
            }
            TreeEntry::Delete(key) => tree.delete(sequence, key),
            TreeEntry::DeleteRange(from, to) => tree.delete_range(sequence, from, Some(to)),
        }
    }
}

/// The writes in the form that validation compares.
fn noted<'a>(entries: &'a [LogEntry<'a>], first: u64) -> impl Iterator<Item = (u64, Written<'a>)> {
    (first..).zip(entries).filter_map(|(sequence, entry)| {
        let written = match entry.kind {
            kind::PUT | kind::DELETE => Written::FullKey(entry.first),
            kind::DELETE_RANGE => Written::Range(entry.first, Some(entry.second)),
            kind::NAMESPACE_DROPPED => Written::Namespace(namespace_of(entry.first)),
            _ => return None,
        };
        Some((sequence, written))
    })
}
