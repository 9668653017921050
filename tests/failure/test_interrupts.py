"""Ctrl-C while a rank waits in MPI: the first is heard when the call returns, the second ends."""

from __future__ import annotations

import textwrap

import pytest

WAITS = [
    "comm.Allreduce(MPI.IN_PLACE, mine)",
    "comm.Bcast(mine, root=1)",
    "comm.Recv(mine, 1)",
    "comm.Sendrecv(np.ones(3), 1, recvbuf=mine, source=1)",
    "dlmpi.allreduce_many([mine, mine.copy()], MPI.SUM, comm)",
]

HEAD = """
import os, signal, threading, time
import numpy as np
import dlmpi
from dlmpi import MPI

comm = MPI.COMM_WORLD
rank = comm.Get_rank()

def interrupt(*after):
    for seconds in after:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
mine = np.zeros(3)
if rank == 1:
    mine += 1
"""


def program(body: str) -> str:
    return HEAD + textwrap.dedent(body)


@pytest.mark.parametrize("wait", WAITS)
def test_the_second_ends_the_job(run_script, wait):
    outcome = run_script(
        program(
            """
            if rank == 0:
                interrupt(0.5, 1.0)
                WAIT
                print("came back", flush=True)
            else:
                time.sleep(45)
            """.replace("WAIT", wait)
        )
    )
    assert outcome.code != 0, outcome.text
    assert "ended by a second interrupt" in outcome.text
    assert "came back" not in outcome.text
    assert outcome.seconds < 30


@pytest.mark.parametrize("wait", WAITS)
def test_the_first_is_heard_when_the_call_returns(run_script, wait):
    """Twice over: interrupts of different waits do not add up."""
    outcome = run_script(
        program(
            """
            for turn in range(2):
                if rank == 0:
                    interrupt(0.3)
                    try:
                        WAIT
                    except KeyboardInterrupt:
                        print("interrupted", mine.sum() >= 3, flush=True)
                    mine[:] = 0
                else:
                    time.sleep(1)
                    PEER
                    mine[:] = 1
            """.replace("WAIT", wait).replace("PEER", peer(wait))
        )
    )
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("interrupted True") == 2, outcome.text


def peer(wait: str) -> str:
    """What rank 1 calls against it."""
    if "Recv(" in wait:
        return "comm.Send(mine, 0)"
    return wait.replace(
        "np.ones(3), 1, recvbuf=mine, source=1", "mine, 0, recvbuf=mine.copy(), source=0"
    )


def test_a_wait_of_another_thread_is_not_ended(run_script):
    """The main thread is free, and hears both by itself."""
    outcome = run_script(
        program(
            """
            comm.Allreduce(MPI.IN_PLACE, np.ones(3))
            if rank == 0:
                other = threading.Thread(target=comm.Recv, args=(mine, 1))
                other.start()
                for _ in range(2):
                    interrupt(0.3)
                    try:
                        time.sleep(20)
                    except KeyboardInterrupt:
                        print("interrupted", flush=True)
                comm.Send(np.zeros(1), 1)
                other.join()
                print("received", mine.tolist())
            else:
                comm.Recv(np.zeros(1), 0)
                comm.Send(mine, 0)
            """
        )
    )
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("interrupted") == 2
    assert "received [1.0, 1.0, 1.0]" in outcome.text
