//! Stand-in.
use cambium_base::Result;
use cambium_base::coding::Decoder;
use cambium_index::{NODE_TRAILER_BYTES, NodeAddress, NodeReader, NodeWriter};

use crate::core::Core;
use crate::database::Database;
use crate::document::DocumentAddress;
use crate::options::Shape;

/// What happens to a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Put(DocumentAddress),
    Remove,
}

/// The index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index {}

/// Documents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys<'a> {
    pub core: &'a Core,
    pub database: &'a Database,
}

#[derive(Debug)]
pub(crate) struct IndexCursor {
    root: NodeAddress,
    entries: Vec<(Vec<u8>, DocumentAddress)>,
    at: usize,
}

/// What a check found.
#[derive(Debug, Default)]
pub(crate) struct IndexReport {
    pub problems: Vec<cambium_base::Error>,
    pub nodes: u64,
    pub documents: Vec<DocumentAddress>,
}

type Entries = Vec<(Vec<u8>, DocumentAddress)>;

fn load(nodes: &dyn NodeReader, root: NodeAddress, seen: &mut Vec<NodeAddress>) -> Result<Entries> {
    let mut bytes = Vec::new();
    let mut at = root.0;
    while at != 0 {
        let address = NodeAddress(at);
        if seen.contains(&address) {
            return Err(nodes.corrupt(address, "loop".into()));
        }
        seen.push(address);
        let node = nodes.read(address)?;
        let mut decoder = Decoder::new(&node);
        let bad = || nodes.corrupt(address, "bad".into());
        at = decoder.u64().ok_or_else(bad)?;
        bytes.extend_from_slice(decoder.length_prefixed().ok_or_else(bad)?);
    }
    let mut entries = Vec::new();
    let mut decoder = Decoder::new(&bytes);
    while decoder.remaining() > 0 {
        let bad = || nodes.corrupt(root, "bad".into());
        let key = decoder.length_prefixed().ok_or_else(bad)?.to_vec();
        entries.push((key, DocumentAddress(decoder.u64().ok_or_else(bad)?)));
    }
    Ok(entries)
}

impl Index {
    pub fn new(_: &Shape) -> Self {
        Index {}
    }

    pub fn find(
        &self,
        nodes: &dyn NodeReader,
        root: NodeAddress,
        key: &[u8],
    ) -> Result<Option<DocumentAddress>> {
        let entries = load(nodes, root, &mut Vec::new())?;
        let place = entries.binary_search_by(|(other, _)| other.as_slice().cmp(key));
        Ok(place.ok().map(|place| entries[place].1))
    }

    pub fn find_many(
        &self,
        nodes: &dyn NodeReader,
        root: NodeAddress,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<DocumentAddress>>> {
        keys.iter().map(|key| self.find(nodes, root, key)).collect()
    }

    pub fn apply<W: NodeWriter>(
        &self,
        writer: &mut W,
        _documents: &Keys<'_>,
        root: Option<NodeAddress>,
        changes: Vec<(Vec<u8>, Change)>,
        replaced: &mut dyn FnMut(DocumentAddress),
    ) -> Result<Option<NodeAddress>> {
        let mut seen = Vec::new();
        let entries = match root {
            Some(root) => load(writer, root, &mut seen)?,
            None => Vec::new(),
        };
        let mut map: std::collections::BTreeMap<Vec<u8>, DocumentAddress> =
            entries.into_iter().collect();
        for (key, change) in changes {
            let old = match change {
                Change::Put(address) => map.insert(key, address),
                Change::Remove => map.remove(&key),
            };
            if let Some(old) = old {
                replaced(old);
            }
        }
        seen.into_iter().for_each(|address| writer.retire(address));
        let mut bytes = Vec::new();
        for (key, address) in map {
            cambium_base::coding::put_length_prefixed(&mut bytes, &key);
            bytes.extend_from_slice(&address.0.to_le_bytes());
        }
        let room = writer.node_bytes() - NODE_TRAILER_BYTES - 12;
        let mut next = 0u64;
        for piece in bytes.chunks(room).rev() {
            let mut content = next.to_le_bytes().to_vec();
            cambium_base::coding::put_length_prefixed(&mut content, piece);
            content.resize(writer.node_bytes(), 0);
            next = writer.append(content)?.0;
        }
        Ok((next != 0).then_some(NodeAddress(next)))
    }

    pub fn cursor(&self, root: NodeAddress) -> IndexCursor {
        IndexCursor {
            root,
            entries: Vec::new(),
            at: 0,
        }
    }

    pub fn check(&self, nodes: &dyn NodeReader, _: &Keys<'_>, root: NodeAddress) -> Result<IndexReport> {
        let mut seen = Vec::new();
        let mut report = IndexReport::default();
        match load(nodes, root, &mut seen) {
            Ok(entries) => report.documents = entries.into_iter().map(|(_, a)| a).collect(),
            Err(error) => report.problems.push(error),
        }
        report.nodes = seen.len() as u64;
        Ok(report)
    }
}

impl IndexCursor {
    /// Before the first, or behind the last.
    pub fn begin(&mut self, nodes: &dyn NodeReader, forward: bool) -> Result<()> {
        self.entries = load(nodes, self.root, &mut Vec::new())?;
        self.at = if forward { 0 } else { self.entries.len() };
        Ok(())
    }

    /// So that next answers the first at or behind key; previous the last at or before... 
    pub fn seek(
        &mut self,
        nodes: &dyn NodeReader,
        _: &Keys<'_>,
        key: &[u8],
        forward: bool,
    ) -> Result<()> {
        self.begin(nodes, true)?;
        self.at = self.entries.partition_point(|(other, _)| {
            if forward {
                other.as_slice() < key
            } else {
                other.as_slice() <= key
            }
        });
        Ok(())
    }

    pub fn advance(&mut self, _: &dyn NodeReader, forward: bool) -> Result<Option<DocumentAddress>> {
        if forward {
            let entry = self.entries.get(self.at);
            self.at += 1;
            Ok(entry.map(|(_, address)| *address))
        } else {
            if self.at == 0 {
                return Ok(None);
            }
            self.at -= 1;
            Ok(self.entries.get(self.at).map(|(_, address)| *address))
        }
    }
}

impl Index {
    pub fn dump(&self, nodes: &dyn NodeReader, _: &Keys<'_>, root: NodeAddress) -> Result<String> {
        Ok(format!("{:?}", load(nodes, root, &mut Vec::new())?.len()))
    }
}

impl From<Option<DocumentAddress>> for Change {
    fn from(document: Option<DocumentAddress>) -> Self {
        document.map_or(Change::Remove, Change::Put)
    }
}
