"""What MPI itself reports: an exception of the right class. Nothing past a buffer is written."""

from __future__ import annotations

from functools import partial

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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", WRITABLE, ids=str)
@pytest.mark.parametrize("n", [9, 40_000])
def test_truncation(comm, rng, *, dtype, layout, n):
    """MPI's own error, with its class; nothing beyond the buffer is written, though Open MPI 5.0.11
    itself writes there when the data goes by single copy between processes."""
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


NOBODY = MPI.PROC_NULL
MPICH = "Open MPI" not in MPI.Get_library_version()
#: Receives that cannot look at the message first.
LATER = {
    "Irecv": lambda comm, out, source: comm.Irecv(out, source),
    "Isendrecv": lambda comm, out, source: comm.Isendrecv(None, NOBODY, 0, out, source),
    "Isendrecv_replace": lambda comm, out, source: comm.Isendrecv_replace(out, NOBODY, 0, source),
}
MATCHED = {
    "Sendrecv_replace": lambda comm, out, source: comm.Sendrecv_replace(out, NOBODY, 0, source),
    "Mrecv": lambda comm, out, source: comm.Mprobe(source).Recv(out),
    "Imrecv": lambda comm, out, source: comm.Mprobe(source).Irecv(out).Wait(),
}


@pytest.mark.parametrize("room", [1, 9, 40_000])
@pytest.mark.parametrize(("framework", "step"), [("numpy", 1), ("numpy", 2), ("torch", 1)])
@pytest.mark.parametrize("call", [*LATER, *MATCHED])
def test_receives_that_do_not_measure_first(comm, *, call, framework, step, room):
    """A message that is too long, there before its receive or not, writes into the room at most;
    one that fits arrives. Bytes, of which each one counts."""
    if room == 1 and "replace" in call and not MPICH:
        pytest.skip("Open MPI 5.0.11 cannot be kept inside a single byte that is sent, too")
    # Open MPI 5.0.11 loses the error of small messages from the process itself, as with mpi4py.
    told = MPICH or comm.size > 1
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    before, beyond = 100, 150_000
    for length in (room + 9, room + 90_000, room, room // 2):
        for early in (True, False) if call in LATER else (True,):
            arena = np.full(before + room * step + beyond, 7, np.uint8)
            out = arena[before : before + room * step : step]
            tensor = out if framework == "numpy" else torch.from_numpy(out)
            sent = np.arange(length).astype(np.uint8)
            send = partial(PLAIN.COMM_WORLD.Isend, [sent, PLAIN.BYTE], to)
            sending = send() if early else None
            comm.Barrier()
            try:
                request = {**LATER, **MATCHED}[call](comm, tensor, source)
                if not early:
                    comm.Barrier()
                    sending = send()
                if request is not None and call in LATER:
                    request.Wait()
                error = None
            except MPI.Exception as raised:
                error = raised.Get_error_class()
            if length <= room or error is not None or told:
                assert error == (MPI.ERR_TRUNCATE if length > room else None)
            sending.Wait()
            if length <= room:
                assert out[:length].tolist() == sent.tolist()
                out[:length] = 7
            else:
                out[:] = 7
            assert np.all(arena == 7)


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
