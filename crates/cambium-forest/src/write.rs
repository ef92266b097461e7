//! Writing: requests, how a group of them becomes a plan, and how a plan is
//! committed.
//!
//! Writers queue. The leader of a group turns its requests into entries, in the
//! order of arrival. A request that depends on the current state (preconditions,
//! ranges) is planned when everything before it has been applied; the keys of
//! ranges are looked for before that ([`crate::ranges`]). A plan is committed so:
//!
//! 1. Space is allocated, so that a full disk refuses it before a byte is written.
//! 2. Entries are numbered and appended to the log's buffer.
//! 3. The buffer is handed to the operating system with one write; if anyone
//!    asked for `Synced`, padded to a block and synced, once for the group; then
//!    a record without payload says so, which no sync waits for. A commit writes
//!    no index and no header.
//! 4. The entries go into the write-buffer index, and become visible.
//!
//! A crash between any two steps leaves a suffix to be dropped. A failed write
//! or sync stops all further writes; a full disk takes back what was appended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cambium_api::{Operation, Precondition};
use cambium_base::{Durability, Error, Result, SequenceNumber};
use cambium_storage::health::found_no_space;
use cambium_storage::record::{RecordHeader, record_bytes};

use crate::buffer::{Insert, Version};
use crate::core::{Core, Mark, Writer, lock};
use crate::database::Database;
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress};
use crate::format::{document_auxiliary, kind};
use crate::ranges::{Gathered, has_ranges};
use crate::seeded_bug::SeededBug;
use crate::view::{Names, Roots, View};

/// What a writer submits.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    pub operations: Vec<(u16, Operation)>,
    pub durability: Durability,
    /// Checked against the state right before the operations.
    pub preconditions: Vec<(u16, Precondition)>,
    /// A namespace to make, if it is not there.
    pub new_namespace: Option<String>,
    /// One to drop.
    pub dropped_namespace: Option<String>,
    /// The keys of ranges among the operations.
    pub gathered: Option<Gathered>,
    /// Bytes of keys and values as the user gave them, for statistics.
    pub user_bytes: u64,
}

impl WriteRequest {
    pub fn new(operations: Vec<(u16, Operation)>, durability: Durability) -> Self {
        WriteRequest {
            operations,
            durability,
            preconditions: Vec::new(),
            new_namespace: None,
            dropped_namespace: None,
            gathered: None,
            user_bytes: 0,
        }
    }

    /// Must see the effect of everything before it in its group.
    fn needs_current_state(&self) -> bool {
        !self.preconditions.is_empty()
            || self.new_namespace.is_some()
            || self.dropped_namespace.is_some()
            || self.gathered.is_some()
    }
}

/// What an entry does.
#[derive(Debug)]
pub(crate) enum Action {
    Put(Vec<u8>),
    Delete,
    /// The key is the namespace's name.
    Namespace,
    /// The same.
    DropNamespace,
}

/// An entry on its way.
#[derive(Debug)]
pub(crate) struct Planned {
    pub namespace: u16,
    pub key: Vec<u8>,
    pub action: Action,
    batch_index: u32,
    batch_remaining: u32,
    /// Where it lies, once appended.
    offset: u64,
}

impl Planned {
    pub fn new(namespace: u16, key: Vec<u8>, action: Action) -> Self {
        Planned {
            namespace,
            key,
            action,
            batch_index: 0,
            batch_remaining: 0,
            offset: 0,
        }
    }

    fn kind(&self) -> u8 {
        match self.action {
            Action::Put(_) => kind::PUT,
            Action::Delete => kind::DELETE,
            Action::Namespace => kind::NAMESPACE,
            Action::DropNamespace => kind::NAMESPACE_DROPPED,
        }
    }

    fn value(&self) -> &[u8] {
        match &self.action {
            Action::Put(value) => value,
            _ => &[],
        }
    }

    fn record_bytes(&self) -> u64 {
        let payload = self.key.len() + self.value().len();
        record_bytes(payload as u64, DOCUMENT_ALIGNMENT)
    }

    /// What the write buffer takes of it; nothing of a namespace.
    fn insert(&self, sequence: u64) -> Option<Insert<'_>> {
        let document = match self.action {
            Action::Put(_) => {
                let bytes = self.record_bytes();
                Some(DocumentAddress::new(self.offset, bytes, &self.key))
            }
            Action::Delete => None,
            Action::Namespace | Action::DropNamespace => return None,
        };
        Some(Insert {
            namespace: self.namespace,
            key: &self.key,
            version: Version { sequence, document },
        })
    }
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

impl Core {
    /// Writes a request through the queue.
    pub fn write_request(self: &Arc<Self>, mut request: WriteRequest) -> Result<SequenceNumber> {
        self.check_writable()?;
        if has_ranges(&request.operations) {
            request.gathered = Some(self.gather(&request.operations)?);
        }
        self.submit(request)
    }

    /// Writes a request whose ranges' keys are gathered.
    pub fn submit(self: &Arc<Self>, request: WriteRequest) -> Result<SequenceNumber> {
        let named = request.new_namespace.is_some() || request.dropped_namespace.is_some();
        if !request.operations.is_empty() || named {
            self.begin_session()?;
            self.yield_to_compaction(request.user_bytes);
            self.hold_back()?;
        }
        let synced = request.durability == Durability::Synced;
        let answer = self.queue.submit(request, synced, |group| self.lead(group));
        if self.flush_due.load(Ordering::Acquire) {
            self.on_flush_due();
        }
        answer
    }

    /// The number of a namespace, made if it is not there.
    pub fn namespace_number(self: &Arc<Self>, name: &str) -> Result<u16> {
        self.check_open()?;
        if let Some(number) = self.known_namespace(name) {
            return Ok(number);
        }
        if name.len() > MAX_NAME_BYTES {
            return Err(Error::LimitExceeded(format!(
                "a namespace's name of {} bytes: names have up to {MAX_NAME_BYTES}",
                name.len()
            )));
        }
        let mut request = WriteRequest::new(Vec::new(), Durability::Written);
        request.new_namespace = Some(name.to_string());
        self.write_request(request)?;
        self.known_namespace(name).ok_or_else(|| no_namespace(name))
    }

    /// The number of a namespace that is there.
    pub fn known_namespace(&self, name: &str) -> Option<u16> {
        self.view.load().names.number(name)
    }

    /// Drops a namespace with all that is in it, durably.
    pub fn drop_namespace(self: &Arc<Self>, name: &str) -> Result<()> {
        self.check_writable()?;
        if name.is_empty() {
            return Err(Error::InvalidArgument(
                "the default namespace cannot be dropped; delete_range empties it".to_string(),
            ));
        }
        let mut request = WriteRequest::new(Vec::new(), Durability::Synced);
        request.dropped_namespace = Some(name.to_string());
        self.write_request(request)?;
        // What it took is stale now.
        self.forget_kept();
        Ok(())
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
            // What follows must not be planned for what is gone by then.
            let drops = request.dropped_namespace.is_some();
            if let Err(error) = self.plan_request(member, request, &mut writer, &mut plan) {
                answers[member] = Some(Err(error));
            }
            if drops {
                self.commit_plan(&mut writer, std::mem::take(&mut plan), &mut answers);
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
        self: &Arc<Self>,
        member: usize,
        request: WriteRequest,
        writer: &mut Writer,
        plan: &mut Plan,
    ) -> Result<()> {
        self.check_writable()?;
        {
            let view = self.view.load();
            for (namespace, _) in &request.operations {
                view.check_namespace(*namespace)?;
            }
        }
        for (index, (namespace, precondition)) in request.preconditions.iter().enumerate() {
            let current = self.get_latest(*namespace, precondition.key())?;
            if !precondition.holds(current.as_deref()) {
                return Err(Error::PreconditionFailed { index });
            }
        }
        let mut entries: Vec<Planned> = match request.gathered {
            Some(gathered) => self.resolve_ranges(request.operations, gathered)?,
            None => request.operations.into_iter().filter_map(planned).collect(),
        };
        if let Some(name) = request.new_namespace {
            if self.known_namespace(&name).is_none() {
                let number = u16::try_from(writer.next_namespace).map_err(|_| {
                    Error::LimitExceeded("a store has up to 65,536 namespaces".to_string())
                })?;
                entries.push(Planned::new(number, name.into_bytes(), Action::Namespace));
            }
        }
        if let Some(name) = request.dropped_namespace {
            let number = self.known_namespace(&name);
            let number = number.ok_or_else(|| no_namespace(&name))?;
            entries.push(Planned::new(
                number,
                name.into_bytes(),
                Action::DropNamespace,
            ));
        }
        let count = entries.len();
        for (index, entry) in entries.iter_mut().enumerate() {
            entry.batch_index = index as u32;
            entry.batch_remaining = (count - 1 - index) as u32;
        }
        plan.entries.append(&mut entries);
        plan.requests.push((member, count));
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
        let Plan {
            mut entries,
            requests,
            durability,
            user_bytes,
        } = plan;
        match self.write_entries(writer, &mut entries, durability) {
            Ok(first) => {
                let mut last = first - 1;
                for (member, count) in requests {
                    last += count as u64;
                    answers[member] = Some(Ok(SequenceNumber(last)));
                }
                self.apply(writer, entries, first, user_bytes);
            }
            Err(error)
                if error.is_no_space() && requests.len() > 1 && self.health.failure().is_none() =>
            {
                let mut entries = entries.into_iter();
                for (member, count) in requests {
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
                for (member, _) in requests {
                    answers[member] = Some(Err(error.clone()));
                }
            }
        }
    }

    /// Brings entries to the device as the durability asks; answers the
    /// sequence number of the first.
    fn write_entries(
        &self,
        writer: &mut Writer,
        entries: &mut [Planned],
        durability: Durability,
    ) -> Result<u64> {
        self.check_sound()?;
        let view = self.view.load();
        let database = &view.database;
        let bytes = entries.iter().map(Planned::record_bytes).sum();
        if bytes > 0 {
            database.check_room(bytes)?;
            database.log.reserve(bytes)?;
        }
        let first = writer.next_sequence;
        let end = database.log.end();
        let appended = self.append(writer, database, entries, first);
        if let Err(error) = appended.and_then(|()| self.hand_over(writer, database, durability)) {
            return Err(self.take_back(writer, database, end, error));
        }
        let last = first + entries.len() as u64 - 1;
        let sync = durability == Durability::Synced && writer.unsynced;
        if sync {
            if self.has_bug(SeededBug::MarkBeforeSync) {
                self.mark_synced(writer, database, last);
            }
            self.sync_log(database)
                .map_err(|error| self.poisoned(error))?;
            writer.synced_through = last;
            writer.unsynced = false;
        }
        writer.next_sequence = last + 1;
        if sync {
            self.mark_synced(writer, database, last);
        }
        Ok(first)
    }

    fn append(
        &self,
        writer: &mut Writer,
        database: &Database,
        entries: &mut [Planned],
        first: u64,
    ) -> Result<()> {
        let most = self.tuning.buffer_bytes.max(LARGEST_APPEND);
        for (index, entry) in entries.iter_mut().enumerate() {
            if matches!(entry.action, Action::Delete) && self.has_bug(SeededBug::DeleteUnlogged) {
                continue;
            }
            let is_namespace = matches!(entry.action, Action::Namespace);
            if is_namespace && self.has_bug(SeededBug::NamespaceUnlogged) {
                continue;
            }
            let header = RecordHeader {
                kind: entry.kind(),
                attempt: writer.attempt,
                sequence: SequenceNumber(first + index as u64),
                synced_through: SequenceNumber(writer.synced_through),
                session: writer.session,
                batch_index: entry.batch_index,
                batch_remaining: entry.batch_remaining,
                auxiliary: document_auxiliary(entry.namespace, entry.key.len()),
                ..RecordHeader::default()
            };
            entry.offset = database.log.append(&header, &[&entry.key, entry.value()]);
            writer.unsynced = true;
            if database.log.buffered_bytes() > most {
                // A batch that ends here does not count: its last entry is missing.
                database.log.flush()?;
            }
        }
        Ok(())
    }

    /// Hands the buffer to the operating system as the durability asks.
    fn hand_over(
        &self,
        writer: &Writer,
        database: &Database,
        durability: Durability,
    ) -> Result<()> {
        match durability {
            Durability::Buffered => {
                if database.log.buffered_bytes() <= self.tuning.buffer_bytes {
                    return Ok(());
                }
            }
            Durability::Written => {}
            Durability::Synced => {
                if writer.unsynced {
                    database.log.pad_to_block();
                }
            }
        }
        database.log.flush()
    }

    /// Syncs the log.
    pub fn sync_log(&self, database: &Database) -> Result<()> {
        if !self.has_bug(SeededBug::CommitUnsynced) {
            database.log.sync()?;
        }
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Says in the log that everything up to here is on the device, so that who
    /// opens it after the death of the process can tell damage from a torn tail. It
    /// is handed over, not synced: it is there only if the sync before it was done,
    /// and where it is lost, nothing is. Past the page cache it would be an access of
    /// the device for each commit; there the next record says the same.
    fn mark_synced(&self, writer: &mut Writer, database: &Database, last: u64) {
        let end = database.log.end();
        let room = record_bytes(0, DOCUMENT_ALIGNMENT);
        if database.is_direct() || database.log.reserve(room).is_err() {
            return;
        }
        let header = RecordHeader {
            kind: kind::SYNCED,
            attempt: writer.attempt,
            sequence: SequenceNumber(last),
            synced_through: SequenceNumber(last),
            session: writer.session,
            ..RecordHeader::default()
        };
        database.log.append(&header, &[]);
        let written = match database.log.flush() {
            Err(error) if found_no_space(&error) => database.log.cut_back(end),
            outcome => outcome,
        };
        writer.mark = Some(Mark {
            file: database.file.number,
            start: end,
            end: database.log.end(),
        });
        if let Err(error) = written {
            // What was asked for is done; it is the last write that was.
            _ = self.poisoned(error);
        }
    }

    /// Undoes an append that failed for lack of space; any other failure
    /// stops all writes.
    fn take_back(&self, writer: &mut Writer, database: &Database, end: u64, error: Error) -> Error {
        if !found_no_space(&error) {
            return self.poisoned(error);
        }
        // What may be left of the entries must not be mixed with what follows.
        writer.attempt = writer.attempt.wrapping_add(1);
        match database.log.cut_back(end) {
            Ok(()) => error,
            Err(failure) => self.poisoned(failure),
        }
    }

    /// Makes entries visible.
    fn apply(&self, writer: &mut Writer, entries: Vec<Planned>, first: u64, user_bytes: u64) {
        if entries.is_empty() {
            return;
        }
        let count = entries.len() as u64;
        let logged = entries.iter().map(Planned::record_bytes).sum();
        if let Some(last) = entries.last() {
            self.announce_written(last.offset + last.record_bytes());
        }
        let kept = self.kept_moments();
        let active = self.view.load().active.clone();
        for entry in &entries {
            match entry.action {
                Action::Namespace => {
                    self.add_namespace(writer, entry.namespace, entry.key.clone());
                }
                Action::DropNamespace => self.forget_namespace(writer, entry.namespace),
                _ => {}
            }
        }
        let numbered = entries.iter().zip(first..);
        let inserts = numbered.filter_map(|(entry, sequence)| entry.insert(sequence));
        active.insert(inserts, &kept);
        self.visible.store(first + count - 1, Ordering::Release);
        self.note_puts(&entries);
        self.counters
            .user_bytes
            .fetch_add(user_bytes, Ordering::Relaxed);
        self.counters.log_bytes.fetch_add(logged, Ordering::Relaxed);
        self.counters.writes.fetch_add(count, Ordering::Relaxed);
        active.note_logged(logged);
        if self.is_full(&active) {
            self.flush_due.store(true, Ordering::Release);
        }
    }

    /// Knows a namespace from now on.
    pub fn add_namespace(&self, writer: &mut Writer, number: u16, name: Vec<u8>) {
        let name = String::from_utf8_lossy(&name).into_owned();
        self.change_view(|view| {
            let mut names = Names::clone(&view.names);
            names.insert(name, number);
            View {
                names: Arc::new(names),
                ..view.clone()
            }
        });
        writer.next_namespace = writer.next_namespace.max(u32::from(number) + 1);
    }

    /// Knows a namespace no longer. What buffers have of it the next flush leaves
    /// out; snapshots and cursors that are open go on with the view they have.
    pub fn forget_namespace(&self, _: &Writer, number: u16) {
        self.change_view(|view| {
            let mut names = Names::clone(&view.names);
            names.remove(number);
            let mut roots = Roots::clone(&view.roots);
            roots.namespaces.remove(&number);
            View {
                names: Arc::new(names),
                roots: Arc::new(roots),
                ..view.clone()
            }
        });
    }
}

fn no_namespace(name: &str) -> Error {
    Error::NotFound {
        kind: "namespace",
        name: name.to_string(),
    }
}

/// Bytes of a large batch that are handed to the operating system at once.
const LARGEST_APPEND: usize = 4 << 20;

/// Longest name of a namespace or a snapshot, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// The entry of an operation; none for a range, which has been resolved.
fn planned((namespace, operation): (u16, Operation)) -> Option<Planned> {
    let (key, action) = match operation {
        Operation::Put { key, value } => (key, Action::Put(value)),
        Operation::Delete { key } => (key, Action::Delete),
        Operation::DeleteRange { .. } => return None,
    };
    Some(Planned::new(namespace, key, action))
}
