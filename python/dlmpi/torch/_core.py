"""What all calls of one process group share: its communicator, its clock, its count of calls.

Knows how an operation is started, waited for and missed, not what it does.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dlmpi import MPI, _native
from dlmpi.torch._late import Roll
from dlmpi.torch._work import DoneWork, PendingWork, may_be_none

if TYPE_CHECKING:
    from dlmpi._native import Starter

    #: One operation and its arguments.
    Call = tuple[Starter, tuple[Any, ...]]

__all__ = ["Core", "seconds"]

#: How long a call is waited for before this rank says in the store how far it came.
PATIENCE = 1.0


def seconds(timeout: timedelta | None, default: float) -> float:
    """Return a timeout of torch's in seconds; none, zero and negative mean the group's own."""
    value = timeout.total_seconds() if timeout is not None else 0.0
    return value if value > 0 else default


class Core:
    """One group on this rank, with its operations by MPI's names."""

    Iallreduce: Starter
    Ibcast: Starter
    Ireduce: Starter
    Iallgather: Starter
    Iallgatherv: Starter
    Igather: Starter
    Igatherv: Starter
    Iscatterv: Starter
    Ireduce_scatter: Starter
    Ireduce_scatter_block: Starter
    Ialltoallv: Starter
    Ibarrier: Starter
    Send: Starter
    Recv: Starter

    def __init__(self, comm: Any, name: str, store: Any, timeout: timedelta) -> None:
        _native.prepare(comm)
        self.comm = comm
        self.name = name
        self.store = store
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.largest_tag: int = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 0
        self.timeout = timeout.total_seconds()
        self.sequence = 0
        #: Monitored barriers so far.
        self.monitored = 0
        self.roll = Roll(store, self.rank, self.size)
        #: Works of a coalescing block, while one is open.
        self.together: list[Any] | None = None
        self.closed = False
        for operation in OPERATIONS:
            setattr(self, operation, _native.Starter(comm, operation))
        _live.add(self)

    def launch(
        self,
        what: str,
        calls: Sequence[Call],
        outputs: Sequence[Any],
        options: Any = None,
        after: Callable[[], None] | None = None,
    ) -> Any:
        """Start calls that are one operation of torch's; return its work.

        A call is a starter and its arguments. `after` puts results in their places when all have
        ended. Where torch waits at once, the calling thread carries the operation on itself.
        """
        if self.closed:
            raise RuntimeError(f"{what}: the process group {self.name!r} has been destroyed")
        self.sequence += 1
        number = self.sequence
        if options is None or options.asyncOp or self.together is not None:
            pendings = [starter(*arguments) for starter, arguments in calls]
            limit = seconds(options and options.timeout, self.timeout)
            work = PendingWork(
                self, what, number, pendings, outputs=outputs, limit=limit, after=after
            )
            if self.together is not None:
                self.together.append(work)
            return work
        for starter, arguments in calls:
            pending = starter.run(PATIENCE, *arguments)
            if pending is not None:
                limit = seconds(options.timeout, self.timeout)
                self.wait(what, number, pending, limit, PATIENCE)
        if after is not None:
            after()
        return None if may_be_none else DoneWork(outputs)

    def wait(self, what: str, number: int, pending: Any, limit: float, waited: float = 0.0) -> None:
        """Wait for an operation under way, and raise what it ended with or who is missing."""
        patience = min(PATIENCE, limit) - waited
        if patience > 0 and pending.wait(patience):
            self.raise_error(pending)
            return
        self.roll.came(number)
        if not pending.wait(max(limit - max(waited, PATIENCE), 0.0)):
            _broken.add(self.name)
            raise self.late(what, number, limit)
        self.raise_error(pending)

    @staticmethod
    def raise_error(pending: Any) -> None:
        """Raise what an operation that has ended failed with, if it has."""
        error = pending.error()
        if error is not None:
            raise error

    def late(self, what: str, number: int, limit: float) -> Exception:
        """Return the exception for an operation that did not end in time."""
        return self.roll.missing(f"{what} (call {number} of group {self.name!r})", number, limit)

    def close(self, free: bool) -> None:
        """Take no more calls; give the communicator back where all ranks do so."""
        if self.closed:
            return
        self.closed = True
        _live.discard(self)
        if free and self.name not in _broken and not MPI.Is_finalized():
            self.comm.Free()


OPERATIONS = tuple(Core.__annotations__)
_live: set[Core] = set()
_broken: set[str] = set()


def _at_exit() -> None:
    """End the job where an operation will never end: MPI could not be finalized."""
    if _broken and MPI.Is_initialized() and not MPI.Is_finalized():
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        MPI.COMM_WORLD.Abort(1)


atexit.register(_at_exit)
