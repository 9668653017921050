"""Keeps a pytest run under mpiexec from hanging and from losing a traceback.

pytest-mpi supplies the marks and the option `--with-mpi`; the guard that dlmpi ships for everyone
(python/dlmpi/pytest.py) does the rest. It is loaded from its file, and runs on plain mpi4py: the
product under test must not be what guards the tests. Without `--with-mpi`, or on one rank, it is
not active.

Launch: mpiexec -n N python -m mpi4py -m pytest --with-mpi -m mpi tests/mpi
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "python" / "dlmpi" / "pytest.py"
_spec = importlib.util.spec_from_file_location("shipped_guard", SOURCE)
assert _spec is not None
assert _spec.loader is not None
shipped = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = shipped
_spec.loader.exec_module(shipped)

ABORT_CODE = shipped.ABORT_CODE
# Seconds that ranks wait for each other after a test, and for the end of the processes.
DEADLINE = float(os.environ.get("DLMPI_TEST_DEADLINE", "60"))
END = 60.0


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    with_mpi = config.getoption("--with-mpi", False) or config.getoption("--only-mpi", False)
    if not with_mpi or config.option.collectonly:
        return
    from mpi4py import MPI

    shipped.guard(config, shipped.Meeting(MPI, DEADLINE, END))


def pytest_collection_finish() -> None:
    """Keep frameworks and thousands of test items out of every collection that a test asks for."""
    gc.collect()
    gc.freeze()
