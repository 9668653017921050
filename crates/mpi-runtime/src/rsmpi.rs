//! To and from the communicators of the `mpi` crate (rsmpi).
