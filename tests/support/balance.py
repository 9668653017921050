"""Every MPI object that dlmpi makes is given back: a program for a few ranks, which counts calls.

Each scenario runs on communicators that are made and freed; afterwards as many datatypes,
communicators and operations must have been freed as were made meanwhile.

    mpiexec -n 2 env LD_PRELOAD=libfaulty_mpi.so python -m support.balance
"""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np

from dlmpi import MPI
from support.interpose import Faults
from support.scenarios import SCENARIOS

#: What makes an object, and what frees it; some are made by several functions.
KINDS = {
    "datatypes": (r"MPI_Type_(contiguous|vector|create_\w+|dup)(_c)?$", "MPI_Type_free"),
    "communicators": (r"MPI_Comm_i?dup$", "MPI_Comm_free"),
    "operations": (r"MPI_Op_create(_c)?$", "MPI_Op_free"),
}
ROUNDS = 3
#: How often that is repeated while more objects are alive than before.
TRIES = 4
#: Seconds until what is left to the engine, or to MPI's own progress, must be over.
LATE = 5.0


def strided(comm: Any) -> None:
    """Persistent messages whose elements lie apart, which have a datatype of ours."""
    out = np.full((4, 3), -1.0)
    requests = [
        comm.Recv_init(out.T, (comm.rank - 1) % comm.size),
        comm.Send_init(np.full((3, 8), float(comm.rank))[:, ::2], (comm.rank + 1) % comm.size),
    ]
    MPI.Prequest.Startall(requests)
    MPI.Request.Waitall(requests)
    for request in requests:
        request.Free()
    assert (out == (comm.rank - 1) % comm.size).all()


def tensors(comm: Any) -> None:
    """Objects whose memory a datatype gathers."""
    mine = {"weights": np.full(9000, comm.rank), "bias": np.full(9000, 7)}
    came = comm.sendrecv(mine, (comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)
    assert (came["weights"] == (comm.rank - 1) % comm.size).all()


#: Besides the shared table.
MORE = {"strided": strided, "tensors": tensors}


def made(faults: Faults) -> dict[str, int]:
    """How many objects of each kind dlmpi has made."""
    calls = faults.calls()
    return {
        kind: sum(n for name, n in calls.items() if re.match(makes, name))
        for kind, (makes, _) in KINDS.items()
    }


def alive(faults: Faults) -> dict[str, int]:
    """How many of them it has not freed."""
    calls = faults.calls()
    return {kind: n - calls[KINDS[kind][1]] for kind, n in made(faults).items()}


def settled(faults: Faults, before: dict[str, int]) -> dict[str, int]:
    """What is alive when nothing is under way any more, or time is up."""
    until = time.monotonic() + LATE
    while (after := alive(faults)) != before and time.monotonic() < until:
        # MPICH deletes a communicator's attributes as late as in a later call.
        MPI.COMM_SELF.Iprobe()
        time.sleep(0.001)
    return after


def main() -> None:
    """Count around the rounds of each scenario; the first makes what is kept for the process."""
    world, faults = MPI.COMM_WORLD, Faults()
    for title, scenario in (SCENARIOS | MORE).items():
        group = MPI.COMM_SELF if title.startswith("message") else world

        def rounds(number: int, group: Any = group, scenario: Any = scenario) -> None:
            for _ in range(number):
                comm = group.Dup()
                scenario(comm)
                comm.Free()

        rounds(1)
        after = alive(faults)
        for turn in range(TRIES):
            before = after
            rounds(ROUNDS)
            after = settled(faults, before)
            # The Datatypes of some rooms for messages are kept by address, which may be another
            # one each time; a leak never ends. Nothing else is kept.
            others = {kind: after[kind] - before[kind] for kind in KINDS if kind != "datatypes"}
            even = after == before
            if any(others.values()) or (not even and turn == TRIES - 1):
                print(f"{world.rank} {title}: {before} became {after}", flush=True)
            if world.allreduce(even, MPI.LAND):
                break
        world.Barrier()
    print(f"{world.rank} made {made(faults)}", flush=True)


if __name__ == "__main__":
    main()
