"""Look at the trace of a job that ran with DLMPI_TRACE=FILE.

    python -m dlmpi trace summary FILE              time, waits and bandwidth per operation
    python -m dlmpi trace merge FILE [--torch P..]  bring together what a killed job left
    python -m dlmpi trace plot FILE [--out F.png]   the ranks over time (needs matplotlib)

`merge --torch` puts exports of torch.profiler (one per rank) beside the operations.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlmpi import _trace_files
from dlmpi._trace_files import Trace

__all__ = ["Row", "main", "spans", "summary"]


def main(arguments: list[str]) -> int:
    """Run one of the verbs."""
    parser = argparse.ArgumentParser("python -m dlmpi trace", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("summary", "merge", "plot"):
        options = verbs.add_parser(verb)
        options.add_argument("file", type=Path, metavar="FILE")
        if verb == "summary":
            options.add_argument("--json", action="store_true", help="print one JSON object")
        if verb == "merge":
            options.add_argument("--torch", type=Path, nargs="+", default=[], metavar="P")
        if verb == "plot":
            options.add_argument("--out", type=Path, metavar="F.png")
    chosen = parser.parse_args(arguments)
    try:
        return globals()[f"_{chosen.verb}"](chosen)  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError) as error:
        print(f"python -m dlmpi trace: {error}", file=sys.stderr)
        return 1


@dataclass
class Row:
    """What is summed up of one operation with one dtype."""

    calls: int = 0
    bytes: int = 0
    #: Microseconds per rank: all of it, and the part that was waiting for the last rank.
    time: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    wait: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    paths: set[str] = field(default_factory=set)
    failed: int = 0


def spans(trace: Trace) -> Iterator[tuple[dict[str, Any], float, float]]:
    """Yield every operation and stretch of the user's: event, start and end."""
    opened: dict[tuple[int, int], dict[str, Any]] = {}
    for event in trace.events:
        if event["ph"] == "b":
            opened[event["pid"], event["id"]] = event
        elif event["ph"] == "e":
            begun = opened.pop((event["pid"], event["id"]), None)
            if begun is not None:
                yield begun, begun["ts"], event["ts"]
        elif event["ph"] == "X" and "dur" in event:
            yield event, event["ts"], event["ts"] + event["dur"]


def summary(trace: Trace) -> dict[tuple[str, str], Row]:
    """Sum up the operations by name and dtype, the longest first."""
    rows: dict[tuple[str, str], Row] = defaultdict(Row)
    for event, start, end in spans(trace):
        if event.get("cat") not in ("collective", "message", "mpi4py"):
            continue
        args = event["args"]
        row = rows[event["name"], args.get("dtype", "")]
        row.calls += 1
        row.bytes += args.get("bytes", 0)
        row.time[event["pid"]] += end - start
        row.wait[event["pid"]] += args.get("wait_us", 0.0)
        row.paths.add(", ".join(dict.fromkeys(filter(None, (args["path"], args["algorithm"])))))
        row.failed += bool(args.get("failed"))
    return dict(sorted(rows.items(), key=lambda item: -sum(item[1].time.values())))


def _facts(row: Row, ranks: int) -> dict[str, Any]:
    """Turn sums into what a person compares; times are means over the ranks of the job."""
    total, wait = sum(row.time.values()), sum(row.wait.values())
    moving = total - wait
    mean = total / ranks
    # Whom the others waited for; where nobody can know that, who took longest.
    slowest = min(row.time, key=lambda rank: row.wait[rank] if wait else -row.time[rank])
    return {
        "calls": row.calls,
        "seconds_per_rank": mean / 1e6,
        "wait_share": wait / total if total else 0.0,
        "slowest_rank": slowest,
        "imbalance": max(row.time.values()) / mean if mean else 1.0,
        "bytes": row.bytes,
        # What a rank handed over, by the time in which it did not wait for others.
        "bytes_per_second": row.bytes / moving * 1e6 if moving > 0 else 0.0,
        "paths": sorted(row.paths),
        "failed": row.failed,
    }


def _summary(chosen: argparse.Namespace) -> int:
    trace = _trace_files.load(chosen.file)
    ranks = max(trace.ranks, 1)
    table = {key: _facts(row, ranks) for key, row in summary(trace).items()}
    end = max((end for _, _, end in spans(trace)), default=0.0)
    if chosen.json:
        rows = [{"name": name, "dtype": dtype, **row} for (name, dtype), row in table.items()]
        print(json.dumps({"ranks": trace.ranks, "broken": trace.broken, "rows": rows}, indent=1))
        return 0
    print(f"{trace.ranks} ranks on {trace.nodes} node(s), {end / 1e6:.3f} s")
    if trace.broken:
        print(f"the files of ranks {trace.broken} end early: killed, or still running")
    head = ("operation", "dtype", "calls", "s/rank", "wait", "slowest", "imbalance", "GB/s")
    print(f"{head[0]:<22}{head[1]:<12}" + "".join(f"{name:>10}" for name in head[2:]) + "  path")
    for (name, dtype), row in table.items():
        failed = f", {row['failed']} FAILED" if row["failed"] else ""
        print(
            f"{name:<22}{dtype:<12}{row['calls']:>10}{row['seconds_per_rank']:>10.4f}"
            f"{row['wait_share']:>9.0%} {'rank ' + str(row['slowest_rank']):>9}"
            f"{row['imbalance']:>10.2f}{row['bytes_per_second'] / 1e9:>10.3f}"
            f"  {'; '.join(row['paths'])}{failed}"
        )
    return 0


def _merge(chosen: argparse.Namespace) -> int:
    folder = _trace_files.parts_of(chosen.file)
    if not folder.is_dir() and not chosen.torch:
        raise FileNotFoundError(f"{folder}: no such folder; was the trace merged already?")
    trace = _trace_files.merge(chosen.file, folder, chosen.torch)
    print(f"{chosen.file}: {len(trace.events)} events of {trace.ranks} ranks")
    if trace.broken:
        print(f"the files of ranks {trace.broken} end early")
    return 0


def _plot(chosen: argparse.Namespace) -> int:
    try:
        import matplotlib as mpl
    except ImportError:
        print("trace plot needs matplotlib: pip install matplotlib", file=sys.stderr)
        return 1
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    trace = _trace_files.load(chosen.file)
    kinds = ("collective", "message", "mpi4py")
    found = [row for row in spans(trace) if row[0].get("cat") in kinds]
    names = sorted({event["name"] for event, _, _ in found})
    palette = plt.get_cmap("tab20")
    colours = {name: palette(number % 20) for number, name in enumerate(names)}
    figure, axes = plt.subplots(figsize=(12, 1.5 + 0.5 * trace.ranks), layout="constrained")
    for name in names:
        rows = [row for row in found if row[0]["name"] == name]
        first = min(event["pid"] for event, _, _ in rows)
        for rank in range(trace.ranks):
            mine = [row for row in rows if row[0]["pid"] == rank]
            bars = [(start / 1e6, (end - start) / 1e6) for _, start, end in mine]
            waits = [(start / 1e6, e["args"].get("wait_us", 0) / 1e6) for e, start, _ in mine]
            label = name if rank == first else None
            axes.broken_barh(bars, (rank - 0.4, 0.8), color=colours[name], label=label)
            axes.broken_barh(waits, (rank - 0.4, 0.8), color="white", alpha=0.6)
    axes.set(xlabel="seconds (pale: waiting for the last rank)", ylabel="rank")
    axes.set_yticks(range(trace.ranks))
    axes.invert_yaxis()
    if names:
        figure.legend(loc="outside right upper", fontsize="small")
    out = chosen.out or chosen.file.with_suffix(".png")
    figure.savefig(out, dpi=120)
    print(out)
    return 0
