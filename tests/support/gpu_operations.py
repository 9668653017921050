"""Every class of operation, on tensors that kernels are still working on: the bodies of tests.

A lab makes the tensors and looks at them afterwards; there is one for the simulated driver and one
for real hardware. Nothing here knows which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dlmpi

# Odd, so that nothing is aligned by luck; the large one takes dlmpi's own reductions.
SMALL, LARGE = 1001, 40_003


class Lab:
    """What the bodies need; tensors are on device `dev` unless said otherwise."""

    #: The library's arrays are never received into: results go to host memory.
    immutable = False

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def values(self, shape: Any, dtype: Any, ranks: int) -> list[np.ndarray]:
        """What each rank sends: the same list everywhere."""
        draw = self.rng.integers(-1000, 1000, (ranks, *np.atleast_1d(shape)))
        return list(draw.astype(dtype))

    def sent(self, values: np.ndarray, **where: Any) -> Any:
        """A tensor that a kernel is still writing; `step` and `offset` put it into a larger one."""
        raise NotImplementedError

    def received(self, like: np.ndarray, start: np.ndarray | None = None, **where: Any) -> Any:
        """Room that earlier kernels still read and write; it holds `start` when they are done."""
        raise NotImplementedError

    def expect(self, got: Any, expected: np.ndarray) -> None:
        """What the library's next kernel sees, and what the earlier ones saw."""
        raise NotImplementedError


OPERATIONS: dict[str, Callable[..., None]] = {}


def operation(run: Callable[..., None]) -> Callable[..., None]:
    OPERATIONS[run.__name__] = run
    return run


def pair(comm: Any) -> tuple[int, int]:
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


@operation
def send_recv(comm: Any, lab: Any) -> None:
    values = lab.values(SMALL, np.float32, 1)[0]
    if comm.rank == 0:
        comm.Send(lab.sent(values), dest=1, tag=3)
    elif comm.rank == 1:
        room = lab.received(values)
        comm.Recv(room, source=0, tag=3)
        lab.expect(room, values)


@operation
def sendrecv(comm: Any, lab: Any) -> None:
    values = lab.values((7, 143), np.int64, comm.size)
    dest, source = pair(comm)
    room = lab.received(values[source])
    comm.Sendrecv(lab.sent(values[comm.rank]), dest, 0, room, source, 0)
    lab.expect(room, values[source])


@operation
def parts(comm: Any, lab: Any) -> None:
    """Only the elements named are sent and written."""
    values = lab.values(10, np.float64, comm.size)
    dest, source = pair(comm)
    start = np.arange(10.0)
    room = lab.received(start, start)
    sent = lab.sent(values[comm.rank])
    comm.Sendrecv([sent, 4, 3, None], dest, 0, [room, 4, 2, None], source, 0)
    start[2:6] = values[source][3:7]
    lab.expect(room, start)


@operation
def short_message(comm: Any, lab: Any) -> None:
    """Room that the message does not fill keeps the rest."""
    values = lab.values(5, np.int32, comm.size)
    dest, source = pair(comm)
    start = np.arange(9, dtype=np.int32)
    room = lab.received(start, start)
    comm.Sendrecv(lab.sent(values[comm.rank]), dest, 0, room, source, 0)
    start[:5] = values[source]
    lab.expect(room, start)


@operation
def nonblocking(comm: Any, lab: Any) -> None:
    values = lab.values(SMALL, np.float64, comm.size)
    dest, source = pair(comm)
    room = lab.received(values[source])
    requests = [comm.Irecv(room, source), comm.Isend(lab.sent(values[comm.rank]), dest)]
    type(requests[0]).Waitall(requests)
    lab.expect(room, values[source])


@operation
def bcast(comm: Any, lab: Any) -> None:
    values = lab.values(SMALL, np.float32, 1)[0]
    if comm.rank == 0:
        comm.Bcast(np.array(values) if lab.immutable else lab.sent(values))
        return
    room = lab.received(values)
    comm.Bcast(room)
    lab.expect(room, values)


def reduced(comm: Any, lab: Any, n: int, dtype: Any) -> None:
    values = lab.values(n, dtype, comm.size)
    room = lab.received(values[0])
    comm.Allreduce(lab.sent(values[comm.rank]), room)
    lab.expect(room, sum(values))


@operation
def allreduce(comm: Any, lab: Any) -> None:
    reduced(comm, lab, SMALL, np.float32)


@operation
def allreduce_own(comm: Any, lab: Any) -> None:
    reduced(comm, lab, LARGE, np.float64)


@operation
def allreduce_in_place(comm: Any, lab: Any) -> None:
    values = lab.values(SMALL, np.int64, comm.size)
    room = lab.received(values[0], values[comm.rank])
    comm.Allreduce(dlmpi.MPI.IN_PLACE, room)
    lab.expect(room, sum(values))


@operation
def allreduce_half(comm: Any, lab: Any) -> None:
    """Widened on the host, rounded on the way back."""
    values = [v % 100 for v in lab.values(SMALL, np.float16, comm.size)]
    room = lab.received(values[0])
    comm.Allreduce(lab.sent(values[comm.rank]), room)
    lab.expect(room, sum(v.astype(np.float64) for v in values).astype(np.float16))


@operation
def many(comm: Any, lab: Any) -> None:
    """One wait for all tensors of a call."""
    sizes = (3, SMALL, LARGE)
    values = [lab.values(n, np.float32, comm.size) for n in sizes]
    rooms = [lab.received(v[0], v[comm.rank]) for v in values]
    dlmpi.allreduce_many(rooms, comm=comm)
    for room, v in zip(rooms, values, strict=True):
        lab.expect(room, sum(v))


@operation
def reduce_and_scan(comm: Any, lab: Any) -> None:
    values = lab.values(SMALL, np.int32, comm.size)
    room = lab.received(values[0]) if comm.rank == 1 else None
    comm.Reduce(lab.sent(values[comm.rank]), room, root=1)
    if room is not None:
        lab.expect(room, sum(values))
    room = lab.received(values[0])
    comm.Scan(lab.sent(values[comm.rank]), room)
    lab.expect(room, sum(values[: comm.rank + 1]))


@operation
def gather_and_scatter(comm: Any, lab: Any) -> None:
    values = lab.values(SMALL, np.float32, comm.size)
    whole = np.stack(values)
    room = lab.received(whole) if comm.rank == 0 else None
    comm.Gather(lab.sent(values[comm.rank]), room)
    if room is not None:
        lab.expect(room, whole)
    room = lab.received(values[0])
    comm.Scatter(lab.sent(whole) if comm.rank == 0 else None, room)
    lab.expect(room, values[comm.rank])


@operation
def allgather_and_alltoall(comm: Any, lab: Any) -> None:
    values = lab.values(SMALL, np.float32, comm.size)
    whole = np.stack(values)
    room = lab.received(whole)
    comm.Allgather(lab.sent(values[comm.rank]), room)
    lab.expect(room, whole)
    matrix = lab.values((comm.size, 50), np.int64, comm.size)
    room = lab.received(matrix[0])
    comm.Alltoall(lab.sent(matrix[comm.rank]), room)
    lab.expect(room, np.stack([matrix[source][comm.rank] for source in range(comm.size)]))


@operation
def vector(comm: Any, lab: Any) -> None:
    """Blocks of several sizes with gaps between: the gaps are not written."""
    counts = [3 + rank for rank in range(comm.size)]
    displs = [8 * rank for rank in range(comm.size)]
    values = [lab.values(n, np.float64, 1)[0] for n in counts]
    start = np.arange(8.0 * comm.size)
    room = lab.received(start, start)
    comm.Allgatherv(lab.sent(values[comm.rank]), [room, counts, displs, None])
    for rank, block in enumerate(values):
        start[displs[rank] : displs[rank] + counts[rank]] = block
    lab.expect(room, start)


@operation
def reduce_scatter(comm: Any, lab: Any) -> None:
    values = lab.values((comm.size, SMALL), np.float32, comm.size)
    room = lab.received(values[0][0])
    comm.Reduce_scatter_block(lab.sent(values[comm.rank]), room)
    lab.expect(room, sum(values)[comm.rank])


@operation
def nonblocking_collectives(comm: Any, lab: Any) -> None:
    values = lab.values(SMALL, np.float32, comm.size)
    whole = np.stack(values)
    total, every = lab.received(values[0]), lab.received(whole)
    requests = [
        comm.Iallreduce(lab.sent(values[comm.rank]), total),
        comm.Iallgather(lab.sent(values[comm.rank]), every),
    ]
    for request in requests:
        request.Wait()
    for tensor, expected in ((total, sum(values)), (every, whole)):
        lab.expect(tensor, expected)


@operation
def empty(comm: Any, lab: Any) -> None:
    values = lab.values(0, np.float32, comm.size)
    room = lab.received(values[0])
    comm.Allreduce(lab.sent(values[comm.rank]), room)
    lab.expect(room, values[0])


@operation
def strided(comm: Any, lab: Any) -> None:
    values = lab.values((9, 11), np.float32, comm.size)
    dest, source = pair(comm)
    room = lab.received(values[source], step=3, offset=2)
    comm.Sendrecv(lab.sent(values[comm.rank], step=2, offset=1), dest, 0, room, source, 0)
    lab.expect(room, values[source])
