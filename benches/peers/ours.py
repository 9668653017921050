"""dlmpi on two ranks when one of them goes wrong: what is done, and what the ranks must say."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SETTINGS = {"DLMPI_CHECK": "always", "DLMPI_TIMEOUT": "2"}
#: What a rank that hears of a difference says: each rank's call and its place.
EACH = ("MismatchError", "rank 0: ", "rank 1: ", "ours.py:")
LATE = ("does not end", "ours.py:")
F4 = np.ones(4, np.float32)


def told(call: Callable[[], object]) -> None:
    """Print the error that a call ends with."""
    try:
        call()
        print("no error", flush=True)
    except Exception as error:
        print(f"{type(error).__module__}.{type(error).__name__}: {error}", flush=True)
        for note in getattr(error, "__notes__", ()):
            print(note, flush=True)


def reduced(comm: Any, first: Any, second: Any) -> None:
    """Each rank reduces its own: an array and an operation."""
    from dlmpi import MPI

    array, op = (first, second)[comm.rank]
    told(lambda: comm.Allreduce(MPI.IN_PLACE, array.copy(), getattr(MPI, op)))


def message(comm: Any, sent: np.ndarray) -> None:
    if comm.rank == 0:
        comm.Send(sent, 1)
    else:
        told(lambda: comm.Recv(np.empty_like(F4), 0))


def elsewhere() -> None:
    """Do not come to the collective that the other rank waits in."""
    time.sleep(60)


def unmatched(comm: Any, instead: Callable[[], object]) -> None:
    comm.Barrier()
    if comm.rank == 1:
        instead()
    comm.Allreduce(F4, np.empty_like(F4))


def killed(how: int) -> Callable[[], object]:
    return lambda: os.kill(os.getpid(), how)


def raises() -> None:
    raise KeyError("of the user")


def memory(comm: Any) -> None:
    data = np.ones((2, 1 << 26), np.float32)[:, ::2] if comm.rank else np.ones((2, 1 << 25), "f4")
    comm.Barrier()
    if comm.rank:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 24), resource.RLIM_INFINITY))
    told(lambda: comm.Bcast(data, 0))


def went_on(comm: Any) -> None:
    comm.Barrier()
    print("went on", flush=True)


def error_of_mpi(comm: Any) -> None:
    told(lambda: comm.Send(F4, 99))
    went_on(comm)


def fork(comm: Any) -> None:
    child = os.fork()
    if child == 0:
        told(comm.Barrier)
        os._exit(0)
    os.waitpid(child, 0)
    went_on(comm)


def handler(comm: Any) -> None:
    from dlmpi import MPI

    def handled(*_: object) -> None:
        MPI.COMM_SELF.Allreduce(F4, np.empty_like(F4))
        print("handled", flush=True)

    signal.signal(signal.SIGUSR1, handled)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    time.sleep(0.5)
    went_on(comm)


_kept: list[object] = []


def pending(comm: Any) -> None:
    _kept.append(comm.Irecv(np.empty_like(F4), 1 - comm.rank, 7))
    if comm.rank == 0:
        _kept.append(comm.Iallreduce(F4, np.empty_like(F4)))
    print("leaves", flush=True)


def finalize(comm: Any) -> None:
    from dlmpi import MPI

    pending(comm)
    MPI.Finalize()
    told(comm.Barrier)


class Fault(NamedTuple):
    """What goes wrong, the words that so many ranks must say, the exit codes that may be."""

    run: Callable[[Any], object]
    words: tuple[str, ...]
    ranks: int = 1
    codes: tuple[int, ...] = (0,)


FAULTS = {
    "dtypes": Fault(
        lambda comm: reduced(comm, (F4, "SUM"), (F4.astype("f8"), "SUM")),
        (*EACH, "4 float32", "4 float64"),
        2,
    ),
    "element counts": Fault(
        lambda comm: reduced(comm, (F4, "SUM"), (F4.repeat(2), "SUM")), (*EACH, "of 4", "of 8"), 2
    ),
    "reduce operations": Fault(
        lambda comm: reduced(comm, (F4, "SUM"), (F4, "MAX")), (*EACH, "op SUM", "op MAX"), 2
    ),
    "roots": Fault(
        lambda comm: told(lambda: comm.Bcast(F4.copy(), comm.rank)), (*EACH, "root 0", "root 1"), 2
    ),
    "different collectives": Fault(
        lambda comm: told(comm.Barrier) if comm.rank else reduced(comm, (F4, "SUM"), None),
        (*EACH, ": Allreduce", ": Barrier"),
        2,
    ),
    "of objects": Fault(
        lambda comm: told(lambda: (comm.gather if comm.rank else comm.bcast)(1, 0)),
        (*EACH, ": bcast", ": gather"),
        2,
    ),
    "one argument is refused": Fault(
        lambda comm: reduced(comm, (F4, "MAX"), (F4.astype("c8"), "MAX")),
        ("MismatchError", "rank 1: Allreduce refused", "ValueError"),
    ),
    "not blocking": Fault(
        lambda comm: told(
            (comm.Ibcast(F4.copy(), 0) if comm.rank else comm.Iallreduce(F4, F4.copy())).Wait
        ),
        (*EACH, ": Allreduce", ": Bcast"),
        2,
    ),
    "a message too long": Fault(
        lambda comm: message(comm, F4.repeat(2)),
        ("MPI.Exception", "from rank 0", "longer than the room"),
    ),
    "no whole number of elements": Fault(
        lambda comm: message(comm, np.ones(7, np.uint8)),
        ("ValueError", "from rank 0", "no whole number"),
    ),
    "something else": Fault(
        lambda comm: unmatched(comm, elsewhere),
        (*LATE, "rank 1 has made", "in elsewhere"),
        codes=(124,),
    ),
    "SIGSTOP": Fault(
        lambda comm: unmatched(comm, killed(signal.SIGSTOP)),
        (*LATE, "rank 1 does not answer"),
        codes=(124,),
    ),
    # By the launcher: 9 in MPICH's words and code, 137 as shells say it.
    "SIGKILL": Fault(
        lambda comm: unmatched(comm, killed(signal.SIGKILL)), ("ignal 9",), codes=(9, 137)
    ),
    "exception": Fault(
        lambda comm: unmatched(comm, raises), ("[rank 1] KeyError: 'of the user'",), codes=(1,)
    ),
    "no memory": Fault(
        memory, ("MemoryError", "MismatchError", "rank 1: Bcast refused: out of memory")
    ),
    "MPI returns an error": Fault(error_of_mpi, ("mpi4py.MPI.Exception", "MPI_Send", "went on"), 2),
    "fork": Fault(fork, ("LaunchError", "is a child of rank 1 of 2", "went on")),
    "pending at exit": Fault(pending, ("leaves",), 2),
    "handler": Fault(handler, ("handled", "went on"), 2),
    "Finalize": Fault(finalize, ("RuntimeError: MPI was finalized",), 2),
}


def run(fault: str) -> None:
    import dlmpi.abort_on_error
    from dlmpi import MPI

    dlmpi.abort_on_error.install()
    FAULTS[fault].run(MPI.COMM_WORLD)
