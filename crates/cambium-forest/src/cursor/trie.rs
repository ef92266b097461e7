//! What a cursor answers from a trie.

use std::collections::VecDeque;

use cambium_api::Direction;
use cambium_base::Result;

use super::READ_AHEAD_BYTES;
use crate::database::Document;
use crate::document::DocumentAddress;
use crate::index::IndexCursor;
use crate::nodes::Nodes;
use crate::view::Pin;

/// What a cursor answers from the trie.
#[derive(Debug)]
pub(super) struct TrieSource {
    pub cursor: Option<IndexCursor>,
    pub ahead: VecDeque<Document>,
    pub window: usize,
    pub ended: bool,
}

impl TrieSource {
    pub fn peek(&mut self, pin: &Pin, direction: Direction) -> Result<Option<&[u8]>> {
        if self.ahead.is_empty() && !self.ended {
            self.read_ahead(pin, direction)?;
        }
        Ok(self.ahead.front().map(|document| &*document.key))
    }

    fn read_ahead(&mut self, pin: &Pin, direction: Direction) -> Result<()> {
        let Some(cursor) = &mut self.cursor else {
            self.ended = true;
            return Ok(());
        };
        let database = &pin.view.database;
        let nodes = Nodes {
            core: &pin.core,
            database,
        };
        let mut addresses: Vec<DocumentAddress> = Vec::with_capacity(self.window);
        let mut bytes = 0;
        while addresses.len() < self.window && bytes < READ_AHEAD_BYTES {
            match cursor.advance(&nodes, direction == Direction::Forward)? {
                Some(address) => {
                    bytes += address.most_bytes();
                    addresses.push(address);
                }
                None => {
                    self.ended = true;
                    break;
                }
            }
        }
        self.ahead = pin.core.documents(database, &addresses)?.into();
        self.window = (self.window * 2).min(pin.core.tuning.read_ahead);
        Ok(())
    }
}
