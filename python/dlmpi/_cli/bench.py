"""Compare dlmpi with plain mpi4py, with MPI called in a bare loop, and with torch's gloo.

mpiexec -n 2 python -m dlmpi bench                     a table of sizes
mpiexec -n 2 python -m dlmpi bench --targets           whether the targets for 2, 3 or 4 ranks hold
mpiexec -n 2 python -m dlmpi bench --plot bench.png --json bench.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlmpi import _library, launch
from dlmpi._cli import _bench, _targets
from dlmpi._cli._bench import Result

__all__ = ["main"]

_CONTENDERS = ("raw", "mpi4py", "gloo", "dlmpi")


def main(arguments: list[str]) -> int:
    """Run on the ranks of this job; 1 if targets were asked for and one does not hold."""
    parser = argparse.ArgumentParser("python -m dlmpi bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--targets", action="store_true", help="measure and judge the targets")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="at least 5; 7")
    parser.add_argument("--budget", type=float, default=0.05, metavar="SECONDS", help="0.05")
    parser.add_argument(
        "--largest", type=int, metavar="MIB", help="128; with --targets that of the targets"
    )
    parser.add_argument(
        "--limit", type=float, default=540, metavar="SECONDS", help="no case begins later; 540"
    )
    parser.add_argument("--dtypes", default="float32,float16,bfloat16")
    parser.add_argument("--frameworks", default="numpy,torch")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    parser.add_argument("--json", type=Path, metavar="FILE.json")
    options = parser.parse_args(arguments)
    options.rounds = max(5, options.rounds)
    try:
        from dlmpi import MPI
    except launch.LaunchError as error:
        print(f"dlmpi: {error}", file=sys.stderr)
        return 1
    world: Any = MPI.COMM_WORLD
    if world.Get_size() == 1:
        print("one rank has nobody to talk to: mpiexec -n 2 python -m dlmpi bench", file=sys.stderr)
        return 2
    return _ranks(world, options)


def _ranks(world: Any, options: argparse.Namespace) -> int:
    from dlmpi import placement

    first, ranks = world.Get_rank() == 0, world.Get_size()
    pinned = _bench.pin(placement.local_rank(), placement.local_size())
    _one_thread()
    gloo = _gloo(world) if _has_torch() else None
    cases = _cases(world, options, gloo)
    facts = _facts(world, pinned)
    if first:
        print("\n".join(f"{name}: {text}" for name, text in facts.items()), flush=True)
    results = []
    end = time.monotonic() + options.limit
    for number, make in enumerate(cases):
        _progress(first, number, len(cases))
        if world.bcast(time.monotonic() > end, root=0):
            break
        results.append(_bench.measure(world, make(), options.rounds, options.budget))
    _progress(first, len(cases), len(cases))
    if gloo is not None:
        gloo.destroy_process_group()
    judged = _targets.rows(results, ranks, facts["MPI"]) if options.targets else []
    if first:
        print(_table(results), flush=True)
        if judged:
            print(_judgement(judged), flush=True)
        if options.json:
            rows = [vars(result) for result in results]
            found = {"facts": facts, "targets": judged, "results": rows}
            options.json.write_text(json.dumps(found, indent=1))
        if options.plot:
            _plot(options.plot, results, facts)
    return 1 if any(row[3] is False for row in judged) else 0


def _cases(world: Any, options: argparse.Namespace, gloo: Any) -> list[Any]:
    """Return what makes each case: memory for one is there only while it is measured."""
    from mpi4py import MPI as mpi  # noqa: N811

    plain = mpi.COMM_WORLD
    ranks = world.Get_size()
    largest = (options.largest or (_targets.largest(ranks) >> 20 if options.targets else 128)) << 20
    frameworks = [f for f in options.frameworks.split(",") if f != "torch" or _has_torch()]
    made: list[Any] = []

    def reduce(nbytes: int, dtype: str, framework: str) -> None:
        made.append(
            lambda: _bench.allreduce(
                world, plain, nbytes, (dtype, framework), gloo if dtype == "float32" else None
            )
        )

    for framework in frameworks:
        for dtype in options.dtypes.split(","):
            if options.targets:
                sizes = _targets.sizes(ranks, dtype, framework)
            else:
                sizes = sorted({*_bench.sizes(8, largest), 64 << 10, 1 << 20, largest})
            for nbytes in sizes:
                if nbytes <= largest:
                    reduce(nbytes, dtype, framework)
    fused = [lambda f=framework: _bench.many(world, plain, f) for framework in frameworks]
    # What takes longest comes last, since time may run out.
    return [*fused, lambda: _bench.transposed(world, plain), *made]


def _facts(world: Any, pinned: str) -> dict[str, str]:
    from dlmpi import MPI, __version__

    load = "/".join(f"{x:.1f}" for x in os.getloadavg()) if hasattr(os, "getloadavg") else "?"
    return {
        "dlmpi": __version__,
        "MPI": _library.short_version(MPI.Get_library_version()),
        "ranks": str(world.Get_size()),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {load}",
        "placement": pinned,
        "DLMPI_ALLREDUCE": os.environ.get("DLMPI_ALLREDUCE", "auto"),
    }


def _one_thread() -> None:
    if _has_torch():
        import torch

        torch.set_num_threads(1)


def _has_torch() -> bool:
    from importlib.util import find_spec

    return find_spec("torch") is not None


def _gloo(world: Any) -> Any:
    """Start torch's gloo between the ranks; `None` where that fails."""
    import socket

    import torch.distributed as dist

    port = 0
    if world.Get_rank() == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    port = world.bcast(port, root=0)
    failed = 0
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=world.Get_rank(),
            world_size=world.Get_size(),
        )
    except Exception:
        failed = 1
    return None if world.allreduce(failed) else dist


def _progress(first: bool, done: int, total: int) -> None:
    """Draw the bar: over itself on a terminal, else, as behind mpiexec, a line per tenth."""
    live = sys.stderr.isatty()
    if not first or not (live or 10 * done // total > 10 * (done - 1) // total):
        return
    filled = 40 * done // total
    bar = f"[{'#' * filled}{'.' * (40 - filled)}] {done}/{total}"
    end = "" if live and done < total else "\n"
    print(f"\r{bar}" if live else bar, end=end, file=sys.stderr, flush=True)


def _size(nbytes: int) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes} B"


def _table(results: Sequence[Result]) -> str:
    """Return times in microseconds, and how many times faster than each other dlmpi was."""
    lines = []
    for result in results:
        ours = "dlmpi" if "dlmpi" in result.seconds else next(iter(result.seconds))
        times = ", ".join(
            f"{name} {result.median(name) * 1e6:.4g}" for name in sorted(result.seconds, key=_order)
        )
        ratios = ", ".join(
            f"{result.ratio(name, ours):.2f} x {name}" for name in result.seconds if name != ours
        )
        head = f"{result.name} {result.dtype} {result.framework} {_size(result.nbytes)}"
        lines.append(f"{head:<44} us: {times}" + (f"; faster: {ratios}" if ratios else ""))
    return "\n".join(lines)


def _order(name: str) -> tuple[int, str]:
    return (_CONTENDERS.index(name) if name in _CONTENDERS else -1, name)


def _judgement(judged: Sequence[tuple[str, float | None, str, bool | None]]) -> str:
    words: dict[bool | None, str] = {True: "holds", False: "MISSED"}
    lines = [
        f"{name:<58} {'-' if value is None else f'{value:.2f}':>8}  {wanted:<8} "
        + words.get(holds, "not measured" if value is None else "shown only: another MPI's target")
        for name, value, wanted, holds in judged
    ]
    held = sum(row[3] is True for row in judged)
    missing = sum(row[1] is None for row in judged)
    shown = sum(row[3] is None for row in judged) - missing
    more = f", {missing} not measured" if missing else ""
    return "\n".join([*lines, f"{held} of {len(judged) - shown} targets hold{more}"])


def _plot(file: Path, results: Sequence[Result], facts: dict[str, str]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    shown = [r for r in results if r.name == "Allreduce"]
    kinds = list(dict.fromkeys((r.framework, r.dtype) for r in shown))
    figure, axes = pyplot.subplots(1, len(kinds), figsize=(4.2 * len(kinds), 4), squeeze=False)
    for axis, (framework, dtype) in zip(axes[0], kinds, strict=True):
        rows = [r for r in shown if (r.framework, r.dtype) == (framework, dtype)]
        for name in _CONTENDERS:
            points = [(r.nbytes, r.median(name) * 1e6) for r in rows if name in r.seconds]
            if points:
                axis.loglog(*zip(*points, strict=True), marker="o", label=name)
        axis.set(title=f"{dtype}, {framework}", xlabel="bytes", ylabel="us per Allreduce")
        axis.legend()
        axis.grid(visible=True, alpha=0.3)
    figure.suptitle(f"{facts['MPI']}, {facts['ranks']} ranks, {facts['machine']}")
    figure.tight_layout()
    figure.savefig(file, dpi=120)
