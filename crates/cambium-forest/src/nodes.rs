//! Nodes of the tries in a database file: reading them through the cache, and
//! appending them in runs.
//!
//! A flush does not know beforehand how many nodes it will append, and writers
//! go on meanwhile. So it takes **runs** of blocks from the log, under the writer
//! lock and for a moment only, fills a run in memory, and writes it with one
//! write. Documents land between the runs. A run's record says how many blocks
//! follow, so a scan steps over them without reading them; what a run leaves
//! unfilled is stale from the start (less than was filled, and less than a run).
//! The tries of all namespaces go into the same runs one after the other, so that
//! thousands of small ones take a node each and not a run each.

use cambium_base::{Error, Result};
use cambium_index::btree::NodeView;
use cambium_index::{Node, NodeAddress, NodeReader, NodeWriter};
use cambium_io::cache::BLOCK_HEADER_BYTES;
use cambium_io::sync::atomic::Ordering;

use crate::core::{Core, lock};
use crate::database::{Database, RunExtent};
use crate::format::{self, kind};
use crate::seeded_bug::SeededBug;

/// Nodes of a flush's first run, and of its largest: each run is twice as long
/// as the one before it, so that no more is left unfilled than was filled.
const FIRST_RUN: u32 = 4;
pub(crate) const LARGEST_RUN: u32 = 64;

/// Nodes in memory, with the header of their allocation, are a multiple of this.
const KEPT_STEP: usize = 512;

/// Reads nodes of one database file. Made anew for each lookup, which costs
/// nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes<'a> {
    pub core: &'a Core,
    pub database: &'a Database,
}

impl Nodes<'_> {
    fn fetch(&self, address: NodeAddress) -> Result<Node> {
        if let Some(node) = self.database.nodes.get(address.0) {
            return Ok(node);
        }
        self.miss(address)
    }

    /// Reads a node that is not cached, and caches it.
    fn miss(&self, address: NodeAddress) -> Result<Node> {
        let node = self.read_from_file(address)?;
        self.database.nodes.put(address.0, &node);
        Ok(node)
    }

    /// Reads and verifies a node, past the cache.
    pub fn read_from_file(&self, address: NodeAddress) -> Result<Node> {
        let bytes = self.database.node_bytes();
        let offset = address.0.saturating_mul(bytes);
        let mut content = vec![0; bytes as usize];
        self.database
            .log
            .file()
            .read_exact_at(&mut content, offset)?;
        self.core
            .counters
            .node_reads
            .fetch_add(1, Ordering::Relaxed);
        self.verified(address, &content)
    }

    fn verified(&self, address: NodeAddress, content: &[u8]) -> Result<Node> {
        match format::check_node(content, self.database.log.seed(), address) {
            Some(what) => Err(self.corrupt(address, what)),
            None => self.kept(address, content),
        }
    }

    /// A node in memory: without what its block has free.
    fn kept(&self, address: NodeAddress, content: &[u8]) -> Result<Node> {
        let bytes = NodeView::bytes_to_keep(content).map_err(|what| self.corrupt(address, what))?;
        // In few sizes, so that one can take the memory of another.
        let size = (bytes + BLOCK_HEADER_BYTES).next_multiple_of(KEPT_STEP) - BLOCK_HEADER_BYTES;
        let kept = &content[..size.min(content.len())];
        Ok(self.database.nodes.block_of(kept))
    }

    fn fetch_many(&self, addresses: &[NodeAddress]) -> Result<Vec<Node>> {
        let mut nodes: Vec<Option<Node>> = addresses
            .iter()
            .map(|&address| self.database.nodes.get(address.0))
            .collect();
        // One read for an address that is asked for several times.
        let mut missing: Vec<NodeAddress> = Vec::new();
        for (address, node) in addresses.iter().zip(&nodes) {
            if node.is_none() {
                missing.push(*address);
            }
        }
        missing.sort_unstable();
        missing.dedup();
        let mut read: Vec<(NodeAddress, Node)> = Vec::with_capacity(missing.len());
        if missing.len() < 2 {
            for &address in &missing {
                read.push((address, self.fetch(address)?));
            }
        } else {
            let bytes = self.database.node_bytes();
            let places: Vec<(u64, usize)> = missing
                .iter()
                .map(|address| (address.0.saturating_mul(bytes), bytes as usize))
                .collect();
            self.core
                .read_together(self.database, &places, |place, content| {
                    let address = missing[place];
                    if content.len() < bytes as usize {
                        return Err(self.corrupt(address, "the file ends within the node".into()));
                    }
                    let node = self.verified(address, content)?;
                    self.database.nodes.put(address.0, &node);
                    read.push((address, node));
                    Ok(())
                })?;
            self.core
                .counters
                .node_reads
                .fetch_add(missing.len() as u64, Ordering::Relaxed);
            read.sort_unstable_by_key(|(address, _)| *address);
        }
        for (address, node) in addresses.iter().zip(&mut nodes) {
            if node.is_none() {
                let place = read.binary_search_by_key(address, |(address, _)| *address);
                *node = place.ok().map(|place| read[place].1.clone());
            }
        }
        let nodes: Option<Vec<Node>> = nodes.into_iter().collect();
        Ok(nodes.expect("every address was cached or read"))
    }
}

impl NodeReader for Nodes<'_> {
    fn node_bytes(&self) -> usize {
        self.database.shape.node_bytes as usize
    }

    fn read(&self, address: NodeAddress) -> Result<Node> {
        self.fetch(address)
    }

    fn visit(&self, address: NodeAddress, look: &mut dyn FnMut(&Node)) -> Result<()> {
        match self.database.nodes.with(address.0, &mut *look) {
            Some(()) => Ok(()),
            None => self.miss(address).map(|node| look(&node)),
        }
    }

    fn read_many(&self, addresses: &[NodeAddress]) -> Result<Vec<Node>> {
        self.fetch_many(addresses)
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        let offset = address.0.saturating_mul(self.database.node_bytes());
        self.database.damage(offset, what)
    }
}

/// Reads nodes for a walk over a whole tree: what is cached serves, and nothing
/// is put into the cache, where it would push out what readers use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassingNodes<'a>(pub Nodes<'a>);

impl NodeReader for PassingNodes<'_> {
    fn node_bytes(&self) -> usize {
        self.0.node_bytes()
    }

    fn read(&self, address: NodeAddress) -> Result<Node> {
        match self.0.database.nodes.get(address.0) {
            Some(node) => Ok(node),
            None => self.0.read_from_file(address),
        }
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        self.0.corrupt(address, what)
    }
}

/// A run that is being filled.
#[derive(Debug)]
struct Run {
    first: u64,
    capacity: u32,
    filled: u32,
    /// Of those, how many are in the file; `bytes` has the others.
    written: u32,
    bytes: Vec<u8>,
}

/// The place where nodes were appended last; the next append to the same file begins there.
#[derive(Debug, Default)]
pub(crate) struct OpenRun {
    /// What is left of the last run.
    run: Option<Run>,
    /// How many nodes the run after it has.
    next: u32,
    /// How many nodes the last changes took, where as many are expected of the next ones.
    last: u64,
    /// Where the log ended when the last one was taken.
    taken_at: u64,
}

impl OpenRun {
    /// So many nodes are expected, unless more is known.
    pub fn expect(&mut self, nodes: u64) {
        if self.last == 0 {
            self.last = nodes;
        }
    }
}

/// A run is not gone on with when this much lies after it: its place may be on its
/// way to the device.
pub(crate) const FARTHEST_BACK: u64 = 1 << 20;

impl Core {
    /// The nodes of a database file.
    #[inline]
    pub fn nodes<'a>(&'a self, database: &'a Database) -> Nodes<'a> {
        Nodes {
            core: self,
            database,
        }
    }

    /// The same for a walk over a whole tree.
    pub fn nodes_in_passing<'a>(&'a self, database: &'a Database) -> PassingNodes<'a> {
        PassingNodes(self.nodes(database))
    }

    /// Takes space for blocks in the log while writers go on; answers where they begin.
    /// After a failure the log may hold the record of blocks that it does not leave out:
    /// recovery would step over a write that lay there. So writes stop before the next
    /// writer has the lock.
    pub fn take_blocks(&self, database: &Database, kind: u8, count: u32) -> Result<u64> {
        let writer = lock(&self.writer);
        let sequence = writer.next_sequence - 1;
        let taken = self
            .reserve(database, database.bytes_of_run(kind, count))
            .and_then(|()| database.take_blocks(kind, count, sequence, writer.session));
        taken.map_err(|error| match self.has_bug(SeededBug::WritesBehindLostRun) {
            true => error,
            false => self.health.unless_full(error),
        })
    }
}

/// Appends nodes to a database file.
pub(crate) struct NodeRuns<'a> {
    core: &'a Core,
    pub database: &'a Database,
    run: Option<Run>,
    /// How many nodes the next run has.
    next_run: u32,
    /// How many are expected, as the last changes took so many; 0: not known.
    expected: u64,
    /// Where the log ended when the last one was taken.
    taken_at: u64,
    /// Set where the caller holds the writer lock.
    exclusive: Option<(u64, u32)>,
    /// Takes blocks first that earlier flushes have left.
    reuses: bool,
    /// The runs that were taken.
    pub taken: Vec<RunExtent>,
    /// Blocks that the log has grown by.
    pub grown: u64,
    /// What was appended and not retired since, and how many.
    pub appended: u64,
    /// Nodes that the new root no longer reaches.
    pub retired: Vec<NodeAddress>,
}

impl<'a> NodeRuns<'a> {
    /// For a flush of so many changes.
    pub fn new(core: &'a Core, database: &'a Database, changes: u64) -> Self {
        let mut runs = NodeRuns {
            core,
            database,
            run: None,
            next_run: 1,
            expected: 0,
            taken_at: 0,
            exclusive: None,
            reuses: false,
            grown: 0,
            taken: Vec::new(),
            appended: 0,
            retired: Vec::new(),
        };
        runs.expect(changes);
        runs
    }

    /// The same, to blocks of earlier nodes as long as there are any.
    #[must_use]
    pub fn reusing(mut self) -> Self {
        self.reuses = true;
        self
    }

    /// So many changes more are coming.
    pub fn expect(&mut self, changes: u64) {
        let wanted = changes.saturating_add(1).min(u64::from(FIRST_RUN)) as u32;
        self.next_run = self.next_run.max(wanted);
    }

    /// The same where the caller holds the writer lock, or no other thread has the
    /// file yet: with the last sequence number and the session.
    #[must_use]
    pub fn exclusive(mut self, sequence: u64, session: u32) -> Self {
        self.exclusive = Some((sequence, session));
        self
    }

    /// The same with what is left of a run, unless that lies far back.
    #[must_use]
    pub fn continuing(mut self, open: OpenRun) -> Self {
        self.expected = open.last;
        // Small trees share runs, which grow with their number.
        let next = match self.expected > u64::from(FIRST_RUN) {
            true => FIRST_RUN,
            false => open.next,
        };
        if self.database.log.end().saturating_sub(open.taken_at) < FARTHEST_BACK {
            self.next_run = next.max(self.next_run);
            self.run = open.run;
            self.taken_at = open.taken_at;
        }
        self
    }

    /// What is left of the last run, and the nodes that the new root no longer
    /// reaches. Call it after [`Self::finish`]: nodes that are not written are missing.
    pub fn into_open(self) -> (OpenRun, Vec<NodeAddress>) {
        debug_assert!(self.run.as_ref().is_none_or(|run| run.bytes.is_empty()));
        let open = OpenRun {
            run: self.run,
            next: self.next_run,
            last: self.appended,
            taken_at: self.taken_at,
        };
        (open, self.retired)
    }

    fn nodes(&self) -> Nodes<'_> {
        self.core.nodes(self.database)
    }

    fn take_run(&mut self) -> Result<Run> {
        let left = match self.reuses {
            true => self.database.node_space.take(LARGEST_RUN),
            false => None,
        };
        let extent = match left {
            Some(extent) => extent,
            None => self.append_run()?,
        };
        self.taken.push(extent);
        let bytes = extent.count as usize * self.database.shape.node_bytes as usize;
        Ok(Run {
            first: extent.first.0,
            capacity: extent.count,
            filled: 0,
            written: 0,
            bytes: Vec::with_capacity(bytes),
        })
    }

    /// How many nodes the next run has: as many as are still expected; once these are few,
    /// twice as many each time.
    fn run_length(&mut self) -> u32 {
        let left = self.expected.saturating_sub(self.appended);
        if left > u64::from(FIRST_RUN) {
            return left.min(u64::from(LARGEST_RUN)) as u32;
        }
        let count = self.next_run;
        self.next_run = (count * 2).min(LARGEST_RUN);
        count
    }

    fn append_run(&mut self) -> Result<RunExtent> {
        let count = self.run_length();
        let first = match self.exclusive {
            Some((sequence, session)) => {
                self.database
                    .take_blocks(kind::NODES, count, sequence, session)?
            }
            None => (self.core).take_blocks(self.database, kind::NODES, count)?,
        };
        self.taken_at = self.database.log.end();
        self.grown += u64::from(count);
        Ok(RunExtent {
            first: NodeAddress(first / self.database.node_bytes()),
            count,
        })
    }

    /// Writes what is not written yet. Nothing is durable before a sync.
    pub fn finish(&mut self) -> Result<()> {
        if let Some(run) = self.run.as_mut().filter(|run| !run.bytes.is_empty()) {
            let first = run.first + u64::from(run.written);
            let offset = first * self.database.node_bytes();
            self.database.log.file().write_at(&run.bytes, offset)?;
            run.written = run.filled;
            run.bytes.clear();
        }
        self.run = self.run.take().filter(|run| run.filled < run.capacity);
        Ok(())
    }

    /// Blocks of the last run that are not filled.
    pub fn rest(&self) -> Option<RunExtent> {
        self.run.as_ref().map(|run| RunExtent {
            first: NodeAddress(run.first + u64::from(run.filled)),
            count: run.capacity - run.filled,
        })
    }

    fn pending(&self, address: NodeAddress) -> Option<&[u8]> {
        let run = self.run.as_ref()?;
        let place = address.0.checked_sub(run.first + u64::from(run.written))?;
        let bytes = self.database.shape.node_bytes as usize;
        let start = (place as usize).checked_mul(bytes)?;
        run.bytes.get(start..start.checked_add(bytes)?)
    }
}

impl NodeReader for NodeRuns<'_> {
    fn node_bytes(&self) -> usize {
        self.database.shape.node_bytes as usize
    }

    fn read(&self, address: NodeAddress) -> Result<Node> {
        match self.pending(address) {
            Some(content) => self.nodes().kept(address, content),
            None => self.nodes().fetch(address),
        }
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        self.nodes().corrupt(address, what)
    }
}

impl NodeWriter for NodeRuns<'_> {
    fn append(&mut self, mut content: Vec<u8>) -> Result<NodeAddress> {
        debug_assert_eq!(content.len(), self.node_bytes());
        if self
            .run
            .as_ref()
            .is_some_and(|run| run.filled == run.capacity)
        {
            self.finish()?;
        }
        let mut run = match self.run.take() {
            Some(run) => run,
            None => self.take_run()?,
        };
        let address = NodeAddress(run.first + u64::from(run.filled));
        format::seal_node(&mut content, self.database.log.seed(), address);
        run.bytes.extend_from_slice(&content);
        run.filled += 1;
        self.run = Some(run);
        self.appended += 1;
        self.core
            .counters
            .node_bytes
            .fetch_add(content.len() as u64, Ordering::Relaxed);
        let node = self.nodes().kept(address, &content)?;
        self.database.nodes.put(address.0, &node);
        Ok(address)
    }

    fn retire(&mut self, address: NodeAddress) {
        self.retired.push(address);
    }
}
