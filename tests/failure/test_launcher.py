"""The runner of the tests itself: whose death a code of mpiexec tells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.runs import run

TOLD = """MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD
  Proc: [[1,1],1]
  Errorcode: 124

prterun has exited due to process rank 1 with PID 0 on node here calling "abort".
"""


@pytest.mark.parametrize(
    ("said", "end", "code"),
    [
        (TOLD, "kill -SEGV $$", 124),
        (TOLD, "exit 3", 3),
        (TOLD.replace("prterun has exited", "prterun"), "kill -SEGV $$", -11),
        ("", "kill -SEGV $$", -11),
    ],
)
def test_a_launcher_that_crashes_after_an_abort_does_not_hide_its_code(said, end, code, tmp_path):
    launcher: Path = tmp_path / "mpiexec"
    launcher.write_text(f"#!/bin/sh\ncat <<'END'\n{said}END\nulimit -c 0\n{end}\n")
    launcher.chmod(0o755)
    outcome = run([str(launcher)], dict(os.environ), tmp_path)
    assert outcome.code == code, outcome.text
