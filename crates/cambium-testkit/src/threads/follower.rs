//! A thread that reads a store's changes while others write it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cambium_api::{ChangeBatch, ChangeFeed, ChangeOptions, Engine, Error, SequenceNumber};
use cambium_io::simulated::Generator;
use cambium_io::sync::thread;

/// What a follower saw in a session.
#[derive(Debug)]
pub(super) struct Followed {
    /// Where it began: at the store's opening.
    pub(super) start: SequenceNumber,
    /// All batches, in the order in which they came.
    pub(super) shown: Vec<ChangeBatch>,
    /// Numbers that were said to survive any crash, and the tick behind each answer.
    pub(super) survives: Vec<(u64, SequenceNumber)>,
    /// The tick before a look at everything: what was done by then was shown.
    pub(super) complete: Option<u64>,
}

/// A follower, before it begins.
pub(super) struct Follower {
    store: Arc<dyn Engine>,
    clock: Arc<AtomicU64>,
    generator: Generator,
    /// Keeps history, so that none may be lost.
    consumes: bool,
    followed: Followed,
}

const CONSUMER: &str = "follower";

impl Follower {
    /// A follower of a store that was just opened, in half of the sessions.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn of(
        store: &Arc<dyn Engine>,
        clock: &Arc<AtomicU64>,
        seed: u64,
    ) -> Result<Option<Follower>, Error> {
        let mut generator = Generator::new(!seed);
        if !store.capabilities().changes || generator.chance(1, 2) {
            return Ok(None);
        }
        let start = store.snapshot()?.sequence();
        let consumes = generator.chance(1, 2);
        if consumes {
            store.move_consumer(CONSUMER, Some(start))?;
        }
        let followed = Followed {
            start,
            shown: Vec::new(),
            survives: Vec::new(),
            complete: None,
        };
        Ok(Some(Follower {
            store: store.clone(),
            clock: clock.clone(),
            generator,
            consumes,
            followed,
        }))
    }

    /// Reads until the writers are done; answers what came, and the error that ended it.
    pub(super) fn run(mut self, done: &AtomicBool) -> (Followed, Option<Error>) {
        let error = match self.read(done) {
            // Nobody kept it.
            Err(Error::HistoryLost { .. }) if !self.consumes => None,
            other => other.err(),
        };
        (self.followed, error)
    }

    fn read(&mut self, done: &AtomicBool) -> Result<(), Error> {
        let start = self.followed.start;
        let open = |synced_only| self.store.changes(start, ChangeOptions { synced_only });
        let (mut all, mut synced) = (open(false)?, open(true)?);
        loop {
            let is_last = done.load(Ordering::SeqCst);
            let began = self.tick();
            while let Some(batch) = all.next()? {
                if batch.synced {
                    self.survives(batch.last);
                }
                self.followed.shown.push(batch);
            }
            if let Some(last) = self.read_synced(&mut *synced)? {
                self.acknowledge(last)?;
            }
            if is_last {
                self.followed.complete = Some(began);
                return Ok(());
            }
            thread::yield_now();
        }
    }

    fn read_synced(&mut self, feed: &mut dyn ChangeFeed) -> Result<Option<SequenceNumber>, Error> {
        let mut last = None;
        while let Some(batch) = feed.next()? {
            self.survives(batch.last);
            last = Some(batch.last);
        }
        Ok(last)
    }

    /// Moves the consumer to where the slower of the two feeds is.
    fn acknowledge(&mut self, synced: SequenceNumber) -> Result<(), Error> {
        let all = self.followed.shown.last().map(|batch| batch.last);
        let slower = all.map_or(self.followed.start, |all| all.min(synced));
        if self.consumes && self.generator.chance(1, 4) {
            self.store.move_consumer(CONSUMER, Some(slower))?;
        }
        Ok(())
    }

    fn survives(&mut self, number: SequenceNumber) {
        let tick = self.tick();
        self.followed.survives.push((tick, number));
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}
