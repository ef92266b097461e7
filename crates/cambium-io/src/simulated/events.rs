//! Counters of what happened to a family of disks.
//!
//! A disk and all crash images made from it count together, so that a test can
//! ask at its end whether each class of fault was really met.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! events {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// Something a simulated disk did or had done to it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Event {
            $($(#[$meta])* $name,)*
        }

        impl Event {
            /// Every event there is.
            pub const ALL: &'static [Event] = &[$(Event::$name,)*];
        }
    };
}

events! {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A store into a window.
    WindowStore,
    /// A sync of a file.
    SyncData,
    /// A sync of a folder.
    SyncDirectory,
    /// A file was cut or extended.
    SetLength,
    /// Space was taken ahead.
    Allocate,
    /// A hole was punched.
    PunchHole,
    /// A file was made.
    Create,
    /// A folder was made.
    CreateDirectory,
    /// A name was changed.
    Rename,
    /// A file got a second name.
    Link,
    /// A file was made that shares blocks with another.
    CloneFile,
    /// A file was removed.
    Remove,
    /// A folder was removed.
    RemoveDirectory,
    /// An operation failed because a rule said so.
    ErrorInjected,
    /// A failing write left a part of its bytes.
    PartialWrite,
    /// A write or allocation found the disk full.
    DiskFull,
    /// A failing sync dropped what it should have written.
    SyncDroppedPages,
    /// A failing sync left in the cache what it should have written, as clean.
    SyncKeptPages,
    /// A read met a sector that cannot be read.
    SectorUnreadable,
    /// A sync reported success and did nothing.
    SyncLied,
    /// A write was acknowledged and never reached the device.
    PhantomWrite,
    /// A write reached another place of its file.
    MisdirectedWrite,
    /// A read or write was done in two parts.
    ShortTransfer,
    /// A bit of a durable image was flipped.
    BitFlipped,
    /// The process died and the machine did not.
    ProcessCrash,
    /// A power cut: nothing unsynced survived.
    CrashNothingUnsynced,
    /// A power cut: everything survived.
    CrashEverything,
    /// A power cut: a prefix of the changes survived.
    CrashPrefix,
    /// A power cut: any subset of sectors survived.
    CrashSectors,
    /// A power cut: lengths survived without their data.
    CrashLengthsWithoutData,
    /// A power cut: data survived without the new lengths.
    CrashDataWithoutLengths,
    /// A power cut: any subset of the changes of names survived.
    CrashNames,
    /// A power cut: holes were half punched.
    CrashHoles,
    /// A crash lost at least one sector of a write and kept another of it.
    TornWrite,
    /// A crash lost a whole write.
    WriteLost,
    /// A crash lost a change of a name.
    NameLost,
    /// A crash left a hole half punched.
    HoleHalfDone,
}

/// One counter for each event.
#[derive(Debug)]
pub(super) struct Events {
    counts: Vec<AtomicU64>,
}

impl Default for Events {
    fn default() -> Self {
        Events {
            counts: Event::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Events {
    pub(super) fn add(&self, event: Event) {
        self.counts[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self, event: Event) -> u64 {
        self.counts[event as usize].load(Ordering::Relaxed)
    }
}
