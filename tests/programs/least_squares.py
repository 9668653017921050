"""Least squares by conjugate gradients with PyLops-MPI, a package made for mpi4py.

What its operators give, and the solution, are compared with NumPy on the whole matrix. Knows
nothing of dlmpi.
"""

import sys

import numpy as np
import pylops
import pylops_mpi
from mpi4py import MPI

ROWS, COLUMNS = 11, 7


def main():
    comm = MPI.COMM_WORLD
    numbers = np.random.default_rng(5)
    blocks = numbers.standard_normal((comm.size, ROWS, COLUMNS))
    whole = np.zeros((comm.size * ROWS, comm.size * COLUMNS))
    for rank, block in enumerate(blocks):
        whole[rank * ROWS :][:ROWS, rank * COLUMNS :][:, :COLUMNS] = block
    operator = pylops_mpi.MPIBlockDiag([pylops.MatrixMult(blocks[comm.rank])])
    size = comm.size * COLUMNS
    given = numbers.standard_normal(comm.size * ROWS)
    right = pylops_mpi.DistributedArray.to_dist(given)
    start = pylops_mpi.DistributedArray(global_shape=size)
    start[:] = 0
    found = pylops_mpi.cgls(operator, right, x0=start, niter=20 * size, tol=1e-14)[0].asarray()
    want = np.linalg.lstsq(whole, given)[0]
    adjoint = (operator.H @ right).asarray()
    errors = abs(found - want).max(), abs(adjoint - whole.T @ given).max()
    if not max(errors) < 1e-6:
        sys.exit(f"least squares: off by {errors}")
    if comm.rank == 0:
        print("least squares: right")


if __name__ == "__main__":
    main()
