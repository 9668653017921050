"""Worker processes of a rank: they import the script again and must never start or call MPI."""

from __future__ import annotations

import pytest

METHODS = ("fork", "spawn", "forkserver")
# As tutorials write it: the import, the rank and the size at the top of the module.
POOL = """
    import multiprocessing, os, sys
    import numpy as np
    from PACKAGE import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.size
    started = MPI.Wtime()
    host = MPI.Get_processor_name()

    USES = {
        "Allreduce": lambda: comm.Allreduce(MPI.IN_PLACE, np.ones(2)),
        "bcast": lambda: comm.bcast(1),
        "Send": lambda: MPI.COMM_SELF.Send(np.ones(2), 0),
        "Isend": lambda: comm.Isend(np.ones(2), 0),
        "Split": lambda: comm.Split(0),
        "Barrier": lambda: comm.Barrier(),
        "Abort": lambda: comm.Abort(3),
        "Init": lambda: MPI.Init(),
        "Finalize": lambda: MPI.Finalize(),
    }

    def work(number):
        refused = []
        for name, use in USES.items():
            try:
                use()
            except RuntimeError as error:
                words = f"{name}: this process ({os.getpid()}) is a child of rank {rank} of {size} "
                if type(error).__name__ == "LaunchError" and str(error).startswith(words):
                    refused.append(name)
        return rank, size, comm.Get_size(), MPI.COMM_SELF.Get_size(), refused == list(USES)

    if __name__ == "__main__":
        with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
            answers = pool.map(work, range(4))
        good = all(answer == (rank, size, size, 1, True) for answer in answers)
        total = np.full(1, rank + 1.0)
        comm.Allreduce(MPI.IN_PLACE, total)
        print("workers", good, answers if not good else "", "sum", total[0], flush=True)
"""


@pytest.mark.parametrize("method", METHODS)
def test_workers_of_ranks(place, method):
    outcome = place.ranks(2, POOL.replace("PACKAGE", "dlmpi"), method)
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("workers True  sum 3.0") == 2, outcome.text


@pytest.mark.parametrize("method", METHODS)
def test_workers_of_a_process_that_nobody_launched(place, method):
    script = place.write(POOL.replace("PACKAGE", "dlmpi"))
    outcome = place.run(place.python, script, method)
    assert outcome.code == 0, outcome.text
    assert "workers True  sum 1.0" in outcome.text


@pytest.mark.parametrize("method", METHODS)
def test_workers_of_an_mpi4py_script_under_run(place, method):
    script = place.write(POOL.replace("PACKAGE", "mpi4py"))
    outcome = place.dlmpi(2, "run", script, method)
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("workers True  sum 3.0") == 2, outcome.text


def test_workers_that_start_before_mpi(place):
    """A forkserver that is older than MPI knows the launcher's variables all the same."""
    outcome = place.ranks(
        2,
        """
        import multiprocessing

        def work(number):
            from dlmpi import LaunchError, MPI
            try:
                MPI.COMM_WORLD.Barrier()
            except LaunchError as error:
                return "MPI lives in that process only" in str(error)

        if __name__ == "__main__":
            with multiprocessing.get_context("forkserver").Pool(1) as pool:
                early = pool.map(work, range(2))
                from dlmpi import MPI
                late = pool.map(work, range(2))
            MPI.COMM_WORLD.Barrier()
            print("early", early, "late", late, flush=True)
        """,
    )
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("early [True, True] late [True, True]") == 2


def test_a_plain_child_of_a_rank(place):
    """It inherits the launcher's variables: MPI_Init would abort (MPICH) or hang (Open MPI)."""
    child = place.write(
        """
        from dlmpi import MPI
        print("asked for the rank:", MPI.COMM_WORLD.Get_rank(), flush=True)
        MPI.COMM_WORLD.Barrier()
        """,
        "child.py",
    )
    outcome = place.ranks(
        2,
        f"""
        import subprocess, sys
        from dlmpi import MPI
        command = [sys.executable, {child!r}]
        done = subprocess.run(command, timeout=60, capture_output=True, text=True)
        words = f"is a child of rank {{MPI.COMM_WORLD.Get_rank()}} of 2"
        print("code", done.returncode, words in done.stderr, done.stdout.strip(), flush=True)
        MPI.COMM_WORLD.Barrier()
        """,
    )
    assert outcome.code == 0, outcome.text
    assert outcome.lines("code") == [
        "code 1 True asked for the rank: 0",
        "code 1 True asked for the rank: 1",
    ], outcome.text


def test_a_plain_child_of_a_process_that_nobody_launched_is_free(place):
    child = place.write(
        "from dlmpi import MPI\nMPI.COMM_WORLD.Barrier()\nprint('free')", "child.py"
    )
    outcome = place.alone(
        f"""
        import subprocess, sys
        from dlmpi import MPI
        sys.exit(subprocess.run([sys.executable, {child!r}], timeout=60).returncode)
        """
    )
    assert outcome.code == 0, outcome.text
    assert "free" in outcome.text


@pytest.mark.parametrize("method", METHODS)
def test_a_data_loader_with_workers(place, method):
    outcome = place.ranks(
        1,
        """
        import sys
        from dlmpi import MPI
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        comm = MPI.COMM_WORLD
        rank = comm.Get_rank()

        if __name__ == "__main__":
            data = TensorDataset(torch.arange(8.0))
            loader = DataLoader(data, 2, num_workers=1, multiprocessing_context=sys.argv[1])
            total = torch.zeros(1)
            for (batch,) in loader:
                total += batch.sum()
                comm.Allreduce(MPI.IN_PLACE, total, op=MPI.MAX)
            print("total", total.item(), flush=True)
        """,
        method,
    )
    assert outcome.code == 0, outcome.text
    assert "total 28.0" in outcome.text
