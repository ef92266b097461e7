//! The end of a log: what is appended and not handed to the file, and the
//! window that a run of small writes is stored through.

use cambium_io::AppendWindow;

/// Where the log is written.
#[derive(Debug)]
pub(super) struct Tail {
    /// Offset of the first buffered byte.
    pub(super) start: u64,
    pub(super) bytes: Vec<u8>,
    /// Space is allocated up to here.
    pub(super) allocated: u64,
    /// Bytes of small flushes since the last sync, or the last large one.
    pub(super) small_bytes: u64,
    /// Where small flushes are stored.
    pub(super) window: Option<Box<dyn AppendWindow>>,
}

impl Tail {
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// What is written from now on goes through system calls, until a run of
    /// small writes is seen again.
    pub(super) fn close_window(&mut self) {
        self.window = None;
        self.small_bytes = 0;
    }

    /// The buffered bytes are in the file.
    pub(super) fn handed_over(&mut self) {
        self.start = self.end();
        if self.bytes.capacity() > 1 << 20 {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
    }

    /// Stores the buffered bytes into the window, if they fit and it takes them.
    pub(super) fn store(&mut self) -> bool {
        let end = self.end();
        let window = self.window.as_mut();
        let Some(window) = window.filter(|window| end <= window.end()) else {
            return false;
        };
        if !window.store(&[&self.bytes], self.start) {
            self.close_window();
            return false;
        }
        self.small_bytes += self.bytes.len() as u64;
        self.handed_over();
        true
    }
}
