"""What else goes wrong on a node: killed ranks, no memory, re-entry, an early end."""

from __future__ import annotations

import textwrap

HEAD = """
import os, resource, signal, sys, threading, time
import numpy as np
import dlmpi
from dlmpi import MPI

comm = MPI.COMM_WORLD
rank = comm.rank
"""


def script(body: str) -> str:
    return HEAD + textwrap.dedent(body)


def test_a_killed_rank_ends_the_job(run_script):
    outcome = run_script(
        script("""
        comm.Barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        comm.Barrier()
        print("survived", flush=True)
        """)
    )
    assert outcome.code != 0
    assert "survived" not in outcome.text


#: Calls that need memory besides the tensors', which rank 1 has none for.
HUNGRY = {
    "strided": "comm.Allreduce(MPI.IN_PLACE, strided)",
    "not blocking": "comm.Iallreduce(MPI.IN_PLACE, strided).Wait()",
    "movement": "comm.Bcast(strided)",
    "own algorithm": "comm.Reduce_scatter_block(MPI.IN_PLACE, dense)",
    "functional": "dlmpi.allreduce(dense)",
    # Less than a megabyte each, so that they are laid end to end, and many.
    "many": "dlmpi.allreduce_many(pieces)",
    "many strided": "dlmpi.allreduce_many([strided, dense[::2]])",
    "gather": "comm.Gather(strided, None if rank else gathered, 0)",
    "scan": "comm.Scan(MPI.IN_PLACE, strided)",
}


def test_no_memory_is_an_exception(run_script):
    """Below RLIMIT_AS every rank hears that rank 1 has no memory for its part of a call; the next
    call works."""
    outcome = run_script(
        script(f"""
        n = 1 << 24
        dense, strided = np.ones(n), np.ones(2 * n, "f4")[::2]
        pieces, gathered = [np.ones(1 << 16) for _ in range(600)], np.empty((2, n), "f4")
        dlmpi.allreduce(dense[:9])  # imports what it needs
        calls = {HUNGRY}
        """)
        + script("""
        def starve(spare):
            with open("/proc/self/statm") as pages:
                now = int(pages.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (now + spare, -1))

        for name, call in calls.items():
            comm.Barrier()
            if rank == 1:
                starve(24 << 20)
            try:
                eval(call)
                said = "right"
            except (MemoryError, dlmpi.MismatchError) as error:
                said = f"{type(error).__name__}: {error}"
            if rank == 1:
                resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
            print(f"{name} {rank}: {said[:300]}", flush=True)
            out = np.ones(3)
            comm.Allreduce(MPI.IN_PLACE, out)
            assert out.tolist() == [2.0, 2.0, 2.0]
        """).removeprefix(HEAD),
        DLMPI_CHECK="always",
        DLMPI_ALLREDUCE="own",
    )
    assert outcome.code == 0, outcome.text
    for name in HUNGRY:
        assert len(outcome.lines(f"{name} 0: MismatchError")) == 1, outcome.text
        assert len(outcome.lines(f"{name} 1: MemoryError")) == 1, outcome.text


def test_re_entry_from_a_deleter_and_a_signal_handler(run_script):
    """A producer's deleter, and a handler, make calls of their own while a call ends or waits."""
    outcome = run_script(
        script("""
        side = comm.Dup()
        done = []

        def total(of):
            out = np.ones(2)
            of.Allreduce(MPI.IN_PLACE, out)
            done.append(float(out[0]))

        class Owner(np.ndarray):
            def __del__(self):
                total(side)

        owner = np.ones(4).view(Owner)
        out = np.empty(4)
        comm.Allreduce(owner, out)
        del owner
        signal.signal(signal.SIGUSR1, lambda *_: total(MPI.COMM_SELF))
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        request = comm.Iallreduce(np.ones(4), out) if rank == 0 else None
        time.sleep(0.5)
        if rank == 1:
            request = comm.Iallreduce(np.ones(4), out)
        request.Wait()
        print("done", sorted(done), out.tolist(), flush=True)
        """)
    )
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("done [1.0, 2.0] [2.0, 2.0, 2.0, 2.0]") == 2, outcome.text


def test_an_early_finalize_with_requests_pending(run_script):
    outcome = run_script(
        script("""
        comm.Barrier()
        request = comm.Iallreduce(np.ones(3), np.empty(3)) if rank == 0 else None
        MPI.Finalize()
        try:
            comm.Allreduce(np.ones(3), np.empty(3))
        except RuntimeError as error:
            print("refused:", error, flush=True)
        """)
    )
    assert outcome.seconds < 60
    assert len(outcome.lines("refused: MPI was finalized")) == 2, outcome.text


def test_many_threads_on_communicators_of_their_own(run_script):
    outcome = run_script(
        script("""
        comms = [comm.Dup() for _ in range(6)]
        wrong = []

        def work(mine, number):
            for step in range(40):
                out = np.full(50, number + step * (rank + 1.0))
                mine.Allreduce(MPI.IN_PLACE, out)
                if not np.all(out == 2 * number + 3 * step):
                    wrong.append((number, step))

        threads = [threading.Thread(target=work, args=row) for row in zip(comms, range(6))]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print("wrong", wrong, flush=True)
        """)
    )
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("wrong []") == 2, outcome.text
