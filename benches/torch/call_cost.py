"""What torch.distributed costs on top of dlmpi's own call, for a few bytes, interleaved in one run.

    mpiexec -n 2 python benches/torch/call_cost.py

A group that does nothing shows what torch's own Python takes of it. Calls are timed in short
bursts; one in twenty is faster than what is printed first: on a machine that does other things too,
most of them are interrupted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from rivals import options, write

from dlmpi import MPI

TARGET = 4.0
CALLS = 20


class Nothing(dist.ProcessGroup):
    """A group whose reductions have ended before they began."""

    def allreduce(self, _tensors: object, _opts: object) -> None:
        """Do nothing."""


def elapsed(call: Callable[[], object]) -> float:
    MPI.COMM_WORLD.Barrier()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS * 1e6


def low(found: list[float]) -> float:
    """Return what one burst in twenty is faster than."""
    return sorted(found)[len(found) // 20]


def main() -> None:
    parser = options(__doc__)
    parser.set_defaults(rounds=1000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("dlmpi")
    comm = MPI.COMM_WORLD.Dup()
    x = torch.zeros(2)
    nothing = Nothing(dist.HashStore(), dist.get_rank(), dist.get_world_size())
    c10d = dist.distributed_c10d
    # torch looks a group's ranks up before it calls it.
    c10d._world.pg_group_ranks[nothing] = c10d._world.pg_group_ranks[dist.group.WORLD]
    calls: dict[str, Callable[[], object]] = {
        "comm.Allreduce": lambda: comm.Allreduce(MPI.IN_PLACE, x),
        "torch alone": lambda: dist.all_reduce(x, group=nothing),
        "dist.all_reduce": lambda: dist.all_reduce(x),
        "async_op=True and wait": lambda: dist.all_reduce(x, async_op=True).wait(),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        elapsed(call)  # calls are compared at first
    for _ in range(arguments.rounds):
        for name, call in calls.items():
            times[name].append(elapsed(call))
    rows = []
    for name, found in times.items():
        quick, usual = low(found), statistics.median(found)
        over = quick - low(times["comm.Allreduce"])
        over_usual = usual - statistics.median(times["comm.Allreduce"])
        rows.append({"call": name, "microseconds": found, "over": over})
        if dist.get_rank() == 0:
            print(
                f"{name:24}{quick:8.2f} us, {over:+7.2f} us; "
                f"median {usual:8.2f} us, {over_usual:+7.2f} us"
            )
    if dist.get_rank() == 0:
        print(f"target: dist.all_reduce at most {TARGET:g} us over comm.Allreduce")
    write(arguments.json, rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
