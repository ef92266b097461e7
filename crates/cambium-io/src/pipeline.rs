//! Work in two stages: items are made while those before them are taken.
//!
//! ```text
//!  a thread of its own:  make 3 │ make 4 │ make 5
//!  who calls:            take 1 │ take 2 │ take 3
//! ```
//!
//! Items are taken in the order in which they are made, and two of them wait at most. Where
//! the executor runs no tasks (a simulation), or the system has no thread left, each is made
//! when the one before it is taken. So is work of one item.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use cambium_base::Result;

use crate::step::Executor;

/// Hands what `make` answers to `take` until it answers `None`.
///
/// # Errors
/// The first one of either. After one of `make` the items before it were taken.
///
/// ```
/// use cambium_io::{ThreadExecutor, pipeline};
/// let mut numbers = 0..5;
/// let mut squares = Vec::new();
/// pipeline(&ThreadExecutor, "numbers", || Ok(numbers.next()), |number| {
///     squares.push(number * number);
///     Ok(())
/// })?;
/// assert_eq!(squares, [0, 1, 4, 9, 16]);
/// # Ok::<(), cambium_base::Error>(())
/// ```
pub fn pipeline<T: Send>(
    executor: &dyn Executor,
    name: &str,
    mut make: impl FnMut() -> Result<Option<T>> + Send,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let Some(first) = make()? else {
        return Ok(());
    };
    let mut untaken = vec![first];
    if executor.runs_tasks() {
        let second = make();
        if matches!(second, Ok(Some(_))) {
            untaken.extend(second?);
            untaken = beside(name, untaken, &mut make, &mut take)?;
            if untaken.is_empty() {
                return Ok(());
            }
        } else {
            untaken.drain(..).try_for_each(&mut take)?;
            return second.map(|_| ());
        }
    }
    untaken.drain(..).try_for_each(&mut take)?;
    while let Some(item) = make()? {
        take(item)?;
    }
    Ok(())
}

/// Takes the items that are made, and all that a thread makes meanwhile; gives the items back
/// if there is no thread.
fn beside<T: Send>(
    name: &str,
    made: Vec<T>,
    make: &mut (impl FnMut() -> Result<Option<T>> + Send),
    take: &mut impl FnMut(T) -> Result<()>,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(1);
        let maker = thread::Builder::new().name(name.to_string());
        if maker
            .spawn_scoped(scope, move || send_all(make, &sender))
            .is_err()
        {
            return Ok(made);
        }
        made.into_iter().try_for_each(&mut *take)?;
        receiver.into_iter().try_for_each(|item| take(item?))?;
        Ok(Vec::new())
    })
}

/// Sends items until there are no more, one fails, or nobody takes them.
fn send_all<T>(make: &mut impl FnMut() -> Result<Option<T>>, sender: &SyncSender<Result<T>>) {
    while let Some(item) = make().transpose() {
        let has_failed = item.is_err();
        if sender.send(item).is_err() || has_failed {
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on has failed
mod tests {
    use std::cell::Cell;

    use cambium_base::Error;

    use super::*;
    use crate::ThreadExecutor;
    use crate::simulated::IdleExecutor;

    fn failure() -> Error {
        Error::InvalidArgument("seven".to_string())
    }

    /// Items up to a count, where making and taking may fail at one.
    fn run(
        executor: &dyn Executor,
        count: u64,
        (unmade, untaken): (u64, u64),
    ) -> (Vec<u64>, Result<()>) {
        let (mut next, mut taken) = (0, Vec::new());
        let make = || {
            next += 1;
            match next {
                number if number == unmade => Err(failure()),
                number => Ok(Some(number).filter(|number| *number <= count)),
            }
        };
        let outcome = pipeline(executor, "numbers", make, |number| {
            taken.push(number);
            match number == untaken {
                true => Err(failure()),
                false => Ok(()),
            }
        });
        (taken, outcome)
    }

    #[test]
    fn items_come_in_order_up_to_the_first_failure() {
        let executors: [&dyn Executor; 2] = [&ThreadExecutor, &IdleExecutor];
        for executor in executors {
            for count in 0..8 {
                let (taken, outcome) = run(executor, count, (0, 0));
                assert_eq!(taken, (1..=count).collect::<Vec<_>>());
                assert!(outcome.is_ok());
            }
            for failing in 1..8 {
                let (taken, outcome) = run(executor, 9, (failing, 0));
                assert_eq!(taken, (1..failing).collect::<Vec<_>>());
                assert!(outcome.is_err());
                let (taken, outcome) = run(executor, 9, (0, failing));
                assert_eq!(taken, (1..=failing).collect::<Vec<_>>());
                assert!(outcome.is_err());
            }
        }
    }

    #[test]
    fn items_are_made_beside_those_that_are_taken() {
        let maker = std::sync::Mutex::new(Vec::new());
        let left = Cell::new(5);
        let make = || {
            maker.lock().unwrap().push(thread::current().id());
            Ok(Some(()).filter(|()| maker.lock().unwrap().len() <= 5))
        };
        pipeline(&ThreadExecutor, "items", make, |()| {
            left.set(left.get() - 1);
            Ok(())
        })
        .unwrap();
        let ids = maker.into_inner().unwrap();
        assert_eq!((left.get(), ids.len()), (0, 6));
        assert_eq!((ids[0], ids[1]), (thread::current().id(), ids[0]));
        assert!(ids[2..].iter().all(|id| *id != ids[0]));
    }
}
