"""Arrays of CuPy, JAX, TensorFlow, Numba and the array API on the simulated driver: their rules
about streams, as their sources have them."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from support import capsules, simulated
from support.capsules import CPU, CUDA_MANAGED, READ_ONLY, Export, Legacy, Versioned
from support.gpu_arrays import CODES, Array


class CupyArray(Array):
    """CuPy 14: an event on the stream of the device that is current, whatever the array's."""

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        if max_version is not None and not isinstance(max_version, tuple):
            raise TypeError("max_version must be a tuple")
        if stream != -1:
            self.library.order(simulated.current(), 1 if stream is None else stream)
        return self.capsule(Versioned if max_version else Legacy)


class CupyManaged(CupyArray):
    """CuPy on managed memory, which the host may read as soon as the kernels are done."""

    device_kind, memory_kind = CUDA_MANAGED, "managed"


class PoolArray(CupyArray):
    """CuPy on memory of a stream-ordered pool, which other processes cannot open."""

    memory_kind = "pool"


class ApiArray(Array):
    """An array of the array API on such a device: it makes copies on the CPU and takes them."""

    device_kind = capsules.ROCM

    @property
    def device(self) -> tuple[int, int]:
        return self.__dlpack_device__()

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        if dl_device is None:
            return self.capsule(Versioned)
        assert (dl_device, copy, stream) == ((CPU, 0), True, None)
        dtype = (CODES[self.dtype.kind], self.dtype.itemsize * 8, 1)
        return Export(self.fetch(), Versioned, flags=capsules.IS_COPIED, dtype=dtype).capsule()

    def __array_namespace__(self) -> Any:
        return types.SimpleNamespace(from_dlpack=self._moved)

    @staticmethod
    def _moved(host: np.ndarray, device: tuple[int, int]) -> np.ndarray:
        assert device[0] == capsules.ROCM
        return host

    def __setitem__(self, key: Any, values: np.ndarray) -> None:
        assert key is ...
        self.kernel(values)


class JaxArray(Array):
    """JAX: work on a stream of its own that nobody is told of."""

    immutable = "immutable"
    __module__ = "jaxlib._jax"

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        if stream is None:
            self.synchronize()
        elif stream < 0:
            raise RuntimeError("INVALID_HANDLE")
        else:
            with simulated.on(self.dev):
                self.library.order(self.dev, stream)
        return self.capsule(Versioned if max_version else Legacy, READ_ONLY)


class TfTensor(Array):
    """TensorFlow: waits by itself and takes no stream; legacy capsules."""

    immutable = "immutable"
    __module__ = "tensorflow.python"

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        if stream is not None:
            raise RuntimeError("tf.Tensor does not support DLPack export with a non-None stream")
        self.synchronize()
        return self.capsule(Legacy)


class Interface2Array(Array):
    """The array interface before its third version, which says nothing of streams (RMM, cuDF)."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address if self.numel else 0, False),
            "strides": tuple(n * self.dtype.itemsize for n in self.strides),
            "version": 2,
        }


class NumbaArray(Interface2Array):
    """Numba: names the array's stream, but none where it works on the default stream."""

    __module__ = "numba.cuda.cudadrv.devicearray"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        stream = self.library.stream(self.dev)
        default = stream in (0, simulated.PER_THREAD)
        named = {"version": 3, "stream": None if default else stream}
        return super().__cuda_array_interface__ | named
