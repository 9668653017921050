"""The drop-in's methods take the same parameters, by the same names, as mpi4py's."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from mpi4py import MPI as PLAIN

from dlmpi import MPI

pytestmark = pytest.mark.mpi

METHODS = [
    *("Send", "Ssend", "Bsend", "Rsend", "Recv", "Sendrecv", "Barrier", "Bcast"),
    *("Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv"),
    *("Alltoall", "Alltoallv", "Reduce", "Allreduce", "Scan", "Exscan"),
    *("Reduce_scatter", "Reduce_scatter_block"),
]


@pytest.mark.parametrize("name", METHODS)
def test_parameter_names(comm, name):
    theirs = inspect.signature(getattr(PLAIN.Intracomm, name))
    ours = inspect.signature(getattr(type(comm), name))
    assert [(p.name, p.default is p.empty) for p in ours.parameters.values()] == [
        (p.name, p.default is p.empty) for p in theirs.parameters.values()
    ]


@pytest.mark.parametrize("name", METHODS)
def test_documented(comm, name):
    assert getattr(type(comm), name).__doc__


def test_every_name_as_a_keyword(comm):
    """Each method called with all of its parameters by name."""
    t, out = torch.ones(comm.size), np.zeros(comm.size, np.float32)
    one, got = t[:1], out[:1]
    counts = [1] * comm.size
    me, status = comm.rank, MPI.Status()
    for send in (comm.Send, comm.Ssend, comm.Bsend, comm.Rsend):
        send(buf=t, dest=MPI.PROC_NULL, tag=3)
    comm.Recv(buf=out, source=MPI.PROC_NULL, tag=3, status=status)
    comm.Sendrecv(sendbuf=t, dest=me, sendtag=4, recvbuf=out, source=me, recvtag=4, status=status)
    assert status.Get_tag() == 4
    comm.Barrier()
    comm.Bcast(buf=t, root=0)
    comm.Gather(sendbuf=one, recvbuf=out, root=0)
    comm.Gatherv(sendbuf=one, recvbuf=[out, counts], root=0)
    comm.Scatter(sendbuf=t, recvbuf=got, root=0)
    comm.Scatterv(sendbuf=[t, counts], recvbuf=got, root=0)
    comm.Allgather(sendbuf=one, recvbuf=out)
    comm.Allgatherv(sendbuf=one, recvbuf=[out, counts])
    comm.Alltoall(sendbuf=t, recvbuf=out)
    comm.Alltoallv(sendbuf=[t, counts], recvbuf=[out, counts])
    assert out.tolist() == [1] * comm.size
    comm.Reduce(sendbuf=t, recvbuf=out, op=MPI.SUM, root=0)
    comm.Allreduce(sendbuf=t, recvbuf=out, op=MPI.SUM)
    assert out.tolist() == [comm.size] * comm.size
    comm.Scan(sendbuf=t, recvbuf=out, op=MPI.SUM)
    assert out.tolist() == [me + 1] * comm.size
    comm.Exscan(sendbuf=t, recvbuf=out, op=MPI.SUM)
    comm.Reduce_scatter(sendbuf=t, recvbuf=got, recvcounts=counts, op=MPI.SUM)
    comm.Reduce_scatter_block(sendbuf=t, recvbuf=got, op=MPI.SUM)
    assert got.tolist() == [comm.size]


@pytest.mark.parametrize("name", METHODS)
def test_wrong_keywords_and_too_many_arguments(comm, name):
    method = getattr(comm, name)
    required = [
        p
        for p in inspect.signature(getattr(PLAIN.Intracomm, name)).parameters.values()
        if p.default is p.empty and p.name != "self"
    ]
    arguments = {p.name: 0 if p.name in ("dest", "source") else np.zeros(2) for p in required}
    with pytest.raises(TypeError):
        method(**arguments, no_such_parameter=1)
    with pytest.raises(TypeError):
        method(*([np.zeros(1)] * 12))
    if required:
        with pytest.raises(TypeError):
            method()
        with pytest.raises(TypeError):
            method(np.zeros(2), **arguments)
