"""Many mixed operations: no stream, event, pinned buffer or capsule stays behind."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import dlmpi
from support import capsules, gpu_tensors, simulated
from support.gpu_alone import OPERATIONS, SELF
from support.gpu_tensors import CupyArray, CupyManaged, NewTensor, NumbaArray, PinnedTensor

pytestmark = pytest.mark.mpi(min_size=2)
# How many operations, and so mirrors, there are at once: the engine may still be letting go of one
# operation's when the next begins, so that now and then a buffer more is needed.
AT_ONCE = 8
# Operations between two ranks.
BETWEEN = 600
KINDS = (NewTensor, CupyArray, NumbaArray, CupyManaged, PinnedTensor)


def alive() -> dict[str, int]:
    """By the driver's log, and of dlmpi's alone: the tensors' own memory may be pinned as well."""
    found = {what: simulated.alive(what) for what in ("streams", "events", "pinned", "memory")}
    found["pinned"] -= gpu_tensors.POOL.count("pinned")
    return found


@pytest.mark.skipif(simulated.SCHEDULE == "threads", reason="takes a minute there")
def test_ten_thousand_mixed_operations(rng: Any) -> None:
    """On one rank, good ones and such as fail: an argument, a call of the driver's, a capture."""
    library = gpu_tensors.library("own")
    pairs = [
        tuple(kind(library, n, np.float32, 0, step=step) for _ in range(2))
        for kind in KINDS
        for n, step in ((1, 1), (33, 2), (257, 1))
    ]
    host, handle = np.empty(257, np.float32), library.stream(0)
    lent = (CupyManaged, PinnedTensor)
    mixed = [
        (operation.run, pair)
        for operation in OPERATIONS.values()
        for pair in pairs
        if not operation.lent or (isinstance(pair[0], lent) and pair[0].step == 1)
    ]

    def fail(number: int) -> None:
        sent, room = pairs[number % len(pairs)]
        with pytest.raises(ValueError, match="elements"):
            SELF.Send([sent, 10**6, None], 0)
        simulated.fail("cuStreamSynchronize", number % 3)
        # What is waited for once does not fail at the third wait.
        with contextlib.suppress(RuntimeError):
            SELF.Allreduce(sent, room)
        simulated.mend()
        simulated.capture(handle, 0, True)
        with contextlib.suppress(BufferError):
            SELF.Irecv(sent, dlmpi.MPI.PROC_NULL)
            SELF.Allreduce(sent, host[: sent.numel])
        simulated.capture(handle, 0, False)

    def some(number: int) -> None:
        run, pair = mixed[number % len(mixed)]
        run(*pair)
        if number % 50 == 0:
            fail(number // 50)

    warm = len(mixed) + 500
    for number in range(warm):
        some(number)
    capsules.wait_until_alive(0)
    before = alive()
    for number in range(warm, warm + 10_000):
        some(number)
    capsules.wait_until_alive(0)
    now = alive()
    assert now["pinned"] <= before["pinned"] + AT_ONCE
    assert now | {"pinned": 0} == before | {"pinned": 0}
    gpu_tensors.reset_when_idle()


def test_nothing_stays_behind(comm: Any, rng: Any) -> None:
    sizes = (1, 33, 5_001, 40_003)
    library = gpu_tensors.library("own")
    tensors = [
        (kind(library, n, np.float32, 0), kind(library, n, np.float32, 0, step=1 + n % 2))
        for n in sizes
        for kind in KINDS
    ]
    other = 1 - comm.rank
    number = 0

    def one(sent: Any, room: Any) -> None:
        """Eight operations."""
        comm.Allreduce(sent, room)
        comm.Bcast(sent)
        comm.Sendrecv(sent, other, 0, room, other, 0)
        comm.Reduce(sent, room)
        requests = [comm.Irecv(room, other), comm.Isend(sent, other), comm.Iallreduce(sent, room)]
        for request in requests:
            request.Wait()
        with pytest.raises(ValueError, match="elements"):
            comm.Send([sent, 10**6, None], other)

    # Large enough for copies that overlap with messages.
    large = [NewTensor(library, 1_200_001, np.float32, 0) for _ in range(2)]

    def all_kinds() -> None:
        for sent, room in tensors:
            one(sent, room)
        comm.Allreduce(*large)

    all_kinds()
    streams, pinned = simulated.alive("streams"), simulated.alive("pinned")
    events = simulated.alive("events")
    while number < BETWEEN:
        all_kinds()
        number += 8 * len(tensors) + 1
    capsules.wait_until_alive(0)
    assert simulated.alive("events") == events
    # Where results go to the device directly, the engine's thread may make its own as late as here.
    assert streams <= simulated.alive("streams") <= streams + simulated.AWARE
    assert simulated.alive("pinned") <= pinned + AT_ONCE
    gpu_tensors.reset_when_idle()
