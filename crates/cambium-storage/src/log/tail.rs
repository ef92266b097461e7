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
    /// The window that follows it.
    pub(super) next_window: Option<Box<dyn AppendWindow>>,
    /// The window that came before it, until a thread unmaps it that holds no lock.
    pub(super) used: Option<Box<dyn AppendWindow>>,
    /// The buffer was padded for a sync.
    pub(super) padded: bool,
    /// Syncs of little each, one after the other.
    pub(super) small_syncs: u32,
    /// Zeros are written up to here.
    pub(super) zeroed: u64,
}

/// So many syncs of little each are a run of them.
const RUN_OF_SYNCS: u32 = 4;
/// The next window is opened when less than this is left of the present one, bytes.
const WINDOW_LEFT: u64 = 128 << 10;
/// Zeros that are written ahead of a run of small syncs, bytes.
const ZEROS_AHEAD: u64 = 128 << 10;

impl Tail {
    /// Of a log that ends at `start`, with space up to `allocated`.
    pub(super) fn new(start: u64, allocated: u64) -> Self {
        Tail {
            start,
            bytes: Vec::new(),
            allocated,
            small_bytes: 0,
            window: None,
            next_window: None,
            used: None,
            padded: false,
            small_syncs: 0,
            zeroed: 0,
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Appends zeros up to the next multiple of a unit; answers how many.
    pub(super) fn pad_to(&mut self, unit: u64) -> u64 {
        let missing = self.end().next_multiple_of(unit) - self.end();
        self.bytes.resize(self.bytes.len() + missing as usize, 0);
        missing
    }

    /// What is written from now on goes through system calls, until a run of
    /// small writes is seen again.
    pub(super) fn close_windows(&mut self) {
        (self.window, self.next_window, self.used) = (None, None, None);
        self.small_bytes = 0;
    }

    /// Where the last window ends.
    pub(super) fn windows_end(&self) -> Option<u64> {
        let last = self.next_window.as_ref().or(self.window.as_ref());
        last.map(|window| window.end())
    }

    /// True if less than half as much is left of the only window as was written in the run.
    pub(super) fn wants_window(&self) -> bool {
        let only = self.window.as_ref().filter(|_| self.next_window.is_none());
        only.is_some_and(|window| {
            let left = window.end().saturating_sub(self.start);
            left < WINDOW_LEFT.min(self.small_bytes / 2)
        })
    }

    /// Stores parts at `start`, where nothing is buffered and the windows have room. False,
    /// and the windows are closed, if one of them refuses.
    pub(super) fn store(&mut self, parts: &[&[u8]]) -> bool {
        let Some(window) = &mut self.window else {
            return false;
        };
        let end = self.start + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let stored = match end.checked_sub(window.end()).filter(|past| *past > 0) {
            None => window.store(parts, self.start),
            Some(past) => {
                let bytes = parts.concat();
                let here = bytes.len().saturating_sub(past as usize);
                let boundary = self.start + here as u64;
                let next = self.next_window.as_mut();
                window.store(&[&bytes[..here]], self.start)
                    && next.is_some_and(|next| next.store(&[&bytes[here..]], boundary))
            }
        };
        if !stored {
            self.close_windows();
        }
        stored
    }

    /// Everything up to `end` is stored in the windows.
    pub(super) fn stored_to(&mut self, end: u64) {
        self.small_bytes += end - self.start;
        self.start = end;
        let here = self.window.as_ref().map(|window| window.end());
        if self.next_window.is_some() && here.is_some_and(|here| here <= end) {
            self.used = std::mem::replace(&mut self.window, self.next_window.take());
        }
    }

    /// Zeros to write behind the buffered bytes: a block that was allocated and never written
    /// costs a sync of its own an entry in the file system's journal, which zeros pay for many
    /// of them at once.
    pub(super) fn zeros_behind(&self, block: u64) -> u64 {
        let end = self.end();
        let in_run = self.padded && self.small_syncs >= RUN_OF_SYNCS;
        match in_run && end + block > self.zeroed {
            true => ZEROS_AHEAD.min(self.allocated.saturating_sub(end)),
            false => 0,
        }
    }

    /// The buffered bytes and so many zeros behind them are in the file.
    pub(super) fn written(&mut self, small: bool, zeros: u64) {
        if zeros > 0 {
            self.zeroed = self.end() + zeros;
        }
        if self.padded {
            self.small_syncs = match small {
                true => self.small_syncs.saturating_add(1),
                false => 0,
            };
        }
        self.handed_over();
    }

    /// The buffered bytes are in the file.
    fn handed_over(&mut self) {
        self.start = self.end();
        self.clear_buffer();
    }

    fn clear_buffer(&mut self) {
        self.padded = false;
        if self.bytes.capacity() > 1 << 20 {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
    }

    /// Stores the buffered bytes into the windows, if they fit and are taken.
    pub(super) fn store_buffer(&mut self) -> bool {
        let end = self.end();
        if self.windows_end().is_none_or(|room| end > room) {
            return false;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let stored = self.store(&[&bytes]);
        self.bytes = bytes;
        if stored {
            self.clear_buffer();
            self.stored_to(end);
        }
        stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    fn tail(allocated: u64) -> Tail {
        Tail::new(0, allocated)
    }

    /// Writes blocks, for a sync or not; answers the zeros that went with them.
    fn write(tail: &mut Tail, blocks: usize, padded: bool) -> u64 {
        tail.bytes.resize(blocks * BLOCK as usize, 1);
        tail.padded = padded;
        let zeros = tail.zeros_behind(BLOCK);
        tail.written(blocks < 4, zeros);
        zeros
    }

    #[test]
    fn zeros_go_ahead_of_a_run_of_small_syncs_and_of_nothing_else() {
        let mut tail = tail(1 << 20);
        assert!((0..8).all(|_| write(&mut tail, 1, false) == 0), "no syncs");
        assert!((0..4).all(|_| write(&mut tail, 1, true) == 0), "no run yet");
        assert_eq!(write(&mut tail, 1, true), ZEROS_AHEAD);
        let blocks = ZEROS_AHEAD / BLOCK;
        assert!((1..blocks).all(|_| write(&mut tail, 1, true) == 0));
        assert_eq!(write(&mut tail, 1, true), ZEROS_AHEAD);
        assert_eq!(
            write(&mut tail, 64, true),
            ZEROS_AHEAD,
            "past what is zeroed"
        );
        assert_eq!(write(&mut tail, 64, true), 0, "the run is over");
    }

    #[test]
    fn zeros_end_where_space_does() {
        let mut tail = tail(6 * BLOCK);
        (0..4).for_each(|_| _ = write(&mut tail, 1, true));
        assert_eq!(write(&mut tail, 1, true), BLOCK);
        assert_eq!(write(&mut tail, 1, true), 0);
    }
}
