"""What the safety net costs a call: the sampled check on COMM_SELF, the trace, the watch.

    python benches/safety_cost.py

Each row is a child process with other settings; rounds are interleaved, medians are printed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 7
CALLS = 100_000
ROWS = {
    "check off": {"DLMPI_CHECK": "off"},
    "check sampled": {},
    "trace on": {"DLMPI_TRACE": "trace.json"},
    "timeout set": {"DLMPI_TIMEOUT": "60"},
}


def child() -> None:
    """Print the nanoseconds of one 8-byte Allreduce on COMM_SELF."""
    import time

    import numpy as np

    from dlmpi import MPI

    call, data, out = MPI.COMM_SELF.Allreduce, np.ones(1), np.empty(1)
    for _ in range(CALLS // 10):
        call(data, out)
    start = time.perf_counter()
    for _ in range(CALLS):
        call(data, out)
    print((time.perf_counter() - start) / CALLS * 1e9, flush=True)


def main() -> None:
    found: dict[str, list[float]] = {name: [] for name in ROWS}
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DLMPI_")}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            for name, variables in ROWS.items():
                done = subprocess.run(
                    [sys.executable, str(Path(__file__).resolve()), "child"],
                    env=clean | variables,
                    cwd=folder,
                    check=True,
                    capture_output=True,
                    text=True,
                    timeout=120,
                )
                found[name].append(float(done.stdout.split()[-1]))
    base = statistics.median(found["check off"])
    for name, times in found.items():
        middle = statistics.median(times)
        print(f"{name:<16}{middle:8.0f} ns a call, {middle - base:+7.0f} ns")


if __name__ == "__main__":
    child() if sys.argv[1:] == ["child"] else main()
