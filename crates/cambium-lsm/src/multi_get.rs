//! Looking up many keys, with the reads of all of them under way together.
//!
//! Every key is searched as if alone, but a block that is not at hand is noted
//! down instead of read. What was noted is read in one batch, and the searches
//! that waited are made again: they find their blocks now, and get to the next.
//! Of keys that come in order, most lie in the data block of the one before: where
//! there are many, the index is asked once a block.
//! A round costs the processor little (filters and top indexes are in memory),
//! and there are as many rounds as one lookup has reads one after the other.

use std::cmp::Ordering as Order;
use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_base::{Error, Result};
use cambium_io::{AlignedBuffer, ReadRequest, read_all_kept};

use crate::block::{Block, BlockCursor};
use crate::entry::{EntryRef, Lookup, Moment, compare};
use crate::format::BlockHandle;
use crate::read::Search;
use crate::table::{BlockProvider, Table};
use crate::tree::{Context, Tree, View};

/// A table's number, and where the block lies in it.
type BlockName = (u64, u64);

/// Keys in order from which on the last data block of each table is remembered.
const MANY_KEYS: usize = 128;

/// A data block, and up to which place the index leads to it.
struct Near {
    key: Vec<u8>,
    sequence: u64,
    handle: BlockHandle,
    cursor: BlockCursor,
}

/// Blocks at hand, and those that are wanted.
struct Gatherer<'a> {
    context: &'a Context,
    /// By tables' numbers, where keys come in order.
    near: Option<BTreeMap<u64, Near>>,
    fetched: BTreeMap<BlockName, Block>,
    wanted: BTreeMap<BlockName, (Arc<Table>, BlockHandle)>,
}

impl BlockProvider for Gatherer<'_> {
    fn block(&mut self, table: &Arc<Table>, handle: BlockHandle) -> Result<Option<Block>> {
        let name = (table.number, handle.offset);
        if let Some(block) = self.fetched.get(&name) {
            return Ok(Some(block.clone()));
        }
        if let Some(block) = table.cached_block(handle) {
            return Ok(Some(block));
        }
        self.wanted.insert(name, (table.clone(), handle));
        Ok(None)
    }

    fn near(
        &mut self,
        table: &Table,
        key: &[u8],
        moment: Moment,
    ) -> Option<(BlockHandle, &mut BlockCursor)> {
        let near = self.near.as_mut()?.get_mut(&table.number)?;
        // The places before led to the index's entry for this block.
        let is_within = compare((key, moment), (&near.key, near.sequence)) != Order::Greater;
        is_within.then_some((near.handle, &mut near.cursor))
    }

    fn came_to(&mut self, table: &Table, entry: &EntryRef<'_>, found: (BlockHandle, &Block)) {
        let Some(all) = &mut self.near else {
            return;
        };
        let near = all.entry(table.number).or_insert_with(|| Near {
            key: Vec::new(),
            sequence: 0,
            handle: found.0,
            cursor: BlockCursor::new(found.1.clone()),
        });
        near.key.clear();
        near.key.extend_from_slice(entry.key);
        near.sequence = entry.sequence;
        near.handle = found.0;
        near.cursor = BlockCursor::new(found.1.clone());
    }
}

impl Gatherer<'_> {
    /// Reads what is wanted: all of it together.
    fn fetch(&mut self) -> Result<()> {
        let wanted: Vec<_> = std::mem::take(&mut self.wanted).into_iter().collect();
        if let [(name, (table, handle))] = wanted.as_slice() {
            let block = table.block(*handle)?;
            self.fetched.insert(*name, block);
            return Ok(());
        }
        let mut requests = Vec::new();
        let mut memory = Vec::new();
        for (tag, (name, (table, handle))) in wanted.iter().enumerate() {
            // What the system has in memory is not worth a queue.
            memory.resize(table.stored_bytes(*handle)?, 0);
            if table.file().read_cached_at(&mut memory, handle.offset) == memory.len() {
                let block = table.unpack(*handle, &memory)?;
                table.cache_block(*handle, &block);
                self.fetched.insert(*name, block);
                continue;
            }
            requests.push(ReadRequest {
                file: table.file().clone(),
                offset: handle.offset,
                buffer: AlignedBuffer::new(memory.len(), 1),
                tag: tag as u64,
            });
        }
        if requests.is_empty() {
            return Ok(());
        }
        let file_system = &self.context.environment.file_system;
        let fetched = &mut self.fetched;
        read_all_kept(
            file_system,
            self.context.options.read,
            requests,
            |completion| {
                let (name, (table, handle)) = &wanted[completion.tag as usize];
                let count = completion.result?;
                if count < completion.buffer.len() {
                    let end = handle.offset + count as u64;
                    let what = "the file ends within a block";
                    return Err(Error::corruption(table.file().path(), end, what));
                }
                let block = table.unpack(*handle, &completion.buffer)?;
                table.cache_block(*handle, &block);
                fetched.insert(*name, block);
                Ok(())
            },
        )
    }
}

impl Tree {
    /// What a moment sees of several keys, in the order asked; the caller has
    /// pinned the moment. Reads go to the device together.
    ///
    /// # Errors
    /// As [`Tree::get`], for the first key that fails.
    pub fn multi_get(&self, keys: &[&[u8]], moment: Moment) -> Result<Vec<Lookup>> {
        self.check_open()?;
        self.look_up_many(&self.view_at(moment), keys, moment)
    }

    pub(crate) fn look_up_many(
        &self,
        view: &View,
        keys: &[&[u8]],
        moment: Moment,
    ) -> Result<Vec<Lookup>> {
        let mut answers = vec![Lookup::Absent; keys.len()];
        let mut waiting: Vec<usize> = (0..keys.len()).collect();
        let in_order = keys.len() >= MANY_KEYS && keys.is_sorted();
        let mut blocks = Gatherer {
            context: &self.context,
            near: in_order.then(BTreeMap::new),
            fetched: BTreeMap::new(),
            wanted: BTreeMap::new(),
        };
        while !waiting.is_empty() {
            let mut still_waiting = Vec::new();
            for position in waiting {
                let search = Search {
                    context: &self.context,
                    key: keys[position],
                    hash: self.context.hash(keys[position]),
                    moment,
                };
                match search.run(view, &mut blocks)? {
                    Some(answer) => answers[position] = answer,
                    None => still_waiting.push(position),
                }
            }
            blocks.fetch()?;
            waiting = still_waiting;
            // It begins from the first key again.
            if let Some(near) = &mut blocks.near {
                near.clear();
            }
        }
        Ok(answers)
    }
}
