//! Where in the caller's program a collective is called: what a mismatch names for each rank. Knows no operation.

use std::cell::Cell;
use std::panic::Location;

thread_local! {
    /// The collective that this thread is in, or was in last.
    static CALLER: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// Lets errors name the lines.
pub(crate) fn install() {
    tensor_comm::set_site(|| {
        let caller = CALLER.get()?;
        Some((caller.file().to_owned(), caller.line()))
    });
}

/// Notes the caller of whoever calls this.
#[inline]
#[track_caller]
pub(crate) fn note() {
    CALLER.set(Some(Location::caller()));
}
