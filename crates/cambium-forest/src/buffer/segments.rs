//! Memory that only grows, in segments: nothing that lies in it is ever moved
//! but within the first segment, which begins small, so growing costs neither
//! a long copy nor twice the memory.

/// Elements of a segment.
const SEGMENT: usize = 4096;
/// Bytes of a segment of keys: the longest key fits.
const KEY_SEGMENT: usize = 64 << 10;

/// A list of elements by number.
#[derive(Debug)]
pub(super) struct Segments<T> {
    segments: Vec<Vec<T>>,
    length: usize,
}

impl<T> Default for Segments<T> {
    fn default() -> Self {
        Segments {
            segments: Vec::new(),
            length: 0,
        }
    }
}

impl<T> Segments<T> {
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn get(&self, number: u32) -> &T {
        let number = number as usize;
        &self.segments[number / SEGMENT][number % SEGMENT]
    }

    pub fn get_mut(&mut self, number: u32) -> &mut T {
        let number = number as usize;
        &mut self.segments[number / SEGMENT][number % SEGMENT]
    }

    /// Appends an element; answers its number.
    pub fn push(&mut self, element: T) -> u32 {
        let number = self.length;
        match self.segments.get_mut(number / SEGMENT) {
            Some(last) => last.push(element),
            None => {
                let whole = if number == 0 { 0 } else { SEGMENT };
                let mut segment = Vec::with_capacity(whole);
                segment.push(element);
                self.segments.push(segment);
            }
        }
        self.length += 1;
        number as u32
    }
}

/// Where a key lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyPlace {
    segment: u32,
    start: u32,
    bytes: u16,
}

/// Keys, one after the other.
#[derive(Debug, Default)]
pub(super) struct KeyBytes {
    segments: Vec<Vec<u8>>,
}

impl KeyBytes {
    pub fn get(&self, place: KeyPlace) -> &[u8] {
        let start = place.start as usize;
        &self.segments[place.segment as usize][start..start + usize::from(place.bytes)]
    }

    /// Appends a key, of up to 65,535 bytes.
    pub fn push(&mut self, key: &[u8]) -> KeyPlace {
        debug_assert!(
            key.len() <= usize::from(u16::MAX),
            "the facade refuses these"
        );
        let fits = |last: &Vec<u8>| last.len() + key.len() <= KEY_SEGMENT;
        if !self.segments.last().is_some_and(fits) {
            let whole = if self.segments.is_empty() {
                0
            } else {
                KEY_SEGMENT
            };
            self.segments.push(Vec::with_capacity(whole));
        }
        let segment = self.segments.len() - 1;
        let last = &mut self.segments[segment];
        let start = last.len() as u32;
        last.extend_from_slice(key);
        KeyPlace {
            segment: segment as u32,
            start,
            bytes: key.len() as u16,
        }
    }
}
