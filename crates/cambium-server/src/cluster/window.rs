//! The latest frames of a node, for the links that bring them to successors.

use std::collections::VecDeque;

use cambium_io::sync::{Mutex, lock};

use crate::keyspace::partitions::Frame;

/// Bytes of frames that are kept; older ones are read from the change feed.
const MOST_BYTES: usize = 64 << 20;

/// The window's answer to a link.
#[derive(Debug)]
pub enum Pulled {
    /// The next frames; none if none are there yet.
    Frames(Vec<Frame>),
    /// The next one has left the window.
    Gone,
}

/// The latest frames, by partition.
#[derive(Debug, Default)]
pub struct Window {
    /// A thread that panicked left whole frames.
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    frames: Vec<VecDeque<Frame>>,
    /// By partition, the last batch that was ever pushed.
    last: Vec<u64>,
    /// Partitions, by the age of their frames.
    order: VecDeque<u8>,
    bytes: usize,
}

impl Window {
    /// An empty window.
    pub fn new(partitions: usize) -> Window {
        let held = Held {
            frames: vec![VecDeque::new(); partitions],
            last: vec![0; partitions],
            ..Held::default()
        };
        Window {
            held: Mutex::new(held),
        }
    }

    /// Adds frames, which are in the order of their numbers.
    pub fn push(&self, frames: impl IntoIterator<Item = Frame>) {
        let mut held = lock(&self.held);
        for frame in frames {
            let place = usize::from(frame.partition);
            if frame.numbers.0 != held.last[place] + 1 {
                // A copy lies between: what was before it is of another history.
                held.forget(frame.partition);
            }
            held.last[place] = frame.numbers.1;
            held.bytes += frame.bytes.len();
            held.order.push_back(frame.partition);
            held.frames[place].push_back(frame);
        }
        while held.bytes > MOST_BYTES {
            let Some(oldest) = held.order.pop_front() else {
                break;
            };
            if let Some(frame) = held.frames[usize::from(oldest)].pop_front() {
                held.bytes -= frame.bytes.len();
            }
        }
    }

    /// A copy has taken the place of a partition.
    pub fn forget(&self, partition: u8) {
        lock(&self.held).forget(partition);
    }

    /// Bytes of the frames behind a batch.
    pub fn bytes_behind(&self, partition: u8, number: u64) -> u64 {
        let held = lock(&self.held);
        let frames = &held.frames[usize::from(partition)];
        let from = frames.partition_point(|frame| frame.numbers.1 <= number);
        let behind = frames.range(from..).map(|frame| frame.bytes.len() as u64);
        behind.sum()
    }

    /// Frames from a batch on, about so many bytes of them.
    pub fn pull(&self, partition: u8, next: u64, most_bytes: usize) -> Pulled {
        let held = lock(&self.held);
        let frames = &held.frames[usize::from(partition)];
        let from = frames.partition_point(|frame| frame.numbers.1 < next);
        match frames.get(from) {
            Some(frame) if frame.numbers.0 <= next => {}
            None if held.last[usize::from(partition)] < next => return Pulled::Frames(Vec::new()),
            _ => return Pulled::Gone,
        }
        let mut bytes = 0;
        let few = frames.range(from..).take_while(|frame| {
            let is_first = bytes == 0;
            bytes += frame.bytes.len();
            is_first || bytes <= most_bytes
        });
        Pulled::Frames(few.cloned().collect())
    }
}

impl Held {
    fn forget(&mut self, partition: u8) {
        let frames = std::mem::take(&mut self.frames[usize::from(partition)]);
        self.bytes -= frames.iter().map(|frame| frame.bytes.len()).sum::<usize>();
        self.last[usize::from(partition)] = 0;
        self.order.retain(|of| *of != partition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(partition: u8, number: u64, bytes: usize) -> Frame {
        Frame {
            partition,
            numbers: (number, number),
            epoch: 1,
            bytes: vec![0; bytes].into(),
        }
    }

    fn pulled(window: &Window, partition: u8, next: u64) -> Option<Vec<u64>> {
        match window.pull(partition, next, 10) {
            Pulled::Frames(frames) => Some(frames.iter().map(|frame| frame.numbers.0).collect()),
            Pulled::Gone => None,
        }
    }

    #[test]
    fn the_oldest_frames_leave_and_a_gap_forgets() {
        let window = Window::new(2);
        assert_eq!(pulled(&window, 0, 7), Some(vec![]));
        window.push([
            frame(0, 7, 4),
            frame(1, 1, 4),
            frame(0, 8, 4),
            frame(0, 9, 4),
        ]);
        assert_eq!(pulled(&window, 0, 7), Some(vec![7, 8]));
        assert_eq!(pulled(&window, 0, 9), Some(vec![9]));
        assert_eq!(
            (window.bytes_behind(0, 6), window.bytes_behind(0, 8)),
            (12, 4)
        );
        assert_eq!(pulled(&window, 0, 10), Some(vec![]));
        assert_eq!(pulled(&window, 0, 6), None);
        window.push([frame(1, 2, MOST_BYTES)]);
        assert_eq!(pulled(&window, 0, 9), None);
        assert_eq!(pulled(&window, 1, 2), Some(vec![2]));
        window.push([frame(0, 20, 4)]);
        assert_eq!(
            (pulled(&window, 0, 10), pulled(&window, 0, 20)),
            (None, Some(vec![20]))
        );
        window.forget(1);
        assert_eq!(pulled(&window, 1, 3), Some(vec![]));
    }
}
