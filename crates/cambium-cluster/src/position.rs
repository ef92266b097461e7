//! How far a replica has come, and where another one can go on.
//!
//! The head numbers the batches of its partition: 1, 2, 3. A *position* is the number of the
//! last one, and the epochs in which they were made: two replicas whose last batches have one
//! number and one epoch have the same batches. A former head may have batches that the chain
//! went on without; its position shows it, and it is brought up by a copy.
//!
//! As bytes (little-endian), in the store beside the entries that it is about:
//!
//! ```text
//! version 1 · number 8 · count of epochs 1 · (epoch 8 · number of its first batch 8) each
//! ```

use cambium_base::coding::Decoder;

const VERSION: u8 = 1;
/// Epochs that are remembered. A replica whose last batch is of an older one is copied to.
const MOST_EPOCHS: usize = 32;

/// How far a replica has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The number of the last batch; 0 before the first.
    pub number: u64,
    /// Epochs with the numbers of their first batches, oldest first.
    epochs: Vec<(u64, u64)>,
}

/// How a replica is brought up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// By the batches from this number on.
    From(u64),
    /// By a copy: it has batches that the chain has not, or is too far behind to tell.
    Copy,
}

impl Position {
    /// The epoch of the last batch; 0 before the first.
    pub fn epoch(&self) -> u64 {
        self.epochs.last().map_or(0, |(epoch, _)| *epoch)
    }

    /// The position behind one more batch, made in `epoch`.
    pub fn next(&self, epoch: u64) -> Position {
        let mut next = self.clone();
        next.number += 1;
        if next.epoch() != epoch {
            next.epochs.push((epoch, next.number));
            if next.epochs.len() > MOST_EPOCHS {
                next.epochs.remove(0);
            }
        }
        next
    }

    /// True if a batch of this number that was made in `epoch` led here.
    pub fn contains(&self, epoch: u64, number: u64) -> bool {
        let first = self.epochs.iter().find(|(of, _)| *of == epoch);
        let batches = first.map(|(_, first)| *first).zip(self.last_of(epoch));
        batches.is_some_and(|(first, last)| (first..=last).contains(&number))
    }

    /// The last batch that this replica and one at `theirs` both have; `None` if their epochs
    /// have no one in common that is remembered.
    pub fn last_in_common(&self, theirs: &Position) -> Option<u64> {
        let shares = |(epoch, first): &&(u64, u64)| self.contains(*epoch, *first);
        match theirs.epochs.iter().rev().find(shares) {
            Some((epoch, _)) => Some(self.last_of(*epoch)?.min(theirs.last_of(*epoch)?)),
            None if self.is_complete() && theirs.is_complete() => Some(0),
            None => None,
        }
    }

    /// True if no epoch is forgotten.
    fn is_complete(&self) -> bool {
        self.epochs.first().is_none_or(|(_, first)| *first == 1)
    }

    /// The last batch of an epoch.
    fn last_of(&self, epoch: u64) -> Option<u64> {
        let place = self.epochs.iter().position(|(of, _)| *of == epoch)?;
        Some(match self.epochs.get(place + 1) {
            Some((_, next)) => next - 1,
            None => self.number,
        })
    }

    /// How a replica at `theirs` goes on from one that is here.
    pub fn resume(&self, theirs: &Position) -> Resume {
        match theirs.number == 0 || self.contains(theirs.epoch(), theirs.number) {
            true => Resume::From(theirs.number + 1),
            false => Resume::Copy,
        }
    }

    /// Writes the position; see the module.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.push(self.epochs.len() as u8);
        for (epoch, first) in &self.epochs {
            bytes.extend_from_slice(&epoch.to_le_bytes());
            bytes.extend_from_slice(&first.to_le_bytes());
        }
    }

    /// Reads a position; `None` if it is none.
    pub fn decode(decoder: &mut Decoder<'_>) -> Option<Position> {
        if decoder.u8()? != VERSION {
            return None;
        }
        let number = decoder.u64()?;
        let count = usize::from(decoder.u8()?);
        let mut epochs = Vec::new();
        for _ in 0..count {
            let (epoch, first) = (decoder.u64()?, decoder.u64()?);
            let is_behind = epochs
                .last()
                .is_none_or(|&(before, at)| before < epoch && at < first);
            if !is_behind || first > number {
                return None;
            }
            epochs.push((epoch, first));
        }
        (count <= MOST_EPOCHS && (number == 0) == epochs.is_empty())
            .then_some(Position { number, epochs })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on has failed
mod tests {
    use super::*;

    fn behind(position: &Position, epochs: &[u64]) -> Position {
        epochs
            .iter()
            .fold(position.clone(), |at, epoch| at.next(*epoch))
    }

    #[test]
    fn a_replica_goes_on_behind_what_both_have() {
        let shared = behind(&Position::default(), &[1, 1, 3]);
        let source = behind(&shared, &[4, 4, 6]);
        assert_eq!(source.resume(&Position::default()), Resume::From(1));
        assert_eq!(source.resume(&shared), Resume::From(4));
        assert_eq!(source.resume(&behind(&shared, &[4])), Resume::From(5));
        assert_eq!(source.resume(&source), Resume::From(7));
        // The former head made one more batch in epoch 3, which nobody else has.
        assert_eq!(source.resume(&behind(&shared, &[3])), Resume::Copy);
        assert_eq!(source.resume(&behind(&shared, &[5])), Resume::Copy);
        assert_eq!(source.resume(&behind(&source, &[6])), Resume::Copy);
        assert!(source.contains(4, 5) && !source.contains(3, 4) && !source.contains(5, 4));
        let many: Vec<u64> = (10..10 + 2 * MOST_EPOCHS as u64).collect();
        assert_eq!(behind(&source, &many).resume(&shared), Resume::Copy);
        assert_eq!(behind(&source, &many).last_in_common(&shared), None);
    }

    #[test]
    fn a_former_head_has_so_many_batches_in_common_with_the_chain() {
        let shared = behind(&Position::default(), &[1, 1, 3]);
        let chain = behind(&shared, &[4, 4, 6]);
        for (alone, last) in [
            (vec![], 3),
            (vec![3, 3], 3),
            (vec![5], 3),
            (vec![4], 4),
            (vec![4, 5, 5], 4),
            (vec![4, 4, 4, 4], 5),
        ] {
            let former = behind(&shared, &alone);
            assert_eq!(chain.last_in_common(&former), Some(last), "{alone:?}");
        }
        let other = behind(&Position::default(), &[2, 2]);
        assert_eq!(chain.last_in_common(&other), Some(0));
        assert_eq!(chain.last_in_common(&Position::default()), Some(0));
    }

    #[test]
    fn positions_come_back_and_damaged_ones_do_not() {
        for position in [
            Position::default(),
            behind(&Position::default(), &[2, 2, 9]),
        ] {
            let mut bytes = Vec::new();
            position.encode(&mut bytes);
            assert_eq!(Position::decode(&mut Decoder::new(&bytes)), Some(position));
            for cut in 0..bytes.len() {
                assert_eq!(Position::decode(&mut Decoder::new(&bytes[..cut])), None);
            }
        }
        let mut bytes = Vec::new();
        behind(&Position::default(), &[2, 9]).encode(&mut bytes);
        bytes[10] = 10;
        assert_eq!(Position::decode(&mut Decoder::new(&bytes)), None);
    }
}
