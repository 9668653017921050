"""Sixteen threads at the door at once: right numbers, and every deleter exactly once."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch

from dlmpi import MPI
from support import capsules, producers

THREADS, TURNS = 16, 60
SELF = MPI.COMM_SELF

pytestmark = pytest.mark.skipif(
    MPI.Query_thread() < MPI.THREAD_MULTIPLE, reason="MPI was not started for threads"
)


class Fresh(producers.Full):
    """Types are claimed once: each thread also meets one that nobody has met."""


def makers(thread):
    own = type(f"Fresh{thread}", (Fresh,), {})
    return [
        producers.Full,
        producers.StreamOnly,
        producers.NoCopy,
        producers.LegacyAnswer,
        producers.Frozen,
        own,
    ]


def work(thread, together):
    """Exchange with oneself, under a tag of one's own, and be refused in between."""
    made = []
    together.wait(30)
    for turn in range(TURNS):
        want = np.arange(5.0) + thread * 1000 + turn
        for maker in makers(thread):
            tensor, out = maker(want.copy()), np.full(5, -1.0)
            SELF.Sendrecv(tensor, 0, thread, recvbuf=out, source=0, recvtag=thread)
            assert out.tolist() == want.tolist(), maker
            with pytest.raises(ValueError, match="sendbuf"):
                SELF.Sendrecv([tensor, 99], 0, thread, recvbuf=out, source=0, recvtag=thread)
            made.append(tensor)
        lie = producers.Full(want, shape=(2**62, 2**62), strides=None)
        with pytest.raises(BufferError):
            SELF.Sendrecv(lie, 0, thread, recvbuf=np.zeros(5), source=0, recvtag=thread)
        made.append(lie)
        sent, got = torch.from_numpy(want), torch.zeros(5, dtype=torch.float64)
        SELF.Sendrecv(sent[::2], 0, thread, recvbuf=[got, 3], source=0, recvtag=thread)
        assert got.tolist() == [*want[::2], 0, 0]
    return made


def test_sixteen_threads():
    gc.collect()
    alive, together = capsules.alive(), Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        runs = [pool.submit(work, thread, together) for thread in range(THREADS)]
        made = [tensor for run in runs for tensor in run.result(100)]
    exported = [count for tensor in made for count in tensor.deleted]
    assert len(exported) >= len(made) > THREADS * TURNS
    assert set(exported) == {1}
    assert capsules.alive() == alive


def test_one_tensor_in_sixteen_threads():
    """The same object, lent sixteen times at once."""
    tensor, together = producers.Full(np.arange(1000.0)), Barrier(THREADS)

    def send(thread):
        out = np.full(1000, -1.0)
        together.wait(30)
        for _ in range(TURNS):
            SELF.Sendrecv(tensor, 0, thread, recvbuf=out, source=0, recvtag=thread)
        return out.sum()

    with ThreadPoolExecutor(THREADS) as pool:
        sums = set(pool.map(send, range(THREADS)))
    assert sums == {1000 * 999 / 2}
    assert tensor.deleted == [1] * (THREADS * TURNS)
