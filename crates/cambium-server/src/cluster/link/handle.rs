//! The way to a link: its messages, and its start and end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cambium_cluster::position::Position;

use super::{Left, Link, Shared};
use crate::mailbox::Mailbox;

/// A message to a link.
#[derive(Debug)]
pub enum Word {
    /// The partitions that it carries.
    Chains(BTreeMap<u8, Carried>),
    /// The partitions that this node has left, and of which the other one is the head.
    Left(BTreeMap<u8, Left>),
    /// The window has new frames.
    Frames,
    /// The successor says where it is: whether it is whole, what is committed, its position.
    Opened(u8, u64, bool, u64, Position),
    /// The successor has the whole copy.
    Copied(u8, u64, u64),
    /// The successor refuses what it was sent.
    Refused(u8, u64),
    /// The connection of this number has ended, and why.
    Broken(u64, String),
    /// The successor answers an error: its disk may be full.
    Refusing,
    /// The successor has greeted on the connection of this number.
    Greeted(u64),
    /// The link ends.
    Stop,
}

/// A partition that a link carries.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// The epoch since which the successor is that. Requests and answers carry it.
    pub since: u64,
    /// The epoch of the chain.
    pub epoch: u64,
    /// The epoch since which the head is that: no batch that is made now is of an older one.
    pub head_since: u64,
    /// The successor serves.
    pub is_serving: bool,
    /// Answers wait until the successor has the batches, or the successor is brought up.
    pub is_awaited: bool,
}

/// The way to a link.
#[derive(Debug)]
pub struct LinkHandle {
    /// The address of the successor.
    pub address: String,
    /// Messages to the link.
    pub words: Arc<Mailbox<Word>>,
}

impl LinkHandle {
    /// Starts a link to a node.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(shared: Shared, to: &str, address: &str) -> std::io::Result<LinkHandle> {
        let words: Arc<Mailbox<Word>> = Arc::default();
        let link = Link {
            shared,
            to: to.to_string(),
            address: address.to_string(),
            words: words.clone(),
            ways: BTreeMap::new(),
            left: BTreeMap::new(),
            connection: None,
            number: 0,
            feed: None,
            copy: None,
            rests_until: Duration::ZERO,
            has_more: false,
            failing: None,
            failure: String::new(),
            connects_from: Duration::ZERO,
            refusing: None,
            pinged: Duration::ZERO,
            gathered: Duration::ZERO,
        };
        thread::Builder::new()
            .name(format!("to {to}"))
            .spawn(move || link.run())?;
        Ok(LinkHandle {
            address: address.to_string(),
            words,
        })
    }
}

impl Drop for LinkHandle {
    fn drop(&mut self) {
        self.words.send([Word::Stop]);
    }
}
