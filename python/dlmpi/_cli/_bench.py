"""What the benchmark measures: contenders doing the same work, timed in turns inside one run.

Every round times every contender once, in an order shuffled alike on all ranks, on inputs written
just before. The slowest rank counts. Ratios are medians over rounds of what one round gave, since
only neighbours in time saw the same machine.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Case", "Result", "allreduce", "many", "measure", "pin", "transposed"]

#: Does the work so many times and returns the seconds that it took.
Work = Callable[[int], float]
#: From so many bytes on, every single call gets fresh inputs; below, a loop is timed as a whole.
FRESH = 16 << 10
#: Single calls of a round at most.
SAMPLES = 50
#: From so many bytes on, a copy of as many is timed beside a reduction.
COPIED = 128 << 20
#: Where the slowest contender needs so many seconds for a call, so many rounds are enough.
SLOW, FEW = 0.5, 3


@dataclass
class Case:
    """One row of the table: contenders and what gives them fresh inputs."""

    name: str
    nbytes: int
    dtype: str
    framework: str
    contenders: dict[str, Work]
    #: Writes the inputs of this contender anew, and no others: what was written last is in caches.
    refresh: Callable[[str], object]


@dataclass
class Result:
    """Seconds per call, per contender and round."""

    name: str
    nbytes: int
    dtype: str
    framework: str
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def median(self, contender: str) -> float:
        """Return the median seconds of a call."""
        return statistics.median(self.seconds[contender])

    def ratio(self, slow: str, fast: str) -> float | None:
        """Return how many times faster `fast` was than `slow`, or `None` where one is missing."""
        if slow not in self.seconds or fast not in self.seconds:
            return None
        pairs = zip(self.seconds[slow], self.seconds[fast], strict=True)
        return statistics.median(s / f for s, f in pairs)


def pin(local_rank: int, local_size: int) -> str:
    """Bind this rank to a core of its own where there is one for each; say what was done."""
    cores = os.cpu_count() or 1
    if local_size > cores or not hasattr(os, "sched_setaffinity"):
        return f"not pinned: {local_size} ranks on {cores} cores"
    os.sched_setaffinity(0, {local_rank})
    return "rank r on core r"


def measure(world: Any, case: Case, rounds: int, budget: float) -> Result:
    """Time every contender `rounds` times, about `budget` seconds each time."""
    from mpi4py import MPI as mpi  # noqa: N811

    def slowest(seconds: float) -> float:
        return float(world.allreduce(seconds, op=mpi.MAX))

    single = case.nbytes >= FRESH
    alive, calls, longest = {}, {}, 0.0
    for name, work in case.contenders.items():
        try:
            case.refresh(name)
            work(1)  # what is done once is done here
            took, failed = _timed(world, work, 1), 0
        except Exception:  # a library that lacks the dtype; the others go on without it
            took, failed = 0.0, 1
        if not world.allreduce(failed):
            alive[name] = work
            longest = max(longest, slowest(took))
            if single:  # fresh inputs and the word of the slowest rank take their time as well
                start = time.perf_counter()
                case.refresh(name)
                slowest(_timed(world, work, 1))
                took = time.perf_counter() - start
            most = SAMPLES if single else 20_000
            calls[name] = max(1, min(most, int(budget / max(slowest(took), 1e-7))))
    if longest > SLOW:
        rounds = min(rounds, FEW)
    result = Result(case.name, case.nbytes, case.dtype, case.framework, {n: [] for n in alive})
    shuffled = random.Random(case.nbytes)  # the same on every rank
    for _ in range(rounds):
        for name in shuffled.sample(sorted(alive), len(alive)):
            if single:
                samples = []
                for _ in range(calls[name]):
                    case.refresh(name)
                    samples.append(slowest(_timed(world, alive[name], 1)))
                result.seconds[name].append(statistics.median(samples))
            else:
                case.refresh(name)
                result.seconds[name].append(slowest(_timed(world, alive[name], calls[name])))
    return result


def _timed(world: Any, work: Work, calls: int) -> float:
    world.Barrier()
    return work(calls) / calls


def _loop(call: Callable[[], object]) -> Work:
    def work(calls: int) -> float:
        loop = range(calls)
        start = time.perf_counter()
        for _ in loop:
            call()
        return time.perf_counter() - start

    return work


def _arrays(framework: str, dtype: str, n: int) -> tuple[Any, Any, Callable[[], object]]:
    """Return a send and a receive tensor, and what writes the former anew."""
    if framework == "torch":
        import torch

        kind = getattr(torch, dtype)
        send, recv = torch.ones(n, dtype=kind), torch.empty(n, dtype=kind)
        return send, recv, lambda: send.fill_(1)
    import numpy as np

    if dtype == "bfloat16":
        import ml_dtypes

        kind = np.dtype(ml_dtypes.bfloat16)
    else:
        kind = np.dtype(dtype)
    mine, theirs = np.ones(n, kind), np.empty(n, kind)
    return mine, theirs, lambda: mine.fill(1)


def allreduce(world: Any, plain: Any, nbytes: int, kind: tuple[str, str], gloo: Any = None) -> Case:
    """Return the case of a two-buffer Allreduce on ours (`world`) and on mpi4py's (`plain`); `kind`
    is dtype and framework. Large ones are copied as well, which is what memory gives."""
    from dlmpi import _native

    dtype, framework = kind
    itemsize = 4 if dtype == "float32" else 2
    send, recv, refresh = _arrays(framework, dtype, nbytes // itemsize)
    work: dict[str, Work] = {
        "dlmpi": _loop(lambda: world.Allreduce(send, recv)),
        "mpi4py": _loop(lambda: plain.Allreduce(send, recv)),
    }
    if dtype == "bfloat16":
        del work["mpi4py"]  # it would send bytes, which no sum of numbers comes from
    elif framework == "numpy" and nbytes >= COPIED:
        work["memcpy"] = _loop(lambda: _copy(recv, send))
    wide_refresh = refresh
    if dtype != "float32":
        wide_send, wide_recv, wide_refresh = _arrays(framework, "float32", nbytes // 4)
        work["dlmpi float32"] = _loop(lambda: world.Allreduce(wide_send, wide_recv))
        if dtype == "bfloat16":
            work["mpi4py float32"] = _loop(lambda: plain.Allreduce(wide_send, wide_recv))
    else:
        work["raw"] = lambda calls: _native.raw_allreduce(send, recv, plain, calls)
    if gloo is not None and framework == "torch":
        work["gloo"] = _loop(lambda: gloo.all_reduce(recv))

    def anew(contender: str) -> None:
        (wide_refresh if contender.endswith(" float32") else refresh)()

    return Case("Allreduce", nbytes, dtype, framework, work, anew)


def many(world: Any, plain: Any, framework: str, tensors: int = 1000, elements: int = 1000) -> Case:
    """Return the case of many small tensors against one of their size, and against a loop."""
    import dlmpi

    made = [_arrays(framework, "float32", elements)[::2] for _ in range(tensors)]
    parts = [part for part, _ in made]
    whole, _, whole_anew = _arrays(framework, "float32", tensors * elements)
    in_place = plain_in_place()

    def loop() -> None:
        for part in parts:
            plain.Allreduce(in_place, part)

    def anew(contender: str) -> None:
        if contender.endswith("one buffer"):
            whole_anew()
            return
        for _, part_anew in made:
            part_anew()

    work: dict[str, Work] = {
        "allreduce_many": _loop(lambda: dlmpi.allreduce_many(parts, comm=world)),
        "dlmpi, one buffer": _loop(lambda: world.Allreduce(in_place, whole)),
        "mpi4py, one buffer": _loop(lambda: plain.Allreduce(in_place, whole)),
        "mpi4py, a call each": _loop(loop),
    }
    name = f"{tensors} tensors of {elements}"
    return Case(name, whole.nbytes, "float32", framework, work, anew)


def plain_in_place() -> Any:
    """Return MPI.IN_PLACE."""
    from mpi4py import MPI as mpi  # noqa: N811

    return mpi.IN_PLACE


def _copy(target: Any, source: Any) -> None:
    import numpy as np

    np.copyto(target, source)


def transposed(world: Any, plain: Any, side: int = 2048) -> Case:
    """Return the case of a transposed matrix, exchanged between neighbours."""
    import numpy as np
    from mpi4py import MPI as mpi  # noqa: N811

    matrix: Any = np.ones((side, side), np.float32)
    out: Any = np.empty((side, side), np.float32)
    row = mpi.FLOAT.Create_vector(side, 1, side)
    columns = row.Create_hvector(side, 1, 4).Commit()
    row.Free()
    peer = world.Get_rank() ^ 1
    if peer >= world.Get_size():
        peer = mpi.PROC_NULL

    work: dict[str, Work] = {
        "dlmpi": _loop(lambda: world.Sendrecv(matrix.T, peer, 0, out, peer, 0)),
        "derived type": _loop(lambda: plain.Sendrecv([matrix, 1, columns], peer, 0, out, peer, 0)),
    }
    return Case("transposed", matrix.nbytes, "float32", "numpy", work, lambda _: matrix.fill(1))


def sizes(first: int, last: int) -> Iterator[int]:
    """Give sizes in bytes, eight times larger each."""
    while first <= last:
        yield first
        first *= 8
