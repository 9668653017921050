"""What torch waits for: an operation as a `Work`, and its `Future`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work

from dlmpi.torch._failed import PERIOD, FailedRankError, heard
from dlmpi.torch._late import call_at

if TYPE_CHECKING:
    from dlmpi._native import Pending
    from dlmpi.torch._core import Core
    from dlmpi.torch._profile import Record

__all__ = ["DoneMessage", "DoneWork", "JointWork", "PendingWork", "may_be_none"]

#: Whether torch takes None for the work of a call that it waits for at once (2.14 and newer).
may_be_none = hasattr(torch._C._distributed_c10d.Backend, "supports_window")
NO_TIMEOUT = timedelta(0)


def _future(outputs: Sequence[Any]) -> Any:
    devices = sorted({t.device for t in outputs if t.device.type != "cpu"}, key=str)
    return torch.futures.Future(devices=devices) if devices else torch.futures.Future()


class DoneWork(Work):  # type: ignore[misc]
    """An operation that has ended well."""

    def __init__(self, outputs: Sequence[Any]) -> None:
        super().__init__()
        self._outputs = list(outputs)

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Return at once."""
        return True

    def is_completed(self) -> bool:
        """Return True."""
        return True

    def is_success(self) -> bool:
        """Return True."""
        return True

    def exception(self) -> None:
        """Return None."""

    def synchronize(self) -> None:
        """Do nothing."""

    def result(self) -> list[Any]:
        """Return the tensors that were written."""
        return self._outputs

    def get_future(self) -> Any:
        """Return a future that holds the tensors that were written."""
        future = _future(self._outputs)
        future.set_result(self._outputs)
        return future


class DoneMessage(DoneWork):
    """A message that had come, or was gone, before anybody waited."""

    def __init__(self, what: str, pending: Pending, outputs: Sequence[Any]) -> None:
        super().__init__(outputs)
        self._what = what
        self._pending = pending

    def source_rank(self) -> int:
        """Return the rank whose message a receive took."""
        return _source(self._what, [self._pending])

    _source_rank = source_rank


def _source(what: str, pendings: Sequence[Pending]) -> int:
    source = pendings[0].source() if pendings else None
    if source is None:
        raise RuntimeError(f"{what}: only a receive has a source")
    return source


class PendingWork(Work):  # type: ignore[misc]
    """An operation under way."""

    def __init__(
        self,
        core: Core,
        what: str,
        pendings: Sequence[Pending],
        outputs: Sequence[Any],
        *,
        after: Callable[[], None] | None = None,
        peer: int | None = None,
        record: Record | None = None,
    ) -> None:
        super().__init__()
        self._core = core
        self._what = what
        self._number = core.sequence
        self._pendings = pendings
        self._outputs = list(outputs)
        self._after = after
        self._peer = peer
        self._begin = time.monotonic()
        self._error: Exception | None = None
        self._settled = False
        self._lock = threading.Lock()
        self._future: Any = None
        self._fulfilled = False
        self.record = record
        #: Seconds that it may take.
        self.limit = core.timeout

    def _settle(self) -> None:
        """Put results in their places, once; all calls have ended."""
        with self._lock:
            if self._settled:
                return
            try:
                self._core.raise_error(self._pendings)
                if self._after is not None:
                    self._after()
            except Exception as error:
                self._error = error
            self._settled = True

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Wait for the end; raise what the operation failed with, or that it is late."""
        if not self._settled:
            self._wait(timeout.total_seconds() if timeout > NO_TIMEOUT else self.limit)
        if self._error is not None:
            raise self._error
        return True

    def _wait(self, limit: float) -> None:
        deadline = time.monotonic() + limit
        for pending in self._pendings:
            try:
                ended = self._core.wait_for(self._what, pending, self._pendings, deadline)
            except Exception as error:
                self._error = error
                return
            if not ended:
                self._error = self._late(limit)
                return
        if self.record is not None:
            self.record.wait()
        self._settle()

    def _late(self, limit: float) -> Exception:
        return self._core.late(self._what, self._number, self._pendings, limit, self._peer)

    def is_completed(self) -> bool:
        """Whether the operation has ended, well or not."""
        if not self._settled:
            for pending in self._pendings:
                pending.wait(0)
            if self._is_over():
                self._settle()
        return self._settled

    def _is_over(self) -> bool:
        """Whether all have ended, or one has failed: others may then never end."""
        pendings = self._pendings
        return all(pending.done() for pending in pendings) or any(
            pending.error() is not None for pending in pendings
        )

    def is_success(self) -> bool:
        """Whether the operation has ended well."""
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        """Return what the operation failed with."""
        return self._error

    def synchronize(self) -> None:
        """Wait for the end."""
        self.wait()

    def result(self) -> list[Any]:
        """Wait for the end and return the tensors that were written."""
        self.wait()
        return self._outputs

    def source_rank(self) -> int:
        """Return the rank whose message a receive took."""
        self.wait()
        return _source(self._what, self._pendings)

    _source_rank = source_rank

    def get_future(self) -> Any:
        """Return a future that is completed with the tensors that were written."""
        with self._lock:
            first = self._future is None
            if first:
                self._future = _future(self._outputs)
        if first:
            if self._pendings and not self._settled:
                # Nobody may ever call `wait`, so the clock runs here.
                self._look_again()
                for pending in self._pendings:
                    pending.then(self._one_ended)
            else:
                self._complete()
        return self._future

    def _one_ended(self) -> None:
        if self._is_over():
            self._complete()

    def _complete(self) -> None:
        try:
            self.wait()
        except Exception as error:
            self._fulfil(error)
        else:
            self._fulfil(None)

    def _look_again(self) -> None:
        call_at(min(self._begin + self.limit, time.monotonic() + PERIOD), self._look)

    def _look(self) -> None:
        """Fail the future if it is late or another rank has failed."""
        if all(pending.done() for pending in self._pendings):
            return
        if time.monotonic() < self._begin + self.limit:
            try:
                self._core.raise_failed(self._what, self._pendings, heard())
            except FailedRankError as error:
                self._error = error
            else:
                self._look_again()
                return
        else:
            self._error = self._late(self.limit)
        self._fulfil(self._error)

    def _fulfil(self, error: Exception | None) -> None:
        with self._lock:
            if self._fulfilled:
                return
            self._fulfilled = True
        if error is None:
            self._future.set_result(self._outputs)
        else:
            self._future.set_exception(error)


class JointWork(PendingWork):
    """Several operations as one."""

    def __init__(self, core: Core, works: Sequence[PendingWork]) -> None:
        pendings = [pending for work in works for pending in work._pendings]
        outputs = [tensor for work in works for tensor in work._outputs]

        def after() -> None:
            for work in works:
                work.wait()

        super().__init__(core, "a coalesced call", pendings, outputs, after=after)
        self.limit = max(work.limit for work in works)
