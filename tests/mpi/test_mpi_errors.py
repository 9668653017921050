"""What MPI itself reports: an exception of the right class. Nothing past a buffer is written."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mpi4py import MPI as PLAIN

from dlmpi import MPI
from support.agreement import still_works
from support.boxes import Box
from support.dtypes import BY_NAME
from support.layouts import WRITABLE

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def library_keeps_bounds():
    """Whether this MPI, through plain mpi4py, stays inside a buffer that is too small for a large
    message. Open MPI 5.0.11 does not when the data goes by single copy between processes."""
    world, n = PLAIN.COMM_WORLD, 40_000
    memory = np.zeros(n + 8)
    to, source = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    request = world.Isend(np.ones(n), to)
    with pytest.raises(PLAIN.Exception):
        world.Recv(memory[: n - 4], source)
    request.Wait()
    return world.allreduce(not memory[n - 4 :].any(), PLAIN.LAND)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", WRITABLE, ids=str)
@pytest.mark.parametrize("n", [9, 40_000])
def test_truncation(comm, rng, library_keeps_bounds, *, dtype, layout, n):
    """MPI's own error, with its class; nothing beyond the buffer is written."""
    if n > 1000 and not library_keeps_bounds:
        pytest.skip("this MPI library itself writes past the end of a truncated large receive")
    kind = BY_NAME[dtype]
    source = Box(layout.frameworks[-1], kind, layout, n, rng).fill(kind.encode(np.ones(n)))
    out = Box(layout.frameworks[-1], kind, layout, n - 4, rng)
    to, fro = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    with pytest.raises(MPI.Exception) as raised:
        comm.Sendrecv(source.tensor, to, recvbuf=out.tensor, source=fro)
    assert raised.value.Get_error_class() == MPI.ERR_TRUNCATE
    out.expect_first(out.flat()[:0])
    request = PLAIN.COMM_WORLD.Isend([source.flat().view(np.uint8), PLAIN.BYTE], to)
    with pytest.raises(MPI.Exception) as raised:
        comm.Recv(out.tensor, fro)
    request.Wait()
    assert raised.value.Get_error_class() == MPI.ERR_TRUNCATE
    out.expect_first(out.flat()[:0])
    still_works(comm)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ranks_roots_and_tags_out_of_range(comm, dtype):
    tensor, out = (torch.ones(4, dtype=getattr(torch, dtype)) for _ in range(2))
    strided = torch.ones(8, dtype=getattr(torch, dtype))[::2]
    for call, error in (
        (lambda: comm.Send(tensor, comm.size), MPI.ERR_RANK),
        (lambda: comm.Send(strided, -77), MPI.ERR_RANK),
        (lambda: comm.Recv(out, comm.size + 5), MPI.ERR_RANK),
        (lambda: comm.Recv(strided, comm.size), MPI.ERR_RANK),
        (lambda: comm.Send(tensor, 0, tag=-7), MPI.ERR_TAG),
        (lambda: comm.Recv(out, 0, tag=-7), MPI.ERR_TAG),
        (lambda: comm.Bcast(tensor, root=comm.size), MPI.ERR_ROOT),
        (lambda: comm.Bcast(strided, root=-9), MPI.ERR_ROOT),
        (lambda: comm.Reduce(tensor, out, root=comm.size), MPI.ERR_ROOT),
        (lambda: comm.Gather(tensor, None, root=comm.size), MPI.ERR_ROOT),
    ):
        with pytest.raises(MPI.Exception) as raised:
            call()
        assert raised.value.Get_error_class() == error
    still_works(comm)
