"""The short way of `Sendrecv_replace`, `Isendrecv` and matched messages: a form per rank.

Oracle: what the neighbour sent, in integers, and what was around the room.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dlmpi import MPI

pytestmark = pytest.mark.mpi

TYPES = {"i1": MPI.SIGNED_CHAR, "f8": MPI.DOUBLE}
POISON = 113
#: MPICH 5.0.2 says anything in the status of an Isendrecv.
TELLS_OF_PAIRS = "Open MPI" in MPI.Get_library_version()
#: The elements `first` to `last` of an array.
FORMS = [
    lambda array, first, last, kind: array[first:last],
    lambda array, first, last, kind: [array[first:last], kind],
    lambda array, first, last, kind: (array, (last - first, first), kind),
    lambda array, first, last, kind: [array, last - first, first, kind],
    lambda array, first, last, kind: torch.from_numpy(array[first:last]),
    lambda array, first, last, kind: [array[first:last], kind.typechar],
]


def numbers(rng, count, code):
    return rng.integers(-9, 9, count).astype(code)


def ring(comm):
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("n", [0, 1, 9, 6000])
def test_sendrecv_replace(comm, rng, code, n):
    to, source = ring(comm)
    for way in range(len(FORMS)):
        given = [numbers(rng, n, code) for _ in range(comm.size)]
        arena = np.full(n + 5, POISON).astype(code)
        arena[2 : 2 + n] = given[comm.rank]
        form, status = FORMS[(way + comm.rank) % len(FORMS)], MPI.Status()
        comm.Sendrecv_replace(form(arena, 2, 2 + n, TYPES[code]), to, 5, source, 5, status)
        assert np.array_equal(arena[2 : 2 + n], given[source])
        assert (np.delete(arena, slice(2, 2 + n)) == POISON).all()
        assert (status.source, status.tag, status.Get_count(TYPES[code])) == (source, 5, n)


def test_sendrecv_replace_with_nobody(comm, rng):
    array = numbers(rng, 4, "f8")
    before = array.copy()
    comm.Sendrecv_replace(array, MPI.PROC_NULL, source=MPI.PROC_NULL)
    assert np.array_equal(array, before)
    fixed = array.copy()
    fixed.setflags(write=False)
    with pytest.raises(BufferError):
        comm.Sendrecv_replace(fixed, comm.rank, source=comm.rank)


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("n", [0, 1, 9, 6000, 300_000])
def test_isendrecv(comm, rng, code, n):
    """Into one room again and again, with its request kept or dropped, and the arrays too."""
    to, source = ring(comm)
    arena, fence = np.full(n + 5, POISON).astype(code), np.empty(0, code)
    for way in range(2 * len(FORMS)):
        given = [numbers(rng, n, code) for _ in range(comm.size)]
        arena[:] = POISON
        form, status = FORMS[(way + comm.rank) % len(FORMS)], MPI.Status()
        sent, out = form(given[comm.rank], 0, n, TYPES[code]), form(arena, 2, 2 + n, TYPES[code])
        request = comm.Isendrecv(sent, to, 5, out, source, 5)
        if way % 3 == 2:
            # What comes behind it says that it is there, but for what is brought home by a request:
            # that may be at any time.
            del request, sent, out
            comm.Sendrecv(fence, to, 5, fence.copy(), source, 5)
            comm.Barrier()
            arena = arena.copy()
        else:
            assert request.Wait(status) is True
            assert request == MPI.REQUEST_NULL
            told = (status.source, status.tag, status.Get_count(TYPES[code]))
            assert told == (source, 5, n) or not TELLS_OF_PAIRS
            assert np.array_equal(arena[2 : 2 + n], given[source])
        assert (np.delete(arena, slice(2, 2 + n)) == POISON).all()


def test_isendrecv_takes_nobody_and_arguments_by_name(comm, rng):
    to, source = ring(comm)
    given = [numbers(rng, 4, "f8") for _ in range(comm.size)]
    out = np.full(4, float(POISON))
    comm.Isendrecv(given[0], MPI.PROC_NULL, recvbuf=out, source=MPI.PROC_NULL).Wait()
    assert (out == POISON).all()
    comm.Isendrecv(sendbuf=given[comm.rank], dest=to, recvbuf=out, source=source).Wait()
    assert np.array_equal(out, given[source])
    fixed = out.copy()
    fixed.setflags(write=False)
    for wrong in ((given[0], to, 0, fixed, source), (given[0], to, 0, [out, 5], source)):
        with pytest.raises((BufferError, ValueError)):
            comm.Isendrecv(*wrong)


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("n", [0, 1, 9, 6000])
@pytest.mark.parametrize("probe", ["Mprobe", "Mprobe of a NumPy integer", "Improbe"])
def test_matched_messages(comm, rng, code, n, probe):
    to, source = ring(comm)
    for way in range(len(FORMS)):
        given = [numbers(rng, n, code) for _ in range(comm.size)]
        sending = comm.Isend([given[comm.rank], TYPES[code]], to, 6)
        status, message = MPI.Status(), None
        while message is None:
            match probe:
                case "Mprobe":
                    message = comm.Mprobe(source, 6, status)
                case "Improbe":
                    message = comm.Improbe(source, 6, status)
                case _:
                    message = comm.Mprobe(np.int64(source), tag=6, status=status)
        assert type(message) is MPI.Message
        assert (status.source, status.tag, status.Get_count(TYPES[code])) == (source, 6, n)
        arena, room, status = np.full(n + 9, POISON).astype(code), n + 2 * (way % 2), MPI.Status()
        form = FORMS[(way + comm.rank) % len(FORMS)]
        message.Recv(form(arena, 3, 3 + room, TYPES[code]), *[status] * (way % 3 > 0))
        sending.Wait()
        assert message == MPI.MESSAGE_NULL
        assert np.array_equal(arena[3 : 3 + n], given[source])
        assert (np.delete(arena, slice(3, 3 + n)) == POISON).all()
        if way % 3:
            assert (status.source, status.tag, status.Get_count(TYPES[code])) == (source, 6, n)


def test_a_matched_message_can_wait_for_room(comm, rng):
    """A refusal leaves the message where it is."""
    to, source = ring(comm)
    given = [numbers(rng, 5, "f8") for _ in range(comm.size)]
    sending = comm.Isend(given[comm.rank], to)
    message, out = comm.Mprobe(source), np.empty(5)
    fixed = np.empty(5)
    fixed.setflags(write=False)
    for wrong in (fixed, [out, 6, MPI.DOUBLE], [out, (2, 4), MPI.DOUBLE], [out, -1]):
        with pytest.raises((BufferError, ValueError)):
            message.Recv(wrong)
    message.Recv(out)
    sending.Wait()
    assert np.array_equal(out, given[source])
    nobody = comm.Mprobe(MPI.PROC_NULL)
    assert nobody == MPI.MESSAGE_NO_PROC
    nobody.Recv(out)
    assert np.array_equal(out, given[source])
