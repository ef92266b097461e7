//! Channels, and who listens to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::RandomState;

use super::session::Session;
use crate::glob;
use crate::resp::reply::Reply;

/// Subscriptions of all clients, by the places of their sessions.
#[derive(Debug, Default)]
pub struct PubSub {
    channels: HashMap<Vec<u8>, BTreeSet<u32>, RandomState>,
    patterns: BTreeMap<Vec<u8>, BTreeSet<u32>>,
    /// Messages that are not delivered yet.
    messages: Vec<(u32, Message)>,
}

/// A message for one client.
#[derive(Clone, Debug)]
pub struct Message {
    pattern: Option<Vec<u8>>,
    channel: Vec<u8>,
    payload: Vec<u8>,
}

impl Message {
    /// Writes the message as the client's protocol has it.
    pub fn write(&self, reply: &mut Reply) {
        match &self.pattern {
            None => {
                reply.push(3);
                reply.bulk("message");
            }
            Some(pattern) => {
                reply.push(4);
                reply.bulk("pmessage");
                reply.bulk(pattern);
            }
        }
        reply.bulk(&self.channel);
        reply.bulk(&self.payload);
    }
}

impl PubSub {
    /// A client listens to a channel.
    pub fn subscribe(&mut self, slot: u32, channel: &[u8]) {
        self.channels
            .entry(channel.to_vec())
            .or_default()
            .insert(slot);
    }

    /// A client listens to channels that match a pattern.
    pub fn subscribe_pattern(&mut self, slot: u32, pattern: &[u8]) {
        self.patterns
            .entry(pattern.to_vec())
            .or_default()
            .insert(slot);
    }

    /// A client listens to a channel no more.
    pub fn unsubscribe(&mut self, slot: u32, channel: &[u8]) {
        if let Some(slots) = self.channels.get_mut(channel) {
            slots.remove(&slot);
            if slots.is_empty() {
                self.channels.remove(channel);
            }
        }
    }

    /// A client listens to a pattern no more.
    pub fn unsubscribe_pattern(&mut self, slot: u32, pattern: &[u8]) {
        if let Some(slots) = self.patterns.get_mut(pattern) {
            slots.remove(&slot);
            if slots.is_empty() {
                self.patterns.remove(pattern);
            }
        }
    }

    /// Queues a message for everyone who listens, and answers how many that are.
    pub fn publish(&mut self, channel: &[u8], payload: &[u8]) -> usize {
        let before = self.messages.len();
        let message = |pattern: Option<&Vec<u8>>| Message {
            pattern: pattern.cloned(),
            channel: channel.to_vec(),
            payload: payload.to_vec(),
        };
        let slots = self.channels.get(channel);
        for slot in slots.into_iter().flatten() {
            self.messages.push((*slot, message(None)));
        }
        let matching = self
            .patterns
            .iter()
            .filter(|(pattern, _)| glob::matches(pattern, channel, false));
        for (pattern, slots) in matching {
            let messages = slots.iter().map(|slot| (*slot, message(Some(pattern))));
            self.messages.extend(messages);
        }
        self.messages.len() - before
    }

    /// Messages since the last call.
    pub fn take_messages(&mut self) -> Vec<(u32, Message)> {
        std::mem::take(&mut self.messages)
    }

    /// Channels with a listener that match a pattern.
    pub fn channels(&self, pattern: Option<&[u8]>) -> Vec<&[u8]> {
        let channels = self.channels.keys().map(Vec::as_slice);
        channels
            .filter(|channel| pattern.is_none_or(|pattern| glob::matches(pattern, channel, false)))
            .collect()
    }

    /// Listeners of a channel.
    pub fn listeners(&self, channel: &[u8]) -> usize {
        self.channels.get(channel).map_or(0, BTreeSet::len)
    }

    /// Patterns with a listener.
    pub fn pattern_count(&self) -> usize {
        self.patterns.len()
    }

    /// Channels with a listener.
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }
}

impl PubSub {
    /// A client listens to nothing more.
    pub fn forget(&mut self, session: &mut Session) {
        let slot = session.handle.slot;
        for channel in std::mem::take(&mut session.channels) {
            self.unsubscribe(slot, &channel);
        }
        for pattern in std::mem::take(&mut session.patterns) {
            self.unsubscribe_pattern(slot, &pattern);
        }
    }
}
