//! The reads of a thread of the load that are compared at once.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use cambium::{Direction, Error, IterationOrder, KeyRange, Value};

use crate::actor::{Actor, Step, Stop, violation};
use crate::content::{
    FIRST_SWAPPED, GROUPS, KeyId, Version, decode_version, describe, fits, group_keys, is_value,
};
use crate::session::lock;

impl Actor<'_> {
    pub fn get_own(&mut self) -> Step {
        let id = self.pick();
        let (store, key) = (self.store((self.thread, id)), self.key((self.thread, id)));
        if self.random.chance(30) {
            let mut buffer = b"what was there".to_vec();
            let found = store
                .get_into(&key, &mut buffer)
                .map_err(|error| self.judge("get_into", error))?;
            return self.expect(
                "get_into",
                id,
                self.model[id as usize],
                found.then_some(&buffer),
            );
        }
        let value = store.get(&key).map_err(|error| self.judge("get", error))?;
        self.expect("get", id, self.model[id as usize], value.as_deref())
    }

    pub fn multi_get_own(&mut self) -> Step {
        let ids: Vec<u32> = (0..self.random.between(2, 40))
            .map(|_| self.pick())
            .collect();
        let keys: Vec<Vec<u8>> = ids.iter().map(|&id| self.key((self.thread, id))).collect();
        let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let values = self
            .store((self.thread, 0))
            .multi_get(&asked)
            .map_err(|error| self.judge("multi_get", error))?;
        for (id, value) in ids.into_iter().zip(values) {
            self.expect("multi_get", id, self.model[id as usize], value.as_deref())?;
        }
        Ok(())
    }

    /// A key of another thread: not older than what was acknowledged before the read, not
    /// newer than what began before its end.
    pub fn get_of_another(&mut self) -> Step {
        let shared = self.shared;
        let thread = self.random.below(shared.shape().threads as u64) as usize;
        let key = (thread, self.pick());
        let state = &shared.keys[thread][key.1 as usize];
        let known = state.acknowledged.load(Ordering::Acquire);
        let value = self
            .store(key)
            .get(self.key(key))
            .map_err(|error| self.judge("get", error))?;
        let begun = state.begun.load(Ordering::Acquire);
        let taken_away = state.taken_away.load(Ordering::Acquire);
        let (number, had) = (known >> 1, known & 1 == 1);
        if let Some(bytes) = value.as_deref() {
            let Some(version) = decode_version(bytes) else {
                return Ok(());
            };
            let of = version.version >> 8;
            if !is_value(key, version, bytes) || of < number || begun > 0 && of > begun {
                return violation(format!(
                    "get of key {key:?} of another thread: {}, where operation {number} was acknowledged \
                     before and {begun} was the last to begin",
                    describe(Some(bytes))
                ));
            }
        } else if had && taken_away <= number {
            return violation(format!(
                "get of key {key:?} of another thread: no value, and nothing took it away since operation {number}"
            ));
        }
        Ok(())
    }

    /// All keys of a group, as of one moment: one version, not older than acknowledged.
    pub fn read_group(&mut self) -> Step {
        let group = self.random.below(GROUPS as u64) as usize;
        let known = self.shared.groups[group]
            .acknowledged
            .load(Ordering::Acquire);
        let values = self
            .group_values(group)
            .map_err(|error| self.judge("reading a group", error))?;
        let mut versions: Vec<Option<Version>> = Vec::new();
        for (key, value) in &values {
            let version = value.as_deref().and_then(decode_version);
            if !fits(*key, version, value.as_deref()) {
                return violation(format!(
                    "shared key {key:?} has {}",
                    describe(value.as_deref())
                ));
            }
            versions.push(version);
        }
        versions.dedup();
        let [version] = versions[..] else {
            let found: Vec<String> = values
                .iter()
                .map(|(_, value)| describe(value.as_deref()))
                .collect();
            return violation(format!(
                "half of a batch is seen in group {group}: {found:?}"
            ));
        };
        let numbers = lock(&self.shared.groups[group].numbers);
        let number = version.and_then(|version| numbers.get(&version.version));
        let is_old = match (version, number) {
            (None, _) => known > 0,
            (Some(_), Some(&number)) => number < known,
            // Not acknowledged yet, or written before this session.
            (Some(_), None) => false,
        };
        if is_old {
            return violation(format!(
                "group {group} shows a version of sequence number {number:?}, and {known} was acknowledged before"
            ));
        }
        Ok(())
    }

    fn group_values(&mut self, group: usize) -> Result<Vec<(KeyId, Option<Value>)>, Error> {
        let shape = self.shared.shape();
        let whole = group >= FIRST_SWAPPED || shape.namespaces == 1;
        if whole && self.random.chance(50) {
            let ids: Vec<KeyId> = group_keys(group).collect();
            let keys: Vec<Vec<u8>> = ids.iter().map(|&key| shape.key(key)).collect();
            let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            return Ok(ids
                .iter()
                .copied()
                .zip(self.store(ids[0]).multi_get(&asked)?)
                .collect());
        }
        let snapshot = self.shared.stores[0].snapshot()?;
        let mut values = Vec::new();
        for key in group_keys(group) {
            let name = crate::session::NAMESPACES[shape.namespace(key)];
            let here = match name {
                "" => Some(snapshot.clone()),
                name => snapshot.namespace(name)?,
            };
            let value = here.map(|here| here.get(shape.key(key))).transpose()?;
            values.push((key, value.flatten()));
        }
        Ok(values)
    }

    /// A bounded scan of own keys, with a seek on the way.
    pub fn scan(&mut self) -> Step {
        if !self.shared.abilities.ordered {
            return Ok(());
        }
        let keys = self.shared.shape().keys;
        let (one, other) = (self.pick(), self.random.between(0, u64::from(keys)) as u32);
        let (from, to) = (one.min(other), one.max(other));
        let reverse = self.random.chance(50);
        let direction = if reverse {
            Direction::Reverse
        } else {
            Direction::Forward
        };
        let range = KeyRange::between(&self.key((self.thread, from)), &self.key((self.thread, to)));
        let failed = |actor: &Self, error| Err(actor.judge("a scan", error));
        let mut entries = match self.store((self.thread, from)).scan(range) {
            Ok(entries) => entries,
            Err(error) => return failed(self, error),
        };
        let mut expected: Vec<u32> = (from..to)
            .filter(|&id| self.model[id as usize].is_some())
            .collect();
        if self.random.chance(40) {
            for _ in 0..self.random.below(4) {
                if let Some(Err(error)) = direction.advance(&mut entries) {
                    return failed(self, error);
                }
            }
            // Also to places outside of the bounds.
            let place = self.random.below(u64::from(keys)) as u32;
            let place_key = self.key((self.thread, place));
            let sought = match direction {
                Direction::Forward => entries.seek(place_key),
                Direction::Reverse => entries.seek_back(place_key),
            };
            if let Err(error) = sought {
                return failed(self, error);
            }
            expected.retain(|&id| if reverse { id <= place } else { id >= place });
        }
        if reverse {
            expected.reverse();
        }
        let limit = self.random.magnitude(1, u64::from(keys) + 1) as usize;
        for id in expected.iter().copied().map(Some).chain([None]).take(limit) {
            let entry = match direction.advance(&mut entries).transpose() {
                Ok(entry) => entry,
                Err(error) => return failed(self, error),
            };
            let shown = entry
                .as_ref()
                .and_then(|entry| self.shared.shape().decode(&entry.key));
            if shown != id.map(|id| (self.thread, id)) || shown.is_none() != entry.is_none() {
                return violation(format!(
                    "a {direction:?} scan of {from}..{to} shows {shown:?} where {id:?} was expected"
                ));
            }
            if let (Some(id), Some(entry)) = (id, entry) {
                self.expect("a scan", id, self.model[id as usize], Some(&entry.value))?;
            }
        }
        Ok(())
    }

    /// A pass over the store that is broken off and resumed, with changes in between: keys
    /// that are there throughout are shown.
    pub fn resume(&mut self) -> Step {
        let there: Vec<u32> = (0..self.shared.shape().keys)
            .filter(|&id| self.model[id as usize].is_some())
            .collect();
        let before: HashMap<u32, Option<Version>> = there
            .iter()
            .map(|&id| (id, self.model[id as usize]))
            .collect();
        let store = self.store((self.thread, 0));
        let mut shown = std::collections::HashSet::new();
        let mut token = None;
        loop {
            let entries = store.iterate_with(IterationOrder::Any, token.as_ref());
            let mut entries = entries.map_err(|error| self.judge("iterate", error))?;
            let some = self.random.magnitude(1, 400) as usize;
            let mut count = 0;
            for entry in entries.by_ref().take(some) {
                let entry = entry.map_err(|error| self.judge("a pass", error))?;
                count += 1;
                let key = self.shared.shape().shown("a pass", &entry.key);
                let (thread, id) = key.map_err(Stop::Violation)?;
                if thread == self.thread {
                    shown.insert(id);
                }
            }
            token = entries.resume_token();
            if count < some || token.is_none() {
                break;
            }
            drop(entries);
            self.put()?;
            self.delete()?;
        }
        let missed = there
            .iter()
            .find(|&&id| !shown.contains(&id) && before[&id] == self.model[id as usize]);
        match missed {
            Some(id) => violation(format!(
                "a resumed pass does not show key {id}, which was there throughout"
            )),
            None => Ok(()),
        }
    }
}
