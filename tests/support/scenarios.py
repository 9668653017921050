"""What is called while MPI is made to fail: each scenario makes calls on a communicator and asserts
what they give, so that a result which is wrong without an exception is seen. Knows nothing of the
failing.

Those called "message ..." run on a communicator of one rank, whose messages go to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from mpi4py import MPI as PLAIN

import dlmpi
from dlmpi import MPI
from support.collectives import MOVES, REDUCTIONS
from support.immediate import Immediate

Scenario = Callable[[Any], None]
KINDS: dict[str, Callable[[int], np.ndarray]] = {
    "dense": lambda n: np.full(n, -1.0),
    "large": lambda n: np.full(n, -1.0),
    "huge": lambda n: np.full(n, -1.0),
    "strided half": lambda n: np.full(2 * n, -1, ml_dtypes.bfloat16)[::2],
}
SMALL = {kind: make for kind, make in KINDS.items() if kind not in ("large", "huge")}
#: Elements of a block: as a rule, where dlmpi has an algorithm of its own, and where its ranks use
#: each other's memory.
N, LARGE, HUGE = 4, 1 << 13, 1 << 20


def filled(make: Callable[[int], np.ndarray], n: int, rank: int) -> np.ndarray:
    made = make(n)
    made[...] = np.arange(n) % 5 + 8 * rank
    return made


def move(row: Any, make: Callable[[int], np.ndarray], immediate: bool, comm: Any) -> None:
    rank, size, root = comm.rank, comm.size, 0
    sent = [filled(make, row.gives(r, size, root) * N, r) for r in range(size)]
    out = make(row.gets(rank, size, root) * N)
    called = Immediate(comm) if immediate else comm
    give = sent[rank] if row.gives(rank, size, root) else None
    row.call(called, give, out if out.size else None, root)
    if immediate:
        [request.Wait() for request in called.requests]
    if out.size:
        want = row.want(sent, rank, size, root, N)
        assert np.array_equal(out.astype("f8"), want.astype("f8")), (out, want)


def reduce(row: Any, kind: str, op: str, immediate: bool, comm: Any) -> None:
    make, n = KINDS[kind], {"large": LARGE, "huge": HUGE}.get(kind, N)
    rank, size, root = comm.rank, comm.size, 0
    sent = [filled(make, row.gives(size) * n, r).astype("f8") for r in range(size)]
    out = make(n)
    called = Immediate(comm) if immediate else comm
    row.call(
        called,
        filled(make, row.gives(size) * n, rank),
        out,
        getattr(dlmpi if op == "AVG" else MPI, op),
        root,
    )
    if immediate:
        [request.Wait() for request in called.requests]
    over = row.over(rank, size, root)
    if over:
        total = np.stack([sent[r][row.part(rank, n)] for r in over])
        total = {"SUM": total.sum, "MAX": total.max, "AVG": total.mean}[op](0)
        assert np.array_equal(out.astype("f8"), total), (out, total)


def vectors(name: str, immediate: bool, comm: Any) -> None:
    """Rank r owns r + 1 elements, all of value r; `Alltoallv` swaps one with everybody."""
    rank, size = comm.rank, comm.size
    counts = [r + 1 for r in range(size)]
    whole = np.repeat(np.arange(size), counts).astype("i4")
    mine, out = whole[whole == rank], np.full(sum(counts), -1, "i4")
    call = getattr(comm, f"I{name.lower()}" if immediate else name)
    if name == "Alltoallv":
        out, want = np.full(size, -1, "i4"), list(range(size))
        request = call([np.full(size, rank, "i4"), [1] * size], [out, [1] * size])
    elif name == "Scatterv":
        out, want = np.full(rank + 1, -1, "i4"), mine.tolist()
        request = call([whole, counts] if rank == 0 else None, out)
    else:
        want = whole.tolist() if name == "Allgatherv" or rank == 0 else [-1] * whole.size
        request = call(mine, [out, counts])
    if immediate:
        request.Wait()
    assert out.tolist() == want, out


def barrier(comm: Any) -> None:
    comm.Barrier()
    comm.Ibarrier().Wait()


def many(comm: Any) -> None:
    tensors = [np.full(3, comm.rank + 1.0), np.full(LARGE, comm.rank, "i8"), np.ones(2, "f2")]
    dlmpi.allreduce_many(tensors, comm=comm)
    size = comm.size
    wants = (size * (size + 1) / 2, size * (size - 1) / 2, size)
    for tensor, want in zip(tensors, wants, strict=True):
        assert np.all(tensor == want), tensor


def functional(comm: Any) -> None:
    got = dlmpi.allgather(np.arange(3) + comm.rank, comm=comm)
    assert got.tolist() == [[i + r for i in range(3)] for r in range(comm.size)], got
    got = dlmpi.bcast(np.arange(3) + comm.rank, comm=comm)
    assert got.tolist() == [0, 1, 2], got


def datatypes(comm: Any) -> None:
    """Raw memory under the caller's Datatype, and pairs."""
    pairs = np.zeros(2, np.dtype("f8,i4", align=True))
    pairs["f0"], pairs["f1"] = comm.rank, comm.rank
    out = np.zeros_like(pairs)
    comm.Allreduce([pairs, 2, MPI.DOUBLE_INT], [out, 2, MPI.DOUBLE_INT], MPI.MAXLOC)
    assert out["f1"].tolist() == [comm.size - 1] * 2, out
    out = np.full(4, -1, "i4")
    comm.Bcast([np.arange(4, dtype="i4") if comm.rank == 0 else out, 4, MPI.INT])
    assert comm.rank == 0 or out.tolist() == [0, 1, 2, 3], out


def message(mode: str, make: Callable[[int], np.ndarray], comm: Any) -> None:
    """One that mpi4py itself receives."""
    out = np.empty(N, make(N).dtype)
    receive = PLAIN.Intracomm(comm).Irecv([out.view("u1"), PLAIN.BYTE], 0, 3)
    if mode.lower().endswith("bsend"):
        MPI.Attach_buffer(bytearray(4096))
    try:
        request = getattr(comm, mode)(filled(make, N, 1), 0, 3)
        if request is not None:
            request.Wait()
        receive.Wait()
    finally:
        if receive:
            receive.Cancel()
            receive.Wait()
        if mode.lower().endswith("bsend"):
            MPI.Detach_buffer()
    assert out.astype("f8").tolist() == [8, 9, 10, 11], out


def arrival(mode: str, make: Callable[[int], np.ndarray], comm: Any) -> None:
    """One that mpi4py itself has sent."""
    out, plain = make(N), PLAIN.Intracomm(comm)
    data = np.ascontiguousarray(filled(make, N, 1))
    sent = plain.Isend([data.view("u1"), PLAIN.BYTE], 0, 3)
    try:
        ARRIVALS[mode](comm, out)
    finally:
        # What was not received is now: nothing may stay for the next communicator. One that was
        # matched before its receive failed is lost.
        while plain.Iprobe(0, 3):
            plain.Recv([bytearray(data.nbytes), PLAIN.BYTE], 0, 3)
        sent.Wait()
    assert out.astype("f8").tolist() == [8, 9, 10, 11], out


ARRIVALS: dict[str, Callable[[Any, np.ndarray], None]] = {
    "Recv": lambda comm, out: comm.Recv(out, 0, 3),
    "Irecv": lambda comm, out: comm.Irecv(out, 0, 3).Wait(),
    "Irecv and Test": lambda comm, out: _until(comm.Irecv(out, 0, 3).Test),
    "Mprobe": lambda comm, out: _matched(comm.Mprobe(0, 3), out),
    "Mprobe, Irecv": lambda comm, out: comm.Mprobe(0, 3).Irecv(out).Wait(),
}


def _matched(message: Any, out: np.ndarray) -> None:
    try:
        message.Recv(out)
    finally:
        # One whose receive failed is there still, and nobody else can receive it.
        if message != MPI.MESSAGE_NULL:
            room = [bytearray(out.size * out.itemsize), PLAIN.BYTE]
            PLAIN.Message(message).Recv(room)


def _until(test: Callable[[], bool]) -> None:
    while not test():
        pass


def _with_status(comm: Any, out: np.ndarray) -> None:
    status = MPI.Status()
    comm.Recv(out, MPI.ANY_SOURCE, MPI.ANY_TAG, status)
    assert (status.source, status.tag) == (0, 3)
    assert status.Get_count(MPI.BYTE) == out.size * out.itemsize


ARRIVALS["status"] = _with_status


def exchange(mode: str, make: Callable[[int], np.ndarray], comm: Any) -> None:
    out = filled(make, N, 1)
    if mode == "Sendrecv":
        out = make(N)
        comm.Sendrecv(filled(make, N, 1), 0, 3, out, 0, 3)
    elif mode == "Isendrecv":
        out = make(N)
        comm.Isendrecv(filled(make, N, 1), 0, 3, out, 0, 3).Wait()
    else:
        comm.Sendrecv_replace(out, 0, 3, 0, 3)
    assert out.astype("f8").tolist() == [8, 9, 10, 11], out


def objects(comm: Any) -> None:
    got = comm.bcast({"a": np.arange(3), "b": [comm.rank]}, root=0)
    assert (got["a"].tolist(), got["b"]) == ([0, 1, 2], [0])
    got = comm.allgather(np.full(2, comm.rank))
    assert [one.tolist() for one in got] == [[r, r] for r in range(comm.size)]


def splits(comm: Any) -> None:
    part = comm.Split(0, -comm.rank)
    try:
        out = np.full(1, -1)
        part.Bcast(np.array([comm.rank]) if part.rank == 0 else out)
        assert part.rank == 0 or out[0] == comm.size - 1
    finally:
        part.Free()


def persistent(comm: Any) -> None:
    given, out = np.full(3, comm.rank), np.full(3, -1)
    request = comm.Allreduce_init(given, out)
    try:
        request.Start()
        request.Wait()
    finally:
        request.Free()
    assert out.tolist() == [comm.size * (comm.size - 1) // 2] * 3, out


def _table() -> dict[str, Scenario]:
    table: dict[str, Scenario] = {"barrier": barrier}
    for row in MOVES:
        for kind, make in SMALL.items():
            table[f"{row} {kind}"] = partial(move, row, make, False)
            table[f"I{row} {kind}"] = partial(move, row, make, True)
    for name in ("Gatherv", "Scatterv", "Allgatherv", "Alltoallv"):
        table[name] = partial(vectors, name, False)
        table[f"I{name}"] = partial(vectors, name, True)
    for row in REDUCTIONS:
        for kind in SMALL:
            table[f"{row} {kind}"] = partial(reduce, row, kind, "SUM", False)
            table[f"I{row} {kind}"] = partial(reduce, row, kind, "SUM", True)
        if row.average:
            table[f"{row} AVG, large"] = partial(reduce, row, "large", "AVG", False)
    table["Allreduce MAX"] = partial(reduce, REDUCTIONS[1], "dense", "MAX", False)
    table |= {"many": many, "functional": functional, "datatypes": datatypes}
    table |= {"objects": objects, "splits": splits, "persistent": persistent}
    for kind, make in SMALL.items():
        for mode in ("Send", "Ssend", "Bsend", "Rsend"):
            table[f"message {mode} {kind}"] = partial(message, mode, make)
            table[f"message I{mode.lower()} {kind}"] = partial(message, f"I{mode.lower()}", make)
        for mode in ARRIVALS:
            table[f"message {mode} {kind}"] = partial(arrival, mode, make)
        for mode in ("Sendrecv", "Isendrecv", "Sendrecv_replace"):
            table[f"message {mode} {kind}"] = partial(exchange, mode, make)
    return table


SCENARIOS = _table()
#: Where a failure can leave this rank's memory to others, which ends the job.
SHARING: dict[str, Scenario] = {
    "Allreduce, huge": partial(reduce, REDUCTIONS[1], "huge", "SUM", False),
    "Reduce_scatter, huge": partial(reduce, REDUCTIONS[5], "huge", "SUM", False),
}
