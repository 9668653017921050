"""Work handed out by a counter in one process's memory, and a histogram that all add to.

A program for mpi4py that knows nothing of dlmpi. `Fetch_and_op` gives each piece of work to exactly
one process; `Accumulate` adds its result where it belongs; `Compare_and_swap` finds one winner. The
histogram is compared with that of one process.
"""

import sys

import numpy as np
from mpi4py import MPI

PIECES, LENGTH, BINS = 50, 97, 13


def piece(number):
    return np.random.default_rng(number).integers(0, BINS, LENGTH)


def main():
    comm = MPI.COMM_WORLD
    at_root = comm.rank == 0
    counter = np.zeros(2 if at_root else 0, "i8")
    bins = np.zeros(BINS if at_root else 0, "i8")
    steps = MPI.Win.Create(counter, 8, comm=comm)
    sums = MPI.Win.Create(bins, 8, comm=comm)
    one, number, done = np.ones(1, "i8"), np.empty(1, "i8"), []
    steps.Lock_all()
    sums.Lock_all()
    while True:
        number.fill(-1)
        steps.Fetch_and_op(one, number, 0, 0, MPI.SUM)
        steps.Flush(0)
        if number[0] >= PIECES:
            break
        done.append(int(number[0]))
        sums.Accumulate(np.bincount(piece(number[0]), minlength=BINS), 0, op=MPI.SUM)
        sums.Flush(0)
    before = np.full(1, -1, "i8")
    steps.Compare_and_swap(np.full(1, comm.rank + 1), np.zeros(1, "i8"), before, 0, 1)
    steps.Flush(0)
    sums.Unlock_all()
    steps.Unlock_all()
    comm.Barrier()
    everything = comm.allgather((done, int(before[0])))
    handed_out = sorted(n for numbers, _ in everything for n in numbers)
    steps.Free()
    sums.Free()
    if handed_out != list(range(PIECES)):
        sys.exit(f"counter: handed out {handed_out}")
    if sum(seen == 0 for _, seen in everything) != 1:
        sys.exit(f"counter: winners of the swap: {everything}")
    if at_root:
        want = sum(np.bincount(piece(n), minlength=BINS) for n in range(PIECES))
        if not np.array_equal(bins, want):
            sys.exit(f"counter: {bins}, not {want}")
        print("counter: each piece once, and the sums are right")


if __name__ == "__main__":
    main()
