//! History: how much of the log stays for those who read changes from it.
//!
//! The written segments, one after the other, are the log, and a change feed
//! ([`crate::changes`]) reads them. Collection and holes end history, since a segment without
//! live values goes, whatever segments before it are still there:
//!
//! ```text
//!   written segments:   │ 1 … 40 │ 41 … 90 │  dropped  │ 131 … 170 │ 171 …
//!                                                      ▲ lost through 130
//! ```
//!
//! The ledger knows the last number of each written segment, and through which number
//! history is lost. A note raises that number before the blocks of a hole are given back;
//! the note that drops a segment raises it too.
//!
//! The store's folder holds the positions of consumers. Written segments with changes that
//! a consumer has not read are *held*: they are not collected, not dropped, and get no holes.
//! Their garbage is what consumers cost. Where it exceeds `history_bytes`, the oldest of them
//! are held no longer.
//!
//! A consumer may begin while a collection decides what to take. Both decide under the
//! ledger's lock: a segment that a collection takes is lost from then on, and a consumer that
//! needs it is refused.

use std::sync::Arc;

use cambium_api::{Durability, Statistics};
use cambium_base::{Error, Result, SequenceNumber};

use crate::core::{Core, lock};
use crate::format::SegmentKind;
use crate::ledger::{Account, LedgerState};
use crate::note::{self, NoteItem};
use crate::seeded_bug::SeededBug;
use crate::write::WriteRequest;

/// The segments that are held for consumers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldHistory {
    /// Written segments with a later write are held.
    after: u64,
    /// Their garbage.
    pub bytes: u64,
}

impl HeldHistory {
    const NOTHING: HeldHistory = HeldHistory {
        after: u64::MAX,
        bytes: 0,
    };

    /// True if the segment must stay as it is.
    pub fn has(&self, account: &Account) -> bool {
        account.kind == SegmentKind::Written && account.last > self.after
    }
}

impl LedgerState {
    /// What is held for consumers, the newest first, until its garbage exceeds a limit.
    fn held_history(&self, history_bytes: u64) -> HeldHistory {
        let Some(after) = self.needed_after else {
            return HeldHistory::NOTHING;
        };
        // Nobody can read what lies before the last change that is lost.
        let after = after.max(self.lost_through);
        let mut held = HeldHistory { after, bytes: 0 };
        for account in self.segments.values().rev() {
            if !held.has(account) {
                continue;
            }
            let bytes = held.bytes + account.end.saturating_sub(account.live_bytes());
            if bytes > history_bytes {
                held.after = account.last;
                break;
            }
            held.bytes = bytes;
        }
        held
    }

    /// Changes up to the last one of these segments cannot be read any more. Answers its
    /// number.
    pub fn take_history_of(&mut self, numbers: &[u32]) -> u64 {
        let accounts = numbers
            .iter()
            .filter_map(|number| self.segments.get(number));
        let last = accounts.map(|account| account.last).max().unwrap_or(0);
        self.taken_through = self.taken_through.max(last);
        last
    }

    /// The last change that cannot be read any more.
    pub fn newest_lost(&self) -> u64 {
        self.lost_through.max(self.taken_through)
    }

    /// Refuses a reader that needs changes that are lost.
    fn check_history(&self, after: u64) -> Result<()> {
        let lost = self.newest_lost();
        if after >= lost {
            return Ok(());
        }
        Err(Error::HistoryLost {
            oldest: SequenceNumber(lost),
        })
    }
}

impl Core {
    /// What is held for consumers now.
    pub fn held_history(&self, state: &LedgerState) -> HeldHistory {
        if self.has_bug(SeededBug::HistoryDroppedEarly) {
            return HeldHistory::NOTHING;
        }
        state.held_history(self.tuning.history_bytes)
    }

    /// Takes segments for a collection, but for those that are held for consumers or named
    /// snapshots; answers the others.
    pub fn take_from_history(&self, numbers: &[u32]) -> Vec<u32> {
        let mut state = self.ledger.state();
        let held = self.held_history(&state);
        let is_free = |number: &&u32| {
            let account = state.segments.get(number);
            account.is_none_or(|account| !held.has(account))
                && !self.is_held_by_snapshot(&state, **number)
        };
        let taken: Vec<u32> = numbers.iter().filter(is_free).copied().collect();
        state.take_history_of(&taken);
        taken
    }

    /// Notes that history is lost through a number, ahead of what ends it.
    pub fn note_lost_history(&self, through: u64) -> Result<()> {
        self.begin_session()?;
        let synced = NoteItem::Synced(self.ledger.synced());
        let note = note::encode(&[synced, NoteItem::HistoryLost(through)]);
        self.tree.commit_note(&note)
    }

    /// Refuses a reader that needs changes that are lost.
    pub fn check_history(&self, after: u64) -> Result<()> {
        self.ledger.state().check_history(after)
    }

    /// Makes, moves or (`None`) takes away a consumer.
    pub fn move_consumer(self: &Arc<Self>, name: &str, to: Option<SequenceNumber>) -> Result<()> {
        // A close waits for the end: afterwards another process may own the store.
        let _under_way = self.stepping.read();
        self.check_writable()?;
        let _alone = lock(&self.moving_consumer);
        if let Some(to) = to {
            self.check_given_out(to)?;
            if to.0 > self.ledger.synced() {
                self.write_request(WriteRequest::new([], Durability::Synced))?;
            }
            let mut state = self.ledger.state();
            state.check_history(to.0)?;
            // Held while the list is written.
            state.needed_after = Some(state.needed_after.map_or(to.0, |after| after.min(to.0)));
        }
        let moved = self.consumers.set(&*self.environment.file_system, name, to);
        let oldest = self.consumers.oldest();
        self.ledger.state().needed_after = oldest.map(|oldest| oldest.0);
        self.notify_background();
        moved
    }

    /// Refuses numbers that no write and no snapshot has yet.
    pub fn check_given_out(&self, number: SequenceNumber) -> Result<()> {
        let newest = self.ledger.visible();
        if number.0 <= newest {
            return Ok(());
        }
        Err(Error::InvalidArgument(format!(
            "sequence number {number}: the newest of this store is {newest}"
        )))
    }

    /// Adds what history takes.
    pub fn history_statistics(&self, state: &LedgerState, all: &mut Statistics) {
        all.bytes(
            "history_bytes",
            self.held_history(state).bytes,
            "garbage of the value log that stays only because consumers of changes have not read it",
        );
        all.count(
            "oldest_change",
            state.newest_lost(),
            "sequence number after which the log has every change",
        );
    }
}
