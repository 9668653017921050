"""The reductions under each setting of DLMPI_ALLREDUCE, and what happens
when ranks have different settings. The cases themselves are in tests/mpi/test_algorithms.py."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CASES = ["-m", "mpi4py", "-m", "pytest", "-p", "no:cacheprovider", "-q", "--with-mpi", "-m", "mpi"]
CASES += [str(ROOT / "tests" / "mpi" / "test_algorithms.py")]
# A third of the cases: the suites of tests/mpi run all of them under the default setting.
SOME = "bits or in_place or many or sub_communicators or float32 or bfloat16-"

# Less, for the ways that only ranks take which are many or far apart.
FEW = "bits or in_place or first or Reduce-AVG or Allreduce-MAX"


# Under the default setting large contributions are read out of each other's memory, here none are.
@pytest.mark.parametrize(
    "row",
    [
        ("own", "3", SOME, "direct exchange"),
        ("mpi", "2", SOME, "library"),
        ("ring", "3", FEW, "ring"),
        ("halving", "3", FEW, "halving"),
    ],
)
def test_every_algorithm_gives_the_same_numbers(venv, environment, tmp_path, row):
    setting, ranks, cases, taken = row
    start = ["-n", ranks, str(venv / "bin" / "python"), *CASES, "-k", cases]
    settings = {"DLMPI_ALLREDUCE": setting, "DLMPI_CMA": "off"}
    assert taken in ways(venv, environment | settings, tmp_path, start)


def test_nodes_reduce_within_and_then_between_them(venv, environment, tmp_path):
    """Ranks whose host names differ run on different nodes, as far as anybody can tell."""
    named = subprocess.run(["unshare", "--uts", "hostname", "one"], check=False)
    if named.returncode != 0:
        pytest.skip("this user may not name a host of his own")
    start = []
    for node, ranks in (("one", "2"), ("two", "1")):
        name = ["unshare", "--uts", "sh", "-c", f'hostname node-{node}; exec "$@"', "sh"]
        rank = [str(venv / "bin" / "python"), *CASES, "-k", FEW]
        start += [":", "-n", ranks, *name, *rank]
    settings = {"DLMPI_ALLREDUCE": "two-level"}
    assert "two levels" in ways(venv, environment | settings, tmp_path, start[1:])


def ways(venv, environment, folder, start):
    """Run the cases; the ways that their reductions took."""
    trace = folder / "job.json"
    variables = {**environment, "DLMPI_TEST_DEADLINE": "60", "DLMPI_TRACE": str(trace)}
    command = [str(venv / "bin" / "mpiexec"), *start]
    done = subprocess.run(
        command, cwd=ROOT, env=variables, timeout=280, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r'"algorithm": ?"([^"]*)"', trace.read_text()))


SCRIPT = """
import os
rank = int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
os.environ["NAME"] = ["FIRST", "SECOND"][rank]
import numpy as np
import dlmpi
from dlmpi import MPI

try:
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, np.ones(100_000, np.float32))
    print("no error", rank)
except dlmpi.MismatchError as error:
    print("told", rank, "NAME=FIRST" in str(error), "NAME=SECOND" in str(error))
"""


def script(name, first, second):
    return SCRIPT.replace("NAME", name).replace("FIRST", first).replace("SECOND", second)


@pytest.mark.parametrize(
    "setting", [("DLMPI_ALLREDUCE", "own", "mpi"), ("DLMPI_GPU_AWARE", "0", "1")]
)
def test_different_settings_are_told_on_every_rank(run_script, setting):
    outcome = run_script(script(*setting))
    assert outcome.code == 0, outcome.text
    assert "told 0 True True" in outcome.text, outcome.text
    assert "told 1 True True" in outcome.text, outcome.text


SETTINGS = """
import numpy as np
import dlmpi
from dlmpi import MPI

for setting, n in (("mpi", 300_001), ("own", 300_002), ("auto", 300_003), (None, 300_004)):
    comm = dlmpi.wrap(MPI.COMM_WORLD.Dup(), allreduce=setting)
    comm.Allreduce(MPI.IN_PLACE, np.ones(n, np.int8))
"""


def test_a_communicator_has_a_setting_of_its_own(run_script, tmp_path):
    outcome = run_script(SETTINGS, DLMPI_TRACE="job.json", DLMPI_ALLREDUCE="mpi")
    assert outcome.code == 0, outcome.text
    events = json.loads((tmp_path / "job.json").read_text())["traceEvents"]
    calls = [event["args"] for event in events if event["name"] == "Allreduce"]
    ways = {(args["bytes"], args["algorithm"] == "library") for args in calls}
    assert ways == {(300_001, True), (300_002, False), (300_003, False), (300_004, True)}


def test_a_wrong_setting_is_named(run_script):
    outcome = run_script(script("DLMPI_ALLREDUCE", "fast", "fast"))
    assert (
        "DLMPI_ALLREDUCE=fast: expected one of auto, mpi, own, ring, halving, two-level"
        in outcome.text
    ), outcome.text


DIFFERENT = """
import numpy as np
import dlmpi
from dlmpi import MPI

comm = MPI.COMM_WORLD
comm.Barrier()  # the first call is always compared
room = np.ones(5_000_000, np.float32)  # more than goes through shared memory
for _ in range(2):
    try:
        comm.Allreduce(MPI.IN_PLACE, room[: 5_000_000 - 500_000 * comm.rank])
        print("no error", comm.rank)
    except dlmpi.MismatchError as error:
        print("told", comm.rank, "different reductions" in str(error))
assert (room == 1).all()
comm.Allreduce(MPI.IN_PLACE, room)
assert (room == comm.size).all()
print("same", comm.rank)
"""


def test_no_rank_uses_anothers_memory_for_a_different_call(run_script):
    """Calls that were not compared: ranks tell which call they lend their memory for."""
    outcome = run_script(DIFFERENT, DLMPI_CHECK="off")
    assert outcome.code == 0, outcome.text
    for rank in (0, 1):
        assert outcome.text.count(f"told {rank} True") == 2, outcome.text
        assert f"same {rank}" in outcome.text, outcome.text
