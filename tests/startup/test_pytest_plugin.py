"""The shipped guard for test suites: each of its promises, on both libraries."""

from __future__ import annotations

HEADER = """\
import pytest
from mpi4py import MPI

COMM = MPI.COMM_WORLD
RANK = COMM.rank

"""
ABORTED = 70


def guarded(place, source, *options, launcher=None):
    name = "test_case.py"
    place.write(source, name)
    (place.folder / name).write_text(HEADER + (place.folder / name).read_text())
    command = [launcher or place.mpiexec, "-n", "2", place.python, "-m", "pytest"]
    command += [
        "-p",
        "dlmpi.pytest",
        "--mpi-guard",
        "--mpi-deadline",
        "4",
        "-p",
        "no:cacheprovider",
    ]
    return place.run(*command, *options, name)


def test_a_good_run_is_left_alone(place):
    outcome = guarded(place, "def test_meet():\n    assert COMM.allreduce(1) == 2")
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("1 passed") == 1


def test_beside_pytest_mpi(place):
    source = "@pytest.mark.mpi(min_size=2)\ndef test_meet():\n    assert COMM.allreduce(1) == 2"
    outcome = guarded(place, source, "--with-mpi")
    assert outcome.code == 0, outcome.text
    assert "1 passed" in outcome.text


def test_a_rank_raises_before_a_collective(place):
    outcome = guarded(
        place,
        """
        def test_early():
            if RANK == 1:
                raise RuntimeError("too early")
            COMM.Barrier()
        """,
    )
    assert outcome.code == ABORTED, outcome.text
    assert "[rank 1/2] call FAILED test_case.py::test_early" in outcome.text
    assert "RuntimeError: too early" in outcome.text
    assert "finished test_case.py::test_early; ranks [0] did not arrive" in outcome.text


def test_an_import_error_on_one_rank(place):
    outcome = guarded(
        place,
        """
        if RANK == 1:
            import a_module_that_is_not_there

        def test_meet():
            COMM.Barrier()
        """,
    )
    assert outcome.code not in (0, ABORTED), outcome.text
    assert "[rank 1/2] collect FAILED test_case.py" in outcome.text


def test_a_conftest_that_fails_on_one_rank(place):
    """This rank never starts its tests; without a deadline the other would wait for it for ever."""
    place.write(
        """
        from mpi4py import MPI
        if MPI.COMM_WORLD.rank == 1:
            raise RuntimeError("half a conftest")
        """,
        "conftest.py",
    )
    outcome = guarded(place, "def test_meet():\n    COMM.Barrier()")
    assert outcome.code != 0, outcome.text
    assert "half a conftest" in outcome.text
    assert outcome.seconds < 60


def test_a_skip_on_one_rank_is_a_failure(place):
    outcome = guarded(
        place,
        """
        @pytest.mark.skipif(RANK == 1, reason="only here")
        def test_half():
            pass

        def test_never_reached():
            raise SystemError("went on")
        """,
    )
    assert outcome.code == 1, outcome.text
    assert "skipped on some ranks only" in outcome.text
    assert "went on" not in outcome.text


def test_a_failure_on_one_rank_is_everyones_exit_code(place):
    outcome = guarded(place, "def test_odd():\n    assert RANK == 0")
    assert outcome.code == 1, outcome.text
    assert "[rank 1/2] call FAILED test_case.py::test_odd" in outcome.text


def test_an_end_that_never_comes(place):
    """All tests pass, then one rank hangs in an exit handler and the other one in MPI_Finalize."""
    outcome = guarded(
        place,
        """
        def test_fine():
            if RANK == 1:
                import atexit, time
                atexit.register(time.sleep, 300)
        """,
    )
    assert outcome.code != 0, outcome.text
    assert "1 passed" in outcome.text
    assert "the tests are over, but this process" in outcome.text
    assert outcome.seconds < 60


def test_reports_do_not_overwrite_each_other(place):
    outcome = guarded(place, "def test_one():\n    pass", "--junitxml=report.xml")
    assert outcome.code == 0, outcome.text
    names = sorted(path.name for path in place.folder.glob("report*.xml"))
    assert names == ["report.0.xml", "report.1.xml"]


def test_ranks_that_are_none(place, other):
    outcome = guarded(place, "def test_one():\n    pass", launcher=other.mpiexec)
    assert outcome.code != 0, outcome.text
    assert "the mpiexec that belongs to" in outcome.text
    assert "1 passed" not in outcome.text
