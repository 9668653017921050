//! What operations of dlmpi on a communicator stand on: its state, the private duplicate, the check.
//!
//! ```text
//! call --(gate)--> [check: fingerprints over the private duplicate] --> the operation
//! ```
//!
//! Nothing here knows tensors; a call arrives as a [`Fingerprint`](fingerprint::Fingerprint).

pub(crate) mod arena;
pub(crate) mod asking;
pub(crate) mod awareness;
mod distance;
pub(crate) mod exchange;
pub(crate) mod fingerprint;
pub(crate) mod gate;
mod patience;
pub(crate) mod peers;
mod place;
pub(crate) mod private;
pub(crate) mod process;
pub(crate) mod receives;
mod recent;
mod segment;
pub(crate) mod settings;
mod sharing;
pub(crate) mod state;
mod turns;
