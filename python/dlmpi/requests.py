"""Requests of operations on tensors.

Each is an `mpi4py.MPI.Request`, so every way to complete it works, stock class methods such as
`MPI.Request.Waitall` included, mixed with other requests. A tensor is held until its operation has
ended, whatever becomes of the request object.
"""

import atexit
from collections.abc import Callable, Sequence
from typing import Any, Literal

from dlmpi import _native, _start, trace
from dlmpi._bound import mpi
from dlmpi._standin import Made, StandIn
from dlmpi._together import Together
from dlmpi.memory import Message

__all__ = [
    "Carried",
    "Kept",
    "Persistent",
    "Prequest",
    "Receipt",
    "Repeated",
    "Request",
    "Staged",
    "Transfer",
]


class Transfer(mpi.Request):
    """An operation that MPI carries: its own request.

    What was received is in place when the request completes. A request that is freed or dropped
    before leaves its tensors to dlmpi, which lets go of them when MPI says that it is done.
    """

    __slots__ = ("_track",)

    _track: _native.Track

    def Free(self) -> None:
        """Free the request; the operation goes on, and its tensors are held until it ends."""
        track = getattr(self, "_track", None)
        if track is None or not track.free():
            super().Free()

    def Get_status(self, status: mpi.Status | None = None) -> bool:
        """Test for the completion of the operation without completing the request."""
        complete = super().Get_status(status)
        track = getattr(self, "_track", None)
        if complete and track is not None:
            track.arrived()
        return complete


class _Received:
    """A request of a message, which judges its status: what did not fit is told in words."""

    __slots__ = ()

    _track: _native.Track

    def _completed(self, complete: Callable[[mpi.Status], Any], status: mpi.Status | None) -> Any:
        status = mpi.Status() if status is None else status
        track = getattr(self, "_track", None)
        try:
            result = complete(status)
        except mpi.Exception as error:
            if track is not None:
                track.explain(error, status)
            raise
        # Where the operation goes on, the status is an empty one.
        if track is not None:
            track.judge(status)
        return result


class Receipt(_Received, Transfer):
    """A message that is received by MPI's own request.

    `Wait` and `Test` are left to these methods where something else is to be done than to judge
    what came (`_native.set_classes`).
    """

    __slots__ = ()

    def Wait(self, status: mpi.Status | None = None) -> Literal[True]:
        """Wait for the message."""
        self._completed(super().Wait, status)
        return True

    def Test(self, status: mpi.Status | None = None) -> bool:
        """Test for the completion of the message."""
        return bool(self._completed(super().Test, status))

    def wait(self, status: mpi.Status | None = None) -> Any:
        """Wait for the message."""
        return self._completed(super().wait, status)

    def test(self, status: mpi.Status | None = None) -> tuple[bool, Any]:
        """Test for the completion of the message."""
        return self._completed(super().test, status)  # type: ignore[no-any-return]


class Kept(mpi.Prequest):
    """An operation that is started again and again, on the same tensors, with nothing else to do.

    They are held until the request is freed.
    """

    __slots__ = ("_track",)

    _track: _native.Track

    def Free(self) -> None:
        """Free the request; an operation under way goes on, with its tensors held."""
        track = getattr(self, "_track", None)
        if self.Get_status() or track is None or not track.free():
            super().Free()


class Persistent(_Received, Kept):
    """The same where a message is judged, or where work is queued on the tensors.

    Where a framework counts what is written, it hears of it when the operation starts, and from
    the methods of this object that see it complete.
    """

    __slots__ = ()

    def _wrote(self) -> None:
        track = getattr(self, "_track", None)
        if track is not None:
            track.wrote()

    def _starts(self) -> None:
        track = getattr(self, "_track", None)
        if track is not None:
            track.starts()

    def Start(self) -> None:
        """Initiate a communication with a persistent request."""
        self._starts()
        super().Start()
        self._wrote()

    # A partition is written when it is ready, which may be long after the start.
    def Pready(self, partition: int) -> None:
        """Mark a given partition as ready."""
        self._starts()
        super().Pready(partition)

    def Pready_range(self, partition_low: int, partition_high: int) -> None:
        """Mark a range of partitions as ready."""
        self._starts()
        super().Pready_range(partition_low, partition_high)

    def Pready_list(self, partitions: Sequence[int]) -> None:
        """Mark a sequence of partitions as ready."""
        self._starts()
        super().Pready_list(partitions)

    def Wait(self, status: mpi.Status | None = None) -> Literal[True]:
        """Wait for the operation to complete."""
        self._completed(super().Wait, status)
        self._wrote()
        return True

    def Test(self, status: mpi.Status | None = None) -> bool:
        """Test for the completion of the operation."""
        complete = bool(self._completed(super().Test, status))
        if complete:
            self._wrote()
        return complete


class _Carried:
    """A generalized request of an operation that dlmpi carries to its end.

    An operation that failed raises its own exception from the methods of this object, and an
    `MPI.Exception` with its words from the class methods.
    """

    __slots__ = ()

    _pending: _native.Pending

    def _completing(self, name: str, *args: Any) -> Any:
        pending = getattr(self, "_pending", None)
        if pending and name in {"Wait", "wait"}:
            pending.wait()  # an interrupt ends this wait, as it could not end one inside MPI
        try:
            result = getattr(super(), name)(*args)
        except mpi.Exception as error:
            raise (pending and pending.error()) or error from None
        return result

    def Wait(self, status: mpi.Status | None = None) -> Any:
        """Wait for the operation to complete."""
        return self._completing("Wait", status)

    def Test(self, status: mpi.Status | None = None) -> Any:
        """Test for the completion of the operation."""
        return self._completing("Test", status)

    def wait(self, status: mpi.Status | None = None) -> Any:
        """Wait for the operation to complete."""
        return self._completing("wait", status)

    def test(self, status: mpi.Status | None = None) -> Any:
        """Test for the completion of the operation."""
        return self._completing("test", status)


class Carried(_Carried, mpi.Request):
    """An operation that dlmpi carries to its end."""

    __slots__ = ("_pending",)


class Restarted(_Carried, mpi.Prequest):
    """An operation that dlmpi begins and ends each time it is started.

    While it is inactive it is `REQUEST_NULL`, so that stock `MPI.Prequest.Startall`, which knows
    nothing of it, raises instead of doing nothing; `Startall` of :mod:`dlmpi.MPI` starts it.
    """

    __slots__ = ("_pending",)

    def _exists(self) -> bool:
        raise NotImplementedError

    def _begin(self) -> _native.Pending:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError

    def Start(self) -> None:
        """Initiate a communication with a persistent request."""
        if not self._exists() or self != mpi.REQUEST_NULL:
            raise mpi.Exception(mpi.ERR_REQUEST)
        self._pending = self._begin()

    def Free(self) -> None:
        """Free the request; an operation under way goes on, with its tensors held."""
        if not self._exists():
            raise mpi.Exception(mpi.ERR_REQUEST)
        if self != mpi.REQUEST_NULL:
            super().Free()
        self._end()

    def free(self) -> None:
        """Call `Free` if it has not been freed."""
        if self._exists():
            self.Free()


class Repeated(Restarted):
    """A reduction that dlmpi makes anew each time, on a communicator of its own."""

    __slots__ = ("_arguments", "_comm", "_starter")

    _starter: _native.Starter | None
    _arguments: tuple[Any, ...]
    _comm: Any

    @classmethod
    def _create(cls, comm: Any, name: str, arguments: tuple[Any, ...]) -> "Repeated":
        request = cls()
        request._comm = comm.Dup()
        request._starter = _native.Starter(request._comm, name)
        request._arguments = arguments
        return request

    def _exists(self) -> bool:
        return getattr(self, "_starter", None) is not None

    def _begin(self) -> _native.Pending:
        return self._starter.restart(self, *self._arguments)  # type: ignore[union-attr]

    def _end(self) -> None:
        self._starter, self._arguments = None, ()
        self._comm.Free()


class Staged(Restarted):
    """An operation of MPI's whose tensors are brought into another form each time."""

    __slots__ = ("_stage",)

    _stage: _native.Stage | None

    def _exists(self) -> bool:
        return getattr(self, "_stage", None) is not None

    def _begin(self) -> _native.Pending:
        return self._stage.start(self)  # type: ignore[union-attr]

    def _end(self) -> None:
        stage, self._stage = self._stage, None
        stage.free()  # type: ignore[union-attr]

    def _active(self) -> _native.Stage:
        if not self._exists() or self == mpi.REQUEST_NULL:
            raise mpi.Exception(mpi.ERR_REQUEST)
        return self._stage  # type: ignore[return-value]

    def Pready(self, partition: int) -> None:
        """Mark a given partition as ready."""
        self._active().ready(partition, partition)

    def Pready_range(self, partition_low: int, partition_high: int) -> None:
        """Mark a range of partitions as ready."""
        self._active().ready(partition_low, partition_high)

    def Pready_list(self, partitions: Sequence[int]) -> None:
        """Mark a sequence of partitions as ready."""
        for partition in partitions:
            self._active().ready(partition, partition)

    def Parrived(self, partition: int) -> bool:
        """Test partial completion of a partitioned receive operation."""
        # MPI says so of an inactive and of a null request, too (MPI 5.0, section 4.2.2).
        return self._stage.arrived(partition) if self._exists() else True  # type: ignore[union-attr]


class Request(Together, Made, mpi.Request, metaclass=StandIn):
    """An `mpi4py.MPI.Request` whose class methods tell what became of messages and operations."""

    __slots__ = ()


class Prequest(Together, Made, mpi.Prequest, metaclass=StandIn):
    """An `mpi4py.MPI.Prequest` whose `Startall` starts those of tensors too."""

    __slots__ = ()

    # Called where something else is to be done than to start them (`_native.set_classes`).
    @classmethod
    def Startall(cls, requests: "Sequence[mpi.Prequest]") -> None:
        """Start a collection of persistent requests."""
        for one in requests:
            if isinstance(one, Persistent):
                one._starts()
        super().Startall([one for one in requests if not isinstance(one, Restarted)])
        for one in requests:
            if isinstance(one, Restarted):
                one.Start()
            elif isinstance(one, Persistent):
                one._wrote()


def _make_request(handle: int, pending: _native.Pending) -> Carried:
    request = Carried(mpi.Request.fromhandle(handle))
    request._pending = pending
    return request


_native.set_request(_make_request)
_native.set_classes(
    transfer=Transfer,
    receipt=Receipt,
    persistent=Persistent,
    kept=Kept,
    repeated=Repeated,
    staged=Staged,
    message=Message,
    together=Together,
    prequest=Prequest,
)
_start.guard((Transfer, Receipt, Kept, Persistent, Carried, Repeated, Staged), (Together, Prequest))
trace.watch((Kept, Persistent, Repeated, Staged, Prequest))
# Python code must not run on the engine's thread once the interpreter ends.
atexit.register(_native.stop_engine)
