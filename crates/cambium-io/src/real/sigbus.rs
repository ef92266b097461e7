//! Stores into mappings whose pages may not be given.
//!
//! A store into a mapped file raises `SIGBUS` where the kernel cannot give the page: the
//! file system was shut down, a shared extent needs a copy on a full disk, the device
//! fails to read the page back, somebody cut the file. The default action ends the host
//! program. It must never end because of a log's window, so:
//!
//! 1. A [`Guard`] names a mapped range. The first guard of the process installs a handler.
//! 2. The handler looks the address up among the guarded ranges. If it is in one, the
//!    handler marks the guard as torn, puts an anonymous page in the place of the missing
//!    one, and returns: the store then succeeds into that page. libwayland and systemd
//!    protect their mappings in the same way.
//! 3. After its stores, the window looks at the mark. A torn window refuses, and the log
//!    writes the same bytes by a system call, which answers the error.
//!
//! A fault anywhere else goes to the handler that the host had installed before.
//!
//! There is no guard, and so no window, where the handler would not run: the host has
//! replaced it since, or blocks `SIGBUS` on the thread that stores. Both are looked up (the
//! handler with each window, the mask once a thread), so a host that changes either within
//! a window, at the moment of such a fault, is not protected.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use libc::{c_int, c_void, siginfo_t};

/// Ranges that are guarded at a time, in the process. A store has a few open logs with a
/// window each; one that finds no place here writes by system calls.
const PLACES: usize = 128;
/// A place that is being filled in: no address is in its range.
const TAKEN: usize = usize::MAX;

#[derive(Debug)]
struct Place {
    /// The first address; 0 while the place is free.
    start: AtomicUsize,
    end: AtomicUsize,
    torn: AtomicBool,
}

static GUARDED: [Place; PLACES] = [const {
    Place {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        torn: AtomicBool::new(false),
    }
}; PLACES];

static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The handler that was there before ours; `None` if ours could not be installed.
static PREVIOUS: OnceLock<Option<libc::sigaction>> = OnceLock::new();

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// A range of addresses in which a missing page is no signal to the host.
#[derive(Debug)]
pub(super) struct Guard {
    place: &'static Place,
}

impl Guard {
    /// Guards a range; `None` where the handler would not run, or no place is free.
    pub(super) fn new(start: usize, length: usize) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let take = |place: &&Place| {
            let free = place
                .start
                .compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
            free.is_ok()
        };
        let place = GUARDED.iter().find(take)?;
        place.torn.store(false, Ordering::Relaxed);
        place.end.store(start + length, Ordering::Relaxed);
        place.start.store(start, Ordering::Release);
        Some(Guard { place })
    }

    /// True if a store into the range met a missing page: its bytes are lost.
    pub(super) fn is_torn(&self) -> bool {
        // The handler runs on the thread that stores, so an order of the compiler's is
        // enough: every store before this line has happened or faulted.
        compiler_fence(Ordering::SeqCst);
        self.place.torn.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.place.start.store(0, Ordering::Release);
    }
}

/// True if a fault on this thread reaches the handler.
pub(super) fn is_open_here() -> bool {
    thread_local! {
        static OPEN: Cell<Option<bool>> = const { Cell::new(None) };
    }
    if let Some(open) = OPEN.get() {
        return open;
    }
    // SAFETY: an all-zero set is a valid value of this plain C type.
    let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: without a new set, the call only writes the thread's mask to `mask`.
    let asked = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut mask) };
    // SAFETY: `mask` is a valid set.
    let blocked = unsafe { libc::sigismember(&mask, libc::SIGBUS) };
    let open = asked == 0 && blocked == 0;
    OPEN.set(Some(open));
    open
}

/// Installs the handler once; false if it is not the one in force.
fn is_installed() -> bool {
    if PREVIOUS.get_or_init(install).is_none() {
        return false;
    }
    let now = action(None);
    now.is_some_and(|now| now.sa_sigaction == handler())
}

fn handler() -> libc::sighandler_t {
    let handler: Handler = handle;
    handler as libc::sighandler_t
}

fn install() -> Option<libc::sigaction> {
    PAGE_BYTES.store(rustix::param::page_size(), Ordering::Relaxed);
    // SAFETY: an all-zero action is a valid value of this plain C type.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = handler();
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    action(Some(&ours))
}

/// Sets the action of the signal, if there is a new one; answers the one before.
fn action(new: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    // SAFETY: an all-zero action is a valid value of this plain C type.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both point to actions or are null, as the call allows.
    let done = unsafe { libc::sigaction(libc::SIGBUS, new, &mut old) };
    (done == 0).then_some(old)
}

/// The handler: atomics and system calls alone, which are safe in a signal.
extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands a valid structure to a handler with SA_SIGINFO.
    let told = unsafe { &*info };
    // SAFETY: this signal's structure has an address.
    let address = unsafe { told.si_addr() } as usize;
    if !give_page(address) {
        pass_on(signal, info, context);
    }
}

/// Puts an anonymous page at an address that is guarded; false if it is not, or the
/// kernel has none.
fn give_page(address: usize) -> bool {
    let holds = |place: &&Place| {
        let start = place.start.load(Ordering::Acquire);
        start != 0 && start <= address && address < place.end.load(Ordering::Relaxed)
    };
    let Some(place) = GUARDED.iter().find(holds) else {
        return false;
    };
    place.torn.store(true, Ordering::Release);
    let page = PAGE_BYTES.load(Ordering::Relaxed);
    // SAFETY: the location of the thread's own error number.
    let number = unsafe { libc::__errno_location() };
    // SAFETY: it is valid for as long as the thread lives.
    let before = unsafe { *number };
    // SAFETY: the page lies in a mapping that its guard outlives and that holds bytes of
    // a log alone, so replacing it takes memory from nobody.
    let given = unsafe {
        libc::mmap(
            (address / page * page) as *mut c_void,
            page,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    // SAFETY: as above; the interrupted code must find its own error number.
    unsafe { *number = before };
    given != libc::MAP_FAILED
}

/// Does what the host's own handler, or the default, does.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(Some(previous)) = PREVIOUS.get() else {
        return by_default(signal);
    };
    let place = previous.sa_sigaction;
    if place == libc::SIG_DFL || place == libc::SIG_IGN {
        return by_default(signal);
    }
    if previous.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: with this flag the host installed a function of this type.
        let handler = unsafe { std::mem::transmute::<libc::sighandler_t, Handler>(place) };
        return handler(signal, info, context);
    }
    // SAFETY: without the flag it is a function of the signal's number alone.
    let handler = unsafe { std::mem::transmute::<libc::sighandler_t, extern "C" fn(c_int)>(place) };
    handler(signal);
}

/// Lets the fault happen again, with the default action.
fn by_default(signal: c_int) {
    // SAFETY: the default action is always a valid one.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
