//! Reads and writes at an offset through the standard library. Both may be short.

use std::fs::File;
use std::io;

#[cfg(unix)]
use std::os::unix::fs::FileExt;
#[cfg(windows)]
use std::os::windows::fs::FileExt;

/// Reads into `buffer`; 0 bytes are the end of the file.
pub(super) fn read(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return file.read_at(buffer, offset);
    // This moves the handle's position as well, which no call of this crate uses.
    #[cfg(windows)]
    return file.seek_read(buffer, offset);
}

/// Writes a part of `buffer`, and answers how much.
pub(super) fn write(file: &File, buffer: &[u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return file.write_at(buffer, offset);
    #[cfg(windows)]
    return file.seek_write(buffer, offset);
}
