//! The calls of Windows that the standard library does not offer: locks of a range, the
//! identity of a file, free space, holes.

use std::ffi::c_void;
use std::fs::{self, File};
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::io::{AsRawHandle, RawHandle};
use std::path::Path;

use crate::file_system::Space;

/// The byte that is locked: behind the end of every file, since the locked range itself
/// cannot be read through other handles.
const LOCKED_BYTE: u64 = u64::MAX - 1;

const FAIL_IMMEDIATELY: u32 = 1;
const EXCLUSIVE: u32 = 2;

/// Another handle has the lock.
const ERROR_LOCK_VIOLATION: i32 = 33;

/// `OVERLAPPED`.
#[repr(C)]
struct Overlapped {
    internal: [usize; 2],
    offset: u32,
    offset_high: u32,
    event: *mut c_void,
}

/// `BY_HANDLE_FILE_INFORMATION`.
#[repr(C)]
#[derive(Default)]
struct FileInformation {
    attributes: u32,
    times: [u32; 6],
    volume: u32,
    size: [u32; 2],
    links: u32,
    index_high: u32,
    index: u32,
}

/// `FILE_STANDARD_INFO`.
#[repr(C)]
#[derive(Default)]
struct StandardInformation {
    allocated: i64,
    end: i64,
    links: u32,
    flags: [u8; 4],
}

/// `FILE_ZERO_DATA_INFORMATION`.
#[repr(C)]
struct ZeroRange {
    start: i64,
    end: i64,
}

const _: () = assert!(size_of::<FileInformation>() == 52);
const _: () = assert!(size_of::<StandardInformation>() == 24);
const _: () = assert!(size_of::<ZeroRange>() == 16);
const _: () = assert!(size_of::<Overlapped>() == 3 * size_of::<usize>() + 8);

#[link(name = "kernel32")]
unsafe extern "system" {
    fn LockFileEx(
        file: RawHandle,
        flags: u32,
        reserved: u32,
        bytes: u32,
        bytes_high: u32,
        overlapped: *mut Overlapped,
    ) -> i32;
    fn UnlockFileEx(
        file: RawHandle,
        reserved: u32,
        bytes: u32,
        bytes_high: u32,
        overlapped: *mut Overlapped,
    ) -> i32;
    fn GetFileInformationByHandle(file: RawHandle, information: *mut FileInformation) -> i32;
    fn GetFileInformationByHandleEx(
        file: RawHandle,
        class: u32,
        information: *mut c_void,
        bytes: u32,
    ) -> i32;
    fn DeviceIoControl(
        file: RawHandle,
        code: u32,
        input: *const c_void,
        input_bytes: u32,
        output: *mut c_void,
        output_bytes: u32,
        returned: *mut u32,
        overlapped: *mut Overlapped,
    ) -> i32;
    fn GetDiskFreeSpaceExW(
        folder: *const u16,
        available: *mut u64,
        total: *mut u64,
        free: *mut u64,
    ) -> i32;
}

/// Volume, and number of the file in it.
pub(super) type Identity = (u32, u64);

fn locked_range() -> Overlapped {
    Overlapped {
        internal: [0; 2],
        offset: LOCKED_BYTE as u32,
        offset_high: (LOCKED_BYTE >> 32) as u32,
        event: std::ptr::null_mut(),
    }
}

fn answer(done: i32) -> io::Result<()> {
    match done {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Takes the lock without waiting; false if another handle has it.
pub(super) fn try_lock(file: &File, is_exclusive: bool) -> io::Result<bool> {
    let flags = FAIL_IMMEDIATELY | if is_exclusive { EXCLUSIVE } else { 0 };
    let mut range = locked_range();
    // SAFETY: the handle is open while `file` is borrowed. It was not opened for
    // overlapped I/O, so the call has ended, and uses `range` no more, when it returns.
    let done = unsafe { LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &raw mut range) };
    match answer(done) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(ERROR_LOCK_VIOLATION) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Releases the lock for every copy of the handle.
pub(super) fn unlock(file: &File) {
    let mut range = locked_range();
    // SAFETY: as in `try_lock`. A failure leaves the lock to the close of the handle.
    unsafe { UnlockFileEx(file.as_raw_handle(), 0, 1, 0, &raw mut range) };
}

fn information(file: &File) -> io::Result<FileInformation> {
    let mut found = FileInformation::default();
    // SAFETY: the handle is open while `file` is borrowed, and the call writes a structure
    // of this layout (asserted above) to `found` before it returns.
    answer(unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut found) })?;
    Ok(found)
}

/// The identity of the file of an open handle.
pub(super) fn identity(file: &File) -> io::Result<Identity> {
    let found = information(file)?;
    let number = u64::from(found.index_high) << 32 | u64::from(found.index);
    Ok((found.volume, number))
}

/// The identity of the file at a path.
pub(super) fn identity_of(path: &Path) -> io::Result<Identity> {
    identity(&File::open(path)?)
}

/// Opens a lock file for reading, and makes it if it is not there.
pub(super) fn create_for_reading(path: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

fn standard(file: &File) -> io::Result<StandardInformation> {
    /// `FileStandardInfo`.
    const CLASS: u32 = 1;
    let mut found = StandardInformation::default();
    let bytes = size_of::<StandardInformation>() as u32;
    let place = (&raw mut found).cast();
    // SAFETY: the handle is open while `file` is borrowed, and for this class the call writes
    // a structure of this layout (asserted above), and no more than `bytes`, to `found`.
    answer(unsafe { GetFileInformationByHandleEx(file.as_raw_handle(), CLASS, place, bytes) })?;
    Ok(found)
}

/// Bytes that a file takes on the device.
pub(super) fn allocated(file: &File) -> io::Result<u64> {
    Ok(u64::try_from(standard(file)?.allocated).unwrap_or(0))
}

/// Names that lead to a file.
pub(super) fn links(file: &File) -> io::Result<u64> {
    Ok(u64::from(standard(file)?.links))
}

/// Gives the space of a range back, which reads as zeros then; an error where the volume
/// cannot do that.
pub(super) fn punch_hole(file: &File, start: u64, end: u64) -> io::Result<()> {
    const SET_SPARSE: u32 = 0x0009_00c4;
    const SET_ZERO_DATA: u32 = 0x0009_80c8;
    let as_signed = |offset| i64::try_from(offset).map_err(io::Error::other);
    let range = ZeroRange {
        start: as_signed(start)?,
        end: as_signed(end)?,
    };
    control(file, SET_SPARSE, &[])?;
    control(file, SET_ZERO_DATA, &[range])
}

fn control(file: &File, code: u32, input: &[ZeroRange]) -> io::Result<()> {
    let mut returned = 0;
    // SAFETY: the handle is open while `file` is borrowed, and not overlapped, so the call has
    // ended when it returns. It reads `input` by its size, and writes to `returned` alone.
    answer(unsafe {
        DeviceIoControl(
            file.as_raw_handle(),
            code,
            input.as_ptr().cast(),
            size_of_val(input) as u32,
            std::ptr::null_mut(),
            0,
            &raw mut returned,
            std::ptr::null_mut(),
        )
    })
}

/// Space of the volume that holds a folder.
pub(super) fn space(folder: &Path) -> io::Result<Space> {
    let name: Vec<u16> = folder.as_os_str().encode_wide().chain([0]).collect();
    let (mut available, mut total) = (0, 0);
    // SAFETY: `name` ends with a zero and lives until the call returns, which writes to the
    // two numbers alone; the third place may be null.
    answer(unsafe {
        GetDiskFreeSpaceExW(
            name.as_ptr(),
            &raw mut available,
            &raw mut total,
            std::ptr::null_mut(),
        )
    })?;
    Ok(Space { available, total })
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    use std::os::windows::fs::OpenOptionsExt;
    /// `FILE_FLAG_BACKUP_SEMANTICS`: without it no folder is opened.
    const OPEN_FOLDER: u32 = 0x0200_0000;
    /// The volume's file system has no such flush, or the user may not write to the folder.
    const ERROR_INVALID_FUNCTION: i32 = 1;
    const ERROR_INVALID_HANDLE: i32 = 6;
    if !fs::metadata(path)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let mut options = fs::OpenOptions::new();
    let folder = options.write(true).custom_flags(OPEN_FOLDER).open(path);
    match folder.and_then(|folder| folder.sync_all()) {
        Err(error)
            if error.kind() != io::ErrorKind::PermissionDenied
                && !matches!(
                    error.raw_os_error(),
                    Some(ERROR_INVALID_FUNCTION | ERROR_INVALID_HANDLE)
                ) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}
