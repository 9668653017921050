"""dlmpi itself under two ranks that go wrong: other threads live on, and nothing hangs silently."""

from __future__ import annotations

import pytest

# Each statement blocks rank 0 until rank 1 takes part, one second later.
BLOCKING = {
    "Recv": "comm.Recv(data, source=1) if rank == 0 else comm.Send(data, dest=0)",
    "Ssend": "comm.Ssend(data, dest=1) if rank == 0 else comm.Recv(data, source=0)",
    "Sendrecv": "comm.Sendrecv(data, 1 - rank, recvbuf=other, source=1 - rank)",
    "Allreduce": "comm.Allreduce(data, other)",
    "Allreduce-float16": "comm.Allreduce(data.astype('f2'), other.astype('f2'))",
    "Allreduce-strided": "comm.Allreduce(data[::2], other[::2])",
    "Bcast": "comm.Bcast(data, root=1)",
    "Alltoall": "comm.Alltoall(data, other)",
    "Barrier": "comm.Barrier()",
}


@pytest.mark.parametrize("statement", BLOCKING.values(), ids=BLOCKING)
def test_a_blocking_call_lets_other_threads_run(run_script, statement):
    outcome = run_script(
        """
        import sys, threading, time
        import numpy as np
        from dlmpi import MPI

        comm = MPI.COMM_WORLD
        rank = comm.Get_rank()
        data, other = np.ones(4, dtype="f4"), np.zeros(4, dtype="f4")
        ticks, stop = [], threading.Event()

        def count():
            while not stop.wait(0.01):
                ticks.append(time.monotonic())

        def call():
            STATEMENT

        comm.Barrier()
        threading.Thread(target=count, daemon=True).start()
        if rank == 1:
            time.sleep(1)
        start = time.monotonic()
        call()
        end = time.monotonic()
        stop.set()
        seen = [tick for tick in ticks if start < tick < end]
        if rank == 0:
            print("blocked", end - start > 0.5, "ticks", len(seen) > 5)
    """.replace("STATEMENT", statement)
    )
    assert outcome.code == 0, outcome.text
    assert "blocked True ticks True" in outcome.text


def test_the_fatal_error_handler_of_the_users_communicator_is_honoured(run_script):
    outcome = run_script("""
        import numpy as np
        from dlmpi import MPI

        comm = MPI.COMM_WORLD
        comm.Set_errhandler(MPI.ERRORS_ARE_FATAL)
        if comm.Get_rank() == 0:
            comm.Send(np.ones(100), dest=1)
        else:
            try:
                comm.Recv(np.empty(1), source=0)
            finally:
                print("survived", flush=True)
        comm.Barrier()
    """)
    assert outcome.code != 0, outcome.text
    assert "survived" not in outcome.text


def test_the_same_error_is_an_exception_under_errors_return(run_script):
    outcome = run_script("""
        import numpy as np
        from dlmpi import MPI

        comm = MPI.COMM_WORLD
        if comm.Get_rank() == 0:
            comm.Send(np.ones(100), dest=1)
        else:
            try:
                comm.Recv(np.empty(1), source=0)
            except MPI.Exception as error:
                print("class", error.Get_error_class() == MPI.ERR_TRUNCATE)
        comm.Barrier()
    """)
    assert outcome.code == 0, outcome.text
    assert "class True" in outcome.text


def test_importing_the_package_does_not_start_mpi(run_script):
    outcome = run_script("""
        import sys
        import dlmpi

        print("loaded", "mpi4py.MPI" in sys.modules)
        from dlmpi import MPI
        print("initialised", MPI.Is_initialized())
    """)
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("loaded False") == 2, outcome.text
    assert outcome.text.count("initialised True") == 2, outcome.text


def test_a_refusal_names_its_cause_before_mpi_is_entered(run_script):
    """One rank alone gets a bad argument: it raises, and the other rank is not hurt."""
    outcome = run_script("""
        import numpy as np
        from dlmpi import MPI

        comm = MPI.COMM_WORLD
        if comm.Get_rank() == 0:
            frozen = np.zeros(3)
            frozen.flags.writeable = False
            try:
                comm.Recv(frozen, source=1)
            except BufferError as error:
                print("refused:", error)
        target = np.zeros(3)
        comm.Sendrecv(np.ones(3), 1 - comm.Get_rank(), recvbuf=target, source=MPI.ANY_SOURCE)
        print("sum", target.sum())
    """)
    assert outcome.code == 0, outcome.text
    assert "refused:" in outcome.text
    assert outcome.text.count("sum 3.0") == 2
