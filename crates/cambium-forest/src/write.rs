//! Writing: requests, and how a group of them becomes a plan.
//!
//! Writers queue. The leader of a group turns its requests into entries
//! ([`crate::planned`]), in the order of arrival. A request that depends on the
//! current state (preconditions) is planned when everything before it has been applied.
//! What a plan's commit does stands in [`crate::commit`].

use std::sync::Arc;

use cambium_api::{Operation, Precondition, ReadSet, gives_space_back};
use cambium_base::{Durability, Error, Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;
use cambium_storage::room::make_room_for;

use crate::core::{Core, Writer, lock};
use crate::planned::{Action, Planned, planned_batch};

/// What a writer submits.
#[derive(Clone, Debug)]
pub(crate) struct WriteRequest {
    pub operations: Vec<(u16, Operation)>,
    pub durability: Durability,
    /// Checked against the state right before the operations.
    pub preconditions: Vec<(u16, Precondition)>,
    /// Reads of a transaction: the commit fails if one of them was written since.
    pub unchanged: Option<Arc<ReadSet>>,
    /// A namespace to make, if it is not there.
    pub new_namespace: Option<String>,
    /// One to drop.
    pub dropped_namespace: Option<String>,
    /// Bytes of keys and values as the user gave them, for statistics.
    pub user_bytes: u64,
}

impl WriteRequest {
    pub fn new(operations: Vec<(u16, Operation)>, durability: Durability) -> Self {
        WriteRequest {
            operations,
            durability,
            preconditions: Vec::new(),
            unchanged: None,
            new_namespace: None,
            dropped_namespace: None,
            user_bytes: 0,
        }
    }

    /// A store with little room takes it.
    fn gives_space_back(&self) -> bool {
        let drops = self.dropped_namespace.is_some() && self.operations.is_empty();
        drops || gives_space_back(self.operations.iter().map(|(_, operation)| operation))
    }

    /// Must see the effect of everything before it in its group.
    fn needs_current_state(&self) -> bool {
        !self.preconditions.is_empty()
            || self.unchanged.is_some()
            || self.new_namespace.is_some()
            || self.dropped_namespace.is_some()
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
    pub fn write_request(self: &Arc<Self>, request: WriteRequest) -> Result<SequenceNumber> {
        self.check_writable()?;
        let named = request.new_namespace.is_some() || request.dropped_namespace.is_some();
        if !request.operations.is_empty() || named {
            self.begin_session()?;
            self.yield_to_compaction(request.user_bytes);
            self.keep_to_flush();
            self.hold_back()?;
        }
        if !request.gives_space_back() {
            return self.submit_request(request);
        }
        make_room_for(
            || self.submit_request(request.clone()),
            || self.give_space_back(),
        )
    }

    fn submit_request(self: &Arc<Self>, request: WriteRequest) -> Result<SequenceNumber> {
        let synced = request.durability == Durability::Synced;
        let answer = self
            .queue
            .submit(&self.health, request, synced, |group| self.lead(group));
        if self.flush_due.load(Ordering::Acquire) {
            self.on_flush_due();
        }
        answer?
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
        self.note_less_kept();
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
        if let Some(reads) = &request.unchanged {
            self.recent.check(reads)?;
        }
        let makes_room = request.gives_space_back();
        let mut entries = planned_batch(request.operations);
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
            entry.makes_room = makes_room;
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
}

fn no_namespace(name: &str) -> Error {
    Error::NotFound {
        kind: "namespace",
        name: name.to_string(),
    }
}

/// Longest name of a namespace or a snapshot, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 255;
