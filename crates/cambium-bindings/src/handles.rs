//! Opaque handles that cannot be misused into a crash.
//!
//! A handle that a C program holds is a number in the shape of a pointer, never
//! the address of anything. Whatever the program hands in (null, a handle that
//! was closed, one of another kind, a wild pointer) is looked up in a table
//! and answers an error:
//!
//! ```text
//! bit  63 .. 36     35 .. 8      7 .. 0
//!     generation     slot         kind
//! ```
//!
//! The kind tells tables apart, the generation tells the slot's users apart,
//! one after the other; a handle is never null since no kind is 0. Looking a
//! handle up takes the lock of its own slot alone and counts a reference, so
//! an object that is closed on one thread lives until the calls that use it on
//! others have come back. Where calls are many and short, as an iterator's, a thread
//! keeps the object that it looked up last ([`Handles::with`]). A generation is used
//! again after 2^28 users of one slot.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::thread::LocalKey;

use cambium_io::sync::atomic::{AtomicU64, Ordering};
use cambium_io::sync::{Mutex, OnceLock, RwLock, lock, read, write};

const KIND_BITS: u32 = 8;
const SLOT_BITS: u32 = 28;
const GENERATION_MASK: u64 = (1 << 28) - 1;
/// Slots come in blocks, each twice as large as the one before; blocks never move.
const FIRST_BLOCK: usize = 64;
const BLOCKS: usize = 22;

/// What is wrong with a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleError {
    /// It is null.
    Null(&'static str),
    /// It is a handle of something else, or no handle at all.
    Foreign(&'static str),
    /// It was closed.
    Closed(&'static str),
}

impl fmt::Display for HandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandleError::Null(what) => write!(f, "the {what} is a null pointer"),
            HandleError::Foreign(what) => write!(f, "the handle given is not of a {what}"),
            HandleError::Closed(what) => write!(f, "the {what} is closed"),
        }
    }
}

impl std::error::Error for HandleError {}

struct Slot<T> {
    /// The generation of its user; changed under the lock.
    generation: AtomicU64,
    content: RwLock<Option<Arc<T>>>,
}

/// The object that a thread has looked up last by [`Handles::with`].
#[derive(Debug)]
pub struct Recent<T>(RefCell<Option<(usize, Arc<T>)>>);

impl<T> Recent<T> {
    /// None was looked up.
    pub const fn new() -> Self {
        Recent(RefCell::new(None))
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent::new()
    }
}

/// All handles of one kind of object.
///
/// ```
/// use cambium_bindings::handles::{HandleError, Handles};
/// static TREES: Handles<String> = Handles::new(1, "tree");
/// let oak = TREES.insert("oak".to_string()).expect("a slot is free");
/// assert_eq!(*TREES.get(oak)?, "oak");
/// TREES.remove(oak)?;
/// assert_eq!(TREES.get(oak), Err(HandleError::Closed("tree")));
/// assert_eq!(TREES.get(0), Err(HandleError::Null("tree")));
/// # Ok::<(), HandleError>(())
/// ```
pub struct Handles<T> {
    kind: u8,
    name: &'static str,
    blocks: [OnceLock<Box<[Slot<T>]>>; BLOCKS],
    /// Slots that are free again, and the first that was never used.
    free: Mutex<(Vec<usize>, usize)>,
}

impl<T> Handles<T> {
    /// A table of objects called `name` in messages; `kind`, from 1 on, is
    /// another one for each table of a library.
    pub const fn new(kind: u8, name: &'static str) -> Self {
        assert!(kind != 0);
        Handles {
            kind,
            name,
            blocks: [const { OnceLock::new() }; BLOCKS],
            free: Mutex::new((Vec::new(), 0)),
        }
    }

    /// Keeps an object, and answers its handle; `None` where 2^28 are kept.
    pub fn insert(&self, object: T) -> Option<usize> {
        let index = {
            let mut free = lock(&self.free);
            match free.0.pop() {
                Some(index) => index,
                None => {
                    free.1 += 1;
                    free.1 - 1
                }
            }
        };
        let slot = self.slot(index, true)?;
        let mut content = write(&slot.content);
        *content = Some(Arc::new(object));
        let generation = slot.generation.load(Ordering::Relaxed);
        let handle = generation << (KIND_BITS + SLOT_BITS)
            | (index as u64) << KIND_BITS
            | u64::from(self.kind);
        usize::try_from(handle).ok()
    }

    /// The object of a handle.
    ///
    /// # Errors
    /// What is wrong with the handle.
    pub fn get(&self, handle: usize) -> Result<Arc<T>, HandleError> {
        let (slot, generation) = self.find(handle)?;
        let content = read(&slot.content);
        match &*content {
            Some(object) if slot.generation.load(Ordering::Relaxed) == generation => {
                Ok(object.clone())
            }
            _ => Err(HandleError::Closed(self.name)),
        }
    }

    /// Calls with the object of a handle. The one that a thread has looked up last takes no
    /// lock and counts no reference: `recent` keeps it until the thread looks another one up,
    /// so whoever removes a handle empties its object.
    ///
    /// # Errors
    /// What is wrong with the handle.
    ///
    /// ```
    /// use cambium_bindings::handles::{Handles, Recent};
    /// static TREES: Handles<String> = Handles::new(1, "tree");
    /// thread_local!(static RECENT: Recent<String> = const { Recent::new() });
    /// let oak = TREES.insert("oak".to_string()).expect("a slot is free");
    /// assert_eq!(TREES.with(&RECENT, oak, |tree| tree.len())?, 3);
    /// # Ok::<(), cambium_bindings::handles::HandleError>(())
    /// ```
    pub fn with<R>(
        &self,
        recent: &'static LocalKey<Recent<T>>,
        handle: usize,
        call: impl FnOnce(&T) -> R,
    ) -> Result<R, HandleError> {
        let (slot, generation) = self.find(handle)?;
        let is_current = || slot.generation.load(Ordering::Acquire) == generation;
        let mut call = Some(call);
        let mut call = |object: &T| call.take().map(|call| call(object));
        // A call within a call, and one as the thread ends, looks the handle up as ever.
        let answer = recent.try_with(|recent| {
            let is_kept = |kept: &Option<(usize, Arc<T>)>| {
                is_current() && kept.as_ref().is_some_and(|(of, _)| *of == handle)
            };
            let mut ask = || match recent.0.try_borrow() {
                Ok(kept) if is_kept(&kept) => kept.as_ref().and_then(|(_, object)| call(object)),
                _ => None,
            };
            let mut answer = ask();
            if answer.is_none() {
                if let Ok(mut kept) = recent.0.try_borrow_mut() {
                    *kept = Some((handle, self.get(handle)?));
                }
                answer = ask();
            }
            if !is_current() {
                // It was removed by the call.
                _ = recent.0.try_borrow_mut().map(|mut kept| kept.take());
            }
            Ok(answer)
        });
        match answer {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Err(error)) => Err(error),
            Ok(Ok(None)) | Err(_) => {
                let object = self.get(handle)?;
                call(&object).ok_or(HandleError::Closed(self.name))
            }
        }
    }

    /// Forgets a handle, and answers its object, which calls on other threads
    /// may still be using.
    ///
    /// # Errors
    /// What is wrong with the handle.
    pub fn remove(&self, handle: usize) -> Result<Arc<T>, HandleError> {
        let (slot, generation) = self.find(handle)?;
        let mut content = write(&slot.content);
        if slot.generation.load(Ordering::Relaxed) != generation {
            return Err(HandleError::Closed(self.name));
        }
        let object = content.take().ok_or(HandleError::Closed(self.name))?;
        let next = (generation + 1) & GENERATION_MASK;
        slot.generation.store(next, Ordering::Release);
        drop(content);
        let index = (handle as u64 >> KIND_BITS) as usize & ((1 << SLOT_BITS) - 1);
        lock(&self.free).0.push(index);
        Ok(object)
    }

    fn find(&self, handle: usize) -> Result<(&Slot<T>, u64), HandleError> {
        if handle == 0 {
            return Err(HandleError::Null(self.name));
        }
        let handle = handle as u64;
        if handle as u8 != self.kind {
            return Err(HandleError::Foreign(self.name));
        }
        let index = (handle >> KIND_BITS) as usize & ((1 << SLOT_BITS) - 1);
        let slot = self
            .slot(index, false)
            .ok_or(HandleError::Foreign(self.name))?;
        Ok((slot, handle >> (KIND_BITS + SLOT_BITS)))
    }

    fn slot(&self, index: usize, make: bool) -> Option<&Slot<T>> {
        let block = (index / FIRST_BLOCK + 1).ilog2() as usize;
        let start = ((1 << block) - 1) * FIRST_BLOCK;
        let cell = self.blocks.get(block)?;
        let slots = match cell.get() {
            Some(slots) => slots,
            None if make => cell.get_or_init(|| {
                let count = FIRST_BLOCK << block;
                let empty = || Slot {
                    generation: AtomicU64::new(0),
                    content: RwLock::new(None),
                };
                std::iter::repeat_with(empty).take(count).collect()
            }),
            None => return None,
        };
        slots.get(index - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_used_again_has_another_handle() {
        let table = Handles::new(3, "tree");
        let first = table.insert(1).unwrap();
        table.remove(first).unwrap();
        let second = table.insert(2).unwrap();
        assert_ne!(first, second);
        assert_eq!(table.get(first), Err(HandleError::Closed("tree")));
        assert_eq!(table.remove(first), Err(HandleError::Closed("tree")));
        assert_eq!(*table.get(second).unwrap(), 2);
    }

    #[test]
    fn many_handles_are_told_apart() {
        let table = Handles::new(3, "tree");
        let handles: Vec<usize> = (0..1000).map(|tree| table.insert(tree).unwrap()).collect();
        for (tree, handle) in handles.iter().enumerate() {
            assert_eq!(*table.get(*handle).unwrap(), tree);
        }
    }

    #[test]
    fn whatever_is_handed_in_is_an_error() {
        let table = Handles::new(3, "tree");
        let other = Handles::new(4, "shrub");
        let shrub = other.insert(7).unwrap();
        assert_eq!(table.get(shrub), Err(HandleError::Foreign("tree")));
        _ = table.insert(7);
        for bit in 0..64 {
            let wild = 1_usize << bit | 3;
            assert!(wild == 3 || table.get(wild).is_err(), "{wild:#x}");
        }
        assert_eq!(table.get(usize::MAX), Err(HandleError::Foreign("tree")));
    }

    #[test]
    fn what_is_in_use_outlives_its_handle() {
        let table = Handles::new(3, "tree");
        let handle = table.insert(5).unwrap();
        let used = table.get(handle).unwrap();
        table.remove(handle).unwrap();
        assert_eq!(*used, 5);
    }
}
