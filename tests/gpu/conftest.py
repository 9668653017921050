"""GPU tensors of real libraries on a real GPU, two ranks sharing it. `ci/gpu` runs these tests.

The bodies are those of tests/order. Without a GPU or a library, tests are skipped by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from support import fixtures, gpu_rehearsal
from support.gpu_operations import Lab

comm, rng, session_seed = fixtures.comm, fixtures.rng, fixtures.session_seed

if gpu_rehearsal.REHEARSING:
    gpu_rehearsal.pretend()

# So long that a copy which does not wait for the kernel comes before its end.
CYCLES = 20_000_000
# The products, and the side of their matrices, that keep JAX as busy.
PRODUCTS, SIDE = 16, 64 if gpu_rehearsal.REHEARSING else 4096


class TorchLab(Lab):
    """torch on its current stream."""

    def __init__(self, rng: np.random.Generator, torch: Any, dev: int = 0) -> None:
        super().__init__(rng)
        self.torch, self.device = torch, f"cuda:{dev}"
        self._checks: list[Callable[[], None]] = []

    def _on_device(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(np.array(array)).to(self.device)

    def _room(self, like: np.ndarray, step: int, offset: int) -> Any:
        base = self._on_device(np.zeros(like.size * step + offset, like.dtype))
        return base[offset:][::step][: like.size].view(like.shape)

    def _slow(self) -> None:
        self.torch.cuda._sleep(CYCLES)

    def sent(self, values: np.ndarray, step: int = 1, offset: int = 0) -> Any:
        source, tensor = self._on_device(values), self._room(values, step, offset)
        self.torch.cuda.synchronize()
        self._slow()
        tensor.copy_(source)
        return tensor

    def received(
        self, like: np.ndarray, start: np.ndarray | None = None, step: int = 1, offset: int = 0
    ) -> Any:
        tensor = self._room(like, step, offset)
        old = self.rng.integers(-1000, 1000, like.shape).astype(like.dtype)
        tensor.copy_(self._on_device(old))
        last = self._on_device(np.full_like(like, 99) if start is None else start)
        self.torch.cuda.synchronize()
        self._slow()
        seen = tensor.clone()
        tensor.copy_(last)
        self._checks.append(lambda: np.testing.assert_array_equal(seen.cpu().numpy(), old))
        return tensor

    def expect(self, got: Any, expected: np.ndarray) -> None:
        np.testing.assert_array_equal(got.cpu().numpy(), expected)
        for check in self._checks:
            check()
        self._checks.clear()


class CupyLab(Lab):
    """CuPy on its current stream."""

    def __init__(self, rng: np.random.Generator, cupy: Any) -> None:
        super().__init__(rng)
        self.cupy = cupy
        self._checks: list[Callable[[], None]] = []
        self._wait = cupy.RawKernel(
            'extern "C" __global__ void wait(long long n)'
            "{ long long t = clock64(); while (clock64() - t < n) {} }",
            "wait",
        )

    def _room(self, like: np.ndarray, step: int, offset: int) -> Any:
        base = self.cupy.zeros(like.size * step + offset, like.dtype)
        shape = [step * like.itemsize * int(np.prod(like.shape[i + 1 :])) for i in range(like.ndim)]
        return self.cupy.ndarray(like.shape, like.dtype, base[offset:].data, strides=tuple(shape))

    def _slow(self) -> None:
        self._wait((1,), (1,), (np.int64(CYCLES),))

    def sent(self, values: np.ndarray, step: int = 1, offset: int = 0) -> Any:
        source, array = self.cupy.asarray(values), self._room(values, step, offset)
        self.cupy.cuda.Device().synchronize()
        self._slow()
        array[...] = source
        return array

    def received(
        self, like: np.ndarray, start: np.ndarray | None = None, step: int = 1, offset: int = 0
    ) -> Any:
        array = self._room(like, step, offset)
        old = self.rng.integers(-1000, 1000, like.shape).astype(like.dtype)
        array[...] = self.cupy.asarray(old)
        last = self.cupy.asarray(np.full_like(like, 99) if start is None else start)
        self.cupy.cuda.Device().synchronize()
        self._slow()
        seen = array.copy()
        array[...] = last
        self._checks.append(lambda: np.testing.assert_array_equal(seen.get(), old))
        return array

    def expect(self, got: Any, expected: np.ndarray) -> None:
        np.testing.assert_array_equal(got.get(), expected)
        for check in self._checks:
            check()
        self._checks.clear()


@functools.cache
def busy(jax: Any) -> Callable[[], Any]:
    """Zero after many products. Compiled once: choosing a product's kernel takes JAX seconds."""
    jax.config.update("jax_enable_x64", True)
    ones = jax.device_put(np.ones((SIDE, SIDE), np.float32))

    def multiply(large: Any) -> Any:
        for _ in range(PRODUCTS):
            large = large @ large * np.float32(1e-4)
        return large[0, 0] * 0

    compiled = jax.jit(multiply)
    return lambda: compiled(ones)


class JaxLab(Lab):
    """JAX, whose arrays are complete some time after they are there; results go to host memory."""

    immutable = True

    def __init__(self, rng: np.random.Generator, jax: Any) -> None:
        super().__init__(rng)
        self.jax, self._busy = jax, busy(jax)

    def sent(self, values: np.ndarray, **_: Any) -> Any:
        array = self.jax.device_put(values)
        return array + self._busy().astype(values.dtype)

    def received(self, like: np.ndarray, start: np.ndarray | None = None, **_: Any) -> Any:
        return np.full_like(like, 77) if start is None else start.copy()

    def expect(self, got: Any, expected: np.ndarray) -> None:
        np.testing.assert_array_equal(got, expected)


def library(name: str) -> Any:
    """The library, where it is installed and sees a GPU; else the test is skipped by its name."""
    module = pytest.importorskip(name, reason=f"{name} is not installed")
    try:
        if name == "torch":
            found = module.cuda.is_available()
        elif name == "cupy":
            found = module.cuda.runtime.getDeviceCount() > 0
        else:
            found = module.default_backend() == "gpu"
    except Exception as error:
        pytest.skip(f"{name} finds no GPU: {error}")
    if not found:
        pytest.skip(f"{name} finds no GPU")
    return module


@pytest.fixture(params=["torch", "torch-stream", "cupy", "cupy-stream", "jax"])
def lab(request: pytest.FixtureRequest, rng: np.random.Generator) -> Iterator[Lab]:
    """Each library on its default stream, and on another one."""
    name, _, stream = request.param.partition("-")
    module = library(name)
    context: Any = nullcontext()
    if stream:
        context = (
            module.cuda.stream(module.cuda.Stream())
            if name == "torch"
            else module.cuda.Stream(non_blocking=True)
        )
    made = {"torch": TorchLab, "cupy": CupyLab, "jax": JaxLab}[name]
    with context:
        yield made(rng, module)
