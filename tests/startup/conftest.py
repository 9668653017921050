"""Starts processes in an environment without a trace of the launcher around the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.runs import LAUNCH, LIBRARIES, Outcome, environment_of, run

# What a launcher, Slurm or torchrun leaves in an environment: none of it may leak into a test.
LAUNCHERS = ("PMI", "PMIX", "OMPI_", "PRTE_", "HYD", "MPI_LOCAL", "SLURM", "PALS", "JSM", "FLUX")
LAUNCHERS += ("MV2_", "I_MPI", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC")


def clean_environment() -> dict[str, str]:
    # Unbuffered, a line of `print` would leave in pieces, and those of two ranks would mix.
    leaving = (*LAUNCHERS, "DLMPI_", "PYTHONUNBUFFERED")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(leaving)}
    return kept | LAUNCH


@dataclass(frozen=True)
class Place:
    """An environment with one MPI in it, and a folder to work in."""

    library: str
    venv: Path
    folder: Path

    @property
    def python(self) -> str:
        return str(self.venv / "bin" / "python")

    @property
    def mpiexec(self) -> str:
        return str(self.venv / "bin" / "mpiexec")

    def write(self, source: str, name: str = "script.py") -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return str(path)

    def run(self, *command: str, **variables: str) -> Outcome:
        return run(list(command), clean_environment() | variables, self.folder)

    def alone(self, source: str, **variables: str) -> Outcome:
        """Run a script without a launcher, in an environment that may pretend one."""
        return self.run(self.python, self.write(source), **variables)

    def ranks(self, number: int, source: str, *arguments: str, **variables: str) -> Outcome:
        command = [self.mpiexec, "-n", str(number), self.python]
        return self.run(*command, self.write(source), *arguments, **variables)

    def compile(self, source: str, name: str) -> str:
        """Make a shared library of C source, and return its file."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("no C compiler")
        text, library = self.folder / f"{name}.c", self.folder / f"{name}.so"
        text.write_text(source)
        command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{library.name}"]
        command += ["-o", str(library), str(text), "-ldl"]
        subprocess.run(command, check=True, timeout=60)
        return str(library)

    def dlmpi(self, number: int, *arguments: str, **variables: str) -> Outcome:
        """Run `python -m dlmpi` with these arguments, on so many ranks, or (0) without mpiexec."""
        command = [self.python, "-m", "dlmpi", *arguments]
        launcher = [self.mpiexec, "-n", str(number)] if number else []
        return self.run(*launcher, *command, **variables)


@pytest.fixture(params=LIBRARIES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, environment_of(request.param), tmp_path)


@pytest.fixture
def other(place: Place) -> Place:
    """The environment with the MPI that `place` does not have."""
    (name,) = set(LIBRARIES) - {place.library}
    return Place(name, environment_of(name), place.folder)


@pytest.fixture
def mpich(tmp_path: Path) -> Place:
    return Place("mpich", environment_of("mpich"), tmp_path)


@pytest.fixture
def openmpi(tmp_path: Path) -> Place:
    return Place("openmpi", environment_of("openmpi"), tmp_path)
