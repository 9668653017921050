"""Where ranks are, against MPI's own split by shared memory and by plain counting."""

from __future__ import annotations

import os

import pytest

import dlmpi
from dlmpi import MPI, placement

pytestmark = pytest.mark.mpi

WORLD = MPI.COMM_WORLD


def by_counting() -> tuple[int, int]:
    """Local rank and size by host names alone."""
    hosts = WORLD.allgather(MPI.Get_processor_name())
    mine = hosts[WORLD.rank]
    return hosts[: WORLD.rank].count(mine), hosts.count(mine)


def test_local_rank_and_size():
    assert (dlmpi.local_rank(), dlmpi.local_size()) == by_counting()
    assert (dlmpi.local_rank(WORLD), dlmpi.local_size(WORLD)) == by_counting()


def test_the_place_among_nodes():
    here = placement.place()
    leaders = WORLD.allgather(here.local_rank == 0)
    assert sum(leaders) == here.num_nodes == placement.num_nodes()
    assert here.node_rank == placement.node_rank() == sum(leaders[: WORLD.rank + 1]) - 1


def test_another_communicator_counts_for_itself():
    # Backwards, and every second rank only.
    part = WORLD.Split(WORLD.rank % 2, key=-WORLD.rank)
    here = placement.place(part)
    node = part.Split_type(MPI.COMM_TYPE_SHARED, key=part.rank)
    assert (here.local_rank, here.local_size) == (node.rank, node.size)
    assert dlmpi.local_rank(part) == node.rank
    node.Free()
    part.Free()


def test_the_device_is_one_that_exists():
    name = dlmpi.device()
    assert name == "cpu" or name.startswith("cuda:")


def test_torchruns_variables(monkeypatch):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    for name in (*names, "MASTER_ADDR", "MASTER_PORT"):
        # Registers the name, so that what is set below goes away again.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    found = placement.set_environment()
    local, here = by_counting()
    assert [found[name] for name in names[:4]] == [
        str(WORLD.rank),
        str(WORLD.size),
        str(local),
        str(here),
    ]
    assert all(os.environ[name] == value for name, value in found.items())
    meeting = {(row["MASTER_ADDR"], row["MASTER_PORT"]) for row in WORLD.allgather(found)}
    assert len(meeting) == 1


def test_what_is_set_stays(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "elsewhere")
    monkeypatch.setenv("LOCAL_RANK", "77")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_PORT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    found = placement.set_environment()
    assert (found["MASTER_ADDR"], found["LOCAL_RANK"]) == ("elsewhere", "77")


def test_what_contradicts_mpi_is_refused(monkeypatch):
    monkeypatch.setenv("RANK", str(WORLD.rank + 1))
    with pytest.raises(dlmpi.LaunchError, match=f"MPI says {WORLD.rank}"):
        placement.set_environment()


def test_nobody_asked_to_stop():
    assert dlmpi.stop_requested() is False
    assert dlmpi.stop_requested(MPI.COMM_SELF) is False
