"""What users of dlmpi, gloo and plain mpi4py see when a rank goes wrong: rows of docs/safety.md.

    python benches/peers dlmpi [FAULT]     # under DLMPI_CHECK=always, DLMPI_TIMEOUT=2
    python benches/peers gloo [FAULT]
    python benches/peers mpi4py [FAULT]

Each fault runs on two ranks of its own, for at most LIMIT seconds; lines say what came of it. MPI's
ranks are started by the mpiexec beside this Python. What dlmpi's must say is known (ours.py): a row
that does not name rank and reason is marked, and the exit code is 1.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gloo
import ours
import plain

LIMIT = 25.0
HERE = str(Path(__file__).resolve().parent)
#: As root, and on few cores, Open MPI's launcher wants to be told.
LAUNCH = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
FAULTS = {"dlmpi": tuple(ours.FAULTS), "gloo": gloo.FAULTS, "mpi4py": plain.FAULTS}


def watch(processes: list[subprocess.Popen[str]]) -> list[tuple[str, int | None, str]]:
    """Wait for all, at most LIMIT seconds; return how each ended, its exit code and its words."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until and any(p.poll() is None for p in processes):
        time.sleep(0.1)
    ends = []
    for process in processes:
        hung = process.poll() is None
        # Also children that were forked and still hold the pipe.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        text = process.communicate()[0].strip()
        ended = f"hung for {LIMIT:g} s" if hung else f"exit code {process.returncode}"
        ends.append((ended, None if hung else process.returncode, text))
    return ends


def missing(fault: str, code: int | None, text: str) -> list[str]:
    """Of a row of dlmpi's: what it should have said, or how it should have ended."""
    row = ours.FAULTS[fault]
    lost = [word for word in row.words if text.count(word) < row.ranks]
    if code not in row.codes:
        lost.append(f"exit code {' or '.join(map(str, row.codes[:3]))}")
    return lost


def main(peer: str, only: str = "") -> int:
    folder, bad = tempfile.mkdtemp(), 0
    start = [sys.executable, HERE, "rank", peer]
    settings = {**os.environ, **LAUNCH, **(ours.SETTINGS if peer == "dlmpi" else {})}
    for fault in FAULTS[peer]:
        if only not in ("", fault):
            continue
        store = tempfile.mkdtemp(dir=folder)
        commands = [[*start, fault, str(rank), store] for rank in range(2)]
        if peer != "gloo":
            commands = [[str(Path(sys.prefix) / "bin/mpiexec"), "-n", "2", *start, fault]]
        processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                env=settings,
            )
            for command in commands
        ]
        for number, (ended, code, text) in enumerate(watch(processes)):
            if peer != "dlmpi":
                print(f"{fault}: {number}: {ended}: {' | '.join(text.splitlines()[-2:])[:300]}")
                continue
            lost = missing(fault, code, text)
            bad += bool(lost)
            print(f"{fault}: {ended}: {'NOT SAID: ' + ', '.join(lost) if lost else 'as it should'}")
            print("".join(f"    {line[:160]}\n" for line in text.splitlines()[:12]), flush=True)
    if peer == "dlmpi":
        print(f"{bad} rows are not as they should be" if bad else "every row names rank and reason")
    return min(bad, 1)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [("dlmpi" | "gloo" | "mpi4py") as name]:
            sys.exit(main(name))
        case [("dlmpi" | "gloo" | "mpi4py") as name, fault]:
            sys.exit(main(name, fault))
        case ["rank", "gloo", fault, rank, folder]:
            gloo.run(fault, int(rank), folder)
        case ["rank", "mpi4py", fault]:
            plain.run(fault)
        case ["rank", "dlmpi", fault]:
            ours.run(fault)
        case _:
            sys.exit(__doc__)
