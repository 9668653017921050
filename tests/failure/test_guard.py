"""Proves each guard of tests/conftest.py: no hang, and the words that say what happened where."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from conftest import ABORT_CODE

ROOT = Path(__file__).resolve().parents[2]


def test_a_good_run_is_left_alone(run_tests):
    outcome = run_tests("""
        def test_meet():
            assert COMM.allreduce(1) == 2
    """)
    assert outcome.code == 0, outcome.text
    assert "1 passed" in outcome.text


def test_a_rank_raises_before_a_collective(run_tests):
    outcome = run_tests("""
        def test_early():
            if RANK == 1:
                raise RuntimeError("too early")
            COMM.Barrier()
    """)
    assert outcome.code == ABORT_CODE, outcome.text
    assert "[rank 1/2] call FAILED test_case.py::test_early" in outcome.text
    assert "RuntimeError: too early" in outcome.text
    assert "finished test_case.py::test_early; ranks [0] did not arrive" in outcome.text
    assert outcome.seconds < 30


def test_a_receive_that_never_comes(run_tests):
    outcome = run_tests("""
        def test_before():
            COMM.Barrier()

        def test_lonely():
            if RANK == 0:
                COMM.Recv(bytearray(8), source=1, tag=5)
    """)
    assert outcome.code == ABORT_CODE, outcome.text
    assert "[rank 1/2] finished test_case.py::test_lonely; ranks [0]" in outcome.text
    assert "test_before;" not in outcome.text


def test_an_import_error_on_one_rank(run_tests):
    outcome = run_tests("""
        if RANK == 1:
            import a_module_that_is_not_there

        def test_meet():
            COMM.Barrier()
    """)
    assert outcome.code not in (0, ABORT_CODE), outcome.text
    assert "[rank 1/2] collect FAILED test_case.py" in outcome.text
    assert "No module named 'a_module_that_is_not_there'" in outcome.text
    assert "collected other tests than rank 0" in outcome.text


def test_other_tests_on_one_rank(run_tests):
    outcome = run_tests("""
        @pytest.mark.parametrize("number", range(1 + RANK))
        def test_meet(number):
            COMM.Barrier()
    """)
    assert outcome.code not in (0, ABORT_CODE), outcome.text
    assert "collected other tests than rank 0: ['test_case.py::test_meet[1]']" in outcome.text


def test_a_skip_on_one_rank_while_the_other_waits(run_tests):
    outcome = run_tests("""
        @pytest.mark.skipif(RANK == 1, reason="only here")
        def test_half():
            COMM.Barrier()
    """)
    assert outcome.code == ABORT_CODE, outcome.text
    assert "[rank 1/2] finished test_case.py::test_half; ranks [0]" in outcome.text


def test_a_skip_on_one_rank_is_a_failure_even_without_a_hang(run_tests):
    outcome = run_tests("""
        @pytest.mark.skipif(RANK == 1, reason="only here")
        def test_half():
            pass

        def test_never_reached():
            raise SystemError("went on")
    """)
    assert outcome.code == 1, outcome.text
    assert "test_case.py::test_half: skipped on some ranks only" in outcome.text
    assert "went on" not in outcome.text


def test_skips_for_different_reasons(run_tests):
    outcome = run_tests("""
        def test_odd():
            pytest.skip(f"reason {RANK}")
    """)
    assert outcome.code == 1, outcome.text
    assert "or for other reasons; here: Skipped: reason 1" in outcome.text


def test_a_failure_on_one_rank_is_everyones_exit_code(run_tests):
    outcome = run_tests("""
        def test_odd():
            assert RANK == 0

        def test_after():
            COMM.Barrier()
    """)
    assert outcome.code == 1, outcome.text
    assert "[rank 1/2] call FAILED test_case.py::test_odd" in outcome.text
    # Rank 0, whose own tests passed, stayed until the end.
    assert "2 passed" in outcome.text


def test_a_rank_that_dies(run_tests):
    outcome = run_tests("""
        import os

        def test_die():
            if RANK == 1:
                os._exit(3)
            COMM.Barrier()
    """)
    assert outcome.code != 0, outcome.text
    assert outcome.seconds < 30


def test_a_blocking_call_that_holds_the_gil(run_tests):
    """No signal handler and no thread of Python can run then: faulthandler's own thread can."""
    outcome = run_tests(
        """
        import ctypes

        def test_blind():
            if RANK == 0:
                handle = ctypes.c_int if MPI._sizeof(MPI.Comm) == 4 else ctypes.c_void_p
                library = ctypes.PyDLL(MPI.__file__)
                library.MPI_Barrier(handle(COMM.handle))
        """,
        "-o",
        "faulthandler_timeout=4",
        DLMPI_TEST_DEADLINE="50",
    )
    assert outcome.code not in (0, ABORT_CODE), outcome.text
    assert "Timeout (0:00:04)!" in outcome.text
    assert "in test_blind" in outcome.text
    assert outcome.seconds < 40


def test_without_mpi_the_guard_is_inert(tmp_path):
    source = """
        import sys

        def test_serial():
            assert "mpi4py" not in sys.modules
    """
    (tmp_path / "test_serial.py").write_text(textwrap.dedent(source))
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
    command += ["--rootdir", str(tmp_path), "-p", "conftest", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    finished = subprocess.run(
        [*command, str(tmp_path / "test_serial.py")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "1 passed" in finished.stdout
