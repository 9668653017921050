"""Creates groups: their communicators, and torch's objects around them. Importing it starts MPI."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from dlmpi import MPI, _watch, abort_on_error
from dlmpi.launch import LaunchError
from dlmpi.torch import _failed, _group
from dlmpi.torch._core import Core
from dlmpi.torch._rendezvous import new_store

__all__ = ["group", "subgroup"]

#: Tags of group creation: any MPI takes so many.
TAGS = 1 << 15


def group(options: Any, title: str) -> Any:
    """Return the group that torch asks for under a name; only its members call this."""
    abort_on_error.install()
    world = MPI.COMM_WORLD
    ranks = list(options.global_ranks_in_group)
    rank, size = options.group_rank, options.group_size
    if not ranks:
        _check_world(rank, size)
        # Ranks that wait can then ask the others where they are.
        _watch.begin(MPI, wanted=True)
        comm = world.Dup()
    else:
        comm = _communicator(world, ranks, options.group_id)
    store = options.store
    if not ranks and _is_placeholder(store):
        store = new_store(options.timeout)
    core = Core(comm, options.group_id, store, options.timeout, title)
    if not ranks:
        _failed.begin(store, world.Get_rank())
    if _is_composite():
        return _group.backend(core)
    return _group.process_group(core, options.group_id)


def subgroup(core: Core, ranks: Sequence[int], name: str, timeout: timedelta | None) -> Core | None:
    """Return a part of a group, given its ranks there; None on ranks outside."""
    if core.rank not in ranks:
        return None
    comm = _communicator(core.comm, list(ranks), name)
    limit = timeout if timeout else timedelta(seconds=core.timeout)
    return Core(comm, name, _group.prefixed(name, core.store), limit, core.title)


def _communicator(parent: Any, ranks: list[int], name: str) -> Any:
    """Return a communicator of these ranks in this order; only they call."""
    members = parent.Get_group().Incl(ranks)
    try:
        return parent.Create_group(members, zlib.crc32(name.encode()) % TAGS)
    finally:
        members.Free()


def _check_world(rank: int, size: int) -> None:
    world = MPI.COMM_WORLD
    found = (world.Get_rank(), world.Get_size())
    # "mpi" asks for no numbers.
    if (rank, size) in (found, (-1, -1)):
        return
    if os.environ.get("TORCHELASTIC_RUN_ID") and found[1] == 1:
        raise LaunchError(
            f"torchrun started {size} processes, and to MPI each of them is alone. Start the job "
            f"with MPI's launcher instead: mpiexec -n {size} python {' '.join(sys.argv[:1])}; "
            'torchrun\'s variables are then set by init_process_group("dlmpi")'
        )
    raise LaunchError(
        f"torch says rank {rank} of {size}, but MPI says rank {found[0]} of {found[1]}: start the "
        "job with mpiexec or srun, and leave RANK, WORLD_SIZE, rank= and world_size= unset"
    )


def _is_placeholder(store: Any) -> bool:
    """Whether torch gave no store that works, as for the name "mpi"."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return type(store).__name__ == "Store"


def _is_composite() -> bool:
    """Whether another backend serves another device of the group under construction.

    torch does not say, so its frame is asked; where it looks different, a group of ours alone is
    what was asked for.
    """
    frame = sys._getframe(3)
    config = frame.f_locals.get("backend_config")
    try:
        return len(set(config.get_device_backend_map().values())) > 1  # type: ignore[union-attr]
    except AttributeError:
        return False
