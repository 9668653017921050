//! MPI operations on tensors: plans, packing, staging, reductions.
