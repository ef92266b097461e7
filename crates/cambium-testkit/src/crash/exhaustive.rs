//! Every short sequence of actions.
//!
//! Random runs are long and rarely simple; the smallest sequence that breaks a
//! store is often three actions. Sequences are numbered: all of one action,
//! then all of two, and so on, each a number in base nine. A second alphabet, of
//! nine letters too, is about namespaces and named snapshots.

use cambium_api::{Capabilities, Durability, KeyRange, Operation, WriteBatch};

use super::Alphabet;
use crate::holding::Change;
use crate::workload::{Action, KEPT, NAMESPACES, key};

/// Letters of the alphabet.
const LETTERS: u64 = 9;

/// Of the longest sequences one in so many is tried, unless all are asked for. It has no
/// divisor in common with the letters, so that each letter comes at each place.
const THINNED: u64 = 4;

/// How many sequences have one to `length` actions.
fn sequence_count(length: u32) -> u64 {
    (1..=length).map(|actions| LETTERS.pow(actions)).sum()
}

/// The numbers, from `first` on, of the sequences of up to `length` actions: all shorter
/// ones, and of those of `length` actions all or every fourth.
pub(super) fn numbers(first: u64, length: u32, all: bool) -> impl Iterator<Item = u64> {
    let shorter = sequence_count(length - 1);
    let step = if all { 1 } else { THINNED };
    let longest = (first.max(shorter)..sequence_count(length)).step_by(step as usize);
    (first..shorter).chain(longest)
}

/// The actions of a sequence.
pub(super) fn sequence(
    number: u64,
    alphabet: Alphabet,
    capabilities: &Capabilities,
) -> Vec<Action> {
    let mut rest = number;
    let mut length = 1;
    while rest >= LETTERS.pow(length) {
        rest -= LETTERS.pow(length);
        length += 1;
    }
    let mut actions = Vec::new();
    for place in 0..length {
        actions.push(match alphabet {
            Alphabet::Writes => letter(rest % LETTERS, place, capabilities),
            Alphabet::Names => letter_of_names(rest % LETTERS, place, capabilities),
        });
        rest /= LETTERS;
    }
    actions
}

/// One action; its place makes its value unlike any other's.
fn letter(letter: u64, place: u32, capabilities: &Capabilities) -> Action {
    let keys = [key(capabilities.keys, 5), key(capabilities.keys, 9)];
    let value = vec![b'a' + place as u8; 40];
    let mut batch = WriteBatch::new();
    match letter {
        0 => batch.put(&keys[0], &value),
        1 => batch.put(&keys[0], &value),
        2 => batch.put(&keys[1], &[b'A' + place as u8; 600]),
        3 => batch.delete(&keys[0]),
        4 => batch
            .put(&keys[0], &value)
            .delete(&keys[1])
            .put(&keys[1], &value),
        5 => return Action::Sync,
        6 => return Action::Compact,
        7 => return Action::Step(1 << 16),
        _ => return Action::Reopen,
    };
    let durability = match letter {
        0 => Durability::Written,
        2 => Durability::Buffered,
        4 => Durability::Written,
        _ => Durability::Synced,
    };
    Action::Write(batch, durability)
}

/// The same of the second alphabet.
fn letter_of_names(letter: u64, place: u32, capabilities: &Capabilities) -> Action {
    let (space, name) = (NAMESPACES[0], KEPT[0].to_string());
    let keys = [key(capabilities.keys, 5), key(capabilities.keys, 9)];
    let mut batch = WriteBatch::new();
    let elsewhere = |key: &Vec<u8>| Operation::Put {
        key: key.clone(),
        value: vec![b'a' + place as u8; 40],
    };
    let durability = match letter {
        0 => {
            batch.put(&keys[0], &vec![b'A' + place as u8; 600]);
            batch.push(Some(space.into()), elsewhere(&keys[0]));
            Durability::Written
        }
        1 => {
            let range = KeyRange::all();
            batch.push(Some(space.into()), Operation::DeleteRange { range });
            batch.push(Some(space.into()), elsewhere(&keys[1]));
            Durability::Synced
        }
        2 => return Action::Change(Change::DropNamespace(space.to_string())),
        3 => return Action::Change(Change::Keep(name)),
        4 => return Action::Change(Change::LetGo(name)),
        5 => return Action::Change(Change::Rollback(name)),
        6 => return Action::Compact,
        7 => return Action::Step(1 << 16),
        _ => return Action::Reopen,
    };
    Action::Write(batch, durability)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_sequence_comes_once() {
        let capabilities = Capabilities {
            engine: "test",
            keys: cambium_api::KeyKind::Bytes,
            ordered: true,
            insertion_order: true,
            named_snapshots: false,
            namespaces: false,
            droppable_namespaces: false,
            native_submit: false,
            changes: false,
            readers_beside_writer: false,
        };
        for alphabet in [Alphabet::Writes, Alphabet::Names] {
            let all: BTreeSet<String> = (0..sequence_count(3))
                .map(|number| format!("{:?}", sequence(number, alphabet, &capabilities)))
                .collect();
            assert_eq!(all.len(), 9 + 81 + 729);
        }
        assert_eq!(
            numbers(0, 3, true).collect::<Vec<_>>(),
            (0..819).collect::<Vec<_>>()
        );
        let thinned: Vec<u64> = numbers(0, 3, false).collect();
        assert_eq!(thinned.len(), 9 + 81 + 183);
        assert_eq!(thinned[..91], (0..91).collect::<Vec<_>>());
    }
}
