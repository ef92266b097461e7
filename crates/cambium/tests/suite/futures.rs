//! Requests as futures, with an executor of ten lines and with tokio.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use cambium::prelude::*;
use cambium::{Error, SequenceNumber};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let (mut future, waker) = (
        pin!(future),
        Waker::from(Arc::new(Unpark(thread::current()))),
    );
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

fn stores() -> Vec<(tempfile::TempDir, Store)> {
    let engines = ["forest", "wisckey", "zdb", "alphard"];
    let made = engines.map(|engine| {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new();
        if engine == "alphard" {
            options = options.set("size", "64MiB");
        }
        let store = options.create(folder.path(), engine).unwrap();
        (folder, store)
    });
    made.into()
}

async fn writes_and_reads(store: Store) -> cambium::Result<()> {
    let synced = store.with_durability(Durability::Synced);
    let first = synced.put_async("oak", "Quercus").await?;
    let batch = || {
        let mut batch = WriteBatch::new();
        batch.put("elm", "Ulmus").put("ash", "Fraxinus");
        batch
    };
    assert!(store.write_async(batch()).await? > first);
    assert_eq!(store.get_async("oak").await?.unwrap(), "Quercus");
    store.delete_async("oak").await?;
    store.sync_async().await?;
    assert_eq!(store.get_async("oak").await?, None);
    assert_eq!(store.get_async("elm").await?.unwrap(), "Ulmus");
    let too_long = store.put_async(vec![0; 70_000], "").await;
    assert!(matches!(too_long, Err(Error::LimitExceeded(_))));
    Ok(())
}

#[test]
fn requests_are_answered_on_every_engine() {
    for (_folder, store) in stores() {
        block_on(writes_and_reads(store)).unwrap();
    }
}

#[test]
fn requests_are_answered_under_tokio() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for (_folder, store) in stores() {
        runtime.block_on(async {
            // Futures of the store are `Send`, so tasks may hold them.
            let task = tokio::spawn(writes_and_reads(store));
            task.await.unwrap().unwrap();
        });
    }
}

#[test]
fn many_requests_are_under_way_at_once_and_a_key_keeps_their_order() {
    for (_folder, store) in stores() {
        let puts: Vec<_> = (0..100_u32)
            .map(|number| store.put_async([number as u8 % 7], number.to_le_bytes()))
            .collect();
        let read = store.get_async([6]);
        let numbers: Vec<SequenceNumber> =
            puts.into_iter().map(|put| block_on(put).unwrap()).collect();
        assert_eq!(numbers.len(), 100);
        assert_eq!(block_on(read).unwrap().unwrap(), 97_u32.to_le_bytes());
    }
}

#[test]
fn a_future_holds_its_store_open_and_answers_after_a_close() {
    for (folder, store) in stores() {
        let put = store.put_async("oak", "Quercus");
        drop(store);
        block_on(put).unwrap();
        let store = cambium::open(folder.path()).unwrap();
        assert!(block_on(store.get_async("oak")).unwrap().is_some());
        store.close().unwrap();
        let late = block_on(store.get_async("oak"));
        assert!(matches!(late, Err(Error::Closed)), "{late:?}");
    }
}
