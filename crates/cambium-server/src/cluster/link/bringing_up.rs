//! Bringing a successor up: from the change feed, and by copies.

use super::{Link, PAUSE, State, TURN_BYTES};
use crate::cluster::ChainEvent;
use crate::cluster::window::Pulled;
use crate::keyspace::partitions::Frame;

impl Link {
    /// Brings up all partitions that need the feed by one pass of it.
    pub(super) fn feed(&mut self) -> bool {
        let wanted = self.feeding();
        if wanted.is_empty() {
            self.feed = None;
            return false;
        }
        let mut bytes = 0;
        while bytes < TURN_BYTES {
            let next = match &mut self.feed {
                Some(feed) => feed.next(),
                None => match self.shared.history.feed(&wanted) {
                    Ok(Some(feed)) => {
                        self.feed = Some(feed);
                        continue;
                    }
                    Ok(None) => return self.end_feed(false),
                    Err(error) => Err(error),
                },
            };
            match next {
                Ok(Some(frames)) => {
                    for frame in frames {
                        bytes += frame.bytes.len();
                        self.feed_frame(&frame);
                    }
                }
                Ok(None) => {
                    let is_certain = self.feed.as_ref().is_some_and(|feed| feed.is_certain);
                    return self.end_feed(is_certain);
                }
                Err(error) => {
                    tracing::info!(%error, "the change feed ends: what is missing is copied");
                    return self.end_feed(false);
                }
            }
        }
        true
    }

    fn feed_frame(&mut self, frame: &Frame) {
        let Some(way) = self.ways.get(&frame.partition) else {
            return;
        };
        let State::Feeding(next) = way.state else {
            return;
        };
        // The log has what this node wrote as a former head too, which a copy has replaced.
        let (own, head_since) = &way.own;
        let is_own = match frame.numbers.1 > own.number {
            true => frame.epoch >= *head_since,
            false => own.contains(frame.epoch, frame.numbers.1),
        };
        match frame.numbers {
            (_, last) if last < next => {}
            (first, last) if first <= next && is_own => {
                self.append(frame);
                self.set(frame.partition, State::Feeding(last + 1));
            }
            // Batches are missing before it.
            _ => self.set(frame.partition, self.needs_copy(frame.partition)),
        }
    }

    /// The feed has come to the end of the log, or cannot go on: partitions whose last batch
    /// was in it go on with the window, and others need a copy, unless more of the feed is
    /// certain to come.
    fn end_feed(&mut self, is_certain: bool) -> bool {
        if !is_certain {
            self.feed = None;
        }
        let mut is_busy = false;
        for (partition, next) in self.feeding() {
            let window = self.shared.window.pull(partition, next, 0);
            let record = self.shared.history.record(partition);
            let state = match (window, record) {
                (Pulled::Frames(frames), Ok(record))
                    if !frames.is_empty() || record.position.number < next =>
                {
                    State::Following(next, false)
                }
                // Written since the log was read, or not synced yet: it comes.
                (_, Ok(_)) if is_certain => State::Feeding(next),
                (_, Ok(_)) => self.needs_copy(partition),
                (_, Err(_)) => State::Closed(self.now() + PAUSE),
            };
            is_busy |= !matches!(state, State::Feeding(_));
            self.set(partition, state);
        }
        is_busy
    }

    /// A step of the copy, one partition after the other.
    pub(super) fn copy(&mut self) -> bool {
        if self.copy.is_none() {
            let next = self
                .ways
                .iter()
                .find(|(_, way)| way.state == State::Copying);
            let Some((partition, way)) = next else {
                return false;
            };
            let (partition, since) = (*partition, way.of.since);
            match self.shared.history.copy(partition) {
                Ok(copy) => self.copy = Some((copy, since)),
                Err(error) => {
                    tracing::error!(%error, partition, "no copy");
                    self.set(partition, State::Closed(self.now() + PAUSE));
                    return false;
                }
            }
            tracing::info!(partition, to = self.to, "a copy begins");
            self.request(b"COPY", partition, since, &[b"BEGIN"]);
        }
        let Some((mut copy, since)) = self.copy.take() else {
            return false;
        };
        let partition = copy.partition;
        match copy.next(TURN_BYTES) {
            Ok(few) if few.is_empty() => {
                // The answer brings it to its next state.
                self.set(partition, State::Opening);
                let end: [&[u8]; 2] = [b"END", &copy.record.encode()];
                self.request(b"COPY", partition, since, &end);
                self.say_copied(partition, since, None);
            }
            Ok(few) => {
                let mut words: Vec<&[u8]> = vec![b"DATA"];
                for (key, value) in &few {
                    words.extend([key.as_slice(), value.as_slice()]);
                }
                self.request(b"COPY", partition, since, &words);
                self.say_copied(partition, since, Some(copy.progress()));
                self.copy = Some((copy, since));
            }
            Err(error) => {
                tracing::error!(%error, partition, "a copy has failed");
                self.set(partition, State::Closed(self.now() + PAUSE));
            }
        }
        true
    }

    fn say_copied(&self, partition: u8, since: u64, entries: Option<(u64, u64)>) {
        self.say(ChainEvent::Copying {
            partition,
            since,
            entries,
        });
    }
}
