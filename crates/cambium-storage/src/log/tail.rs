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
    /// The buffer was padded for a sync.
    pub(super) padded: bool,
    /// Syncs of little each, one after the other.
    pub(super) small_syncs: u32,
    /// Zeros are written up to here.
    pub(super) zeroed: u64,
}

/// So many syncs of little each are a run of them.
const RUN_OF_SYNCS: u32 = 4;
/// Zeros that are written ahead of a run of small syncs, bytes.
const ZEROS_AHEAD: u64 = 128 << 10;

impl Tail {
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
    pub(super) fn close_window(&mut self) {
        self.window = None;
        self.small_bytes = 0;
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
        self.padded = false;
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

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    fn tail(allocated: u64) -> Tail {
        Tail {
            start: 0,
            bytes: Vec::new(),
            allocated,
            small_bytes: 0,
            window: None,
            padded: false,
            small_syncs: 0,
            zeroed: 0,
        }
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
