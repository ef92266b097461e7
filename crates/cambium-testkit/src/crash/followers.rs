//! Readers of changes beside a run.
//!
//! One feed shows all batches: the contents that it makes are the store's. Another one shows
//! only batches that survive any crash: what it has shown counts as synced from then on, so
//! that every image is held against it. A consumer keeps history: every image must have the
//! changes behind it, and they must lead to what was recovered.

use std::sync::Arc;

use cambium_api::{ChangeFeed, ChangeOptions, Engine, Error, SequenceNumber};
use cambium_io::simulated::Generator;

use super::Mode;
use super::driver::Driver;
use crate::following::Mirror;
use crate::history::History;

/// The feeds of a run.
pub(super) struct Followers {
    /// Of its own, so that the seeds of earlier failures lead where they did.
    generator: Generator,
    all: Follower,
    synced: Follower,
}

/// A feed, and what was made of it.
struct Follower {
    options: ChangeOptions,
    feed: Option<Box<dyn ChangeFeed>>,
    /// `None` until it may begin at a snapshot.
    mirror: Option<Mirror>,
}

impl Follower {
    fn beginning(synced_only: bool) -> Self {
        Follower {
            options: ChangeOptions { synced_only },
            feed: None,
            mirror: Some(Mirror::default()),
        }
    }

    /// Reads on; answers the contents so far, if history was not lost.
    fn follow(&mut self, store: &dyn Engine) -> Result<Option<&Mirror>, String> {
        let Some(mirror) = &mut self.mirror else {
            return Ok(None);
        };
        let opened = match self.feed.take() {
            Some(feed) => Ok(feed),
            None => store.changes(mirror.at, self.options),
        };
        let followed = opened.and_then(|mut feed| {
            mirror.follow(&mut *feed)?;
            self.feed = Some(feed);
            Ok(())
        });
        match followed {
            Ok(()) => Ok(self.mirror.as_ref()),
            Err(Error::HistoryLost { oldest }) => {
                expect_history(store, oldest)?;
                self.mirror = None;
                Ok(None)
            }
            Err(error) => Err(format!("following changes: {error}")),
        }
    }

    fn begin_at_snapshot(&mut self, store: &dyn Engine) -> Result<(), String> {
        if self.mirror.is_none() {
            let mirror = store.snapshot().and_then(|snapshot| Mirror::of(&*snapshot));
            self.mirror = Some(mirror.map_err(|error| format!("reading a snapshot: {error}"))?);
        }
        Ok(())
    }
}

/// Holds if the number that an error names is one that changes can be read from.
fn expect_history(store: &dyn Engine, oldest: SequenceNumber) -> Result<(), String> {
    match store.changes(oldest, ChangeOptions::default()) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "history begins at {oldest}, and changes after it answer: {error}"
        )),
    }
}

impl Followers {
    pub(super) fn new(seed: u64) -> Self {
        Followers {
            generator: Generator::new(!seed),
            all: Follower::beginning(false),
            synced: Follower::beginning(true),
        }
    }

    /// Another opening of the store follows: it may have lost what was not synced.
    pub(super) fn let_go(&mut self) {
        self.all.feed = None;
        self.all.mirror = None;
        self.synced.feed = None;
    }
}

impl Driver<'_> {
    /// Reads what came since the last time, and sometimes moves the consumer.
    pub(super) fn follow_changes(&mut self) -> Result<(), String> {
        let Some(store) = self.store.clone().filter(|it| it.capabilities().changes) else {
            return Ok(());
        };
        // While operations fail, reading changes may fail as well.
        if self.finished || self.armed.is_some() || !self.followers.generator.chance(1, 2) {
            return Ok(());
        }
        self.report.add("changes followed");
        self.follow_all(&*store)?;
        self.follow_synced(&*store)?;
        if self.mode != Mode::Exhaustive && self.followers.generator.chance(1, 8) {
            self.move_consumer(&*store)?;
        }
        Ok(())
    }

    fn follow_all(&mut self, store: &dyn Engine) -> Result<(), String> {
        let all = &mut self.followers.all;
        let expected = &self.history.current().spaces;
        if let Some(mirror) = all.follow(store)? {
            if let Some(what) = mirror.difference(expected) {
                return Err(what);
            }
        }
        all.begin_at_snapshot(store)
    }

    fn follow_synced(&mut self, store: &dyn Engine) -> Result<(), String> {
        let synced = &mut self.followers.synced;
        if let Some(mirror) = synced.follow(store)? {
            self.history.secure_through(mirror.at);
            let window = self.history.window();
            // A change that answers no number may be among what was shown.
            let mut possible = window.synced..=window.sent;
            let is_same = |at| mirror.difference(&self.history.state(at).spaces).is_none();
            if !possible.any(is_same) {
                let expected = &self.history.state(window.synced).spaces;
                let what = mirror.difference(expected).unwrap_or_default();
                return Err(format!("of synced batches, {what}"));
            }
        }
        let window = self.history.window();
        if window.synced == window.sent {
            synced.begin_at_snapshot(store)?;
        }
        self.promise();
        Ok(())
    }

    /// Moves the consumer to where the feed of all batches is. What it promises holds for
    /// images that are taken later.
    fn move_consumer(&mut self, store: &dyn Engine) -> Result<(), String> {
        let Some(mirror) = self.followers.all.mirror.clone() else {
            return Ok(());
        };
        self.look_at_points()?;
        self.history.pinned = None;
        match store.move_consumer("mirror", Some(mirror.at)) {
            Ok(()) => {}
            Err(Error::HistoryLost { oldest }) => return expect_history(store, oldest),
            Err(error) => return Err(format!("moving a consumer: {error}")),
        }
        self.look_at_points()?;
        self.history.secure_through(mirror.at);
        self.history.pinned = Some(mirror);
        self.promise();
        self.report.add("consumers moved");
        Ok(())
    }
}

/// Holds if the changes that a recovered store has lead to what it has.
pub(crate) fn expect_changes(
    store: &Arc<dyn Engine>,
    history: &History,
    index: usize,
) -> Result<(), String> {
    let failed = |error: Error| format!("changes after recovery: {error}");
    let expected = &history.state(index).spaces;
    let pinned = history.pinned.iter().cloned().map(|mirror| (mirror, true));
    for (mut mirror, must_be_there) in pinned.chain([(Mirror::default(), false)]) {
        match store.changes(mirror.at, ChangeOptions::default()) {
            Err(Error::HistoryLost { oldest }) if !must_be_there => {
                expect_history(&**store, oldest)?
            }
            Err(error) => return Err(failed(error)),
            Ok(mut feed) => {
                mirror.follow(&mut *feed).map_err(failed)?;
                if let Some(what) = mirror.difference(expected) {
                    return Err(format!("after recovery, {what}"));
                }
            }
        }
    }
    Ok(())
}
