"""Every collective that mpi4py's own methods carry out, and what its ranks must agree on: the table
of the tests. Each row is one lawful call, what of it may differ unlawfully, and what another rank
calls instead. Knows mpi4py's rules, not how dlmpi compares."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dlmpi import MPI

Call = Callable[["Place"], Any]


class Place:
    """A communicator, and what was made of it."""

    def __init__(self, comm: Any, file: str) -> None:
        self.comm = comm
        self.ring = comm.Create_cart([comm.size], periods=[True])
        self.window = MPI.Win.Allocate(8 * comm.size, 8, comm=comm)
        self.other = MPI.Win.Allocate(8, 8, comm=comm)
        self.name = file
        self.file = MPI.File.Open(comm, file, MPI.MODE_CREATE | MPI.MODE_RDWR)
        self.tensor = np.arange(4.0)
        self.made: list[Any] = []

    def keep(self, made: Any) -> Any:
        self.made.append(made)
        return made

    def free(self) -> None:
        for thing in (*self.made, self.window, self.other):
            if thing not in (MPI.COMM_NULL, MPI.WIN_NULL):
                thing.Free()
        self.file.Close()
        self.ring.Free()


@contextmanager
def place(comm: Any) -> Iterator[Place]:
    """A place with a communicator of its own, whose first calls are compared."""
    own = comm.Dup()
    name = comm.bcast(os.path.join(tempfile.mkdtemp(), "file") if comm.rank == 0 else None)
    here = Place(own, name)
    yield here
    here.free()
    own.Free()


def items(here: Place) -> list[int]:
    return list(range(here.comm.size))


def spread(call: str, place: str = "comm") -> Call:
    return lambda here: getattr(getattr(here, place), call)(items(here))


#: Calls that match, by name.
LAWFUL: dict[str, Call] = {
    "barrier": lambda here: here.comm.barrier(),
    "bcast": lambda here: here.comm.bcast({"a": 1}, 0),
    "bcast of a number": lambda here: here.comm.bcast(5),
    "gather": lambda here: here.comm.gather(here.tensor, root=0),
    "scatter": lambda here: here.comm.scatter(items(here)),
    "allgather": lambda here: here.comm.allgather([here.comm.rank]),
    "alltoall": spread("alltoall"),
    "reduce": lambda here: here.comm.reduce(here.comm.rank),
    "allreduce": lambda here: here.comm.allreduce(here.comm.rank),
    "scan": lambda here: here.comm.scan(1),
    "exscan": lambda here: here.comm.exscan(1),
    "Alltoallw": lambda here: here.comm.Alltoallw(*blocks(here, here.comm.size)),
    "Dup": lambda here: here.keep(here.comm.Dup()),
    "Dup_with_info": lambda here: here.keep(here.comm.Dup_with_info(MPI.INFO_NULL)),
    "Split": lambda here: here.keep(here.comm.Split(here.comm.rank % 2)),
    "Split_type": lambda here: here.keep(here.comm.Split_type(MPI.COMM_TYPE_SHARED)),
    "Create": lambda here: here.keep(here.comm.Create(here.comm.Get_group())),
    "Create_cart": lambda here: here.keep(here.comm.Create_cart([here.comm.size, 1])),
    "Create_graph": lambda here: here.keep(here.comm.Create_graph([1, 2], [1, 0])),
    "Create_dist_graph": lambda here: here.keep(here.comm.Create_dist_graph([0], [1], [1])),
    "Create_dist_graph_adjacent": lambda here: here.keep(
        here.comm.Create_dist_graph_adjacent([], [])
    ),
    "Win.Create": lambda here: here.keep(MPI.Win.Create(here.tensor, 8, comm=here.comm)),
    "Win.Allocate": lambda here: here.keep(MPI.Win.Allocate(8, 8, comm=here.comm)),
    "Win.Allocate_shared": lambda here: here.keep(MPI.Win.Allocate_shared(8, 8, comm=here.comm)),
    "Win.Create_dynamic": lambda here: here.keep(MPI.Win.Create_dynamic(comm=here.comm)),
    "Win.Fence": lambda here: here.window.Fence(),
    "Win.Free": lambda here: MPI.Win.Create(here.tensor, comm=here.comm).Free(),
    "File.Open": lambda here: MPI.File.Open(here.comm, here.name).Close(),
    "File.Set_size": lambda here: here.file.Set_size(800),
    "File.Preallocate": lambda here: here.file.Preallocate(80),
    "File.Set_view": lambda here: here.file.Set_view(0, MPI.DOUBLE),
    "File.Set_atomicity": lambda here: here.file.Set_atomicity(True),
    "File.Sync": lambda here: here.file.Sync(),
    "File.Seek_shared": lambda here: here.file.Seek_shared(0),
    "File.Write_at_all": lambda here: here.file.Write_at_all(here.comm.rank, here.tensor),
    "File.Read_at_all": lambda here: here.file.Read_at_all(0, here.tensor.copy()),
    "File.Write_all": lambda here: here.file.Write_all(here.tensor),
    "File.Read_all": lambda here: here.file.Read_all(here.tensor.copy()),
    "File.Write_ordered": lambda here: here.file.Write_ordered(here.tensor),
}


def blocks(here: Place, peers: int) -> tuple[list[Any], list[Any]]:
    """The arguments of an exchange that has a Datatype per peer."""
    counts, places = [1] * peers, [8 * peer for peer in range(peers)]
    return (
        [np.zeros(peers), counts, places, [MPI.DOUBLE] * peers],
        [np.zeros(peers), counts, places, [MPI.DOUBLE] * peers],
    )


#: The same on a communicator with a topology: of its own numbers.
NEAR: dict[str, Call] = {
    "neighbor_allgather": lambda here: here.ring.neighbor_allgather(1),
    "neighbor_alltoall": lambda here: here.ring.neighbor_alltoall([1, 2]),
    "Neighbor_allgather": lambda here: here.ring.Neighbor_allgather(here.tensor, np.empty(8)),
    "Neighbor_allgatherv": lambda here: here.ring.Neighbor_allgatherv(
        here.tensor, [np.empty(8), [4, 4]]
    ),
    "Neighbor_alltoall": lambda here: here.ring.Neighbor_alltoall(np.ones(8), np.empty(8)),
    "Neighbor_alltoallv": lambda here: here.ring.Neighbor_alltoallv(
        [np.ones(8), [4, 4]], [np.empty(8), [4, 4]]
    ),
    "Neighbor_alltoallw": lambda here: here.ring.Neighbor_alltoallw(*blocks(here, 2)),
    "Sub": lambda here: here.keep(here.ring.Sub([True])),
    "Ineighbor_allgather": lambda here: here.ring.Ineighbor_allgather(
        here.tensor, np.empty(8)
    ).Wait(),
    "Ineighbor_alltoallw": lambda here: here.ring.Ineighbor_alltoallw(*blocks(here, 2)).Wait(),
}

#: Two calls of one method that MPI does not let match, by the field.
FIELDS: dict[str, tuple[Call, Call]] = {
    "bcast root": (lambda here: here.comm.bcast(1, 0), lambda here: here.comm.bcast(1, root=1)),
    "gather root": (lambda here: here.comm.gather(1), lambda here: here.comm.gather(1, 1)),
    "scatter root": (
        lambda here: here.comm.scatter(items(here)),
        lambda here: here.comm.scatter(items(here), root=1),
    ),
    "reduce root": (lambda here: here.comm.reduce(1), lambda here: here.comm.reduce(1, root=1)),
    "reduce op": (
        lambda here: here.comm.reduce(1, MPI.SUM),
        lambda here: here.comm.reduce(1, op=MPI.MAX),
    ),
    "allreduce op": (
        lambda here: here.comm.allreduce(1),
        lambda here: here.comm.allreduce(1, op=MPI.PROD),
    ),
    "allreduce function": (
        lambda here: here.comm.allreduce(1),
        lambda here: here.comm.allreduce(1, op=lambda a, b: a),
    ),
    "scan op": (lambda here: here.comm.scan(1), lambda here: here.comm.scan(1, MPI.MIN)),
    "exscan op": (lambda here: here.comm.exscan(1), lambda here: here.comm.exscan(1, MPI.MIN)),
    "lower and upper case": (
        lambda here: here.comm.bcast(here.tensor),
        lambda here: here.comm.Bcast(here.tensor),
    ),
    "Create_cart dims": (
        lambda here: here.comm.Create_cart([here.comm.size, 1]),
        lambda here: here.comm.Create_cart((1, here.comm.size)),
    ),
    "Create_graph edges": (
        lambda here: here.comm.Create_graph([1, 2], [1, 0]),
        lambda here: here.comm.Create_graph([1, 2], [0, 1]),
    ),
    "Create_intercomm leader": (
        lambda here: here.comm.Create_intercomm(0, here.comm, 0),
        lambda here: here.comm.Create_intercomm(1, here.comm, 0),
    ),
    "Win.Fence assertions": (
        lambda here: here.window.Fence(MPI.MODE_NOPRECEDE),
        lambda here: here.window.Fence(),
    ),
    "Win.Fence window": (lambda here: here.window.Fence(), lambda here: here.other.Fence()),
    "Win.Free window": (lambda here: here.window.Free(), lambda here: here.other.Free()),
    "File.Open amode": (
        lambda here: MPI.File.Open(here.comm, here.name, MPI.MODE_RDONLY),
        lambda here: MPI.File.Open(here.comm, here.name, MPI.MODE_WRONLY),
    ),
    "File.Close": (lambda here: here.file.Close(), lambda here: here.file.Sync()),
    "File.Set_size size": (
        lambda here: here.file.Set_size(80),
        lambda here: here.file.Set_size(size=8),
    ),
    "File.Preallocate size": (
        lambda here: here.file.Preallocate(80),
        lambda here: here.file.Preallocate(8),
    ),
    "File.Set_view datarep": (
        lambda here: here.file.Set_view(0, MPI.DOUBLE),
        lambda here: here.file.Set_view(0, MPI.DOUBLE, datarep="external32"),
    ),
    "File.Set_atomicity flag": (
        lambda here: here.file.Set_atomicity(True),
        lambda here: here.file.Set_atomicity(False),
    ),
    "File.Seek_shared offset": (
        lambda here: here.file.Seek_shared(0),
        lambda here: here.file.Seek_shared(8),
    ),
}
