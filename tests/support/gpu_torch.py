"""PyTorch's tensors on the simulated driver: its rules about streams, by version and memory."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy as np

from support import capsules, simulated
from support.capsules import CPU, Export, Legacy, Versioned
from support.gpu_arrays import CODES, Array, Library


class _Storage:
    def __init__(self, memory: simulated.Memory) -> None:
        self.memory = memory

    def __len__(self) -> int:
        return self.memory.n

    def data_ptr(self) -> int:
        return self.memory.start


class Tensor(Array):
    """torch up to 2.8: legacy capsules, and no word about streams means no order."""

    version = 0
    is_cuda = True

    def is_neg(self) -> bool:
        return False

    is_conj = is_complex = is_pinned = is_neg

    def untyped_storage(self) -> _Storage:
        return _Storage(self.memory)

    def detach(self) -> Tensor:
        return self

    def __dlpack__(self, stream: Any = None) -> Any:
        if stream is not None and stream != -1:
            self.library.order(self.dev, stream)
        return self.capsule(Legacy)


class OldPinnedTensor(Tensor):
    """torch's pinned host memory up to 2.9: takes no stream, and its capsule says CPU."""

    memory_kind = "pinned"
    device_kind = CPU
    is_cuda = False

    def is_pinned(self) -> bool:
        return True

    def __dlpack_device__(self) -> tuple[int, int]:
        return (capsules.CUDA_HOST, 0)

    def __dlpack__(self, stream: Any = None) -> Any:
        assert stream is None, "stream should be None on cpu."
        return self.capsule(Legacy)


class _Api(ctypes.Structure):
    _fields_: ClassVar = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("functions", ctypes.c_void_p * 5),
    ]


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(capsules.Tensor))
def _view(address: int, out: Any) -> int:
    tensor = ctypes.cast(address, ctypes.py_object).value
    tensor.last = Export(
        np.empty(tensor.shape, tensor.dtype),
        data=tensor.address if tensor.numel else 0,
        device=tensor.__dlpack_device__(),
        dtype=(CODES[tensor.dtype.kind], tensor.dtype.itemsize * 8, 1),
        strides=tensor.strides,
    )
    ctypes.pointer(out.contents)[0] = tensor.last.managed.tensor
    return 0


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def _current_stream(_kind: int, dev: int, out: Any) -> int:
    out[0] = NewTensor.current_library.stream(dev)
    return 0


_api = _Api(1, 3, None)
_api.functions[3] = ctypes.cast(_view, ctypes.c_void_p).value
_api.functions[4] = ctypes.cast(_current_stream, ctypes.c_void_p).value


class NewTensor(Tensor):
    """torch from 2.10: the exchange API; no order without a stream; the device must be current."""

    current_library: ClassVar[Library]
    __dlpack_c_exchange_api__ = capsules.plain_capsule(
        ctypes.addressof(_api), b"dlpack_exchange_api"
    )

    def __dlpack__(
        self, *, stream: Any = -1, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        if simulated.current() != self.dev:
            raise BufferError("Can't export tensors on a different CUDA device index.")
        if stream == 0:
            raise AssertionError("unsupported stream on CUDA: 0.")
        if stream == simulated.PER_THREAD:
            raise BufferError("per-thread default stream is not supported.")
        if stream != -1:
            self.library.order(self.dev, simulated.LEGACY if stream is None else stream)
        return self.capsule(Versioned if max_version else Legacy)


class PinnedTensor(NewTensor):
    """torch's pinned host memory, which copies on the current stream may still write."""

    memory_kind = "pinned"
    device_kind = CPU

    def is_pinned(self) -> bool:
        return True


class ExpandableTensor(NewTensor):
    """torch with expandable segments: virtual memory, which other processes cannot open either."""

    memory_kind = "virtual"


class RocmTensor(NewTensor):
    """torch on a device that dlmpi has no driver of: torch itself copies, on its current stream."""

    device_kind = capsules.ROCM

    def cpu(self) -> np.ndarray:
        return self.fetch()

    def copy_(self, host: np.ndarray) -> None:
        self.kernel(host)
