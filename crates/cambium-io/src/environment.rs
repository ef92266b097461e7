//! What a store needs of the world besides its bytes: one [`Environment`] is
//! handed to every open and shared by the stores of a process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cambium_base::{Error, Result};

use crate::background::BackgroundLimits;
use crate::cache::BlockCache;
use crate::file_system::FileSystem;
use crate::step::Executor;
use crate::sync::atomic::{AtomicU64, Ordering};

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

/// Memory that all stores of an environment may take together, in bytes.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: u64,
    used: AtomicU64,
}

impl MemoryBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(MemoryBudget {
            limit,
            used: AtomicU64::new(0),
        })
    }

    /// Bytes there are in all.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes reserved now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes` until the reservation is dropped, or fails with
    /// [`Error::LimitExceeded`].
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation> {
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|&sum| sum <= self.limit)
            });
        match taken {
            Ok(_) => Ok(Reservation {
                budget: self.clone(),
                bytes,
            }),
            Err(used) => Err(Error::LimitExceeded(format!(
                "{bytes} bytes of memory: {used} of the budget of {} are in use",
                self.limit
            ))),
        }
    }
}

/// Part of a [`MemoryBudget`], given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Reservation {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
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
    /// One memory budget for all stores.
    pub memory: Arc<MemoryBudget>,
    /// What background work of all stores may take together.
    pub background: Arc<BackgroundLimits>,
    /// One cache for all stores that have none of their own.
    pub cache: Arc<BlockCache>,
}
