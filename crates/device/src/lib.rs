//! Memory that is not plain host memory: streams, copies, pinned buffers. No Python, no MPI, no framework.
//!
//! ```text
//! Device --> wait / read / write --> host memory: nothing to wait for, memcpy
//!                               \--> CUDA driver: our stream, its device current, finished on return
//! ```
//!
//! - [`cuda`] is the driver of this process, looked for when it is first asked for. A machine without one is
//!   an ordinary [`DeviceError::NoDriver`], never a panic, and nothing is linked: the same binary serves both.
//! - Order comes from one non-blocking stream per device and thread ([`Cuda::stream`]). A producer makes it
//!   wait for its own work, [`Cuda::synchronize`] waits for it on the host, and every copy goes through it
//!   and has finished when it returns. No stream of the user's and no legacy stream is ever waited for.
//! - Copies that overlap with other work go through a [`Lane`], a stream with one owner, whose [`Mark`]s are waited for by
//!   the host or by another lane.
//! - Contexts are the primary ones, which every framework uses. What was current before is current again
//!   afterwards ([`Current`]), also after an error.
//! - [`wait`], [`read`] and [`write()`] take any [`dlpack_core::Device`], by a table of kinds, so that callers
//!   have no case per kind.
//!
//! ```
//! use dlpack_core::Device;
//!
//! let (from, mut to) = ([1u8, 2, 3], [0u8; 3]);
//! // SAFETY:
//! // - Both are three bytes of host memory, and apart.
//! unsafe { device::read(Device::CPU, to.as_mut_ptr(), from.as_ptr(), 3) }?;
//! assert_eq!(to, from);
//!
//! match device::cuda() {
//!     Ok(cuda) => println!("{} devices", cuda.device_count()),
//!     Err(why) => println!("{why}"),
//! }
//! # Ok::<(), device::DeviceError>(())
//! ```
//!
//! # Tried and not tried
//! The tests run without a driver, and with a simulated one in its place that runs queued work as late as CUDA
//! allows. **Nothing here has run on hardware yet.** To be confirmed there first: that a context made current by the
//! driver API is the current device of the runtime API, that pinned memory may be freed under any device's
//! context, and what `cuStreamIsCapturing` answers for the legacy stream. Other devices' memory is their frameworks' to copy.
//!
//! The feature `cuda` (on by default) only decides whether a driver is looked for; the API is the same without it.

mod copies;
mod cuda;
mod current;
mod error;
mod lane;
#[cfg_attr(feature = "cuda", path = "library.rs")]
#[cfg_attr(not(feature = "cuda"), path = "host.rs")]
mod loader;
mod mark;
mod memory;
mod parked;
mod pinned;
mod pointer;
mod relaxed;
mod stream;
mod symbols;

pub use copies::Rows;
pub use cuda::{Cuda, StreamHandle, cuda};
pub use current::Current;
pub use error::DeviceError;
pub use lane::Lane;
pub use mark::Mark;
pub use memory::{driver, read, wait, write};
pub use parked::park;
pub use pinned::Pinned;
