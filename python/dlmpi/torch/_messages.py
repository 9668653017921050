"""Point-to-point calls, coalescing and the monitored barrier of a group."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dlmpi import MPI
from dlmpi.torch._given import named
from dlmpi.torch._work import DoneWork, JointWork

if TYPE_CHECKING:
    from dlmpi.torch._core import Core

__all__ = ["Messages"]

POLL = 0.01


class Messages:
    """Messages of one group, and what torch asks of a group beside calls."""

    _core: Core

    @named
    def send(self, tensors: Sequence[Any], dst: int, tag: int = 0) -> Any:
        """Send one tensor to a rank of the group."""
        core = self._core
        (tensor,) = tensors
        call = (core.Send, (tensor, self._peer("dst", dst), self._tag(tag)))
        return core.message("send", call, [], dst)

    @named
    def recv(self, tensors: Sequence[Any], src: int, tag: int = 0) -> Any:
        """Receive into one tensor from a rank of the group."""
        core = self._core
        (tensor,) = tensors
        call = (core.Recv, (tensor, self._peer("src", src), self._tag(tag)))
        return core.message("recv", call, tensors, src)

    @named
    def recv_anysource(self, tensors: Sequence[Any], tag: int = 0) -> Any:
        """Receive into one tensor from any rank of the group."""
        core = self._core
        (tensor,) = tensors
        call = (core.Recv, (tensor, MPI.ANY_SOURCE, self._tag(tag)))
        return core.message("recvAnySource", call, tensors, MPI.ANY_SOURCE)

    recvAnysource = recv_anysource  # noqa: N815  (the name that C++ looks up)

    def _peer(self, name: str, rank: int) -> int:
        if not 0 <= rank < self._core.size:
            raise ValueError(f"{name}={rank} is no rank of the group, which has {self._core.size}")
        return rank

    def _tag(self, tag: int) -> int:
        most = self._core.block_tag - 1
        if not 0 <= tag <= most:
            raise ValueError(f"tag={tag}: expected 0 to {most}, the largest of this MPI library")
        return tag

    def _start_coalescing(self, _device: Any = None) -> None:
        """Collect the works of what follows."""
        if self._core.together is not None:
            raise RuntimeError("a coalescing block is open already in this group")
        self._core.together = []

    def _end_coalescing(self, _device: Any = None) -> Any:
        """Return one work for all calls since the block was opened."""
        works, self._core.together = self._core.together, None
        if works is None:
            raise RuntimeError("no coalescing block is open in this group")
        return JointWork(self._core, works) if works else DoneWork([])

    start_coalescing = _start_coalescing
    end_coalescing = _end_coalescing

    def monitored_barrier(
        self, opts: Any = None, wait_all_ranks: bool = False, timeout: Any = None
    ) -> None:
        """Wait for all ranks, through the store: rank 0 says which ones did not come in time."""
        core = self._core
        if timeout is None and opts is not None:
            timeout = opts.timeout if hasattr(opts, "timeout") else opts
        limit = core.timeout if timeout is None else timeout.total_seconds()
        limit = core.timeout if limit < 0 else limit
        core.monitored += 1
        here = f"dlmpi/monitored/{core.monitored}"
        if core.rank:
            core.store.set(f"{here}/{core.rank}", "here")
            if not _appears(core.store, f"{here}/all", time.monotonic() + limit):
                raise RuntimeError(
                    f"Rank {core.rank} successfully reached monitoredBarrier, but received errors "
                    "while waiting for send/recv from rank 0. Please check rank 0 logs for faulty "
                    f"rank. (waited {_milliseconds(limit)} ms)"
                )
            return
        if limit == 0:
            raise RuntimeError(f"Rank {core.rank} timed out in monitoredBarrier after 0 ms")
        deadline, absent = time.monotonic() + limit, []
        for rank in range(1, core.size):
            if not _appears(core.store, f"{here}/{rank}", deadline):
                absent.append(rank)
                if not wait_all_ranks:
                    break
        if absent:
            ranks = ", ".join(map(str, absent))
            word = "Ranks" if wait_all_ranks else "Rank"
            raise RuntimeError(
                f"[Rank 0]: {word} {ranks} failed to pass monitoredBarrier in "
                f"{_milliseconds(limit)} ms"
            )
        core.store.set(f"{here}/all", "here")

    monitoredBarrier = monitored_barrier  # noqa: N815  (the name that C++ looks up)

    def set_timeout(self, timeout: timedelta) -> None:
        """Change the time after which calls of this group fail."""
        self._core.timeout = timeout.total_seconds()

    setTimeout = _set_default_timeout = set_timeout  # noqa: N815  (the names that C++ looks up)

    def _get_sequence_number_for_group(self) -> int:
        return self._core.sequence

    getSequenceNumberForGroup = _get_sequence_number_for_group  # noqa: N815

    def _set_sequence_number_for_group(self, *_number: int) -> None:
        """Nothing: the count begins at the same call on all ranks."""

    def shutdown(self) -> None:
        """Give the communicator back; no call may be under way."""
        self._core.close(free=True)

    def abort(self) -> None:
        """Take no more calls; what is under way is left where it is."""
        self._core.close(free=False)


def _appears(store: Any, key: str, deadline: float) -> bool:
    while not store.check([key]):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    with suppress(Exception):
        store.get(key)
    return True


def _milliseconds(value: float) -> int:
    return round(value * 1000)
