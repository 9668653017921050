"""`Scan` through shared memory against the library's `MPI_Scan`, both through dlmpi.

    mpiexec -n 2 python benches/scan.py [--rounds 31] [--sizes 8,64,1024] [--dtypes float32]
    ... --call Allreduce     # the same of another reduction

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

#: Bytes.
SIZES = (8, 8 << 10, 256 << 10, 4 << 20)
#: Bytes that the calls of a round work on, of which there are 2 to 1000.
ROUND = 8 << 20


def timed(comm: Any, call: Any, a: np.ndarray, b: np.ndarray, calls: int) -> float:
    comm.Barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call(a, b)
    return (time.perf_counter() - start) / calls


def row(ways: dict[str, Any], name: str, dtype: str, size: int, rounds: int) -> str:
    world, calls = MPI.COMM_WORLD, max(2, min(1000, ROUND // size))
    expected = {"Scan": world.rank + 1, "Exscan": world.rank}.get(name, world.size)
    a = np.ones(size // np.dtype(dtype).itemsize, dtype)
    b = np.zeros_like(a)
    found: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 1):
        for way in list(ways)[:: 1 if turn % 2 else -1]:
            took = world.allreduce(
                timed(ways[way], getattr(ways[way], name), a, b, calls), op=MPI.MAX
            )
            found[way] += [took] if turn else []  # the first one warms up
            assert (b == expected).all()
    ratios = [m / s for m, s in zip(found["library"], found["shared"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    times = "".join(f"{statistics.median(found[way]) * 1e6:14.2f}" for way in ways)
    return f"{dtype:<8}{size:>9} B{times}{middle:10.2f}  ({low:.2f} to {high:.2f})"


def _ints(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--call", default="Scan", choices=["Scan", "Exscan", "Allreduce"])
    parser.add_argument("--sizes", type=_ints, default=SIZES, metavar="BYTES,...")
    parser.add_argument("--dtypes", type=lambda s: s.split(","), default=["float32", "float16"])
    given = parser.parse_args()
    world = MPI.COMM_WORLD
    # Shared memory wherever it is possible, and never.
    ways = {
        "library": dlmpi.wrap(world.Dup(), allreduce="mpi"),
        "shared": dlmpi.wrap(world.Dup(), allreduce="own"),
    }
    if world.rank == 0:
        print(f"{'':<19}{'library us':>14}{'shared us':>14}{'faster':>10}")
    for dtype in given.dtypes:
        for size in given.sizes:
            line = row(ways, given.call, dtype, size, given.rounds)
            if world.rank == 0:
                print(line, flush=True)
    for comm in ways.values():
        comm.Free()


if __name__ == "__main__":
    main()
