//! Memory aligned for direct I/O.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes whose address is a multiple of a chosen power of two. Its memory does
/// not move while it lives, which asynchronous reads rely on.
///
/// ```
/// let mut buffer = cambium_io::AlignedBuffer::new(8192, 4096);
/// assert_eq!(buffer.as_ptr() as usize % 4096, 0);
/// buffer[0] = 7;
/// assert_eq!(buffer.len(), 8192);
/// ```
pub struct AlignedBuffer {
    start: NonNull<u8>,
    length: usize,
    layout: Layout,
}

impl AlignedBuffer {
    /// Zeroed memory.
    ///
    /// # Panics
    /// If `alignment` is no power of two, or the size overflows.
    pub fn new(length: usize, alignment: usize) -> Self {
        let layout = Layout::from_size_align(length.max(1), alignment)
            .expect("the alignment is a power of two and the length fits in memory");
        // SAFETY: the layout's size is at least 1.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(memory) else {
            handle_alloc_error(layout)
        };
        AlignedBuffer {
            start,
            length,
            layout,
        }
    }

    /// The alignment it was made with.
    pub fn alignment(&self) -> usize {
        self.layout.align()
    }

    /// Uses only the first `length` bytes from here on.
    ///
    /// # Panics
    /// If that is more than was allocated.
    pub fn resize(&mut self, length: usize) {
        assert!(length <= self.layout.size(), "within the allocation");
        self.length = length;
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to at least `length` initialized bytes that
        // we own and that no other reference can change while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

// SAFETY: the buffer owns its memory alone; it is `Vec<u8>` with an alignment.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared references only read.
unsafe impl Sync for AlignedBuffer {}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.length)
    }
}
