"""One rank of torch's own distributed tests: those inside the wheel, run in place under mpiexec.

Every rank runs the same tests in the same order, with dlmpi behind the name that BACKEND gives.
Rank 0 writes a line per test; after a failure the ranks may be in different places, so all of them
end and the caller starts new ones for what is left.

Usage: mpiexec -n N python ci/exam_worker.py RESULTS [PATTERN ...]
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import tempfile
import time
import traceback
import unittest
from datetime import timedelta
from pathlib import Path

from dlmpi import MPI

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.Get_rank(), WORLD.Get_size()
BACKEND = os.environ["BACKEND"]
OWN = "dlmpi"
LIMIT = float(os.environ.get("DLMPI_EXAM_LIMIT", "60"))
#: A test that failed; a rank that hangs ends with faulthandler's 1.
AGAIN = 3


def prepare() -> str:
    """Set what the suite reads when it is imported."""
    folder = WORLD.bcast(tempfile.mkdtemp(prefix="exam-") if RANK == 0 else None, root=0)
    if RANK == 0:
        for name in ("barrier", "test_dir", "init_dir"):
            (Path(folder) / name).mkdir()
    from dlmpi import placement

    placement.set_environment()
    os.environ["TEMP_DIR"] = folder
    WORLD.Barrier()
    return folder


FOLDER = prepare()

import torch.distributed as dist  # noqa: E402
from torch.testing._internal import common_distributed  # noqa: E402

import dlmpi.torch  # noqa: E402

if BACKEND != OWN:
    dlmpi.torch.install_as(BACKEND)
FEATURES = common_distributed.DistTestCases.backend_feature
for feature in ("plugin", "ddp", "subgroup"):
    FEATURES.setdefault(feature, set()).add(BACKEND)

from torch.testing._internal.common_utils import TestCase  # noqa: E402
from torch.testing._internal.distributed import distributed_test as suite  # noqa: E402

SKIPS = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}


class Exam(TestCase, suite.DistributedTest._DistTestBase):
    """The suite's tests on this rank."""

    world_size = SIZE
    rank = RANK
    skip_return_code_checks: tuple[str, ...] = ()

    def setUp(self) -> None:
        super().setUp()
        name = tempfile.mktemp(dir=FOLDER) if RANK == 0 else None
        self.file_name = WORLD.bcast(name, root=0)
        limit = timedelta(seconds=suite.CUSTOM_PG_TIMEOUT.get(self._testMethodName, LIMIT))
        if BACKEND == "mpi":
            dist.init_process_group("mpi", timeout=limit)
        else:
            where = f"file://{self.file_name}"
            dist.init_process_group(BACKEND, where, timeout=limit, world_size=SIZE, rank=RANK)
        WORLD.Barrier()

    def tearDown(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        super().tearDown()


def one(name: str) -> tuple[str, str]:
    """Run one test: pass, skip or fail, and why."""
    function = getattr(Exam, name)
    if getattr(function, "__unittest_skip__", False):
        return "skip", getattr(function, "__unittest_skip_why__", "")
    test = Exam(name)
    try:
        test.setUp()
        try:
            getattr(test, name)()
        except Exception as error:
            if not isinstance(error, unittest.SkipTest):
                # The ranks may be apart, so they cannot give the group back together.
                dist.distributed_c10d._abort_process_group()
            raise
        finally:
            # Ends what is left after a skip, too, which may be a SystemExit.
            test.tearDown()
    except unittest.SkipTest as skip:
        return "skip", str(skip)
    except SystemExit as skip:
        if skip.code in SKIPS:
            return "skip", SKIPS[skip.code]
        return "fail", f"exit code {skip.code}"
    except BaseException as error:
        traceback.print_exc()
        first = next(iter(str(error).strip().splitlines()), "")
        return "fail", f"rank {RANK}: {type(error).__name__}: {first[:200]}"
    return "pass", ""


def verdict(results: list[tuple[str, str]]) -> tuple[str, str]:
    """What the ranks say together."""
    for status in ("fail", "pass"):
        for found in results:
            if found[0] == status:
                return found
    return results[0]


def main() -> None:
    results, *patterns = sys.argv[1:]
    path = Path(results)
    done = {json.loads(line)["test"] for line in path.open()} if path.exists() else set()
    names = [name for name in sorted(dir(Exam)) if name.startswith("test_")]
    if patterns:
        names = [name for name in names if any(pattern in name for pattern in patterns)]
    done = WORLD.bcast(done, root=0)
    for name in names:
        if name in done:
            continue
        if RANK == 0:
            path.with_suffix(".current").write_text(name)
        faulthandler.dump_traceback_later(2 * LIMIT, exit=True)
        begin = time.monotonic()
        found = WORLD.allgather(one(name))
        status, why = verdict(found)
        everybody = all(each[0] == "fail" for each in found)
        faulthandler.cancel_dump_traceback_later()
        if RANK == 0:
            row = {"test": name, "status": status, "why": why}
            row["seconds"] = round(time.monotonic() - begin, 2)
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
        # Where all ranks failed alike they are still in step.
        if status == "fail" and not everybody:
            sys.stdout.flush()
            sys.stderr.flush()
            WORLD.Barrier()
            os._exit(AGAIN)
    if RANK == 0:
        path.with_suffix(".current").unlink(missing_ok=True)
    WORLD.Barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
