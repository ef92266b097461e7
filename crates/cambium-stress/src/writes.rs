//! The writes of a thread of the load.

use std::sync::mpsc;

use cambium::{Error, KeyRange, Operation, Precondition, Request, Response, WriteBatch};

use crate::actor::{Actor, Step, violation};
use crate::content::{
    FIRST_SWAPPED, GROUPS, SHARED, Version, decode_version, group_keys, shared_version, value,
};
use crate::ledger::{Effect, Level, version_of};
use crate::session::{NAMESPACES, lock};

impl Actor<'_> {
    pub fn put(&mut self) -> Step {
        let (id, length, level) = (self.pick(), self.length(), self.level());
        let (store, key) = (self.store((self.thread, id)), self.key((self.thread, id)));
        self.change(level, &[Effect::Put { id, length }], |actor, number| {
            let value = actor.own_value(id, number, length);
            let store = store.with_durability(level.durability());
            store.put(&key, value).map(Some)
        })?;
        Ok(())
    }

    pub fn delete(&mut self) -> Step {
        let (id, level) = (self.pick(), self.level());
        let (store, key) = (self.store((self.thread, id)), self.key((self.thread, id)));
        self.change(level, &[Effect::Delete { id }], |_, _| {
            let store = store.with_durability(level.durability());
            store.delete(&key).map(Some)
        })?;
        Ok(())
    }

    pub fn delete_range(&mut self) -> Step {
        if !self.shared.abilities.ordered {
            return Ok(());
        }
        let (from, level) = (self.pick(), self.level());
        let many = self.shared.shape().keys / 4;
        let to = (from + self.random.below(u64::from(many)) as u32).min(self.shared.shape().keys);
        // The empty key is in front of all others' as well: ranges of thread 0 begin with it.
        let range = KeyRange::between(&self.key((self.thread, from)), &self.key((self.thread, to)));
        let store = self.store((self.thread, from));
        self.change(level, &[Effect::DeleteRange { from, to }], |_, _| {
            let store = store.with_durability(level.durability());
            store.delete_range(range).map(Some)
        })?;
        Ok(())
    }

    pub fn batch(&mut self) -> Step {
        let count = match self.random.below(20) {
            0 => self.random.between(30, 200),
            _ => self.random.between(2, 12),
        };
        let effects: Vec<Effect> = (0..count)
            .map(|_| {
                let id = self.pick();
                if self.random.chance(25) {
                    Effect::Delete { id }
                } else {
                    Effect::Put {
                        id,
                        length: self.length(),
                    }
                }
            })
            .collect();
        let level = self.level();
        self.write_batch(level, &effects)
    }

    /// A group's keys, all with the same version, and sometimes own keys with them.
    pub fn write_group(&mut self) -> Step {
        let group = self.random.below(FIRST_SWAPPED as u64) as usize;
        let length = self.length().clamp(16, 20_000);
        let mut effects = vec![Effect::Group { group, length }];
        for _ in 0..self.random.below(3) {
            effects.push(Effect::Put {
                id: self.pick(),
                length: self.length(),
            });
        }
        let level = self.level();
        self.write_batch(level, &effects)
    }

    pub fn write_batch(&mut self, level: Level, effects: &[Effect]) -> Step {
        self.change(level, effects, |actor, number| {
            let batch = actor.batch_of(number, effects);
            let store = actor.shared.stores[0].with_durability(level.durability());
            let written = store.write(batch);
            written.map(Some)
        })?;
        Ok(())
    }

    fn batch_of(&self, number: u64, effects: &[Effect]) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for (place, effect) in effects.iter().enumerate() {
            let mut push = |key, version: Option<Version>| {
                let name = NAMESPACES[self.shared.shape().namespace(key)];
                let namespace = (!name.is_empty()).then(|| name.into());
                let bytes = self.key(key);
                batch.push(
                    namespace,
                    match version {
                        Some(version) => Operation::Put {
                            key: bytes,
                            value: value(key, version),
                        },
                        None => Operation::Delete { key: bytes },
                    },
                );
            };
            match *effect {
                Effect::Put { id, length } => {
                    let version = version_of(number, place);
                    push((self.thread, id), Some(Version { version, length }));
                }
                Effect::Delete { id } => push((self.thread, id), None),
                Effect::Group { group, length } => {
                    let version = shared_version(self.thread, number);
                    group_keys(group).for_each(|key| push(key, Some(Version { version, length })));
                }
                Effect::DeleteRange { .. } => {}
            }
        }
        batch
    }

    /// A write with a condition on an own key, which holds or does not, as drawn.
    pub fn write_if(&mut self) -> Step {
        let (id, length, level) = (self.pick(), self.length(), self.level());
        let bytes = self.key((self.thread, id));
        let current = self.model[id as usize].map(|version| value((self.thread, id), version));
        let condition = match self.random.below(3) {
            0 => Precondition::Present { key: bytes },
            1 => Precondition::Absent { key: bytes },
            _ => Precondition::Equals {
                key: bytes,
                value: current.clone().unwrap_or_else(|| b"never".to_vec()),
            },
        };
        let holds = condition.holds(current.as_deref());
        let (store, key) = (self.store((self.thread, id)), self.key((self.thread, id)));
        let done = self.change(level, &[Effect::Put { id, length }], |actor, number| {
            let mut batch = WriteBatch::new();
            batch.put(&key, &actor.own_value(id, number, length));
            let written = store
                .with_durability(level.durability())
                .write_if(&[condition], batch);
            written.map(Some)
        })?;
        if done && !holds {
            return violation(format!(
                "write_if of key {id} wrote though its condition does not hold"
            ));
        }
        Ok(())
    }

    /// Replaces what a shared key has by compare-and-set: no version is replaced twice.
    pub fn swap(&mut self) -> Step {
        let group = self.random.between(FIRST_SWAPPED as u64, GROUPS as u64 - 1) as usize;
        let key = (SHARED, (group * crate::content::MEMBERS) as u32);
        let (store, bytes) = (self.store(key), self.key(key));
        let current = store
            .get(&bytes)
            .map_err(|error| self.judge("get of a shared key", error))?;
        let before = current
            .as_deref()
            .and_then(decode_version)
            .map_or(0, |version| version.version);
        let condition = match current {
            Some(value) => Precondition::Equals {
                key: bytes.clone(),
                value: value.to_vec(),
            },
            None => Precondition::Absent { key: bytes.clone() },
        };
        let (level, length) = (self.level(), self.length().clamp(16, 5000));
        let done = self.change(
            level,
            &[Effect::Group { group, length }],
            |actor, number| {
                let version = shared_version(actor.thread, number);
                let mut batch = WriteBatch::new();
                batch.put(&bytes, &value(key, Version { version, length }));
                let written = store
                    .with_durability(level.durability())
                    .write_if(&[condition], batch);
                written.map(Some)
            },
        )?;
        if done {
            let mut replaced = lock(&self.shared.groups[group].replaced);
            if !replaced.insert(before) {
                return violation(format!(
                    "version {before:#x} of shared key {group} was replaced twice by write_if"
                ));
            }
        }
        Ok(())
    }

    /// Submitted requests: several puts of one key, in their order, then a get of it.
    pub fn submit(&mut self) -> Step {
        let (id, level) = (self.pick(), self.level());
        let key = (self.thread, id);
        let (store, bytes) = (self.store(key), self.key(key));
        for _ in 0..self.random.between(1, 3) {
            let length = self.length();
            self.change(level, &[Effect::Put { id, length }], |actor, number| {
                let request = Request::Put {
                    key: bytes.clone(),
                    value: actor.own_value(id, number, length),
                    durability: level.durability(),
                };
                match answer_of(store, request)? {
                    Response::Written(sequence) => Ok(Some(sequence)),
                    other => Err(Error::InvalidArgument(format!(
                        "a put was answered {other:?}"
                    ))),
                }
            })?;
        }
        match answer_of(store, Request::Get { key: bytes.clone() }) {
            Ok(Response::Value(value)) => self.expect(
                "a submitted get",
                id,
                self.model[id as usize],
                value.as_deref(),
            ),
            Ok(other) => violation(format!("a get was answered {other:?}")),
            Err(error) => Err(self.judge("a submitted get", error)),
        }
    }
}

/// Submits a request and waits for its completion, which comes exactly once.
fn answer_of(store: &cambium::Store, request: Request) -> Result<Response, Error> {
    let (sender, answers) = mpsc::channel();
    store.submit(request, Box::new(move |answer| _ = sender.send(answer)));
    let answer = answers.recv();
    let lost = || Error::InvalidArgument("a submitted request was never answered".to_string());
    match (answer, answers.recv()) {
        (Ok(answer), Err(_)) => answer,
        _ => Err(lost()),
    }
}
