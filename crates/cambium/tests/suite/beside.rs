//! Processes: one writes a store and is killed again and again; others read it meanwhile.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cambium::{CompactOptions, Durability, Error, Options, Store, WriteBatch};

/// Names the store of the process that writes.
const STORE: &str = "CAMBIUM_TEST_WRITES";
/// Keys of a batch, which all get the batch's number.
const BATCH: u64 = 8;

fn options() -> Options {
    Options::new()
        .set("write_buffer_entries", "300")
        .set("compaction_threshold", "20")
        .set("compaction_least_bytes", "200000")
        .durability(Durability::Written)
}

/// A value that says whose it is: its key, the number of its write, and as many letters as
/// both say.
fn value_of(key: &str, number: u64) -> String {
    let letters = (number % 400) as usize + key.len();
    format!("{key} {number} {}", "v".repeat(letters))
}

fn number_in(key: &str, value: &str) -> u64 {
    let number = value.split(' ').nth(1).and_then(|text| text.parse().ok());
    let number = number.unwrap_or_else(|| panic!("{key} has {value:?}"));
    assert_eq!(value, value_of(key, number));
    number
}

/// The program of the other process: it writes until it is killed.
#[test]
fn writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(STORE) else {
        return;
    };
    let store = options().open(&folder).unwrap();
    let newest = store.get("batch-0").unwrap();
    let mut number = newest.map_or(0, |value| {
        number_in("batch-0", std::str::from_utf8(&value).unwrap())
    });
    loop {
        number += 1;
        let mut batch = WriteBatch::new();
        for place in 0..BATCH {
            let key = format!("batch-{place}");
            batch.put(key.as_bytes(), value_of(&key, number).as_bytes());
        }
        let other = format!("other-{}", number * 7 % 3_000);
        match number % 5 {
            0 => batch.delete(other.as_bytes()),
            _ => batch.put(other.as_bytes(), value_of(&other, number).as_bytes()),
        };
        let durability = match number % 40 {
            0 => Durability::Synced,
            _ => Durability::Written,
        };
        store.with_durability(durability).write(batch).unwrap();
        if number % 4_000 == 0 {
            store.compact(&CompactOptions::default(), &()).unwrap();
        }
    }
}

fn start_writer(folder: &Path) -> Child {
    let program = std::env::current_exe().unwrap();
    Command::new(program)
        .args(["--exact", "beside::writes_until_it_is_killed"])
        .env(STORE, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Looks at a moment: every value is whole, and those of one batch are of one number.
fn look(store: &Store, last: &mut u64) {
    let snapshot = store.snapshot().unwrap();
    let mut of_batch = Vec::new();
    for entry in snapshot.iterate().unwrap() {
        let entry = entry.unwrap();
        let key = std::str::from_utf8(&entry.key).unwrap();
        let number = number_in(key, std::str::from_utf8(&entry.value).unwrap());
        if key.starts_with("batch") {
            of_batch.push(number);
        }
    }
    assert!(
        of_batch.windows(2).all(|pair| pair[0] == pair[1]),
        "{of_batch:?}"
    );
    let Some(&number) = of_batch.first() else {
        assert_eq!(*last, 0, "all is gone");
        return;
    };
    assert_eq!(of_batch.len() as u64, BATCH);
    assert!(number >= *last, "{number} after {last}");
    *last = number;
}

/// Keeps one moment for some refreshes of others, then takes the next one.
fn reader(folder: &Path, until: Instant) -> u64 {
    let (mut last, mut rounds) = (0, 0u64);
    let mut store = Options::new().open_read_only(folder).unwrap();
    let mut old: Option<(cambium::Snapshot, Vec<u8>)> = None;
    while Instant::now() < until {
        rounds += 1;
        match rounds % 7 {
            0 => store = Options::new().open_read_only(folder).unwrap(),
            _ => store.refresh().unwrap(),
        }
        look(&store, &mut last);
        if let Some((snapshot, value)) = &old {
            assert_eq!(
                snapshot.get("batch-3").unwrap().as_deref(),
                Some(&value[..])
            );
        }
        if rounds % 5 == 1 {
            let snapshot = store.snapshot().unwrap();
            let value = snapshot.get("batch-3").unwrap();
            old = value.map(|value| (snapshot, value.to_vec()));
        }
    }
    assert!(rounds > 10, "{rounds}");
    last
}

#[test]
fn readers_beside_a_writer_that_is_killed_see_whole_moments() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    options().create(path, "forest").unwrap().close().unwrap();
    let until = Instant::now() + Duration::from_secs(8);
    let seen = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| reader(path, until)))
            .collect();
        while Instant::now() < until {
            let mut writer = start_writer(path);
            std::thread::sleep(Duration::from_millis(700));
            writer.kill().unwrap();
            writer.wait().unwrap();
        }
        let seen = readers.into_iter().map(|reader| reader.join().unwrap());
        seen.max().unwrap()
    });
    assert!(seen > 200, "the writer came to {seen}");
    // The next writer goes on from where the last reader may have been.
    let store = options().open(path).unwrap();
    let mut last = seen;
    look(&store, &mut last);
    store.close().unwrap();
}

#[test]
fn engines_that_cannot_be_read_beside_a_writer_say_who_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let store = Options::new().create(folder.path(), "wisckey").unwrap();
    let refused = Options::new().open_read_only(folder.path());
    assert!(matches!(refused, Err(Error::Locked { owner: Some(_), .. })));
    store.close().unwrap();
}
