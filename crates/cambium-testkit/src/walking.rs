//! Reading a cursor to its end in all the ways that it has.

use std::ops::ControlFlow;

use cambium_api::Cursor;
use cambium_base::{Error, Result};

/// Hands the next `count` entries, at least one, to `take` by `visit`; `Continue` at the end.
///
/// # Errors
/// Those of the cursor.
pub fn visit_some(
    cursor: &mut dyn Cursor,
    count: usize,
    mut take: impl FnMut(&[u8], &[u8]),
) -> Result<ControlFlow<()>> {
    let mut left = count;
    cursor.visit(&mut |key, value| {
        take(key, value);
        left -= 1;
        match left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })
}

/// Hands all entries that are left to `take`: one by `next`, then a stretch by `visit`, each
/// stretch longer than the one before, so that they end everywhere in what an engine reads
/// together. The end stays the end.
///
/// # Errors
/// Those of the cursor; `Corruption` if it goes on behind its end.
pub fn walk(cursor: &mut dyn Cursor, mut take: impl FnMut(&[u8], &[u8])) -> Result<()> {
    for stretch in 0.. {
        let Some(entry) = cursor.next()? else {
            break;
        };
        take(&entry.key, &entry.value);
        if stretch > 0 && visit_some(cursor, stretch, &mut take)?.is_continue() {
            break;
        }
    }
    let has_ended = cursor.next()?.is_none()
        && cursor
            .visit(&mut |_, _| ControlFlow::Break(()))?
            .is_continue();
    match has_ended {
        true => Ok(()),
        false => Err(Error::corruption("", 0, "a cursor goes on behind its end")),
    }
}
