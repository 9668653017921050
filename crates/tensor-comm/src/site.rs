//! Where in the caller's program a call is made. The crate knows no language above it: whoever does says
//! how to find out.

use std::sync::OnceLock;

static HERE: OnceLock<fn() -> Option<String>> = OnceLock::new();

/// Says how to name the place in the program where this thread is inside a call, as `file:line`.
pub fn set_site(here: fn() -> Option<String>) {
    // Whoever came first stays: there is one interpreter.
    let _ = HERE.set(here);
}

/// Where this thread is, if it can be known.
pub(crate) fn here() -> Option<String> {
    HERE.get().and_then(|here| here())
}
