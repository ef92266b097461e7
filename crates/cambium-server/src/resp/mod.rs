//! The protocol of Redis (RESP2 and RESP3): requests are parsed where they lie in the read
//! buffer, answers are written into a buffer of their own.

mod inline;
pub mod numbers;
pub mod parser;
pub mod reply;

use std::ops::Index;

/// Where an argument lies in its buffer: first byte, and the byte behind it.
pub type Span = (u32, u32);

/// The arguments of one command, its name first.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    buffer: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Arguments<'a> {
    /// Arguments that lie in `buffer`.
    pub fn new(buffer: &'a [u8], spans: &'a [Span]) -> Self {
        Arguments { buffer, spans }
    }

    /// How many there are, with the name.
    pub fn count(&self) -> usize {
        self.spans.len()
    }

    /// One argument, or `None` behind the last.
    pub fn get(&self, place: usize) -> Option<&'a [u8]> {
        let (from, to) = *self.spans.get(place)?;
        self.buffer.get(from as usize..to as usize)
    }

    /// All from `place` on.
    pub fn from(&self, place: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let buffer = self.buffer;
        let spans = self.spans.get(place..).unwrap_or_default();
        spans
            .iter()
            .map(move |&(from, to)| &buffer[from as usize..to as usize])
    }
}

impl Index<usize> for Arguments<'_> {
    type Output = [u8];

    fn index(&self, place: usize) -> &[u8] {
        let (from, to) = self.spans[place];
        &self.buffer[from as usize..to as usize]
    }
}

/// The arguments of one command, kept: those of a transaction until EXEC.
#[derive(Clone, Debug, Default)]
pub struct OwnedArguments {
    buffer: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedArguments {
    /// A copy of all from `place` on.
    pub fn copy_from(arguments: Arguments<'_>, place: usize) -> Self {
        let mut copy = OwnedArguments::default();
        for argument in arguments.from(place) {
            let from = copy.buffer.len() as u32;
            copy.buffer.extend_from_slice(argument);
            copy.spans.push((from, copy.buffer.len() as u32));
        }
        copy
    }

    /// The arguments.
    pub fn arguments(&self) -> Arguments<'_> {
        Arguments::new(&self.buffer, &self.spans)
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.buffer.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}
