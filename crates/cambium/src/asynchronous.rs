//! Requests as futures, of no runtime.
//!
//! A request is submitted when its method is called ([`Store::submit`]), not when the
//! future is first polled: requests made one after the other are under way together, and
//! order holds per key. Dropping the future does not take the request back.
//!
//! An engine that serves requests natively
//! ([`native_submit`](cambium_api::Capabilities::native_submit): `alphard`) answers from
//! threads of its own. The others do the request within the call, so that its future is
//! ready at once; where that would hold up a runtime, call it from the runtime's threads
//! for blocking work.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use cambium_api::{Error, Request, Response, Result, SequenceNumber, Value, WriteBatch};
use cambium_io::sync::{Mutex, MutexGuard};

use crate::store::{OpenStore, Store};

/// The answer to a request, when it is there. It holds the store open. Polled again after
/// its answer it answers `Closed`.
///
/// ```
/// use cambium::prelude::*;
/// async fn planted(store: &Store) -> cambium::Result<bool> {
///     let (oak, elm) = (store.put_async("oak", "Quercus"), store.put_async("elm", "Ulmus"));
///     oak.await?;
///     elm.await?; // both were under way
///     Ok(store.get_async("oak").await?.is_some())
/// }
/// ```
#[must_use = "the answer, also an error, comes to the future alone"]
pub struct Answer<T> {
    shared: Arc<Mutex<State>>,
    /// What the kind of response holds that belongs to the request.
    taken: fn(Response) -> Option<T>,
    _store: Arc<OpenStore>,
}

#[derive(Default)]
struct State {
    answer: Option<Result<Response>>,
    is_answered: bool,
    waker: Option<Waker>,
}

/// Answers once; if it is dropped before, the answer is `Closed`.
struct Promise(Arc<Mutex<State>>);

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Promise {
    fn keep(&self, answer: Result<Response>) {
        let waker = {
            let mut state = lock(&self.0);
            if state.is_answered {
                return;
            }
            state.is_answered = true;
            state.answer = Some(answer);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.keep(Err(Error::Closed));
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.shared);
        match state.answer.take() {
            Some(answer) => {
                Poll::Ready(answer.and_then(|answer| (self.taken)(answer).ok_or(Error::Closed)))
            }
            None if state.is_answered => Poll::Ready(Err(Error::Closed)),
            None => {
                match &mut state.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

impl<T> std::fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_there = lock(&self.shared).is_answered;
        f.write_str(if is_there {
            "Answer(there)"
        } else {
            "Answer(to come)"
        })
    }
}

fn number(response: Response) -> Option<SequenceNumber> {
    match response {
        Response::Written(number) => Some(number),
        _ => None,
    }
}

impl Store {
    fn ask<T>(&self, request: Request, taken: fn(Response) -> Option<T>) -> Answer<T> {
        let shared = Arc::new(Mutex::new(State::default()));
        let promise = Promise(shared.clone());
        self.submit(request, Box::new(move |answer| promise.keep(answer)));
        Answer {
            shared,
            taken,
            _store: self.open.clone(),
        }
    }

    /// As [`Store::get`], as a future; see [`asynchronous`](crate::asynchronous).
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> Answer<Option<Value>> {
        let key = key.as_ref().to_vec();
        self.ask(Request::Get { key }, |response| match response {
            Response::Value(value) => Some(value),
            _ => None,
        })
    }

    /// As [`Store::put`], as a future; see [`asynchronous`](crate::asynchronous).
    pub fn put_async(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Answer<SequenceNumber> {
        let request = Request::Put {
            key: key.as_ref().to_vec(),
            value: value.as_ref().to_vec(),
            durability: self.durability(),
        };
        self.ask(request, number)
    }

    /// As [`Store::delete`], as a future; see [`asynchronous`](crate::asynchronous).
    pub fn delete_async(&self, key: impl AsRef<[u8]>) -> Answer<SequenceNumber> {
        let request = Request::Delete {
            key: key.as_ref().to_vec(),
            durability: self.durability(),
        };
        self.ask(request, number)
    }

    /// As [`Store::write`], as a future; see [`asynchronous`](crate::asynchronous).
    pub fn write_async(&self, batch: WriteBatch) -> Answer<SequenceNumber> {
        let durability = self.durability();
        self.ask(Request::Write { batch, durability }, number)
    }

    /// As [`Store::sync`], as a future: a barrier behind everything that was submitted;
    /// see [`asynchronous`](crate::asynchronous).
    pub fn sync_async(&self) -> Answer<()> {
        self.ask(Request::Sync, |response| {
            matches!(response, Response::Synced).then_some(())
        })
    }
}
