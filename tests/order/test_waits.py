"""How often a call waits for a device: once for all that producers have queued, and once for each
side that is copied from or to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlmpi
from support import gpu_tensors, simulated
from support.gpu_tensors import Array, CupyArray, CupyManaged, NewTensor, NumbaArray

pytestmark = pytest.mark.mpi(min_size=2)
N = 1001


@pytest.fixture(autouse=True)
def _idle() -> Any:
    yield
    gpu_tensors.reset_when_idle()


def tensor(kind: type[Array], stream: str = "own", dev: int = 0, n: int = N, **where: Any) -> Any:
    made = kind(gpu_tensors.library(stream), n, np.float32, dev, **where)
    made.kernel(np.arange(n, dtype=np.float32))
    return made


def waits(run: Callable[[], Any]) -> list[str]:
    """What the host waited for; a warm-up before made what is made once."""
    run()
    with simulated.recorded() as log:
        run()
    assert not [line for line in log if line.startswith("cuCtxSynchronize")]
    found = [line for line in log if "Synchronize" in line]
    assert not [line for line in found if line.split("=")[-1] in ("0x0", "0x1")], found
    return found


#: Name -> the call, and the sides that are read from and written to the device.
CALLS: dict[str, tuple[Callable[[Any, Any, Any], Any], int]] = {
    "Sendrecv": (lambda c, s, r: c.Sendrecv(s, 1 - c.rank, 0, r, 1 - c.rank, 0), 2),
    "Allreduce": (lambda c, s, r: c.Allreduce(s, r), 2),
    "in place": (lambda c, s, r: c.Allreduce(dlmpi.MPI.IN_PLACE, r), 2),
    "Bcast": (lambda c, s, r: c.Bcast(r), 1),
    "Scan": (lambda c, s, r: c.Scan(s, r), 2),
    "Alltoall": (lambda c, s, r: c.Alltoall([s, 500, None], [r, 500, None]), 2),
    "Reduce_scatter": (lambda c, s, r: c.Reduce_scatter_block([s, 500, None], [r, 500, None]), 2),
    "many": (lambda c, s, r: dlmpi.allreduce_many([s, r], comm=c), 2),
}


@pytest.mark.skipif(simulated.AWARE, reason="messages are not copied there")
@pytest.mark.parametrize("kind", [NewTensor, CupyArray])
@pytest.mark.parametrize("name", CALLS)
def test_one_wait_for_all_that_is_queued(comm: Any, name: str, kind: Any) -> None:
    run, copied = CALLS[name]
    sent, room = tensor(kind), tensor(kind)
    assert len(waits(lambda: run(comm, sent, room))) <= 1 + copied


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((NumbaArray, "own"), (NumbaArray, "another")),
        ((NumbaArray, "own"), (CupyArray, "own")),
        ((NumbaArray, "default"), (NewTensor, "own")),
    ],
)
def test_streams_of_one_device_are_joined(comm: Any, first: Any, second: Any) -> None:
    """Two producers, two streams, one wait; what both have queued is there."""
    other = 1 - comm.rank
    host = np.empty(N, np.float32)
    made = [tensor(kind, stream, n=N) for kind, stream in (first, second)]
    with simulated.recorded() as log:
        dlmpi.MPI.COMM_SELF.Allreduce(*made)
    orders = [line for line in log if line.startswith("cuStreamSynchronize")]
    # One for the producers, one for each copy.
    assert len(orders) == 3
    assert not [line for line in orders if line.split("=")[-1] in ("0x0", "0x1")]
    comm.Sendrecv(made[1], other, 0, host, other, 0)
    np.testing.assert_array_equal(host, np.arange(N, dtype=np.float32))


@pytest.mark.parametrize("kind", [CupyManaged])
def test_memory_that_the_host_reaches_is_waited_for_once(comm: Any, kind: Any) -> None:
    sent, room = tensor(kind), tensor(kind)
    assert len(waits(lambda: comm.Allreduce(sent, room))) == 1


@pytest.mark.parametrize("kind", [NewTensor, NumbaArray, CupyManaged])
def test_the_interpreter_is_free_meanwhile(comm: Any, kind: Any) -> None:
    """A function of the host's among the kernels, as frameworks queue them, waits for Python."""
    ran: list[int] = []
    sent, room = tensor(kind), tensor(kind)
    sent.host_function(lambda: ran.append(1))
    comm.Sendrecv(sent, 1 - comm.rank, 0, room, 1 - comm.rank, 0)
    assert ran == [1]
    np.testing.assert_array_equal(room.fetch(), np.arange(N, dtype=np.float32))


def test_two_devices_are_two_waits(comm: Any) -> None:
    sent, room = tensor(CupyManaged, dev=0), tensor(CupyManaged, dev=1)
    assert len(waits(lambda: comm.Allreduce(sent, room))) == 2
