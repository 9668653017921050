"""MPI functions that fail: every one that dlmpi calls, at its first call and at a later one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.interpose import build
from support.runs import Outcome, run

#: What is called once per process, so that a sweep inside one process comes too late, in the
#: scenario that calls it; and what each rank says then. Functions that one of the libraries is not
#: asked for are not reached.
SAID = r"failed: Exception: .* reported it"
#: What the short way asks for in vain the usual one asks for again (DESIGN, `lane.rs`).
AGAIN = f"{SAID}|failed: right"
AT_START = {
    "MPI_Query_thread 1": ("barrier", AGAIN),
    "MPI_Comm_create_keyval 1": ("barrier", AGAIN),
    "MPI_Comm_create_keyval 2": ("barrier", AGAIN),
    "MPI_Comm_set_attr 1": ("barrier", AGAIN),
    "MPI_Get_processor_name 1": ("Allreduce AVG, large", "failed: right"),
    "MPI_Op_create 1": ("Allreduce MAX", f"{SAID}|not reached: right"),
    "MPI_Op_create_c 1": ("Allreduce MAX", f"{SAID}|not reached: right"),
}
#: Calls that fail on rank 1 alone, while rank 0 waits for it: named by the watch.
ALONE = {
    "Allreduce dense": "MPI_Allreduce",
    "IAllreduce dense": "MPI_Iallreduce",
    "barrier": "MPI_Comm_idup",
}


@pytest.fixture(scope="module")
def built() -> dict[Path, Path]:
    return {}


@pytest.fixture
def faulty(venv, environment, built, tmp_path, tmp_path_factory):
    """Run `support.injections` on two ranks with the library preloaded."""
    if venv not in built:
        built[venv] = build(venv, tmp_path_factory.mktemp("faulty"))

    def launch(*arguments: str, **variables: str) -> Outcome:
        command = [str(venv / "bin/mpiexec"), "-n", "2", "env", f"LD_PRELOAD={built[venv]}"]
        command += [str(venv / "bin/python"), "-m", "support.injections", *arguments]
        given = {"DLMPI_CHECK": "always", **variables}
        return run(command, {**environment, **given}, tmp_path)

    return launch


def test_every_function_that_fails(faulty, tmp_path):
    """About a thousand failures in one job: an exception with MPI's words where the call failed, or
    the right result; and everything that is called afterwards works."""
    outcome = faulty("sweep", str(tmp_path), DLMPI_TIMEOUT="60")
    for rank in range(2):
        told = (tmp_path / f"injected.{rank}").read_text().splitlines()
        assert told[-1:] == ["end"], f"ended at {told[-1:]}:\n{outcome.text}"
        wrong = [line for line in told if "WRONG" in line or "failed: right" in line]
        wrong = [line for line in wrong if "WRONG" in line or not re.search(SILENT, line)]
        assert not wrong, wrong[:20]
        assert sum("failed: Exception" in line for line in told) > 500
    assert outcome.code == 0, outcome.text


#: Failures without a consequence for the operation: of the end of a communicator or a type, of the
#: watch, of the parts of a status that a collective does not have, of a rank, a name or the length
#: of a matched message that are only for words and for speed.
SILENT = (
    "MPI_(Comm_free|Type_free|Improbe|Status_set_|Comm_rank|Get_processor_name)"
    "|Mprobe.*call 1 of MPI_Get_elements"
)


@pytest.mark.parametrize("call", AT_START)
def test_the_first_call_of_a_process(faulty, call):
    scenario, said = AT_START[call]
    outcome = faulty("once", scenario, INJECT=call)
    assert outcome.code == 0, outcome.text
    for rank in range(2):
        (line,) = outcome.lines(f"{rank} failed") + outcome.lines(f"{rank} not reached")
        assert re.match(f"{rank} ({said})", line), outcome.text
        assert f"{rank} works" in outcome.text


def test_a_library_that_does_not_say_its_version(faulty):
    outcome = faulty("once", "barrier", INJECT="MPI_Get_library_version 1")
    assert outcome.code != 0
    assert "MPI_Get_library_version failed with error code" in outcome.text


def test_a_request_that_cannot_be_completed_ends_the_job(faulty):
    outcome = faulty("once", "barrier", INJECT="MPI_Grequest_complete 1")
    assert outcome.code == 1, outcome.text
    assert "MPI cannot be told that an operation has ended" in outcome.text


@pytest.mark.parametrize("scenario", ALONE)
def test_a_failure_of_one_rank_is_named_where_others_wait(faulty, scenario):
    """Rank 1 raises; rank 0, which waits for it, says after the limit what rank 1 is doing."""
    outcome = faulty("alone", scenario, ALONE[scenario], "1", DLMPI_TIMEOUT="4")
    assert outcome.code == 124, outcome.text
    assert re.search(rf"1 raised Exception: .*{ALONE[scenario]} reported it", outcome.text)
    assert "[rank 0] dlmpi: " in outcome.text
    assert "not arrived: rank 1 " in outcome.text or "its part is done: rank 1 " in outcome.text
    assert re.search(
        r"the Python stack of rank 1:\n(.*\n)+?.*injections.py.* in alone", outcome.text
    )


# Of a reduction whose ranks use each other's memory: the first message tells where this rank's
# memory is, the second that it has left the others'.
@pytest.mark.parametrize(("nth", "shared"), [("1", False), ("2", True)])
def test_memory_that_others_use_is_not_given_back(faulty, nth, shared):
    """Before rank 1 has told its places, an exception; after that nothing says when rank 0 has left
    them, so the job ends."""
    outcome = faulty("alone", "Allreduce, huge", "MPI_Isend", nth, DLMPI_TIMEOUT="10")
    words = "a reduction failed while other ranks work on this one's memory"
    if shared and words in outcome.text:
        assert outcome.code == 1, outcome.text
    else:
        # Where the kernel does not let ranks read each other, messages travel, and fail as such.
        assert "1 raised Exception" in outcome.text, outcome.text
        assert outcome.code == 124, outcome.text
    assert words not in outcome.text or shared
