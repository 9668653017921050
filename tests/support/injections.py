"""Every call that dlmpi makes to MPI, made to fail: a program for the ranks of a small job.

A scenario is run once to see which MPI functions dlmpi calls in it, and how often; then once for
each of them with its first call failing, and once with its last. What must hold then: an exception
that names what MPI said on the rank whose call failed, or the right result; and whatever is called
afterwards ends, right or with an exception, on this communicator, and right on the others.

    mpiexec -n 2 env LD_PRELOAD=libfaulty_mpi.so python -m support.injections sweep FOLDER
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI as PLAIN

from dlmpi import MPI
from support.interpose import Faults
from support.scenarios import SCENARIOS, SHARING

#: How often one of these is called is a matter of time.
POLLED = ("MPI_Test", "MPI_Testall", "MPI_Iprobe", "MPI_Improbe", "MPI_Request_get_status")
#: A root asks these more often. Where the first call of one rank is made before the comparison and
#: that of another inside it, the two failures are two different calls, and not what one failing
#: call looks like.
QUERIES = ("MPI_Comm_rank", "MPI_Comm_size", "MPI_Comm_test_inter", "MPI_Comm_get_attr")
#: What failing here does instead of an exception: tests/failure says so.
ENDS_THE_JOB = ("MPI_Grequest_complete",)
SAID = PLAIN.Get_error_string(PLAIN.ERR_OTHER)
WORLD = MPI.COMM_WORLD


def attempt(scenario: Callable[[Any], None], comm: Any) -> str:
    """Run it; "" if it gave right results, else what was raised."""
    try:
        scenario(comm)
    except AssertionError:
        raise
    except (MPI.Exception, RuntimeError, MemoryError) as error:
        return f"{type(error).__name__}: {error} {getattr(error, '__notes__', '')}"
    return ""


def works(comm: Any) -> None:
    """Integers, so that a wrong message cannot be right by chance."""
    rank, size = comm.rank, comm.size
    out = np.full(3, -1)
    comm.Allreduce(np.arange(3) + 1000 * rank, out)
    assert out.tolist() == [size * i + 500 * size * (size - 1) for i in range(3)], out
    out = np.full(size, -1)
    comm.Iallgather(np.array([rank + 7]), out).Wait()
    assert out.tolist() == [7 + r for r in range(size)], out


def cases(faults: Faults, scenario: Callable[[Any], None], group: Any) -> Iterator[tuple[str, int]]:
    """The functions that a scenario calls, each with the numbers of the calls that are to fail."""
    for _ in range(2):  # what is done once per process is done now
        comm = group.Dup()
        before = faults.calls()
        scenario(comm)
        after = faults.calls()
        comm.Free()
    count = np.array([after[name] - before[name] for name in faults.names])
    least, most = np.empty_like(count), np.empty_like(count)
    PLAIN.COMM_WORLD.Allreduce(count, least, PLAIN.MIN)
    PLAIN.COMM_WORLD.Allreduce(count, most, PLAIN.MAX)
    for name, always, ever in zip(faults.names, least, most, strict=True):
        if not ever or name in ENDS_THE_JOB or (name in QUERIES and always != ever):
            continue
        yield name, 1
        if always > 1 and name not in POLLED:
            yield name, int(always)


def inject(faults: Faults, scenario: Callable[[Any], None], group: Any, name: str, nth: int) -> str:
    """One failure; what came of it, or an AssertionError."""
    comm = group.Dup()
    with faults.failing(name, nth):
        said = attempt(scenario, comm)
        fired = faults.fired()
    if said and fired:
        assert SAID in said, said
    if said and not fired:
        assert group is not MPI.COMM_SELF, f"no call failed, and yet: {said}"
    later = attempt(works, comm)
    comm.Free()
    works(WORLD)
    return f"{'failed' if fired else 'not reached'}: {said or 'right'} | later: {later or 'right'}"


def sweep(folder: Path) -> None:
    """Each rank writes what it does into a file of its own: the last line names what hung."""
    faults = Faults()
    works(WORLD)
    with (folder / f"injected.{WORLD.rank}").open("w", buffering=1) as told:
        for title, scenario in SCENARIOS.items():
            group = MPI.COMM_SELF if title.startswith("message") else WORLD
            for name, nth in cases(faults, scenario, group):
                told.write(f"{title}: call {nth} of {name} ")
                told.flush()
                try:
                    told.write(inject(faults, scenario, group, name, nth) + "\n")
                except AssertionError as wrong:
                    line = traceback.extract_tb(wrong.__traceback__)[-1]
                    told.write(f"WRONG {wrong} at {line.name}:{line.lineno}\n")
        called = [name for name, calls in faults.calls().items() if calls]
        told.write(f"called {' '.join(called)}\nend\n")


def once(title: str) -> None:
    """A failure that was asked for by the environment, so that it hits the process's first call."""
    faults, scenario = Faults(), SCENARIOS[title]
    said = attempt(scenario, WORLD)
    told = f"{'failed' if faults.fired() else 'not reached'}: {said or 'right'}"
    print(f"{WORLD.rank} {told}", flush=True)
    works(WORLD)
    print(f"{WORLD.rank} works", flush=True)


def alone(title: str, name: str, nth: int) -> None:
    """A failure on rank 1 alone, which others then wait for."""
    faults, comm, scenario = Faults(), WORLD.Dup(), (SCENARIOS | SHARING)[title]
    if title in SHARING:
        scenario(comm)
    if WORLD.rank == 1:
        with faults.failing(name, nth):
            print("1 raised", attempt(scenario, comm), flush=True)
        time.sleep(60)
    else:
        scenario(comm)
        print(f"{WORLD.rank} went on", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["sweep", folder]:
            sweep(Path(folder))
        case ["once", title]:
            once(title)
        case ["alone", title, name, nth]:
            alone(title, name, int(nth))
        case other:
            sys.exit(f"not known: {other}")
