"""A collective that outlasts DLMPI_TIMEOUT: who is late, what they do, and exit code 124."""

from __future__ import annotations

import pytest

EXIT_CODE = 124
HEAD = """
import math, os, signal, sys, time
import numpy as np
import dlmpi
from dlmpi import MPI

comm = MPI.COMM_WORLD
rank = comm.Get_rank()

def elsewhere():
    while True:
        time.sleep(0.05)
"""


def script(body: str) -> str:
    import textwrap

    return HEAD + textwrap.dedent(body)


# How a collective waits for a rank that does something else.
CALLS = {
    "blocking": "comm.Allreduce(np.ones(5), np.empty(5))",
    "non-blocking": "comm.Iallreduce(np.ones(5), np.empty(5)).Wait()",
    "own algorithm": "comm.Allreduce(np.ones(1 << 18), np.empty(1 << 18))",
}
# The same in methods of mpi4py's, by the name that the report gives them.
FOREIGN = {
    "bcast": "comm.bcast(5, 1)",
    "Barrier": "comm.barrier()",
    "Split": "comm.Split()",
    "Neighbor_allgather": "ring.Neighbor_allgather(np.ones(5), np.empty(10))",
    "Ineighbor_allgather": "ring.Ineighbor_allgather(np.ones(5), np.empty(10)).Wait()",
    "Win.Fence": "window.Fence()",
    "Write_all": "file.Write_all(np.ones(5))",
}


@pytest.mark.parametrize(
    ("name", "check"), [*((name, "always") for name in FOREIGN), ("bcast", "off"), ("Split", "off")]
)
def test_the_late_rank_is_named_in_methods_of_mpi4py(run_script, name, check):
    """Whether they wait in the comparison or in MPI."""
    outcome = run_script(
        script("""
        ring = comm.Create_cart([comm.size], periods=[True])
        window = MPI.Win.Allocate(8, comm=comm)
        file = MPI.File.Open(comm, "file", MPI.MODE_CREATE | MPI.MODE_RDWR)
        ring.barrier()
        comm.barrier()
        if rank == 1:
            elsewhere()
        CALL
        comm.barrier()
        """).replace("CALL", FOREIGN[name]),
        DLMPI_TIMEOUT="1",
        DLMPI_CHECK=check,
    )
    assert outcome.code == EXIT_CODE, outcome.text
    said = "".join(f"{line}\n" for line in outcome.lines("[rank 0] "))
    # What need not wait for that rank goes on to the next call.
    assert f"dlmpi: {name}" in said or (check == "off" and "dlmpi: Barrier" in said), said
    assert "script.py:" in said
    assert "not arrived: rank 1 has made " in said, outcome.text
    assert " in elsewhere" in outcome.text, outcome.text


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_late_rank_and_its_stack_are_named(run_script, call):
    outcome = run_script(
        script("""
        comm.Barrier()
        if rank == 1:
            elsewhere()
        CALL
        """).replace("CALL", call),
        ranks=3,
        DLMPI_TIMEOUT="1",
        DLMPI_ALLREDUCE="own",
    )
    assert outcome.code == EXIT_CODE, outcome.text
    assert outcome.seconds < 30
    for waiting in (0, 2):
        said = "".join(f"{line}\n" for line in outcome.lines(f"[rank {waiting}] "))
        assert "dlmpi: Allreduce" in said, outcome.text
        assert "(collective number 2) on a communicator of 3 ranks does not end" in said
        assert f"rank {waiting} waits for " in said
        assert "script.py:" in said
        assert "not arrived: rank 1 has made 1 collective here" in said, outcome.text
        assert "ranks is late" not in said
    assert " in elsewhere" in outcome.text, outcome.text
    assert not outcome.lines("[rank 1] "), outcome.text


def test_a_rank_that_has_not_come_to_its_first_collective_answers(run_script):
    outcome = run_script(
        script("""
        part = comm.Split(rank % 2)
        if rank == 3:
            elsewhere()
        part.Bcast(np.ones(4, dtype="f4"), root=0)
        if rank == 1:
            print("left", flush=True)
        """),
        ranks=4,
        DLMPI_TIMEOUT="1",
    )
    assert outcome.code == EXIT_CODE, outcome.text
    said = "".join(outcome.lines("[rank 1] "))
    assert "Bcast of 4 float32, root 0 (collective number 1) on a communicator of 2" in said
    # Ranks are those of the communicator.
    assert "not arrived: rank 1 has made 0 collectives here" in said, outcome.text
    assert " in elsewhere" in outcome.text


def test_a_rank_in_another_collective_says_so(run_script):
    outcome = run_script(
        script("""
        comm.Barrier()
        pair = comm.Dup()
        pair.Barrier()
        (pair if rank else comm).Allgather(np.ones(3), np.empty(3 * comm.size))
        """),
        DLMPI_TIMEOUT="1",
    )
    assert outcome.code == EXIT_CODE, outcome.text
    first = "".join(outcome.lines("[rank 0] "))
    # The barrier and the Dup.
    assert "not arrived: rank 1 has made 2 collectives here" in first, outcome.text
    assert "it is in Allgather of 3 float64 (collective number 2) for " in first


def test_a_stopped_rank_is_named(run_script):
    outcome = run_script(
        script("""
        comm.Barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        comm.Barrier()
        """),
        DLMPI_TIMEOUT="1",
    )
    assert outcome.code == EXIT_CODE, outcome.text
    assert "not arrived: rank 1 does not answer: it is stopped, dead" in outcome.text


def test_below_thread_multiple_the_job_ends_all_the_same(run_script):
    outcome = run_script(
        "import mpi4py\nmpi4py.rc.thread_level = 'serialized'\n"
        + script("""
        comm.Barrier()
        if rank == 1:
            elsewhere()
        comm.Barrier()
        """),
        DLMPI_TIMEOUT="1",
    )
    assert outcome.code != 0, outcome.text
    assert "Barrier (collective number 2)" in outcome.text
    assert "which ranks are late is not known" in outcome.text
    assert "MPI_THREAD_MULTIPLE" in outcome.text


def test_what_is_in_time_is_not_touched(run_script):
    outcome = run_script(
        script("""
        for step in range(5):
            time.sleep(0.4 * ((step + rank) % 2))
            out = np.ones(3)
            comm.Allreduce(MPI.IN_PLACE, out)
            assert out.tolist() == [2, 2, 2]
        print("done", flush=True)
        """),
        DLMPI_TIMEOUT="3",
    )
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("done") == 2
    assert "does not end" not in outcome.text


def test_a_limit_for_some_calls_only(run_script):
    """`dlmpi.timeout` shortens and lifts the limit, and goes back to what was there."""
    outcome = run_script(
        script("""
        comm.Barrier()
        with dlmpi.timeout(math.inf):
            if rank == 1:
                time.sleep(2.5)
            comm.Barrier()
        print("outlived", flush=True)
        if rank == 1:
            elsewhere()
        with dlmpi.timeout(1):
            comm.Barrier()
        """),
        DLMPI_TIMEOUT="2",
    )
    assert outcome.code == EXIT_CODE, outcome.text
    assert outcome.text.count("outlived") == 2
    assert "(collective number 3)" in outcome.text
    assert "not arrived: rank 1 has made 2 collectives" in outcome.text


def test_a_debugger_keeps_the_job_alive(run_script):
    outcome = run_script(
        script("""
        comm.Barrier()
        if rank == 1:
            import pdb
            debugger = pdb.Pdb(stdin=open("/dev/null"))
            debugger.cmdloop = lambda: time.sleep(3)
            try:
                debugger.set_trace()
                ended = 1
            except BaseException as error:
                print("debugger", type(error).__name__, flush=True)
            sys.settrace(None)
        comm.Barrier()
        print("alive", flush=True)
        """),
        DLMPI_TIMEOUT="1",
    )
    assert outcome.code == 0, outcome.text
    assert "a debugger is at work, so the job goes on" in outcome.text
    assert outcome.text.count("alive") == 2, outcome.text


@pytest.mark.parametrize("value", ["soon"])
def test_a_wrong_timeout_is_named(run_script, value):
    outcome = run_script(script("print('started')"), DLMPI_TIMEOUT=value)
    assert outcome.code != 0
    assert f"DLMPI_TIMEOUT={value}: expected seconds" in outcome.text, outcome.text
    assert "started" not in outcome.text


def test_ranks_ask_each_other_without_a_limit(run_script):
    """`DLMPI_TIMEOUT=inf`: whoever waits for a request can ask who is late, and goes on."""
    outcome = run_script(
        script("""
        comm.Barrier()
        if rank == 1:
            time.sleep(2)
        request = comm.Ibcast(np.ones(3), root=1)
        if rank == 0:
            print("asked:", request._pending.arrivals(), flush=True)
        request.Wait()
        if rank == 0:
            print("again:", request._pending.arrivals(), flush=True)
        comm.Barrier()
        """),
        DLMPI_TIMEOUT="inf",
    )
    assert outcome.code == 0, outcome.text
    assert "asked: not arrived: rank 1 has made 1 collective here; " in outcome.text
    assert "again: every rank has made this call" in outcome.text


def test_a_timeout_that_reached_only_some_ranks_is_named(run_script):
    outcome = run_script(
        """
import os
for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK"):
    if os.environ.get(name) == "1":
        del os.environ["DLMPI_TIMEOUT"]
"""
        + script("""
        try:
            comm.Barrier()
        except dlmpi.MismatchError as error:
            print("named", "DLMPI_TIMEOUT=9" in str(error) and "DLMPI_TIMEOUT=off" in str(error))
        """),
        DLMPI_TIMEOUT="9",
    )
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("named True") == 2, outcome.text
