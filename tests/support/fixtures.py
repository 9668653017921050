"""Fixtures of the suites under mpiexec: the communicator, and values equal on all ranks."""

from __future__ import annotations

import os
import zlib

import numpy as np
import pytest


@pytest.fixture(scope="session")
def session_seed():
    """A fresh seed each run, drawn by rank 0; the environment variable DLMPI_TEST_SEED pins it."""
    from mpi4py import MPI

    drawn = os.environ.get("DLMPI_TEST_SEED") or int.from_bytes(os.urandom(4))
    return int(MPI.COMM_WORLD.bcast(drawn, root=0))


@pytest.fixture
def rng(request, session_seed):
    """Random numbers of this test: the same on every rank, other ones in every run."""
    request.node.add_report_section("setup", "seed", f"DLMPI_TEST_SEED={session_seed}")
    return np.random.default_rng([session_seed, zlib.crc32(request.node.nodeid.encode())])


@pytest.fixture
def comm():
    """The world, as the drop-in gives it."""
    from dlmpi import MPI

    return MPI.COMM_WORLD


@pytest.fixture(params=[False, True], ids=["ours", "with mpi4py"])
def mixed(request, comm):
    """The world; and a communicator that every other rank has as an object of mpi4py's own class:
    its ranks compare nothing."""
    from mpi4py import MPI as PLAIN

    import dlmpi

    if not request.param:
        yield comm
        return
    shared = dlmpi.wrap(comm.Dup(), collectives="mpi")
    yield shared if comm.rank % 2 else PLAIN.Intracomm(shared)
    shared.Free()


#: A communicator's first collectives are compared, and never take the short way of plain arrays.
FIRST = 64


@pytest.fixture(scope="module")
def later():
    """A communicator with more collectives behind it than are compared."""
    from dlmpi import MPI

    comm = MPI.COMM_WORLD.Dup()
    for _ in range(FIRST):
        comm.Barrier()
    yield comm
    comm.Free()
