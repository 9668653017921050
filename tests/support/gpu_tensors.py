"""Arrays on the simulated driver, exported as PyTorch, CuPy, JAX, TensorFlow and Numba do theirs.

Where a library is known by its types, those of a make-believe module stand in. Knows nothing of
dlmpi.
"""

from __future__ import annotations

import sys
import types
from typing import Any, ClassVar

import numpy as np

from support import simulated
from support.gpu_arrays import POOL, Array, Library, reset_when_idle
from support.gpu_frameworks import (
    ApiArray,
    CupyArray,
    CupyManaged,
    Interface2Array,
    JaxArray,
    NumbaArray,
    PoolArray,
    TfTensor,
)
from support.gpu_torch import (
    ExpandableTensor,
    NewTensor,
    OldPinnedTensor,
    PinnedTensor,
    RocmTensor,
    Tensor,
)

__all__ = [
    "POOL",
    "PRODUCERS",
    "ApiArray",
    "Array",
    "CupyArray",
    "CupyManaged",
    "ExpandableTensor",
    "Interface2Array",
    "JaxArray",
    "Library",
    "NewTensor",
    "NumbaArray",
    "OldPinnedTensor",
    "PinnedTensor",
    "PoolArray",
    "RocmTensor",
    "Tensor",
    "TfTensor",
    "array",
    "library",
    "pretend",
    "reset_when_idle",
]


def _module(name: str, **members: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


class _CurrentStream:
    """`cupy.cuda.get_current_stream()`: that of the device that is current."""

    library: ClassVar[Library]

    def __init__(self) -> None:
        self.ptr = self.library.stream(simulated.current())


class _TorchStream:
    """`torch.cuda.current_stream(device)`."""

    def __init__(self, dev: int | None = None) -> None:
        self.dev = _current_device() if dev is None else dev
        self.cuda_stream = NewTensor.current_library.stream(self.dev)

    def synchronize(self) -> None:
        with simulated.on(self.dev):
            simulated.call("cuStreamSynchronize", self.cuda_stream)


def _increment_version(tensor: Any) -> None:
    for one in tensor if isinstance(tensor, tuple) else (tensor,):
        one.version += 1


def _current_device() -> int:
    return max(simulated.current(), 0)


def pretend() -> None:
    """Put the make-believe modules in the places of the real ones."""
    assert not {"torch", "cupy", "jax", "tensorflow"} & set(sys.modules), "a real one is loaded"
    graph = types.SimpleNamespace(increment_version=_increment_version)
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, current_device=_current_device, current_stream=_TorchStream
    )
    _module("torch", Tensor=Tensor, cuda=cuda)
    _module("torch.version", hip=None)
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
    "torch-2.8-pinned": (OldPinnedTensor, ("default", "own")),
    "torch-rocm": (RocmTensor, ("default", "own")),
    "array-api-rocm": (ApiArray, ("own",)),
    "cupy": (CupyArray, ("default", "own", "per-thread")),
    "cupy-managed": (CupyManaged, ("default", "own")),
    "jax": (JaxArray, ("own",)),
    "tensorflow": (TfTensor, ("own",)),
    "numba": (NumbaArray, ("default", "own", "per-thread")),
    "interface-2": (Interface2Array, ("default", "per-thread")),
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
