"""What dlmpi adds to calls that mpi4py could have made: small NumPy arrays, objects.

    mpiexec -n 2 python benches/latency.py     # microseconds; needs a quiet machine
    python benches/latency.py                  # the same on COMM_SELF, in the processor's time
    python benches/latency.py --instructions   # instructions there, by valgrind
    ... --only objects,Bcast --bytes 4096 --rounds 31

Each round times plain mpi4py and dlmpi in turn, and the order alternates. What is printed is the
median of both, the median of the rounds' ratios and its quartiles. A row is `above` mpi4py where
its ratio is beyond LIMIT.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from latency_calls import CALLS, Loop, Names

#: Ratios up to this one are not above mpi4py: two runs of one program differ by as much.
LIMIT = 1.05
#: Seconds of one round of one side.
ROUND = 0.004
#: Calls that are counted together.
COUNTED = 20
#: valgrind writes what it has counted when this function of the C library is called.
MARK = "hcreate"


def rows(only: list[str]) -> Iterator[tuple[str, str, str]]:
    """Give group, name and statement of the rows that are wanted."""
    for group, calls in CALLS.items():
        for name, statement in calls.items():
            if not only or any(word in {group, name} or word in name.split() for word in only):
                yield group, name, statement


def title(words: str) -> str:
    return f"{'':<28}{'mpi4py':>10}{'dlmpi':>10}{'ratio':>8}   {words}"


def line(name: str, plain: float, ours: float, ratio: float, words: str = "") -> str:
    return f"{name:<28}{plain:10.2f}{ours:10.2f}{ratio:8.2f}   {words}"


def verdict(ratios: dict[str, float]) -> str:
    above = [f"{name} {ratio:.2f}" for name, ratio in ratios.items() if ratio > LIMIT]
    good = len(ratios) - len(above)
    words = f"{good} of {len(ratios)} rows are not above mpi4py's (ratio up to {LIMIT})"
    return words + (f"; above: {', '.join(above)}" if above else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--marked", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.instructions:
        count(given)
    elif given.marked:
        mark_all(given)
    else:
        measure(given)


def sides(size: int, alone: bool = False) -> dict[str, Names]:
    """Return what the statements work on, of both modules."""
    from mpi4py import MPI as PLAIN

    from dlmpi import MPI

    name = "COMM_SELF" if alone or PLAIN.COMM_WORLD.size == 1 else "COMM_WORLD"
    return {
        "mpi4py": Names(PLAIN, getattr(PLAIN, name), size),
        "dlmpi": Names(MPI, getattr(MPI, name), size),
    }


def measure(given: argparse.Namespace) -> None:
    """Time every row on all ranks."""
    from mpi4py import MPI as PLAIN

    world = PLAIN.COMM_WORLD
    clock = time.process_time if world.size == 1 else time.perf_counter
    both, ratios = sides(given.bytes), {}

    def timed(loop: Loop, calls: int) -> float:
        world.Barrier()
        start = clock()
        loop(calls)
        return float(world.allreduce((clock() - start) / calls, op=PLAIN.MAX))

    if world.rank == 0:
        print(title(f"{PLAIN.Get_library_version().split(',')[0]}, {world.size} ranks, us"))
    last = ""
    for group, name, statement in rows(given.only):
        loops = {who: names.loop(statement) for who, names in both.items()}
        first = max(timed(loop, 20) for loop in loops.values())  # also warms up
        calls = max(5, int(ROUND / max(first, 1e-7)))
        found: dict[str, list[float]] = {who: [] for who in loops}
        for turn in range(given.rounds):
            for who in list(loops)[:: 1 if turn % 2 else -1]:
                found[who].append(timed(loops[who], calls) * 1e6)
        each = [d / m for d, m in zip(found["dlmpi"], found["mpi4py"], strict=True)]
        low, ratios[name], high = statistics.quantiles(each, n=4)
        middle = [statistics.median(times) for times in found.values()]
        if world.rank == 0:
            print(f"-- {group}\n" * (group != last), end="")
            print(line(name, *middle, ratios[name], f"({low:.2f} to {high:.2f})"), flush=True)
        last = group
    if world.rank == 0:
        print(verdict(ratios))
    for names in both.values():
        names.free()


def mark_all(given: argparse.Namespace) -> None:
    """Execute every row between two marks, on both sides; the first pair has no row."""
    both = sides(given.bytes, alone=True)
    mark = getattr(ctypes.CDLL(None), MARK)
    empty = both["mpi4py"].loop("pass")
    loops = [names.loop(text) for *_, text in rows(given.only) for names in both.values()]
    for loop in [empty, *loops]:
        loop(COUNTED)
        mark(1)
        loop(COUNTED)
        mark(1)
    for names in both.values():
        names.free()


def count(given: argparse.Namespace) -> None:
    """Count the instructions of every row, in a process of its own."""
    arguments = ["--marked", f"--bytes={given.bytes}"]
    arguments += [f"--only={','.join(given.only)}"] if given.only else []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "counts"
        subprocess.run(
            [
                *("valgrind", "--tool=callgrind", "-q", f"--dump-before={MARK}_r"),
                *(f"--callgrind-out-file={out}", sys.executable, __file__, *arguments),
            ],
            check=True,
            env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        )
        parts = sorted(Path(folder).glob("counts.*"), key=lambda path: int(path.suffix[1:]))
        # Between a row's first mark and its second one.
        empty, *counts = [summary(part) / COUNTED for part in parts[1::2]]
    print(title("instructions of a call on COMM_SELF"))
    last, ratios = "", {}
    for (group, name, _), plain, ours in zip(
        rows(given.only), counts[::2], counts[1::2], strict=True
    ):
        print(f"-- {group}\n" * (group != last), end="")
        last, ratios[name] = group, (ours - empty) / (plain - empty)
        print(line(name, plain - empty, ours - empty, ratios[name]))
    print(verdict(ratios))


def summary(part: Path) -> int:
    """Return the instructions of one part of callgrind's output."""
    found = [text for text in part.read_text().splitlines() if text.startswith("summary:")]
    return int(found[0].split()[1])


if __name__ == "__main__":
    main()
