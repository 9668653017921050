"""Collectives and messages that return a new tensor of the same framework, dtype and device.

The way for immutable arrays (JAX, TensorFlow, MLX, Arrow), and a short one for all others. Each is
one call of the upper-case method of the same name; results are new memory, and nothing of them is
differentiable. Where ranks have their own blocks, the first axis counts ranks, as in mpi4py's
examples: `allgather` adds it, `scatter` and `reduce_scatter` take it away, `alltoall` keeps it.

Where only some ranks have data (`bcast`, `scatter`, `recv`), the others give any tensor of the
result's shape and dtype: it is not changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dlmpi import _makers, _native
from dlmpi.comm import mpi, predefined, wrap

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "bcast",
    "exscan",
    "gather",
    "recv",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
    "send",
    "sendrecv",
]

T = TypeVar("T")
Op = mpi.Op | _native.AverageOp


class _Refused:
    """Stands for a tensor that cannot take part.

    Passed on instead of raising at once, so that in a checked collective the other ranks hear of it
    and do not wait for ever.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __dlpack_device__(self) -> Any:
        raise BufferError(f"{type(self.error).__name__}: {self.error}") from self.error

    def __dlpack__(self, **_call: Any) -> Any:
        return self.__dlpack_device__()


def _comm(comm: mpi.Comm | None) -> Any:
    return predefined("COMM_WORLD") if comm is None else wrap(comm)


def _prepare(make: Callable[[], T]) -> T | _Refused:
    try:
        return make()
    except Exception as error:
        return _Refused(error)


def _call(method: Callable[..., Any], *arguments: Any) -> None:
    refused = next((each for each in arguments if isinstance(each, _Refused)), None)
    try:
        method(*arguments)
    except BufferError as error:
        causes = (error.__cause__, getattr(error.__cause__, "__cause__", None))
        if refused is not None and refused.error in causes:
            raise refused.error from None
        raise


def _lend(x: Any) -> Any:
    return _prepare(lambda: _makers.maker_of(x).lend(x))


def _room(x: Any, shape: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda shape: shape) -> Any:
    return _prepare(lambda: _makers.maker_of(x).room(x, shape(_makers.shape_of(x))))


def _finish(room: Any, x: Any) -> Any:
    return _makers.maker_of(x).finish(room, x)


def _without_ranks(size: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    def change(shape: tuple[int, ...]) -> tuple[int, ...]:
        if not shape or shape[0] != size:
            raise ValueError(
                f"x: its shape is {shape}; expected a first axis of {size}, one block for each rank"
            )
        return shape[1:]

    return change


def _with_ranks(size: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    return lambda shape: (size, *shape)


def allreduce(x: T, op: Op | None = None, comm: mpi.Comm | None = None) -> T:
    """Return the reduction of every rank's ``x``; ``op`` is SUM if not given."""
    room = _room(x)
    _call(_comm(comm).Allreduce, _lend(x), room, *_given(op))
    return _finish(room, x)  # type: ignore[no-any-return]


def _given(op: Op | None) -> tuple[Op, ...]:
    return (mpi.SUM if op is None else op,)


def reduce(x: T, op: Op | None = None, root: int = 0, comm: mpi.Comm | None = None) -> T | None:
    """Return the reduction of every rank's ``x`` on the root, None elsewhere."""
    comm = _comm(comm)
    room = _room(x) if comm.Get_rank() == root else None
    _call(comm.Reduce, _lend(x), room, *_given(op), root)
    return None if room is None else _finish(room, x)


def scan(x: T, op: Op | None = None, comm: mpi.Comm | None = None) -> T:
    """Return the reduction of ``x`` of the ranks up to this one."""
    room = _room(x)
    _call(_comm(comm).Scan, _lend(x), room, *_given(op))
    return _finish(room, x)  # type: ignore[no-any-return]


def exscan(x: T, op: Op | None = None, comm: mpi.Comm | None = None) -> T | None:
    """Return the reduction of ``x`` of the ranks before this one; None on rank 0."""
    ours = _comm(comm)
    room = _room(x)
    _call(ours.Exscan, _lend(x), room, *_given(op))
    return _finish(room, x) if ours.Get_rank() else None


def bcast(x: T, root: int = 0, comm: mpi.Comm | None = None) -> T:
    """Return the root's ``x``; on the other ranks ``x`` says shape and dtype."""
    comm = _comm(comm)
    if comm.Get_rank() == root:
        lent, room = _lend(x), _room(x)
        _call(comm.Bcast, room if isinstance(room, _Refused) else lent, root)
        # The root's own copy, so that on every rank the result is new memory. It is no call of the
        # user's, so no trace has it.
        _native.trace_hide(True)
        try:
            _call(predefined("COMM_SELF").Allgather, lent, room)
        finally:
            _native.trace_hide(False)
        return _finish(room, x)  # type: ignore[no-any-return]
    room = _room(x)
    _call(comm.Bcast, room, root)
    return _finish(room, x)  # type: ignore[no-any-return]


def gather(x: T, root: int = 0, comm: mpi.Comm | None = None) -> T | None:
    """Return every rank's ``x`` on the root, along a new first axis; None elsewhere."""
    comm = _comm(comm)
    room = _room(x, _with_ranks(comm.Get_size())) if comm.Get_rank() == root else None
    _call(comm.Gather, _lend(x), room, root)
    return None if room is None else _finish(room, x)


def scatter(x: T, root: int = 0, comm: mpi.Comm | None = None) -> T:
    """Return this rank's block of the root's ``x``, whose first axis counts ranks.

    On the other ranks ``x`` says shape and dtype of one block.
    """
    comm = _comm(comm)
    if comm.Get_rank() == root:
        room = _room(x, _without_ranks(comm.Get_size()))
        _call(comm.Scatter, room if isinstance(room, _Refused) else _lend(x), room, root)
    else:
        room = _room(x)
        _call(comm.Scatter, None, room, root)
    return _finish(room, x)  # type: ignore[no-any-return]


def allgather(x: T, comm: mpi.Comm | None = None) -> T:
    """Return every rank's ``x``, along a new first axis."""
    comm = _comm(comm)
    room = _room(x, _with_ranks(comm.Get_size()))
    _call(comm.Allgather, _lend(x), room)
    return _finish(room, x)  # type: ignore[no-any-return]


def alltoall(x: T, comm: mpi.Comm | None = None) -> T:
    """Send block ``i`` of ``x`` to rank ``i``; return what the ranks sent here, in their order."""
    comm = _comm(comm)
    size = comm.Get_size()
    without = _without_ranks(size)
    room = _room(x, lambda shape: (size, *without(shape)))
    _call(comm.Alltoall, room if isinstance(room, _Refused) else _lend(x), room)
    return _finish(room, x)  # type: ignore[no-any-return]


def reduce_scatter(x: T, op: Op | None = None, comm: mpi.Comm | None = None) -> T:
    """Return the reduction of this rank's block of every ``x``, whose first axis counts ranks."""
    comm = _comm(comm)
    room = _room(x, _without_ranks(comm.Get_size()))
    lent = room if isinstance(room, _Refused) else _lend(x)
    _call(comm.Reduce_scatter_block, lent, room, *_given(op))
    return _finish(room, x)  # type: ignore[no-any-return]


def send(x: Any, dest: int, tag: int = 0, comm: mpi.Comm | None = None) -> None:
    """Send ``x``; any receive of mpi4py or `recv` takes it."""
    _call(_comm(comm).Send, _lend(x), dest, tag)


def recv(
    like: T,
    source: int = mpi.ANY_SOURCE,
    tag: int = mpi.ANY_TAG,
    comm: mpi.Comm | None = None,
    status: mpi.Status | None = None,
) -> T:
    """Return a received tensor of the shape and dtype of ``like``, which is not changed.

    A shorter message leaves the rest of the result undefined: ``status`` tells the count.
    """
    room = _room(like)
    _call(_comm(comm).Recv, room, source, tag, status)
    return _finish(room, like)  # type: ignore[no-any-return]


def sendrecv(
    x: Any,
    dest: int,
    like: Any = None,
    source: int = mpi.ANY_SOURCE,
    *,
    sendtag: int = 0,
    recvtag: int = mpi.ANY_TAG,
    comm: mpi.Comm | None = None,
    status: mpi.Status | None = None,
) -> Any:
    """Send ``x`` and return what is received at once, like ``like``, or like ``x``."""
    like = x if like is None else like
    room = _room(like)
    _call(_comm(comm).Sendrecv, _lend(x), dest, sendtag, room, source, recvtag, status)
    return _finish(room, like)
