"""Say which MPI, launcher, frameworks and devices are here, and what is wrong with them.

    python -m dlmpi info [--json] [--start | --no-start]

The first part starts nothing: it works on a login node and where there is no MPI. The second part
needs MPI to run: it comes by itself under a launcher (`mpiexec -n 2 python -m dlmpi info`), and
with `--start`, which tries one rank in a child process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from dlmpi import launch
from dlmpi._cli import _facts, _paths, _ranks

__all__ = ["main"]

DEADLINE = 60.0


def main(arguments: list[str]) -> int:
    """Print the facts on rank 0; return 1 if MPI could not be started."""
    parser = argparse.ArgumentParser("python -m dlmpi info", description=(__doc__ or "").strip())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--start", action="store_true", help="try to start MPI, in a child process")
    start.add_argument("--no-start", action="store_true", help="never start MPI")
    # How the child process of --start is asked.
    start.add_argument("--start-here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    report: dict[str, Any] = _facts.gather()
    launched = launch.wired(os.environ) or any(c.size > 1 for c in launch.claims(os.environ))
    code = 0
    if "error" in report["mpi"]:
        pass
    elif options.start:
        report["started"] = _trial()
    elif options.start_here or (launched and not options.no_start):
        try:
            report["started"] = _ranks.gather()
        except (launch.LaunchError, ImportError) as error:
            report["started"] = {"error": str(error)}
    started = report.get("started", {})
    if started.get("rank", 0) == 0:
        print(json.dumps(report, indent=1) if options.json else _text(report), flush=True)
    if "error" in started:
        code = 1
    return code


def _trial() -> dict[str, Any]:
    """Start MPI in a child process, where it may abort or hang."""
    command = [sys.executable, "-m", "dlmpi", "info", "--start-here", "--json"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"MPI did not start within {DEADLINE:g} s"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout)["started"]
    except (ValueError, KeyError):
        words = (done.stderr or done.stdout).strip().splitlines()[-20:]
        return {"error": "\n".join([f"MPI did not start (exit code {done.returncode}):", *words])}
    return answer


def _text(report: dict[str, Any]) -> str:
    lines: list[str] = []
    for part, facts in report.items():
        lines.append(part)
        if isinstance(facts, dict):
            lines += _rows(facts)
    if "started" not in report and "error" not in report["mpi"]:
        lines.append(
            "MPI was not started. More is known when it runs: `python -m dlmpi info --start`, or\n"
            "`mpiexec -n 2 python -m dlmpi info` for what the ranks see."
        )
    return "\n".join(lines)


def _rows(facts: dict[str, Any]) -> list[str]:
    rows = []
    for name, value in facts.items():
        if name == "paths":
            items = _paths.lines(value)
        else:
            items = value if isinstance(value, list) else str(value).splitlines()
        for number, item in enumerate(items):
            rows.append(f"  {name if number == 0 else '':<20} {item}")
    return rows
