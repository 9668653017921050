"""Class methods that complete several requests at once, and say what became of each.

They always ask MPI for statuses: without, Open MPI 5.0.11 keeps the errors of `Waitall` to itself.
Knows no operation; a request's own words come from its `_track` or `_pending` (`requests.py`).
"""

from collections.abc import Sequence
from typing import Any, Literal

from dlmpi._bound import mpi

__all__ = ["Together"]

Requests = Sequence[mpi.Request]
Statuses = list[mpi.Status]


def _judge(done: Requests, statuses: Sequence[mpi.Status]) -> None:
    """Raise what was not right about messages whose requests have completed."""
    for request, status in zip(done, statuses, strict=False):
        if (track := getattr(request, "_track", None)) is not None:
            track.judge(status)


def _active(requests: Requests) -> list[mpi.Request]:
    return [request for request in requests if request != mpi.REQUEST_NULL]


def _ended(active: Requests) -> Requests:
    """Return the one of these that has ended with an error, where that is known."""
    done = [request for request in active if request == mpi.REQUEST_NULL]
    return done if len(done) == 1 else active[:1] if len(active) == 1 else []


def _explain(error: mpi.Exception, begun: Requests, statuses: Sequence[mpi.Status]) -> None:
    """Note on the error what is known of each request that failed."""
    pairs = list(zip(begun, statuses, strict=False))
    alone = error.Get_error_class() != mpi.ERR_IN_STATUS
    for request, status in pairs:
        track = getattr(request, "_track", None)
        if track is not None:
            failed = error if alone else mpi.Exception(status.Get_error())
            track.explain(failed, status)
            if not alone:
                for note in getattr(failed, "__notes__", ()):
                    error.add_note(note)
    for request in begun:
        pending = getattr(request, "_pending", None)
        if pending is not None and (why := pending.error()) is not None:
            error.add_note(f"{type(why).__name__}: {why}")


class Together:
    """The class methods of a stand-in for a class of requests.

    `Waitall` is left to this one where something is left to do with any of the requests
    (`_native.set_classes`); `_failed` raises MPI's error where nothing is.
    """

    __slots__ = ()

    @classmethod
    def _all(cls, name: str, requests: Requests, statuses: Statuses | None) -> Any:
        begun, told = list(requests), [] if statuses is None else statuses
        try:
            result = getattr(super(), name)(requests, told)
        except mpi.Exception as error:
            _explain(error, begun, told)
            raise
        if result is not False and not (isinstance(result, tuple) and not result[0]):
            _judge(begun, told)
        return result

    @classmethod
    def _some(cls, name: str, requests: Requests, statuses: Statuses | None) -> Any:
        begun, told = list(requests), [] if statuses is None else statuses
        active = _active(begun)
        try:
            result = getattr(super(), name)(requests, told)
        except mpi.Exception as error:
            _explain(error, _ended(active), told)
            raise
        found = result[0] if isinstance(result, tuple) else result
        _judge([begun[at] for at in found or ()], told)
        return result

    @classmethod
    def _any(cls, name: str, requests: Requests, status: mpi.Status | None) -> Any:
        begun, told = list(requests), mpi.Status() if status is None else status
        active = _active(begun)
        try:
            result = getattr(super(), name)(requests, told)
        except mpi.Exception as error:
            _explain(error, _ended(active), [told])
            raise
        at = result[0] if isinstance(result, tuple) else result
        if at != mpi.UNDEFINED and at >= 0:
            _judge([begun[at]], [told])
        return result

    @classmethod
    def Waitall(cls, requests: Requests, statuses: Statuses | None = None) -> Literal[True]:
        """Wait for all requests to complete."""
        return cls._all("Waitall", requests, statuses)  # type: ignore[no-any-return]

    @classmethod
    def _failed(cls, error: Exception, begun: Requests, told: Statuses) -> None:
        if isinstance(error, mpi.Exception):
            _explain(error, begun, told)
        raise error

    @classmethod
    def Testall(cls, requests: Requests, statuses: Statuses | None = None) -> bool:
        """Test for the completion of all requests."""
        return cls._all("Testall", requests, statuses)  # type: ignore[no-any-return]

    @classmethod
    def waitall(cls, requests: Requests, statuses: Statuses | None = None) -> list[Any]:
        """Wait for all requests to complete."""
        return cls._all("waitall", requests, statuses)  # type: ignore[no-any-return]

    @classmethod
    def testall(
        cls, requests: Requests, statuses: Statuses | None = None
    ) -> tuple[bool, list[Any] | None]:
        """Test for the completion of all requests."""
        return cls._all("testall", requests, statuses)  # type: ignore[no-any-return]

    @classmethod
    def Waitsome(cls, requests: Requests, statuses: Statuses | None = None) -> list[int] | None:
        """Wait for some requests to complete."""
        return cls._some("Waitsome", requests, statuses)  # type: ignore[no-any-return]

    @classmethod
    def Testsome(cls, requests: Requests, statuses: Statuses | None = None) -> list[int] | None:
        """Test for the completion of some requests."""
        return cls._some("Testsome", requests, statuses)  # type: ignore[no-any-return]

    @classmethod
    def waitsome(
        cls, requests: Requests, statuses: Statuses | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Wait for some requests to complete."""
        return cls._some("waitsome", requests, statuses)  # type: ignore[no-any-return]

    @classmethod
    def testsome(
        cls, requests: Requests, statuses: Statuses | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Test for the completion of some requests."""
        return cls._some("testsome", requests, statuses)  # type: ignore[no-any-return]

    @classmethod
    def Waitany(cls, requests: Requests, status: mpi.Status | None = None) -> int:
        """Wait for any request to complete."""
        return cls._any("Waitany", requests, status)  # type: ignore[no-any-return]

    @classmethod
    def Testany(cls, requests: Requests, status: mpi.Status | None = None) -> tuple[int, bool]:
        """Test for the completion of any request."""
        return cls._any("Testany", requests, status)  # type: ignore[no-any-return]

    @classmethod
    def waitany(cls, requests: Requests, status: mpi.Status | None = None) -> tuple[int, Any]:
        """Wait for any request to complete."""
        return cls._any("waitany", requests, status)  # type: ignore[no-any-return]

    @classmethod
    def testany(
        cls, requests: Requests, status: mpi.Status | None = None
    ) -> tuple[int, bool, Any | None]:
        """Test for the completion of any request."""
        return cls._any("testany", requests, status)  # type: ignore[no-any-return]
