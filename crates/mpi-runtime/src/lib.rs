//! Finds the libmpi of this process at run time and calls it: MPICH, Open MPI and the standard ABI.
