"""Memory on a device, as CuPy exports it: `stream=` always given, `max_version` a tuple. The arrays
are make-believe, so nothing here reads them; without a CUDA driver they are refused in words."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dlmpi import MPI, _native
from support import producers
from support.capsules import CUDA

CUDA_WORKS = torch.cuda.is_available()


def on_device():
    return producers.OnDevice(np.zeros(4), device=(CUDA, 0))


@pytest.mark.skipif(CUDA_WORKS, reason="a CUDA driver is there")
@pytest.mark.parametrize(
    "use",
    [
        _native.describe,
        MPI.COMM_SELF.Bcast,
        lambda t: MPI.COMM_SELF.Recv(t, 0),
        lambda t: MPI.COMM_SELF.Allreduce(np.zeros(4), t),
    ],
    ids=["describe", "Bcast", "Recv", "Allreduce"],
)
@pytest.mark.parametrize(
    "make", [on_device, lambda: producers.CudaArrayInterface(np.zeros(4))], ids=["DLPack", "CAI"]
)
def test_without_a_driver(make, use):
    tensor = make()
    with pytest.raises((BufferError, RuntimeError), match=r"(?i)cuda"):
        use(tensor)
    assert set(getattr(tensor, "deleted", [])) <= {1}


@pytest.mark.skipif(not CUDA_WORKS, reason="needs a CUDA driver")
def test_the_stream_is_always_given():
    """A handle of our own: not the legacy (0, 1) or per-thread (2) default, and never -1."""
    tensor = on_device()
    seen = _native.describe(tensor)
    assert seen["device"] == "cuda:0"
    for call in tensor.calls:
        assert call["stream"] > 2
        assert isinstance(call["max_version"], tuple)
    assert set(tensor.deleted) == {1}


def test_a_device_capsule_from_a_host_array_is_not_read_as_host_memory():
    """`__dlpack_device__` says CPU, the capsule says CUDA: its pointer is not the host's."""
    tensor = producers.Full(np.zeros(4), device=(CUDA, 0))
    with pytest.raises((BufferError, RuntimeError)):
        MPI.COMM_SELF.Bcast(tensor)
    assert set(tensor.deleted) == {1}


def test_a_host_capsule_from_a_device_array_is_host_memory_or_refused():
    """Asked for a device, given the host's copy: a receive into it would be lost."""
    tensor = producers.OnDevice(np.arange(4.0))
    with pytest.raises((BufferError, RuntimeError)):
        MPI.COMM_SELF.Recv(tensor, 0)
    assert set(tensor.deleted) <= {1}
