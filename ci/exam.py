"""Torch's own distributed tests as an exam of `dlmpi.torch`: starts them under mpiexec, starts them
anew after a failure or a hang, and counts.

Usage: python ci/exam.py NAME RANKS [PATTERN ...]    (NAME: gloo, mpi or dlmpi; in .venv)
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import IO

from workplace import LOGS, MAIN, Venv, mpi_environment, run

WORKER = Path(__file__).with_name("exam_worker.py")
#: Most of the time of a run is torch's import; the rest is this many times more.
LIMIT = 60.0
MOST_STARTS = 40
#: What cannot pass under another name than ours: it compares the name.
EXPECTED = {"test_ddp_logging_data_cpu"}


def sit(
    log: IO[str], venv: Venv, row: tuple[str, int], patterns: list[str], results: Path
) -> list[dict[str, str]]:
    """Run the tests under a backend's name on so many ranks; a row for each.

    All of them, or those whose names hold a pattern.
    """
    name, ranks = row
    results.parent.mkdir(parents=True, exist_ok=True)
    results.unlink(missing_ok=True)
    current = results.with_suffix(".current")
    current.unlink(missing_ok=True)
    environment = {
        **mpi_environment(),
        "BACKEND": name,
        "WORLD_SIZE": str(ranks),
        "DLMPI_EXAM_LIMIT": str(LIMIT),
    }
    line = venv.mpiexec(ranks, venv.python, str(WORKER), str(results), *patterns)
    for _ in range(MOST_STARTS):
        begin = time.monotonic()
        code = run(line, log, 1800.0, environment)
        if code == 0 and not current.exists():
            break
        rows = read(results)
        if current.exists() and (test := current.read_text()) not in {row["test"] for row in rows}:
            why = f"hung or crashed (exit code {code} after {time.monotonic() - begin:.0f} s)"
            with results.open("a") as file:
                file.write(json.dumps({"test": test, "status": "fail", "why": why}) + "\n")
        elif code and not current.exists():
            log.write("the ranks did not start\n")
            break
    return read(results)


def read(results: Path) -> list[dict[str, str]]:
    """The rows so far."""
    return [json.loads(line) for line in results.open()] if results.exists() else []


def counts(rows: list[dict[str, str]]) -> dict[str, int]:
    """How many passed, failed and were skipped."""
    found = dict.fromkeys(("pass", "fail", "skip"), 0)
    for row in rows:
        found[row["status"]] += 1
    return found


def main() -> int:
    name, ranks, *patterns = sys.argv[1:]
    results = LOGS / f"exam-{name}-{ranks}.jsonl"
    LOGS.mkdir(parents=True, exist_ok=True)
    with results.with_suffix(".log").open("w") as log:
        rows = sit(log, MAIN, (name, int(ranks)), patterns, results)
    for row in rows:
        if row["status"] == "fail":
            print(f"FAIL {row['test']}: {row['why']}")
    print(counts(rows))
    return bool(counts(rows)["fail"]) or not rows


if __name__ == "__main__":
    sys.exit(main())
