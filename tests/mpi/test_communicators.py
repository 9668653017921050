"""Communicators made from ours are ours: strided and 16-bit tensors work on each of them. They are
also still mpi4py's: comparison, pickling, attributes and life cycle are as they were."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from mpi4py import MPI as PLAIN

import dlmpi
from dlmpi import MPI

pytestmark = pytest.mark.mpi


def cart(comm):
    return comm.Create_cart([comm.size], periods=[True])


def ring(comm):
    near = [(comm.rank + d) % comm.size for d in (-1, 1)]
    return comm.Create_dist_graph_adjacent(near, near)


def graph(comm):
    size = comm.size
    return comm.Create_graph(list(range(1, size + 1)), [(r + 1) % size for r in range(size)])


def idup(comm):
    other, request = comm.Idup()
    request.Wait()
    return other


MAKERS = {
    "Dup": lambda comm: comm.Dup(),
    "Clone": lambda comm: comm.Clone(),
    "Idup": idup,
    "Split": lambda comm: comm.Split(0, -comm.rank),
    "Split in two": lambda comm: comm.Split(comm.rank % 2, 0),
    "Split_type": lambda comm: comm.Split_type(MPI.COMM_TYPE_SHARED),
    "Create": lambda comm: comm.Create(comm.Get_group()),
    "Create_group": lambda comm: comm.Create_group(comm.Get_group()),
    "Create_cart": cart,
    "Cartcomm.Sub": lambda comm: cart(comm).Sub([True]),
    "Create_graph": graph,
    "Create_dist_graph_adjacent": ring,
    "Create_dist_graph": lambda comm: comm.Create_dist_graph(
        [comm.rank], [1], [(comm.rank + 1) % comm.size]
    ),
    "Dup of Split": lambda comm: comm.Split(0, comm.rank).Dup(),
    "wrap": lambda comm: dlmpi.wrap(PLAIN.COMM_WORLD),
    "wrap of Dup": lambda comm: dlmpi.wrap(PLAIN.COMM_WORLD.Dup()),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_made_from_ours_is_ours(comm, maker):
    made = MAKERS[maker](comm)
    tensor = torch.full((4, 6), 0.5, dtype=torch.bfloat16).t()[::2]
    made.Allreduce(MPI.IN_PLACE, tensor)
    assert (tensor == made.size / 2).all()
    out = torch.zeros(3 * made.size, dtype=torch.int32)
    made.Allgather(np.full(6, made.rank, np.int32)[::2], out)
    assert out.tolist() == [r for r in range(made.size) for _ in range(3)]
    real = PLAIN.Intracomm
    if maker.startswith("Create_cart") or maker.startswith("Cart"):
        real = PLAIN.Cartcomm
    assert isinstance(made, real)
    assert made.rank == made.Get_rank()
    if maker != "wrap":
        made.Free()
        assert made == MPI.COMM_NULL


def test_split_to_nothing_gives_null(comm):
    colour = MPI.UNDEFINED if comm.rank else 0
    made = comm.Split(colour, 0)
    assert (made == MPI.COMM_NULL) == bool(comm.rank)
    if made != MPI.COMM_NULL:
        made.Free()


def test_wrap_shares_the_handle_and_never_frees_it(comm):
    plain = PLAIN.COMM_WORLD.Dup()
    try:
        ours = dlmpi.wrap(plain)
        assert ours == plain
        assert ours.handle == plain.handle
        assert dlmpi.wrap(ours) == ours
        del ours
        assert plain.allreduce(1) == comm.size
    finally:
        plain.Free()


def test_wrap_keeps_the_kind_of_communicator(comm):
    plain = PLAIN.COMM_WORLD.Create_cart([comm.size])
    try:
        ours = dlmpi.wrap(plain)
        assert isinstance(ours, PLAIN.Cartcomm)
        assert ours.Get_coords(comm.rank) == [comm.rank]
    finally:
        plain.Free()


@pytest.mark.parametrize("thing", [None, 3, "COMM_WORLD", MPI.SUM], ids=type)
def test_wrap_of_something_else_is_a_type_error(thing):
    with pytest.raises(TypeError):
        dlmpi.wrap(thing)


def test_the_predefined_survive_free_and_pickling(comm):
    for name in ("COMM_WORLD", "COMM_SELF"):
        mine = getattr(MPI, name)
        again = pickle.loads(pickle.dumps(mine))
        assert again == mine
        mine_type = type(mine)
        assert isinstance(again, mine_type)
    assert comm == PLAIN.COMM_WORLD
    assert MPI.COMM_SELF.size == 1


def test_collectives_on_a_freed_communicator_are_errors(comm):
    made = comm.Dup()
    made.Free()
    with pytest.raises(MPI.Exception) as raised:
        made.Allreduce(MPI.IN_PLACE, np.zeros(3))
    assert raised.value.Get_error_class() == MPI.ERR_COMM


def test_attributes_and_names_are_kept(comm):
    deleted = []
    keyval = MPI.Comm.Create_keyval(delete_fn=lambda c, k, value: deleted.append(value))
    made = comm.Dup()
    made.Set_name("mine")
    made.Set_attr(keyval, "value")
    made.Allreduce(MPI.IN_PLACE, torch.ones(2, dtype=torch.bfloat16))
    assert made.Get_name() == "mine"
    assert made.Get_attr(keyval) == "value"
    made.Free()
    assert deleted == ["value"]
    MPI.Comm.Free_keyval(keyval)


def test_communicators_come_and_go():
    """More communicators than an MPI has contexts for, each used and freed: none leaks. Each rank
    does it alone."""
    tensor = torch.ones(3, dtype=torch.bfloat16)
    for _ in range(2200):
        made = MPI.COMM_SELF.Dup()
        out = torch.zeros(3, dtype=torch.bfloat16)
        made.Allreduce(tensor, out)
        made.Free()
    assert out.tolist() == [1] * 3


def test_a_reused_handle_is_not_taken_for_the_old_one(comm):
    """A freed handle's number comes back at once, for another group of ranks."""
    for turn in range(40):
        made = comm.Split((comm.rank + turn) % 2 if turn % 3 else 0, comm.rank * (-1) ** turn)
        tensor = torch.full((5,), float(made.rank), dtype=torch.float16)
        made.Allreduce(MPI.IN_PLACE, tensor)
        assert tensor.tolist() == [sum(range(made.size))] * 5
        made.Free()


def test_attributes_of_the_module():
    """The drop-in has every public name of mpi4py's module."""
    missing = [name for name in dir(PLAIN) if not name.startswith("_") and not hasattr(MPI, name)]
    assert not missing
