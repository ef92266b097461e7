//! Commands drawn at random on a few keys, beside a model of what they do.

use std::collections::BTreeMap;

use crate::client::Client;
use crate::harness::{Server, folder};

/// The model: each key with its type, and whether it expires.
type Keys = BTreeMap<String, (&'static str, bool)>;

/// Small numbers in a row that looks like none.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn key(&mut self) -> String {
        format!("key{}", self.below(5))
    }
}

/// Draws a command, does it to the model, and answers it.
fn draw(numbers: &mut Numbers, keys: &mut Keys, has_hashes: bool) -> String {
    let (key, other) = (numbers.key(), numbers.key());
    match numbers.below(12) {
        0..=2 => {
            keys.insert(key.clone(), ("string", false));
            format!("SET {key} value")
        }
        3 => {
            keys.insert(key.clone(), ("string", true));
            format!("SETEX {key} 1000 value")
        }
        4 => {
            for key in [&key, &other] {
                keys.insert(key.clone(), ("string", false));
            }
            format!("MSET {key} value {other} value")
        }
        5 => {
            keys.remove(&key);
            format!("DEL {key}")
        }
        6 => {
            keys.remove(&key);
            format!("SET {key} value PXAT 1")
        }
        7 if has_hashes => {
            let is_string = keys.get(&key).is_some_and(|(kind, _)| *kind == "string");
            if !is_string {
                keys.entry(key.clone()).or_insert(("hash", false));
            }
            format!("HSET {key} field value")
        }
        8 => {
            if let Some(held) = keys.get_mut(&key) {
                held.1 = true;
            }
            format!("EXPIRE {key} 1000")
        }
        9 => {
            if let Some(held) = keys.get(&key).copied() {
                keys.remove(&key);
                keys.insert(other.clone(), held);
            }
            format!("RENAME {key} {other}")
        }
        10 => {
            if let Some(held) = keys.get_mut(&key) {
                held.1 = false;
            }
            format!("PERSIST {key}")
        }
        _ => match numbers.below(8) {
            0 => {
                keys.clear();
                "FLUSHDB".to_string()
            }
            _ => {
                keys.entry(key.clone()).or_insert(("string", false));
                format!("SETNX {key} value")
            }
        },
    }
}

fn check(client: &mut Client, keys: &Keys, after: &str) {
    assert_eq!(client.call("DBSIZE"), format!(":{}", keys.len()), "{after}");
    for number in 0..5 {
        let key = format!("key{number}");
        let (kind, expires) = keys.get(&key).copied().unwrap_or(("none", false));
        let answer = client.call(&format!("TYPE {key}"));
        assert_eq!(answer, format!("+{kind}"), "{key} after {after}");
        let left = client.call(&format!("TTL {key}"));
        let has_left = !matches!(&*left, ":-1" | ":-2");
        assert_eq!(has_left, expires, "{key} has {left} after {after}");
    }
}

#[test]
fn commands_at_random_leave_what_a_model_has() {
    let engines = [
        ("forest", true),
        ("wisckey", true),
        ("zdb", false),
        ("alphard", false),
    ];
    for (seed, (engine, has_hashes)) in (1..).zip(engines) {
        let folder = folder();
        let server = Server::start(folder.path(), &["--engine", engine]);
        let mut client = server.client();
        let (mut numbers, mut keys) = (Numbers(seed), Keys::new());
        for _ in 0..150 {
            let command = draw(&mut numbers, &mut keys, has_hashes);
            client.call(&command);
            check(&mut client, &keys, &format!("{command} on {engine}"));
        }
        drop(client);
        server.terminate();
    }
}
