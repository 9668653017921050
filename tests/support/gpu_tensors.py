"""Arrays on the simulated driver, exported as PyTorch, CuPy, JAX, TensorFlow and Numba do theirs.

Each class is one library's rules about streams, as its sources have them; where a library is known
by its types, those of a make-believe module stand in. Kernels are copies that are queued on the
library's current stream. Knows nothing of dlmpi."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from support import capsules, simulated
from support.capsules import CPU, CUDA, CUDA_MANAGED, READ_ONLY, Export, Legacy, Versioned

_CODES = {"f": capsules.FLOAT, "i": capsules.INT, "u": capsules.UINT, "V": capsules.BFLOAT}
POOL = simulated.Pool()
# What queued copies read from: alive until all of them have run.
_sources: list[Any] = []


def reset_when_idle() -> None:
    """After a test: let all queued work run, so that memory can be used again."""
    for dev in (0, 1):
        with simulated.on(dev):
            simulated.call("cuCtxSynchronize")
    POOL.reset()
    _sources.clear()


class Library:
    """The streams on which one library works, one per device: the user chooses their kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._own: dict[int, int] = {}

    def stream(self, dev: int) -> int:
        """The handle as the library itself gives it: the default stream is 0."""
        if self.kind == "default":
            return 0
        if self.kind == "per-thread":
            return simulated.PER_THREAD
        if dev not in self._own:
            self._own[dev] = simulated.stream(dev)
        return self._own[dev]

    def order(self, dev: int, consumer: int, producer: int | None = None) -> None:
        """Let the consumer's stream wait for what is queued now."""
        producer = self.stream(dev) if producer is None else producer
        if producer in (consumer, 0 if consumer == simulated.LEGACY else consumer):
            return
        event = simulated.given("cuEventCreate", 2)
        try:
            simulated.call("cuEventRecord", event, producer)
            simulated.call("cuStreamWaitEvent", consumer, event, 0)
        finally:
            simulated.call("cuEventDestroy_v2", event)


class Array:
    """What all have: memory, a layout in it, and kernels on the library's current stream."""

    immutable: ClassVar[str] = ""
    device_kind: ClassVar[int] = CUDA
    memory_kind: ClassVar[str] = "device"

    def __init__(
        self,
        library: Library,
        shape: Any,
        dtype: Any,
        dev: int,
        *,
        step: int = 1,
        offset: int = 0,
        gap: int = 0,
    ) -> None:
        self.library, self.dev = library, dev
        self.shape, self.dtype = tuple(np.atleast_1d(shape).tolist()), np.dtype(dtype)
        self.step, self.offset, self.gap = step, offset, gap
        self.numel = int(np.prod(self.shape))
        rows = self.numel // max(self.shape[-1], 1) if gap else 0
        n = (self.numel * step + rows * gap + offset) * self.dtype.itemsize
        self.memory = POOL.get(n, dev, self.memory_kind)

    @property
    def address(self) -> int:
        return self.memory.start + self.offset * self.dtype.itemsize

    @property
    def strides(self) -> list[int]:
        """In elements: C order, every `step`-th one, with a gap behind each row."""
        inner = [int(np.prod(self.shape[i + 1 :])) for i in range(len(self.shape))]
        row = max(self.shape[-1], 1)
        return [self.step * n + n // row * self.gap for n in inner]

    def look(self, raw: bytes | bytearray) -> np.ndarray:
        """The elements in a copy of all the memory."""
        strides = [n * self.dtype.itemsize for n in self.strides]
        if not self.numel:
            return np.empty(self.shape, self.dtype)
        return np.ndarray(self.shape, self.dtype, raw, self.offset * self.dtype.itemsize, strides)

    def _with(self, values: np.ndarray) -> bytes:
        raw = bytearray(self.memory.now())
        if self.numel:
            self.look(raw)[...] = values
        return bytes(raw)

    def put(self, values: np.ndarray) -> None:
        self.memory.put(self._with(values))

    def _copy(self, name: str, to: Any, source: Any, stream: int | None = None) -> None:
        if self.memory.n:
            with simulated.on(self.dev):
                stream = self.library.stream(self.dev) if stream is None else stream
                simulated.call(name, to, source, self.memory.n, stream)

    def kernel(self, values: np.ndarray) -> None:
        """Queue a kernel that writes the elements."""
        raw = self._with(values)
        source = ctypes.create_string_buffer(raw, max(len(raw), 1))
        _sources.append(source)
        self._copy("cuMemcpyHtoDAsync_v2", self.memory.start, source)

    def host_function(self, run: Callable[[], None]) -> None:
        """Queue a function of the host's behind the kernels."""
        called = simulated.HOST_FUNCTION(lambda _: run())
        _sources.append(called)
        with simulated.on(self.dev):
            stream = self.library.stream(self.dev)
            simulated.call("cuLaunchHostFunc", stream, called, None)

    def watch(self) -> simulated.Memory:
        """Queue a kernel that reads the elements; what it saw will be in the memory returned."""
        seen = POOL.get(self.memory.n, self.dev)
        self._copy("cuMemcpyDtoDAsync_v2", seen.start, self.memory.start)
        return seen

    def fetch(self) -> np.ndarray:
        """The elements as the library's next kernel sees them: `x.cpu()`, on its current stream."""
        return self.look(self.fetch_raw()).copy()

    def fetch_raw(self) -> bytes:
        found = ctypes.create_string_buffer(max(self.memory.n, 1))
        self._copy("cuMemcpyDtoHAsync_v2", found, self.memory.start)
        self.synchronize()
        return found.raw[: self.memory.n]

    def synchronize(self) -> None:
        with simulated.on(self.dev):
            simulated.call("cuStreamSynchronize", self.library.stream(self.dev))

    # The capsule, for those who give one.
    def capsule(self, kind: type = Versioned, flags: int = 0) -> Any:
        shape = np.empty(self.shape, self.dtype)
        fields: dict[str, Any] = {
            "data": self.address if self.numel else 0,
            "device": (self.device_kind, self.dev),
            "dtype": (_CODES[self.dtype.kind], self.dtype.itemsize * 8, 1),
            "strides": self.strides,
        }
        return Export(shape, kind, flags=flags, **fields).capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device_kind, self.dev)


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
        dtype=(_CODES[tensor.dtype.kind], tensor.dtype.itemsize * 8, 1),
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
        dtype = (_CODES[self.dtype.kind], self.dtype.itemsize * 8, 1)
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


class NumbaArray(Array):
    """Numba: the array interface, which names the stream to wait for."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address if self.numel else 0, False),
            "strides": tuple(n * self.dtype.itemsize for n in self.strides),
            "version": 3,
            "stream": self.library.stream(self.dev) or simulated.LEGACY,
        }


def _module(name: str, **members: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


class _CurrentStream:
    """`cupy.cuda.get_current_stream()`: that of the device that is current."""

    library: ClassVar[Library]

    def __init__(self) -> None:
        self.ptr = self.library.stream(simulated.current())


def _increment_version(tensor: Any) -> None:
    for one in tensor if isinstance(tensor, tuple) else (tensor,):
        one.version += 1


def _current_device() -> int:
    return max(simulated.current(), 0)


def pretend() -> None:
    """Put the make-believe modules in the places of the real ones."""
    assert not {"torch", "cupy", "jax", "tensorflow"} & set(sys.modules), "a real one is loaded"
    graph = types.SimpleNamespace(increment_version=_increment_version)
    cuda = types.SimpleNamespace(is_initialized=lambda: True, current_device=_current_device)
    _module("torch", Tensor=Tensor, cuda=cuda)
    _module("torch.cuda", **vars(cuda))
    _module("torch.autograd", graph=graph)
    _module("torch.autograd.graph", **vars(graph))
    _module(
        "cupy",
        ndarray=CupyArray,
        cuda=types.SimpleNamespace(get_current_stream=_CurrentStream),
    )


#: Name -> class and the kinds of current stream that the library knows.
PRODUCERS: dict[str, tuple[type[Array], tuple[str, ...]]] = {
    "torch": (NewTensor, ("default", "own")),
    "torch-pinned": (PinnedTensor, ("default", "own")),
    "torch-2.8": (Tensor, ("default", "own")),
    "torch-rocm": (RocmTensor, ("default", "own")),
    "array-api-rocm": (ApiArray, ("own",)),
    "cupy": (CupyArray, ("default", "own", "per-thread")),
    "cupy-managed": (CupyManaged, ("default", "own")),
    "jax": (JaxArray, ("own",)),
    "tensorflow": (TfTensor, ("own",)),
    "numba": (NumbaArray, ("default", "own", "per-thread")),
}
#: One library object per kind of stream: streams are made once.
_LIBRARIES: dict[str, Library] = {}


def library(kind: str) -> Library:
    """The library with this kind of current stream, which the make-believe modules then tell."""
    found = _LIBRARIES.setdefault(kind, Library(kind))
    NewTensor.current_library = _CurrentStream.library = found
    return found


def array(
    kind: type[Array], values: np.ndarray, dev: int = 0, stream: str = "own", **where: Any
) -> Any:
    """A tensor into which a kernel on the current stream of its library writes the values."""
    made = kind(library(stream), values.shape, values.dtype, dev, **where)
    made.kernel(values)
    return made
