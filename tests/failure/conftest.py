"""Starts small runs under mpiexec that are meant to fail, and never lets one of them stay."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from support.runs import LAUNCH, LIBRARIES, Outcome, environment_of, run

ROOT = Path(__file__).resolve().parents[2]

Launch = Callable[..., Outcome]


@pytest.fixture(params=LIBRARIES)
def venv(request: pytest.FixtureRequest) -> Path:
    return environment_of(request.param)


@pytest.fixture
def environment() -> dict[str, str]:
    extra = {
        **LAUNCH,
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

    def launch(source: str, *options: str, ranks: int = 2, **variables: str) -> Outcome:
        (tmp_path / "script.py").write_text(textwrap.dedent(source))
        command = [str(venv / "bin" / "mpiexec"), "-n", str(ranks), str(venv / "bin" / "python")]
        command += [*options, str(tmp_path / "script.py")]
        return run(command, {**environment, **variables}, tmp_path)

    return launch


HEADER = """\
import pytest
from mpi4py import MPI

COMM = MPI.COMM_WORLD
RANK = COMM.rank
pytestmark = pytest.mark.mpi

"""
