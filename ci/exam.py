"""Torch's own distributed tests as an exam of `dlmpi.torch`: starts them under mpiexec, starts them
anew after a failure or a hang, and counts.

Usage: python ci/exam.py NAME RANKS [PATTERN ...]    NAME: gloo, mpi or dlmpi; in .venv
       python ci/exam.py all     everything, older torches too; writes docs/torch-exam.md
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import venvs
from workplace import DIST, LOGS, MAIN, MPI_VENVS, ROOT, Venv, mpi_environment, run

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


#: The whole: torch, library, a backend's name, ranks. None is the torch of `.venv`. Before 2.14
#: torch lets nobody serve its own names.
WHOLE: tuple[tuple[str | None, str, str, int], ...] = (
    (None, "mpich", "gloo", 2),
    (None, "openmpi", "gloo", 2),
    (None, "mpich", "mpi", 3),
    (None, "mpich", "mpi", 4),
    (None, "mpich", "dlmpi", 2),
    (None, "mpich", "dlmpi", 3),
    ("2.13", "mpich", "dlmpi", 2),
    ("2.8", "mpich", "dlmpi", 2),
)
REPORT = ROOT / "docs" / "torch-exam.md"
ROOM = ROOT / "out" / "exam"


def environment(version: str | None, library: str) -> Venv:
    """The environment of a row; that of an older torch is made, and kept."""
    if version is None:
        return MPI_VENVS[library]
    venv = Venv(ROOM / f"torch-{version}")
    wanted = [f"torch=={version}.*", "numpy", "expecttest", "mpi4py", library]
    venvs.require(venv, wanted)
    venvs.install_wheel(venv, wheel())
    return venv


def wheel() -> Path:
    """The wheel that was built."""
    (path,) = DIST.glob("dlmpi-*.whl")
    return path


def torch_of(venv: Venv) -> str:
    """The version of torch in an environment."""
    query = "import importlib.metadata as m; print(m.version('torch'))"
    command = [venv.python, "-c", query]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def lines_of(version: str, row: tuple[str, str, int], rows: list[dict[str, str]]) -> list[str]:
    """The report of one run: its line in the table, then what did not pass."""
    library, name, ranks = row
    found = counts(rows)
    numbers = " | ".join(str(found[status]) for status in ("pass", "fail", "skip"))
    table = f"| {version} | {library} | {name} | {ranks} | {numbers} |"
    failed = [each for each in rows if each["status"] == "fail"]
    about = f"torch {version}, {library}, as {name} on {ranks}"
    return [table, *(f"- {about}: `{each['test']}`: {each['why']}" for each in failed)]


def skipped(rows: list[dict[str, str]]) -> list[str]:
    """Why tests were skipped, the commonest reason first."""
    reasons = Counter(row["why"].split("\n")[0][:100] for row in rows if row["status"] == "skip")
    return [f"- {number} x {why}" for why, number in reasons.most_common()]


def report(runs: list[list[str]], reasons: list[str]) -> None:
    """Write docs/torch-exam.md."""
    today = datetime.now(UTC).date()
    text = [
        "# Torch's own distributed tests",
        "",
        "The test base in the torch wheel (`DistributedTest._DistTestBase`), run in place under",
        f"mpiexec with dlmpi behind a name by `python ci/exam.py all`; {today}, no GPU. Many",
        'tests ask for "gloo" or "mpi" by name, so dlmpi serves these names too.',
        "",
        "| torch | MPI | as | ranks | passed | failed | skipped |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(run[0] for run in runs),
        "",
        "## Failed",
        "",
        "`test_ddp_logging_data_cpu` compares the backend's name with the one it was asked for by.",
        "",
        *(line for run in runs for line in run[1:]),
        "",
        "## Skipped, in the first row",
        "",
        *reasons,
    ]
    REPORT.write_text("\n".join(text) + "\n")


def whole() -> int:
    """Run everything and write the report."""
    LOGS.mkdir(parents=True, exist_ok=True)
    venvs.install_wheel(MAIN, wheel())
    runs, reasons, wrong = [], [], False
    for version, library, name, ranks in WHOLE:
        venv = environment(version, library)
        results = LOGS / f"exam-{version or 'newest'}-{library}-{name}-{ranks}.jsonl"
        print(f"torch {version or 'newest'}, {library}, as {name} on {ranks} ...", flush=True)
        with results.with_suffix(".log").open("w") as log:
            rows = sit(log, venv, (name, ranks), [], results)
        runs.append(lines_of(torch_of(venv), (library, name, ranks), rows))
        reasons = reasons or skipped(rows)
        wrong |= not {row["test"] for row in rows if row["status"] == "fail"} <= EXPECTED
        wrong |= not rows
    report(runs, reasons)
    return int(wrong)


def main() -> int:
    if sys.argv[1:] == ["all"]:
        return whole()
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
