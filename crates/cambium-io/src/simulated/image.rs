//! The bytes of a file as a copy-on-write image.
//!
//! A simulated disk keeps two images of each file (what is cached, what is
//! durable) and makes thousands of further ones a second. So an image is a
//! vector of 4 KiB chunks behind reference counts: a clone copies one pointer,
//! and a write copies only the chunks it touches.
//!
//! A chunk is a hole (takes no space, reads as zeros), allocated zeros (takes
//! space), or bytes. Bytes of the last chunk behind the end are always zero,
//! so that extending a file needs no clearing.

use std::sync::Arc;

/// Bytes of a chunk: also the unit in which space is counted.
pub(super) const CHUNK_BYTES: usize = 4096;

/// Longest file an image takes, 1 TiB: a wild offset answers an error instead
/// of taking all memory.
pub(super) const MAX_LENGTH: u64 = 1 << 40;

#[derive(Clone, Debug)]
enum Chunk {
    Hole,
    Zeros,
    Bytes(Arc<[u8; CHUNK_BYTES]>),
}

/// A file's bytes and length.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    chunks: Arc<Vec<Chunk>>,
    length: u64,
    allocated_chunks: u64,
}

/// The part of a byte range that lies in one chunk.
struct Piece {
    chunk: usize,
    start: usize,
    end: usize,
}

/// Splits `offset..offset + length` at the borders of chunks.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = Piece> {
    let unit = CHUNK_BYTES as u64;
    let end = offset + length;
    let mut position = offset;
    std::iter::from_fn(move || {
        if position >= end {
            return None;
        }
        let chunk = position / unit;
        let stop = end.min((chunk + 1) * unit);
        let piece = Piece {
            chunk: chunk as usize,
            start: (position - chunk * unit) as usize,
            end: (stop - chunk * unit) as usize,
        };
        position = stop;
        Some(piece)
    })
}

impl Image {
    /// Bytes from start to end.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Chunks that take space.
    pub(super) fn allocated_chunks(&self) -> u64 {
        self.allocated_chunks
    }

    /// Bytes that take space.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.allocated_chunks * CHUNK_BYTES as u64
    }

    /// Chunks of a range that would have to be allocated to write it.
    pub(super) fn missing_chunks(&self, offset: u64, length: u64) -> u64 {
        pieces(offset, length)
            .filter(|piece| matches!(self.chunks.get(piece.chunk), None | Some(Chunk::Hole)))
            .count() as u64
    }

    /// Reads from `offset`; the count is short at the end.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let available = self.length.saturating_sub(offset);
        let count = (buffer.len() as u64).min(available);
        let mut done = 0;
        for piece in pieces(offset, count) {
            let target = &mut buffer[done..done + piece.end - piece.start];
            match self.chunks.get(piece.chunk) {
                Some(Chunk::Bytes(bytes)) => target.copy_from_slice(&bytes[piece.start..piece.end]),
                _ => target.fill(0),
            }
            done += target.len();
        }
        done
    }

    /// All bytes.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length as usize];
        self.read(&mut bytes, 0);
        bytes
    }

    /// Writes at `offset`, extending the file where needed.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        if bytes.is_empty() {
            return;
        }
        self.length = self.length.max(offset + bytes.len() as u64);
        let mut rest = bytes;
        for piece in pieces(offset, bytes.len() as u64) {
            let (source, behind) = rest.split_at(piece.end - piece.start);
            self.chunk_mut(piece.chunk)[piece.start..piece.end].copy_from_slice(source);
            rest = behind;
        }
    }

    /// Cuts, or extends with a hole.
    pub(super) fn set_length(&mut self, length: u64) {
        if length < self.length {
            self.zero(length, self.length - length);
            let keep = length.div_ceil(CHUNK_BYTES as u64) as usize;
            if keep < self.chunks.len() {
                let chunks = Arc::make_mut(&mut self.chunks);
                let freed = chunks
                    .drain(keep..)
                    .filter(|chunk| !matches!(chunk, Chunk::Hole))
                    .count();
                self.allocated_chunks -= freed as u64;
            }
        }
        self.length = length;
    }

    /// Takes space for a range and extends the file over it.
    pub(super) fn allocate(&mut self, offset: u64, length: u64) {
        self.length = self.length.max(offset + length);
        for piece in pieces(offset, length) {
            self.grow_to(piece.chunk);
            if matches!(self.chunks[piece.chunk], Chunk::Hole) {
                Arc::make_mut(&mut self.chunks)[piece.chunk] = Chunk::Zeros;
                self.allocated_chunks += 1;
            }
        }
    }

    /// Frees the whole chunks of a range and zeros the rest of it.
    pub(super) fn punch(&mut self, offset: u64, length: u64) {
        let length = length.min(self.length.saturating_sub(offset));
        for piece in pieces(offset, length) {
            let whole = piece.start == 0 && piece.end == CHUNK_BYTES;
            match self.chunks.get(piece.chunk) {
                None | Some(Chunk::Hole) => {}
                Some(_) if whole => {
                    Arc::make_mut(&mut self.chunks)[piece.chunk] = Chunk::Hole;
                    self.allocated_chunks -= 1;
                }
                Some(Chunk::Zeros) => {}
                Some(Chunk::Bytes(_)) => {
                    self.chunk_mut(piece.chunk)[piece.start..piece.end].fill(0);
                }
            }
        }
    }

    fn zero(&mut self, offset: u64, length: u64) {
        for piece in pieces(offset, length) {
            if matches!(self.chunks.get(piece.chunk), Some(Chunk::Bytes(_))) {
                self.chunk_mut(piece.chunk)[piece.start..piece.end].fill(0);
            }
        }
    }

    fn grow_to(&mut self, chunk: usize) {
        if chunk >= self.chunks.len() {
            Arc::make_mut(&mut self.chunks).resize(chunk + 1, Chunk::Hole);
        }
    }

    fn chunk_mut(&mut self, chunk: usize) -> &mut [u8; CHUNK_BYTES] {
        self.grow_to(chunk);
        let slot = &mut Arc::make_mut(&mut self.chunks)[chunk];
        if !matches!(slot, Chunk::Bytes(_)) {
            if matches!(slot, Chunk::Hole) {
                self.allocated_chunks += 1;
            }
            *slot = Chunk::Bytes(Arc::new([0; CHUNK_BYTES]));
        }
        match slot {
            Chunk::Bytes(bytes) => Arc::make_mut(bytes),
            Chunk::Hole | Chunk::Zeros => unreachable!("the chunk was just given bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_does_not_see_later_writes() {
        let mut image = Image::default();
        image.write(&[1; 10_000], 0);
        let before = image.clone();
        image.write(&[2; 100], 5_000);
        assert_eq!(before.to_vec(), vec![1; 10_000]);
        assert_eq!(image.to_vec()[5_000..5_100], [2; 100]);
    }

    #[test]
    fn what_was_cut_off_reads_as_zeros_when_the_file_grows_again() {
        let mut image = Image::default();
        image.write(&[7; 9_000], 0);
        image.set_length(4_100);
        image.set_length(9_000);
        let mut expected = vec![7; 4_100];
        expected.resize(9_000, 0);
        assert_eq!(image.to_vec(), expected);
        assert_eq!(image.allocated_chunks(), 2);
    }

    #[test]
    fn holes_take_no_space_and_read_as_zeros() {
        let mut image = Image::default();
        image.write(&[9; 3 * CHUNK_BYTES], 0);
        image.punch(100, 2 * CHUNK_BYTES as u64);
        assert_eq!(image.allocated_chunks(), 2);
        let bytes = image.to_vec();
        assert!(bytes[100..100 + 2 * CHUNK_BYTES].iter().all(|&b| b == 0));
        assert_eq!((bytes[99], bytes[100 + 2 * CHUNK_BYTES]), (9, 9));
        image.allocate(0, 4 * CHUNK_BYTES as u64);
        assert_eq!(
            (image.missing_chunks(0, 4 * 4096), image.length()),
            (0, 4 * 4096)
        );
    }
}
