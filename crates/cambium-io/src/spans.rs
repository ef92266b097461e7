//! Reads that bring several wanted places of a file at once.

use std::ops::Range;

/// A range of a file that is read at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span<F = ()> {
    /// The caller's mark of the file.
    pub file: F,
    /// The first byte.
    pub start: u64,
    /// The byte behind the last.
    pub end: u64,
    /// The wanted places that lie in it, by their numbers.
    pub members: Range<usize>,
}

impl<F> Span<F> {
    /// Offset and length.
    pub fn place(&self) -> (u64, usize) {
        (self.start, (self.end - self.start) as usize)
    }
}

/// Joins wanted places, each a file and a range of it, in the order of files and offsets. Places
/// of one file are joined if no more than `gap` bytes lie between them and a span has at most
/// `most` bytes; a place that is longer is a span by itself.
///
/// ```
/// use cambium_io::spans::join;
/// let wanted = [((), 0..10), ((), 12..20), ((), 90..95)];
/// let spans = join(wanted, 4, 64);
/// assert_eq!(spans[0].place(), (0, 20));
/// assert_eq!(spans[1].members, 2..3);
/// ```
pub fn join<F: PartialEq>(
    wanted: impl IntoIterator<Item = (F, Range<u64>)>,
    gap: u64,
    most: u64,
) -> Vec<Span<F>> {
    let mut spans: Vec<Span<F>> = Vec::new();
    for (member, (file, Range { start, end })) in wanted.into_iter().enumerate() {
        match spans.last_mut() {
            Some(span)
                if span.file == file
                    && start <= span.end + gap
                    && end.max(span.end) - span.start <= most =>
            {
                span.end = end.max(span.end);
                span.members.end = member + 1;
            }
            _ => spans.push(Span {
                file,
                start,
                end,
                members: member..member + 1,
            }),
        }
    }
    spans
}
