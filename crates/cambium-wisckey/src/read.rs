//! Reading: the tree for the pointer, then one read of the value, verified.
//!
//! Readers take no lock that is held across I/O, and never wait for a writer. The
//! record that a pointer leads to must be of the key and the write that the tree
//! says; its length is known from the pointer, so a value of any length is one
//! read.
//!
//! Garbage collection may move a value and drop its segment between the two steps.
//! A reader that finds the segment gone looks in the tree again: the new pointer was there
//! before the segment went. So does a reader that finds damage: a hole may have taken the
//! place of a value that was overwritten. A reader with a pinned moment finds neither.

use cambium_base::{Error, Result, Value};
use cambium_io::{AlignedBuffer, File, ReadRequest, spans};
use cambium_lsm::Lookup;

use crate::core::Core;
use crate::format::{INLINE_START, PREFIX_BYTES, Stored, ValuePointer};
use crate::pin::Pin;
use crate::segment::{Segment, Segments};

/// A value that is to be read.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub pointer: ValuePointer,
    pub sequence: u64,
    pub full_key: Value,
}

/// What the tree says of a key.
#[derive(Debug)]
enum Found {
    Nothing,
    Inline(Value),
    Pointer(ValuePointer, u64),
}

/// Values no further apart than this are read together: about what the device
/// moves in the time of a read of its own.
pub(crate) const LARGEST_GAP: u64 = 4 << 10;
/// Most bytes of a read of several values.
const LARGEST_SPAN: u64 = 256 << 10;

/// A value keeps no more alive than this besides itself.
const LARGEST_SHARED: usize = 64 << 10;

/// A range of a segment that is read at once.
#[derive(Debug)]
pub(crate) struct Span {
    pub segment: u32,
    start: u64,
    end: u64,
    /// The places of the wanted values in it.
    pub members: Vec<usize>,
}

impl Span {
    /// The read of it.
    pub fn request(&self, segment: &Segment, tag: u64) -> Result<ReadRequest> {
        let alignment = segment.file.batched_alignment();
        let (offset, length) = alignment.around(self.start, self.end);
        segment.file.count_read(length as u64);
        Ok(ReadRequest {
            file: segment.file.batched()?,
            offset,
            buffer: AlignedBuffer::new(length, alignment.memory.max(8)),
            tag,
        })
    }

    /// A value out of what was read.
    pub fn value(&self, segment: &Segment, want: &Wanted, bytes: &[u8]) -> Result<Value> {
        let alignment = segment.file.batched_alignment();
        let (offset, _) = alignment.around(self.start, self.end);
        let start = (want.pointer.offset - offset) as usize;
        let bytes = bytes.get(start..).unwrap_or_default();
        let (pointer, sequence) = (want.pointer, want.sequence);
        let within = segment.value_within(pointer, &want.full_key, sequence, bytes)?;
        Ok(Value::copy_of(&bytes[within]))
    }

    /// Reads it in the caller's thread. Values of small spans share what was read;
    /// those of larger ones do not keep the whole of it.
    pub fn read_here(
        &self,
        segment: &Segment,
        wanted: &[Wanted],
        mut take: impl FnMut(usize, Result<Value>),
    ) {
        let length = (self.end - self.start) as usize;
        segment.file.count_read(length as u64);
        let read = match segment.file.read_vec_at(self.start, length) {
            Ok(bytes) => Value::from(bytes),
            Err(error) => {
                return self
                    .members
                    .iter()
                    .for_each(|&place| take(place, Err(error.clone())));
            }
        };
        for &place in &self.members {
            let want = &wanted[place];
            let start = (want.pointer.offset - self.start) as usize;
            let bytes = read.get(start..).unwrap_or_default();
            let (pointer, sequence) = (want.pointer, want.sequence);
            let within = segment.value_within(pointer, &want.full_key, sequence, bytes);
            take(
                place,
                within.map(|within| match length <= LARGEST_SHARED {
                    true => read.slice(start + within.start..start + within.end),
                    false => Value::copy_of(&bytes[within]),
                }),
            );
        }
    }
}

/// Joins wanted values that lie close together.
pub(crate) fn spans_of(wanted: &[Wanted], mut places: Vec<usize>) -> Vec<Span> {
    let position = |place: usize| (wanted[place].pointer.segment, wanted[place].pointer.offset);
    places.sort_unstable_by_key(|&place| position(place));
    let ranges = places.iter().map(|&place| {
        let (segment, start) = position(place);
        let want = &wanted[place];
        let bytes = want.pointer.record_bytes(want.full_key.len());
        (segment, start..start + bytes)
    });
    let joined = spans::join(ranges, LARGEST_GAP, LARGEST_SPAN).into_iter();
    let spans = joined.map(|span| Span {
        segment: span.file,
        start: span.start,
        end: span.end,
        members: places[span.members].to_vec(),
    });
    spans.collect()
}

impl Core {
    /// The newest value of a full key.
    pub fn get_latest(&self, full_key: &[u8]) -> Result<Option<Value>> {
        self.counters.gets.add(1);
        let value = self.newest_value(full_key)?;
        self.count_answer(full_key, value.as_ref());
        Ok(value)
    }

    fn count_answer(&self, full_key: &[u8], value: Option<&Value>) {
        if let Some(value) = value {
            let bytes = full_key.len() - PREFIX_BYTES + value.len();
            let answered = &self.counters.answered_bytes;
            answered.add(bytes as u64);
        }
    }

    fn newest_value(&self, full_key: &[u8]) -> Result<Option<Value>> {
        let mut before = None;
        loop {
            let lookup = self.tree.get_current(full_key, || self.ledger.visible())?;
            let (pointer, sequence) = match self.found(lookup)? {
                Found::Nothing => return Ok(None),
                Found::Inline(value) => return Ok(Some(value)),
                Found::Pointer(pointer, sequence) => (pointer, sequence),
            };
            let error = match self.segment(pointer.segment) {
                Some(segment) => match self.read_one(&segment, pointer, full_key, sequence) {
                    Err(error) if error.is_corruption() => error,
                    read => return read,
                },
                None => self.lost_segment(pointer),
            };
            // Moved or overwritten meanwhile, its segment gone or a hole in its
            // place; a pointer that stays the same leads to damage.
            if before == Some(pointer) {
                return Err(error);
            }
            before = Some(pointer);
        }
    }

    /// The value of a full key at a pinned moment.
    pub fn get_at(&self, pin: &Pin, full_key: &[u8]) -> Result<Option<Value>> {
        self.counters.gets.add(1);
        let value = match self.found(pin.look_up(full_key)?)? {
            Found::Nothing => None,
            Found::Inline(value) => Some(value),
            Found::Pointer(pointer, sequence) => {
                let segment = self
                    .segment(pointer.segment)
                    .ok_or_else(|| self.lost_segment(pointer))?;
                self.read_one(&segment, pointer, full_key, sequence)?
            }
        };
        self.count_answer(full_key, value.as_ref());
        Ok(value)
    }

    pub fn read_one(
        &self,
        segment: &Segment,
        pointer: ValuePointer,
        full_key: &[u8],
        sequence: u64,
    ) -> Result<Option<Value>> {
        if let Some(value) = segment.kept_value(pointer, full_key.len(), sequence) {
            return Ok(Some(value));
        }
        self.counters.value_reads.add(1);
        segment.read_value(pointer, full_key, sequence).map(Some)
    }

    /// A value as it lies in the log, whatever is kept of it in memory. The moment at
    /// which the pointer was found must be pinned.
    pub fn read_stored(&self, want: &Wanted) -> Result<Value> {
        let segments = self.segments.load();
        let segment = self.segment_in(&segments, want.pointer)?;
        self.counters.value_reads.add(1);
        segment.read_value(want.pointer, &want.full_key, want.sequence)
    }

    fn found(&self, lookup: Lookup) -> Result<Found> {
        let Lookup::Found { sequence, value } = lookup else {
            return Ok(Found::Nothing);
        };
        Ok(match Stored::decode(&value) {
            Some(Stored::Pointer(pointer)) => Found::Pointer(pointer, sequence),
            Some(Stored::Inline(_)) => Found::Inline(value.slice(INLINE_START..value.len())),
            None => return Err(self.strange_entry()),
        })
    }

    /// An entry of the tree that is none of this engine's.
    pub fn strange_entry(&self) -> Error {
        Error::corruption(
            self.tree.folder(),
            0,
            "an entry of the tree is neither a value nor a pointer of a format known here",
        )
    }

    /// A pointer into a segment that is not there.
    pub fn lost_segment(&self, pointer: ValuePointer) -> Error {
        Error::corruption(
            crate::format::segment_path(&self.path, pointer.segment),
            pointer.offset,
            "the tree points into this segment, which is not there",
        )
    }

    /// The values of several full keys at a pinned moment.
    pub fn multi_get_at(&self, pin: &Pin, full_keys: &[Vec<u8>]) -> Result<Vec<Option<Value>>> {
        self.counters.gets.add(full_keys.len() as u64);
        let keys: Vec<&[u8]> = full_keys.iter().map(Vec::as_slice).collect();
        let lookups = pin.look_up_all(&keys)?;
        let mut values = vec![None; keys.len()];
        let mut wanted = Vec::new();
        let mut places = Vec::new();
        for (place, lookup) in lookups.into_iter().enumerate() {
            match self.found(lookup)? {
                Found::Nothing => {}
                Found::Inline(value) => values[place] = Some(value),
                Found::Pointer(pointer, sequence) => {
                    places.push(place);
                    wanted.push(Wanted {
                        pointer,
                        sequence,
                        full_key: Value::copy_of(&full_keys[place]),
                    });
                }
            }
        }
        for (place, value) in places.into_iter().zip(self.fetch(&wanted)?) {
            values[place] = Some(value);
        }
        for (key, value) in full_keys.iter().zip(&values) {
            self.count_answer(key, value.as_ref());
        }
        Ok(values)
    }

    /// Values in the order asked for; their reads go to the device together, and
    /// those that lie close together are one. The moment at which the pointers
    /// were found must be pinned.
    pub fn fetch(&self, wanted: &[Wanted]) -> Result<Vec<Value>> {
        let segments = self.segments.load_full();
        let mut values: Vec<Option<Value>> = vec![None; wanted.len()];
        let mut places = Vec::new();
        for (place, want) in wanted.iter().enumerate() {
            let segment = self.segment_in(&segments, want.pointer)?;
            if want.pointer.offset < segment.log.written_end() && wanted.len() > 1 {
                places.push(place);
            } else {
                let key = &want.full_key;
                values[place] = self.read_one(segment, want.pointer, key, want.sequence)?;
            }
        }
        if !places.is_empty() {
            self.read_spans(&segments, wanted, &spans_of(wanted, places), &mut values)?;
        }
        let values: Option<Vec<Value>> = values.into_iter().collect();
        Ok(values.expect("every value was read"))
    }

    pub fn segment_in<'a>(
        &self,
        segments: &'a Segments,
        pointer: ValuePointer,
    ) -> Result<&'a Segment> {
        match segments.get(&pointer.segment) {
            Some(segment) => Ok(segment),
            None => Err(self.lost_segment(pointer)),
        }
    }

    fn read_spans(
        &self,
        segments: &Segments,
        wanted: &[Wanted],
        spans: &[Span],
        values: &mut [Option<Value>],
    ) -> Result<()> {
        let mut requests = Vec::new();
        let mut memory = Vec::new();
        for (tag, span) in spans.iter().enumerate() {
            let Some(segment) = segments.get(&span.segment) else {
                continue;
            };
            // A read that the page cache answers is not worth a queue.
            memory.resize((span.end - span.start) as usize, 0);
            if segment.file.read_cached_at(&mut memory, span.start) < memory.len() {
                requests.push(span.request(segment, tag as u64)?);
                continue;
            }
            segment.file.count_read(memory.len() as u64);
            for &place in &span.members {
                let want = &wanted[place];
                let bytes = &memory[(want.pointer.offset - span.start) as usize..];
                let key = &want.full_key;
                let within = segment.value_within(want.pointer, key, want.sequence, bytes)?;
                values[place] = Some(Value::copy_of(&bytes[within]));
            }
        }
        let file_system = &self.environment.file_system;
        cambium_io::read_all_kept(file_system, self.tuning.reading, requests, |completion| {
            let count = completion.result?;
            let bytes = &completion.buffer[..count];
            let span = &spans[completion.tag as usize];
            for &place in &span.members {
                let want = &wanted[place];
                let segment = self.segment_in(segments, want.pointer)?;
                values[place] = Some(span.value(segment, want, bytes)?);
            }
            Ok(())
        })?;
        self.counters.value_reads.add(spans.len() as u64);
        Ok(())
    }
}
