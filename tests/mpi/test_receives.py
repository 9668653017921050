"""Every way to receive a message that does not fit: words that name the room, the message and its
sender, and no byte beyond the room. Oracle: the arena around the tensor, and the bytes sent."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from mpi4py import MPI as PLAIN

from dlmpi import MPI
from support.agreement import still_works

pytestmark = pytest.mark.mpi(min_size=2)

NOBODY, TAG, ROOM = MPI.PROC_NULL, 7, 9
#: A room that Open MPI writes into directly unless it is known that its message does not fit.
LARGE = (1 << 20) // 4
MPICH = "Open MPI" not in MPI.Get_library_version()


def polled(request):
    while not request.Test():
        pass


def found(comm, source):
    while (message := comm.Improbe(source, TAG)) is None:
        pass
    return message


def persistent(comm, out, source):
    request = comm.Recv_init(out, source, TAG)
    MPI.Prequest.Startall([request])
    return request


def paired(comm, out, source):
    """Receive by a request that sends to this rank itself, too."""
    back = comm.Irecv(np.empty(2, np.float32), comm.rank, TAG + 1)
    try:
        return comm.Isendrecv(np.zeros(2, np.float32), comm.rank, TAG + 1, out, source, TAG)
    except Exception:
        back.Cancel()  # nothing comes
        raise
    finally:
        back.Wait()


def ended(begin, end=lambda request: request.Wait()):
    """What begins a receive, and how it ends."""
    return begin, end


def at_once(call):
    """A receive that needs its message to be there, or waits for it."""
    return call, None


# Of the ways to wait, each is crossed with one receive; of the receives, each with one way to wait.
FORMS = {
    "Recv": at_once(lambda comm, out, source: comm.Recv(out, source, TAG)),
    "Recv from anybody": at_once(lambda comm, out, source: comm.Recv(out)),
    "Sendrecv": at_once(lambda comm, out, source: comm.Sendrecv(out, NOBODY, 0, out, source, TAG)),
    "Sendrecv_replace": at_once(
        lambda comm, out, source: comm.Sendrecv_replace(out, NOBODY, 0, source, TAG)
    ),
    "Mrecv": at_once(lambda comm, out, source: comm.Mprobe(source, TAG).Recv(out)),
    "Imrecv": at_once(lambda comm, out, source: comm.Mprobe(source, TAG).Irecv(out).Wait()),
    "Improbe": at_once(lambda comm, out, source: found(comm, source).Irecv(out).Wait()),
    "Irecv": ended(lambda comm, out, source: comm.Irecv(out, source, TAG)),
    "Irecv from anybody": ended(lambda comm, out, source: comm.Irecv(out)),
    "Irecv, Test": ended(lambda comm, out, source: comm.Irecv(out, source, TAG), polled),
    "Irecv, Waitall": ended(
        lambda comm, out, source: comm.Irecv(out, source, TAG),
        lambda request: MPI.Request.Waitall([MPI.REQUEST_NULL, request]),
    ),
    "Irecv, Waitall of it alone": ended(
        lambda comm, out, source: comm.Irecv(out, source, TAG),
        lambda request: MPI.Request.Waitall(requests=(request,)),
    ),
    "Irecv, Waitany": ended(
        lambda comm, out, source: comm.Irecv(out, source, TAG),
        lambda request: MPI.Request.Waitany([MPI.REQUEST_NULL, request]),
    ),
    "Irecv, Waitsome": ended(
        lambda comm, out, source: comm.Irecv(out, source, TAG),
        lambda request: MPI.Request.Waitsome([request]),
    ),
    "Isendrecv": ended(lambda comm, out, source: comm.Isendrecv(None, NOBODY, 0, out, source, TAG)),
    "Isendrecv of two messages": ended(paired),
    "Isendrecv of two messages, Waitall": ended(
        paired, lambda request: MPI.Request.Waitall([request])
    ),
    "Isendrecv_replace": ended(
        lambda comm, out, source: comm.Isendrecv_replace(out, NOBODY, 0, source, TAG)
    ),
    "Recv_init": ended(persistent),
    "Recv_init, Waitall": ended(persistent, lambda request: MPI.Prequest.Waitall([request])),
}

#: What is received into, of the float32 elements `part` of an arena.
INTO = {
    "numpy": lambda part, room=ROOM: part[:room],
    "strided": lambda part, room=ROOM: part[: 2 * room : 2],
    "torch": lambda part, room=ROOM: torch.from_numpy(part[:room]),
    "datatype": lambda part, room=ROOM: [part[:room], MPI.FLOAT],
}


def said(error):
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("into", INTO)
def test_what_does_not_fit_is_told_in_words(comm, form, into):
    begin, end = FORMS[form]
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    # MPICH 5.0.2 says anything in the status of an Isendrecv, so nothing is known of its message.
    known = not (MPICH and form.startswith("Isendrecv"))
    # And it says nothing at all of one of two that is too long.
    silent = MPICH and "of two messages" in form
    lengths = [4 * ROOM + 44, 4 * ROOM + 20_000, *([13] if known else [])]
    for length in lengths:
        for early in (True, False) if end else (True,):
            sent = np.random.default_rng([length, source]).integers(0, 256, length, np.uint8)
            mine = np.random.default_rng([length, comm.rank]).integers(0, 256, length, np.uint8)
            arena = np.full(6000, 7, np.float32)
            part = arena[100 : 100 + 2 * ROOM]
            sending = []

            def send(data=mine, sending=sending):
                sending.append(PLAIN.COMM_WORLD.Isend([data, PLAIN.BYTE], to, TAG))
                comm.Barrier()

            def receive(part=part, early=early, send=send):
                request = begin(comm, INTO[into](part), source)
                if not early:
                    send()
                try:
                    if end:
                        end(request)
                finally:
                    if "Recv_init" in form:
                        request.Free()

            if early:
                send()
            with nullcontext() if silent else pytest.raises((MPI.Exception, ValueError)) as caught:
                receive()
            if not sending:
                send()  # the receive itself was refused: that fails below, and hangs nobody
            sending[0].Wait()
            words = "" if silent else said(caught.value)
            assert not known or f" from rank {source} with tag {TAG} is " in words
            if silent:
                pass
            elif length > 4 * ROOM:
                assert f"longer than the room for it, {ROOM} elements of float32" in words
                assert isinstance(caught.value, MPI.Exception)
            else:
                assert "message of 13 bytes that came" in words
                assert "no whole number of float32 of 4 bytes each" in words
                got = part[::2] if into == "strided" else part
                assert got[:3].tobytes() == sent[:12].tobytes()
            part[: 2 * ROOM if into == "strided" else ROOM] = 7
            assert np.all(arena == 7)
            comm.Barrier()
    still_works(comm)


@pytest.mark.parametrize("form", [form for form in FORMS if "Recv_init" not in form])
@pytest.mark.parametrize("into", INTO)
def test_nothing_is_written_beyond_a_large_room(comm, form, into):
    """The message is there before its receive (persistent ones: docs/safety.md, Limits)."""
    begin, end = FORMS[form]
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    silent = MPICH and "of two messages" in form
    for more in (5000, 0, -3):
        sent = np.full(LARGE + more, comm.rank + 1, np.float32)
        arena = np.full(2 * LARGE + 6000, 77, np.float32)
        sending = PLAIN.COMM_WORLD.Isend([sent, PLAIN.FLOAT], to, TAG)
        comm.Probe(source, TAG)
        fails = more > 0 and not silent
        with pytest.raises(MPI.Exception) if fails else nullcontext() as caught:
            request = begin(comm, INTO[into](arena, LARGE), source)
            if end:
                end(request)
        sending.Wait()
        assert not fails or "longer than the room for it, 262144 elements" in said(caught.value)
        room = arena[: 2 * LARGE : 2] if into == "strided" else arena[:LARGE]
        if more <= 0:
            assert np.all(room[: LARGE + more] == source + 1)
            assert np.all(room[LARGE + more :] == 77)
        room[:] = 77
        assert np.all(arena == 77)
        comm.Barrier()
    still_works(comm)


def test_several_at_once_name_the_one_that_failed(comm):
    """Two receives under way of which one is too small: the other's elements are there."""
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    good, small = np.zeros(5), np.zeros(3)
    requests = [comm.Irecv(good, source, 1), comm.Irecv(small, source, 2)]
    comm.Barrier()
    requests += [comm.Isend(np.full(5, float(comm.rank)), to, tag) for tag in (1, 2)]
    statuses = []
    with pytest.raises(MPI.Exception) as caught:
        MPI.Request.Waitall(requests, statuses)
    assert f" from rank {source} with tag 2 is longer than the room" in said(caught.value)
    assert "3 elements of float64 (24 bytes)" in said(caught.value)
    assert good.tolist() == [source] * 5
    assert statuses[0].Get_count(MPI.DOUBLE) == 5
    still_works(comm)
