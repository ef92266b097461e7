//! One memory budget for all stores of an environment.
//!
//! A store reserves at its opening what its options allow it to use, and gives the
//! reservation back when it is dropped. Memory that grows with the data is reserved as it
//! grows ([`Reservation::resize`]).

use std::sync::Arc;

use cambium_base::{Error, Result};

use crate::sync::atomic::{AtomicU64, Ordering};

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

    /// A budget that refuses nothing and counts what is reserved.
    pub fn unlimited() -> Arc<Self> {
        MemoryBudget::new(u64::MAX)
    }

    /// The limit in bytes, or `None` for a budget without one.
    pub fn limit(&self) -> Option<u64> {
        (self.limit < u64::MAX).then_some(self.limit)
    }

    /// Bytes reserved now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that can still be reserved.
    pub fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used())
    }

    /// Takes `bytes` until the reservation is dropped.
    ///
    /// # Errors
    /// [`Error::LimitExceeded`] where fewer bytes are free.
    ///
    /// ```
    /// let budget = cambium_io::environment::MemoryBudget::new(100);
    /// let mut held = budget.reserve(70).unwrap();
    /// assert!(budget.reserve(40).is_err());
    /// held.resize(60).unwrap();
    /// assert_eq!(budget.free(), 40);
    /// drop(held);
    /// assert_eq!(budget.used(), 0);
    /// ```
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation> {
        self.take(bytes)?;
        Ok(Reservation {
            budget: self.clone(),
            bytes,
        })
    }

    fn take(&self, bytes: u64) -> Result<()> {
        let sum = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        match taken {
            Ok(_) => Ok(()),
            Err(used) => Err(Error::LimitExceeded(format!(
                "{bytes} bytes of memory are needed, and {used} bytes of the memory budget of {} \
                 are in use; a budget of {} bytes would do",
                self.limit,
                used.saturating_add(bytes)
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

    /// Holds `bytes` from now on.
    ///
    /// # Errors
    /// [`Error::LimitExceeded`] where the budget has too little left; the reservation then
    /// holds what it held before.
    pub fn resize(&mut self, bytes: u64) -> Result<()> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.take(more)?,
            None => _ = self.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }

    fn give_back(&self, bytes: u64) -> u64 {
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}
