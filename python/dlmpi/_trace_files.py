"""Brings the ranks' trace files together: one clock for all, wait and transfer told apart.

Processes of one node share a clock. Between nodes the clocks of the day are the first guess, and no
rank can have left a collective of all before every rank had entered it, which bounds the error from
both sides. Reads what is there of a file whose process was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Trace", "load", "merge", "merge_if_complete", "parts_of", "read_part"]

Event = dict[str, Any]

#: No rank leaves one of these before every rank has entered it.
MEETINGS = {
    "Barrier",
    "Allreduce",
    "Allgather",
    "Allgatherv",
    "Alltoall",
    "Alltoallv",
    "Reduce_scatter",
    "Reduce_scatter_block",
    "allreduce_many",
}


@dataclass
class Part:
    """What one rank wrote."""

    rank: int
    header: dict[str, Any]
    events: list[Event] = field(default_factory=list)
    complete: bool = False


@dataclass
class Trace:
    """All of a job: events on one clock, in microseconds from the first."""

    events: list[Event]
    ranks: int
    #: Ranks whose file ends early, or is missing.
    broken: list[int]
    nodes: int
    #: What to add to microseconds since 1970 on a rank to get the trace's.
    day: dict[int, float] = field(default_factory=dict)


def parts_of(target: Path) -> Path:
    """Return the folder of the ranks' files of a trace."""
    return target.with_name(target.name + ".ranks")


def read_part(path: Path) -> Part | None:
    """Read what is there of a rank's file; None if not even its header is."""
    part: Part | None = None
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                event = json.loads(line.strip().rstrip(","))
            except ValueError:
                continue  # the brackets, and a line that was cut off
            if event.get("name") == "dlmpi":
                part = Part(event["pid"], event["args"])
            elif event.get("name") == "dlmpi_end" and part is not None:
                part.complete = True
            elif event.get("ph") in ("X", "b", "e") and part is not None:
                part.events.append(event)
    return part


def load(target: Path) -> Trace:
    """Read a trace: the file of the whole job, or the folder of the ranks' files beside it."""
    if target.is_file():
        data = json.loads(target.read_text(encoding="utf-8"))
        facts = data.get("otherData", {})
        return Trace(
            [event for event in data["traceEvents"] if event.get("ph") != "M"],
            facts.get("ranks", 0),
            facts.get("broken", []),
            facts.get("nodes", 1),
            {int(rank): add for rank, add in facts.get("day", {}).items()},
        )
    folder = target if target.is_dir() else parts_of(target)
    if not folder.is_dir():
        raise FileNotFoundError(f"{target}: no trace there, and no folder {folder.name} beside it")
    return join(read_part(path) for path in sorted(folder.glob("*.json")))


def join(found: Iterable[Part | None]) -> Trace:
    """Put the events of all ranks on one clock, and tell wait and transfer apart."""
    parts = [part for part in found if part is not None]
    if not parts:
        raise ValueError("no rank's file holds anything")
    size = parts[0].header["size"]
    parts = [part for part in parts if part.rank < size]
    offsets = _offsets(parts)
    _shift(parts, offsets)
    events = [event for part in parts for event in part.events]
    _split_waits(events)
    first = min((event["ts"] for event in events), default=0.0)
    for event in events:
        event["ts"] = round(event["ts"] - first, 3)
    events.sort(key=lambda event: event["ts"])
    there = {part.rank for part in parts if part.complete}
    day = {
        part.rank: offsets[part.header["node"]]
        - (part.header["real_ns"] - part.header["monotonic_ns"]) / 1e3
        - first
        for part in parts
    }
    return Trace(events, size, sorted(set(range(size)) - there), len(offsets), day)


def _calls(events: Iterable[Event]) -> Iterable[tuple[tuple[int, int], Event, float, float]]:
    """Yield every numbered collective: its communicator and number, event, start and end."""
    opened: dict[tuple[int, int], Event] = {}
    for event in events:
        if event["ph"] == "b":
            opened[event["pid"], event["id"]] = event
            continue
        if event["ph"] == "e":
            begun = opened.pop((event["pid"], event["id"]), None)
            if begun is None:
                continue
            call, end = begun, event["ts"]
        else:
            call, end = event, event["ts"] + event["dur"]
        args = call.get("args", {})
        if args.get("comm") and not args.get("failed"):
            yield (args["comm"], args["call"]), call, call["ts"], end


def _offsets(parts: Sequence[Part]) -> dict[str, float]:
    """Return what to add to each node's clock, in microseconds, to get the first node's."""
    nodes = list(dict.fromkeys(part.header["node"] for part in parts))
    by_day: dict[str, float] = {}
    for part in parts:
        header = part.header
        by_day.setdefault(header["node"], (header["real_ns"] - header["monotonic_ns"]) / 1e3)
    offsets = {node: by_day[node] - by_day[nodes[0]] for node in nodes}
    # Per call and node: when the last rank entered, and when the first one left.
    seen: dict[tuple[int, int], dict[str, tuple[float, float]]] = defaultdict(dict)
    for part in parts:
        node = part.header["node"]
        for key, event, start, end in _calls(part.events):
            if event["name"] in MEETINGS:
                entered, left = seen[key].get(node, (start, end))
                seen[key][node] = (max(entered, start), min(left, end))
    for node in nodes[1:]:
        low, high = float("-inf"), float("inf")
        for places in seen.values():
            if nodes[0] in places and node in places:
                (entered, left), (entered_there, left_there) = places[nodes[0]], places[node]
                low, high = max(low, entered - left_there), min(high, left - entered_there)
        if low <= high and low > float("-inf") and high < float("inf"):
            # Inside the bounds the day's clock may be right; the middle is the best guess else.
            guess = offsets[node]
            offsets[node] = guess if low <= guess <= high else (low + high) / 2
    return offsets


def _shift(parts: Sequence[Part], offsets: dict[str, float]) -> None:
    for part in parts:
        offset = offsets[part.header["node"]]
        for event in part.events:
            event["ts"] += offset


def _split_waits(events: list[Event]) -> None:
    """Note in each collective how long its rank waited for the last one to enter."""
    calls = defaultdict(list)
    for part in _by_rank(events).values():
        for key, event, start, end in _calls(part):
            calls[key].append((event, start, end))
    for rows in calls.values():
        last = max(start for _, start, _ in rows)
        for event, start, end in rows:
            wait = min(max(last - start, 0.0), end - start)
            event["args"]["wait_us"] = round(wait, 3)
            event["args"]["transfer_us"] = round(end - start - wait, 3)


def _by_rank(events: Iterable[Event]) -> dict[int, list[Event]]:
    ranks: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        ranks[event["pid"]].append(event)
    return ranks


def merge(target: Path, folder: Path, others: Sequence[Path] = ()) -> Trace:
    """Write all ranks' files, or what was merged before, and profiles of torch as one file."""
    if folder.is_dir():
        trace = join(read_part(path) for path in sorted(folder.glob("*.json")))
    else:
        trace = load(target)
    for profile in others:
        trace.events += _profile(profile, trace)
    names = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
        for rank in sorted(trace.day)
    ]
    facts = {"ranks": trace.ranks, "broken": trace.broken, "nodes": trace.nodes, "day": trace.day}
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    with fresh.open("w", encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ms", "otherData": ' + json.dumps(facts))
        out.write(', "traceEvents": [\n')
        out.write(",\n".join(json.dumps(event) for event in [*names, *trace.events]))
        out.write("\n]}\n")
    fresh.replace(target)
    return trace


def _profile(path: Path, trace: Trace) -> list[Event]:
    """Read what `torch.profiler` exported on one rank, as events of this trace's clock."""
    data = json.loads(path.read_text(encoding="utf-8"))
    rank = data.get("distributedInfo", {}).get("rank")
    base = data.get("baseTimeNanoseconds")
    if rank not in trace.day or base is None:
        raise ValueError(
            f"{path}: expected an export of torch.profiler with the rank of a torch.distributed "
            f"group and baseTimeNanoseconds, found rank {rank} and base {base}"
        )
    events = []
    for event in data["traceEvents"]:
        if event.get("ph") == "X":
            ts = base / 1e3 + float(event["ts"]) + trace.day[rank]
            args = {"pid": rank, "tid": f"torch {event['tid']}", "ts": round(ts, 3)}
            events.append({**event, **args})
    return events


def merge_if_complete(target: Path, folder: Path) -> bool:
    """Merge if every rank has closed its file and nobody else does so; the parts go then."""
    paths = sorted(folder.glob("*.json"))
    if not all(_is_closed(path) for path in paths):
        return False
    first = read_part(paths[0]) if paths else None
    if first is None or len(paths) < first.header["size"]:
        return False
    lock = folder / "merging"
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    try:
        merge(target, folder)
        for path in paths:
            path.unlink()
    finally:
        lock.unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()
    return True


def _is_closed(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 64, 0))
        return b'"dlmpi_end"' in file.read()
