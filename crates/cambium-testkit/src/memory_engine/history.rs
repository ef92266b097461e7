//! The batches that followers of the change feed read, and that compactions keep.

use std::collections::VecDeque;
use std::sync::Arc;

use cambium_api::{
    ChangeBatch, ChangeFeed, ChangeOptions, Error, Operation, Result, SequenceNumber,
};

use super::Bug;
use super::engine::Core;
use super::state::{Change, Moment};

/// A committed batch, as its record has it.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) first: SequenceNumber,
    pub(super) changes: Vec<Change>,
}

/// The batches behind a moment; a moment and its batches make the log.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Where history begins: what came before is known by its entries alone.
    pub(super) start: Moment,
    pub(super) batches: VecDeque<Arc<Batch>>,
    /// Batches up to this number survive any crash.
    pub(super) synced: SequenceNumber,
}

impl Batch {
    fn last(&self) -> SequenceNumber {
        SequenceNumber(self.first.0 + self.changes.len() as u64 - 1)
    }

    fn bytes(&self) -> u64 {
        let of_value = |change: &Change| change.value.as_ref().map_or(0, |value| value.len());
        let of_change = |change: &Change| (change.key.len() + of_value(change)) as u64;
        self.changes.iter().map(of_change).sum()
    }

    /// What a feed shows of the changes from a number on.
    fn shown(&self, from: SequenceNumber, synced: bool) -> ChangeBatch {
        let skipped = from.0.saturating_sub(self.first.0) as usize;
        let change = |change: &Change| cambium_api::Change {
            namespace: None,
            operation: match &change.value {
                Some(value) => Operation::Put {
                    key: change.key.clone(),
                    value: value.to_vec(),
                },
                None => Operation::Delete {
                    key: change.key.clone(),
                },
            },
            expires: None,
        };
        ChangeBatch {
            first: self.first.max(from),
            last: self.last(),
            synced,
            changes: self.changes.iter().skip(skipped).map(change).collect(),
        }
    }
}

impl History {
    /// A history that begins at a moment that survives any crash.
    pub(super) fn beginning(start: Moment) -> Self {
        History {
            synced: start.sequence,
            start,
            batches: VecDeque::new(),
        }
    }

    pub(super) fn add(&mut self, first: SequenceNumber, changes: Vec<Change>) {
        self.batches.push_back(Arc::new(Batch { first, changes }));
    }

    /// Refuses a position whose next change was never made, or is not there any more.
    pub(super) fn check(&self, after: SequenceNumber, last: SequenceNumber) -> Result<()> {
        if after > last {
            return Err(Error::InvalidArgument(format!(
                "changes after sequence number {after}: the store's last one is {last}"
            )));
        }
        if after < self.start.sequence {
            return Err(Error::HistoryLost {
                oldest: self.start.sequence,
            });
        }
        Ok(())
    }

    /// What a compaction of a store at `moment` keeps: the batches behind the number that
    /// the slowest consumer is done with, as far as they fit into `most_bytes`.
    pub(super) fn kept(
        &self,
        moment: &Moment,
        oldest: Option<SequenceNumber>,
        most_bytes: u64,
    ) -> History {
        let Some(oldest) = oldest else {
            return History::beginning(moment.clone());
        };
        let mut bytes = 0;
        let is_kept = |batch: &&Arc<Batch>| {
            bytes += batch.bytes();
            batch.last() > oldest && bytes <= most_bytes
        };
        let kept = self.batches.iter().rev().take_while(is_kept).count();
        let split = self.batches.len() - kept;
        let mut start = self.start.clone();
        for change in self.batches.range(..split).flat_map(|batch| &batch.changes) {
            start.apply(change);
        }
        History {
            start,
            batches: self.batches.range(split..).cloned().collect(),
            synced: moment.sequence,
        }
    }

    /// Bytes of keys and values in the batches.
    pub(super) fn bytes(&self) -> u64 {
        self.batches.iter().map(|batch| batch.bytes()).sum()
    }
}

/// Reads the history of an open store.
pub(super) struct Feed {
    pub(super) core: Arc<Core>,
    pub(super) after: SequenceNumber,
    pub(super) options: ChangeOptions,
}

impl ChangeFeed for Feed {
    fn next(&mut self) -> Result<Option<ChangeBatch>> {
        self.core.check_open()?;
        let bug = self.core.bug();
        let history = self.core.history();
        history.check(self.after, SequenceNumber::MAX)?;
        let place = history
            .batches
            .partition_point(|batch| batch.last() <= self.after);
        let Some(batch) = history.batches.get(place) else {
            return Ok(None);
        };
        let synced = batch.last() <= history.synced;
        if self.options.synced_only && !synced && bug != Some(Bug::FeedShowsUnsynced) {
            return Ok(None);
        }
        let mut shown = batch.shown(SequenceNumber::ZERO, synced);
        if bug == Some(Bug::FeedSplitsBatches) {
            shown = batch.shown(self.after.next(), synced);
            shown.changes.truncate(1);
            shown.last = shown.first;
        }
        self.after = shown.last;
        Ok(Some(shown))
    }
}
