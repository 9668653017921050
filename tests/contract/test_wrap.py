"""`dlmpi.wrap` alone: a program that never imports `dlmpi.MPI` gets every kind of call."""

from __future__ import annotations

import subprocess
import sys

import pytest

CALLS = {
    "blocking": "comm.Allreduce(a, b)",
    "non-blocking collective": "comm.Iallreduce(a, b).Wait()",
    "reduction on a copy": "comm.Iallreduce(a.T, b).Wait()",
    "messages": "MPI.Request.Waitall([comm.Irecv(b, 0), comm.Isend(a, 0)])",
    "persistent": "r, s = comm.Recv_init(b, 0), comm.Send_init(a, 0); "
    "r.Start(); s.Start(); r.Wait(); s.Wait(); r.Free(); s.Free()",
    "persistent collective": "r = comm.Allreduce_init(a, b); r.Start(); r.Wait(); r.Free()",
    "probe": "s = comm.Isend(a, 0); comm.Mprobe(0).Recv(b); s.Wait()",
    "object": "s = comm.isend(a, 0); b[...] = comm.recv(source=0); s.wait()",
    "object collective": "b[...] = comm.bcast(a)",
    "derived": "comm.Dup().Iallreduce(a, b).Wait()",
    "many": "b[...] = a; dlmpi.allreduce_many([b], comm=comm)",
}


@pytest.mark.parametrize("name", CALLS)
def test_each_kind_of_call_works(name):
    program = (
        "import numpy as np\nimport dlmpi\nfrom mpi4py import MPI\n"
        "comm = dlmpi.wrap(MPI.COMM_SELF)\n"
        "a = np.arange(16, dtype=np.float32).reshape(4, 4)\na += a.T\nb = np.zeros_like(a)\n"
        f"{CALLS[name]}\n"
        "assert (a == b).all(), b\nprint('right')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.strip() == "right", done.stderr
