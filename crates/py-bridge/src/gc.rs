//! A pause of Python's garbage collector while many objects are made that go again soon: it would look at each of them
//! in vain, which takes longer than making them.

use std::marker::PhantomData;

use pyo3::ffi;
use pyo3::prelude::*;

/// While it lives, nothing is collected. Only for work that stays attached and runs no Python code: who turned the collector
/// off meanwhile would find it on.
pub struct Pause<'py> {
    /// It was on before.
    on: bool,
    attached: PhantomData<Python<'py>>,
}

impl<'py> Pause<'py> {
    /// Begins one.
    pub fn begin(_: Python<'py>) -> Pause<'py> {
        Pause {
            // SAFETY:
            // - the thread is attached.
            on: unsafe { ffi::PyGC_Disable() } != 0,
            attached: PhantomData,
        }
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        if self.on {
            // SAFETY:
            // - the thread is attached, for as long as `'py` lasts.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}
