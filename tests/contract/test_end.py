"""Loans that outlive the interpreter: no deleter runs when Python is going or gone.

The deleter is the C library's `abort`, so that one call of it, at any time, is a dead process.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PRELUDE = """
import ctypes, gc, sys, threading
import numpy as np
import dlmpi
from dlmpi import MPI
from support import capsules, producers

def deadly(kind=capsules.Versioned):
    tensor = producers.Full(np.arange(4.0), kind)
    capsule = tensor.give
    def give(*arguments, **call):
        made = capsule(*arguments, **call)
        abort = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
        tensor.exports[-1].managed.deleter = abort
        return made
    tensor.give = give
    return tensor

loan = dlmpi.borrow(deadly())
assert memoryview(loan.__enter__()).nbytes == 32
"""

ENDS = {
    "a global": "",
    "in a cycle": "cycle = [loan]; cycle.append(cycle); del loan; del cycle",
    "on a builtin module": "sys.kept = loan; del loan",
    "in a thread that waits": """
def wait(loan):
    threading.Event().wait()
threading.Thread(target=wait, args=(loan,), daemon=True).start()
del loan
""",
    "in a thread-local": "here = threading.local(); here.loan = loan; del loan",
    "in a frame kept by an exception": """
def fails(loan):
    raise ValueError
try:
    fails(loan)
except ValueError as error:
    sys.last_kept = error
del loan
""",
    "after MPI is finalized": "MPI.Finalize()",
    "a legacy capsule": """
loan = [loan, dlmpi.borrow(deadly(capsules.Legacy))]
loan[1].__enter__()
""",
}


def run(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PRELUDE + source + "\nprint('reached')"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="tests",
    )


@pytest.mark.parametrize("end", ENDS)
def test_a_loan_is_leaked_at_the_end(end):
    done = run(ENDS[end])
    assert (done.returncode, done.stdout) == (0, "reached\n"), done.stderr


def test_the_deleter_is_deadly():
    """Else the tests above could not fail."""
    done = run("loan.__exit__(None, None, None)")
    assert done.returncode == -signal.SIGABRT, done.stderr
    assert not done.stdout
