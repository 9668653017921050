"""Every method of the drop-in with every kind of wrong argument (`support/hostile.py`), alone and
on two ranks: an exception each time, nobody else notices, a case that crashes or hangs is named."""

from __future__ import annotations

import os
import re

from support.runs import run


def test_wrong_arguments(venv, environment, tmp_path):
    """Some twenty thousand calls on each of two communicators, and combinations drawn afresh."""
    seed = os.environ.get("DLMPI_TEST_SEED") or int.from_bytes(os.urandom(4))
    command = [str(venv / "bin/mpiexec"), "-n", "2", str(venv / "bin/python")]
    command += ["-X", "faulthandler", "-m", "support.hostile", str(tmp_path), str(seed)]
    outcome = run(command, environment, tmp_path)
    for rank in range(2):
        lines = (tmp_path / f"hostile.{rank}").read_text().splitlines()
        assert lines[-1:] == ["end"], f"seed {seed}: ended at {lines[-1:]}:\n{outcome.text[-3000:]}"
        wrong = [line for line in lines if line.startswith("WRONG")]
        assert not wrong, (seed, wrong[:20])
        counted = [int(line.split()[0]) for line in lines if re.fullmatch(r"\d+ cases", line)]
        assert len(counted) == 2 - rank
        assert min(counted) > 15_000
    assert outcome.code == 0, outcome.text
