//! Submitted requests: completions exactly once, order per key, barriers, few writes,
//! closes and drops with requests under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use cambium_alphard::Alphard;
use cambium_api::{Durability, Engine, Error, OptionValues, Request, Response, Result, WriteBatch};
use cambium_io::Environment;
use cambium_testkit::counted::Counted;
use cambium_testkit::stores::{self, threaded};

use crate::by_hand::ByHand;

fn create(environment: &Environment, queues: &str) -> Arc<dyn Engine> {
    let options = OptionValues::from([("size", "16MiB"), ("queues", queues)]);
    stores::create(&Alphard, environment, &options)
}

fn put(number: u32, durability: Durability) -> Request {
    Request::Put {
        key: number.to_be_bytes().to_vec(),
        value: vec![number as u8; 300],
        durability,
    }
}

#[test]
fn requests_that_gathered_share_one_write_and_one_sync() {
    let device = Counted::new();
    let hand = ByHand::default();
    let environment = Environment {
        executor: Arc::new(hand.clone()),
        ..device.environment.clone()
    };
    let store = create(&environment, "1");
    store.put(b"first", b"", Durability::Synced).unwrap();
    let answers = Arc::new(AtomicUsize::new(0));
    for number in 0..200 {
        let count = answers.clone();
        let completion = Box::new(move |answer: Result<Response>| {
            answer.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        });
        store.submit(put(number, Durability::Synced), completion);
    }
    assert_eq!(answers.load(Ordering::Relaxed), 0, "nobody works yet");
    let done = device.during(|| hand.run());
    assert_eq!(answers.load(Ordering::Relaxed), 200);
    assert_eq!((done.reads, done.writes, done.syncs), (0, 1, 1));
}

#[test]
fn large_values_of_a_group_go_to_new_space_in_longer_writes() {
    // Who writes no zeros ahead does not watch what is new: writes of 256 KiB and more.
    for (zero_ahead, writes) in [("on", 2), ("off", 4)] {
        let device = Counted::new();
        let hand = ByHand::default();
        let environment = Environment {
            executor: Arc::new(hand.clone()),
            ..device.environment.clone()
        };
        let options = [
            ("size", "16MiB"),
            ("queues", "1"),
            ("zero_ahead", zero_ahead),
        ];
        let store = stores::create(&Alphard, &environment, &OptionValues::from(options));
        store.put(b"first", b"", Durability::Synced).unwrap();
        let answers = Arc::new(AtomicUsize::new(0));
        for number in 0..8u32 {
            let request = Request::Put {
                key: number.to_be_bytes().to_vec(),
                value: vec![number as u8; 150_000],
                durability: Durability::Synced,
            };
            let count = answers.clone();
            let completion = Box::new(move |answer: Result<Response>| {
                answer.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            });
            store.submit(request, completion);
        }
        // The group's writes begin, and another task waits for them.
        let done = device.during(|| {
            hand.run();
            hand.run();
        });
        assert_eq!(answers.load(Ordering::Relaxed), 8);
        assert_eq!((done.reads, done.writes, done.syncs), (0, writes, 1));
        for number in 0..8u32 {
            let found = store.get(&number.to_be_bytes()).unwrap().unwrap();
            assert!(found.len() == 150_000 && found.iter().all(|&byte| byte == number as u8));
        }
    }
}

#[test]
fn order_holds_per_key_and_barriers_see_everything_before_them() {
    let hand = ByHand::default();
    let environment = Environment {
        executor: Arc::new(hand.clone()),
        ..Environment::memory()
    };
    let store = create(&environment, "3");
    let (sender, receiver) = channel();
    let submit = |name: String, request: Request| {
        let sender = sender.clone();
        let completion = Box::new(move |answer: Result<Response>| {
            sender.send((name, answer.unwrap())).unwrap();
        });
        store.submit(request, completion);
    };
    let get = |number: u32| Request::Get {
        key: number.to_be_bytes().to_vec(),
    };
    for number in 0..20 {
        submit(format!("before {number}"), get(number));
        submit(format!("put {number}"), put(number, Durability::Written));
        submit(format!("after {number}"), get(number));
    }
    let mut batch = WriteBatch::new();
    for number in 0..20u32 {
        batch.delete(&number.to_be_bytes());
    }
    let durability = Durability::Written;
    submit("batch".into(), Request::Write { batch, durability });
    for number in 0..20 {
        submit(format!("behind {number}"), get(number));
    }
    submit("sync".into(), Request::Sync);
    for _ in 0..6 {
        hand.run();
    }
    let answers: Vec<(String, Response)> = receiver.try_iter().collect();
    assert_eq!(answers.len(), 3 * 20 + 1 + 20 + 1);
    let place = |name: &str| answers.iter().position(|(found, _)| found == name).unwrap();
    for number in 0..20u32 {
        let [before, written, after, behind] =
            ["before", "put", "after", "behind"].map(|name| place(&format!("{name} {number}")));
        assert!(before < written && written < after && after < place("batch"));
        assert!(place("batch") < behind && behind < place("sync"));
        assert_eq!(answers[before].1, Response::Value(None));
        let value = vec![number as u8; 300];
        assert_eq!(answers[after].1, Response::Value(Some(value.into())));
        assert_eq!(answers[behind].1, Response::Value(None));
    }
}

#[test]
fn completions_come_once_through_threads_errors_and_a_close() {
    let environment = threaded();
    let store = create(&environment, "2");
    let (answered, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (store, answered, refused) = (&store, &answered, &refused);
            scope.spawn(move || {
                for number in 0..3_000 {
                    let request = match number % 10 {
                        0 => Request::Sync,
                        1 => Request::Put {
                            key: vec![0; 70_000],
                            value: Vec::new(),
                            durability: Durability::Written,
                        },
                        2..=4 => Request::Get {
                            key: (thread * 3_000 + number - 2).to_be_bytes().to_vec(),
                        },
                        _ => put(thread * 3_000 + number, Durability::Buffered),
                    };
                    let (answered, refused) = (answered.clone(), refused.clone());
                    let completion = Box::new(move |answer: Result<Response>| {
                        match answer {
                            Ok(_) => answered.fetch_add(1, Ordering::Relaxed),
                            Err(Error::LimitExceeded(_) | Error::Closed) => {
                                refused.fetch_add(1, Ordering::Relaxed)
                            }
                            Err(error) => panic!("{error}"),
                        };
                    });
                    store.submit(request, completion);
                    if thread == 3 && number == 2_000 {
                        store.close().unwrap();
                    }
                }
            });
        }
    });
    let sum = answered.load(Ordering::Relaxed) + refused.load(Ordering::Relaxed);
    assert_eq!(sum, 4 * 3_000);
    assert!(answered.load(Ordering::Relaxed) > 1_000);
}

/// Batches stand in all queues; they wait for room like everything else.
#[test]
fn who_submits_waits_while_many_bytes_wait_in_the_queues() {
    let hand = ByHand::default();
    let environment = Environment {
        executor: Arc::new(hand.clone()),
        ..Environment::memory()
    };
    let options = OptionValues::from([("size", "256MiB")]);
    let store = stores::create(&Alphard, &environment, &options);
    let (submitted, answered) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let is_worked = AtomicBool::new(false);
    let first_to_wait = 3;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..6 {
                let mut batch = WriteBatch::new();
                batch.put(&[number], &vec![number; 20 << 20]);
                let durability = Durability::Written;
                let count = answered.clone();
                let completion = Box::new(move |answer: Result<Response>| {
                    answer.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                });
                store.submit(Request::Write { batch, durability }, completion);
                assert!(number < first_to_wait || is_worked.load(Ordering::Relaxed));
                submitted.fetch_add(1, Ordering::Relaxed);
            }
        });
        while submitted.load(Ordering::Relaxed) < first_to_wait.into() {
            std::thread::yield_now();
        }
        // Time for the next one, which must not be taken.
        (0..1_000).for_each(|_| std::thread::yield_now());
        assert_eq!(submitted.load(Ordering::Relaxed), first_to_wait.into());
        is_worked.store(true, Ordering::Relaxed);
        while answered.load(Ordering::Relaxed) < 6 {
            hand.run();
            std::thread::yield_now();
        }
    });
}

#[test]
fn what_is_left_when_a_store_is_dropped_is_answered_closed() {
    let hand = ByHand::default();
    let environment = Environment {
        executor: Arc::new(hand.clone()),
        ..Environment::memory()
    };
    let store = create(&environment, "2");
    let closed = Arc::new(AtomicUsize::new(0));
    for number in 0..10 {
        for request in [put(number, Durability::Written), Request::Sync] {
            let count = closed.clone();
            let completion = Box::new(move |answer: Result<Response>| {
                assert!(matches!(answer, Err(Error::Closed)));
                count.fetch_add(1, Ordering::Relaxed);
            });
            store.submit(request, completion);
        }
    }
    drop(store);
    assert_eq!(closed.load(Ordering::Relaxed), 20);
    hand.run();
    assert_eq!(closed.load(Ordering::Relaxed), 20);
}

/// A completion that panics holds up no other request, of its queue or of a barrier; writes
/// are refused from then on.
#[test]
fn a_completion_that_panics_stops_writes_and_no_queue() {
    for panicking in [
        put(0, Durability::Written),
        put(0, Durability::Synced),
        Request::Sync,
    ] {
        for executor in [true, false] {
            let mut environment = Environment::memory();
            if executor {
                environment.executor = Arc::new(cambium_io::ThreadExecutor);
            }
            let store = create(&environment, "2");
            store.submit(panicking.clone(), Box::new(|_| panic!("on purpose")));
            let (sender, answers) = channel();
            for number in 0..20u32 {
                let get = Request::Get {
                    key: number.to_be_bytes().to_vec(),
                };
                for request in [get, put(number, Durability::Written), Request::Sync] {
                    let sender = sender.clone();
                    let completion = move |answer| sender.send(answer).unwrap();
                    store.submit(request, Box::new(completion));
                }
            }
            drop(sender);
            let answers: Vec<Result<Response>> = answers.iter().collect();
            assert_eq!(answers.len(), 60);
            let refused = store.put(b"key", b"", Durability::Written).unwrap_err();
            assert!(matches!(refused, Error::Poisoned { .. }), "{refused}");
            assert!(refused.to_string().contains("panicked"), "{refused}");
            assert!(store.close().is_err(), "a write may be lost");
        }
    }
}

/// Groups of large values are written while those before them are synced.
#[test]
fn large_values_of_many_threads_are_all_there_after_a_close() {
    let environment = Environment {
        executor: Arc::new(cambium_io::ThreadExecutor),
        ..Environment::memory()
    };
    let mut options = OptionValues::from([("size", "32MiB")]);
    let store = stores::create(&Alphard, &environment, &options);
    let value = |number: u32| vec![number as u8; 150_000 + number as usize];
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let store = &store;
            scope.spawn(move || {
                for number in (thread..80).step_by(8) {
                    let key = number.to_be_bytes();
                    store.put(&key, &value(number), Durability::Synced).unwrap();
                    assert_eq!(store.get(&key).unwrap().unwrap(), value(number));
                }
            });
        }
    });
    let stats = store.stats().unwrap();
    assert_eq!(stats.number("synced_through"), Some(80));
    assert_eq!(stats.number("pending_bytes"), Some(0));
    assert!(stats.number("syncs").unwrap() <= 80);
    store.close().unwrap();
    drop(store);
    options = OptionValues::default();
    let store = stores::open(&Alphard, &environment, &options);
    for number in 0..80u32 {
        let found = store.get(&number.to_be_bytes()).unwrap();
        assert_eq!(found.unwrap(), value(number));
    }
}
