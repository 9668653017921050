"""Collectives that mpi4py's own methods carry out are compared as ours are: whatever one rank calls
instead, every rank raises with both lines, and goes on."""

from __future__ import annotations

import operator
import threading

import numpy as np
import pytest

import dlmpi
from dlmpi import MPI, _announced
from support.announced import FIELDS, LAWFUL, NEAR, place

pytestmark = pytest.mark.mpi


@pytest.fixture
def here(comm):
    with place(comm) as made:
        yield made


@pytest.fixture
def several(here):
    if here.comm.size == 1:
        pytest.skip("one rank cannot disagree")
    return here


def odd(comm):
    """The rank that does otherwise."""
    return comm.rank == comm.size - 1


def usable(comm):
    out = np.full(3, -1.0)
    comm.Allreduce(np.full(3, comm.rank + 1.0), out)
    assert np.all(out == sum(range(1, comm.size + 1)))
    assert comm.allgather(comm.rank) == list(range(comm.size))


def disagree(here, comm, most, last):
    """All ranks raise, with the same words, which name every rank and the lines of both calls."""
    with pytest.raises(dlmpi.MismatchError) as caught:
        (last if odd(comm) else most)(here)
    rows = [row for row in str(caught.value).splitlines() if row.startswith("  rank")]
    assert len(rows) == 2, rows
    (ours,) = [row for row in rows if row.startswith(f"  rank {comm.size - 1}: ")]
    (others,) = [row for row in rows if row != ours]
    assert others.startswith(f"  rank{'s' if comm.size > 2 else ''} 0")
    for row, call in ((ours, last), (others, most)):
        line = call.__code__.co_firstlineno
        file, _, number = row.rpartition(" at ")[2].rpartition(":")
        assert file.endswith(call.__code__.co_filename[-30:]), row
        assert line <= int(number) <= line + 3, row
    usable(comm)


def barrier(here):
    here.comm.Barrier()


def near_barrier(here):
    here.ring.Barrier()


def test_calls_that_match_go_through(here):
    for calls in (LAWFUL, NEAR):
        for name, call in calls.items():
            if name == "Create_graph" and here.comm.size < 2:
                continue
            if name.startswith("Create_dist_graph") and here.comm.size < 2:
                continue
            call(here)
    usable(here.comm)


@pytest.mark.parametrize("name", [name for name in LAWFUL if name != "barrier"])
def test_each_opposite_a_barrier(several, name):
    disagree(several, several.comm, LAWFUL[name], barrier)


@pytest.mark.parametrize("name", NEAR)
def test_each_opposite_a_barrier_of_a_topology(several, name):
    disagree(several, several.ring, NEAR[name], near_barrier)


@pytest.mark.parametrize("name", FIELDS)
def test_each_field(several, name):
    disagree(several, several.comm, *FIELDS[name])


def test_all_pairs(several):
    """Each call opposite the one after it: no two of them pass for each other."""
    names = [name for name in LAWFUL if name != "bcast of a number"]
    for name, after in zip(names, names[1:] + names[:1], strict=True):
        with pytest.raises(dlmpi.MismatchError):
            LAWFUL[after if odd(several.comm) else name](several)
    usable(several.comm)


def test_one_call_under_two_names_is_no_disagreement(here):
    """`barrier` is `Barrier`, `Clone` is `Dup`."""
    (here.comm.barrier if odd(here.comm) else here.comm.Barrier)()
    here.keep((here.comm.Clone if odd(here.comm) else here.comm.Dup)())
    usable(here.comm)


def test_objects_may_differ(here):
    comm = here.comm
    given = (lambda: None, np.ones(comm.rank), "text")[comm.rank % 3] if comm.rank % 3 else {}
    assert len(comm.allgather(given)) == comm.size
    assert comm.bcast(comm.rank or "root", 0) == "root"
    usable(comm)


def test_a_refused_argument_is_told(several):
    """What is refused before MPI is entered is known to all ranks."""
    calls = {
        "Neighbor_alltoall": lambda: several.ring.Neighbor_alltoall(np.ones(8), object()),
        "Write_all": lambda: several.file.Write_all(object()),
        "Alltoallw": lambda: several.comm.Alltoallw([object(), [1], [0], [MPI.DOUBLE]], None),
    }
    lawful = {**NEAR, "Write_all": LAWFUL["File.Write_all"], "Alltoallw": LAWFUL["Alltoallw"]}
    for name, call in calls.items():
        if odd(several.comm):
            with pytest.raises((TypeError, ValueError, BufferError)):
                call()
        else:
            with pytest.raises(dlmpi.MismatchError, match=f"{name} refused"):
                lawful[name](several)
    usable(several.comm)
    usable(several.ring)


def test_a_window_outlives_its_communicator(comm):
    own = comm.Dup()
    window = MPI.Win.Create(np.zeros(comm.size), 8, comm=own)
    own.Free()
    for _ in range(3):
        window.Fence()
    if comm.size > 1:
        with pytest.raises(dlmpi.MismatchError, match=r"Win\.Fence"):
            window.Free() if odd(comm) else window.Fence()
    window.Free()
    usable(comm)


def test_other_threads_use_files_and_windows_at_once(here):
    """Lawful: a file and a window are apart from the communicator that they were made of."""
    failed = []

    def work():
        try:
            for step in range(20):
                here.file.Write_at_all(32 * here.comm.rank, np.full(4, float(step)))
                here.window.Fence()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(100):
        usable(here.comm)
    thread.join()
    assert not failed, failed


def test_past_the_first_calls_only_powers_of_two_are_compared(several):
    comm = several.comm
    for step in range(150):
        assert comm.allreduce(step) == step * comm.size
        assert comm.bcast(step, step % comm.size) == step
    usable(comm)


def test_communicators_of_plain_calls_compare_nothing(comm):
    plain = dlmpi.wrap(comm.Dup(), collectives="mpi")
    assert plain.allgather(plain.rank) == list(range(plain.size))
    # The same sum, by what a comparison would take for another operation.
    assert plain.allreduce(1, MPI.SUM if odd(comm) else operator.add) == plain.size
    window = MPI.Win.Allocate(8, comm=plain)
    window.Fence()
    window.Free()
    plain.Free()
    usable(comm)


def test_intercommunicators_compare_nothing(comm):
    if comm.size < 2:
        pytest.skip("needs two groups")
    half = comm.Split(comm.rank % 2)
    inter = half.Create_intercomm(0, comm, 1 - comm.rank % 2)
    assert inter.allgather(comm.rank) == list(range(1 - comm.rank % 2, comm.size, 2))
    inter.barrier()
    inter.Free()
    half.Free()
    usable(comm)


def test_every_method_of_the_table_is_tried():
    """Every method of the table is tried above."""
    tried = {name.partition(" ")[0] for name in (*LAWFUL, *NEAR, *FIELDS)}
    # What needs other jobs, and what is another name.
    untried = {"Spawn", "Spawn_multiple", "Accept", "Connect", "Clone"}
    untried |= {name for name in _announced.METHODS if name.endswith("Set_info")}
    assert set(_announced.METHODS) - tried == untried
