//! The crate as it ships, with a simulated driver where libcuda.so would be: its dlopen, its symbol names, its
//! argument order, and the order of waits and copies, under the worst schedule that CUDA allows.
//!
//! Each test runs its body in a process of its own, for a driver is found once in a process.
#![cfg(all(feature = "cuda", target_os = "linux"))]
#![allow(missing_docs, clippy::unwrap_used)]

mod harness;
mod lanes;
mod order;
mod refusals;
