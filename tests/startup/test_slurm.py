"""Real steps, allocations and batch jobs in a Slurm of one node, where that is installed."""

from __future__ import annotations

import subprocess
import time

import pytest

from support import slurm as small

pytestmark = pytest.mark.skipif(bool(small.missing()), reason=small.missing() or "there is one")

HELLO = """
    import dlmpi
    from dlmpi import MPI, placement
    world = MPI.COMM_WORLD
    assert placement.place(world).local_rank == dlmpi.local_rank()
    places = dlmpi.local_rank(), dlmpi.local_size()
    print("hello", world.Get_rank(), world.Get_size(), *places, flush=True)
"""
RIGHT = {"mpich": "pmi2", "openmpi": "pmix"}
ALONE = ["hello 0 1 0 1"]
THREE = [f"hello {rank} 3 {rank} 3" for rank in range(3)]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    one = small.Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        one.start()
        yield one
    finally:
        one.stop()


@pytest.mark.parametrize("kind", ["none", "pmi2", "pmix", "cray_shasta"])
def test_steps(slurm, place, kind):
    """Each wheel under each wiring of srun: it works, or both ranks say what to do."""
    if not slurm.has(kind):
        pytest.skip(f"this Slurm has no --mpi={kind}")
    command = ["srun", "-n", "3", f"--mpi={kind}", place.python, place.write(HELLO)]
    outcome = place.run(*command, **slurm.variables)
    if kind == RIGHT[place.library]:
        assert outcome.code == 0, outcome.text
        assert outcome.lines("hello") == THREE
    else:
        assert outcome.code != 0, outcome.text
        assert not outcome.lines("hello")
        assert outcome.text.count("LaunchError: srun started") == 3, outcome.text
        assert outcome.text.count(f"What to do: srun --mpi={RIGHT[place.library]}") == 3
        assert "Abort" not in outcome.text


def test_an_allocation(slurm, place):
    """A process in it is a lawful job of one; so is a job by the library's own mpiexec."""
    script = place.write(HELLO)
    both = f"{place.python} {script} && {place.mpiexec} -n 3 {place.python} {script}"
    outcome = place.run("salloc", "-n", "3", "bash", "-c", both, **slurm.variables)
    assert outcome.code == 0, outcome.text
    assert outcome.lines("hello") == sorted(ALONE + THREE)


def test_a_batch_job(slurm, place):
    script = place.write(HELLO)
    batch = place.folder / "batch.sh"
    step = f"srun --mpi={RIGHT[place.library]} {place.python} {script}"
    batch.write_text(f"#!/bin/bash\n{place.python} {script}\n{step}\n")
    log = place.folder / "batch.out"
    outcome = place.run(
        "sbatch", "--wait", "-n", "3", f"--output={log}", str(batch), **slurm.variables
    )
    text = log.read_text()
    assert outcome.code == 0, text
    assert sorted(line for line in text.splitlines() if "hello" in line) == sorted(ALONE + THREE)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_in_a_step(slurm, place, method):
    source = """
        import multiprocessing, sys
        from dlmpi import LaunchError, MPI
        rank = MPI.COMM_WORLD.Get_rank()

        def work(number):
            try:
                MPI.COMM_WORLD.Barrier()
            except LaunchError:
                return rank

        if __name__ == "__main__":
            with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
                good = pool.map(work, range(2)) == [rank] * 2
            MPI.COMM_WORLD.Barrier()
            print("workers", rank, good, flush=True)
    """
    command = ["srun", "-n", "2", f"--mpi={RIGHT[place.library]}", place.python]
    outcome = place.run(*command, place.write(source), method, **slurm.variables)
    assert outcome.code == 0, outcome.text
    assert outcome.lines("workers") == ["workers 0 True", "workers 1 True"]


def test_preemption_stops_all_ranks_at_one_step(slurm, place):
    source = """
        import time
        import dlmpi
        from dlmpi import MPI

        world, step = MPI.COMM_WORLD, 0
        dlmpi.stop_requested()
        if world.Get_rank() == 0:
            open("started", "w").close()
        while not dlmpi.stop_requested() and step < 3000:
            step += 1
            time.sleep(0.01)
        same = len(set(world.allgather(step))) == 1
        print("stopped", 0 < step < 3000, same, flush=True)
    """
    command = ["srun", "--job-name=loop", "-n", "3", f"--mpi={RIGHT[place.library]}"]
    command += [place.python, place.write(source)]
    # The signal comes from outside, as a scheduler's does, once the loop runs.
    watcher = (
        "while [ ! -e started ]; do sleep 0.1; done; sleep 0.5; "
        "scancel --signal=TERM --name=loop --state=RUNNING"
    )
    with subprocess.Popen(
        ["bash", "-c", watcher], cwd=place.folder, env=slurm.environment()
    ) as cancel:
        outcome = place.run(*command, **slurm.variables)
        cancel.wait(30)
    assert outcome.code == 0, outcome.text
    assert outcome.lines("stopped") == ["stopped True True"] * 3, outcome.text


def test_a_torchrun_style_script(slurm, place):
    show = "import os; print('shown', *(os.environ[n] for n in ('RANK','WORLD_SIZE','LOCAL_RANK')))"
    command = ["srun", "-n", "2", f"--mpi={RIGHT[place.library]}", place.python, "-m", "dlmpi"]
    outcome = place.run(*command, "run", "-c", show, **slurm.variables)
    assert outcome.code == 0, outcome.text
    assert outcome.lines("shown") == ["shown 0 2 0", "shown 1 2 1"]


def test_a_failing_rank_ends_the_step(slurm, place):
    fail = "from mpi4py import MPI; c = MPI.COMM_WORLD; 1 / (1 - c.rank); c.Barrier()"
    command = ["srun", "-n", "2", f"--mpi={RIGHT[place.library]}", place.python, "-m", "dlmpi"]
    start = time.monotonic()
    outcome = place.run(*command, "run", "-c", fail, **slurm.variables)
    assert outcome.code != 0, outcome.text
    assert "[rank 1] ZeroDivisionError: division by zero" in outcome.lines("[rank 1]")
    assert time.monotonic() - start < 60


def test_info_in_a_step(slurm, place):
    command = ["srun", "-n", "2", f"--mpi={RIGHT[place.library]}", place.python]
    outcome = place.run(*command, "-m", "dlmpi", "info", **slurm.variables)
    assert outcome.code == 0, outcome.text
    speaks = {"mpich": "PMI", "openmpi": "PMIx"}[place.library]
    assert f"rank 0 of 2, tells MPI by {speaks}" in outcome.text
    assert "rank 1: " in outcome.text
