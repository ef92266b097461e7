//! Deletes on a full disk: they give space back before they are refused.

use cambium_base::{Error, Result};

/// Does a write that gives space back. Where there is no room for it, `give_space_back` makes
/// some, and the write is done again; its error is answered when nothing more is given back.
/// The background may be slower than the threads that delete.
pub fn make_room_for<T>(
    mut write: impl FnMut() -> Result<T>,
    give_space_back: impl Fn() -> bool,
) -> Result<T> {
    loop {
        let answer = write();
        let is_refused = answer.as_ref().is_err_and(Error::is_no_space);
        if !(is_refused && give_space_back()) {
            return answer;
        }
    }
}
