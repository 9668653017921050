"""Every class of operation x library x kind of stream, on the simulated driver."""

from __future__ import annotations

from typing import Any

import pytest

from support.gpu_operations import OPERATIONS

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name: str, comm: Any, lab: Any) -> None:
    OPERATIONS[name](comm, lab)
