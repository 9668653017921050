"""A random program: hundreds of calls in a row, each with a drawn operation, dtype, layout,
framework and communicator. All ranks draw the same program; each computes what it must get."""

from __future__ import annotations

import numpy as np
import pytest

from dlmpi import MPI
from support.arithmetic import UFUNCS, exact, expected, has_meaning
from support.boxes import Box
from support.collectives import MOVES, REDUCTIONS
from support.dtypes import TABLE, random_bits
from support.layouts import TABLE as LAYOUTS
from support.layouts import WRITABLE

pytestmark = pytest.mark.mpi
STEPS = 150


class Group:
    """A communicator and, for every world rank, the world ranks of the group it is in there."""

    def __init__(self, made, world):
        self.comm = made
        self.members = world.allgather(made.allgather(world.rank))


@pytest.fixture
def groups(comm):
    made = [
        comm.Dup(),
        comm.Split(comm.rank % 2, comm.rank),
        comm.Split(0, -comm.rank),
        comm.Create_cart([comm.size], periods=[True], reorder=False),
        comm.Split(comm.rank, 0),
    ]
    yield [Group(one, comm) for one in made] + [Group(comm, comm)]
    for one in made:
        one.Free()


def pick(rng, things):
    return things[int(rng.integers(len(things)))]


def box(rng, dtype, layouts, n):
    framework = pick(rng, dtype.frameworks)
    fitting = [layout for layout in layouts if framework in layout.frameworks]
    return Box(framework, dtype, pick(rng, fitting), n, rng)


def move(world, group, dtype, n, *, rng, local):
    operation, roots = pick(rng, MOVES), int(rng.integers(1 << 16))
    boxes = {}
    for r in range(world.size):
        members = group.members[r]
        blocks = operation.gives(members.index(r), len(members), roots % len(members))
        boxes[r] = box(rng, dtype, LAYOUTS, blocks * n)
        boxes[r].fill(random_bits(dtype, blocks * n, rng))
    members = group.members[world.rank]
    me, size, root = members.index(world.rank), len(members), roots % len(members)
    give, get = operation.gives(me, size, root), operation.gets(me, size, root)
    out = box(local, dtype, WRITABLE, get * n)
    operation.call(
        group.comm,
        boxes[world.rank].tensor if give else None,
        out.tensor if get else None,
        root,
    )
    if get:
        out.expect(operation.want([boxes[r].flat() for r in members], me, size, root, n))
    return operation.name


def reduce(world, group, dtype, n, *, rng, local):
    reduction, roots = pick(rng, REDUCTIONS), int(rng.integers(1 << 16))
    op = pick(rng, [name for name in UFUNCS if has_meaning(name, dtype)])
    boxes = {}
    for r in range(world.size):
        total = reduction.gives(len(group.members[r])) * n
        boxes[r] = box(rng, dtype, LAYOUTS, total).fill(exact(dtype, op, total, rng))
    members = group.members[world.rank]
    me, size, root = members.index(world.rank), len(members), roots % len(members)
    out = box(local, dtype, WRITABLE, n)
    reduction.call(group.comm, boxes[world.rank].tensor, out.tensor, getattr(MPI, op), root)
    over, part = reduction.over(me, size, root), reduction.part(me, n)
    if over:
        out.expect(expected(dtype, op, [boxes[members[i]].flat()[part] for i in over]))
    else:
        out.expect_untouched()
    return f"{reduction.name} {op}"


def ring(world, group, dtype, n, *, rng, local):
    boxes = {r: box(rng, dtype, LAYOUTS, n) for r in range(world.size)}
    for one in boxes.values():
        one.fill(random_bits(dtype, n, rng))
    members = group.members[world.rank]
    me, size = members.index(world.rank), len(members)
    tag, spare = int(rng.integers(1000)), int(rng.integers(9))
    out, status = box(local, dtype, WRITABLE, n + spare), MPI.Status()
    group.comm.Sendrecv(
        boxes[world.rank].tensor, (me + 1) % size, tag, out.tensor, (me - 1) % size, tag, status
    )
    out.expect(boxes[members[(me - 1) % size]].flat())
    assert status.Get_count(MPI.BYTE) == n * dtype.itemsize
    return "Sendrecv"


@pytest.mark.parametrize("turn", range(4))
def test_program(comm, groups, rng, turn):
    history = []
    local = np.random.default_rng([comm.rank, turn])  # differs between ranks, as it may
    reducible = [d for d in TABLE if any(has_meaning(op, d) for op in UFUNCS)]
    for _ in range(STEPS):
        act = pick(rng, [move, reduce, ring])
        group = pick(rng, groups)
        dtype = pick(rng, reducible if act is reduce else TABLE)
        n = int(rng.integers(0, pick(rng, [2, 20, 3000])))
        try:
            history.append((act(comm, group, dtype, n, rng=rng, local=local), str(dtype), n))
        except Exception as error:
            error.add_note(f"after {history[-5:]}; then {act.__name__} of {n} {dtype}")
            raise
