"""What the engine costs two busy ranks: the rate of a fixed computation with and without an
operation under way that cannot end yet, interleaved, medians.

    mpiexec -n 2 python benches/engine_cost.py
"""

import statistics
import time

import numpy as np

from dlmpi import MPI

ROUNDS = 15
SECONDS = 0.2


def rate() -> float:
    """Multiplications of small matrices per second: interpreter and arithmetic, as in training."""
    a = np.full((64, 64), 0.5)
    done, end = 0, time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for _ in range(20):
            a = a @ a * 1e-2
        done += 20
    return done / SECONDS


def main() -> None:
    comm = MPI.COMM_WORLD
    data, out = np.ones(1000), np.empty(1000)
    comm.Iallreduce(data, out).Wait()  # the engine's thread exists from here on
    idle, waiting = [], []
    for _ in range(ROUNDS):
        comm.Barrier()
        idle.append(rate())
        comm.Barrier()
        # Rank 0 starts an operation that rank 1 joins only after its own measurement.
        first = comm.Iallreduce(data, out) if comm.rank == 0 else None
        waiting.append(rate())
        request = first or comm.Iallreduce(data, out)
        request.Wait()
    ratio = statistics.median(waiting) / statistics.median(idle)
    for line in (
        comm.gather((comm.rank, statistics.median(idle), statistics.median(waiting), ratio)) or []
    ):
        print(
            "rank {}: idle {:.0f}/s, with an operation under way {:.0f}/s, ratio {:.3f}".format(
                *line
            )
        )


if __name__ == "__main__":
    main()
