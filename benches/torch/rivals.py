"""Two process groups over the same ranks, and how their times are compared: in turns, by medians.

A ratio is the median over rounds of (gloo's time / dlmpi's time), where a round times both, one
right after the other, in an order that alternates. A time is that of the slowest rank.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import dlmpi.torch

Call = Callable[[Any], object]
OURS, THEIRS = "dlmpi", "gloo"


@contextmanager
def groups() -> Iterator[dict[str, Any]]:
    """Join the ranks that mpiexec started in one group of each backend."""
    torch.set_num_threads(1)
    dist.init_process_group(OURS)
    try:
        yield {OURS: dist.group.WORLD, THEIRS: dist.new_group(backend=THEIRS)}
    finally:
        dist.destroy_process_group()


def elapsed(call: Call, group: Any, repeat: int) -> float:
    """Return the seconds of one call, on the slowest rank."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(repeat):
        call(group)
    spent = torch.tensor((time.perf_counter() - start) / repeat, dtype=torch.float64)
    dist.all_reduce(spent, dist.ReduceOp.MAX)
    return float(spent)


def agreed_repeat(call: Call, group: Any, budget: float) -> int:
    """Return how many calls fit in `budget` seconds: the same number on all ranks."""
    call(group)
    return max(1, min(200, int(budget / elapsed(call, group, 2))))


def compare(
    call: Call, by_name: dict[str, Any], rounds: int, budget: float = 0.02
) -> dict[str, list[float]]:
    """Time a call on both groups, in turns."""
    repeat = {name: agreed_repeat(call, group, budget) for name, group in by_name.items()}
    seconds: dict[str, list[float]] = {name: [] for name in by_name}
    for number in range(rounds):
        order = list(by_name) if number % 2 else list(by_name)[::-1]
        for name in order:
            seconds[name].append(elapsed(call, by_name[name], repeat[name]))
    return seconds


def ratio(seconds: dict[str, list[float]]) -> float:
    """Return how many times faster dlmpi was."""
    rounds = zip(seconds[OURS], seconds[THEIRS], strict=True)
    return statistics.median(theirs / ours for ours, theirs in rounds)


def options(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="where rank 0 writes all times")
    return parser


def write(path: Path | None, rows: list[dict[str, Any]]) -> None:
    """Keep every time, and what it was measured on."""
    if path is None or dist.get_rank():
        return
    about = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dlmpi": dlmpi.__version__,
        "ranks": dist.get_world_size(),
    }
    path.write_text(json.dumps({"about": about, "results": rows}, indent=1) + "\n")
