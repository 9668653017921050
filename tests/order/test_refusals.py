"""What works on memory as it lies refuses a device's in words, whichever argument it is: none of
its addresses reaches MPI, whose touch would end the process here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlmpi import MPI
from support import gpu_tensors
from support.gpu_tensors import CupyArray, Interface2Array, array

pytestmark = pytest.mark.mpi(min_size=2)
SELF = MPI.COMM_SELF
N = 8

Call = tuple[str, Callable[..., Any], tuple[Any, ...]]
#: Stands for the tensor among arguments.
TENSOR = object()


def host() -> np.ndarray:
    return np.zeros(N, np.float32)


def typed(buffer: Any) -> Any:
    return [buffer, [N], [0], [MPI.FLOAT]]


def sides(name: str, call: Callable[..., Any], *rest: Any) -> Iterator[Call]:
    """Once with the tensor on each side, the other one in host memory."""
    form = typed if "alltoallw" in name.lower() else lambda buffer: buffer
    yield name, call, (form(TENSOR), form(host()), *rest)
    yield name, call, (form(host()), form(TENSOR), *rest)


def persistent() -> Iterator[Call]:
    for name in dir(SELF):
        call = getattr(SELF, name)
        if not name.endswith("_init") or name == "Barrier_init":
            continue
        if name in ("Psend_init", "Precv_init"):
            yield name, call, (TENSOR, 1, 0, 0)
        elif name.endswith(("send_init", "Send_init", "Recv_init", "Bcast_init")):
            yield name, call, (TENSOR, 0)
        else:
            yield from sides(name, call)


def typed_per_peer() -> Iterator[Call]:
    grid = SELF.Create_cart([1], [True])
    for comm, names in (
        (SELF, ("Alltoallw", "Ialltoallw")),
        (grid, ("Neighbor_alltoallw", "Ineighbor_alltoallw", "Neighbor_alltoallw_init")),
    ):
        for name in names:
            yield from sides(name, getattr(comm, name))


def files(path: Path) -> Iterator[Call]:
    file = MPI.File.Open(SELF, str(path / "file"), MPI.MODE_RDWR | MPI.MODE_CREATE)
    for name in dir(file):
        if name.startswith(("Read", "Write", "Iread", "Iwrite")) and not name.endswith("_end"):
            yield name, getattr(file, name), (*((0,) if "_at" in name else ()), TENSOR)


def windows() -> Iterator[Call]:
    window = MPI.Win.Create(host(), comm=SELF)
    window.Lock(0)
    for name in ("Put", "Get", "Accumulate", "Rput", "Rget", "Raccumulate"):
        yield name, getattr(window, name), (TENSOR, 0)
    for name in ("Get_accumulate", "Fetch_and_op", "Rget_accumulate"):
        yield from sides(name, getattr(window, name), 0)
    for place in range(3):
        three = [TENSOR if i == place else host() for i in range(3)]
        yield "Compare_and_swap", window.Compare_and_swap, (*three, 0)
    yield "Create", MPI.Win.Create, (TENSOR, 1, MPI.INFO_NULL, SELF)
    yield "Attach", MPI.Win.Create_dynamic(comm=SELF).Attach, (TENSOR,)


def buffers() -> Iterator[Call]:
    yield "Attach_buffer", MPI.Attach_buffer, (TENSOR,)
    yield "recv", SELF.recv, (TENSOR, 0)
    yield "irecv", SELF.irecv, (TENSOR, 0)
    yield "sendrecv", SELF.sendrecv, ("object", 0, 0, TENSOR, 0, 0)


def put(tensor: Any, arguments: Any) -> Any:
    """The arguments with the tensor in its place."""
    if isinstance(arguments, (tuple, list)):
        return type(arguments)(put(tensor, one) for one in arguments)
    return tensor if arguments is TENSOR else arguments


@pytest.mark.parametrize("kind", [CupyArray, Interface2Array])
def test_memory_of_a_device_is_refused(comm: Any, kind: Any, tmp_path: Path) -> None:
    tensor = array(kind, np.ones(N, np.float32))
    calls = [*persistent(), *typed_per_peer(), *files(tmp_path), *windows(), *buffers()]
    taken = []
    for name, call, arguments in calls:
        try:
            call(*put(tensor, arguments))
        except (BufferError, TypeError):
            continue
        except Exception as error:
            taken.append(f"{name}: {error!r}")
        else:
            taken.append(name)
    assert len(calls) > 80, len(calls)
    assert not taken
    np.testing.assert_array_equal(tensor.fetch(), np.ones(N, np.float32))
    gpu_tensors.reset_when_idle()
