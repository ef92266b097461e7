//! What a store needs of the world besides its bytes: one [`Environment`] is
//! handed to every open and shared by the stores of a process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::background::BackgroundLimits;
use crate::cache::{BlockCache, DEFAULT_CACHE_BYTES};
use crate::file_system::FileSystem;
pub use crate::memory_budget::{MemoryBudget, Reservation};
use crate::step::Executor;

/// Time. Never used to order writes.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Nanoseconds since 1970, in steps of some milliseconds; may jump.
    fn wall_nanoseconds(&self) -> u64;
    /// Waits; a simulated clock only advances.
    fn sleep(&self, time: Duration);
}

/// Random numbers: ids, salts, seeds of hashes.
pub trait Randomness: Send + Sync + fmt::Debug {
    /// Fills with random bytes.
    fn fill(&self, bytes: &mut [u8]);

    /// A random number.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// Everything a store gets from outside. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Files and folders.
    pub file_system: Arc<dyn FileSystem>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Random numbers.
    pub randomness: Arc<dyn Randomness>,
    /// Background work.
    pub executor: Arc<dyn Executor>,
    /// One memory budget for all stores; unlimited, unless the program sets one
    /// ([`Environment::with_memory`]).
    pub memory: Arc<MemoryBudget>,
    /// What background work of all stores may take together.
    pub background: Arc<BackgroundLimits>,
    /// One cache for all stores that have none of their own.
    pub cache: Arc<BlockCache>,
}

/// Of a memory budget, the part that becomes the environment's cache.
const CACHE_SHARE: u64 = 4;

impl Environment {
    /// The same environment with a memory budget of `bytes`, and with a cache of a quarter of
    /// it, 64 MiB at most. Stores that were opened before keep the old budget.
    ///
    /// ```
    /// use cambium_io::Environment;
    /// let environment = Environment::memory().with_memory(32 << 20);
    /// assert_eq!(environment.memory.limit(), Some(32 << 20));
    /// assert_eq!(environment.cache.capacity(), 8 << 20);
    /// ```
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Environment {
        Environment {
            memory: MemoryBudget::new(bytes),
            cache: BlockCache::new(cache_of(bytes)),
            ..self
        }
    }

    /// The least memory budget that leaves `bytes` beside the environment's cache, which
    /// shrinks and grows with the budget if [`Environment::with_memory`] made it.
    pub fn least_memory(&self, bytes: u64) -> u64 {
        let capacity = self.cache.capacity();
        let follows = self.memory.limit().map(cache_of) == Some(capacity);
        let with_share = bytes.saturating_mul(CACHE_SHARE).div_ceil(CACHE_SHARE - 1);
        match follows && cache_of(with_share) < DEFAULT_CACHE_BYTES {
            true => with_share,
            false if follows => bytes.saturating_add(DEFAULT_CACHE_BYTES),
            false => bytes.saturating_add(capacity),
        }
    }
}

impl Environment {
    /// Background work has read or written so many bytes: see [`BackgroundLimits::spend`].
    pub fn pay_for_background(&self, bytes: u64) {
        self.background.spend(&*self.clock, bytes);
    }

    /// True while background work has moved more bytes than the limit allows.
    pub fn is_background_ahead(&self) -> bool {
        self.background.is_exhausted(&*self.clock)
    }

    /// Waits until background work may move bytes again, or until `is_over`: see
    /// [`BackgroundLimits::wait`].
    pub fn wait_for_background(&self, is_over: &dyn Fn() -> bool) {
        self.background.wait(&*self.clock, is_over);
    }
}

/// The cache of an environment with a memory budget.
fn cache_of(budget: u64) -> u64 {
    (budget / CACHE_SHARE).min(DEFAULT_CACHE_BYTES)
}
