"""`selftest --device` on the simulated driver: right where MPI is, and not where it is not."""

from __future__ import annotations

from typing import Any

import pytest

from dlmpi._cli import _device
from support import gpu_tensors, simulated

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.fixture
def driver(comm: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(_device, "_SIZES", (8, 65_544))
    before = simulated.current()
    found = _device.find(comm.rank)
    assert isinstance(found, _device.Driver), found
    yield found
    simulated.library().simulated_set_current(before)
    gpu_tensors.reset_when_idle()


def test_it_passes_and_leaves_nothing(comm: Any, driver: Any) -> None:
    comm.Barrier()
    alive = simulated.alive("memory")
    names = []
    for name, check in _device.checks(driver):
        names.append(name)
        check(comm)
    assert names[0].startswith(f"cuda:{comm.rank}: ")
    assert len(names) == 2
    assert simulated.alive("memory") == alive


class Forgetful:
    """A communicator that delivers what was in an allocation before."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def Sendrecv(self, *_arguments: Any) -> None:
        pass

    def Bcast(self, _tensor: Any, root: int) -> None:
        pass


@pytest.mark.parametrize("number", [0, 1])
def test_it_fails_where_old_memory_is_delivered(comm: Any, driver: Any, number: int) -> None:
    _, check = list(_device.checks(driver))[number]
    # The root of the first broadcast has the right values anyway.
    if number == 1 and comm.rank == 0:
        return
    with pytest.raises(AssertionError, match=r"8 bytes .*: checksum [0-9a-f]{8} in place of"):
        check(Forgetful(comm))
