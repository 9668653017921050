"""What holds when a process is forked or ends early, lacks threads, or has other settings."""

from __future__ import annotations

import pytest

HEAD = """
import os, sys, time
import numpy as np
import mpi4py
THREADS
from dlmpi import MPI
import dlmpi

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
"""


def script(body: str, threads: str = "") -> str:
    import textwrap

    return HEAD.replace("THREADS", threads) + textwrap.dedent(body)


def test_a_forked_child_has_dlmpi_off(run_script):
    outcome = run_script(
        script("""
        comm.Allreduce(MPI.IN_PLACE, np.ones(3))
        comm.Iallreduce(MPI.IN_PLACE, np.ones(3)).Wait()
        child = os.fork()
        if child == 0:
            code = 9
            try:
                comm.Allreduce(MPI.IN_PLACE, np.ones(3))
            except RuntimeError as error:
                code = 7 if "child of rank" in str(error) else 8
            os._exit(code)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        out = np.ones(3)
        comm.Allreduce(MPI.IN_PLACE, out)
        print("parent", out[0])
        """)
    )
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("child 7") == 2, outcome.text
    assert outcome.text.count("parent 2.0") == 2, outcome.text


def test_the_interpreter_ends_with_work_under_way(run_script):
    """Rank 1 never starts the operation of rank 0, which leaves all the same: no hang, no crash."""
    outcome = run_script(
        script("""
        comm.Allreduce(MPI.IN_PLACE, np.ones(3))
        data, got = np.ones(3), np.zeros(3)
        if rank == 0:
            request = comm.Iallreduce(data, got)
            time.sleep(0.1)
        print("leaving", rank, flush=True)
        """)
    )
    assert outcome.text.count("leaving") == 2, outcome.text
    assert outcome.seconds < 30


ENDS = {
    "kept": "",
    "dropped": "del left; gc.collect()",
    "in a cycle": "cycle = [left]; cycle.append(cycle); del left, cycle",
    "after MPI": "MPI.Finalize()",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_interpreter_ends_with_requests_of_every_kind(run_script, end):
    """None of them ever completes: no hang, no crash."""
    outcome = run_script(
        script("""
        import gc
        other, big, cells = 1 - rank, np.ones(1 << 18), np.zeros((1000, 2))
        half = np.ones(5, np.float16)
        window = MPI.Win.Create(np.zeros(10), 8, comm=comm)
        window.Lock(rank)
        file = MPI.File.Open(MPI.COMM_SELF, os.devnull, MPI.MODE_WRONLY)
        left = [
            comm.Irecv(np.zeros(9), other, 1), comm.Irecv(cells[:, 0], other, 2),
            comm.Isend(big, other, 3), comm.Issend(np.ones((9, 2))[:, 1], other, 4),
            comm.Recv_init(np.zeros(5), other, 5), comm.Send_init(big, other, 6),
            window.Rput(np.ones(3), rank), window, file,
        ]
        left[4].Start()
        left[5].Start()
        if rank == 0:
            left += [comm.Iallreduce(half, half.copy()), comm.Ibcast(np.ones(3))]
            left.append(comm.Create_group(comm.group.Incl([0])).Allreduce_init(big, big.copy()))
            left[-1].Start()
        END
        print("leaving", rank, flush=True)
        """).replace("END", ENDS[end])
    )
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("leaving") == 2, outcome.text


@pytest.mark.parametrize("level", ["funneled", "serialized"])
def test_below_thread_multiple_non_blocking_is_refused_by_name(run_script, level):
    outcome = run_script(
        script(
            """
        out = np.ones(3)
        comm.Allreduce(MPI.IN_PLACE, out)
        assert out[0] == 2
        try:
            comm.Iallreduce(MPI.IN_PLACE, out)
        except RuntimeError as error:
            print("refused", "LEVEL" in str(error), "MULTIPLE" in str(error))
        """.replace("LEVEL", level.upper()),
            f"mpi4py.rc.thread_level = {level!r}",
        )
    )
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("refused True True") == 2, outcome.text


@pytest.mark.parametrize("values", [("off", "always"), ("sampled", "off")])
def test_a_setting_that_reached_only_some_ranks_is_named(run_script, values):
    outcome = run_script(
        script(
            """
        try:
            comm.Allreduce(MPI.IN_PLACE, np.ones(3))
        except dlmpi.MismatchError as error:
            text = str(error)
            print("named", "DLMPI_CHECK=FIRST" in text and "DLMPI_CHECK=SECOND" in text)
        """.replace("FIRST", values[0]).replace("SECOND", values[1]),
            f"""import mpi4py.rc
values = {values!r}
for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK"):
    if name in os.environ:
        os.environ["DLMPI_CHECK"] = values[int(os.environ[name])]""",
        )
    )
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("named True") == 2, outcome.text


def test_a_wrong_value_of_a_setting_is_named(run_script):
    outcome = run_script(
        script("""
        try:
            comm.Allreduce(MPI.IN_PLACE, np.ones(3))
        except ValueError as error:
            print("named", "DLMPI_CHECK=sometimes" in str(error) and "sampled" in str(error))
        """),
        DLMPI_CHECK="sometimes",
    )
    assert outcome.text.count("named True") == 2, outcome.text


def test_plain_collectives_meet_a_plain_peer(run_script):
    """DLMPI_COLLECTIVES=mpi: one rank is plain mpi4py, and what needs more is refused."""
    outcome = run_script(
        """
        import numpy as np
        from mpi4py import MPI as plain

        rank = plain.COMM_WORLD.Get_rank()
        if rank == 0:
            from dlmpi import MPI
        else:
            MPI = plain
        comm = MPI.COMM_WORLD
        for _ in range(3):
            out = np.empty(4)
            comm.Allreduce(np.full(4, rank + 1.0), out)
            assert (out == 3).all()
            got = np.empty((2, 4), order="F" if rank == 0 else "C")
            comm.Allgather(np.full(4, float(rank)), got)
            assert (got == [[0] * 4, [1] * 4]).all()
        if rank == 0:
            import torch
            half = torch.ones(3, dtype=torch.bfloat16)
            try:
                comm.Allreduce(MPI.IN_PLACE, half)
            except ValueError as error:
                print("refused", "float32" in str(error))
        """,
        DLMPI_COLLECTIVES="mpi",
    )
    assert outcome.code == 0, outcome.text
    assert "refused True" in outcome.text


@pytest.mark.parametrize("wait", ["request._pending.wait()", "request.Wait()"])
def test_an_interrupt_ends_a_wait(run_script, wait):
    outcome = run_script(
        script(
            """
        import signal, threading
        comm.Allreduce(MPI.IN_PLACE, np.ones(3))
        if rank == 0:
            request = comm.Iallreduce(MPI.IN_PLACE, np.ones(3))
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                WAIT
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            comm.Send(np.zeros(1), 1)
        else:
            comm.Recv(np.zeros(1), 0)
            request = comm.Iallreduce(MPI.IN_PLACE, np.ones(3))
        request.Wait()
        """.replace("WAIT", wait)
        )
    )
    assert outcome.code == 0, outcome.text
    assert "interrupted" in outcome.text


def test_plain_collectives_on_some_ranks_only_are_named(run_script):
    """Such ranks say nothing to the others, by definition; who waits for them says so."""
    outcome = run_script(
        script("""
        import threading
        if rank == 0:
            threading.Timer(14, os._exit, (3,)).start()
        comm.Allreduce(MPI.IN_PLACE, np.ones(3))
        """).replace(
            "from dlmpi import MPI\n",
            "from mpi4py import MPI\n"
            "if MPI.COMM_WORLD.rank == 1: os.environ['DLMPI_COLLECTIVES'] = 'mpi'\n"
            "from dlmpi import MPI\n",
            1,
        )
    )
    assert outcome.code != 0
    assert "rank 0 waits since 10 s" in outcome.text, outcome.text
    assert "DLMPI_COLLECTIVES=mpi" in outcome.text


def test_memory_order_is_mpi4pys(run_script):
    """DLMPI_ORDER=memory: a tensor without gaps is its memory."""
    outcome = run_script(
        script("""
        order = "F" if rank == 0 else "C"
        matrix = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], order=order)
        if rank == 1:
            matrix[:] = 0
        comm.Bcast(matrix)
        if rank == 1:
            print("memory", matrix.ravel().tolist() == [1, 4, 2, 5, 3, 6])
        """),
        DLMPI_ORDER="memory",
    )
    assert outcome.code == 0, outcome.text
    assert "memory True" in outcome.text
