"""Plays the libraries of a machine with a GPU, so that `ci/gpu` can be rehearsed on one without:
torch's own tensors on the CPU under CUDA's names, NumPy for CuPy and JAX. Proves that scripts run
to their end; nothing of what they measure. Knows nothing of dlmpi."""

from __future__ import annotations

import os
import runpy
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

#: Whether this process takes part in a rehearsal.
REHEARSING = os.environ.get("DLMPI_GPU_REHEARSAL") == "1"


def nothing(*_arguments: Any, **_options: Any) -> None:
    """What only a device has to do."""


@contextmanager
def something(*_arguments: Any, **_options: Any) -> Iterator[None]:
    """The same as a context."""
    yield


class _Made:
    """Streams, devices, kernels: they are made and waited for."""

    __init__ = __call__ = synchronize = nothing

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_exception: Any) -> None:
        pass


def _on_host(name: Any) -> Any:
    return "cpu" if isinstance(name, str) and name.startswith("cuda") else name


def _pretend_torch() -> None:
    import torch
    from torch.overrides import TorchFunctionMode

    class OnHost(TorchFunctionMode):
        def __torch_function__(
            self, call: Any, _types: Any, arguments: Any = (), options: Any = None
        ) -> Any:
            if call is torch.Tensor.cuda:
                return arguments[0]
            options = {name: _on_host(value) for name, value in (options or {}).items()}
            options.pop("pin_memory", None)
            return call(*map(_on_host, arguments), **options)

    # For as long as the process lives.
    OnHost().__enter__()
    cuda: Any = torch.cuda
    cuda.is_available = lambda: True
    cuda.synchronize = cuda._sleep = cuda.set_device = cuda.empty_cache = nothing
    cuda.Stream, cuda.stream = _Made, something


class _Array(np.ndarray[Any, Any]):
    def get(self) -> Any:
        return np.asarray(self)


def _array(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: make(*arguments, **options).view(_Array)


def _pretend(name: str, **members: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


def pretend() -> None:
    """Put everything in its place; before anything is imported that looks for a GPU."""
    _pretend_torch()
    _pretend(
        "cupy",
        ndarray=_array(np.ndarray),
        asarray=_array(np.array),
        zeros=_array(np.zeros),
        full=_array(np.full),
        RawKernel=_Made,
        cuda=types.SimpleNamespace(
            Device=_Made,
            Stream=_Made,
            malloc_managed=nothing,
            using_allocator=something,
            runtime=types.SimpleNamespace(getDeviceCount=lambda: 1),
        ),
    )
    _pretend(
        "jax",
        config=types.SimpleNamespace(update=nothing),
        default_backend=lambda: "gpu",
        device_put=np.array,
        jit=lambda run: run,
    )


if __name__ == "__main__":
    # A script and its arguments, on such a machine.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    pretend()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
