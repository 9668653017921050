"""`Scan` through shared memory against the library's `MPI_Scan`, both through dlmpi.

    mpiexec -n 2 python benches/scan.py [--rounds 31]

Each round times both ways in turn on the same arrays, the order alternates, and the slowest rank
counts. What is printed is the median of both and the median of the rounds' ratios, with its
quartiles. Needs a core for each rank; where other programs run, more rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import dlmpi
from dlmpi import MPI

#: Bytes, and calls per round.
SIZES = ((8, 1000), (8 << 10, 500), (256 << 10, 30), (4 << 20, 2))


def timed(comm: Any, a: np.ndarray, b: np.ndarray, calls: int) -> float:
    comm.Barrier()
    start = time.perf_counter()
    for _ in range(calls):
        comm.Scan(a, b)
    return (time.perf_counter() - start) / calls


def row(ways: dict[str, Any], dtype: str, size: int, calls: int, rounds: int) -> str:
    world = MPI.COMM_WORLD
    a = np.ones(size // np.dtype(dtype).itemsize, dtype)
    b = np.zeros_like(a)
    found: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 1):
        for way in list(ways)[:: 1 if turn % 2 else -1]:
            took = world.allreduce(timed(ways[way], a, b, calls), op=MPI.MAX)
            found[way] += [took] if turn else []  # the first one warms up
            assert (b == world.rank + 1).all()
    ratios = [m / s for m, s in zip(found["library"], found["shared"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    times = "".join(f"{statistics.median(found[way]) * 1e6:14.2f}" for way in ways)
    return f"{dtype:<8}{size:>9} B{times}{middle:10.2f}  ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    rounds = parser.parse_args().rounds
    world = MPI.COMM_WORLD
    # Shared memory wherever it is possible, and never.
    ways = {
        "library": dlmpi.wrap(world.Dup(), allreduce="mpi"),
        "shared": dlmpi.wrap(world.Dup(), allreduce="own"),
    }
    if world.rank == 0:
        print(f"{'':<19}{'library us':>14}{'shared us':>14}{'faster':>10}")
    for dtype in ("float32", "float16"):
        for size, calls in SIZES:
            line = row(ways, dtype, size, calls, rounds)
            if world.rank == 0:
                print(line, flush=True)
    for comm in ways.values():
        comm.Free()


if __name__ == "__main__":
    main()
