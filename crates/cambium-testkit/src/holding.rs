//! What a store holds: entries of namespaces, and moments kept under a name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cambium_api::{
    Capabilities, Durability, Engine, Error, IterationOrder, Operation, Reader, Result,
    SequenceNumber, Snapshot, Special, Value, WriteBatch,
    merge::{Add, Append, Maximum, MergeOperator},
};

use crate::walking::walk;

/// Every key of a namespace and its value.
pub(crate) type Entries = BTreeMap<Vec<u8>, Value>;

/// Every namespace by name; the default one (`""`) is always there.
pub(crate) type Spaces = BTreeMap<String, Arc<Entries>>;

/// Something that makes another state of a store.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A batch, in namespaces that are there.
    Write(WriteBatch),
    /// A namespace is made, or was there already.
    MakeNamespace(String),
    /// A namespace goes with all that is in it.
    DropNamespace(String),
    /// The state now is kept under a name that is free.
    Keep(String),
    /// A kept state is let go.
    LetGo(String),
    /// A kept state is the newest again.
    Rollback(String),
}

impl Default for Change {
    fn default() -> Self {
        Change::Write(WriteBatch::new())
    }
}

/// A state, as the model knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) spaces: Spaces,
    /// What named snapshots keep.
    pub(crate) kept: BTreeMap<String, Spaces>,
}

/// A state that is shared.
pub(crate) type State = Arc<Holding>;

/// A state, as far as a store shows it: what a named snapshot keeps is seen
/// once it is rolled back to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) spaces: BTreeMap<String, Entries>,
    pub(crate) kept: BTreeSet<String>,
}

impl Default for Holding {
    fn default() -> Self {
        Holding {
            spaces: Spaces::from([(String::new(), Arc::default())]),
            kept: BTreeMap::new(),
        }
    }
}

impl Holding {
    /// Of the default namespace.
    pub(crate) fn entries(&self) -> &Entries {
        &self.spaces[""]
    }

    /// True if this is what was found.
    pub(crate) fn is(&self, found: &Found) -> bool {
        self.is_in(&found.spaces) && self.kept.keys().eq(found.kept.iter())
    }

    /// True if the namespaces hold this.
    pub(crate) fn is_in(&self, spaces: &BTreeMap<String, Entries>) -> bool {
        let same = |((name, entries), (other, found)): ((_, &Arc<Entries>), (_, &Entries))| {
            name == other && **entries == *found
        };
        self.spaces.len() == spaces.len() && self.spaces.iter().zip(spaces).all(same)
    }

    /// One line for each thing that differs.
    pub(crate) fn differences(&self, found: &Found) -> Vec<String> {
        let mut lines = Vec::new();
        let names: BTreeSet<&String> = self.spaces.keys().chain(found.spaces.keys()).collect();
        for name in names {
            match (self.spaces.get(name), found.spaces.get(name)) {
                (Some(_), None) => lines.push(format!("namespace {name} is not there")),
                (None, Some(_)) => lines.push(format!("namespace {name} is there")),
                (Some(expected), Some(found)) => {
                    let within = difference(expected, found).into_iter();
                    lines.extend(within.map(|line| match name.as_str() {
                        "" => line,
                        _ => format!("in namespace {name} {line}"),
                    }));
                }
                (None, None) => {}
            }
        }
        if !self.kept.keys().eq(found.kept.iter()) {
            let expected: Vec<&String> = self.kept.keys().collect();
            lines.push(format!(
                "named snapshots are {:?}, expected {expected:?}",
                found.kept
            ));
        }
        lines
    }
}

/// The state after a change.
pub(crate) fn apply(state: &State, change: &Change) -> State {
    let mut next = Holding::clone(state);
    match change {
        Change::Write(batch) => {
            let special: BTreeMap<_, _> = batch.clone().take_special().into_iter().collect();
            for (place, (namespace, operation)) in batch.operations().iter().enumerate() {
                let name = namespace.as_deref().unwrap_or_default();
                let entries = next.spaces.entry(name.to_string()).or_default();
                let entries = Arc::make_mut(entries);
                match (operation, special.get(&place)) {
                    (Operation::Put { key, value }, Some(Special::Merge(name))) => {
                        merge(entries, name, key, value);
                    }
                    _ => apply_operation(entries, operation),
                }
            }
        }
        Change::MakeNamespace(name) => _ = next.spaces.entry(name.clone()).or_default(),
        Change::DropNamespace(name) => _ = next.spaces.remove(name),
        Change::Keep(name) => _ = next.kept.insert(name.clone(), next.spaces.clone()),
        Change::LetGo(name) => _ = next.kept.remove(name),
        Change::Rollback(name) => {
            if let Some(kept) = next.kept.get(name) {
                let now = std::mem::replace(&mut next.spaces, kept.clone());
                // What was made since stays, empty.
                for (name, _) in now {
                    next.spaces.entry(name).or_default();
                }
            }
        }
    }
    Arc::new(next)
}

/// Merges by one of the built-in operators, as [`crate::workload`] draws them.
fn merge(entries: &mut Entries, operator: &str, key: &[u8], operand: &[u8]) {
    let operator: &dyn MergeOperator = match operator {
        "add" => &Add,
        "append" => &Append,
        _ => &Maximum,
    };
    let current = entries.get(key).map(|value| &value[..]);
    let next = operator.merge(key, current, operand);
    let next = next.expect("runs draw merges that succeed");
    entries.insert(key.to_vec(), Value::from(next));
}

pub(crate) fn apply_operation(entries: &mut Entries, operation: &Operation) {
    match operation {
        Operation::Put { key, value } => {
            entries.insert(key.clone(), Value::copy_of(value));
        }
        Operation::Delete { key } => {
            entries.remove(key);
        }
        Operation::DeleteRange { range } => entries.retain(|key, _| !range.contains(key)),
    }
}

/// Makes a change of a store; answers its number, where it has one.
pub(crate) fn perform(
    store: &dyn Engine,
    change: Change,
    durability: Durability,
) -> Result<Option<SequenceNumber>> {
    match change {
        Change::Write(batch) => write(store, batch, durability).map(Some),
        Change::MakeNamespace(name) => store.namespace(&name).map(|_| None),
        Change::DropNamespace(name) => store.drop_namespace(&name).map(|()| None),
        Change::Keep(name) => store.create_named_snapshot(&name).map(|()| None),
        Change::LetGo(name) => store.drop_named_snapshot(&name).map(|()| None),
        Change::Rollback(name) => store.rollback(&name).map(|()| None),
    }
}

impl Change {
    /// False for what a store in this state refuses, or has done already.
    pub(crate) fn is_possible(&self, state: &State) -> bool {
        match self {
            Change::Write(_) => true,
            Change::MakeNamespace(name) => !state.spaces.contains_key(name),
            Change::DropNamespace(name) => state.spaces.contains_key(name),
            Change::Keep(name) => !state.kept.contains_key(name),
            Change::LetGo(name) | Change::Rollback(name) => state.kept.contains_key(name),
        }
    }

    /// What a store in this state makes by itself before it: namespaces, one write
    /// each.
    pub(crate) fn preparations(&self, state: &State) -> Vec<Change> {
        let Change::Write(batch) = self else {
            return Vec::new();
        };
        let named = batch.operations().iter();
        let names: BTreeSet<&str> = named.filter_map(|(name, _)| name.as_deref()).collect();
        let new = names
            .into_iter()
            .filter(|name| !state.spaces.contains_key(*name));
        new.map(|name| Change::MakeNamespace(name.to_string()))
            .collect()
    }

    /// A word for reports.
    pub(crate) fn counted_as(&self) -> &'static str {
        match self {
            Change::Write(_) => "writes",
            Change::MakeNamespace(_) => "namespaces made",
            Change::DropNamespace(_) => "namespaces dropped",
            Change::Keep(_) => "states kept",
            Change::LetGo(_) => "states let go",
            Change::Rollback(_) => "rollbacks",
        }
    }

    /// How safe it is once it is done, whatever was asked.
    pub(crate) fn durability(&self, asked: Durability) -> Durability {
        match self {
            Change::Write(_) => asked,
            Change::MakeNamespace(_) => Durability::Written,
            Change::DropNamespace(_) | Change::Keep(_) | Change::LetGo(_) | Change::Rollback(_) => {
                Durability::Synced
            }
        }
    }
}

/// Single puts and deletes go through their own calls, as users' do.
fn write(store: &dyn Engine, batch: WriteBatch, durability: Durability) -> Result<SequenceNumber> {
    if let [(namespace, operation)] = batch.operations() {
        let space = namespace
            .as_deref()
            .map(|name| store.namespace(name))
            .transpose()?;
        let store = space.as_deref().unwrap_or(store);
        let special = batch.clone().take_special().pop();
        return match (operation, special.map(|(_, special)| special)) {
            (Operation::Put { key, value }, Some(Special::Expires(expiry))) => {
                store.put_expiring(key, value, expiry, durability)
            }
            (Operation::Put { key, value }, Some(Special::Merge(operator))) => {
                store.merge(&operator, key, value, durability)
            }
            (Operation::Put { key, value }, None) => store.put(key, value, durability),
            (Operation::Delete { key }, _) => store.delete(key, durability),
            (Operation::DeleteRange { range }, _) => store.delete_range(range.clone(), durability),
        };
    }
    store.write(batch, durability)
}

/// All a reader holds; a key that comes twice is damage.
pub(crate) fn collect(reader: &dyn Reader) -> Result<Entries> {
    let mut cursor = reader.iterate(IterationOrder::Any, None)?;
    let mut found = BTreeMap::new();
    let mut twice = None;
    walk(&mut *cursor, |key, value| {
        if found.insert(key.to_vec(), Value::copy_of(value)).is_some() {
            twice = Some(cambium_base::hexdump::readable(key));
        }
    })?;
    match twice {
        None => Ok(found),
        Some(key) => {
            let what = format!("one pass visited {key} twice");
            Err(Error::corruption("", 0, what))
        }
    }
}

/// All a store holds.
pub(crate) fn collect_all(store: &dyn Engine, capabilities: &Capabilities) -> Result<Found> {
    let mut found = Found::default();
    found.spaces.insert(String::new(), collect(store)?);
    if capabilities.namespaces {
        for name in store.list_namespaces()? {
            if !name.is_empty() {
                let entries = collect(&*store.namespace(&name)?)?;
                found.spaces.insert(name, entries);
            }
        }
    }
    if capabilities.named_snapshots {
        let names = store.list_named_snapshots()?.into_iter();
        found.kept = names.map(|(name, _)| name).collect();
    }
    Ok(found)
}

/// All a snapshot holds.
pub(crate) fn collect_snapshot(snapshot: &dyn Snapshot) -> Result<BTreeMap<String, Entries>> {
    let mut spaces = BTreeMap::from([(String::new(), collect(snapshot)?)]);
    for name in snapshot.namespaces()? {
        let Some(space) = snapshot.namespace(&name)?.filter(|_| !name.is_empty()) else {
            continue;
        };
        spaces.insert(name, collect(&*space)?);
    }
    Ok(spaces)
}

/// A value, so that one can be told from another.
pub(crate) fn brief(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_string(),
        Some(value) => {
            let start = cambium_base::hexdump::readable(&value[..value.len().min(24)]);
            format!("{start} ({} bytes)", value.len())
        }
    }
}

/// One line for each key that differs.
pub(crate) fn difference(expected: &Entries, found: &Entries) -> Vec<String> {
    let mut keys: Vec<&Vec<u8>> = expected.keys().chain(found.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .filter(|key| expected.get(*key) != found.get(*key))
        .map(|key| {
            format!(
                "key {} has {}, expected {}",
                cambium_base::hexdump::readable(&key[..key.len().min(24)]),
                brief(found.get(key)),
                brief(expected.get(key))
            )
        })
        .collect()
}
