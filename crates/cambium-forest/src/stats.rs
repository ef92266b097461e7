//! What `stats` answers.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use cambium_api::{Direction, KeyRange, Statistics};
use cambium_base::Result;
use cambium_index::NodeAddress;
use cambium_io::sync::atomic::Ordering;

use crate::buffer::Buffer;
use crate::core::{Core, lock};
use crate::counters::of;
use crate::document::DocumentAddress;
use crate::pieces::Source;
use crate::ranges::RangeSet;
use crate::view::{Pin, View};

/// The shape of an index of more nodes than this is left out of the statistics:
/// it would have to be read whole. `check` tells it.
const MOST_NODES_WALKED: u64 = 1 << 12;

/// Keys of a write buffer that are looked up together.
const READ_TOGETHER: usize = 1024;

type Key = Box<[u8]>;

/// Keys of the buffers from a bound on, in order, and the document of each that is there;
/// with the last of them if there may be more. The newest buffer comes first.
fn buffered(
    buffers: &[&Arc<Buffer>],
    namespace: u16,
    from: Bound<Key>,
    sequence: u64,
) -> (BTreeMap<Key, Option<DocumentAddress>>, Option<Key>) {
    let mut found = BTreeMap::new();
    let mut last: Option<Key> = None;
    let mut newer: Vec<&Arc<Buffer>> = Vec::new();
    for buffer in buffers {
        let from = from.as_ref().map(|key| &**key);
        let run = buffer.run(namespace, from, Direction::Forward, sequence, READ_TOGETHER);
        if run.len() == READ_TOGETHER {
            let end = run.last().map(|(key, _)| key.clone());
            // Keys after it may be missing in this buffer's run.
            last = match (last, end) {
                (Some(last), Some(end)) => Some(last.min(end)),
                (last, end) => last.or(end),
            };
        }
        for (key, version) in run {
            let hidden = newer
                .iter()
                .any(|newer| newer.hides(namespace, &key, sequence));
            let known = found.entry(key);
            known.or_insert(version.document.filter(|_| !hidden));
        }
        newer.push(*buffer);
    }
    if let Some(last) = &last {
        found.retain(|key, _| key <= last);
    }
    (found, last)
}

impl Core {
    /// The store's statistics.
    pub fn statistics(&self) -> Result<Statistics> {
        self.check_open()?;
        let mut all = Statistics::default();
        let view = self.view.load_full();
        all.text("engine", "forest", "the engine of this store");
        self.size_statistics(&view, &mut all)?;
        self.index_statistics(&view, &mut all)?;
        self.memory_statistics(&view, &mut all);
        self.compaction_statistics(&mut all);
        self.traffic_statistics(&view, &mut all);
        Ok(all)
    }

    fn size_statistics(&self, view: &View, all: &mut Statistics) -> Result<()> {
        let roots = view.roots.namespaces.values();
        let entries = self.count_entries(view)?;
        let document_bytes = roots.clone().map(|root| root.document_bytes).sum();
        let nodes: u64 = roots.map(|root| root.nodes).sum();
        all.count("entries", entries, "keys with a value");
        all.count(
            "namespaces",
            self.namespaces().len() as u64,
            "namespaces, the default one included",
        );
        let (snapshots, kept) = {
            let maintenance = lock(&self.maintenance);
            let kept = self.kept_bytes(&maintenance.header, self.live_bytes(view));
            (maintenance.header.snapshots.len(), kept)
        };
        all.count(
            "named_snapshots",
            snapshots as u64,
            "states kept under a name",
        );
        let used = view.database.log.used_bytes();
        let node_bytes = nodes * view.database.node_bytes();
        all.bytes(
            "file_bytes",
            used,
            "bytes of the database file between what was given back and its end",
        );
        all.bytes(
            "live_document_bytes",
            document_bytes,
            "bytes of live documents, rounded up by at most an eighth",
        );
        all.bytes("live_node_bytes", node_bytes, "bytes of live index nodes");
        all.bytes(
            "snapshot_bytes",
            kept,
            "bytes of the file that only named snapshots reach, at least",
        );
        let live = (document_bytes + node_bytes + kept).min(used);
        all.bytes(
            "stale_bytes",
            used - live,
            "bytes of the file that neither the newest state nor a named snapshot reaches",
        );
        all.ratio(
            "stale_share",
            used - live,
            used,
            "share of the file that is stale; cleaning and compaction give it back",
        );
        all.bytes(
            "history_bytes",
            self.history.kept_bytes(),
            "bytes of older files that are kept for consumers of the change feed",
        );
        all.count(
            "oldest_change",
            self.history.oldest(),
            "the change feed has everything after this write",
        );
        let mut space = 0;
        for entry in self.environment.file_system.list(&self.path)? {
            let path = self.path.join(&entry.name);
            let metadata = self.environment.file_system.metadata(&path)?;
            space += metadata.map_or(0, |metadata| metadata.allocated);
        }
        all.bytes(
            "space_bytes",
            space,
            "bytes that the store takes on the device, preallocated ones included",
        );
        all.ratio(
            "space_amplification",
            space,
            document_bytes,
            "bytes on the device per byte of live documents",
        );
        Ok(())
    }

    /// Keys with a value: what the indexes hold, and what the write buffers
    /// change of it. Looks the buffers' keys up in the index, whose nodes are
    /// mostly cached, and reads no document for it: fingerprints tell. A run is counted
    /// once.
    fn count_entries(&self, view: &View) -> Result<u64> {
        let sequence = self.visible.load(Ordering::Acquire);
        let mut entries = view.roots.documents() as i64;
        let buffers: Vec<_> = view.buffers().collect();
        let mut namespaces: Vec<u16> = buffers.iter().flat_map(|all| all.namespaces()).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        namespaces.retain(|namespace| view.names.has(*namespace));
        for namespace in namespaces {
            let deleted = view.deleted(namespace, sequence);
            entries -= self.count_hidden(view, namespace, &deleted)?;
            let mut from = Bound::Unbounded;
            loop {
                let (buffered, last) = buffered(&buffers, namespace, from, sequence);
                for (key, document) in buffered {
                    let was_there = !deleted.contains(&key)
                        && match view.run.find(namespace, &key) {
                            Some(packed) => packed.document.is_some(),
                            None => self.is_in_trie(view, namespace, &key)?,
                        };
                    entries += i64::from(document.is_some()) - i64::from(was_there);
                }
                match last {
                    Some(last) => from = Bound::Excluded(last),
                    None => break,
                }
            }
        }
        for namespace in view.run.namespaces().filter(|&own| view.names.has(own)) {
            let more = view
                .run
                .count_added(namespace, || self.count_run(view, namespace));
            entries += more?;
        }
        Ok(entries.max(0) as u64)
    }

    /// How many keys run and trie have in deleted ranges.
    fn count_hidden(&self, view: &View, namespace: u16, deleted: &RangeSet) -> Result<i64> {
        if deleted.is_empty() {
            return Ok(0);
        }
        let mut hidden = match view.root(namespace).root {
            Some(_) if deleted.is_everything() => view.root(namespace).documents as i64,
            Some(root) => self.count_in_trie(view, root, deleted)?,
            None => 0,
        };
        self.each_in_run(view, namespace, |key, more| {
            hidden += if deleted.contains(key) { more } else { 0 };
        })?;
        Ok(hidden)
    }

    /// How many documents the trie has in some ranges. Reads those at their bounds.
    fn count_in_trie(&self, view: &View, root: NodeAddress, ranges: &RangeSet) -> Result<i64> {
        let nodes = self.nodes(&view.database);
        let keys = self.keys(&view.database);
        let mut count = 0;
        for range in ranges.iter() {
            let mut cursor = self.index.cursor(root);
            let end = match &range.to {
                Some(to) => {
                    cursor.seek(&nodes, &keys, to, true)?;
                    cursor.advance(&nodes, true)?
                }
                None => None,
            };
            let from = range.from.as_deref().unwrap_or_default();
            cursor.seek(&nodes, &keys, from, true)?;
            while let Some(document) = cursor.advance(&nodes, true)? {
                if Some(document) == end {
                    break;
                }
                count += 1;
            }
        }
        Ok(count)
    }

    /// How many keys more there are by the sorted run than by the trie.
    fn count_run(&self, view: &View, namespace: u16) -> Result<i64> {
        let mut sum = 0;
        self.each_in_run(view, namespace, |_, more| sum += more)?;
        Ok(sum)
    }

    /// Takes each key of the sorted run, and how many keys more there are by it than by the
    /// trie. Of cut keys the documents are read.
    fn each_in_run(
        &self,
        view: &View,
        namespace: u16,
        mut take: impl FnMut(&[u8], i64),
    ) -> Result<()> {
        let keys = self.keys(&view.database);
        let mut pieces = Source::Run(&view.run).pieces(namespace, self.tuning.flush_bytes);
        loop {
            let piece = pieces.next(&keys)?;
            if piece.is_empty() {
                return Ok(());
            }
            for (key, document) in piece {
                let was_there = self.is_in_trie(view, namespace, &key)?;
                take(&key, i64::from(document.is_some()) - i64::from(was_there));
            }
        }
    }

    /// Whether the trie has a key, by its fingerprint.
    fn is_in_trie(&self, view: &View, namespace: u16, key: &[u8]) -> Result<bool> {
        let nodes = self.nodes(&view.database);
        let found = match view.root(namespace).root {
            None => None,
            Some(root) => self.index.find(&nodes, root, key)?,
        };
        Ok(found.is_some_and(|address| address.may_match(key)))
    }

    fn index_statistics(&self, view: &View, all: &mut Statistics) -> Result<()> {
        let (index, extension) = self.shape.index_words();
        all.text("index", index, "the index over keys");
        if let Some(extension) = extension {
            all.text(
                "leaf_extension",
                extension,
                "when leaf trees of the trie are extended",
            );
        }
        let roots = view.roots.namespaces.values();
        let nodes = roots.map(|root| root.nodes).sum();
        all.count("nodes", nodes, "live index nodes");
        if nodes <= MOST_NODES_WALKED {
            self.shape_statistics(view, all)?;
        }
        all.count(
            "flushes",
            of(&self.counters.flushes),
            "times the write buffer went into the index since the store was opened",
        );
        all.count(
            "writes_replayed",
            of(&self.counters.replayed),
            "writes behind the last header that opening found",
        );
        Ok(())
    }

    /// Height, and nodes by kind: reads every node.
    fn shape_statistics(&self, view: &View, all: &mut Statistics) -> Result<()> {
        let nodes = self.nodes_in_passing(&view.database);
        let (mut height, mut reads, mut documents, mut used) = (0, 0, 0, 0);
        let (mut trie, mut leaf) = ((0, 0), (0, 0));
        for root in view.roots.namespaces.values() {
            let Some(address) = root.root else { continue };
            let shape = self.index.statistics(&nodes, address)?;
            height = height.max(shape.height);
            reads += shape.node_reads;
            documents += shape.documents;
            used += shape.trie_trees.used_bytes + shape.leaf_trees.used_bytes;
            trie = (
                trie.0 + shape.trie_trees.trees,
                trie.1 + shape.trie_trees.nodes,
            );
            leaf = (
                leaf.0 + shape.leaf_trees.trees,
                leaf.1 + shape.leaf_trees.nodes,
            );
        }
        all.count(
            "index_height",
            height,
            "nodes on the longest way to a document",
        );
        all.ratio(
            "nodes_per_lookup",
            reads,
            documents,
            "mean nodes on the way to a document",
        );
        all.count("trie_trees", trie.0, "trees whose keys are chunks");
        all.count("trie_tree_nodes", trie.1, "their nodes");
        all.count("leaf_trees", leaf.0, "trees whose keys are suffixes");
        all.count("leaf_tree_nodes", leaf.1, "their nodes");
        let bytes = (trie.1 + leaf.1) * view.database.node_bytes();
        all.ratio(
            "node_fill_share",
            used,
            bytes,
            "share of the nodes' bytes in use",
        );
        Ok(())
    }

    fn memory_statistics(&self, view: &View, all: &mut Statistics) {
        let entries = view.buffers().map(|buffer| buffer.len()).sum();
        let bytes = view.buffers().map(|buffer| buffer.bytes()).sum();
        all.count(
            "write_buffer_entries",
            entries,
            "writes in the log that are not in the index yet",
        );
        all.bytes("write_buffer_bytes", bytes, "memory that they take");
        all.count(
            "packed_entries",
            view.run.entries(),
            "keys of earlier write buffers that are packed, and not in the index yet",
        );
        all.bytes("packed_bytes", view.run.bytes(), "memory that they take");
        all.count(
            "packed_buffers",
            of(&self.counters.packs),
            "write buffers that were packed in place of going into the index by themselves",
        );
        all.count(
            "writer_stalls",
            of(&self.counters.stalls),
            "times a writer had to wait for a flush, since both buffers were full",
        );
        let database = &view.database;
        all.bytes(
            "cache_bytes",
            self.home.cache.bytes(),
            "memory of cached blocks; of all stores that share the cache",
        );
        let (hits, misses) = database.nodes.hits_and_misses();
        all.ratio(
            "node_cache_hit_share",
            hits,
            hits + misses,
            "share of node lookups that the cache answered, since this file was opened",
        );
        let (hits, misses) = database.documents.hits_and_misses();
        all.ratio(
            "document_cache_hit_share",
            hits,
            hits + misses,
            "share of lookups of document blocks that the cache answered",
        );
        all.bytes(
            "address_bytes",
            view.known.bytes(),
            "of the cache, memory for addresses of documents by their keys",
        );
        all.count(
            "lookups_by_address",
            self.counters.by_address.sum(),
            "lookups whose document's address was known: they read no node",
        );
        if let Some(plan) = self.memory.get() {
            plan.statistics(all);
        }
    }

    fn compaction_statistics(&self, all: &mut Statistics) {
        let counters = &self.counters;
        all.count(
            "cleanings",
            of(&counters.cleanings),
            "flushes since the store was opened that took stale space back",
        );
        all.count(
            "compactions",
            of(&counters.compactions),
            "compactions since the store was opened",
        );
        all.count(
            "failed_flushes",
            of(&counters.failed_flushes),
            "attempts since then to take a write buffer out of the way that failed",
        );
        if let Some(failure) = lock(&counters.last_failed_flush).as_ref() {
            all.text("last_failed_flush", failure, "why the last of these failed");
        }
        all.count(
            "failed_compactions",
            of(&counters.failed_compactions),
            "compactions that began by themselves since then, or should have, and failed",
        );
        if let Some(failure) = lock(&counters.last_failure).as_ref() {
            all.text(
                "last_failed_compaction",
                failure,
                "why the last of these failed",
            );
        }
        all.bytes(
            "compaction_needs_bytes",
            self.compaction_needs_now(),
            "free bytes of the device that a compaction would ask for now",
        );
        all.count(
            "writer_delays",
            of(&counters.delays),
            "writes that were held back, since a flush or a compaction was behind",
        );
        all.ratio(
            "writer_delay_seconds",
            of(&counters.delayed_nanoseconds),
            1_000_000_000,
            "seconds that they waited, all together",
        );
        let Some(last) = lock(&counters.last_compaction).clone() else {
            return;
        };
        let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
        for (name, seconds, meaning) in [
            (
                "compaction_seconds_tree_search",
                last.phases.tree_search,
                "of the last compaction: seconds of finding what is live",
            ),
            (
                "compaction_seconds_sort",
                last.phases.sort,
                "of the last compaction: seconds of putting it into the order of reading",
            ),
            (
                "compaction_seconds_read",
                last.phases.read,
                "of the last compaction: seconds with reads outstanding",
            ),
            (
                "compaction_seconds_write",
                last.phases.write,
                "of the last compaction: seconds of writing documents",
            ),
            (
                "compaction_seconds_flush_and_commit",
                last.phases.flush_and_commit,
                "of the last compaction: seconds of the index, catching up and the switch",
            ),
        ] {
            all.ratio(name, nanoseconds(seconds), 1_000_000_000, meaning);
        }
        all.count(
            "compaction_read_operations",
            last.read_operations,
            "reads of the last compaction",
        );
        all.bytes(
            "compaction_bytes_read",
            last.bytes_read,
            "bytes that the last compaction read",
        );
    }

    fn traffic_statistics(&self, view: &View, all: &mut Statistics) {
        let traffic = self.counters.traffic();
        all.bytes(
            "user_bytes_written",
            traffic.user,
            "keys and values written since the store was made",
        );
        all.bytes(
            "document_bytes_written",
            traffic.log,
            "bytes of documents written to the log",
        );
        all.bytes(
            "node_bytes_written",
            traffic.nodes,
            "bytes of index nodes written",
        );
        all.bytes(
            "header_bytes_written",
            traffic.headers,
            "bytes of headers written",
        );
        all.bytes(
            "compaction_bytes_written",
            traffic.compaction,
            "bytes that compactions wrote",
        );
        let written = traffic.log + traffic.nodes + traffic.headers + traffic.compaction;
        all.ratio(
            "write_amplification",
            written,
            traffic.user,
            "bytes written to the device per byte that users wrote",
        );
        all.count(
            "syncs",
            of(&self.counters.syncs),
            "syncs since the store was opened",
        );
        let node_reads = of(&self.counters.node_reads);
        let document_reads = of(&self.counters.document_reads);
        all.count("node_reads", node_reads, "nodes read from the file");
        all.count(
            "document_reads",
            document_reads,
            "documents read from the file",
        );
        all.ratio(
            "reads_per_get",
            node_reads + document_reads,
            of(&self.counters.gets),
            "reads of the file per key looked up",
        );
        all.count(
            "block_bytes",
            u64::from(view.database.shape.block_bytes),
            "unit of padding after a sync",
        );
    }

    /// About how many bytes the entries of a range take.
    pub fn approximate_size(
        self: &std::sync::Arc<Self>,
        namespace: u16,
        range: &KeyRange,
    ) -> Result<u64> {
        let pin = self.pin()?.of(namespace)?;
        let in_trie = self.trie_bytes(&pin.view, namespace, range)?;
        let buffered = buffered_bytes(&pin, namespace, range);
        // Buffered entries replace some of the trie's, or none. Half of the lesser part is at
        // most a half too much or a third too little, and never sinks when the range grows.
        Ok(in_trie.max(buffered) + in_trie.min(buffered) / 2)
    }

    /// Bytes of the documents that the trie has in a range: exact for some, beyond by the
    /// share of the trie that lies between the range's ends.
    fn trie_bytes(&self, view: &View, namespace: u16, range: &KeyRange) -> Result<u64> {
        const COUNTED: u64 = 50_000;
        let all = view.root(namespace);
        let is_empty = |to: &Vec<u8>| range.from.as_ref().is_some_and(|from| from >= to);
        let Some(root) = all
            .root
            .filter(|_| !range.to.as_ref().is_some_and(is_empty))
        else {
            return Ok(0);
        };
        let nodes = self.nodes(&view.database);
        let keys = self.keys(&view.database);
        let (mut behind, mut share) = (None, 1.0);
        if let Some(to) = &range.to {
            let mut end = self.index.cursor(root);
            end.seek(&nodes, &keys, to, true)?;
            (behind, share) = (end.document(), end.share_before(&nodes)?);
        }
        let mut cursor = self.index.cursor(root);
        cursor.seek(
            &nodes,
            &keys,
            range.from.as_deref().unwrap_or_default(),
            true,
        )?;
        share -= cursor.share_before(&nodes)?;
        let (mut entries, mut bytes, mut ended) = (0, 0, false);
        while entries < COUNTED && !ended {
            let more = cursor.advance_many(&nodes, true, |document| {
                if Some(document) == behind {
                    ended = true;
                } else {
                    entries += 1;
                    bytes += document.most_bytes();
                }
                entries < COUNTED && !ended
            })?;
            ended |= !more;
        }
        if ended {
            return Ok(bytes);
        }
        // A larger range never answers less than the documents that were counted of a part.
        Ok(((all.document_bytes as f64 * share) as u64).max(bytes))
    }
}

/// Bytes of the documents that write buffers and sorted run have in a range: of each key the
/// newest.
fn buffered_bytes(pin: &Pin, namespace: u16, range: &KeyRange) -> u64 {
    let buffers: Vec<_> = pin.view.buffers().collect();
    let mut documents: Vec<DocumentAddress> = Vec::new();
    let first = range.from.as_deref();
    let mut from = first.map_or(Bound::Unbounded, |from| Bound::Included(from.into()));
    loop {
        let (some, last) = buffered(&buffers, namespace, from, pin.sequence);
        let inside = some.into_iter().filter(|(key, _)| range.contains(key));
        documents.extend(inside.filter_map(|(_, document)| document));
        match last.filter(|last| range.contains(last)) {
            Some(last) => from = Bound::Excluded(last),
            None => break,
        }
    }
    let run = &pin.view.run;
    let block = first.and_then(|from| run.block_of(namespace, from));
    let in_run = (block.unwrap_or(0)..run.blocks(namespace))
        .flat_map(|block| run.block(namespace, block))
        .skip_while(|entry| first.is_some_and(|from| *entry.known < *from))
        .take_while(|entry| range.contains(&entry.known));
    let is_newest = |key: &[u8]| {
        let mut versions = buffers
            .iter()
            .map(|buffer| buffer.get_at(namespace, key, pin.sequence));
        versions.all(|version| version.is_none())
    };
    let in_run = in_run.filter(|entry| is_newest(&entry.known));
    documents.extend(in_run.filter_map(|entry| entry.document));
    documents.into_iter().map(DocumentAddress::most_bytes).sum()
}
