//! Everything that a store answers, and what it complains about.

use std::collections::{BTreeMap, BTreeSet};

use cambium_api::{CheckReport, CompactOptions, Direction, Engine, Error, KeyRange, Value};
use cambium_io::simulated::SimulatedDisk;

use super::victim::Victim;
use crate::history::compare_reads;
use crate::holding::{Entries, Found, Spaces, collect_all};
use crate::subject::Subject;

/// A key and the namespace that it is in.
pub(super) type Name = (String, Vec<u8>);

/// The answers of a store.
#[derive(Debug, Default)]
pub(super) struct Observation {
    /// Each error of opening, reading or checking the open store.
    pub(super) complaints: Vec<String>,
    /// The value of each key that was read, by a get or a pass over all.
    pub(super) values: BTreeMap<Name, Value>,
    /// Everything, if a pass over everything ended without an error.
    pub(super) found: Option<Found>,
    /// Two ways of reading that answered differently, without an error.
    disagreement: Option<String>,
    /// The entries after a rollback to each named snapshot.
    pub(super) kept: BTreeMap<String, BTreeMap<String, Entries>>,
}

/// Opens a store and reads everything in every way. A value that its key never had
/// is wrong whatever the damage is: it fails.
pub(super) fn observe(
    subject: &Subject,
    disk: &SimulatedDisk,
    victim: &Victim,
) -> Result<Observation, String> {
    let mut observation = Observation::default();
    let environment = subject.environment(disk, 3);
    let store = match subject.open(&environment) {
        Ok(store) => store,
        Err(error) => {
            observation.complaints.push(format!("opening: {error}"));
            return Ok(observation);
        }
    };
    observation.read(&*store, victim)?;
    match store.check(&()) {
        Ok(report) => observation.complaints.extend(first_damage(&report)),
        Err(error) => observation.complain("the open store's check", error),
    }
    observation.roll_back(&*store);
    // A compaction and a close of a damaged store may fail; they must not panic.
    _ = store.compact(&CompactOptions::default(), &());
    _ = store.close();
    Ok(observation)
}

/// Opens a store, has it compacted and closed, and observes it then.
pub(super) fn observe_compacted(
    subject: &Subject,
    disk: &SimulatedDisk,
    victim: &Victim,
) -> Result<Observation, String> {
    let mut complaints = Vec::new();
    {
        let environment = subject.environment(disk, 5);
        let store = match subject.open(&environment) {
            Ok(store) => store,
            Err(error) => {
                complaints.push(format!("opening: {error}"));
                let observation = Observation {
                    complaints,
                    ..Observation::default()
                };
                return Ok(observation);
            }
        };
        if let Err(error) = store.compact(&CompactOptions::default(), &()) {
            complaints.push(format!("compacting: {error}"));
        }
        if let Err(error) = store.close() {
            complaints.push(format!("closing: {error}"));
        }
    }
    let mut observation = observe(subject, disk, victim)?;
    observation.complaints.extend(complaints);
    Ok(observation)
}

/// The first finding of damage, as text.
pub(super) fn first_damage(report: &CheckReport) -> Option<String> {
    let mut damage = report
        .findings
        .iter()
        .filter(|finding| finding.kind == cambium_api::FindingKind::Damage);
    damage.next().map(|finding| {
        let file = finding.file.display();
        format!("{file} at {}: {}", finding.offset, finding.what)
    })
}

impl Observation {
    fn complain(&mut self, what: &str, error: Error) {
        self.complaints.push(format!("{what}: {error}"));
    }

    fn read(&mut self, store: &dyn Engine, victim: &Victim) -> Result<(), String> {
        let mut names: BTreeSet<String> = BTreeSet::from([String::new()]);
        match store.list_namespaces() {
            Ok(listed) => names.extend(listed),
            Err(error) => self.complain("listing namespaces", error),
        }
        for name in &names {
            if name.is_empty() {
                self.get_each(store, "", victim)?;
                continue;
            }
            match store.namespace(name) {
                Ok(space) => self.get_each(&*space, name, victim)?,
                Err(error) => self.complain("a namespace", error),
            }
        }
        match collect_all(store, &victim.capabilities) {
            Ok(found) => self.compare_ways(store, found, victim),
            Err(error) => {
                self.complain("a pass over all entries", error);
                Ok(())
            }
        }
    }

    fn get_each(&mut self, store: &dyn Engine, name: &str, victim: &Victim) -> Result<(), String> {
        for key in &victim.keys {
            match store.get(key) {
                Ok(value) => {
                    victim.expect_once(name, key, value.as_ref())?;
                    if let Some(value) = value {
                        self.values.insert((name.to_string(), key.clone()), value);
                    }
                }
                Err(error) => self.complain("a get", error),
            }
        }
        Ok(())
    }

    /// Batches of gets, scans and passes answer what gets do, or there is an error.
    fn compare_ways(
        &mut self,
        store: &dyn Engine,
        found: Found,
        victim: &Victim,
    ) -> Result<(), String> {
        for (name, entries) in &found.spaces {
            for (key, value) in entries {
                victim.expect_once(name, key, Some(value))?;
                let place = (name.clone(), key.clone());
                self.values.entry(place).or_insert_with(|| value.clone());
            }
            let space = match name.as_str() {
                "" => None,
                named => match store.namespace(named) {
                    Ok(space) => Some(space),
                    Err(_) => continue,
                },
            };
            let reader: &dyn Engine = space.as_deref().unwrap_or(store);
            let ordered = victim.capabilities.ordered;
            match compare_reads(reader, entries, &victim.keys, ordered) {
                Err(what) if what.starts_with("a read failed") => self.complaints.push(what),
                Err(what) => self.disagreement = Some(what),
                Ok(()) => {}
            }
            if ordered {
                self.scan_forward(reader, entries);
            }
        }
        self.found = Some(found);
        Ok(())
    }

    fn scan_forward(&mut self, reader: &dyn Engine, entries: &Entries) {
        let mut scanned = Entries::new();
        let outcome = (|| {
            let mut cursor = reader.scan(&KeyRange::all(), Direction::Forward)?;
            while let Some(entry) = cursor.next()? {
                scanned.insert(entry.key.to_vec(), entry.value);
            }
            Ok(())
        })();
        match outcome {
            Err(error) => self.complain("a scan", error),
            Ok(()) if scanned != *entries => {
                let (one, other) = (scanned.len(), entries.len());
                let what = format!("a scan answers {one} entries, not the {other} of a pass");
                self.disagreement = Some(what);
            }
            Ok(()) => {}
        }
    }

    /// Rolls back to each named snapshot: nothing else shows what it keeps.
    fn roll_back(&mut self, store: &dyn Engine) {
        let names = match &self.found {
            Some(found) => found.kept.clone(),
            None => return,
        };
        for name in names {
            let outcome = store
                .rollback(&name)
                .and_then(|()| collect_all(store, &store.capabilities()));
            match outcome {
                Ok(found) => _ = self.kept.insert(name, found.spaces),
                Err(error) => self.complain("a rollback", error),
            }
        }
    }

    /// The newest state of a range that the store is in.
    pub(super) fn state(&self, victim: &Victim, low: usize) -> Result<usize, String> {
        if let Some(what) = &self.disagreement {
            return Err(what.clone());
        }
        let Some(found) = &self.found else {
            return Err("not every entry could be read".to_string());
        };
        let sent = victim.history.window().sent;
        let is_state = |&at: &usize| {
            let state = victim.history.state(at);
            state.is(found)
                && state
                    .kept
                    .iter()
                    .all(|(name, spaces)| self.keeps(name, spaces))
        };
        if let Some(at) = (low..=sent).rev().find(is_state) {
            return Ok(at);
        }
        victim.history.find(found, low, sent)?;
        Err("a rollback to a named snapshot brings back another state".to_string())
    }

    /// True if a rollback brought back what a named snapshot is to keep.
    fn keeps(&self, name: &str, spaces: &Spaces) -> bool {
        let Some(found) = self.kept.get(name) else {
            return false;
        };
        let same = |(name, entries): (&String, &Entries)| match spaces.get(name) {
            Some(kept) => **kept == *entries,
            // Namespaces that were made later stay, empty.
            None => entries.is_empty(),
        };
        spaces.keys().all(|name| found.contains_key(name)) && found.iter().all(same)
    }
}
