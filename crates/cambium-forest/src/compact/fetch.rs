//! Reading a plan's documents: many reads under way at once, in whatever order
//! the device answers them (`P-Fetch`, section IV).
//!
//! Where the environment runs tasks, a task reads one window while the window
//! before it is written. If the task has not begun to read a window when it
//! is needed, the compaction reads it ([`Crew`]): so nothing depends on the task,
//! and a simulation takes the same steps from the same seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_base::Result;
use cambium_io::sync::Mutex;
use cambium_io::{
    Advice, AlignedBuffer, BatchOptions, Crew, Environment, File, OpenOptions, ReadBackend,
    ReadQueue, ReadRequest,
};

use super::plan::{IN_BUCKET, Plan};
use super::scratch::entries;
use super::settings::Settings;
use crate::core::lock;
use crate::database::Database;
use crate::document::DocumentAddress;

/// Buffers are kept in sizes that are multiples of this, larger ones of an
/// eighth of the power of two below: so most fit another read.
pub(super) const BUFFER_UNIT: usize = 512;

/// A plan whose documents are in memory.
#[derive(Debug)]
pub(super) struct Window {
    pub plan: Plan,
    /// One for each span of the plan, then one for each chunk of its bucket.
    pieces: Vec<Piece>,
    /// Documents of the bucket, by their addresses: the piece, and where in it.
    in_bucket: Vec<(u64, u32, u32)>,
    /// Time with reads outstanding.
    pub seconds: f64,
    pub operations: u64,
    pub bytes: u64,
    /// The back end that served.
    pub backend: ReadBackend,
}

#[derive(Debug)]
struct Piece {
    /// Where its first byte lies in the file.
    start: u64,
    filled: usize,
    buffer: AlignedBuffer,
}

impl Window {
    /// The bytes of one of the plan's documents, and what follows them in the
    /// same read; none if it is not where it was dealt to.
    pub fn content(&self, address: DocumentAddress, span: u32) -> &[u8] {
        if span != IN_BUCKET {
            return self.bytes_at(span, address.start());
        }
        let found = self
            .in_bucket
            .binary_search_by_key(&address.0, |(whose, ..)| *whose);
        let Ok(found) = found else {
            return &[];
        };
        let (_, piece, at) = self.in_bucket[found];
        let piece = &self.pieces[piece as usize];
        piece.buffer[..piece.filled]
            .get(at as usize..)
            .unwrap_or_default()
    }

    /// Finds out what the bucket's chunks hold.
    fn open_bucket(&mut self) -> Result<()> {
        let chunks = self.pieces.iter().enumerate().skip(self.plan.spans.len());
        for (number, piece) in chunks {
            entries(&piece.buffer[..piece.filled], |whose, at, _| {
                self.in_bucket.push((whose, number as u32, at as u32));
                Ok(())
            })?;
        }
        // They were dealt in the order of their offsets, nearly.
        self.in_bucket.sort_unstable_by_key(|(whose, ..)| *whose);
        Ok(())
    }

    /// The bytes from an offset in a span to the span's end.
    pub fn bytes_at(&self, span: u32, offset: u64) -> &[u8] {
        let piece = &self.pieces[span as usize];
        let skipped = (offset - piece.start) as usize;
        piece.buffer[..piece.filled]
            .get(skipped..)
            .unwrap_or_default()
    }
}

/// Buffers that are used again: what a window needs the next one needs too.
#[derive(Debug, Default)]
struct Pool {
    free: BTreeMap<usize, Vec<AlignedBuffer>>,
    free_bytes: u64,
    /// Taken, and not given back yet.
    taken_bytes: u64,
    /// Of both together.
    most_bytes: u64,
}

impl Pool {
    fn size_of(length: usize) -> usize {
        let below = length.max(1).next_power_of_two() / 2;
        length.next_multiple_of((below / 8).max(BUFFER_UNIT))
    }

    fn take(&mut self, length: usize, alignment: usize) -> AlignedBuffer {
        let size = Self::size_of(length);
        let kept = self.free.get_mut(&size).and_then(Vec::pop);
        self.free_bytes -= kept.as_ref().map_or(0, |_| size as u64);
        let kept = kept.filter(|buffer| buffer.alignment() >= alignment);
        let mut buffer = kept.unwrap_or_else(|| {
            self.make_room(size as u64);
            AlignedBuffer::new(size, alignment)
        });
        self.taken_bytes += size as u64;
        buffer.resize(length);
        buffer
    }

    fn give_back(&mut self, buffer: AlignedBuffer) {
        let size = Self::size_of(buffer.len());
        self.taken_bytes = self.taken_bytes.saturating_sub(size as u64);
        if self.free_bytes + self.taken_bytes + size as u64 <= self.most_bytes {
            self.free_bytes += size as u64;
            self.free.entry(size).or_default().push(buffer);
        }
    }

    /// Gives up buffers of other sizes, the largest first.
    fn make_room(&mut self, bytes: u64) {
        while self.free_bytes > 0 && self.free_bytes + self.taken_bytes + bytes > self.most_bytes {
            let Some(mut largest) = self.free.last_entry() else {
                return;
            };
            match largest.get_mut().pop() {
                Some(_) => self.free_bytes -= *largest.key() as u64,
                None => _ = largest.remove(),
            }
        }
    }
}

/// What reads.
#[derive(Debug)]
struct Reader {
    environment: Environment,
    file: Arc<dyn File>,
    options: BatchOptions,
    queue: Option<Box<dyn ReadQueue>>,
}

#[derive(Debug)]
struct Shared {
    reader: Mutex<Reader>,
    pool: Mutex<Pool>,
}

/// Reads plans, one after the other.
#[derive(Debug)]
pub(super) struct Fetcher {
    shared: Arc<Shared>,
    /// Reads begin and end at multiples of this.
    unit: u64,
    crew: Crew<Plan, Result<Window>>,
}

impl Fetcher {
    /// A fetcher of documents of a file, which is opened once more: what the
    /// kernel is told of these reads is not told of the readers' own.
    pub fn new(
        environment: &Environment,
        from: &Database,
        settings: &Settings,
        past_cache: bool,
    ) -> Result<Self> {
        let file = open(environment, from, settings, past_cache)?;
        // Many reads under way leave the kernel nothing to guess; one after the
        // other, what it reads ahead is all that joins them.
        let one_by_one = settings.reading.backend == ReadBackend::Sync;
        if settings.tuning.coalesce_bytes == 0 || settings.tuning.coalesce_bytes > 1 && !one_by_one
        {
            file.advise(0, u64::MAX >> 1, Advice::Random);
        }
        let unit = file.alignment().offset as u64;
        let shared = Arc::new(Shared {
            reader: Mutex::new(Reader {
                environment: environment.clone(),
                file,
                options: settings.reading,
                queue: None,
            }),
            pool: Mutex::new(Pool {
                // One window is written while the next one is read.
                most_bytes: settings.window_bytes() * (1 + u64::from(settings.tuning.overlap)),
                ..Pool::default()
            }),
        });
        let reading = shared.clone();
        let crew = Crew::new(
            &*environment.executor,
            "forest-fetch",
            usize::from(settings.tuning.overlap),
            move |plan| reading.read(plan),
        );
        Ok(Fetcher { shared, unit, crew })
    }

    /// Bytes that reads begin and end at multiples of.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Wants a plan read. One at a time: take the window before it first.
    pub fn want(&self, plan: Plan) {
        self.crew.add(plan);
    }

    /// True if something is wanted, being read or read.
    pub fn is_busy(&self) -> bool {
        self.crew.pending() > 0
    }

    /// Waits for what was wanted; `None` if nothing was.
    pub fn take(&self) -> Result<Option<Window>> {
        self.crew.next()?.transpose()
    }

    /// Lets memory go that is kept for reads like those so far.
    pub fn forget_buffers(&self) {
        let mut pool = lock(&self.shared.pool);
        pool.free.clear();
        pool.free_bytes = 0;
    }

    /// Takes a window's memory back.
    pub fn recycle(&self, window: Window) {
        let mut pool = lock(&self.shared.pool);
        for piece in window.pieces {
            pool.give_back(piece.buffer);
        }
    }
}

impl Shared {
    fn read(&self, plan: Plan) -> Result<Window> {
        let mut reader = lock(&self.reader);
        let window = reader.read(plan, &self.pool);
        if window.is_err() {
            // The queue may hold answers that no request waits for any more.
            reader.queue = None;
        }
        window
    }
}

impl Reader {
    fn read(&mut self, plan: Plan, pool: &Mutex<Pool>) -> Result<Window> {
        let clock = self.environment.clock.clone();
        let began = clock.monotonic();
        let mut queue = match self.queue.take() {
            Some(queue) => queue,
            None => self.environment.file_system.read_queue(self.options)?,
        };
        let alignment = self.file.alignment();
        // What is read: of the old file, and of a scratch file.
        let mut wanted: Vec<(&Arc<dyn File>, u64, usize)> = Vec::new();
        for span in &plan.spans {
            let (start, length) = alignment.around(span.start, span.end);
            wanted.push((&self.file, start, length));
        }
        if let Some(bucket) = &plan.bucket {
            let chunks = bucket.chunks.iter();
            wanted.extend(chunks.map(|chunk| (&bucket.file, chunk.offset, chunk.bytes)));
        }
        let mut pieces: Vec<Option<Piece>> = wanted.iter().map(|_| None).collect();
        let requests = wanted.iter().enumerate().map(|(number, wanted)| {
            let (file, offset, length) = *wanted;
            ReadRequest {
                file: file.clone(),
                offset,
                buffer: lock(pool).take(length, file.alignment().memory),
                tag: number as u64,
            }
        });
        let mut bytes = 0;
        cambium_io::batch::read_all(&mut *queue, requests, |completion| {
            let filled = completion.result?;
            bytes += filled as u64;
            let number = completion.tag as usize;
            pieces[number] = Some(Piece {
                start: wanted[number].1,
                filled,
                buffer: completion.buffer,
            });
            Ok(())
        })?;
        let backend = queue.backend();
        let operations = wanted.len() as u64;
        self.queue = Some(queue);
        let pieces: Option<Vec<Piece>> = pieces.into_iter().collect();
        let mut window = Window {
            operations,
            pieces: pieces.expect("every read was answered"),
            in_bucket: Vec::new(),
            plan,
            bytes,
            backend,
            seconds: 0.0,
        };
        window.open_bucket()?;
        window.seconds = (clock.monotonic() - began).as_secs_f64();
        Ok(window)
    }
}

/// Opens the file as it is asked for, or as the new one is written.
fn open(
    environment: &Environment,
    from: &Database,
    settings: &Settings,
    past_cache: bool,
) -> Result<Arc<dyn File>> {
    let file_system = &environment.file_system;
    // A file is open in one mode at a time.
    if from.is_direct() {
        return file_system.open(from.path(), OpenOptions::READ.direct());
    }
    if past_cache && !settings.direct {
        // Some file systems have no direct reads.
        if let Ok(file) = file_system.open(from.path(), OpenOptions::READ.direct()) {
            return Ok(file);
        }
    }
    let options = if settings.direct {
        OpenOptions::READ.direct()
    } else {
        OpenOptions::READ
    };
    file_system.open(from.path(), options)
}

/// True also where the system does not tell.
pub(super) fn is_mostly_cached(database: &Database) -> bool {
    const PAGE_BYTES: u64 = 4 << 10;
    let cached = cambium_io::resident_pages(&**database.log.file());
    let pages = cached.ok().flatten().unwrap_or(u64::MAX);
    pages.saturating_mul(PAGE_BYTES) > database.log.end() / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows whose reads are all of other sizes than those before them.
    #[test]
    fn buffers_of_windows_of_any_sizes_never_take_more_than_their_bound() {
        const MOST: u64 = 1 << 20;
        let mut pool = Pool {
            most_bytes: MOST,
            ..Pool::default()
        };
        let mut reused = 0;
        for round in 0..40usize {
            let length = 3_000 + round / 2 * 1_700;
            let size = Pool::size_of(length) as u64;
            let count = MOST / size;
            let before = pool.free_bytes;
            let window: Vec<AlignedBuffer> = (0..count).map(|_| pool.take(length, 512)).collect();
            reused += u64::from(before - pool.free_bytes == pool.taken_bytes);
            assert_eq!(pool.taken_bytes, count * size);
            assert!(pool.free_bytes + pool.taken_bytes <= MOST, "round {round}");
            for buffer in window {
                assert_eq!(buffer.len(), length);
                pool.give_back(buffer);
            }
            assert_eq!(pool.taken_bytes, 0);
            assert!(pool.free_bytes <= MOST, "round {round}");
        }
        assert!(
            reused >= 20,
            "the second window of a size takes the first's: {reused}"
        );
    }
}
