//! Atomics: each access is a scheduling point, except relaxed accesses.
//!
//! The engines use relaxed accesses for statistics and for marks that may be wrong.
//! ThreadSanitizer, not a scheduler, finds a relaxed access where correctness needs a
//! stronger order.

pub use std::sync::atomic::Ordering;

use super::scheduler;

fn point(order: Ordering) {
    if order != Ordering::Relaxed {
        scheduler::point();
    }
}

/// See [`std::sync::atomic::fence`].
pub fn fence(order: Ordering) {
    scheduler::point();
    std::sync::atomic::fence(order);
}

/// Defines a scheduled atomic with the calls that all atomics have.
macro_rules! atomic {
    ($Atomic:ident, $Value:ty) => {
        /// The standard library's atomic of this name, scheduled.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $Atomic(std::sync::atomic::$Atomic);

        impl $Atomic {
            /// Creates an atomic.
            pub const fn new(value: $Value) -> Self {
                $Atomic(std::sync::atomic::$Atomic::new(value))
            }

            /// Reads.
            pub fn load(&self, order: Ordering) -> $Value {
                point(order);
                self.0.load(order)
            }

            /// Writes.
            pub fn store(&self, value: $Value, order: Ordering) {
                point(order);
                self.0.store(value, order);
            }

            /// Writes, and returns the old value.
            pub fn swap(&self, value: $Value, order: Ordering) -> $Value {
                point(order);
                self.0.swap(value, order)
            }

            /// Writes `new` if the value is `current`.
            ///
            /// # Errors
            /// Returns the value if it is not `current`.
            pub fn compare_exchange(
                &self,
                current: $Value,
                new: $Value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$Value, $Value> {
                point(success);
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As `compare_exchange`, but may fail although the value is `current`.
            ///
            /// # Errors
            /// Returns the value.
            pub fn compare_exchange_weak(
                &self,
                current: $Value,
                new: $Value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$Value, $Value> {
                point(success);
                self.0.compare_exchange_weak(current, new, success, failure)
            }

            /// Replaces the value by the answer of `update`.
            ///
            /// # Errors
            /// Returns the value if `update` answers `None`.
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                update: impl FnMut($Value) -> Option<$Value>,
            ) -> Result<$Value, $Value> {
                point(set);
                self.0.fetch_update(set, fetch, update)
            }

            /// The value; the exclusive borrow shows that no other thread has the atomic.
            pub fn get_mut(&mut self) -> &mut $Value {
                self.0.get_mut()
            }

            /// The value.
            pub fn into_inner(self) -> $Value {
                self.0.into_inner()
            }
        }

        impl From<$Value> for $Atomic {
            fn from(value: $Value) -> Self {
                $Atomic::new(value)
            }
        }
    };
}

/// Defines calls that change the value and return the old one.
macro_rules! change {
    ($Atomic:ident, $Value:ty: $($call:ident),*) => {
        impl $Atomic {
            $(
                /// As the standard library's call of this name.
                pub fn $call(&self, value: $Value, order: Ordering) -> $Value {
                    point(order);
                    self.0.$call(value, order)
                }
            )*
        }
    };
}

macro_rules! number {
    ($($Atomic:ident, $Value:ty;)*) => { $(
        atomic!($Atomic, $Value);
        change!($Atomic, $Value: fetch_add, fetch_sub, fetch_max, fetch_min, fetch_and, fetch_or, fetch_xor);
    )* };
}

number! {
    AtomicU8, u8;
    AtomicU16, u16;
    AtomicU32, u32;
    AtomicU64, u64;
    AtomicUsize, usize;
    AtomicI64, i64;
}
atomic!(AtomicBool, bool);
change!(AtomicBool, bool: fetch_and, fetch_or, fetch_xor);
