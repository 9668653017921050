"""Starts small runs under mpiexec that are meant to fail, and never lets one of them stay.

The environments with the two MPI libraries are named by DLMPI_TEST_MPICH and DLMPI_TEST_OPENMPI
(`make test` sets them); a library without one is skipped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("mpich", "openmpi")
# A run that should end in seconds and is still there after this long has hung.
HUNG = 60.0


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    code: int
    text: str
    seconds: float


Launch = Callable[..., Outcome]


def run(command: list[str], environment: dict[str, str], folder: Path) -> Outcome:
    """Run to the end, into a file: a pipe would be held open by any rank left behind."""
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
            code = process.wait(HUNG)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            time.sleep(2)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            pytest.fail(f"hung for {HUNG:g} s:\n{output.read_text(errors='replace')}")
    return Outcome(code, output.read_text(errors="replace"), time.monotonic() - start)


@pytest.fixture(params=LIBRARIES)
def venv(request: pytest.FixtureRequest) -> Path:
    variable = f"DLMPI_TEST_{request.param.upper()}"
    if not os.environ.get(variable):
        pytest.skip(f"{variable} does not name an environment with {request.param}")
    return Path(os.environ[variable])


@pytest.fixture
def environment() -> dict[str, str]:
    extra = {
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
        # Unbuffered, one `print` is several writes, and those of two ranks mix within a line.
        "PYTHONUNBUFFERED": "",
        # The guard of the tests, as a plugin of test files that lie elsewhere.
        "PYTHONPATH": str(ROOT / "tests"),
        "DLMPI_TEST_DEADLINE": "3",
    }
    return {**os.environ, **extra}


@pytest.fixture
def run_tests(venv: Path, environment: dict[str, str], tmp_path: Path) -> Launch:
    """Run the source of a test module by pytest on two ranks, guarded as the real suite is."""

    def launch(source: str, *options: str, **variables: str) -> Outcome:
        (tmp_path / "test_case.py").write_text(HEADER + textwrap.dedent(source))
        command = [str(venv / "bin" / "mpiexec"), "-n", "2", str(venv / "bin" / "python")]
        command += ["-m", "mpi4py", "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
        command += ["--rootdir", str(tmp_path), "-p", "conftest", "-p", "no:cacheprovider"]
        command += ["--with-mpi", *options, str(tmp_path / "test_case.py")]
        return run(command, {**environment, **variables}, tmp_path)

    return launch


@pytest.fixture
def run_script(venv: Path, environment: dict[str, str], tmp_path: Path) -> Launch:
    """Run a script on two ranks, without the launcher's help of `python -m mpi4py`."""

    def launch(source: str, **variables: str) -> Outcome:
        (tmp_path / "script.py").write_text(textwrap.dedent(source))
        command = [str(venv / "bin" / "mpiexec"), "-n", "2", str(venv / "bin" / "python")]
        return run([*command, str(tmp_path / "script.py")], {**environment, **variables}, tmp_path)

    return launch


HEADER = """\
import pytest
from mpi4py import MPI

COMM = MPI.COMM_WORLD
RANK = COMM.rank
pytestmark = pytest.mark.mpi

"""
