"""Programs of several worlds, or of none: started by others (`Spawn_multiple`), or with sessions
only. What they communicate by is ours."""

from __future__ import annotations

import pytest

#: Of a communicator that is ours, what plain ones refuse.
AMONG = """
import torch

def strided(value):
    return torch.full((12,), float(value), dtype=torch.bfloat16)[::2]

def among(made):
    for _ in range(70):  # more collectives than are compared
        tensor = strided(1)
        made.Allreduce(MPI.IN_PLACE, tensor)
        assert (tensor == made.size).all()
    out = strided(-1)
    after, before = (made.rank + 1) % made.size, (made.rank - 1) % made.size
    made.Sendrecv(strided(made.rank), after, 1, out, before, 1)
    assert (out == before).all()
    made.Bcast(out, made.size - 1)
    assert (out == (made.size - 2) % made.size).all()
    if made.size > 1 or MPI.Is_initialized():  # alone this is mpi4py's, whose lock needs a world
        got = made.allgather({"tensor": strided(made.rank)})
        assert [int(item["tensor"][0]) for item in got] == list(range(made.size))
    try:
        made.Iallreduce(MPI.IN_PLACE, tensor).Wait()
        assert (tensor == made.size ** 2).all()
    except RuntimeError as error:  # some MPIs tell of no threads where there are sessions only
        assert MPI.Query_thread() < MPI.THREAD_MULTIPLE
        assert "MPI_THREAD_MULTIPLE" in str(error)
"""

PARENT = """
import sys
from dlmpi import MPI
%(among)s
programs = %(programs)r
world = MPI.COMM_WORLD
inter = world.Spawn_multiple(
    [sys.executable] * len(programs), [[name] for name in programs], maxprocs=[1] * len(programs)
)
assert type(inter) is MPI.Intercomm and inter.remote_size == len(programs)
if world.rank == 0:
    for child in range(len(programs)):
        inter.Send(strided(child), child, 1)
        assert (inter.recv(source=child, tag=2)["tensor"] == child + 1).all()
inter.Bcast(strided(7), MPI.ROOT if world.rank == 0 else MPI.PROC_NULL)
merged = inter.Merge(False)
assert type(merged) is MPI.Intracomm and merged.size == world.size + len(programs)
among(merged)
merged.Free()
inter.Disconnect()
assert inter == MPI.COMM_NULL
among(world)
print("parent done", flush=True)
"""

CHILD = """
from dlmpi import MPI
%(among)s
inter = MPI.Comm.Get_parent()
assert type(inter) is MPI.Intercomm
world, out = MPI.COMM_WORLD, strided(-1)
inter.Recv(out, 0, 1)
assert (out == world.rank).all()
inter.send({"tensor": out + 1}, 0, 2)
inter.Bcast(out, 0)
assert (out == 7).all()
merged = inter.Merge(True)
among(merged)
merged.Free()
among(world)
inter.Disconnect()
print("child", %(number)d, "is", world.rank, "of", world.size, flush=True)
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_several_programs_are_spawned_at_once(place, ranks):
    programs = [
        place.write(CHILD % {"among": AMONG, "number": number}, f"child{number}.py")
        for number in range(2)
    ]
    outcome = place.ranks(ranks, PARENT % {"among": AMONG, "programs": programs})
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("parent done") == ranks, outcome.text
    for number in range(2):
        assert outcome.text.count(f"child {number} is {number} of 2") == 1, outcome.text


SESSION = """
import mpi4py
mpi4py.rc.initialize = False
from dlmpi import MPI
%(among)s
assert not MPI.Is_initialized()
try:
    info = MPI.Info.Create({"thread_level": "MPI_THREAD_MULTIPLE"})
    session = MPI.Session.Init(info)
except NotImplementedError:
    raise SystemExit("no sessions")
info.Free()
group = session.Create_group("mpi://WORLD")
made = MPI.Intracomm.Create_from_group(group, "dlmpi.only")
group.Free()
assert type(made) is MPI.Intracomm
among(made)
part = made.Split(0)
among(part)
part.Free()
"""

#: How it goes on.
ONLY = """
made.Free()
session.Finalize()
assert not MPI.Is_initialized()
print("done", flush=True)
"""

#: What `MPI_Init` brings is there, and ended by `MPI_Finalize`.
LATER = """
MPI.Init_thread(MPI.THREAD_MULTIPLE)
among(MPI.COMM_WORLD)
among(made)
made.Free()
session.Finalize()
among(MPI.COMM_WORLD)
MPI.Finalize()
try:
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, strided(1))
except RuntimeError as error:
    assert "finalized" in str(error)
    print("done", flush=True)
"""


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("rest", [ONLY, LATER], ids=["only", "before MPI_Init"])
def test_sessions_without_a_world(place, ranks, rest):
    outcome = place.ranks(ranks, SESSION % {"among": AMONG} + rest)
    if "no sessions" in outcome.text:
        pytest.skip("this MPI has no sessions")
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("done") == ranks, outcome.text
