//! The DLPack protocol: ABI, ownership, checks, layouts, dtypes. No Python, GPU or MPI.
