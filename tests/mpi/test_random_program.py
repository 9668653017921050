"""A random program: thousands of calls in a row, each with a drawn operation, dtype, layout,
framework and communicator. All ranks draw the same program; each computes what it must get."""

from __future__ import annotations

import numpy as np
import pytest

import dlmpi
from dlmpi import MPI
from support.dtypes import TABLE
from support.immediate import Immediate
from support.programs import REDUCIBLE, make_groups, move, other, pick, reduce, ring

pytestmark = pytest.mark.mpi
STEPS = 300


@pytest.fixture
def groups(comm):
    with make_groups(comm) as made:
        yield made


@pytest.mark.parametrize("turn", range(4))
def test_program(comm, groups, rng, turn):
    history = []
    local = np.random.default_rng([comm.rank, turn])  # differs between ranks, as it may
    for _ in range(STEPS):
        act = pick(rng, [move, reduce, ring])
        group = pick(rng, groups)
        dtype = pick(rng, REDUCIBLE if act is reduce else TABLE)
        n = int(rng.integers(0, pick(rng, [2, 20, 3000])))
        try:
            name, check = act(comm, group, dtype, n, rng=rng, local=local)
            check()
            history.append((name, str(dtype), n))
        except Exception as error:
            error.add_note(f"after {history[-5:]}; then {act.__name__} of {n} {dtype}")
            raise


@pytest.mark.parametrize("turn", range(3))
def test_non_blocking_program(comm, groups, rng, turn):
    """Up to a dozen operations at once, on any groups, completed in any order."""
    local = np.random.default_rng([comm.rank, turn])
    under_way = []
    for _ in range(STEPS):
        act = pick(rng, [move, reduce])
        group = pick(rng, groups)
        dtype = pick(rng, REDUCIBLE if act is reduce else TABLE)
        n = int(rng.integers(0, pick(rng, [2, 20, 3000])))
        blocking = rng.integers(4) == 0
        started = group.with_comm(group.comm if blocking else Immediate(group.comm))
        name, check = act(comm, started, dtype, n, rng=rng, local=local)
        if blocking:
            check()
        else:
            under_way.append((started.comm.requests, check, f"I {name} of {n} {dtype}"))
        while len(under_way) > int(local.integers(0, 13)):
            finish(under_way.pop(int(local.integers(len(under_way)))), local)
    for entry in under_way:
        finish(entry, local)


def finish(entry, local):
    requests, check, name = entry
    try:
        if local.integers(2):
            MPI.Request.Waitall(requests)
        else:
            for request in requests:
                while not request.Test():
                    pass
        check()
    except Exception as error:
        error.add_note(name)
        raise


@pytest.mark.parametrize("turn", range(2))
def test_one_rank_disagrees_in_one_field(comm, rng, turn):
    """Every rank raises, and the next call is right again. Fresh communicators are compared."""
    if comm.size == 1:
        pytest.skip("one rank cannot disagree")
    dup = comm.Dup()
    for _ in range(15):
        n, op, root = int(rng.integers(1, 50)), pick(rng, ["SUM", "PROD"]), 0
        name = pick(rng, ["Allreduce", "Reduce", "Scan", "Bcast"])
        dtype = np.dtype(pick(rng, ["f4", "f8", "i4", "i8"]))
        field = pick(rng, ["n", "op", "root", "dtype", "name"])
        if name == "Bcast" and field == "op":
            field = "root"
        if name in ("Allreduce", "Scan") and field == "root":
            field = "n"
        if comm.rank == int(rng.integers(comm.size)):
            n += field == "n"
            op = other(rng, ["SUM", "PROD"], op) if field == "op" else op
            root = 1 if field == "root" else root
            dtype = np.dtype("u2") if field == "dtype" else dtype
            name = "Exscan" if field == "name" else name
        immediate = bool(turn)
        with pytest.raises(dlmpi.MismatchError):
            call(dup, immediate, name, np.ones(n, dtype), op=op, root=root)
        # The odd rank may have drawn once more.
        rng = np.random.default_rng(comm.bcast(int(rng.integers(1 << 30)), root=0))
        out = np.empty(2)
        dup.Allreduce(np.full(2, comm.rank + 1.0), out)
        assert np.all(out == sum(range(1, comm.size + 1)))
    dup.Free()


def call(comm, immediate, name, data, *, op, root):
    out = np.ones_like(data)
    started = Immediate(comm) if immediate else comm
    method = getattr(started, name)
    if name == "Bcast":
        method(data, root=root)
    elif name == "Reduce":
        method(data, out, op=getattr(MPI, op), root=root)
    else:
        method(data, out, op=getattr(MPI, op))
    for request in getattr(started, "requests", ()) if immediate else ():
        request.Wait()
