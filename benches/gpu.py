"""Staging of GPU tensors against what the bus gives, latency, overlap with compute; with torch.

    mpiexec -n 2 python benches/gpu.py [--quick]

Rows of a table for docs/gpu-results.md. Everything is timed interleaved in one run, as medians; the
ranks may share one GPU. The limit is a copy to the host and one to the device at once, on pinned
memory, on all ranks together: what staging would take if MPI cost nothing.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

import dlmpi
from dlmpi import MPI

QUICK = "--quick" in sys.argv
ROUNDS = 1 if QUICK else 7
#: In MiB, and elements.
SIZES, SIDE = ((1, 2), 64) if QUICK else ((1, 16, 128), 4096)
comm = MPI.COMM_WORLD


def seconds(run: Callable[[], object]) -> float:
    """One run, from a common start until the slowest rank is done."""
    torch.cuda.synchronize()
    comm.Barrier()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return float(comm.allreduce(time.perf_counter() - start, op=MPI.MAX))


def medians(**runs: Callable[[], object]) -> dict[str, float]:
    for run in runs.values():
        run()
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            found[name].append(seconds(run))
    return {name: statistics.median(times) for name, times in found.items()}


def say(*cells: object) -> None:
    if comm.rank == 0:
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def bandwidth(mebibytes: int) -> None:
    n = mebibytes << 18
    sent, room = torch.ones(n, device="cuda"), torch.empty(n, device="cuda")
    out, into = (torch.empty(n, pin_memory=True) for _ in range(2))
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    other = 1 - comm.rank

    def both_ways() -> None:
        with torch.cuda.stream(streams[0]):
            out.copy_(sent, non_blocking=True)
        with torch.cuda.stream(streams[1]):
            room.copy_(into, non_blocking=True)

    host = np.ones(n, np.float32), np.empty(n, np.float32)
    times = medians(
        limit=both_ways,
        sendrecv=lambda: comm.Sendrecv(sent, other, 0, room, other, 0),
        host=lambda: comm.Sendrecv(host[0], other, 0, host[1], other, 0),
        allreduce=lambda: comm.Allreduce(MPI.IN_PLACE, room),
    )
    rate = {name: mebibytes / 1024 / s for name, s in times.items()}
    say(
        f"{mebibytes} MiB",
        *(f"{rate[name]:.2f}" for name in ("limit", "sendrecv", "host", "allreduce")),
        *(f"{rate[name] / rate['limit']:.2f}" for name in ("sendrecv", "allreduce")),
    )


def latency() -> None:
    gpu, host = torch.ones(2, device="cuda"), np.ones(2, np.float32)

    def hundred(tensor: object) -> Callable[[], object]:
        return lambda: [comm.Allreduce(MPI.IN_PLACE, tensor) for _ in range(100)]

    times = medians(gpu=hundred(gpu), host=hundred(host))
    for name, s in times.items():
        say(f"Allreduce of 8 bytes, {name}", f"{s * 1e4:.1f} us")


def overlap() -> None:
    a = torch.rand(SIDE, SIDE, device="cuda")
    tensor = torch.ones(16 << 18, device="cuda")

    def compute() -> None:
        for _ in range(20):
            torch.mm(a, a)

    def both() -> None:
        request = comm.Iallreduce(MPI.IN_PLACE, tensor)
        compute()
        request.Wait()

    times = medians(
        compute=compute, reduce=lambda: comm.Iallreduce(MPI.IN_PLACE, tensor).Wait(), both=both
    )
    hidden = (times["compute"] + times["reduce"] - times["both"]) / min(
        times["compute"], times["reduce"]
    )
    say(
        f"20 products of {SIDE} x {SIDE} and an Iallreduce of 16 MiB",
        f"{hidden:.0%} of the shorter",
    )


def main() -> int:
    if not torch.cuda.is_available() or comm.size != 2:
        print("needs torch with a GPU, and two ranks")
        return 1
    torch.cuda.set_device(dlmpi.device())
    names = ("both ways at once, GiB/s", "Sendrecv", "on the host", "Allreduce")
    say("size", *names, "Sendrecv, of the limit", "Allreduce, of the limit")
    say(*["---"] * 7)
    for mebibytes in SIZES:
        bandwidth(mebibytes)
    if comm.rank == 0:
        print()
    say("what", "median")
    say("---", "---")
    latency()
    overlap()
    return 0


if __name__ == "__main__":
    sys.exit(main())
