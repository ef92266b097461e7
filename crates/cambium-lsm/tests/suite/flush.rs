//! A flush on demand ends, whatever others seal meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use cambium_base::{Result, StoreId};
use cambium_io::Environment;
use cambium_io::simulated::SimulatedDisk;
use cambium_lsm::{DropObserver, DroppedEntry, JobKind, Lookup, Options, Owner, Tree};

/// Seals another memtable at each flush, as somebody else might.
#[derive(Debug, Default)]
struct Busy {
    tree: OnceLock<Weak<Tree>>,
    flushes: AtomicU64,
}

#[derive(Debug)]
struct Nothing;

impl DropObserver for Nothing {
    fn dropped(&mut self, _: DroppedEntry<'_>) {}

    fn into_note(self: Box<Self>, _: &[Vec<u8>]) -> Vec<u8> {
        Vec::new()
    }
}

/// After so many flushes it seals no more, so that a test that fails ends.
const MOST_FLUSHES: u64 = 20;

impl Owner for Busy {
    fn protected_moments(&self) -> Vec<u64> {
        vec![u64::MAX]
    }

    fn begin_job(&self, _: JobKind) -> Box<dyn DropObserver> {
        Box::new(Nothing)
    }

    fn before_flush(&self, _: &[Vec<u8>]) -> Result<()> {
        let flushes = self.flushes.fetch_add(1, Ordering::Relaxed) + 1;
        if flushes < MOST_FLUSHES {
            let tree = self.tree.get().and_then(Weak::upgrade).unwrap();
            tree.writer().put(flushes + 1, b"key", b"later");
            tree.seal(Vec::new());
        }
        Ok(())
    }

    fn committed(&self, _: &[u8], _: bool) -> Result<()> {
        Ok(())
    }

    fn full_note(&self) -> Vec<u8> {
        Vec::new()
    }
}

#[test]
fn a_flush_leaves_what_is_sealed_meanwhile() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let owner = Arc::new(Busy::default());
    let folder = Path::new("/tree");
    let options = Options::default();
    let tree = Tree::create(
        &environment,
        folder,
        StoreId([7; 16]),
        &options,
        owner.clone(),
    );
    let tree = tree.unwrap();
    owner.tree.set(Arc::downgrade(&tree)).unwrap();
    tree.writer().put(1, b"key", b"first");
    tree.seal(Vec::new());
    tree.flush().unwrap();
    assert_eq!(owner.flushes.load(Ordering::Relaxed), 1);
    assert!(tree.has_sealed(), "what came meanwhile is there still");
    let found = tree.get(b"key", u64::MAX).unwrap();
    assert!(
        matches!(found, Lookup::Found { sequence: 2, .. }),
        "{found:?}"
    );
}
