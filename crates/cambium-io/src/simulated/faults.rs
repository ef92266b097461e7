//! Rules by which operations fail.

use super::events::Event;

/// Operations that rules tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationClass {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Syncs of files and folders.
    Sync,
    /// Changes of length, allocations, punched holes.
    Allocate,
    /// Files and folders made, renamed, removed.
    Name,
    /// All of the above.
    Any,
}

impl OperationClass {
    /// The class an operation's event belongs to.
    pub(super) fn of(event: Event) -> OperationClass {
        match event {
            Event::Read => OperationClass::Read,
            Event::Write => OperationClass::Write,
            Event::SyncData | Event::SyncDirectory => OperationClass::Sync,
            Event::SetLength | Event::Allocate | Event::PunchHole => OperationClass::Allocate,
            _ => OperationClass::Name,
        }
    }
}

/// What the operating system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorNumber {
    /// The device failed (EIO).
    InputOutput,
    /// No space is left (ENOSPC).
    NoSpace,
    /// A quota is used up (EDQUOT).
    Quota,
    /// No file handle is left (EMFILE).
    TooManyFiles,
}

/// The operating system's numbers, in the order of [`ErrorNumber`].
const NUMBERS: [i32; 4] = if cfg!(windows) {
    // ERROR_IO_DEVICE, ERROR_DISK_FULL, ERROR_DISK_QUOTA_EXCEEDED, ERROR_TOO_MANY_OPEN_FILES
    [1117, 112, 1295, 4]
} else if cfg!(target_os = "linux") {
    [5, 28, 122, 24]
} else {
    [5, 28, 69, 24]
};

impl ErrorNumber {
    /// The error as the standard library gives it.
    pub(super) fn to_error(self) -> std::io::Error {
        std::io::Error::from_raw_os_error(NUMBERS[self as usize])
    }
}

/// What happens to an operation a rule meets. A fault that makes no sense for
/// an operation (a lying read) leaves it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails and changes nothing.
    Error(ErrorNumber),
    /// A write fails after a random part of its bytes was written.
    PartialWrite(ErrorNumber),
    /// A sync fails, and what it should have written is gone from the cache;
    /// the next sync succeeds and proves nothing.
    SyncDropsPages(ErrorNumber),
    /// A sync fails, and what it should have written stays in the cache as if it
    /// were written, as ext4 and XFS keep it: reads answer it until a power cut,
    /// and the next sync succeeds without writing it.
    SyncKeepsPages(ErrorNumber),
    /// A sync reports success and makes nothing durable.
    SyncLies,
    /// A write stands in the cache and is never written to the device.
    PhantomWrite,
    /// A write reaches the device at another place of the same file.
    MisdirectedWrite,
}

/// Fails the n-th operation of a class, counted from the moment the rule is
/// given to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// Which operations are counted.
    pub class: OperationClass,
    /// The first one that is met, from 1.
    pub nth: u64,
    /// Meets all later ones too.
    pub forever: bool,
    /// What happens.
    pub fault: Fault,
}

/// A rule and what it has counted.
#[derive(Clone, Debug)]
pub(super) struct ArmedRule {
    pub(super) rule: FaultRule,
    pub(super) seen: u64,
}

impl ArmedRule {
    /// Counts an operation; true if the rule meets it.
    pub(super) fn meets(&mut self, class: OperationClass) -> bool {
        if self.rule.class != OperationClass::Any && self.rule.class != class {
            return false;
        }
        self.seen += 1;
        self.seen == self.rule.nth || (self.rule.forever && self.seen > self.rule.nth)
    }
}
