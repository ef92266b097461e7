//! How a tree of the new file is made ready once all of its documents are there: that of
//! a named snapshot gets its index, and each is compared with the old one.
//!
//! The index of a named snapshot is not made of its documents' keys, which would mean to
//! read what snapshots share once for each of them: it is the old index with other
//! addresses ([`Relocation`]).

use cambium_base::Result;
use cambium_index::hbtrie::Relocation;

use super::Compaction;
use super::copy::Tree;
use super::proof::Account;
use crate::core::Core;
use crate::document::DocumentAddress;
use crate::format::NamespaceRoot;
use crate::index::IndexCursor;
use crate::nodes::NodeRuns;

/// Documents of a new index that a step compares.
const VERIFIED_TOGETHER: u64 = 1 << 16;
/// Entries of an old index that a step brings into the new file.
const RELOCATED_TOGETHER: usize = 1 << 14;

/// A tree whose documents are all in the new file.
#[derive(Debug)]
pub(super) struct Ending {
    /// Its place among those that are copied.
    pub tree: usize,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Relocating(Relocation),
    Verifying(Option<IndexCursor>, Account),
}

impl Ending {
    pub fn new(core: &Core, place: usize, tree: &Tree) -> Self {
        let stage = match (tree.snapshot, tree.old.root) {
            (Some(_), Some(root)) => Stage::Relocating(core.index.relocation(root)),
            _ => Stage::Verifying(None, Account::default()),
        };
        Ending { tree: place, stage }
    }
}

impl Core {
    /// Does a piece of it; answers what is left.
    pub(super) fn end_tree(
        &self,
        compaction: &mut Compaction,
        tree: &Tree,
        ending: Ending,
    ) -> Result<Option<Ending>> {
        let clock = &self.environment.clock;
        let began = clock.monotonic();
        let stage = match ending.stage {
            Stage::Relocating(relocation) => self.relocate(compaction, tree, relocation).map(Some),
            Stage::Verifying(cursor, account) => {
                let rest = self.verify(compaction, tree, cursor, account);
                rest.map(|rest| {
                    rest.map(|(cursor, account)| Stage::Verifying(Some(cursor), account))
                })
            }
        };
        let spent = (clock.monotonic() - began).as_secs_f64();
        compaction.report.phases.flush_and_commit += spent;
        let tree = ending.tree;
        Ok(stage?.map(|stage| Ending { tree, stage }))
    }

    /// Brings a piece of a named snapshot's index into the new file.
    fn relocate(
        &self,
        compaction: &mut Compaction,
        tree: &Tree,
        mut relocation: Relocation,
    ) -> Result<Stage> {
        let (from, to) = (
            compaction.source.view.database.clone(),
            compaction.database.clone(),
        );
        let reader = self.nodes_in_passing(&from);
        let mut runs = NodeRuns::new(self, &to, RELOCATED_TOGETHER as u64)
            .exclusive(compaction.source.sequence, compaction.session)
            .continuing(std::mem::take(&mut compaction.open_run));
        let moved = compaction.moved.as_ref();
        let mut place_of = |old: u64| {
            let place = moved.and_then(|moved| moved.get(&old)).copied();
            let what = "a named snapshot reaches a document that was not carried over";
            place.ok_or_else(|| from.damage(DocumentAddress(old).offset(), what))
        };
        let done = relocation.step(
            &reader,
            &mut runs,
            &mut compaction.relocated,
            &mut place_of,
            RELOCATED_TOGETHER,
        )?;
        runs.finish()?;
        compaction.kept += runs.appended * to.node_bytes();
        compaction.open_run = runs.into_open().0;
        let Some(place) = done else {
            return Ok(Stage::Relocating(relocation));
        };
        *compaction.root(tree.snapshot, tree.namespace) = NamespaceRoot {
            root: Some(place.root),
            nodes: place.nodes,
            ..tree.old
        };
        Ok(Stage::Verifying(None, Account::default()))
    }

    /// Compares a tree's new index with the old one and with what was written;
    /// answers where to go on.
    fn verify(
        &self,
        compaction: &mut Compaction,
        tree: &Tree,
        cursor: Option<IndexCursor>,
        mut account: Account,
    ) -> Result<Option<(IndexCursor, Account)>> {
        let database = compaction.database.clone();
        let nodes = self.nodes_in_passing(&database);
        let root = *compaction.root(tree.snapshot, tree.namespace);
        let mut cursor = match (cursor, root.root) {
            (Some(cursor), _) => Some(cursor),
            (None, None) => None,
            (None, Some(root)) => {
                let mut cursor = self.index.cursor(root);
                cursor.begin(&nodes, true)?;
                Some(cursor)
            }
        };
        let mut ended = cursor.is_none();
        let until = account.documents + VERIFIED_TOGETHER;
        while let Some(cursor) = cursor
            .as_mut()
            .filter(|_| !ended && account.documents < until)
        {
            ended = !cursor.advance_many(&nodes, true, |address| {
                let is_wanted = account.documents < until;
                if is_wanted {
                    account.add(address);
                }
                is_wanted
            })?;
        }
        if let Some(cursor) = cursor.filter(|_| !ended) {
            return Ok(Some((cursor, account)));
        }
        let old = &compaction.source.view.database;
        match tree.source.account.missing_in(&account, &tree.placed) {
            None => Ok(None),
            Some(what) => {
                Err(old.damage(0, format!("a compaction met {what}; nothing was changed")))
            }
        }
    }
}
