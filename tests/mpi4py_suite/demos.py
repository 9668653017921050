"""Runs mpi4py's demos, unchanged, on `python -m dlmpi run`: the rows of demos.toml.

A row says what to start and what must be read in its output. Demos with workers in C or Fortran
build them with the compiler wrappers of the MPI; one that needs what is not here is skipped, by
name.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from workplace import Venv, end_group, mpi_environment

LIMIT = 120.0


@dataclass
class Demo:
    """One program of the folder `demo`."""

    name: str
    folder: str
    command: list[str]
    ranks: int = 2
    #: What the output must contain: patterns, each with how often at least.
    expects: dict[str, int] = field(default_factory=dict)
    stdin: str = ""
    #: Programs to build before: [wrapper, source, result, options ...].
    build: list[list[str]] = field(default_factory=list)
    #: A script to make a program of: [source, result].
    script: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=lambda: ["mpich", "openmpi"])


def read(path: Path, library: str) -> Iterator[Demo]:
    """The rows for this library."""
    for row in tomllib.loads(path.read_text())["demo"]:
        demo = Demo(**row)
        if library in demo.libraries:
            yield demo


def start(command: list[str], folder: Path, stdin: str) -> tuple[int | str, str]:
    """The exit code, or that there was none in time, and what was printed."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        # No screen, and no window that waits for somebody.
        env={**mpi_environment(), "MPLBACKEND": "agg"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(stdin, timeout=LIMIT)
        return process.returncode, text
    except subprocess.TimeoutExpired:
        end_group(process)
        return f"no end after {LIMIT:g} s", process.communicate()[0]


def attempt(demo: Demo, venv: Venv, source: Path, work: Path) -> tuple[str, str]:
    """Run one demo in a copy of its folder: the outcome and its words."""
    for program in demo.needs:
        if not (Path(venv.tool(program)).exists() or shutil.which(program)):
            return "skipped", f"needs {program}, which is not here"
    folder = work / demo.folder
    shutil.copytree(source / demo.folder, folder, dirs_exist_ok=True)
    for wrapper, *arguments in demo.build:
        source_file, result, *options = [part.format_map(places(venv)) for part in arguments]
        compiler = [venv.tool(wrapper), source_file, "-o", result, *options]
        code, text = start(compiler, folder, "")
        if code != 0:
            return "failed", f"{' '.join(compiler)}: {code}\n{text}"
    if demo.script:
        made = folder / demo.script[1]
        made.write_text(f"#!{venv.python}\n" + (folder / demo.script[0]).read_text())
        made.chmod(0o755)
    command = venv.mpiexec(demo.ranks, venv.python, "-m", "dlmpi", "run", *demo.command)
    code, text = start(command, folder, demo.stdin)
    if code != 0:
        return "failed", f"{' '.join(command)}: {code}\n{text}"
    for pattern, often in demo.expects.items():
        found = len(re.findall(pattern, text))
        if found < often:
            return "failed", f"{pattern!r}: {found} times, not {often}, in\n{text}"
    return "passed", ""


def places(venv: Venv) -> dict[str, str]:
    """The folders that a row may name: those of headers, and the one of this file."""
    query = (
        "import json, mpi4py, sysconfig;"
        "print(json.dumps({'mpi4py': mpi4py.get_include(),"
        " 'python': sysconfig.get_path('include')}))"
    )
    said = subprocess.run([venv.python, "-c", query], check=True, capture_output=True, text=True)
    return {**json.loads(said.stdout), "suite": str(Path(__file__).parent)}
