//! The allocator of the program: mimalloc, or the C library's where memory is
//! limited.
//!
//! mimalloc gives and takes small pieces in half the time, and keeps caches on huge
//! pages where it can. It also keeps what each thread has freed for that thread:
//! stores that allocate in one thread and free in another, as caches do, hold a third
//! more than is in use, which a limit on memory counts against them. The C library's
//! allocator with one arena ([`ONE_ARENA`]) holds a few hundredths more.
//!
//! Which of the two it is, the environment says when the process starts
//! ([`FRUGAL`]), and it stays so: what one of them gave must go back to it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};

use mimalloc::MiMalloc;

/// The variable of the environment that asks for the C library's allocator.
const FRUGAL: &CStr = c"KVZONE_FRUGAL_ALLOCATOR";

/// What tells that allocator to have one arena for all threads.
const ONE_ARENA: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

/// The environment of a process that shall keep the least for later: where memory is
/// limited, that would count against the store that freed it, and whole huge pages would
/// count of which a part is in use.
pub fn frugal(is_memory_limited: bool) -> impl Iterator<Item = (String, &'static str)> {
    let name = FRUGAL.to_string_lossy().into_owned();
    let all = [(name, "1"), (ONE_ARENA.0.to_string(), ONE_ARENA.1)];
    all.into_iter().filter(move |_| is_memory_limited)
}

const UNDECIDED: u8 = 0;
const FAST: u8 = 1;
const SMALL: u8 = 2;

static CHOICE: AtomicU8 = AtomicU8::new(UNDECIDED);

#[global_allocator]
static ALLOCATOR: Chosen = Chosen;

struct Chosen;

/// Decided at the first allocation, which comes before `main` and before any other
/// thread.
fn is_small() -> bool {
    match CHOICE.load(Ordering::Relaxed) {
        UNDECIDED => decide(),
        choice => choice == SMALL,
    }
}

#[cold]
fn decide() -> bool {
    // SAFETY: the name ends with a zero, and no other thread is there that could
    // change the environment. It allocates nothing.
    let is_set = unsafe { !libc::getenv(FRUGAL.as_ptr()).is_null() };
    CHOICE.store(if is_set { SMALL } else { FAST }, Ordering::Relaxed);
    is_set
}

// SAFETY: each call goes to one of two sound allocators, and to the same one in all
// the life of the process, so that memory goes back to where it came from.
unsafe impl GlobalAlloc for Chosen {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_small() {
            // SAFETY: the caller's promise is passed on, here and below.
            true => unsafe { System.alloc(layout) },
            // SAFETY: as above.
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match is_small() {
            // SAFETY: as above.
            true => unsafe { System.dealloc(memory, layout) },
            // SAFETY: as above.
            false => unsafe { MiMalloc.dealloc(memory, layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_small() {
            // SAFETY: as above.
            true => unsafe { System.alloc_zeroed(layout) },
            // SAFETY: as above.
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        match is_small() {
            // SAFETY: as above.
            true => unsafe { System.realloc(memory, layout, bytes) },
            // SAFETY: as above.
            false => unsafe { MiMalloc.realloc(memory, layout, bytes) },
        }
    }
}
