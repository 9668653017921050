"""What can be known when MPI runs: the world, the thread level, each rank's place and device."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from dlmpi import _gpus, _library, _native, placement
from dlmpi._cli import _facts, _paths

__all__ = ["advice", "by_ranks", "gather", "ranges", "torch_advice"]

_LEVELS = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")


def gather() -> dict[str, Any]:
    """Start MPI and return what all ranks say; collective."""
    from dlmpi import MPI

    world: Any = MPI.COMM_WORLD
    here = placement.place()
    mine = _facts.cores()
    # In which the ranks agree on device memory, where there is an MPI that takes it.
    world.Barrier()
    takes, found, operations = _native.awareness(world)
    row = {
        "host": platform.node(),
        "pid": os.getpid(),
        "node": here.node_rank,
        "local": here.local_rank,
        "cores": mine,
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        "device": _device(here.local_rank),
        "aware": f"{'yes' if takes else 'no'}: {found}",
    }
    rows = world.allgather(row)
    level = MPI.Query_thread()
    names = {getattr(MPI, f"THREAD_{name}"): name for name in _LEVELS}
    facts: dict[str, Any] = {
        "rank": world.Get_rank(),
        "ranks": world.Get_size(),
        "nodes": here.num_nodes,
        "thread level": names.get(level, str(level)),
        "GPU-aware": by_ranks([r["aware"] for r in rows]),
        "device memory": [f"{name}: {way}" for name, way in operations],
        "placement": [
            f"rank {number}: {r['host']}, local rank {r['local']}, cores {ranges(r['cores'])}, "
            f"OMP_NUM_THREADS {r['threads'] or 'unset'}, {r['device']}"
            for number, r in enumerate(rows)
        ],
    }
    facts["dtypes"] = [
        f"{dtype:<12} moved as {moved}; SUM: {total}; MAX: {largest}"
        for dtype, moved, total, largest in _native.ways(world)
    ]
    _paths.settle(world)
    facts["paths"], without = _paths.gather(world, here.local_rank)
    if without:
        facts["no paths of CUDA memory"] = without
    if words := torch_advice(_gpus.visible(), _library.loaded()):
        facts["torch"] = words
    if words := advice([r["cores"] for r in rows if r["node"] == here.node_rank]):
        facts["advice"] = words
    return facts


def torch_advice(gpus: int, files: list[str]) -> str:
    """Return what to give torch where there are GPUs and an MPI of PyPI, which knows none."""
    inside = any(Path(file).is_relative_to(Path(sys.prefix) / "lib") for file in files)
    if not gpus or not inside:
        return ""
    return (
        "this MPI came with a Python package and does not know GPUs: for CUDA tensors use\n"
        'dist.init_process_group("cpu:dlmpi,cuda:nccl", init_method="mpi://")'
    )


def _device(local_rank: int) -> str:
    count = _gpus.visible()
    return f"cuda:{local_rank % count}" if count else "cpu"


def ranges(numbers: list[int]) -> str:
    """Return `0-3,8` for [0, 1, 2, 3, 8]."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in parts)


def advice(cores: list[list[int]], total: int | None = None) -> str:
    """Say what the binding of the ranks of one node to these cores means, if it is a trap."""
    total = total or os.cpu_count() or 1
    narrow = [mine for mine in cores if len(mine) == 1]
    if not narrow or total == 1 or len(cores) > total:
        return ""
    return (
        f"{len(narrow)} of {len(cores)} ranks on this node may use one core each, of {total}: "
        "all threads of a rank (OpenMP, DataLoader workers, non-blocking operations that make "
        "progress) share that core. Open MPI binds so unasked where ranks are few: mpiexec "
        "--bind-to none, or --map-by slot:PE=<cores>; srun: --cpus-per-task=<cores>."
    )


def by_ranks(words: list[str]) -> list[str]:
    """Return what ranks say, those that say the same together."""
    same: dict[str, list[int]] = {}
    for rank, text in enumerate(words):
        same.setdefault(text, []).append(rank)
    if len(same) == 1:
        return list(same)
    return [
        f"rank{'s' if len(who) > 1 else ''} {ranges(who)}: {text}" for text, who in same.items()
    ]
