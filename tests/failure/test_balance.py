"""MPI objects are counted: what dlmpi makes of them it frees."""

from __future__ import annotations

import re

from support.interpose import build
from support.runs import run


def test_as_many_objects_are_freed_as_made(venv, environment, tmp_path):
    """Each scenario of `support/scenarios.py`, on communicators that come and go."""
    library = build(venv, tmp_path)
    command = [str(venv / "bin/mpiexec"), "-n", "2", "env", f"LD_PRELOAD={library}"]
    command += [str(venv / "bin/python"), "-m", "support.balance"]
    outcome = run(command, environment, tmp_path)
    assert outcome.code == 0, outcome.text
    assert not [line for line in outcome.text.splitlines() if "became" in line], outcome.text
    for rank in range(2):
        (line,) = outcome.lines(f"{rank} made ")
        some = {kind: int(n) for kind, n in re.findall(r"'(\w+)': (\d+)", line)}
        assert some["communicators"] > 200, line
        assert some["datatypes"] >= 8, line
