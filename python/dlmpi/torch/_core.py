"""What all calls of one process group share: its communicator, its clock, its count of calls.

Knows how an operation is started, waited for and missed, not what it does.
"""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch._C._distributed_c10d import AllreduceOptions

from dlmpi import MPI, _native
from dlmpi.torch import _failed, _late, _profile
from dlmpi.torch._blocks import LARGE
from dlmpi.torch._reduction import known
from dlmpi.torch._work import DoneMessage, DoneWork, PendingWork, may_be_none

if TYPE_CHECKING:
    from dlmpi._native import Starter

    #: One operation and its arguments.
    Call = tuple[Starter, tuple[Any, ...]]

__all__ = ["Core", "seconds"]

#: How long a call is carried on before its own timeout is looked at: asking torch for it takes
#: longer than a small message.
PATIENCE = 1.0
#: How long one of several operations is waited for before the others are looked at.
GLANCE = 0.05


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

    def __init__(
        self, comm: Any, name: str, store: Any, timeout: timedelta, title: str = "dlmpi"
    ) -> None:
        _native.prepare(comm)
        self.comm = comm
        self.name = name
        #: The backend's name in profiles.
        self.title = title
        self.store = store
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        #: The tag of messages that are part of a collective; users have those below.
        self.block_tag: int = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 0
        self.timeout = timeout.total_seconds()
        #: Collectives so far.
        self.sequence = 0
        #: Monitored barriers so far.
        self.monitored = 0
        #: Works of a coalescing block, while one is open.
        self.together: list[Any] | None = None
        self.closed = False
        for operation in OPERATIONS:
            setattr(self, operation, _native.Starter(comm, operation))

    def allreduce(self, others: Callable[..., Any]) -> Any:
        """Return a group's `allreduce`: its common form is native, `others` serves the rest."""
        return _native.AllReduce(
            self,
            self.Iallreduce,
            known,
            AllreduceOptions,
            _profile.is_on,
            MPI.IN_PLACE,
            self.size,
            PATIENCE,
            others,
        )

    def launch(
        self,
        what: str,
        calls: Sequence[Call],
        outputs: Sequence[Any],
        options: Any = None,
        after: Callable[[], None] | None = None,
        *,
        inputs: Sequence[Any] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Any:
        """Start calls that are one collective of torch's; return its work.

        `meanwhile` runs at once, when all calls are under way; `after` puts results in their places
        when all have ended. Where torch waits at once, the calling thread carries the operation on
        itself. `inputs` are shown in profiles; the outputs are if not given.
        """
        self.sequence += 1
        profiled = _profile.is_on()
        if options is None or options.asyncOp or profiled or self.together is not None:
            record = self._record(what, outputs if inputs is None else inputs) if profiled else None
            work = self._start(what, calls, outputs, after=after, record=record)
            if options is not None:
                work.limit = seconds(options.timeout, self.timeout)
            if meanwhile is not None:
                meanwhile()
            if self.together is not None:
                self.together.append(work)
            elif options is not None and not options.asyncOp:
                work.wait()
            return work
        if len(calls) == 1 and meanwhile is None:
            self.now(what, *calls[0], options)
        else:
            # All must be under way before one is waited for: they may be an exchange.
            self.check_open(what)
            limit = seconds(options.timeout, self.timeout)
            deadline = time.monotonic() + limit
            pendings = _native.Starter.run_all(min(PATIENCE, limit), calls, meanwhile)
            if pendings:
                self._finish(what, pendings, deadline, limit)
        if after is not None:
            after()
        return self.done(outputs)

    def short(
        self, what: str, starter: Starter, sent: Any, received: Any, options: Any, *rest: Any
    ) -> bool:
        """Do a call of lists with one short tensor for each rank, if torch waits for it at once.

        Says whether it is done: nothing was where the tensors are not dense, or some are large.
        """
        if options.asyncOp or self.together is not None or self.closed or _profile.is_on():
            return False
        self.sequence += 1
        ended = starter.run_lists(PATIENCE, LARGE, sent, received, *rest)
        if ended is False:
            self.sequence -= 1
            return False
        if ended is not True:
            self.overdue(what, ended, options)
        return True

    def done(self, outputs: Sequence[Any]) -> Any:
        """Return what torch gets where it waits at once and a call is done."""
        return None if may_be_none else DoneWork(outputs)

    def now(self, what: str, starter: Starter, arguments: tuple[Any, ...], options: Any) -> None:
        """Do one call in this thread, which waits for it anyway."""
        if self.closed:
            self.check_open(what)
        pending = starter.run(PATIENCE, *arguments)
        if pending is not None:
            self.overdue(what, pending, options)

    def overdue(self, what: str, pending: Any, options: Any) -> None:
        """Go on waiting for a call that has taken longer than the first look at its timeout."""
        limit = seconds(options.timeout, self.timeout)
        self._finish(what, [pending], time.monotonic() + limit - PATIENCE, limit)

    def _finish(self, what: str, pendings: Sequence[Any], deadline: float, limit: float) -> None:
        """Go on waiting for the operations of one call; raise what the first to fail failed with.

        Those of them that have not ended then are given up.
        """
        self.raise_error(pendings)
        _failed.heard()  # one period has passed already
        for pending in pendings:
            if not self.wait_for(what, pending, pendings, deadline):
                raise self.late(what, self.sequence, pendings, limit)
            self.raise_error(pendings)

    def wait_for(self, what: str, pending: Any, pendings: Sequence[Any], deadline: float) -> bool:
        """Wait for one of a call's operations until the deadline; say whether it has ended.

        Raises where another rank has failed, or another operation of the call.
        """
        asked = time.monotonic()
        while not pending.done():
            now = time.monotonic()
            if now >= deadline:
                return False
            if len(pendings) > 1:
                # This one may wait for what a rank no longer does that has failed as well.
                self.raise_error(pendings)
            self.raise_failed(what, pendings, _failed.known())
            period = _failed.PERIOD if len(pendings) == 1 else GLANCE
            pending.wait(min(deadline - now, period))
            if time.monotonic() - asked >= _failed.PERIOD:
                self.raise_failed(what, pendings, _failed.heard())
                asked = time.monotonic()
        return True

    @staticmethod
    def raise_failed(what: str, pendings: Sequence[Any], why: str | None) -> None:
        """Raise that another rank has failed, if it has; the operations are given up."""
        if why is not None:
            _give_up(pendings)
            raise _failed.FailedRankError(f"{what}: {why}")

    def message(self, what: str, call: Call, outputs: Sequence[Any], peer: int) -> Any:
        """Start one message; return its work. Messages are not counted: not all ranks make them."""
        tensor = call[1][0]
        if self.together is None and not _profile.is_on():
            self.check_open(what)
            starter, arguments = call
            pending = starter(*arguments)
            if pending.done() and pending.error() is None:
                return DoneMessage(what, pending, outputs)
            return PendingWork(self, what, [pending], outputs, peer=peer)
        record = self._record(what, [tensor]) if _profile.is_on() else None
        work = self._start(what, [call], outputs, peer=peer, record=record)
        if self.together is not None:
            self.together.append(work)
        return work

    def _start(
        self, what: str, calls: Sequence[Call], outputs: Sequence[Any], **rest: Any
    ) -> PendingWork:
        self.check_open(what)
        pendings = [starter(*arguments) for starter, arguments in calls]
        work = PendingWork(self, what, pendings, outputs, **rest)
        if work.record is not None:
            work.record.close_after(pendings)
        return work

    def _record(self, what: str, inputs: Sequence[Any]) -> _profile.Record:
        return _profile.Record(f"{self.title}:{what}", inputs)

    @staticmethod
    def raise_error(pendings: Sequence[Any]) -> None:
        """Raise what one of a call's operations failed with, if one has; give up the others."""
        for pending in pendings:
            error = pending.error()
            if error is not None:
                _give_up(pendings)
                raise error

    def late(
        self,
        what: str,
        number: int,
        pendings: Sequence[Any],
        limit: float,
        peer: int | None = None,
    ) -> _late.LateError:
        """Return the error of a call whose operations did not all end in time."""
        if peer is None:
            what = f"{what} (call {number} of process group {self.name!r})"
        _give_up(pendings)
        first = next((one for one in pendings if not one.done()), pendings[-1])
        return _late.late(what, first, limit, peer)

    def check_open(self, what: str) -> None:
        """Refuse a call of a group that was destroyed."""
        if self.closed:
            raise RuntimeError(f"{what}: the process group {self.name!r} has been destroyed")

    def close(self, free: bool) -> None:
        """Take no more calls; give the communicator back where all ranks do so."""
        if self.closed:
            return
        self.closed = True
        _failed.end(self.store)
        if free and not _any_unfinished() and not MPI.Is_finalized():
            self.comm.Free()


OPERATIONS = tuple(Core.__annotations__)
#: Seconds in which those that were given up may end after all, at the end of the process.
GRACE = 2.0
#: Operations that were given up.
_unfinished: list[Any] = []


def _give_up(pendings: Sequence[Any]) -> None:
    """Remember those of a call's operations that MPI still has."""
    _unfinished.extend(pending for pending in pendings if not pending.done())


def _any_unfinished(grace: float = 0.0) -> bool:
    """Whether MPI still has one of those after so many seconds."""
    deadline = time.monotonic() + grace
    _unfinished[:] = [
        pending for pending in _unfinished if not pending.wait(max(0, deadline - time.monotonic()))
    ]
    return bool(_unfinished)


def _at_exit() -> None:
    """End the job where an operation will never end: MPI could not be finalized.

    One may end yet: its message is there, or the rank that was late is on its way here, too.
    """
    if MPI.Is_initialized() and not MPI.Is_finalized() and _any_unfinished(GRACE):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        _failed.let_others_hear()
        MPI.COMM_WORLD.Abort(1)


atexit.register(_at_exit)
