"""Every class of operation on COMM_SELF, on two tensors of one size: what it does to them, for
tests that make it many times or let it fail. Nothing here knows where tensors lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlmpi
from dlmpi import MPI, _native

SELF = MPI.COMM_SELF
#: Of the values that two tensors hold: those that they hold afterwards.
After = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Alone:
    """An operation, what it leaves behind, and whether MPI must reach the memory as it lies."""

    run: Callable[[Any, Any], Any]
    after: After
    lent: bool = False


OPERATIONS: dict[str, Alone] = {}


def moved(sent: np.ndarray, _room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return sent, sent


def kept(sent: np.ndarray, room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return sent, room


def added(sent: np.ndarray, room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return sent, sent + room


def operation(after: After, lent: bool = False) -> Callable[[Callable[[Any, Any], Any]], Any]:
    def keep(run: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        OPERATIONS[run.__name__] = Alone(run, after, lent)
        return run

    return keep


def simple(name: str, call: Callable[[Any, Any], Any], after: After = moved) -> None:
    OPERATIONS[name] = Alone(call, after)


simple("Sendrecv", lambda s, r: SELF.Sendrecv(s, 0, 0, r, 0, 0))
simple("Sendrecv_replace", lambda s, r: SELF.Sendrecv_replace(s, 0, 0, 0, 0), kept)
simple("Bcast", lambda s, r: SELF.Bcast(s), kept)
simple("Gather", SELF.Gather)
simple("Scatter", SELF.Scatter)
simple("Allgather", SELF.Allgather)
simple("Allgatherv", SELF.Allgatherv)
simple("Alltoall", SELF.Alltoall)
simple("Reduce", SELF.Reduce)
simple("Allreduce", SELF.Allreduce)
simple("Allreduce MAX", lambda s, r: SELF.Allreduce(s, r, op=MPI.MAX))
simple("Allreduce AVG", lambda s, r: SELF.Allreduce(s, r, op=dlmpi.AVG))
simple("in place", lambda s, r: SELF.Allreduce(MPI.IN_PLACE, s), kept)
simple("Scan", SELF.Scan)
simple("Reduce_scatter_block", SELF.Reduce_scatter_block)
simple("Ibcast", lambda s, r: SELF.Ibcast(s).Wait(), kept)
simple("Iallgather", lambda s, r: SELF.Iallgather(s, r).Wait())
simple("Iallreduce", lambda s, r: SELF.Iallreduce(s, r).Wait())
simple("many", lambda s, r: dlmpi.allreduce_many([s, r], comm=SELF), kept)
simple("Reduce_local", MPI.SUM.Reduce_local, added)


@operation(moved)
def messages(sent: Any, room: Any) -> None:
    """The receive first, so that a send which fails leaves one that is called off."""
    receive = SELF.Irecv(room, 0)
    try:
        SELF.Isend(sent, 0).Wait()
    except BaseException:
        receive.Cancel()
        receive.Wait()
        raise
    receive.Wait()


@operation(moved)
def together(sent: Any, room: Any) -> None:
    requests = [SELF.Irecv(room, 0)]
    try:
        requests.append(SELF.Isend(sent, 0))
    except BaseException:
        requests[0].Cancel()
        requests[0].Wait()
        raise
    MPI.Request.Waitall(requests)


@operation(moved)
def matched(sent: Any, room: Any) -> None:
    send = SELF.Isend(sent, 0, tag=4)
    message = SELF.Mprobe(0, 4)
    try:
        message.Recv(room)
    except BaseException:
        # Where it failed before the message was received.
        if message != MPI.MESSAGE_NULL:
            message.Recv(np.empty(1 << 16, np.uint8))
        raise
    finally:
        send.Wait()


@operation(moved)
def without_requests(sent: Any, room: Any) -> None:
    """What torch.distributed's groups are made of."""
    work = _native.Starter(SELF, "Iallreduce")(sent, room)
    assert work.wait(60.0)
    if (error := work.error()) is not None:
        raise error


@operation(moved, lent=True)
def persistent(sent: Any, room: Any) -> None:
    requests = []
    try:
        requests.append(SELF.Recv_init(room, 0))
        requests.append(SELF.Send_init(sent, 0))
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
    finally:
        for request in requests:
            request.Free()


@operation(moved, lent=True)
def window(sent: Any, room: Any) -> None:
    made = MPI.Win.Create(sent, comm=SELF)
    try:
        made.Fence()
        try:
            made.Get(room, 0)
        finally:
            made.Fence()
    finally:
        made.Free()


@operation(kept, lent=True)
def borrowed(sent: Any, _room: Any) -> None:
    with dlmpi.borrow(sent) as buffer:
        memoryview(buffer).release()
