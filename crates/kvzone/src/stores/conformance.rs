//! One suite for every store: what the load generator takes for granted.
//!
//! Every store whose library is here is run; those that are missing are named
//! on standard error, and are nothing that has passed. A store that keeps
//! nothing (`null`) is left out.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kvzone_core::adapter::{
    Adapter, Availability, Change, DurabilityName, OpenRequest, OpenStore, Profile, Session,
};
use kvzone_core::error::Error;

use super::{all, find};

pub(crate) fn request(folder: &Path) -> OpenRequest {
    OpenRequest {
        folder: folder.to_path_buf(),
        durability: DurabilityName::Written,
        budget_bytes: 8 << 20,
        profile: Profile::Equal,
        overrides: BTreeMap::new(),
        expected_keys: 10_000,
        key_bytes: 16,
        expected_value_bytes: 100,
        threads: 4,
    }
}

/// Settings that choose another way of keeping or writing entries: a store is
/// run with each of them as well.
const VARIANTS: &[(&str, &str, &str)] = &[
    ("tokyocabinet", "type", "tree"),
    ("rocksdb-blob", "min_blob_bytes", "0"),
];

/// As [`request`], with the weakest level that a store has where it has no
/// `written`.
pub(crate) fn request_for(store: &dyn Adapter, folder: &Path) -> OpenRequest {
    let mut asked = request(folder);
    let levels = store.capabilities_for(&asked).durabilities;
    if !levels.contains(&DurabilityName::Written) {
        asked.durability = levels.first().copied().unwrap_or(asked.durability);
    }
    asked
}

/// Calls a test with each store that is here, as it is and in its variants,
/// and a request for a folder that is there and empty.
fn each(test: &str, run: impl Fn(&dyn Adapter, &OpenRequest)) {
    let mut ran = 0;
    // A store that answers anything has nothing to conform with.
    for store in all().into_iter().filter(|store| store.keeps_data()) {
        match store.probe() {
            Availability::Missing { what, remedy } => {
                eprintln!(
                    "{test}: SKIPPED {}: {what}; to get it: {remedy}",
                    store.name()
                );
            }
            Availability::Found { .. } => {
                run_variants(test, &*store, &run);
                ran += 1;
            }
        }
    }
    assert!(ran > 0, "our own stores are always here");
}

fn run_variants(test: &str, store: &dyn Adapter, run: &impl Fn(&dyn Adapter, &OpenRequest)) {
    let folder = tempfile::tempdir().unwrap();
    eprintln!("{test}: {}", store.name());
    run(store, &request_for(store, folder.path()));
    for (_, setting, value) in VARIANTS.iter().filter(|it| it.0 == store.name()) {
        let folder = tempfile::tempdir().unwrap();
        eprintln!("{test}: {} with {setting}={value}", store.name());
        let mut asked = request_for(store, folder.path());
        asked
            .overrides
            .insert(setting.to_string(), value.to_string());
        run(store, &asked);
    }
}

fn open(store: &dyn Adapter, request: &OpenRequest) -> Arc<dyn OpenStore> {
    store
        .open(request)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Opens a store for one session, and closes it.
fn with(store: &dyn Adapter, request: &OpenRequest, act: impl FnOnce(&mut dyn Session)) {
    let open = open(store, request);
    let mut session = open.clone().session().unwrap();
    act(&mut *session);
    drop(session);
    open.close().unwrap();
}

fn each_session(test: &str, run: impl Fn(&dyn Adapter, &OpenRequest, &mut dyn Session)) {
    each(test, |store, asked| {
        with(store, asked, |session| run(store, asked, session));
    });
}

fn key(number: u32) -> [u8; 16] {
    let mut key = [0; 16];
    key[..4].copy_from_slice(&number.to_be_bytes());
    key[15] = 0xff;
    key
}

fn found(session: &mut dyn Session, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = b"what was there before".to_vec();
    let found = session.get(key, &mut value).unwrap();
    assert!(
        found || value.is_empty(),
        "a missing key empties the buffer"
    );
    found.then_some(value)
}

#[test]
fn what_was_put_is_found_and_what_was_deleted_is_not() {
    each_session("put, get, delete", |_, _, session| {
        assert_eq!(found(session, &key(1)), None);
        session.put(&key(1), b"one").unwrap();
        session.put(&key(2), b"two").unwrap();
        session.put(&key(1), b"one again").unwrap();
        assert_eq!(found(session, &key(1)).unwrap(), b"one again");
        session.delete(&key(1)).unwrap();
        session.delete(&key(1)).unwrap();
        session.delete(&key(77)).unwrap();
        assert_eq!(found(session, &key(1)), None);
        assert_eq!(found(session, &key(2)).unwrap(), b"two");
    });
}

#[test]
fn keys_and_values_may_hold_any_bytes() {
    each_session("any bytes", |_, _, session| {
        let keys: [&[u8]; 5] = [b"a\0", b"a", b"\0", b"\xff\xff\0\xff", b"a\0\0"];
        for (number, key) in keys.iter().enumerate() {
            session
                .put(key, format!("\0{number}\0").as_bytes())
                .unwrap();
        }
        for (number, key) in keys.iter().enumerate() {
            let value = found(session, key).unwrap();
            assert_eq!(value, format!("\0{number}\0").as_bytes());
        }
        session.put(b"nothing", b"").unwrap();
        assert_eq!(found(session, b"nothing").unwrap(), b"");
    });
}

#[test]
fn large_values_follow_small_ones_in_one_buffer() {
    each_session("large values", |store, _, session| {
        let large: Vec<u8> = (0..100_000_u32)
            .map(|number| (number % 251) as u8)
            .collect();
        session.put(&key(1), b"small").unwrap();
        session.put(&key(2), &large).unwrap();
        let mut value = Vec::new();
        for _ in 0..3 {
            assert!(session.get(&key(1), &mut value).unwrap());
            assert_eq!(value, b"small");
            assert!(session.get(&key(2), &mut value).unwrap());
            assert!(value == large, "{}: 100,000 bytes come back", store.name());
        }
    });
}

#[test]
fn batches_apply_in_order() {
    each_session("batches", |_, _, session| {
        session.put(&key(1), b"old").unwrap();
        let changes = [
            Change::Put {
                key: &key(2),
                value: b"first",
            },
            Change::Delete { key: &key(1) },
            Change::Put {
                key: &key(2),
                value: b"second",
            },
            Change::Put {
                key: &key(3),
                value: b"",
            },
            Change::Put {
                key: &key(4),
                value: b"gone",
            },
            Change::Delete { key: &key(4) },
            Change::Delete { key: &key(99) },
        ];
        session.write(&changes).unwrap();
        session.write(&[]).unwrap();
        assert_eq!(found(session, &key(1)), None);
        assert_eq!(found(session, &key(2)).unwrap(), b"second");
        assert_eq!(found(session, &key(3)).unwrap(), b"");
        assert_eq!(found(session, &key(4)), None);
    });
}

#[test]
fn everything_is_there_after_a_reopen() {
    each("reopen", |store, asked| {
        if !store.capabilities().persistent {
            return;
        }
        for &durability in store.capabilities_for(asked).durabilities {
            let folder = asked.folder.join(durability.name());
            std::fs::create_dir(&folder).unwrap();
            let request = OpenRequest {
                durability,
                folder,
                ..asked.clone()
            };
            let first = open(store, &request);
            let mut session = first.clone().session().unwrap();
            for number in 0..50 {
                session.put(&key(number), &number.to_be_bytes()).unwrap();
            }
            drop(session);
            first.sync().unwrap();
            first.settle().unwrap();
            first.counters();
            if store.capabilities().compacts {
                first.compact().unwrap();
            }
            first.close().unwrap();
            with(store, &request, |session| {
                for number in 0..50 {
                    let value = found(session, &key(number)).unwrap();
                    assert_eq!(value, number.to_be_bytes());
                }
            });
        }
    });
}

#[test]
fn short_keys_are_numbers_in_order() {
    each("4-byte keys", |store, asked| {
        let request = OpenRequest {
            key_bytes: 4,
            ..asked.clone()
        };
        with(store, &request, |session| {
            for number in (0..300_u32).rev() {
                session
                    .put(&number.to_be_bytes(), &number.to_le_bytes())
                    .unwrap();
            }
            assert_eq!(
                found(session, &7_u32.to_be_bytes()).unwrap(),
                7_u32.to_le_bytes()
            );
            session.delete(&8_u32.to_be_bytes()).unwrap();
            assert_eq!(found(session, &8_u32.to_be_bytes()), None);
            if store.capabilities_for(&request).ordered {
                let seen = scanned(session, &6_u32.to_be_bytes(), 4);
                let expected = [6_u32, 7, 9, 10]
                    .map(|it| (it.to_be_bytes().to_vec(), it.to_le_bytes().to_vec()));
                assert_eq!(seen, expected);
            }
        });
    });
}

fn scanned(session: &mut dyn Session, from: &[u8], limit: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut seen = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| seen.push((key.to_vec(), value.to_vec()));
    let count = session.scan(from, limit, &mut visit).unwrap();
    assert_eq!(count, seen.len() as u64);
    seen
}

#[test]
fn scans_go_in_key_order_from_a_key_on_or_say_that_they_cannot() {
    each_session("scan", |store, asked, session| {
        for number in (0..100).rev() {
            session
                .put(&key(number * 2), &number.to_be_bytes())
                .unwrap();
        }
        if store.capabilities_for(asked).ordered {
            let seen = scanned(session, &key(31), 3);
            let keys: Vec<_> = seen.iter().map(|(key, _)| key.as_slice()).collect();
            assert_eq!(keys, [key(32), key(34), key(36)]);
            assert_eq!(scanned(session, &[], 1000).len(), 100);
            assert_eq!(scanned(session, &key(190), 1000).len(), 5);
            assert_eq!(scanned(session, &key(999), 10), []);
            assert_eq!(scanned(session, &key(0), 0), []);
        } else {
            let refused = session.scan(&key(0), 1, &mut |_, _| {});
            assert!(
                matches!(refused, Err(Error::Unsupported { .. })),
                "{refused:?}"
            );
        }
    });
}

#[test]
fn threads_with_a_session_each_work_at_once() {
    each("threads", |store, asked| {
        let open = open(store, asked);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let mut session = open.clone().session().unwrap();
                scope.spawn(move || {
                    let mine = |number: u32| key(thread * 1000 + number);
                    for number in 0..200 {
                        session.put(&mine(number), &number.to_be_bytes()).unwrap();
                        let value = found(&mut *session, &mine(number / 2)).unwrap();
                        assert_eq!(value, (number / 2).to_be_bytes());
                    }
                });
            }
        });
        let mut session = open.clone().session().unwrap();
        for number in 0..800 {
            let number = number / 200 * 1000 + number % 200;
            assert!(found(&mut *session, &key(number)).is_some(), "{number}");
        }
        drop(session);
        open.close().unwrap();
    });
}

#[test]
fn settings_are_printed_whole_for_every_profile() {
    each("settings", |store, asked| {
        for profile in [Profile::Default, Profile::Equal, Profile::Tuned] {
            let name = format!("{profile:?}");
            let folder = asked.folder.join(name);
            std::fs::create_dir(&folder).unwrap();
            let request = OpenRequest {
                profile,
                folder,
                ..asked.clone()
            };
            let settings = store.settings(&request).unwrap();
            if store.capabilities().persistent {
                assert!(!settings.is_empty(), "{}", store.name());
            }
            with(store, &request, |session| {
                session.put(&key(1), b"one").unwrap();
                assert!(found(session, &key(1)).is_some());
            });
        }
    });
}

#[test]
fn an_unknown_setting_is_refused_with_the_nearest_name() {
    for store in all() {
        let mut request = request_for(&*store, Path::new("nowhere"));
        let Some(known) = store.settings(&request).unwrap().into_keys().next() else {
            continue;
        };
        request
            .overrides
            .insert(format!("{known}x"), "1".to_string());
        for refused in [store.settings(&request).err(), store.open(&request).err()] {
            let Some(Error::Usage(words)) = refused else {
                panic!("{}: an unknown setting is a usage error", store.name());
            };
            assert!(words.contains(&known), "{words}");
        }
    }
}

#[test]
fn a_durability_that_a_store_has_not_is_refused() {
    for store in all() {
        let mut request = request(Path::new("nowhere"));
        request.durability = DurabilityName::Buffered;
        let weakest = store.capabilities().durabilities.first();
        if weakest != Some(&DurabilityName::Buffered) {
            let refused = store.settings(&request);
            assert!(
                matches!(refused, Err(Error::Unsupported { .. })),
                "{}",
                store.name()
            );
        }
    }
}

#[test]
fn unknown_stores_are_refused_with_the_nearest_name() {
    let words = find("levelbd").err().map(|error| error.to_string());
    assert!(words.is_some_and(|words| words.contains("near it: leveldb")));
    let words = find("zdp").err().map(|error| error.to_string());
    assert!(words.is_some_and(|words| words.contains("near it: zdb")));
    assert_eq!(find("zdb").map(|store| store.name()).ok(), Some("zdb"));
}

#[test]
fn a_folder_that_cannot_be_is_an_error_with_the_stores_words() {
    each("no folder", |store, asked| {
        if !store.capabilities().persistent {
            return;
        }
        let file = asked.folder.join("file");
        std::fs::write(&file, "not a store").unwrap();
        let below = OpenRequest {
            folder: file.join("below"),
            ..asked.clone()
        };
        let refused = store.open(&below);
        assert!(
            refused.is_err(),
            "{} opened a folder below a file",
            store.name()
        );
    });
}
