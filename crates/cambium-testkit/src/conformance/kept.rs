//! Namespaces and named snapshots against the model, in random histories:
//! batches across namespaces, ranges, snapshots that stay open, compaction and
//! flushes in between, states that are kept, let go and come back.

use std::sync::Arc;

use cambium_api::{CompactOptions, Direction, Durability, Engine, Error, KeyRange, Snapshot};

use super::{
    Bench, Case, OrFail, Outcome, contents, expect, expect_entries, expect_error, expect_value,
};
use crate::history::compare_all_reads;
use crate::holding::{
    Change, Spaces, State, apply, collect, collect_all, collect_snapshot, perform,
};
use crate::workload::{Action, Workload, key_space};

pub(super) const CASES: &[Case] = &[
    (
        "a named snapshot that is being read outlives its name",
        read_after_its_name,
    ),
    (
        "namespaces and named snapshots do what the model does",
        as_the_model_does,
    ),
    (
        "what an engine cannot do with names it refuses",
        refused_where_unable,
    ),
    (
        "a namespace that is dropped is gone, but for snapshots and cursors",
        dropped_namespace,
    ),
    (
        "names that are taken, and names that are not there, are refused",
        refused_names,
    ),
];

/// Actions of a history.
const ACTIONS: u64 = 250;

/// A store and what it should hold.
struct Pair<'b> {
    bench: &'b Bench,
    store: Arc<dyn Engine>,
    state: State,
    snapshots: Vec<(Arc<dyn Snapshot>, State)>,
}

fn as_the_model_does(bench: &Bench) -> Outcome {
    let mut workload = Workload::rich(3, bench.capabilities).with_layer(bench.has_layer());
    let mut pair = Pair {
        bench,
        store: bench.store.clone(),
        state: State::default(),
        snapshots: Vec::new(),
    };
    for number in 0..ACTIONS {
        let action = workload.action();
        let name: String = format!("{action:?}").chars().take(60).collect();
        pair.act(action)
            .map_err(|what| format!("action {number}, {name}: {what}"))?;
    }
    pair.compare()
}

impl Pair<'_> {
    fn act(&mut self, action: Action) -> Outcome {
        match action {
            Action::Write(batch, durability) => {
                let change = Change::Write(batch);
                for namespace in change.preparations(&self.state) {
                    self.state = apply(&self.state, &namespace);
                }
                self.change(change, durability)
            }
            Action::Change(change) if change.is_possible(&self.state) => {
                self.change(change, Durability::Synced)?;
                self.compare()
            }
            // Tried elsewhere.
            Action::Change(_) => Ok(()),
            Action::Sync => self.store.sync().or_fail("sync"),
            Action::Step(budget) => self.store.step(budget).or_fail("step").map(|_| ()),
            Action::Compact => {
                let compacted = self.store.compact(&CompactOptions::default(), &());
                compacted.or_fail("compact")?;
                self.compare()
            }
            Action::OpenSnapshot => {
                let snapshot = self.store.snapshot().or_fail("snapshot")?;
                self.snapshots.push((snapshot, self.state.clone()));
                Ok(())
            }
            Action::CloseSnapshot => self.close_snapshot(),
            Action::Read => self.compare(),
            Action::Reopen | Action::Kill | Action::PowerCut => {
                self.snapshots.clear();
                self.store.close().or_fail("close")?;
                self.store = self.bench.open().or_fail("open")?;
                self.compare()
            }
        }
    }

    fn change(&mut self, change: Change, durability: Durability) -> Outcome {
        self.state = apply(&self.state, &change);
        perform(&*self.store, change, durability)
            .or_fail("change")
            .map(|_| ())
    }

    fn compare(&self) -> Outcome {
        let capabilities = &self.bench.capabilities;
        let found = collect_all(&*self.store, capabilities).or_fail("reading it all")?;
        if !self.state.is(&found) {
            return Err(self.state.differences(&found).join("; "));
        }
        for (name, spaces) in &self.state.kept {
            let kept = self.store.named_snapshot(name);
            let kept = kept.or_fail("opening a named snapshot")?;
            let found = collect_snapshot(&*kept).or_fail("reading a named snapshot")?;
            let found = found.into_iter().map(|(name, all)| (name, Arc::new(all)));
            if found.collect::<Spaces>() != *spaces {
                return Err(format!(
                    "named snapshot {name:?} holds what is not its state"
                ));
            }
        }
        let keys = key_space(capabilities.keys);
        compare_all_reads(&*self.store, &self.state, &keys, capabilities.ordered)
    }

    fn close_snapshot(&mut self) -> Outcome {
        let Some((snapshot, state)) = self.snapshots.pop() else {
            return Ok(());
        };
        let mut found = collect_snapshot(&*snapshot).or_fail("reading a snapshot")?;
        // A namespace that was made later is empty there.
        found.retain(|name, entries| !entries.is_empty() || state.spaces.contains_key(name));
        match state.is_in(&found) {
            true => Ok(()),
            false => Err("a snapshot holds what is not what it began with".to_string()),
        }
    }
}

fn refused_where_unable(bench: &Bench) -> Outcome {
    let store = &bench.store;
    let unsupported = |error: &Error| matches!(error, Error::Unsupported { .. });
    if !bench.capabilities.named_snapshots {
        let made = store.create_named_snapshot("kept");
        expect_error("keeping a state", made, unsupported)?;
        expect_error("rolling back", store.rollback("kept"), unsupported)?;
        let dropped = store.drop_named_snapshot("kept");
        expect_error("dropping a named snapshot", dropped, unsupported)?;
        let read = store.named_snapshot("kept").map(|_| ());
        expect_error("reading a named snapshot", read, unsupported)?;
    }
    if !bench.capabilities.droppable_namespaces {
        let dropped = store.drop_namespace("people");
        expect_error("dropping a namespace", dropped, unsupported)?;
    }
    if !bench.capabilities.namespaces {
        let made = store.namespace("people").map(|_| ());
        expect_error("making a namespace", made, unsupported)?;
    }
    Ok(())
}

fn dropped_namespace(bench: &Bench) -> Outcome {
    if !bench.capabilities.droppable_namespaces {
        return Ok(());
    }
    let store = &bench.store;
    let missing = |error: &Error| matches!(error, Error::NotFound { .. });
    expect_error("dropping none", store.drop_namespace("people"), missing)?;
    expect_error(
        "dropping the default one",
        store.drop_namespace(""),
        |error| matches!(error, Error::InvalidArgument(_)),
    )?;
    let people = store.namespace("people").or_fail("namespace")?;
    let key = bench.key(1);
    let put = |space: &dyn Engine, value: &[u8]| {
        let written = space.put(&key, value, Durability::Written);
        written.or_fail("put").map(|_| ())
    };
    put(&**store, b"of the default one")?;
    for number in 0..20 {
        let key = bench.key(number);
        let written = people.put(&key, b"first", Durability::Written);
        written.or_fail("put")?;
    }
    let snapshot = people.snapshot().or_fail("snapshot")?;
    let whole = store.snapshot().or_fail("snapshot")?;
    let mut cursor = people
        .scan(&KeyRange::all(), Direction::Forward)
        .or_fail("scan")?;
    cursor.next().or_fail("next")?;
    store.drop_namespace("people").or_fail("dropping")?;
    let names = store.list_namespaces().or_fail("listing")?;
    expect("namespaces", names, vec![String::new()])?;
    expect_error("a read of what was dropped", people.get(&key), missing)?;
    let keys = [key.as_slice()];
    expect_error("reads of it", people.multi_get(&keys), missing)?;
    let scanned = people
        .scan(&KeyRange::all(), Direction::Forward)
        .map(|_| ());
    expect_error("a scan of it", scanned, missing)?;
    let written = people.put(&key, b"late", Durability::Written);
    expect_error("a write to it", written, missing)?;
    expect_error("dropping twice", store.drop_namespace("people"), missing)?;
    // The same name again is another namespace, and an empty one.
    let again = store.namespace("people").or_fail("namespace")?;
    expect(
        "entries of the new one",
        collect(&*again).or_fail("reading")?.len(),
        0,
    )?;
    put(&*again, b"second")?;
    expect_error("a read through the old handle", people.get(&key), missing)?;
    bench.settle()?;
    let compacted = store.compact(&CompactOptions::default(), &());
    compacted.or_fail("compact")?;
    expect(
        "entries of a snapshot",
        collect(&*snapshot).or_fail("reading")?.len(),
        20,
    )?;
    let within = whole.namespace("people").or_fail("namespace")?;
    let within = within.ok_or("a snapshot forgets a namespace that it had")?;
    expect(
        "entries of it",
        collect(&*within).or_fail("reading")?.len(),
        20,
    )?;
    let mut rest = 0;
    while cursor.next().or_fail("next")?.is_some() {
        rest += 1;
    }
    expect("entries of a cursor", rest, 19)?;
    drop((cursor, snapshot, whole, within));
    expect_value(&**store, &key, Some(b"of the default one"))?;
    expect_value(&*again, &key, Some(b"second"))?;
    let reopened = bench.reopened()?;
    let again = reopened.namespace("people").or_fail("namespace")?;
    expect(
        "entries after reopening",
        collect(&*again).or_fail("reading")?.len(),
        1,
    )
}

fn read_after_its_name(bench: &Bench) -> Outcome {
    let store = &bench.store;
    if !bench.capabilities.named_snapshots {
        return Ok(());
    }
    let entries = bench.fill(40)?;
    store.create_named_snapshot("kept").or_fail("keeping")?;
    let kept = store.named_snapshot("kept").or_fail("opening")?;
    expect_entries(&contents(&*kept)?, &entries)?;
    for number in 0..40 {
        bench.put(number, b"later")?;
    }
    store.drop_named_snapshot("kept").or_fail("dropping")?;
    let compacted = store.compact(&CompactOptions::default(), &());
    compacted.or_fail("compact")?;
    bench.settle()?;
    expect_entries(&contents(&*kept)?, &entries)?;
    expect_value(&*kept, &bench.key(7), Some(b"value 7"))?;
    expect_value(&**store, &bench.key(7), Some(b"later"))
}

fn refused_names(bench: &Bench) -> Outcome {
    let store = &bench.store;
    if !bench.capabilities.named_snapshots {
        return Ok(());
    }
    let missing = |error: &Error| matches!(error, Error::NotFound { .. });
    expect_error("rolling back to nothing", store.rollback("kept"), missing)?;
    let read = store.named_snapshot("kept").map(|_| ());
    expect_error("reading nothing", read, missing)?;
    let dropped = store.drop_named_snapshot("kept");
    expect_error("dropping nothing", dropped, missing)?;
    store.create_named_snapshot("kept").or_fail("keeping")?;
    expect_error(
        "a name twice",
        store.create_named_snapshot("kept"),
        |error| matches!(error, Error::AlreadyExists { .. }),
    )?;
    let nameless = store.create_named_snapshot("");
    expect_error("a snapshot without a name", nameless, |error| {
        matches!(error, Error::InvalidArgument(_))
    })?;
    store.drop_named_snapshot("kept").or_fail("dropping")?;
    store.create_named_snapshot("kept").or_fail("keeping again")
}
