//! One cache of verified or raw blocks for all stores of an environment.
//!
//! What is cached mostly never changes: files that are written once and then only
//! read. So a block is never wrong, only pushed out. Where a place gets other bytes
//! later, whoever gives it those removes the block, and who has read the old bytes
//! meanwhile is refused when he offers them ([`CachedFile::offer`]).
//!
//! Most lookups of a store that fits end here, and what they cost is memory that
//! is not in the processor's caches. So the cache is a table of small *sets*, each
//! a lock, the keys of its few blocks and the blocks themselves, side by side: a
//! lookup touches two or three lines, and [`CachedFile::with`] looks into a block
//! where it lies, without counting a reference.
//!
//! It is bounded in bytes. A block is *new* until it is asked for again, and then
//! *kept*. New ones are pushed out first, in the order of a hand that goes round;
//! kept ones age only while they fill more than three quarters, or all of a set
//! that gets another. So a scan pushes out what other scans brought, and next to
//! nothing else.
//!
//! A file that takes part has an identity of its own ([`CachedFile`]), given out
//! anew at each opening, so what an earlier file of the same name left behind is
//! never found. It counts its own hits and misses.

mod file;
mod marks;

use std::fmt;
use std::sync::{Arc, PoisonError};

use cambium_base::Error;

use crate::memory_budget::{self, MemoryBudget};
use crate::real::machine_memory;
use crate::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub use file::CachedFile;
pub use marks::Marks;

/// Bytes of the cache of an environment, unless one of another size is put in
/// its place.
pub const DEFAULT_CACHE_BYTES: u64 = 64 << 20;

/// What an entry costs beside its bytes: its place in a set, of which a third is
/// empty.
const OVERHEAD_BYTES: u64 = 48;
/// What a block's two counts of references take before its bytes. One that fills
/// an allocator's size class has so many bytes less.
pub const BLOCK_HEADER_BYTES: usize = 16;
/// Blocks that were pushed out and are kept for their memory, at most.
const MOST_SPARES: usize = 64;
/// Bytes of a cache for each of them.
const BYTES_A_SPARE: u64 = 64 << 10;
/// A block of common size: what the table is laid out for.
const COMMON_BLOCK_BYTES: u64 = 4096;
/// Blocks of a set: their keys and the lock share a line.
const WAYS: usize = 6;
/// Most uses that are remembered of a block.
const MOST_USES: u8 = 3;
/// Bits of a key that are a file's own; the others tell files apart.
const PLACE_BITS: u32 = 44;

/// Cached bytes, shared with whoever was answered with them.
pub type Block = Arc<[u8]>;

/// A few blocks whose keys have the same hash.
#[derive(Debug, Default)]
struct Set {
    keys: [u64; WAYS],
    blocks: [Option<Block>; WAYS],
    /// 0 while a block is new.
    uses: [AtomicU8; WAYS],
    /// How often somebody said that a place of this set has other bytes now.
    removals: u64,
}

/// When a place was looked at: a block that is read afterwards may be offered for it
/// as long as nobody has removed the place's block since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(u64);

impl Set {
    fn way_of(&self, key: u64) -> Option<usize> {
        (0..WAYS).find(|&way| self.keys[way] == key && self.blocks[way].is_some())
    }

    fn free_way(&self) -> Option<usize> {
        self.blocks.iter().position(Option::is_none)
    }
}

/// A set on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place(RwLock<Set>);

impl Place {
    fn read(&self) -> RwLockReadGuard<'_, Set> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Set> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A cache of blocks, bounded in bytes.
///
/// ```
/// use cambium_io::cache::BlockCache;
/// let cache = BlockCache::new(1 << 20);
/// let file = cache.file();
/// file.put(7, &[1, 2, 3].into());
/// assert_eq!(file.get(7).as_deref(), Some(&[1, 2, 3][..]));
/// assert!(cache.file().get(7).is_none(), "another file");
/// ```
pub struct BlockCache {
    capacity: u64,
    /// Of a block, commonly.
    block_bytes: u64,
    /// Of it, what others use: see [`BlockCache::reserve`].
    reserved: AtomicU64,
    /// Made at first use.
    sets: OnceLock<Box<[Place]>>,
    bytes: AtomicU64,
    /// Bytes of blocks that were asked for again.
    kept_bytes: AtomicU64,
    /// The set that is looked at next for something to push out.
    hand: AtomicUsize,
    /// The next identity, and those that were given back.
    identities: Mutex<(u64, Vec<u64>)>,
    /// The capacity, reserved of an environment's memory budget.
    paid: Mutex<Option<memory_budget::Reservation>>,
    /// Blocks nobody looks at any more. A new one takes the memory of one that is
    /// as long: blocks come from one thread and are pushed out by another, and
    /// allocators that keep what a thread has freed for that thread would hold
    /// half as much again as is in use.
    spares: Mutex<Vec<Block>>,
}

/// What a block takes of memory. Common allocators know four sizes between a
/// power of two and the next.
fn weight(block: &Block) -> u64 {
    let bytes = (block.len() + BLOCK_HEADER_BYTES) as u64;
    let step = (bytes.next_power_of_two() / 8).max(16);
    bytes.next_multiple_of(step) + OVERHEAD_BYTES
}

impl BlockCache {
    /// An empty cache of so many bytes; 0 keeps nothing.
    pub fn new(capacity: u64) -> Arc<Self> {
        BlockCache::of_blocks(capacity, COMMON_BLOCK_BYTES)
    }

    /// As [`BlockCache::new`], with a table for blocks of about so many bytes. Of
    /// smaller ones fewer find a place than would find room. A capacity beyond the
    /// machine's memory is as large as that: the table takes a hundredth of it.
    pub fn of_blocks(capacity: u64, block_bytes: u64) -> Arc<Self> {
        Arc::new(BlockCache {
            capacity: capacity.min(machine_memory()),
            block_bytes: block_bytes.max(OVERHEAD_BYTES),
            reserved: AtomicU64::new(0),
            sets: OnceLock::new(),
            bytes: AtomicU64::new(0),
            kept_bytes: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
            identities: Mutex::default(),
            paid: Mutex::default(),
            spares: Mutex::default(),
        })
    }

    fn spares(&self) -> crate::sync::MutexGuard<'_, Vec<Block>> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of so many bytes that nobody else has, whatever they are.
    fn spare(&self, length: usize) -> Option<Block> {
        let mut spares = self.spares();
        let place = spares.iter().rposition(|spare| spare.len() == length)?;
        Some(spares.remove(place))
    }

    /// Keeps the memory of a block for another, if nobody looks at it any more. Large
    /// ones are none: what waits here is beyond the cache's bound, by a sixteenth of it
    /// at most.
    fn set_aside(&self, mut block: Block) {
        let most = (self.capacity / BYTES_A_SPARE).min(MOST_SPARES as u64) as usize;
        let is_large = block.len() as u64 > COMMON_BLOCK_BYTES;
        if most == 0 || is_large || Arc::get_mut(&mut block).is_none() {
            return;
        }
        let mut spares = self.spares();
        if spares.len() >= most {
            // The one that has waited longest: its length is asked for rarely.
            spares.remove(0);
        }
        spares.push(block);
    }

    /// Bytes that it holds at most.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Reserves the capacity of a memory budget for as long as the cache exists. The first
    /// call reserves; later ones do nothing.
    ///
    /// # Errors
    /// `LimitExceeded` where the budget has too little left.
    pub fn draw_on(&self, budget: &Arc<MemoryBudget>) -> Result<(), Error> {
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        if paid.is_none() {
            *paid = Some(budget.reserve(self.capacity)?);
        }
        Ok(())
    }

    /// True once the capacity is reserved of a memory budget.
    pub fn is_paid(&self) -> bool {
        let paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        paid.is_some()
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes so many bytes from the blocks, for memory that the caller uses to find or
    /// keep what is cached; `None` where less than a quarter of the cache would be left
    /// for blocks. Dropping the reservation gives them back. Pushes blocks out.
    ///
    /// ```
    /// let cache = cambium_io::cache::BlockCache::new(1 << 20);
    /// let index = cache.reserve(1 << 19).unwrap();
    /// assert!(cache.reserve(1 << 19).is_none());
    /// assert_eq!(cache.bytes(), 1 << 19);
    /// drop(index);
    /// assert_eq!(cache.bytes(), 0);
    /// ```
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        let most = self.capacity / 4 * 3;
        let taken = self
            .reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reserved| {
                let after = reserved.checked_add(bytes)?;
                (after <= most).then_some(after)
            });
        taken.ok()?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.bytes() > self.capacity {
            self.make_room();
        }
        Some(Reservation {
            cache: self.clone(),
            bytes,
        })
    }

    /// What is left for blocks.
    fn room(&self) -> u64 {
        self.capacity - self.reserved.load(Ordering::Relaxed).min(self.capacity)
    }

    /// An identity for a file that was opened.
    pub fn file(self: &Arc<Self>) -> CachedFile {
        let mut identities = self.identities();
        let (next, free) = &mut *identities;
        let file = free.pop().unwrap_or_else(|| {
            *next += 1;
            *next
        });
        CachedFile::new(self.clone(), file)
    }

    fn identities(&self) -> crate::sync::MutexGuard<'_, (u64, Vec<u64>)> {
        self.identities
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn sets(&self) -> &[Place] {
        self.sets.get_or_init(|| {
            // Half as many ways again as blocks, so that few sets overflow.
            let blocks = self.capacity / (self.block_bytes + OVERHEAD_BYTES) + 1;
            let sets = (blocks * 3 / 2).div_ceil(WAYS as u64).max(4);
            (0..sets).map(|_| Place::default()).collect()
        })
    }

    fn place(&self, key: u64) -> &Place {
        let sets = self.sets();
        let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        let hash = (product as u64) ^ (product >> 64) as u64;
        &sets[((u128::from(hash) * sets.len() as u128) >> 64) as usize]
    }

    fn with<R>(&self, key: u64, look: impl FnOnce(&Block) -> R) -> Result<R, Moment> {
        let set = self.place(key).read();
        let way = set.way_of(key);
        let Some((way, block)) = way.and_then(|way| Some((way, set.blocks[way].as_ref()?))) else {
            return Err(Moment(set.removals));
        };
        // Under this lock nobody but other readers changes it.
        let uses = &set.uses[way];
        let seen = uses.load(Ordering::Relaxed);
        if seen < MOST_USES {
            let counted =
                uses.compare_exchange(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed);
            if seen == 0 && counted.is_ok() {
                self.kept_bytes.fetch_add(weight(block), Ordering::Relaxed);
            }
        }
        Ok(look(block))
    }

    /// Puts a block in that counts as used so often, unless one was removed since a moment;
    /// false if it was not.
    fn put(&self, key: u64, block: &Block, since: Option<Moment>, used: u8) -> bool {
        let bytes = weight(block);
        if bytes > self.room() {
            // The place has other content now.
            self.remove(key);
            return false;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.make_room();
        let mut set = self.place(key).write();
        if since.is_some_and(|Moment(removals)| removals != set.removals) {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        let (way, uses) = match set.way_of(key) {
            Some(way) => (way, set.uses[way].load(Ordering::Relaxed)),
            None => (self.way_for_new(&set), used),
        };
        self.take(&mut set, way);
        if uses > 0 {
            self.kept_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        set.keys[way] = key;
        set.blocks[way] = Some(block.clone());
        set.uses[way] = AtomicU8::new(uses);
        true
    }

    /// A free way, or the one that was used least. Where all were asked for again, all age:
    /// with small blocks the sets are full before the bound is met, and nothing else would
    /// push out what nobody asks for any more.
    fn way_for_new(&self, set: &Set) -> usize {
        if let Some(free) = set.free_way() {
            return free;
        }
        let uses = |way: usize| set.uses[way].load(Ordering::Relaxed);
        let least = (0..WAYS).min_by_key(|&way| uses(way)).unwrap_or(0);
        if uses(least) > 0 {
            for way in 0..WAYS {
                self.age(set, way, uses(way));
            }
        }
        least
    }

    /// True while a block would push nothing out.
    fn has_room(&self, key: u64) -> bool {
        self.bytes() < self.capacity / 8 * 7 && self.place(key).read().free_way().is_some()
    }

    /// Empties a way.
    fn take(&self, set: &mut Set, way: usize) {
        let Some(block) = set.blocks[way].take() else {
            return;
        };
        self.bytes.fetch_sub(weight(&block), Ordering::Relaxed);
        if set.uses[way].swap(0, Ordering::Relaxed) > 0 {
            self.kept_bytes.fetch_sub(weight(&block), Ordering::Relaxed);
        }
        self.set_aside(block);
    }

    /// Pushes out until the bound holds. New blocks go at once, kept ones after
    /// the hand has passed them as often as they were used.
    fn make_room(&self) {
        let sets = self.sets();
        // Once round finds every new block; as often again ages every kept one.
        let most = sets.len() * (usize::from(MOST_USES) + 3);
        for looked_at in 0..most {
            if self.bytes() <= self.capacity {
                return;
            }
            let hand = self.hand.fetch_add(1, Ordering::Relaxed) % sets.len();
            let mut set = sets[hand].write();
            let ages = looked_at > 2 * sets.len()
                || self.kept_bytes.load(Ordering::Relaxed) > self.room() / 4 * 3;
            for way in 0..WAYS {
                if set.blocks[way].is_none() {
                    continue;
                }
                let uses = set.uses[way].load(Ordering::Relaxed);
                if uses == 0 {
                    self.take(&mut set, way);
                } else if ages {
                    self.age(&set, way, uses);
                }
                if self.bytes() <= self.capacity {
                    return;
                }
            }
        }
    }

    fn age(&self, set: &Set, way: usize, uses: u8) {
        set.uses[way].store(uses - 1, Ordering::Relaxed);
        if let (1, Some(block)) = (uses, &set.blocks[way]) {
            self.kept_bytes.fetch_sub(weight(block), Ordering::Relaxed);
        }
    }

    fn remove(&self, key: u64) -> bool {
        let mut set = self.place(key).write();
        let way = set.way_of(key);
        if let Some(way) = way {
            self.take(&mut set, way);
        }
        set.removals += 1;
        way.is_some()
    }

    /// Takes out all blocks of a file.
    fn forget(&self, file: u64) {
        for place in self.sets.get().into_iter().flat_map(|sets| sets.iter()) {
            let mut set = place.write();
            for way in 0..WAYS {
                if set.keys[way] >> PLACE_BITS == file {
                    self.take(&mut set, way);
                }
            }
        }
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache")
            .field("capacity", &self.capacity)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// Bytes of a cache that are somebody's until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    cache: Arc<BlockCache>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.cache.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
        self.cache.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
