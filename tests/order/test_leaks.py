"""Many mixed operations: no stream, event, pinned buffer or capsule stays behind."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from support import capsules, gpu_tensors, simulated
from support.gpu_tensors import CupyArray, CupyManaged, NewTensor, NumbaArray

pytestmark = pytest.mark.mpi(min_size=2)
OPERATIONS = int(os.environ.get("DLMPI_TEST_OPERATIONS", "600"))
# How many operations, and so mirrors, there are at once: the engine may still be letting go of one
# operation's when the next begins, so that now and then a buffer more is needed.
AT_ONCE = 8


def test_nothing_stays_behind(comm: Any, rng: Any) -> None:
    sizes = (1, 33, 5_001, 40_003)
    kinds = (NewTensor, CupyArray, NumbaArray, CupyManaged)
    library = gpu_tensors.library("own")
    tensors = [
        (kind(library, n, np.float32, 0), kind(library, n, np.float32, 0, step=1 + n % 2))
        for n in sizes
        for kind in kinds
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
    while number < OPERATIONS:
        all_kinds()
        number += 8 * len(tensors) + 1
    capsules.wait_until_alive(0)
    assert simulated.alive("events") == events
    # Where results go to the device directly, the engine's thread may make its own as late as here.
    assert streams <= simulated.alive("streams") <= streams + simulated.AWARE
    assert simulated.alive("pinned") <= pinned + AT_ONCE
    gpu_tensors.reset_when_idle()
