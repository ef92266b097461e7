//! Many sources as one: entries of all in order.
//!
//! Sources are ranked, the newest first. Where two hold the same (key, sequence
//! number), which only relocation brings about, the newer source's comes first
//! going forward, and last going backward. Whoever turns round seeks first:
//! the sources stand on one side only.

use std::cmp::Ordering;

use cambium_base::Result;

use crate::entry::{EntryRef, Source, compare, leading};

/// The entries of several sources.
#[derive(Debug)]
pub(crate) struct MergeSource<S> {
    /// By rank.
    sources: Vec<S>,
    /// Sources that stand at an entry; the one that counts first.
    order: Vec<usize>,
    forward: bool,
    /// Where the second of them stands: most moves of the first end before it.
    second: Option<Second>,
}

/// A place that the first source has not reached.
#[derive(Debug, Default)]
struct Second {
    leading: u128,
    key: Vec<u8>,
    sequence: u64,
}

impl<S: Source> MergeSource<S> {
    /// Merges sources, the newest first.
    pub fn new(sources: Vec<S>) -> Self {
        MergeSource {
            sources,
            order: Vec::new(),
            forward: true,
            second: None,
        }
    }

    /// The rank of the source that the entry comes from: 0 is the newest.
    pub fn rank(&self) -> Option<usize> {
        self.order.first().copied()
    }

    /// The source that the entry comes from.
    #[inline]
    pub fn lead(&self) -> Option<&S> {
        self.sources.get(*self.order.first()?)
    }

    /// The same; it may be moved as long as its entries lie before a key that
    /// [`MergeSource::leads_to`].
    #[inline]
    pub fn lead_mut(&mut self) -> Option<&mut S> {
        self.sources.get_mut(*self.order.first()?)
    }

    /// Moves the first source by itself, the way that all go.
    pub fn move_lead<T>(
        &mut self,
        go: impl FnOnce(&mut S, bool) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(&first) = self.order.first() else {
            return Ok(None);
        };
        let moved = go(&mut self.sources[first], self.forward)?;
        self.settle();
        Ok(Some(moved))
    }

    /// True if all entries of other sources lie behind `key`, going forward.
    #[inline]
    pub fn leads_to(&self, key: &[u8]) -> bool {
        let is_before = |second: &Second| match leading(key).cmp(&second.leading) {
            Ordering::Equal => key < second.key.as_slice(),
            other => other == Ordering::Less,
        };
        self.forward && self.second.as_ref().is_none_or(is_before)
    }

    /// The order in which two sources come, as the direction has it.
    fn compare(&self, one: usize, other: usize) -> Ordering {
        let (Some(first), Some(second)) = (self.sources[one].entry(), self.sources[other].entry())
        else {
            return one.cmp(&other);
        };
        let ordering = compare(first.place(), second.place()).then_with(|| one.cmp(&other));
        if self.forward {
            ordering
        } else {
            ordering.reverse()
        }
    }

    fn rebuild(&mut self, forward: bool) {
        self.forward = forward;
        let mut order: Vec<usize> = (0..self.sources.len())
            .filter(|&source| self.sources[source].entry().is_some())
            .collect();
        order.sort_by(|&one, &other| self.compare(one, other));
        self.order = order;
        self.note_second();
    }

    fn note_second(&mut self) {
        let second = self.order.get(1).and_then(|&at| self.sources[at].entry());
        let Some(entry) = second else {
            self.second = None;
            return;
        };
        let second = self.second.get_or_insert_default();
        second.leading = leading(entry.key);
        second.key.clear();
        second.key.extend_from_slice(entry.key);
        second.sequence = entry.sequence;
    }

    /// True if the first source still comes before the second.
    #[inline]
    fn first_stays(&self, entry: &EntryRef<'_>) -> bool {
        let Some(second) = &self.second else {
            return true;
        };
        let ordering = leading(entry.key).cmp(&second.leading).then_with(|| {
            compare(entry.place(), (&second.key, second.sequence))
                .then_with(|| self.order[0].cmp(&self.order[1]))
        });
        match self.forward {
            true => ordering == Ordering::Less,
            false => ordering == Ordering::Greater,
        }
    }

    /// Puts the first source back in its place after it moved.
    #[inline]
    fn settle(&mut self) {
        let Some(&first) = self.order.first() else {
            return;
        };
        // Most moves lead to an entry before all others.
        let entry = self.sources[first].entry();
        if !entry.is_some_and(|entry| self.first_stays(&entry)) {
            self.settle_behind(first);
        }
    }

    fn settle_behind(&mut self, first: usize) {
        if self.sources[first].entry().is_none() {
            self.order.remove(0);
            return self.note_second();
        }
        let mut at = 0;
        while at + 1 < self.order.len()
            && self.compare(first, self.order[at + 1]) == Ordering::Greater
        {
            self.order[at] = self.order[at + 1];
            at += 1;
        }
        self.order[at] = first;
        self.note_second();
    }
}

impl<S: Source> Source for MergeSource<S> {
    fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        for source in &mut self.sources {
            source.seek(key, sequence)?;
        }
        self.rebuild(true);
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        for source in &mut self.sources {
            source.seek_before(key, sequence)?;
        }
        self.rebuild(false);
        Ok(())
    }

    fn seek_first(&mut self) -> Result<()> {
        for source in &mut self.sources {
            source.seek_first()?;
        }
        self.rebuild(true);
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        for source in &mut self.sources {
            source.seek_last()?;
        }
        self.rebuild(false);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.move_lead(|first, _| first.next()).map(drop)
    }

    fn previous(&mut self) -> Result<()> {
        self.move_lead(|first, _| first.previous()).map(drop)
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.sources[*self.order.first()?].entry()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::EntryKind;
    use crate::memtable::Memtable;
    use crate::run::RunSource;
    use proptest::prelude::*;

    /// (key, sequence, rank)
    type Place = (u8, u64, usize);

    fn merged(sources: &[Vec<(u8, u64)>]) -> (MergeSource<RunSource>, Vec<Place>) {
        let mut all = Vec::new();
        let mut runs = Vec::new();
        for (rank, places) in sources.iter().enumerate() {
            let memtable = Memtable::new(1);
            let mut unique = places.clone();
            unique.sort_unstable();
            unique.dedup();
            for (key, sequence) in unique {
                memtable.insert(
                    u64::from(key),
                    &EntryRef {
                        key: &[key],
                        sequence,
                        kind: EntryKind::Value,
                        value: &rank.to_le_bytes(),
                    },
                );
                all.push((key, sequence, rank));
            }
            runs.push(RunSource::new(memtable.one_run()));
        }
        all.sort_by_key(|&(key, sequence, rank)| (key, std::cmp::Reverse(sequence), rank));
        (MergeSource::new(runs), all)
    }

    fn place(source: &MergeSource<RunSource>) -> Option<Place> {
        let entry = source.entry()?;
        let rank = usize::from(entry.value[0]);
        Some((entry.key[0], entry.sequence, rank))
    }

    proptest! {
        #[test]
        fn a_walk_over_sources_is_a_walk_over_their_sorted_union(
            sources in prop::collection::vec(
                prop::collection::vec((0u8..6, 1u64..5), 0..12), 1..5),
            from in (0u8..7, 0u64..6),
        ) {
            let (mut source, all) = merged(&sources);
            let target = (from.0, std::cmp::Reverse(from.1));
            let before = |place: &Place| (place.0, std::cmp::Reverse(place.1)) < target;
            let at = all.partition_point(before);
            source.seek(&[from.0], from.1).unwrap();
            for expected in &all[at..] {
                prop_assert_eq!(place(&source), Some(*expected));
                source.next().unwrap();
            }
            prop_assert_eq!(place(&source), None);
            source.seek_before(&[from.0], from.1).unwrap();
            for expected in all[..at].iter().rev() {
                prop_assert_eq!(place(&source), Some(*expected));
                source.previous().unwrap();
            }
            prop_assert_eq!(place(&source), None);
            source.seek_first().unwrap();
            prop_assert_eq!(place(&source), all.first().copied());
            source.seek_last().unwrap();
            prop_assert_eq!(place(&source), all.last().copied());
        }
    }
}
