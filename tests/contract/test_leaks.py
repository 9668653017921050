"""Nothing is left behind: reference counts, deleters and memory blocks are flat after a thousand
calls that work and a thousand that fail."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest
import torch

from dlmpi import MPI
from support import capsules, producers

SELF = MPI.COMM_SELF
TURNS = 800
NO_TENSOR = object()
FROZEN = np.zeros(4)
FROZEN.flags.writeable = False


def good(tensor, out):
    SELF.Sendrecv(tensor, 0, recvbuf=out, source=0)
    SELF.Allreduce([tensor, 2], [out, 2])
    SELF.Allgatherv(tensor, [out, [4], [0]])
    SELF.Bcast(tensor)


def bad(tensor, out):
    for call in (
        lambda: SELF.Allreduce([tensor, 99], out),
        lambda: SELF.Allreduce(tensor, FROZEN),
        lambda: SELF.Allreduce(tensor, NO_TENSOR),
        lambda: SELF.Allreduce(tensor, out, op=MPI.BAND),
        lambda: SELF.Sendrecv(tensor, 0, recvbuf=[out, 1], source=0),
        lambda: SELF.Allgatherv(tensor, [out, [1, 2]]),
        lambda: SELF.Send(tensor, 55),
        lambda: SELF.Send(tensor, no_such=1),
    ):
        with pytest.raises((ValueError, BufferError, TypeError, MPI.Exception)):
            call()


MAKERS = {
    "numpy": lambda: np.ones(4),
    "numpy strided": lambda: np.ones(8)[::2],
    "torch": lambda: torch.ones(4, dtype=torch.float64),
    "torch strided": lambda: torch.ones(8, dtype=torch.float64)[::2],
    "Parameter": lambda: torch.nn.Parameter(torch.ones(4, dtype=torch.float64)),
    "versioned": lambda: producers.Full(np.ones(4)),
    "legacy": lambda: producers.StreamOnly(np.ones(4)),
    "old form": lambda: producers.NoCopy(np.ones(4)),
}


def forget(*tensors):
    """The producers' own notes would look like a leak."""
    for tensor in tensors:
        if isinstance(tensor, producers.Producer):
            assert set(tensor.deleted) <= {1}
            tensor.exports.clear()
            tensor.calls.clear()


@pytest.mark.parametrize("calls", [good, bad])
@pytest.mark.parametrize("maker", MAKERS)
def test_counts_stay_flat(maker, calls):
    tensor, out = MAKERS[maker](), MAKERS[maker]()
    for _ in range(500):  # caches fill, the interpreter's own too
        calls(tensor, out)
    forget(tensor, out)
    gc.collect()
    watched = (tensor, out, type(tensor), SELF)
    held, alive, growth = [sys.getrefcount(thing) for thing in watched], capsules.alive(), []
    turns = TURNS // 4 if calls is good else TURNS // 8
    for _ in range(4):
        blocks = sys.getallocatedblocks()
        for _ in range(turns):
            calls(tensor, out)
            forget(tensor, out)
        gc.collect()
        growth.append(sys.getallocatedblocks() - blocks)
    assert capsules.alive() == alive
    now = [sys.getrefcount(thing) for thing in watched]
    assert now[:2] == held[:2]
    assert all(abs(a - b) < 50 for a, b in zip(now, held, strict=True))
    # A leak adds a block a turn, in every round; what caches take is taken once.
    assert min(growth) < turns // 3, growth


def test_exceptions_do_not_keep_tensors():
    """A caught exception may be kept; the loan is over all the same."""
    tensor = producers.Full(np.ones(4))
    kept = []
    for _ in range(50):
        try:
            SELF.Allreduce([tensor, 99], np.zeros(4))
        except ValueError as error:
            kept.append(error)
    assert len(kept) == 50
    assert tensor.deleted == [1] * len(tensor.deleted)


def test_the_owner_is_not_needed_during_a_call():
    """A temporary is kept alive by the call itself."""
    for _ in range(100):
        out = np.zeros(1000)
        SELF.Sendrecv(np.ones(1000), 0, recvbuf=out, source=0)
        assert out.sum() == 1000
