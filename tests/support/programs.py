"""Steps of a random program: each draws an operation, makes it, and returns its name and the check
of its result. All ranks draw the same from `rng`; `local` may differ between ranks.

Knows the tables of operations, not which form (blocking or not) the communicator makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from support.arithmetic import UFUNCS, exact, expected, has_meaning
from support.boxes import Box
from support.collectives import MOVES, REDUCTIONS
from support.dtypes import TABLE, random_bits
from support.layouts import TABLE as LAYOUTS
from support.layouts import WRITABLE

#: dtypes that at least one operation reduces.
REDUCIBLE = [d for d in TABLE if any(has_meaning(op, d) for op in UFUNCS)]


class Group:
    """A communicator and, for every world rank, the world ranks of the group it is in there."""

    def __init__(self, made, world):
        self.comm = made
        self.members = world.allgather(made.allgather(world.rank))

    def with_comm(self, comm):
        """The same group, called through another object."""
        twin = object.__new__(Group)
        twin.comm, twin.members = comm, self.members
        return twin


@contextmanager
def make_groups(world: Any) -> Iterator[list[Group]]:
    """The world, duplicates and parts of it in other orders, freed at the end."""
    made = [
        world.Dup(),
        world.Split(world.rank % 2, world.rank),
        world.Split(0, -world.rank),
        world.Create_cart([world.size], periods=[True], reorder=False),
        world.Split(world.rank, 0),
    ]
    yield [Group(one, world) for one in made] + [Group(world, world)]
    for one in made:
        one.Free()


def _mpi() -> Any:
    from dlmpi import MPI

    return MPI


def pick(rng: np.random.Generator, things: Sequence[Any]) -> Any:
    return things[int(rng.integers(len(things)))]


def box(rng, dtype, layouts, n):
    framework = pick(rng, dtype.frameworks)
    fitting = [layout for layout in layouts if framework in layout.frameworks]
    return Box(framework, dtype, pick(rng, fitting), n, rng)


def other(rng: np.random.Generator, things: Sequence[Any], but: Any) -> Any:
    return pick(rng, [thing for thing in things if thing != but])


def move(world, group, dtype, n, *, rng, local, change=""):
    """Make a drawn movement; return its name and what to check when it has completed. A rank that
    gives a `change` ("operation", "root") makes a call that disagrees in it with the others."""
    operation, roots = pick(rng, MOVES), int(rng.integers(1 << 16))
    roots += change == "root"
    if change == "operation":
        operation = other(local, MOVES, operation)
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
    if not get:
        return operation.name, out.expect_untouched
    want = operation.want([boxes[r].flat() for r in members], me, size, root, n)
    return operation.name, lambda: out.expect(want)


def reduce(world, group, dtype, n, *, rng, local, change=""):
    """As :func:`move` for a reduction, which can disagree in "op" besides."""
    reduction, roots = pick(rng, REDUCTIONS), int(rng.integers(1 << 16))
    ops = [name for name in UFUNCS if has_meaning(name, dtype)]
    op = pick(rng, ops)
    roots += change == "root"
    if change == "operation":
        reduction = other(local, REDUCTIONS, reduction)
    if change == "op":
        op = other(local, ops, op)
    boxes = {}
    for r in range(world.size):
        total = reduction.gives(len(group.members[r])) * n
        boxes[r] = box(rng, dtype, LAYOUTS, total).fill(exact(dtype, op, total, rng))
    members = group.members[world.rank]
    me, size, root = members.index(world.rank), len(members), roots % len(members)
    out = box(local, dtype, WRITABLE, n)
    reduction.call(group.comm, boxes[world.rank].tensor, out.tensor, getattr(_mpi(), op), root)
    over, part = reduction.over(me, size, root), reduction.part(me, n)
    name = f"{reduction.name} {op}"
    if not over:
        return name, out.expect_untouched
    want = expected(dtype, op, [boxes[members[i]].flat()[part] for i in over])
    return name, lambda: out.expect(want)


def ring(world, group, dtype, n, *, rng, local):
    boxes = {r: box(rng, dtype, LAYOUTS, n) for r in range(world.size)}
    for one in boxes.values():
        one.fill(random_bits(dtype, n, rng))
    members = group.members[world.rank]
    me, size = members.index(world.rank), len(members)
    tag, spare = int(rng.integers(1000)), int(rng.integers(9))
    out, status = box(local, dtype, WRITABLE, n + spare), _mpi().Status()
    group.comm.Sendrecv(
        boxes[world.rank].tensor, (me + 1) % size, tag, out.tensor, (me - 1) % size, tag, status
    )
    assert status.Get_count(_mpi().BYTE) == n * dtype.itemsize
    return "Sendrecv", lambda: out.expect(boxes[members[(me - 1) % size]].flat())
