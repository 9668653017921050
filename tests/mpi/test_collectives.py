"""The collectives that move: every operation in every framework, dtype and layout, with another
framework, layout and memory order on every rank. Oracle: concatenation in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from support.boxes import Box
from support.collectives import MOVES
from support.dtypes import TABLE, random_bits
from support.layouts import TABLE as LAYOUTS
from support.layouts import WRITABLE
from support.pairs import label, pairwise
from support.ranks import spread

pytestmark = pytest.mark.mpi

CASES = pairwise(
    {
        "move": MOVES,
        "dtype": TABLE,
        "send_in": ("numpy", "torch"),
        "send_as": LAYOUTS,
        "receive_in": ("numpy", "torch"),
        "receive_as": WRITABLE,
        "n": (0, 1, 35, 105, 10_010),
    },
    valid=lambda row: all(
        row[f"{side}_in"] in row["dtype"].frameworks
        and row[f"{side}_in"] in row[f"{side}_as"].frameworks
        for side in ("send", "receive")
    ),
)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_moves(comm, rng, case):
    move, dtype, n = case["move"], case["dtype"], case["n"]
    rank, size, root = comm.rank, comm.size, int(rng.integers(comm.size))
    sent, mine = [], None
    for r in range(size):
        blocks = move.gives(r, size, root)
        framework, layout = spread(dtype, LAYOUTS, case["send_in"], case["send_as"], r)
        box = Box(framework, dtype, layout, blocks * n, rng)
        box.fill(random_bits(dtype, blocks * n, rng))
        sent.append(box.flat())
        if r == rank:
            mine = box
    give, get = move.gives(rank, size, root), move.gets(rank, size, root)
    framework, layout = spread(dtype, WRITABLE, case["receive_in"], case["receive_as"], rank)
    out = Box(framework, dtype, layout, get * n, rng)

    move.call(comm, mine.tensor if give else None, out.tensor if get else None, root)

    mine.expect_untouched()
    if get:
        out.expect(move.want(sent, rank, size, root, n))


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_repeats_agree(comm, rng, move):
    """The same tensors again and again: nothing is left over from the call before."""
    dtype = TABLE[int(rng.integers(len(TABLE)))]
    rank, size, n = comm.rank, comm.size, 33
    local = np.random.default_rng(rank)
    for turn in range(10):
        root = turn % size
        sent = [random_bits(dtype, move.gives(r, size, root) * n, rng) for r in range(size)]
        give, get = move.gives(rank, size, root), move.gets(rank, size, root)
        layout = WRITABLE[turn % 5]
        source = Box("numpy" if dtype.torch is None else "torch", dtype, layout, give * n, local)
        source.fill(sent[rank])
        out = Box("numpy", dtype, layout, get * n, local)
        move.call(comm, source.tensor if give else None, out.tensor if get else None, root)
        if get:
            out.expect(move.want(sent, rank, size, root, n))


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_large_blocks_of_every_dtype(comm, rng, move):
    """Blocks so large that libraries change to trees and to other protocols."""
    rank, size, n = comm.rank, comm.size, 5_003
    local = np.random.default_rng(rank)
    for turn, dtype in enumerate(TABLE):
        root = turn % size
        sent = [random_bits(dtype, move.gives(r, size, root) * n, rng) for r in range(size)]
        give, get = move.gives(rank, size, root), move.gets(rank, size, root)
        source = Box(dtype.frameworks[-1], dtype, WRITABLE[0], give * n, local).fill(sent[rank])
        out = Box(dtype.frameworks[0], dtype, WRITABLE[0], get * n, local)
        move.call(comm, source.tensor if give else None, out.tensor if get else None, root)
        if get:
            out.expect(move.want(sent, rank, size, root, n))
