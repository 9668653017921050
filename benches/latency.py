"""What dlmpi adds to calls that mpi4py could have made: contiguous NumPy arrays, float64.

    python benches/latency.py                   # COMM_SELF
    mpiexec -n 2 python benches/latency.py      # between two ranks

Each round times plain mpi4py and dlmpi in turn on the same arrays, the order alternates. What
is printed is the median of both and the median of the rounds' ratios, with its quartiles. One rank
is timed by its processor's time, so that other work on the machine does not count; two ranks need a
machine of their own, or more rounds (`--rounds 101`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI as PLAIN

from dlmpi import MPI

#: Elements, and calls per round.
SIZES = ((1, 2000), (128, 2000), (8192, 300), (131_072, 40))


def exchange(comm: Any, a: np.ndarray, b: np.ndarray) -> None:
    """One message there and one back; on one rank, to itself."""
    if comm.size == 1:
        comm.Sendrecv(a, 0, 0, b, 0, 0)
    elif comm.rank == 0:
        comm.Send(a, 1)
        comm.Recv(b, 1)
    else:
        comm.Recv(b, 0)
        comm.Send(a, 0)


CALLS: dict[str, Callable[[Any, np.ndarray, np.ndarray], None]] = {
    "Send, Recv": exchange,
    "Bcast": lambda comm, a, _: comm.Bcast(a, 0),
    "Allreduce": lambda comm, a, b: comm.Allreduce(a, b),
}


def timed(call: Callable[..., None], comm: Any, a: np.ndarray, b: np.ndarray, calls: int) -> float:
    clock = time.process_time if comm.size == 1 else time.perf_counter
    comm.Barrier()
    start = clock()
    for _ in range(calls):
        call(comm, a, b)
    return (clock() - start) / calls


def row(name: str, number: int, calls: int, rounds: int) -> str:
    world = PLAIN.COMM_WORLD
    kind = "COMM_SELF" if world.size == 1 else "COMM_WORLD"
    comms = {"mpi4py": getattr(PLAIN, kind), "dlmpi": getattr(MPI, kind)}
    a, b = np.random.default_rng(1).standard_normal(number), np.empty(number)
    found: dict[str, list[float]] = {who: [] for who in comms}
    for turn in range(rounds + 1):
        for who in list(comms)[:: 1 if turn % 2 else -1]:
            took = world.allreduce(timed(CALLS[name], comms[who], a, b, calls), op=PLAIN.MAX)
            found[who] += [took] if turn else []  # the first one warms up
    ratios = [d / m for d, m in zip(found["dlmpi"], found["mpi4py"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    times = "".join(f"{statistics.median(found[who]) * 1e6:12.2f}" for who in comms)
    return f"{name:<12}{8 * number:>9} B{times}{middle:10.2f}  ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    rounds = parser.parse_args().rounds
    root = PLAIN.COMM_WORLD.rank == 0
    if root:
        print(f"{'':<23}{'mpi4py us':>12}{'dlmpi us':>12}{'ratio':>10}")
    for name in CALLS:
        for number, calls in SIZES:
            line = row(name, number, calls, rounds)
            if root:
                print(line, flush=True)


if __name__ == "__main__":
    main()
