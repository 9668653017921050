//! The framework-neutral half of the Python binding.
//!
//! ```text
//! argument --> message --> registry --> a framework's Exporter --> Loan { View, what keeps it alive }
//!                                                                   |
//! method descriptor <-- errors <-- tensor_comm (detached) <---------+
//! ```
//!
//! In: Python objects, as mpi4py's methods get them. Out: checked views for [`tensor_comm`], and the
//! right exception. The crate knows PyO3, the protocols (PEP 3118, DLPack, the array interfaces) and
//! mpi4py's objects. It refuses to know any framework (they sit behind [`framework::Framework`], in
//! crates of their own) and to decide anything about communication.
//!
//! Methods are rows of one table ([`table`]); quirks of producers are rows of another ([`policy`]).

pub mod announce;
pub mod array_interface;
pub mod avg;
pub mod bench;
pub mod borrow;
pub mod bounds;
pub mod buffer;
pub mod cai;
pub mod call;
pub mod callbacks;
pub mod capsule;
pub mod cargo;
pub mod carried;
pub mod classes;
pub mod collective;
pub mod counts;
pub mod datatype;
pub mod delegate;
pub mod describe;
pub mod dlpack_call;
mod early;
mod elements;
mod elsewhere;
pub mod ending;
pub mod errors;
mod fetch;
pub mod format;
pub mod framework;
pub mod generic;
pub mod interface;
pub mod interrupt;
pub mod lane;
pub mod lend;
pub mod listed;
pub mod loan;
pub mod many;
pub mod memory;
pub mod message;
pub mod method;
pub mod mpi4py;
pub mod objects;
pub mod order;
pub mod orphans;
pub mod outstanding;
pub mod p2p;
pub mod packed;
pub mod params;
pub mod pickles;
mod plain;
pub mod policy;
pub mod post;
pub mod raw;
pub mod receipt;
pub mod reduce_local;
pub mod registry;
pub mod repeated;
pub mod request;
pub mod several;
pub mod sides;
pub mod site;
pub mod snapshot;
pub mod spans;
pub mod staged;
pub mod starter;
pub mod table;
mod target;
mod threads;
pub mod together;
pub mod trace;
pub mod track;
pub mod transfer;
pub mod typed;
pub mod typestr;
pub mod waiting;
pub mod watch;

pub use errors::{ExportError, ExportResult};
pub use fetch::fetch;
pub use framework::{Exporter, Framework, Intent};
pub use loan::Loan;
pub use order::StreamOrder;
pub use tensor_comm::lane::Flat;
