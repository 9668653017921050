"""An uncaught exception on one rank ends the job, with its traceback and its rank."""

from __future__ import annotations

import pytest

#: How a program asks for it: options before the script, lines at its top, and the exit code.
WAYS = {
    "run": (("-m", "dlmpi", "run"), ""),
    "import": ((), "import dlmpi.abort_on_error"),
    "torch": (
        (),
        """
import torch.distributed as dist
import dlmpi.torch
dist.init_process_group("dlmpi")
""",
    ),
}
FAULTS = {
    "exception": ("raise KeyError('lost')", 1, "KeyError: 'lost'"),
    "interrupt": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", 130, "KeyboardInterrupt"),
}

SCRIPT = """
import os, signal, threading, time
import numpy as np
from dlmpi import MPI
TOP
comm = MPI.COMM_WORLD
comm.Barrier()

def step():
    FAULT

if comm.rank == 1:
    step()
comm.Allreduce(np.ones(3), np.empty(3))
print("survived", flush=True)
"""


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_one_rank_ends_the_job(run_script, way, fault):
    options, top = way
    statement, code, words = fault
    if "torch" in top and code == 130:
        pytest.skip("the hook is that of the import")
    outcome = run_script(SCRIPT.replace("TOP", top).replace("FAULT", statement), *options)
    assert outcome.code == code, outcome.text
    assert outcome.lines(f"[rank 1] {words}"), outcome.text
    assert any("in step" in line for line in outcome.lines("[rank 1] ")), outcome.text
    assert "survived" not in outcome.text


def test_a_thread_counts_too(run_script):
    fault = "thread = threading.Thread(target=lambda: [][0]); thread.start(); thread.join()"
    top = "import dlmpi.abort_on_error"
    outcome = run_script(SCRIPT.replace("TOP", top).replace("FAULT", fault))
    assert outcome.code == 1, outcome.text
    assert outcome.lines("[rank 1] Exception in thread Thread-1"), outcome.text
    assert outcome.lines("[rank 1] IndexError: list index out of range"), outcome.text
    assert "survived" not in outcome.text


def test_one_process_ends_as_python_ends_it(run_script):
    outcome = run_script(
        """
        import dlmpi.abort_on_error
        from dlmpi import MPI
        raise KeyError("alone")
        """,
        ranks=1,
    )
    assert outcome.code == 1, outcome.text
    assert outcome.lines("Traceback (most recent call last):"), outcome.text
    assert "MPI_Abort" not in outcome.text.replace("MPI_ABORT", "MPI_Abort"), outcome.text
