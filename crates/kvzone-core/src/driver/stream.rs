//! Which operations a thread issues, in which order.
//!
//! A [`Stream`] depends on the job's seed, the phase and the thread's number:
//! on no clock and on no other thread. Operations are drawn in blocks, so that
//! drawing them is no part of any latency.
//!
//! What belongs to a thread alone (of T threads, thread t):
//!
//! | operation | keys |
//! |---|---|
//! | load | numbers t, t + T, t + 2T ...: together, and in their order, all |
//! | insert | the numbers after the load, likewise |
//! | update, read-modify-write | the drawn number, moved to the one with remainder t |
//! | delete | numbers with remainder t, each once, in random order; where keys are inserted as well, these follow, the oldest first |
//! | read in order, popularity `sequential` | a contiguous part of all places |
//!
//! So a key has one writer, and its versions an order ([`crate::versions`]).
//! Reads and scans choose among all keys that the thread knows to be there. Where
//! keys are inserted and deleted, those are the thread's own (the "active key
//! set" of KVZone's paper, section 2.2); if none is left, it inserts.

use super::block::Block;
use super::lives::Lives;
use crate::distribution::{Groups, HotSet, YcsbZipfian, Zipfian};
use crate::error::{Error, Result};
use crate::job::{Popularity, SizeChoice};
use crate::keys::KeySpace;
use crate::permutation::Permutation;
use crate::random::{Random, mix_two};
use crate::workload::OperationKind;

/// Entries of a scan of `read-sequential`.
pub const SCAN_ENTRIES: u64 = 100;

/// Entries of other scans, as in YCSB.
pub const SCAN_SIZES: SizeChoice = SizeChoice::Uniform(1, 100);

/// Purposes of the seed.
const DRAWS: u64 = 0x6472_6177;
const SCATTER: u64 = 0x7363_6174;
const DELETIONS: u64 = 0x6465_6C65;

#[derive(Clone, Debug)]
pub struct StreamPlan<'a> {
    pub keys: &'a KeySpace,
    pub mix: &'a [(OperationKind, u32)],
    pub popularity: Popularity,
    pub seed: u64,
    pub threads: u64,
    /// Operations over all threads; None where time ends the phase.
    pub operations: Option<u64>,
    /// Entries that one operation of [`OperationKind::ReadInOrder`] visits.
    pub span: u64,
    pub scans: SizeChoice,
    /// Keys at the end of all that are never put.
    pub missing: u64,
    /// Inserts of the thread between a key's insertion and its deletion; None:
    /// the oldest go first.
    pub lifetime: Option<SizeChoice>,
}

#[derive(Clone, Debug)]
pub struct Stream<'a> {
    plan: StreamPlan<'a>,
    thread: u64,
    random: Random,
    chooser: Chooser,
    /// Operations (entries, where they are read in order) still to be drawn.
    left: u64,
    /// Kinds, one for each of 100 equally likely numbers.
    kinds: Vec<OperationKind>,
    inserted: u64,
    deleted: u64,
    deletions: Permutation,
    /// Keys are inserted and deleted.
    churns: bool,
    /// Which of them are there, where they have lifetimes.
    lives: Option<Lives>,
    /// The part of all places that is read in order, and the next of them.
    places: (u64, u64),
    next_place: u64,
}

#[derive(Clone, Debug)]
enum Chooser {
    Uniform,
    Zipfian(Zipfian, Permutation),
    Ycsb(YcsbZipfian),
    Latest(Zipfian),
    Sequential,
    Groups(Groups),
    HotSet(HotSet),
}

impl Chooser {
    fn new(popularity: Popularity, loaded: u64, seed: u64) -> Self {
        match popularity {
            Popularity::Uniform => Chooser::Uniform,
            Popularity::Zipfian(exponent) => {
                let scatter = Permutation::new(loaded, mix_two(seed, SCATTER));
                Chooser::Zipfian(Zipfian::new(loaded, exponent), scatter)
            }
            Popularity::YcsbZipfian => Chooser::Ycsb(YcsbZipfian::new(loaded)),
            Popularity::Latest => Chooser::Latest(Zipfian::new(loaded, 0.99)),
            Popularity::Sequential => Chooser::Sequential,
            Popularity::HotSet { keys, choices } => {
                let seed = mix_two(seed, SCATTER);
                Chooser::HotSet(HotSet::new(loaded, keys, choices, seed))
            }
            Popularity::Groups { exponent, groups } => Chooser::Groups(Groups::new(
                loaded,
                exponent,
                groups,
                mix_two(seed, SCATTER),
            )),
        }
    }
}

impl<'a> Stream<'a> {
    pub fn new(plan: StreamPlan<'a>, phase: u64, thread: u64) -> Self {
        let loaded = plan.keys.loaded();
        let threads = plan.threads;
        let left = plan.operations.map_or(u64::MAX, |all| {
            all / threads + u64::from(thread < all % threads)
        });
        let own = loaded / threads + u64::from(thread < loaded % threads);
        let part = |of: u64| (u128::from(loaded) * u128::from(of) / u128::from(threads)) as u64;
        let kinds: Vec<OperationKind> = plan
            .mix
            .iter()
            .flat_map(|&(kind, weight)| std::iter::repeat_n(kind, weight as usize))
            .collect();
        let purpose = mix_two(phase, thread);
        Stream {
            thread,
            random: Random::stream(mix_two(plan.seed, DRAWS), purpose),
            chooser: Chooser::new(plan.popularity, loaded, plan.seed),
            left,
            churns: [OperationKind::Insert, OperationKind::Delete]
                .iter()
                .all(|kind| kinds.contains(kind)),
            lives: plan.lifetime.map(|lifetime| Lives::new(lifetime, own)),
            kinds,
            inserted: 0,
            deleted: 0,
            deletions: Permutation::new(own, mix_two(mix_two(plan.seed, DELETIONS), thread)),
            places: (part(thread), part(thread + 1)),
            next_place: part(thread),
            plan,
        }
    }

    /// Draws up to `most` operations into a block; it stays empty when all
    /// were drawn. A usage error when keys to insert are used up.
    pub fn draw(&mut self, block: &mut Block, most: usize) -> Result<()> {
        block.clear();
        while block.operations.len() < most && self.left > 0 {
            let kind = match self.kinds.as_slice() {
                [] => OperationKind::Insert,
                kinds => kinds[self.random.below(kinds.len() as u64) as usize],
            };
            let kind = match self.churns && self.live() == 0 {
                true => OperationKind::Insert,
                false => kind,
            };
            let (number, span) = self.choose(kind)?;
            block.push(kind, number, span as u32, self.plan.keys);
            self.left -= match kind {
                OperationKind::ReadInOrder => span,
                kind if kind.walks() => span.min(self.left),
                _ => 1,
            };
        }
        Ok(())
    }

    #[inline]
    fn choose(&mut self, kind: OperationKind) -> Result<(u64, u64)> {
        Ok(match kind {
            OperationKind::Insert => (self.next_insert()?, 1),
            OperationKind::Update | OperationKind::ReadModifyWrite if self.churns => {
                (self.any_key(), 1)
            }
            OperationKind::Update | OperationKind::ReadModifyWrite => (self.own_key(), 1),
            OperationKind::Delete => (self.next_deletion(), 1),
            OperationKind::Read => (self.any_key(), 1),
            OperationKind::Scan => {
                let first = self.any_key();
                (first, self.plan.scans.pick(self.random.next_u64()))
            }
            OperationKind::ReadMissing => {
                let first = self.plan.keys.room() - self.plan.missing;
                (first + self.random.below(self.plan.missing.max(1)), 1)
            }
            OperationKind::ReadInOrder => self.next_in_order(),
            // As many as there are.
            OperationKind::Walk | OperationKind::WalkBackwards => (0, self.plan.keys.loaded()),
        })
    }

    fn next_insert(&mut self) -> Result<u64> {
        // A load's mix is empty: it inserts what counts as loaded.
        let first = if self.kinds.is_empty() {
            0
        } else {
            self.plan.keys.loaded()
        };
        let number = first + self.inserted * self.plan.threads + self.thread;
        if number >= self.plan.keys.room() - self.plan.missing {
            return Err(Error::Usage(
                "no keys of this size are left to insert: give longer keys".to_string(),
            ));
        }
        if let Some(lives) = &mut self.lives {
            let random = match lives.is_random() {
                true => self.random.next_u64(),
                false => 0,
            };
            lives.begin(
                self.deletions.count() + self.inserted,
                self.inserted,
                random,
            );
        }
        self.inserted += 1;
        Ok(number)
    }

    fn next_deletion(&mut self) -> u64 {
        if !self.churns && matches!(self.chooser, Chooser::Sequential) {
            return self.next_in_order().0;
        }
        let position = match (&mut self.lives, self.churns) {
            (Some(lives), _) => lives.end(self.inserted),
            (None, true) => self.deleted,
            (None, false) => self.deleted % self.deletions.count(),
        };
        self.deleted += 1;
        self.own_in_turn(position)
    }

    /// The thread's own keys in the order in which they are deleted: those
    /// loaded, then those inserted.
    fn own_in_turn(&self, position: u64) -> u64 {
        match position.checked_sub(self.deletions.count()) {
            // As updates do: of a law that scatters its ranks, a thread's own are ranks.
            None => {
                let own = self.deletions.apply(position) * self.plan.threads + self.thread;
                self.scattered(own)
            }
            Some(later) => self.plan.keys.loaded() + later * self.plan.threads + self.thread,
        }
    }

    /// How many of the thread's own keys are there.
    fn live(&self) -> u64 {
        (self.deletions.count() + self.inserted).saturating_sub(self.deleted)
    }

    /// A loaded key that this thread alone writes.
    #[inline]
    fn own_key(&mut self) -> u64 {
        let (loaded, threads) = (self.plan.keys.loaded(), self.plan.threads);
        if matches!(self.chooser, Chooser::Sequential) {
            return self.next_in_order().0;
        }
        let drawn = self.draw_loaded();
        if threads == 1 {
            return self.scattered(drawn);
        }
        let own = drawn - drawn % threads + self.thread;
        self.scattered(if own < loaded { own } else { own - threads })
    }

    /// A key that is there: loaded, or inserted by this thread.
    #[inline]
    fn any_key(&mut self) -> u64 {
        if self.churns {
            let choice = self.random.below(self.live().max(1));
            let position = match &self.lives {
                Some(lives) => lives.at(choice),
                None => self.deleted + choice,
            };
            return self.own_in_turn(position);
        }
        match &self.chooser {
            Chooser::Sequential => self.next_in_order().0,
            Chooser::Latest(ages) if self.inserted > 0 => {
                let age = ages.draw(&mut self.random);
                let (loaded, threads) = (self.plan.keys.loaded(), self.plan.threads);
                // Other threads' inserts are taken to be as many; where the age
                // falls on one of them, this thread's own of that time serves.
                let newest = loaded + self.inserted * threads - 1;
                let number = newest - age;
                match number.checked_sub(loaded) {
                    Some(later) => loaded + later / threads * threads + self.thread,
                    None => number,
                }
            }
            _ => {
                let drawn = self.draw_loaded();
                self.scattered(drawn)
            }
        }
    }

    #[inline]
    fn draw_loaded(&mut self) -> u64 {
        let loaded = self.plan.keys.loaded();
        match &self.chooser {
            Chooser::Uniform | Chooser::Sequential => self.random.below(loaded),
            Chooser::Zipfian(law, _) => law.draw(&mut self.random),
            Chooser::Ycsb(law) => law.draw(&mut self.random),
            Chooser::Groups(law) => law.draw(&mut self.random),
            Chooser::HotSet(law) => law.draw(&mut self.random),
            Chooser::Latest(law) => loaded - 1 - law.draw(&mut self.random),
        }
    }

    /// Ranks of the exact law fall on keys all over the key space.
    #[inline]
    fn scattered(&self, drawn: u64) -> u64 {
        match &self.chooser {
            Chooser::Zipfian(_, scatter) => scatter.apply(drawn),
            _ => drawn,
        }
    }

    fn next_in_order(&mut self) -> (u64, u64) {
        let (from, to) = self.places;
        if self.next_place >= to {
            self.next_place = from;
        }
        let span = self.plan.span.min(to - self.next_place).min(self.left);
        let number = self.plan.keys.number_at(self.next_place);
        self.next_place += span;
        (number, span)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
