//! An index in a file, its nodes read with direct I/O: figures 12b and 13b of
//! ForestDB 2016.
//!
//! The live nodes of a built index are written to a file one after another, as
//! an index that updates in place would have them; then random keys are looked
//! up, and every node that a lookup needs is one read of the device, which no
//! cache answers ("we enable the O_DIRECT flag in order to make all tree node
//! reads incur actual disk access").
//!
//! ```text
//!  file:  node 0 │ node 1 │ node 2 │ ...      one live node a block, no header
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cambium_base::{Error, Result as IndexResult};
use cambium_index::hbtrie::{self, Documents};
use cambium_index::{Node, NodeAddress, NodeReader};
use cambium_io::{Advice, AlignedBuffer, Environment, File, OpenOptions};

use super::{Built, Experiment, IndexShape, LiveNodes, Numbered, UPPER_BITS, built};
use crate::driver::clock::Clock;
use crate::key_patterns::Keys;
use crate::random::{Random, mix_two};

/// Purpose of the seed: keys that are looked up.
const LOOKUPS: u64 = 0x6C6F_6F6B;

/// Bytes written in one call.
const WRITE_BYTES: usize = 1 << 20;

/// What lookups on a disk cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnDisk {
    /// The index, as it is in memory.
    pub shape: IndexShape,
    /// Bytes of the file: those of all live nodes.
    pub file_bytes: u64,
    /// Lookups made.
    pub lookups: u64,
    /// Device reads of one, in the mean.
    pub reads: f64,
    /// Nanoseconds of one, in the mean.
    pub nanoseconds: f64,
    /// False if the file could not be read past the page cache, and latencies
    /// are of no disk.
    pub direct: bool,
}

/// Builds an index, puts it into a file, and looks `lookups` random keys up.
/// The file is removed in the end.
///
/// # Errors
/// Those of the index and of the file; `Corruption` if a lookup finds another
/// document than that of its key.
pub fn measure(experiment: &Experiment, path: &Path, lookups: u64) -> IndexResult<OnDisk> {
    let built = built(experiment)?;
    let outcome = look_up(experiment, built, path, lookups);
    let removed = Environment::real().file_system.remove(path);
    let measured = outcome?;
    removed?;
    Ok(measured)
}

fn look_up(
    experiment: &Experiment,
    built: Built,
    path: &Path,
    lookups: u64,
) -> IndexResult<OnDisk> {
    let (options, root, shape) = (built.options, built.root, built.shape);
    let placed = Placed::write(path, built.nodes)?;
    let documents = Numbered(Keys::new(experiment.pattern, experiment.seed));
    let mut random = Random::stream(mix_two(experiment.seed, LOOKUPS), 0);
    let clock = Clock::start();
    let mut spent = 0;
    for _ in 0..lookups {
        let number = random.below(experiment.keys) | UPPER_BITS;
        let key = documents.key(number)?;
        let start = clock.now();
        let found = match root {
            Some(root) => hbtrie::find(&placed, &options, root, &key)?,
            None => None,
        };
        spent += clock.now() - start;
        if found != Some(number) {
            let what = format!("a lookup of document {number} found {found:?}");
            return Err(placed.corrupt(root.unwrap_or(NodeAddress(1)), what));
        }
    }
    let mean = |sum: u64| sum as f64 / lookups.max(1) as f64;
    Ok(OnDisk {
        shape,
        file_bytes: placed.file.length()?,
        lookups,
        reads: mean(placed.reads.load(Ordering::Relaxed)),
        nanoseconds: mean(spent),
        direct: placed.direct,
    })
}

/// Nodes in a file, known by their addresses in memory.
#[derive(Debug)]
struct Placed {
    file: Arc<dyn File>,
    node_bytes: usize,
    /// The block of each node, by its address less one; none of a node that
    /// does not live.
    blocks: Vec<Option<u32>>,
    buffer: Mutex<AlignedBuffer>,
    reads: AtomicU64,
    direct: bool,
}

impl Placed {
    /// Writes the nodes that live, and opens their file past all caches where
    /// the file system can.
    fn write(path: &Path, nodes: LiveNodes) -> IndexResult<Placed> {
        let files = Environment::real().file_system;
        let file = files.open(path, OpenOptions::CREATE_NEW)?;
        let node_bytes = nodes.node_bytes;
        let mut blocks = Vec::with_capacity(nodes.nodes.len());
        let (mut gathered, mut at, mut next) = (Vec::with_capacity(WRITE_BYTES), 0, 0);
        for node in nodes.nodes {
            blocks.push(node.as_ref().map(|_| next));
            let Some(node) = node else { continue };
            next += 1;
            gathered.extend_from_slice(&node);
            if gathered.len() >= WRITE_BYTES {
                file.write_at(&gathered, at)?;
                at += gathered.len() as u64;
                gathered.clear();
            }
        }
        file.write_at(&gathered, at)?;
        file.sync_data()?;
        file.advise(0, file.length()?, Advice::DontNeed);
        let (file, direct) = match files.open(path, OpenOptions::READ.direct()) {
            Ok(direct) => (direct, true),
            Err(_) => (file, false),
        };
        let alignment = file.alignment().memory.max(node_bytes);
        Ok(Placed {
            buffer: Mutex::new(AlignedBuffer::new(node_bytes, alignment)),
            file,
            node_bytes,
            blocks,
            reads: AtomicU64::new(0),
            direct,
        })
    }
}

impl NodeReader for Placed {
    fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    fn read(&self, address: NodeAddress) -> IndexResult<Node> {
        let place = usize::try_from(address.0)
            .ok()
            .and_then(|at| at.checked_sub(1));
        let block = place.and_then(|place| *self.blocks.get(place)?);
        let Some(block) = block else {
            return Err(self.corrupt(address, "no such node lives".to_string()));
        };
        let offset = u64::from(block) * self.node_bytes as u64;
        // Poisoned means that a thread panicked here; its bytes are read over.
        let mut buffer = self.buffer.lock().unwrap_or_else(|lock| lock.into_inner());
        self.file.read_exact_at(&mut buffer, offset)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(Node::from(&buffer[..]))
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        let offset = address.0.saturating_mul(self.node_bytes as u64);
        Error::corruption(self.file.path(), offset, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_shape::STRUCTURES;
    use crate::key_patterns::KeyPattern;

    #[test]
    fn lookups_on_a_disk_read_what_the_shape_says() {
        // Beside the sources: a file system in memory has no direct I/O.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("index");
        for (name, shape) in STRUCTURES {
            let experiment = Experiment {
                pattern: KeyPattern::TwoLevel,
                keys: 5_000,
                shape,
                node_bytes: 4096,
                chunk_bytes: 8,
                batch: 1_000,
                seed: 1,
            };
            let found = measure(&experiment, &path, 300).unwrap();
            assert_eq!(
                found.file_bytes, found.shape.bytes,
                "{name}: live nodes alone"
            );
            let off = found.reads / found.shape.node_reads - 1.0;
            assert!(off.abs() < 0.2, "{name}: {found:?}");
            assert!(found.nanoseconds > 0.0);
            assert!(!path.exists(), "the file is gone");
        }
    }
}
