//! Groups whose writes are under way while the next ones are led: who is answered when,
//! and what a failure of one is to those behind it.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cambium_alphard::Alphard;
use cambium_api::{Durability, Engine, Error, OptionValues, Request, Response, Result, Statistics};
use cambium_io::{
    BatchOptions, Environment, File, FileSystem, OpenOptions, ReadBackend, SyncWriteQueue,
    WriteQueue, WriteRequest,
};
use cambium_testkit::layer::{FileSystemLayer, Layered};
use cambium_testkit::stores;

use crate::by_hand::ByHand;

/// A file system in memory, where queued writes are done when they are waited for: they
/// are under way until then.
#[derive(Debug)]
struct Slow {
    inner: Arc<dyn FileSystem>,
    failing: Arc<Mutex<Vec<i32>>>,
}

/// A queue whose next wait fails with the first of these errors of the system, if any.
#[derive(Debug)]
struct SlowQueue {
    inner: SyncWriteQueue,
    under_way: Vec<WriteRequest>,
    failing: Arc<Mutex<Vec<i32>>>,
}

impl WriteQueue for SlowQueue {
    fn backend(&self) -> ReadBackend {
        self.inner.backend()
    }

    fn submit(&mut self, request: WriteRequest) {
        self.under_way.push(request);
    }

    fn wait_all(&mut self) -> Vec<Result<()>> {
        let under_way = std::mem::take(&mut self.under_way);
        let mut failing = self.failing.lock().unwrap();
        if !under_way.is_empty() && !failing.is_empty() {
            let code = failing.remove(0);
            let fail = |request: &WriteRequest| {
                let error = std::io::Error::from_raw_os_error(code);
                Err(Error::io("write", request.file.path(), error))
            };
            return under_way.iter().map(fail).collect();
        }
        under_way
            .into_iter()
            .for_each(|write| self.inner.submit(write));
        self.inner.wait_all()
    }

    fn sync_all(&mut self, files: &[Arc<dyn File>]) -> Vec<Result<()>> {
        self.inner.sync_all(files)
    }

    fn write_synced(&mut self, requests: Vec<WriteRequest>) -> Vec<Result<()>> {
        self.inner.write_synced(requests)
    }
}

impl FileSystemLayer for Slow {
    fn below(&self) -> &dyn FileSystem {
        &*self.inner
    }
    fn write_queue(&self, _options: BatchOptions) -> Result<Box<dyn WriteQueue>> {
        Ok(Box::new(SlowQueue {
            inner: SyncWriteQueue::default(),
            under_way: Vec::new(),
            failing: self.failing.clone(),
        }))
    }
}

const STORE: &str = "/store";

/// A store whose tasks run by hand, and whose writes take until they are waited for.
struct Held {
    plain: Environment,
    hand: ByHand,
    failing: Arc<Mutex<Vec<i32>>>,
    store: Arc<dyn Engine>,
    answers: Arc<Mutex<Vec<(u8, bool)>>>,
}

impl Held {
    fn new(options: &[(&str, &str)]) -> Self {
        let plain = Environment::memory();
        let (hand, failing) = (ByHand::default(), Arc::default());
        let environment = Environment {
            file_system: Arc::new(Layered(Slow {
                inner: plain.file_system.clone(),
                failing: Arc::clone(&failing),
            })),
            executor: Arc::new(hand.clone()),
            ..plain.clone()
        };
        let mut all = OptionValues::from([("size", "32MiB"), ("queues", "1")]);
        options.iter().for_each(|(name, value)| {
            all.set(name, value);
        });
        let store = stores::create(&Alphard, &environment, &all);
        // Takes space into use and begins the epoch, so that no group has to.
        store.put(b"first", b"", Durability::Synced).unwrap();
        Held {
            plain,
            hand,
            failing,
            store,
            answers: Arc::default(),
        }
    }

    fn submit(&self, number: u8, request: Request) {
        let answers = self.answers.clone();
        let completion = Box::new(move |answer: Result<Response>| {
            answers.lock().unwrap().push((number, answer.is_ok()));
        });
        self.store.submit(request, completion);
    }

    /// Submits two large puts, the first over a key that all groups have, and lets a
    /// worker take them.
    fn begin_group(&self, number: u8) {
        for key in [b'k', number] {
            let value = vec![number; 400_000];
            let request = Request::Put {
                key: vec![key],
                value,
                durability: Durability::Synced,
            };
            self.submit(number, request);
        }
        self.hand.work();
    }

    fn taken_answers(&self) -> Vec<(u8, bool)> {
        std::mem::take(&mut *self.answers.lock().unwrap())
    }

    fn syncs(&self) -> u64 {
        self.store.stats().unwrap().number("syncs").unwrap()
    }

    /// True if a group's values are on the device.
    fn lies_there(&self, number: u8) -> bool {
        let path = Path::new(STORE).join("data");
        let data = self.plain.file_system.open(&path, OpenOptions::READ);
        let mut bytes = vec![0; 4 << 20];
        data.unwrap().read_exact_at(&mut bytes, 0).unwrap();
        bytes.iter().filter(|&&byte| byte == number).count() >= 790_000
    }

    /// What lies there, as after the death of the process.
    fn opened_anew(self) -> Arc<dyn Engine> {
        drop(self.store);
        stores::open(&Alphard, &self.plain, &OptionValues::default())
    }
}

#[test]
fn groups_are_led_while_others_are_under_way_and_share_a_sync() {
    let held = Held::new(&[]);
    let syncs = held.syncs();
    for number in 1..=3 {
        held.begin_group(number);
        // Seen at once, and not answered.
        assert_eq!(held.store.get(b"k").unwrap().unwrap()[..1], [number]);
        assert!(!held.lies_there(number));
    }
    held.submit(4, Request::Get { key: b"k".to_vec() });
    held.hand.work();
    assert_eq!(held.taken_answers(), []);
    assert_eq!(held.syncs(), syncs);
    let pending = |stats: Statistics| stats.number("pending_bytes").unwrap();
    assert!(pending(held.store.stats().unwrap()) >= 6 * 400_000);
    held.hand.answer();
    let expected = [1, 1, 2, 2, 3, 3, 4].map(|number| (number, true));
    assert_eq!(held.taken_answers(), expected);
    assert_eq!(held.syncs(), syncs + 1);
    let stats = held.store.stats().unwrap();
    assert_eq!(stats.number("synced_through"), Some(7));
    assert_eq!(pending(stats), 0);
    // Nothing waits any more: answered at once.
    held.submit(5, Request::Get { key: b"k".to_vec() });
    held.hand.work();
    assert_eq!(held.taken_answers(), [(5, true)]);
    let store = held.opened_anew();
    assert_eq!(store.get(b"k").unwrap().unwrap()[..1], [3]);
}

#[test]
fn more_groups_than_may_be_under_way_wait_for_the_oldest() {
    let held = Held::new(&[]);
    (1..=20).for_each(|number| held.begin_group(number));
    assert_eq!(held.taken_answers(), []);
    held.hand.answer();
    assert_eq!(held.taken_answers().len(), 40);
    let store = held.opened_anew();
    for number in 1..=20 {
        let found = store.get(&[number]).unwrap();
        assert_eq!(found.unwrap(), vec![number; 400_000]);
    }
}

#[test]
fn a_sync_and_a_close_wait_for_what_is_under_way() {
    let held = Held::new(&[]);
    held.begin_group(1);
    held.begin_group(2);
    held.store.sync().unwrap();
    assert!(held.lies_there(1) && held.lies_there(2));
    let stats = held.store.stats().unwrap();
    assert_eq!(stats.number("synced_through"), Some(5));
    assert_eq!(held.taken_answers(), []);
    held.begin_group(3);
    held.store.close().unwrap();
    let expected = [1, 1, 2, 2, 3, 3].map(|number| (number, true));
    assert_eq!(held.taken_answers(), expected);
    let store = held.opened_anew();
    assert_eq!(store.get(b"k").unwrap().unwrap()[..1], [3]);
}

#[test]
fn a_failed_write_is_the_failure_of_all_groups_behind_it() {
    const EIO: i32 = 5;
    let held = Held::new(&[]);
    held.begin_group(1);
    held.hand.answer();
    assert_eq!(held.taken_answers(), [(1, true), (1, true)]);
    (2..=4).for_each(|number| held.begin_group(number));
    held.failing.lock().unwrap().push(EIO);
    held.hand.answer();
    let expected = [2, 2, 3, 3, 4, 4].map(|number| (number, false));
    assert_eq!(held.taken_answers(), expected);
    let refused = held.store.put(b"k", b"", Durability::Buffered);
    assert!(refused.is_err(), "nothing is known of the device");
    let store = held.opened_anew();
    assert_eq!(store.get(b"k").unwrap().unwrap()[..1], [1]);
}

/// Readers have seen the entries of a flight, so lack of space cannot take them back.
#[test]
fn a_flight_that_finds_no_space_stops_all_writes_and_is_not_said_to_be_taken_back() {
    const ENOSPC: i32 = 28;
    let held = Held::new(&[]);
    held.begin_group(1);
    held.begin_group(2);
    held.failing.lock().unwrap().push(ENOSPC);
    held.hand.answer();
    let expected = [1, 1, 2, 2].map(|number| (number, false));
    assert_eq!(held.taken_answers(), expected);
    let refused = held.store.put(b"k", b"", Durability::Synced).unwrap_err();
    assert!(matches!(refused, Error::Poisoned { .. }), "{refused}");
    held.opened_anew();
}

#[test]
fn what_waits_for_a_flight_when_a_store_is_dropped_is_answered_closed() {
    let held = Held::new(&[]);
    let closed = Arc::new(AtomicUsize::new(0));
    for number in 0..2 {
        let count = closed.clone();
        let completion = Box::new(move |answer: Result<Response>| {
            assert!(matches!(answer, Err(Error::Closed)));
            count.fetch_add(1, Ordering::Relaxed);
        });
        let request = Request::Put {
            key: vec![number],
            value: vec![number; 400_000],
            durability: Durability::Synced,
        };
        held.store.submit(request, completion);
    }
    held.hand.work();
    assert_eq!(closed.load(Ordering::Relaxed), 0);
    drop(held.store);
    assert_eq!(closed.load(Ordering::Relaxed), 2);
}
