//! Keyspace notifications: which events clients have asked for, and those of the round.

/// Kinds of events, by the letters of `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `g`: commands of any type.
    Generic = 1 << 2,
    /// `$`: strings.
    String = 1 << 3,
    /// `h`: hashes.
    Hash = 1 << 4,
    /// `x`: a key has expired.
    Expired = 1 << 5,
    /// `n`: a key was made.
    New = 1 << 6,
    /// `m`: a key that is not there was read.
    Missed = 1 << 7,
}

const KEYSPACE: u32 = 1;
const KEYEVENT: u32 = 1 << 1;
/// Letters of classes that are accepted; those without events of ours have a bit each, too.
const LETTERS: &[(char, u32)] = &[
    ('K', KEYSPACE),
    ('E', KEYEVENT),
    ('g', Class::Generic as u32),
    ('$', Class::String as u32),
    ('l', 1 << 8),
    ('s', 1 << 9),
    ('h', Class::Hash as u32),
    ('z', 1 << 10),
    ('x', Class::Expired as u32),
    ('e', 1 << 11),
    ('t', 1 << 12),
    ('d', 1 << 13),
    ('n', Class::New as u32),
    ('m', Class::Missed as u32),
];
/// What `A` stands for.
const ALL: &str = "g$lshzxetd";

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its name: `set`, `del`.
    pub event: &'static str,
    /// The database of the key.
    pub database: u8,
    /// The key.
    pub key: Vec<u8>,
}

/// Events that are asked for, and those that have not been published yet.
#[derive(Debug, Default)]
pub struct Notices {
    flags: u32,
    /// In a cluster clients know one database.
    pub one_database: bool,
    pending: Vec<Notice>,
}

impl Notices {
    /// Takes the text of `notify-keyspace-events`; false if it is none.
    pub fn configure(&mut self, text: &str) -> bool {
        let bit = |letter: char| {
            let found = LETTERS.iter().find(|(known, _)| *known == letter);
            found.map(|(_, bit)| *bit)
        };
        let mut flags = 0;
        for letter in text.chars() {
            match (letter, bit(letter)) {
                ('A', _) => flags |= ALL.chars().filter_map(bit).sum::<u32>(),
                (_, Some(bit)) => flags |= bit,
                (_, None) => return false,
            }
        }
        self.flags = flags;
        true
    }

    /// The text of `notify-keyspace-events`, in Redis' order.
    pub fn text(&self) -> String {
        let has = |letter: &char| {
            LETTERS
                .iter()
                .any(|(known, bit)| known == letter && self.flags & bit != 0)
        };
        let mut text = String::new();
        match ALL.chars().all(|letter| has(&letter)) {
            true => text.push('A'),
            false => text.extend(ALL.chars().filter(has)),
        }
        text.extend("KEnm".chars().filter(has));
        text
    }

    /// Notes an event, if it is asked for.
    pub fn add(&mut self, class: Class, event: &'static str, database: u8, key: &[u8]) {
        if self.flags & (KEYSPACE | KEYEVENT) != 0 && self.flags & class as u32 != 0 {
            let key = key.to_vec();
            let database = match self.one_database {
                true => 0,
                false => database,
            };
            self.pending.push(Notice {
                event,
                database,
                key,
            });
        }
    }

    /// Channels and messages of the events since the last call.
    pub fn take(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut messages = Vec::new();
        for Notice {
            event,
            database,
            key,
        } in std::mem::take(&mut self.pending)
        {
            if self.flags & KEYSPACE != 0 {
                let channel = [format!("__keyspace@{database}__:").as_bytes(), &key].concat();
                messages.push((channel, event.as_bytes().to_vec()));
            }
            if self.flags & KEYEVENT != 0 {
                messages.push((format!("__keyevent@{database}__:{event}").into_bytes(), key));
            }
        }
        messages
    }

    /// True if nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_key_and_by_name_if_asked_for() {
        let mut notices = Notices::default();
        notices.add(Class::String, "set", 0, b"oak");
        assert!(notices.is_empty());
        assert!(notices.configure("KE$") && !notices.configure("KEy"));
        assert_eq!(notices.text(), "$KE");
        notices.add(Class::String, "set", 3, b"oak");
        notices.add(Class::Generic, "del", 3, b"oak");
        let expected = vec![
            (b"__keyspace@3__:oak".to_vec(), b"set".to_vec()),
            (b"__keyevent@3__:set".to_vec(), b"oak".to_vec()),
        ];
        assert_eq!(notices.take(), expected);
        assert!(notices.configure("KEA"));
        assert_eq!(notices.text(), "AKE");
    }
}
