//! MPI operations on tensors.
//!
//! A call flows one way: a checked [`View`] of each tensor becomes an argument ([`Part`], [`Blocks`]);
//! what every rank knows alike becomes `Agreed`; `wire` turns that into the decision what goes over
//! the wire; local steps (packing, widening, copies from a device) put the tensor into that form and
//! [`run`], [`send`], [`recv`] and [`sendrecv`] call MPI; at the end results are settled: rounded,
//! unpacked, copied back, and only where MPI wrote.
//!
//! The crate refuses to know Python and frameworks, and calls MPI only through [`mpi_runtime`].
//!
//! # Agreement
//!
//! What goes on the wire must be the same decision on every rank, or ranks wait for each other for
//! ever. So `wire` sees `Agreed` and nothing else: no layout, device, `IN_PLACE`, aliasing or cache
//! can reach it (MPI 4.1 §6.1 makes operation, signature, reduce operation and root equal on all
//! ranks; the rest is local).

mod agreed;
#[cfg(test)]
mod agreement;
mod algorithm;
mod arg;
mod arrival;
mod blocks;
mod brief;
mod call;
mod collective;
mod comm;
mod copying;
mod counted;
mod direct;
pub mod engine;
mod error;
mod fits;
mod foreign;
mod ground;
mod guard;
mod handover;
mod host;
mod immediate;
mod immediate_p2p;
pub mod kernels;
pub mod lane;
mod many;
mod movement;
mod native;
mod own_op;
mod p2p;
pub mod pack;
mod plan;
mod posted;
mod reduce_local;
mod reduction;
mod scratch;
mod shaped;
pub mod shares;
mod shifted;
mod side;
mod site;
pub mod trace;
pub mod watch;
mod ways;
mod wire;
mod wiretype;

pub use arg::{Arg, Blocks, Part};
pub use arrival::{is_exceeded, overruns, receive_present};
pub use call::{Call, CallKind, Kind, Op};
pub use collective::{is_plain, refuse, revoke, run, set_choice, set_plain};
pub use comm::Comm;
pub use direct::Pattern;
pub use dlpack_core::{DType, Device, Layout, View};
pub use error::{Error, Result};
pub use fits::{Arrived, Capacity, scales_displacements, tells_of_pairs};
pub use foreign::{Announced, Foreign, Seat, Told, announce};
pub use ground::awareness::{Awareness, awareness};
pub use ground::process::attend;
pub use ground::settings::{Aware, Check, Choice, Settings, Timeout};
pub use guard::{LARGE, Moat, receive_guarded};
pub use immediate::{
    Begun, Flight, ForeignBegun, Keeps, Rest, attempt, begin, begin_foreign, begin_here, prepare,
    refuse_start, undisturbed,
};
pub use immediate_p2p::{begin_recv, begin_send};
pub use kernels::ReduceOp;
pub use many::{Tensors, all_reduce_many, refuse_many};
pub use own_op::{library, own};
pub use p2p::{SendMode, recv, send, sendrecv};
pub use posted::{Counts, Flow, Posted, takes_device_memory};
pub use reduce_local::reduce_local;
pub use scratch::Scratch;
pub use shaped::Shaped;
pub use shifted::{Shifted, takes_one_address_for_in_place};
pub use site::set_site;
pub use ways::{PROBED, Paths, Way, paths, ways};
pub use wiretype::{carrier, mpi_datatype, receiver};
