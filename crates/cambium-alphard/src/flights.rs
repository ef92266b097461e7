//! Groups whose writes are under way while the next group is led.
//!
//! The leader of a large group begins its writes and returns: the next group is led at
//! once, and the device always has something to do. Such a group is a *flight*, with a
//! queue of its own. Writes of several flights end in any order; flights *land* in the
//! order in which they began:
//!
//! ```text
//!  lead: encode, begin writes ──▶ land: own writes, all earlier flights ──▶ sync ──▶ answer
//!         next group: lead: ... ──▶ land ...
//! ```
//!
//! - A sync that follows the landing of a flight covers all earlier ones too, so that no
//!   gap is left below what is answered. A writer does not sync if a later sync has
//!   covered its flight.
//! - A flight that fails fails all later ones under way too: recovery would cut
//!   them off. The store takes no more writes then.
//! - A thread that needs a flight on the device lands it, and those before it. That takes no
//!   writer lock, so that its holder can do the same ([`Core::land_all`]); no thread
//!   writes or syncs by itself before that.

use std::collections::VecDeque;
use std::sync::Arc;

use cambium_base::{Error, Result};
use cambium_io::sync::atomic::{AtomicUsize, Ordering};
use cambium_io::sync::{Mutex, OnceLock};
use cambium_io::{AlignedBuffer, WriteQueue};

use crate::core::{Core, lock, write};
use crate::outgoing::{LARGE_BYTES, Piece, by_member};
use crate::volume::buffer;
use crate::write::Written;

/// So many are under way at most.
const MOST_FLIGHTS: usize = 8;
/// The bytes of flights under way together, unless one alone has more. A small memory
/// budget allows fewer.
pub(crate) const MOST_FLIGHT_BYTES: usize = 64 << 20;
/// Of these, the part that is kept as buffers to be used again.
const SPARE_SHARE: usize = 4;

/// The state of a flight that its waiting writers read.
#[derive(Debug)]
pub(crate) struct Departed {
    /// Its place in the order of landing.
    number: u64,
    /// What a sync after the landing makes durable.
    written: Written,
    /// What its landing came to.
    outcome: OnceLock<Result<()>>,
    /// Counts those that somebody waits for.
    unfinished: Arc<AtomicUsize>,
}

impl Drop for Departed {
    fn drop(&mut self) {
        self.unfinished.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A group whose writes have begun.
#[derive(Debug)]
pub(crate) struct Flight {
    pub queue: Box<dyn WriteQueue>,
    /// The member of each write, in the order of the queue.
    pub members: Vec<usize>,
    pub pieces: Vec<Piece>,
}

impl Flight {
    fn byte_count(&self) -> usize {
        self.pieces.iter().map(|piece| piece.bytes.len()).sum()
    }
}

/// All flights of a store.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    state: Mutex<FlightsState>,
    /// Held while flights land.
    landing: Mutex<()>,
    unfinished: Arc<AtomicUsize>,
    /// Large buffers, to be used again: fresh memory costs a fault a page.
    spare: Mutex<Vec<AlignedBuffer>>,
}

#[derive(Debug, Default)]
struct FlightsState {
    /// Those that no thread has begun to land, oldest first.
    under_way: VecDeque<(Flight, Arc<Departed>)>,
    next_number: u64,
    /// What the last one that landed soundly had written.
    written: Option<Written>,
    /// The error of the first flight that failed.
    failure: Option<Error>,
    /// Queues of earlier flights.
    spare: Vec<Box<dyn WriteQueue>>,
}

impl Flights {
    /// True while somebody waits for one.
    pub fn any(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) > 0
    }

    /// What a sync that begins now makes durable; `None` before the first landing.
    pub fn written(&self) -> Option<Written> {
        lock(&self.state).written
    }

    /// A queue of an earlier flight.
    pub fn queue(&self) -> Option<Box<dyn WriteQueue>> {
        lock(&self.state).spare.pop()
    }

    /// Memory for entries, with anything in it. Little of it is aligned no further than
    /// devices ask: rounded up to pages it would take many times what it holds.
    pub fn buffer(&self, bytes: usize, alignment: usize) -> AlignedBuffer {
        if bytes < LARGE_BYTES {
            return AlignedBuffer::new(bytes, alignment);
        }
        let mut spare = lock(&self.spare);
        let fits = spare.iter().position(|spare| spare.len() == bytes);
        let found = fits.map(|at| spare.swap_remove(at));
        drop(spare);
        found.unwrap_or_else(|| buffer(bytes))
    }

    /// Keeps the memory of buffers that were written, if no reader holds them.
    pub fn recycle(&self, written: impl Iterator<Item = Arc<AlignedBuffer>>, flight_bytes: usize) {
        let mut spare = lock(&self.spare);
        let mut kept: usize = spare.iter().map(|spare| spare.len()).sum();
        for bytes in written.filter(|bytes| bytes.len() >= LARGE_BYTES) {
            if kept + bytes.len() > flight_bytes / SPARE_SHARE {
                spare.clear();
                kept = 0;
            }
            if let Ok(bytes) = Arc::try_unwrap(bytes) {
                kept += bytes.len();
                spare.push(bytes);
            }
        }
    }
}

impl Core {
    /// A flight begins; only who has the writer lock calls this. Lands the oldest ones
    /// where many, or many bytes, are under way.
    pub fn depart(&self, flight: Flight, written: Written) -> Arc<Departed> {
        while let Some(oldest) = self.one_too_many(flight.byte_count()) {
            self.land_through(oldest);
        }
        let mut state = lock(&self.flights.state);
        let unfinished = self.flights.unfinished.clone();
        unfinished.fetch_add(1, Ordering::AcqRel);
        let departed = Arc::new(Departed {
            number: state.next_number,
            written,
            outcome: OnceLock::new(),
            unfinished,
        });
        state.next_number += 1;
        state.under_way.push_back((flight, departed.clone()));
        departed
    }

    /// The oldest flight under way, if no other of so many bytes may begin beside it.
    fn one_too_many(&self, bytes: usize) -> Option<u64> {
        let state = lock(&self.flights.state);
        let flights = state.under_way.iter();
        let under_way: usize = flights.map(|(flight, _)| flight.byte_count()).sum();
        let is_full =
            state.under_way.len() >= MOST_FLIGHTS || under_way + bytes > self.tuning.flight_bytes;
        let oldest = state.under_way.front().filter(|_| is_full);
        oldest.map(|(_, departed)| departed.number)
    }

    /// Waits for a flight's writes, and for the flights before it. What a sync makes
    /// durable afterwards contains it, and no gap.
    pub fn land(&self, departed: &Departed) -> Result<Written> {
        if departed.outcome.get().is_none() {
            self.land_through(departed.number);
        }
        let outcome = departed.outcome.get().cloned();
        outcome
            .unwrap_or(Err(Error::Closed))
            .map(|()| departed.written)
    }

    /// Lands flights, up to that of a number.
    fn land_through(&self, number: u64) {
        let _one_at_a_time = lock(&self.flights.landing);
        loop {
            let next = {
                let mut state = lock(&self.flights.state);
                let oldest = state.under_way.front();
                match oldest.is_some_and(|(_, departed)| departed.number <= number) {
                    true => state.under_way.pop_front(),
                    false => None,
                }
            };
            match next {
                Some((flight, departed)) => self.land_oldest(flight, &departed),
                None => return,
            }
        }
    }

    fn land_oldest(&self, mut flight: Flight, departed: &Departed) {
        let answers = flight.queue.wait_all();
        let of_members = by_member(flight.members, answers);
        let own = match of_members.is_empty() {
            true => Ok(()),
            false => self.volume.settle(of_members, false),
        };
        let mut state = lock(&self.flights.state);
        let outcome = match &state.failure {
            Some(error) => Err(error.clone()),
            None => own.map_err(|error| self.failed_write(error)),
        };
        match &outcome {
            Ok(()) => state.written = Some(departed.written),
            Err(error) => state.failure = Some(error.clone()),
        }
        if state.spare.len() < MOST_FLIGHTS {
            state.spare.push(flight.queue);
        }
        drop(state);
        if outcome.is_ok() {
            self.forget_pieces(flight.pieces);
        }
        // Set once, by the one who landed it.
        _ = departed.outcome.set(outcome);
    }

    /// These are on the device: readers find them there.
    fn forget_pieces(&self, pieces: Vec<Piece>) {
        let mut pending = write(&self.pending);
        for piece in &pieces {
            let end = piece.block + (piece.bytes.len() as u64 / u64::from(self.block_bytes)) as u32;
            let entries: Vec<u32> = pending.range(piece.block..end).map(|(at, _)| *at).collect();
            for block in entries {
                pending.remove(&block);
            }
        }
        drop(pending);
        let buffers = pieces.into_iter().map(|piece| piece.bytes);
        self.flights.recycle(buffers, self.tuning.flight_bytes);
    }

    /// Lands all flights; the caller has the writer lock, so no more begin.
    pub fn land_all(&self) {
        self.land_through(u64::MAX);
    }
}
