"""The error handler of the user's communicator is honoured, also by operations that run inside the
drop-in. (ERRORS_ARE_FATAL ends the job, so it is tried where jobs are started.)"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mpi4py import MPI as PLAIN

from dlmpi import MPI
from support.layouts import WRITABLE

pytestmark = pytest.mark.mpi
TENSORS = {
    "contiguous": torch.ones,
    "strided": lambda n: torch.ones(2 * n)[::2],
    "bfloat16": lambda n: torch.ones(n, dtype=torch.bfloat16),
}


def truncate(comm, make):
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    comm.Sendrecv(make(9), to, recvbuf=make(5), source=source)


CALLS = {
    "truncated": (truncate, "ERR_TRUNCATE"),
    "rank": (lambda comm, make: comm.Send(make(3), comm.size), "ERR_RANK"),
    "root": (lambda comm, make: comm.Bcast(make(3), root=comm.size), "ERR_ROOT"),
    "tag": (lambda comm, make: comm.Recv(make(3), 0, tag=-5), "ERR_TAG"),
}


@pytest.mark.parametrize("tensor", TENSORS)
@pytest.mark.parametrize("call", CALLS)
def test_errors_return(comm, call, tensor):
    make, (act, name) = TENSORS[tensor], CALLS[call]
    made = comm.Dup()
    made.Set_errhandler(MPI.ERRORS_RETURN)
    with pytest.raises(MPI.Exception) as raised:
        act(made, make)
    assert raised.value.Get_error_class() == getattr(MPI, name)
    assert made.allreduce(1) == made.size
    made.Free()


def outcome(world, call, make):
    """What the user's handler sees, and the class of the exception if one is raised."""
    seen, made = [], world.Dup()
    handler = MPI.Comm.Create_errhandler(
        lambda where, code: seen.append((where == made, MPI.Get_error_class(code)))
    )
    made.Set_errhandler(handler)
    raised = None
    try:
        call(made, make)
    except MPI.Exception as error:
        raised = error.Get_error_class()
    finally:
        made.Set_errhandler(MPI.ERRORS_RETURN)
        handler.Free()
        made.Free()
    return seen, raised


@pytest.mark.parametrize("tensor", TENSORS)
@pytest.mark.parametrize("call", ["rank", "root", "tag"])
def test_the_users_handler_is_called(comm, call, tensor):
    """With the user's communicator and the class of the error, once, as for mpi4py's own call.
    Libraries differ in what the call returns when the handler has dealt with the error."""
    act, name = CALLS[call]
    seen, raised = outcome(comm, act, TENSORS[tensor])
    assert seen == [(True, getattr(MPI, name))]
    assert (seen, raised) == outcome(PLAIN.COMM_WORLD, act, lambda n: np.ones(n, np.float32))


def test_refusals_before_mpi_do_not_call_it(comm):
    seen = []
    handler = MPI.Comm.Create_errhandler(lambda where, code: seen.append(code))
    made = comm.Dup()
    made.Set_errhandler(handler)
    with pytest.raises(ValueError, match=r"."):
        made.Allreduce(np.ones(3, bool), np.ones(3, bool))
    with pytest.raises(TypeError):
        made.Allreduce(object(), np.ones(3))
    assert seen == []
    made.Set_errhandler(MPI.ERRORS_RETURN)
    handler.Free()
    made.Free()


def test_private_communicators_do_not_change_the_users_handler(comm):
    made = comm.Dup()
    made.Set_errhandler(MPI.ERRORS_RETURN)
    for layout in WRITABLE[:3]:
        assert layout.writable
        made.Allreduce(MPI.IN_PLACE, torch.ones(4, dtype=torch.bfloat16))
    assert made.Get_errhandler() == MPI.ERRORS_RETURN
    made.Free()
