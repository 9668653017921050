"""`Wait` and `Test` of a receive, and `Startall`: native where nothing else is to be done.

Oracle: what the neighbour sent; what mpi4py's own methods do with the same arguments.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI as PLAIN

from dlmpi import MPI

pytestmark = pytest.mark.mpi


def ring(comm):
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def polled(request, *args, **names):
    while not request.Test(*args, **names):
        pass
    return True


class Derived(MPI.Request):
    """Of the program's own."""


WAYS: dict[str, Any] = {
    "Wait()": lambda request, _: request.Wait(),
    "Wait(None)": lambda request, _: request.Wait(None),
    "Wait(status)": lambda request, status: request.Wait(status),
    "Wait(status=)": lambda request, status: request.Wait(status=status),
    "Test()": lambda request, _: polled(request),
    "Test(status)": polled,
    "Test(status=)": lambda request, status: polled(request, status=status),
    "Waitall": lambda request, _: MPI.Request.Waitall([request]),
    "Waitall of a tuple": lambda request, _: MPI.Request.Waitall((request,), None),
    "Waitall by name": lambda request, _: MPI.Prequest.Waitall(statuses=None, requests=[request]),
    "Waitall of a derived class": lambda request, _: Derived.Waitall([request]),
    "Waitall([status])": lambda request, status: MPI.Request.Waitall([request], [status]),
    "wait(status)": lambda request, status: request.wait(status) or True,
    "mpi4py's": PLAIN.Request.Wait,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [0, 3, 5000])
def test_a_receive_is_waited_for(comm, rng, way, n):
    to, source = ring(comm)
    given = [rng.integers(-9, 9, n) for _ in range(comm.size)]
    out, status = np.full(n + 1, 99), MPI.Status()
    request = comm.Irecv(out, source, 4)
    sending = comm.Isend(given[comm.rank], to, 4)
    assert WAYS[way](request, status) is True
    assert request == MPI.REQUEST_NULL
    assert out[:n].tolist() == given[source].tolist()
    assert out[n] == 99
    if "status" in way:
        assert (status.source, status.tag, status.Get_count(MPI.LONG)) == (source, 4, n)
    sending.Wait()
    # Once more: it is over.
    assert request.Wait() is True
    assert request.Test() is True


WRONG = [
    lambda method: method(1, 2),
    lambda method: method(MPI.Status(), None),
    lambda method: method(3),
    lambda method: method("status"),
    lambda method: method(other=None),
    lambda method: method(None, status=None),
]


@pytest.mark.parametrize("name", ["Wait", "Test"])
def test_wrong_arguments_are_refused_and_change_nothing(comm, name):
    to, source = ring(comm)
    out = np.zeros(2)
    request = comm.Irecv(out, source, 4)
    stock = PLAIN.COMM_SELF.Irecv(np.zeros(1), 0)
    for wrong in WRONG:
        for one in (request, stock):
            with pytest.raises(TypeError):
                wrong(getattr(one, name))
    for other in (stock, MPI.REQUEST_NULL, comm, None):
        with pytest.raises(TypeError):
            getattr(type(request), name)(other)
    PLAIN.COMM_SELF.Send(np.zeros(1), 0)
    stock.Wait()
    comm.Send(np.arange(2.0), to, 4)
    assert request.Wait() is True
    assert out.tolist() == [0, 1]


def test_they_look_like_mpi4pys():
    receipt = type(MPI.COMM_SELF.Irecv(np.zeros(1), 0))
    MPI.COMM_SELF.Send(np.zeros(1), 0)
    for name in ("Wait", "Test"):
        ours, stock = getattr(receipt, name), getattr(PLAIN.Request, name)
        assert ours.__name__ == stock.__name__
        assert list(inspect.signature(ours).parameters) == ["self", "status"]
        assert ours.__doc__


TOGETHER = {
    "Waitall": (MPI.Request.Waitall, [(), (None,), (3,), ([], None, None), ([3],)]),
    "Startall": (MPI.Prequest.Startall, [(), (None,), (3,), ([], None), ([3],)]),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_wrong_arguments_of_class_methods_are_refused(name):
    method, wrong = TOGETHER[name]
    for given in wrong:
        with pytest.raises(TypeError):
            method(*given)
    with pytest.raises(TypeError):
        method([], other=None)
    assert method([]) in (True, None)
    assert next(iter(inspect.signature(method).parameters)) == "requests"


KINDS = {"list": list, "tuple": tuple}


@pytest.mark.parametrize("kind", KINDS)
def test_startall(comm, rng, kind):
    to, source = ring(comm)
    out, sent = np.zeros((3, 4)), np.zeros((3, 4))
    made = [comm.Recv_init(out[at], source, at) for at in range(3)]
    made += [comm.Send_init(sent[at], to, at) for at in range(2)]
    made.append(PLAIN.Comm.Send_init(comm, sent[2], to, 2))
    # All ours, and with one that is mpi4py's own.
    for requests in (made[:2] + made[3:5], made):
        sent[:] = rng.integers(0, 9, (comm.size, 3, 4))[comm.rank]
        out[:], count = 99, len(requests) // 2
        everyone = comm.allgather(sent)
        given = KINDS[kind](requests)
        assert MPI.Prequest.Startall(given) is None
        MPI.Prequest.Waitall(given)
        assert np.array_equal(out[:count], everyone[source][:count])
        assert (out[count:] == 99).all()
    # One that is active is not started again, and the list stays usable.
    MPI.Prequest.Startall(given)
    with pytest.raises(MPI.Exception):
        MPI.Prequest.Startall(given)
    MPI.Prequest.Waitall(given)
    assert np.array_equal(out, everyone[source])
    for request in made:
        request.Free()
    with pytest.raises(MPI.Exception):
        MPI.Prequest.Startall(made[:2])
    MPI.Prequest.Startall([])
