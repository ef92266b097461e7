//! Values of a range query, read ahead of the cursor (section 3.3.1).
//!
//! Values lie apart from their keys, so a walk along the keys reads at random
//! places. One read after the other leaves most of a device idle; so a cursor
//! takes keys from the tree in *groups*, begins the reads of all values of a group,
//! and goes on while they are under way.
//!
//! ```text
//!   caller ◀── front group ── second group ── next one, from the tree
//!              answered,      being read      begun when half of what
//!              mostly                         is ahead was handed out
//! ```
//!
//! A walk begins with groups of 1, 1, 2, 4 values, each begun when it is needed, and
//! read in the caller's thread where that takes few reads: somebody waits for it.
//! Values that lie right after the last of a group come along with it.
//! Once access is sequential the next ones are begun ahead, no more than half of
//! what was walked, up to the option `read_ahead`: a short walk reads little in
//! vain. Values that lie close together, as garbage collection puts them, are
//! one read; where most do, more of them are ahead, since reads count and not
//! values.
//!
//! By the option `range_io` reads go through io_uring, through a pool of threads
//! as published, or one by one in the caller's thread; then none is begun before
//! its value is asked for. Whichever it is, an entry whose value cannot be read
//! answers its error when its turn comes, after the entries before it.

use std::collections::VecDeque;
use std::ops::DerefMut;
use std::sync::Arc;

use cambium_api::Entry;
use cambium_base::{Error, Result, Value};
use cambium_io::{
    BatchOptions, KeptQueue, ReadBackend, ReadCompletion, ReadPool, ReadQueue, ReadRequest,
};

use crate::core::Core;
use crate::options::RangeIo;
use crate::read::{Span, Wanted, spans_of};
use crate::segment::Segments;

/// Most bytes of values that wait in a cursor, but for a single one.
const LARGEST_AHEAD_BYTES: u64 = 4 << 20;
/// Entries handed out before the cursor reads ahead of its caller. Until then
/// each group is as long as all before it, so that short walks are few batches.
const SEQUENTIAL_ENTRIES: usize = 64;
/// Where values lie together, so many times `read_ahead` of them are ahead.
const MOST_DENSITY: usize = 8;
/// So few reads are made in the caller's thread, where they bring many values.
const MOST_READS_HERE: usize = 3;
/// Values a read from which they are many.
const DENSE: usize = 4;
/// How often the caller is let go on before waiting reads are handed to the queue.
const LOOK_EVERY: usize = 4;

/// An entry of the tree whose value may have to be read.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub key: Value,
    pub place: ValuePlace,
}

/// Where the value of an entry is.
#[derive(Debug)]
pub(crate) enum ValuePlace {
    Inline(Value),
    Log(Wanted),
}

/// What is read ahead for one cursor.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    queue: Option<Queue>,
    /// Oldest first; each has entries left.
    groups: VecDeque<Group>,
    /// Reads that found the queue full.
    waiting: VecDeque<ReadRequest>,
    /// Number of the next group.
    next_group: u32,
    /// Entries in all groups.
    entries: usize,
    /// Bytes of values in all groups.
    bytes: u64,
    /// Entries handed out in a row.
    handed_out: usize,
    /// Values by reads, in the group that was begun last.
    density: usize,
}

/// Entries whose reads were begun together.
#[derive(Debug)]
struct Group {
    number: u32,
    /// As they were while its moment was pinned: they stay open.
    segments: Arc<Segments>,
    entries: VecDeque<(Value, Slot)>,
    wanted: Vec<Wanted>,
    spans: Vec<Span>,
    /// Of each wanted value, once it was read.
    values: Vec<Option<Result<Value>>>,
    bytes: u64,
}

/// The value of an entry of a group.
#[derive(Debug)]
enum Slot {
    Here(Value),
    /// The place in the group's wanted values.
    Read(usize),
}

/// Reads of the back end that was chosen.
#[derive(Debug)]
enum Queue {
    Kept(KeptQueue),
    Pooled(Box<dyn ReadQueue>),
}

impl Queue {
    fn open(core: &Core) -> Result<Queue> {
        let depth = core.tuning.range_width;
        let backend = match core.tuning.range_io {
            RangeIo::Threads => return core.read_pool().queue(depth).map(Queue::Pooled),
            RangeIo::IoUring => ReadBackend::IoUring,
            RangeIo::Sync => ReadBackend::Sync,
        };
        let options = BatchOptions { backend, depth };
        KeptQueue::take(&core.environment.file_system, options).map(Queue::Kept)
    }

    fn get(&mut self) -> &mut dyn ReadQueue {
        match self {
            Queue::Kept(queue) => queue.deref_mut(),
            Queue::Pooled(queue) => &mut **queue,
        }
    }
}

impl Core {
    /// The threads that read for range queries, made when they are first needed.
    fn read_pool(&self) -> &Arc<ReadPool> {
        let make = || ReadPool::new(&*self.environment.executor, self.tuning.range_width);
        self.range_pool.get_or_init(make)
    }
}

impl Ahead {
    /// Forgets what was read ahead: the cursor goes elsewhere.
    pub fn clear(&mut self) {
        self.groups.clear();
        self.waiting.clear();
        self.entries = 0;
        self.bytes = 0;
        self.handed_out = 0;
    }

    /// True if nothing is ahead.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// An entry was handed out past this.
    pub fn count_one(&mut self) {
        self.handed_out += 1;
    }

    /// How many entries should be begun now; 0 while there are enough.
    pub fn wants(&self, core: &Core) -> usize {
        let most = core.tuning.read_ahead * self.density.clamp(1, MOST_DENSITY);
        let sequential = self.handed_out >= SEQUENTIAL_ENTRIES;
        let goal = match sequential {
            true => (self.handed_out / 2).min(most),
            false => self.handed_out.clamp(1, most),
        };
        if self.is_empty() {
            return goal;
        }
        let overlaps = core.tuning.range_io != RangeIo::Sync;
        let room = self.bytes < LARGEST_AHEAD_BYTES;
        match overlaps && sequential && room && self.entries <= goal / 2 {
            true => goal - self.entries,
            false => 0,
        }
    }

    /// True if a group with values of so many bytes is long enough.
    pub fn is_full(&self, bytes: u64) -> bool {
        // Two groups fill the bound.
        bytes >= LARGEST_AHEAD_BYTES / 2
    }

    /// Begins the reads of a group's values.
    pub fn begin(&mut self, core: &Core, candidates: Vec<Candidate>) -> Result<()> {
        let segments = core.segments.load_full();
        let mut group = Group {
            number: self.next_group,
            segments,
            entries: VecDeque::with_capacity(candidates.len()),
            wanted: Vec::new(),
            spans: Vec::new(),
            values: Vec::new(),
            bytes: 0,
        };
        self.next_group = self.next_group.wrapping_add(1);
        for Candidate { key, place } in candidates {
            let slot = match place {
                ValuePlace::Inline(value) => Slot::Here(value),
                ValuePlace::Log(wanted) => {
                    group.bytes += u64::from(wanted.pointer.value_bytes);
                    group.wanted.push(wanted);
                    Slot::Read(group.wanted.len() - 1)
                }
            };
            group.entries.push_back((key, slot));
        }
        self.entries += group.entries.len();
        self.bytes += group.bytes;
        let places = group.read_buffered(core);
        group.spans = spans_of(&group.wanted, places);
        if !group.spans.is_empty() {
            self.density = group.wanted.len() / group.spans.len();
        }
        let few = match group.spans.len() {
            0 | 1 => true,
            more => more <= MOST_READS_HERE && self.density >= DENSE,
        };
        // Somebody waits for the first of them: a queue would be a detour.
        if self.groups.is_empty() && few {
            group.read_here(core);
        }
        let requests = group.requests();
        self.groups.push_back(group);
        let requests = requests?;
        if requests.is_empty() {
            return Ok(());
        }
        core.counters.value_reads.add(requests.len() as u64);
        self.waiting.extend(requests);
        if self.queue.is_none() {
            self.queue = Some(Queue::open(core)?);
        }
        self.submit();
        match core.tuning.range_io {
            // It reads while it is waited for: not yet.
            RangeIo::Sync => Ok(()),
            _ => self.collect(0),
        }
    }

    /// The next entry that was begun, once its value is there.
    pub fn next(&mut self, core: &Core) -> Result<Option<Entry>> {
        let Some(group) = self.groups.front_mut() else {
            return Ok(None);
        };
        let (number, waits_for) = (group.number, group.front_read());
        if let Some(place) = waits_for {
            while !self.is_read(number, place) {
                self.collect(1)?;
            }
        }
        self.handed_out += 1;
        if core.tuning.range_io != RangeIo::Sync
            && !self.waiting.is_empty()
            && self.handed_out % LOOK_EVERY == 0
        {
            self.collect(0)?;
        }
        match self.pop() {
            Some((key, value)) => value.map(|value| Some(Entry { key, value })),
            None => Ok(None),
        }
    }

    /// The key of the next entry that was begun; its value is not waited for.
    pub fn next_key(&mut self) -> Option<Value> {
        self.pop().map(|(key, _)| key)
    }

    fn pop(&mut self) -> Option<(Value, Result<Value>)> {
        let group = self.groups.front_mut()?;
        let popped = group.entries.pop_front().map(|(key, slot)| {
            let value = match slot {
                Slot::Here(value) => Ok(value),
                Slot::Read(place) => group.values[place].take().unwrap_or(Err(Error::Closed)),
            };
            (key, value)
        });
        self.entries -= usize::from(popped.is_some());
        if group.entries.is_empty() {
            self.bytes -= group.bytes;
            self.groups.pop_front();
        }
        popped
    }

    fn is_read(&self, number: u32, place: usize) -> bool {
        let group = self.groups.iter().find(|group| group.number == number);
        group.is_none_or(|group| group.values[place].is_some())
    }

    /// Hands reads to the queue, as many as it takes.
    fn submit(&mut self) {
        let Some(queue) = self.queue.as_mut().map(Queue::get) else {
            return;
        };
        while queue.pending() < queue.depth() {
            match self.waiting.pop_front() {
                Some(request) => queue.submit(request),
                None => break,
            }
        }
    }

    /// Waits for so many reads at least, and hands the queue further ones. A
    /// failure of the queue is that of every value that is not there yet.
    fn collect(&mut self, at_least: usize) -> Result<()> {
        self.submit();
        let mut completions = Vec::new();
        let waited = match self.queue.as_mut().map(Queue::get) {
            Some(queue) => queue.wait(at_least, &mut completions),
            None => Err(Error::Closed),
        };
        for completion in completions {
            self.take(completion);
        }
        if let Err(error) = waited {
            self.queue = None;
            self.waiting.clear();
            for group in &mut self.groups {
                group.fail(&error);
            }
        }
        self.submit();
        Ok(())
    }

    fn take(&mut self, completion: ReadCompletion) {
        let number = (completion.tag >> 32) as u32;
        // None: the cursor has passed this group.
        let group = self.groups.iter_mut().find(|group| group.number == number);
        if let Some(group) = group {
            group.take(completion);
        }
    }
}

impl Group {
    /// Reads at once what is still in the log's buffer; answers the places of all
    /// others.
    fn read_buffered(&mut self, core: &Core) -> Vec<usize> {
        let mut places = Vec::new();
        for (place, want) in self.wanted.iter().enumerate() {
            let value = match core.segment_in(&self.segments, want.pointer) {
                Ok(segment) if want.pointer.offset >= segment.log.written_end() => {
                    let (pointer, key) = (want.pointer, &want.full_key);
                    let read = core.read_one(segment, pointer, key, want.sequence);
                    Some(read.and_then(|value| value.ok_or(Error::Closed)))
                }
                Ok(_) => {
                    places.push(place);
                    None
                }
                Err(lost) => Some(Err(lost)),
            };
            self.values.push(value);
        }
        places
    }

    /// Reads all others in the caller's thread.
    fn read_here(&mut self, core: &Core) {
        let spans = std::mem::take(&mut self.spans);
        let reads = &core.counters.value_reads;
        reads.add(spans.len() as u64);
        for span in &spans {
            if let Some(segment) = self.segments.get(&span.segment) {
                span.read_here(segment, &self.wanted, |place, value| {
                    self.values[place] = Some(value);
                });
            }
        }
    }

    fn requests(&self) -> Result<Vec<ReadRequest>> {
        let number = u64::from(self.number) << 32;
        let spans = self.spans.iter().enumerate();
        let requests = spans.filter_map(|(tag, span)| {
            let segment = self.segments.get(&span.segment)?;
            Some(span.request(segment, number | tag as u64))
        });
        requests.collect()
    }

    /// The value that the front entry waits for, if it does.
    fn front_read(&self) -> Option<usize> {
        match self.entries.front() {
            Some(&(_, Slot::Read(place))) => Some(place),
            _ => None,
        }
    }

    /// Takes the values out of an answered read.
    fn take(&mut self, completion: ReadCompletion) {
        let span = completion.tag as u32 as usize;
        let Some(span) = self.spans.get(span) else {
            return;
        };
        for &place in &span.members {
            let want = &self.wanted[place];
            let value = match (&completion.result, self.segments.get(&span.segment)) {
                (Ok(count), Some(segment)) => {
                    span.value(segment, want, &completion.buffer[..*count])
                }
                (Err(error), _) => Err(error.clone()),
                (_, None) => Err(Error::Closed),
            };
            self.values[place] = Some(value);
        }
    }

    fn fail(&mut self, error: &Error) {
        let missing = self.values.iter_mut().filter(|value| value.is_none());
        missing.for_each(|value| *value = Some(Err(error.clone())));
    }
}
