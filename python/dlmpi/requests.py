"""Requests of operations on tensors.

Each is an `mpi4py.MPI.Request`, so every way to complete it works, stock class methods such as
`MPI.Request.Waitall` included, mixed with other requests. A tensor is held until its operation has
ended, whatever becomes of the request object.
"""

import atexit
from typing import Any, Literal

from dlmpi import _native
from dlmpi._bound import mpi

__all__ = ["Persistent", "Request", "Transfer"]


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


class Persistent(mpi.Prequest):
    """An operation that can be started again and again, on the same tensors.

    They are held until the request is freed. Where a framework counts what is written, it hears of
    it when the operation starts, and from the methods of this object that see it complete.
    """

    __slots__ = ("_track",)

    _track: _native.Track

    def _wrote(self) -> None:
        track = getattr(self, "_track", None)
        if track is not None:
            track.wrote()

    def Start(self) -> None:
        """Initiate a communication with a persistent request."""
        super().Start()
        self._wrote()

    def Free(self) -> None:
        """Free the request; an operation under way goes on, with its tensors held."""
        track = getattr(self, "_track", None)
        if self.Get_status() or track is None or not track.free():
            super().Free()

    def Wait(self, status: mpi.Status | None = None) -> Literal[True]:
        """Wait for the operation to complete."""
        super().Wait(status)
        self._wrote()
        return True

    def Test(self, status: mpi.Status | None = None) -> bool:
        """Test for the completion of the operation."""
        complete = super().Test(status)
        if complete:
            self._wrote()
        return complete


class Request(mpi.Request):
    """An operation that dlmpi carries to its end.

    To MPI it is a generalized request. An operation that failed raises its own exception from the
    methods of this object, and an `MPI.Exception` from the class methods.
    """

    __slots__ = ("_pending",)

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


def _make_request(handle: int, pending: _native.Pending) -> Request:
    request = Request(mpi.Request.fromhandle(handle))
    request._pending = pending
    return request


_native.set_request(_make_request)
_native.set_classes(transfer=Transfer, persistent=Persistent)
# Python code must not run on the engine's thread once the interpreter ends.
atexit.register(_native.stop_engine)
