//! What a cursor answers from a write buffer.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use cambium_api::Direction;

use crate::buffer::{Buffer, Version};
use crate::view::Pin;

/// Entries copied from a buffer at first, and at most.
const FIRST_RUN: usize = 8;
const LARGEST_RUN: usize = 256;

/// What a cursor answers from one write buffer.
#[derive(Debug)]
pub(super) struct BufferSource {
    buffer: Arc<Buffer>,
    run: VecDeque<(Box<[u8]>, Version)>,
    /// Where the next run begins; `None` after the last.
    next: Option<Bound<Vec<u8>>>,
    length: usize,
}

impl BufferSource {
    pub fn new(buffer: Arc<Buffer>) -> Self {
        BufferSource {
            buffer,
            run: VecDeque::new(),
            next: None,
            length: FIRST_RUN,
        }
    }

    pub fn seek(&mut self, bound: Bound<Vec<u8>>) {
        self.run.clear();
        self.next = Some(bound);
        self.length = FIRST_RUN;
    }

    /// True if it has no further entries.
    pub fn is_over(&self) -> bool {
        self.run.is_empty() && self.next.is_none()
    }

    /// Takes the version of a key, if the key comes next.
    pub fn take(&mut self, key: &[u8]) -> Option<Version> {
        let is_next = self.run.front().is_some_and(|(other, _)| **other == *key);
        let next = is_next.then(|| self.run.pop_front()).flatten();
        next.map(|(_, version)| version)
    }

    /// True if a deleted range hides what older sources have of a key.
    pub fn hides(&self, pin: &Pin, namespace: u16, key: &[u8]) -> bool {
        self.buffer.hides(namespace, key, pin.sequence)
    }

    pub fn peek(&mut self, pin: &Pin, namespace: u16, direction: Direction) -> Option<&[u8]> {
        if self.run.is_empty() {
            let from = self.next.take()?;
            let bound = match &from {
                Bound::Included(key) => Bound::Included(key.as_slice()),
                Bound::Excluded(key) => Bound::Excluded(key.as_slice()),
                Bound::Unbounded => Bound::Unbounded,
            };
            self.run = self
                .buffer
                .run(namespace, bound, direction, pin.sequence, self.length)
                .into();
            if self.run.len() == self.length {
                let last = self.run.back().map(|(key, _)| key.to_vec());
                self.next = last.map(Bound::Excluded);
            }
            self.length = (self.length * 2).min(LARGEST_RUN);
        }
        self.run.front().map(|(key, _)| &**key)
    }
}
