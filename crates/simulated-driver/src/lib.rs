//! A CUDA driver that keeps the letter of the promises and no more, built as `libcuda.so.1` for tests.
//!
//! - **Schedules** (`SIMULATED_SCHEDULE`): `late`, where queued work runs only when somebody waits for it; `eager`,
//!   where it runs at once; `threads`, where each stream has a thread that runs it in two halves after random delays.
//! - **Order** between streams is CUDA's: events, the legacy stream, per-thread default streams, non-blocking streams.
//! - **Device memory** cannot be touched by the host, so that a pointer in the wrong hands is a crash;
//!   `SIMULATED_READABLE=1` lets it, as for an MPI that takes device memory.
//! - **Rules** about initialisation, current contexts, captures and freed memory are enforced, by CUDA's own error
//!   numbers; memory freed under pending work ends the process.
//! - **Tests** fail the n-th call of any function, count calls and what is alive (`control`).
//!
//! Shares nothing with the crate under test but the ABI of cuda.h. It has one kind of device and no kernels: a kernel is
//! a copy on a stream.
#![allow(non_snake_case, reason = "the names are the driver's")]
#![allow(
    clippy::missing_safety_doc,
    missing_docs,
    reason = "each is called as cuda.h says"
)]

mod contexts;
mod control;
mod copies;
mod memory;
mod schedule;
mod state;
mod streams;

use std::ffi::c_uint;

pub(crate) const OK: c_uint = 0;
pub(crate) const INVALID_VALUE: c_uint = 1;
pub(crate) const OUT_OF_MEMORY: c_uint = 2;
pub(crate) const NOT_INITIALIZED: c_uint = 3;
pub(crate) const NO_DEVICE: c_uint = 100;
pub(crate) const INVALID_DEVICE: c_uint = 101;
pub(crate) const INVALID_CONTEXT: c_uint = 201;
pub(crate) const INVALID_HANDLE: c_uint = 400;
pub(crate) const NOT_READY: c_uint = 600;
pub(crate) const CAPTURE_UNSUPPORTED: c_uint = 900;
pub(crate) const CAPTURE_IMPLICIT: c_uint = 906;
