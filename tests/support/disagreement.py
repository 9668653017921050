"""A random program in which one rank disagrees now and then: every rank of that communicator must
raise, and what follows must be right. Run it under DLMPI_CHECK=always on two ranks and more.

Knows the steps of `programs.py` and the ways to disagree in them, not how dlmpi compares."""

from __future__ import annotations

import copy
import re
import time

import numpy as np
import pytest

import dlmpi
from dlmpi import MPI
from support.arithmetic import UFUNCS, has_meaning
from support.collectives import MOVES, REDUCTIONS
from support.dtypes import TABLE
from support.immediate import Immediate
from support.programs import REDUCIBLE, make_groups, move, pick, reduce

comm = MPI.COMM_WORLD
seed = int(comm.bcast(np.random.default_rng().integers(1 << 30), root=0))
rng = np.random.default_rng(seed)
local = np.random.default_rng([seed, comm.rank])
CHANGES = ["n", "dtype", "operation", "root", "op", "refuse", "nothing"]
counts = {"raised": 0, "right": 0}


def possible(act, dtype, change, draws):
    """The change, or "n" where the operation that comes next cannot disagree in it."""
    drawn = pick(draws, MOVES if act is move else REDUCTIONS)
    if change == "root" and drawn.name not in ("Bcast", "Gather", "Scatter", "Reduce"):
        return "n"
    if change == "op" and (act is move or sum(has_meaning(op, dtype) for op in UFUNCS) < 2):
        return "n"
    return change


def disagree(act, started, change, draws, size):
    """The odd rank's call."""
    dtype, n = size
    if change == "refuse":
        started.comm.Allreduce("no tensor", "at all")
        return
    if change == "dtype":
        # Of another size: a movement compares bytes, not what they mean.
        table = REDUCIBLE if act is reduce else TABLE
        dtype = pick(local, [one for one in table if one.itemsize != dtype.itemsize])
    told = change if change in ("operation", "root", "op") else ""
    act(comm, started, dtype, n + (change == "n"), rng=draws, local=local, change=told)


def call(act, started, change, draws, size):
    """Make the call, by the rank that disagrees where a change is given; wait for its end."""
    if change:
        disagree(act, started, change, draws, size)
    else:
        act(comm, started, *size, rng=draws, local=local)
    for request in getattr(started.comm, "requests", ()):
        request.Wait()


def agree(act, started, draws, size):
    _, check = act(comm, started, *size, rng=draws, local=local)
    MPI.Request.Waitall(getattr(started.comm, "requests", []))
    check()
    counts["right"] += 1


def step(act, started, change, draws, victim):
    members = started.members[comm.rank]
    size = pick(draws, REDUCIBLE if act is reduce else TABLE), int(draws.integers(1, 50))
    if change == "nothing" or len(members) == 1:
        return agree(act, started, draws, size)
    change = possible(act, size[0], change, copy.deepcopy(draws))
    odd = members[victim % len(members)] == comm.rank
    kind = TypeError if odd and change == "refuse" else dlmpi.MismatchError
    begin = time.monotonic()
    with pytest.raises(kind) as caught:
        call(act, started, change if odd else "", draws, size)
    if kind is dlmpi.MismatchError:
        named = re.findall(r"ranks? ([\d, -]+(?:and \d+)?)", str(caught.value))
        assert sorted(map(int, re.findall(r"\d+", " ".join(named)))) == list(range(len(members)))
    assert time.monotonic() - begin < 10
    counts["raised"] += 1


with make_groups(comm) as groups:
    for number in range(400 if comm.size == 2 else 150):
        act, group = pick(rng, [move, reduce]), pick(rng, groups)
        change, immediate = pick(rng, CHANGES), bool(rng.integers(2))
        draws = np.random.default_rng(int(rng.integers(1 << 30)))
        victim = int(rng.integers(1 << 16))
        try:
            started = group.with_comm(Immediate(group.comm)) if immediate else group
            step(act, started, change, draws, victim)
        except BaseException as error:
            error.add_note(f"seed {seed} step {number}: {act.__name__} {change} {immediate}")
            raise
print(f"rank {comm.rank}: {counts}", flush=True)
assert min(counts.values()) > 10
