"""Finds other Python interpreters of this machine: on PATH, and where uv and pyenv keep theirs.

Nothing is downloaded. A file that does not run as Python is none (pyenv's shims often don't).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

NEWEST = 15


def _candidates() -> list[str]:
    names = [f"python3.{minor}" for minor in range(NEWEST, 10, -1)]
    found = [path for name in names if (path := shutil.which(name))]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    managed = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")
    for place in (pyenv, managed):
        found += map(str, sorted(place.glob("*3.*/bin/python3")))
    return [sys.executable, *found]


@cache
def interpreters() -> dict[tuple[int, int], str]:
    """The interpreters that run, 3.11 or newer, by version; this one speaks for its own."""
    query = "import sys, venv; print(*sys.version_info[:2])"
    found: dict[tuple[int, int], str] = {}
    for path in _candidates():
        try:
            done = subprocess.run(
                [path, "-c", query], capture_output=True, text=True, timeout=30, check=True
            )
            major, minor = map(int, done.stdout.split())
        except (OSError, ValueError, subprocess.SubprocessError):
            continue
        if (major, minor) >= (3, 11):
            found.setdefault((major, minor), path)
    return found


def at_least(version: tuple[int, int]) -> str | None:
    """This interpreter if it is new enough, else the oldest one that is."""
    if sys.version_info[:2] >= version:
        return sys.executable
    fit = sorted(v for v in interpreters() if v >= version)
    return interpreters()[fit[0]] if fit else None
