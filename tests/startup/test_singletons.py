"""Jobs whose processes would each be alone: one clear error, at once, with the cure."""

from __future__ import annotations

import pytest

HELLO = """
    from dlmpi import MPI
    print("hello from", MPI.COMM_WORLD.Get_rank(), "of", MPI.COMM_WORLD.Get_size(), flush=True)
"""
STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
}
FAKED = {
    "slurm": (STEP, "srun started 2 processes", {"mpich": "--mpi=pmi2", "openmpi": "--mpi=pmix"}),
    "jsrun": (
        {"JSM_NAMESPACE_RANK": "0", "JSM_NAMESPACE_SIZE": "2"},
        "jsrun started",
        {"mpich": "Spectrum", "openmpi": "Spectrum"},
    ),
    "pals": (
        {"PALS_RANKID": "0", "PALS_LOCAL_RANKID": "0", "PALS_LOCAL_SIZE": "2"},
        "PALS (mpiexec of HPE Cray) started at least 2 processes",
        {"mpich": "Cray MPICH", "openmpi": "--pmi=pmix"},
    ),
    "flux": (
        {"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "2", "FLUX_TASK_LOCAL_ID": "0"},
        "flux run started 2 processes",
        {"mpich": "pmi=simple", "openmpi": "pmi=pmix"},
    ),
    "torchrun": (
        {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"},
        "torchrun started 2 processes",
        {"mpich": "python -m dlmpi run", "openmpi": "python -m dlmpi run"},
    ),
}


def assert_refused(outcome, *words):
    assert outcome.code != 0, outcome.text
    assert "LaunchError" in outcome.text
    assert "hello from" not in outcome.text
    for word in words:
        assert word in outcome.text
    assert outcome.seconds < 60


def test_the_other_mpis_mpiexec(place, other):
    outcome = place.run(other.mpiexec, "-n", "2", place.python, place.write(HELLO))
    launcher = {"mpich": "MPICH's mpiexec", "openmpi": "Open MPI's mpiexec"}[other.library]
    assert_refused(
        outcome, launcher, "What to do: start it by the mpiexec that belongs to", place.mpiexec
    )
    # Nothing else speaks: neither the library's own last words nor a warning.
    assert "suspicious MPI execution" not in outcome.text
    assert "help about" not in outcome.text
    assert "unsupported PMI" not in outcome.text


@pytest.mark.parametrize("name", FAKED)
def test_launchers_whose_wiring_does_not_reach_the_library(place, name):
    variables, words, cure = FAKED[name]
    assert_refused(place.alone(HELLO, **variables), words, cure[place.library])


def test_the_setting_that_allows_it(place):
    outcome = place.alone(HELLO, DLMPI_SINGLETON="allow", **STEP)
    assert outcome.code == 0, outcome.text
    assert "hello from 0 of 1" in outcome.text


def test_a_wrong_value_of_the_setting(place):
    assert_refused(place.alone(HELLO, DLMPI_SINGLETON="yes"), "expected error or allow")


def test_lawful_processes_of_one_rank(place):
    """A laptop, a notebook in an allocation, one task, mpiexec -n 1."""
    for variables in ({}, {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}):
        outcome = place.alone(HELLO, **variables)
        assert outcome.code == 0, outcome.text
    outcome = place.ranks(1, HELLO)
    assert outcome.code == 0, outcome.text
    assert "hello from 0 of 1" in outcome.text


def test_mpiexec_inside_a_step_of_slurm(place):
    outcome = place.ranks(3, HELLO, **STEP)
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("of 3") == 3


def test_the_refusal_stays_when_the_import_is_tried_again(place):
    outcome = place.alone(
        """
        for _ in range(2):
            try:
                from dlmpi import MPI
            except RuntimeError as error:
                print("refused", type(error).__name__)
        """,
        **STEP,
    )
    assert outcome.text.count("refused LaunchError") == 2, outcome.text


def test_torchrun_inside_mpiexec(mpich):
    """Its workers would all be the same rank: MPI must not even be started."""
    inner = {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    outcome = mpich.run(mpich.mpiexec, "-n", "1", mpich.python, mpich.write(HELLO), **inner)
    assert_refused(outcome, "torchrun started 2 processes inside one process of MPICH's mpiexec")


def test_a_start_left_to_the_program_is_compared_too(place):
    outcome = place.alone(
        """
        import mpi4py
        mpi4py.rc.initialize = False
        from dlmpi import MPI
        print("started", MPI.Is_initialized(), flush=True)
        MPI.Init_thread(MPI.THREAD_FUNNELED)
        """,
        **STEP,
    )
    assert_refused(outcome, "started False", "srun started 2 processes")


def test_mpi4pys_options_are_honoured(place):
    outcome = place.ranks(
        2,
        """
        import mpi4py
        mpi4py.rc.thread_level = "funneled"
        from dlmpi import MPI
        print("level", MPI.Query_thread() == MPI.THREAD_FUNNELED, mpi4py.rc.initialize)
        """,
    )
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("level True True") == 2


def test_mpi_is_finalized_at_the_end_as_by_mpi4py(place):
    """A rank that leaves while another one still sends would otherwise be a failure of the job."""
    outcome = place.ranks(
        2,
        """
        import ctypes, atexit
        from dlmpi import MPI
        def late(comm, keyval, value):
            import os
            os.write(1, b"finalized\\n")
        MPI.COMM_SELF.Set_attr(MPI.Comm.Create_keyval(delete_fn=late), 1)
        """,
    )
    assert outcome.code == 0, outcome.text


def test_a_rank_that_starts_a_job_of_its_own(place):
    """mpiexec inside a rank, or inside a notebook: its ranks have a launcher, so they are free."""
    inner = place.write(HELLO, "inner.py")
    outer = f"""
        import subprocess, sys
        from dlmpi import MPI
        command = [{place.mpiexec!r}, "-n", "2", sys.executable, {inner!r}]
        print("inner", subprocess.run(command, timeout=60).returncode, flush=True)
    """
    outcome = place.alone(outer)
    assert outcome.text.count("of 2") == 2, outcome.text
    assert "inner 0" in outcome.text


def test_mpich_starts_a_job_inside_a_rank(mpich):
    inner = mpich.write(HELLO, "inner.py")
    outer = f"""
        import subprocess, sys
        from dlmpi import MPI
        if MPI.COMM_WORLD.Get_rank() == 0:
            command = [{mpich.mpiexec!r}, "-n", "2", sys.executable, {inner!r}]
            print("inner", subprocess.run(command, timeout=60).returncode, flush=True)
        MPI.COMM_WORLD.Barrier()
    """
    outcome = mpich.ranks(2, outer)
    assert outcome.text.count("of 2") == 2, outcome.text
    assert "inner 0" in outcome.text


def test_spawned_processes_are_a_job(place):
    child = place.write(
        """
        from dlmpi import MPI
        parent = MPI.Comm.Get_parent()
        print("child", MPI.COMM_WORLD.Get_rank(), "of", MPI.COMM_WORLD.Get_size(), flush=True)
        parent.Disconnect()
        """,
        "child.py",
    )
    outcome = place.ranks(
        1,
        f"""
        import sys
        from dlmpi import MPI
        inter = MPI.COMM_SELF.Spawn(sys.executable, [{child!r}], maxprocs=2)
        inter.Disconnect()
        """,
    )
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("of 2") == 2
