"""The checks of `selftest`: collective functions of a communicator that raise what is wrong.

Expected values are closed forms in plain Python, never what another call of ours says.
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

__all__ = ["checks"]

Check = Callable[[Any], None]


def _equal(found: Any, expected: Any, what: str) -> None:
    if found != expected:
        raise AssertionError(f"{what}: {found} in place of {expected}")


def _ranks(world: Any) -> None:
    _equal(world.allgather(world.Get_rank()), list(range(world.Get_size())), "ranks")


def _ring(world: Any) -> None:
    """Pass bytes around, from none to a mebibyte."""
    rank, size = world.Get_rank(), world.Get_size()
    for count in (0, 1, 1000, 1 << 20):
        out = bytearray([rank % 251]) * count
        into = bytearray([255]) * count
        left, right = (rank - 1) % size, (rank + 1) % size
        world.Sendrecv(out, right, 5, into, left, 5)
        _equal(into == bytearray([left % 251]) * count, True, f"{count} bytes from rank {left}")


def _reduce(world: Any) -> None:
    from dlmpi import AVG, MPI

    rank, size = world.Get_rank(), world.Get_size()
    for count in (1, 1000, 300_000):
        values = array("d", [float(rank + 1)]) * count
        world.Allreduce(MPI.IN_PLACE, values, op=MPI.SUM)
        _equal(set(values), {size * (size + 1) / 2}, f"sum of {count} float64")
    values = array("d", [float(rank)])
    world.Allreduce(MPI.IN_PLACE, values, op=AVG)
    _equal(values[0], (size - 1) / 2, "mean of the ranks")


def _signature(world: Any) -> None:
    """Ranks that disagree about a call must all be told."""
    from dlmpi import MPI

    if world.Get_size() == 1:
        return
    apart = world.Dup()
    try:
        apart.Allreduce(MPI.IN_PLACE, array("d", [0.0]) * (1 + apart.Get_rank() % 2))
    except Exception:
        return
    finally:
        apart.Free()
    raise AssertionError("counts that differ between ranks went unnoticed")


#: How each framework makes a tensor 2 x 3 of one dtype, transposes it and gives a nested list.
_MAKERS: dict[str, Callable[[Any, Any, list[list[float]]], Any]] = {
    "numpy": lambda np, dtype, rows: np.array(rows, dtype=dtype),
    "ml_dtypes": lambda np, dtype, rows: np.array(rows, dtype=dtype),
    "torch": lambda torch, dtype, rows: torch.tensor(rows, dtype=getattr(torch, dtype)),
    "cupy": lambda cupy, dtype, rows: cupy.array(rows, dtype=dtype),
}
_DTYPES = {
    "numpy": ("float32", "float64", "float16", "int32"),
    "ml_dtypes": ("bfloat16",),
    "torch": ("float32", "float64", "float16", "bfloat16", "int32"),
    "cupy": ("float32", "float16", "int32"),
}


def _framework(world: Any, name: str, dtype: str) -> None:
    """A transposed tensor to the neighbour, a broadcast, and a sum of all ranks."""
    from dlmpi import MPI

    module = importlib.import_module(name)
    if name == "ml_dtypes":
        make = partial(_MAKERS[name], importlib.import_module("numpy"), getattr(module, dtype))
    else:
        make = partial(_MAKERS[name], module, dtype)
    rank, size = world.Get_rank(), world.Get_size()
    left, right = (rank - 1) % size, (rank + 1) % size
    out = make([[1.0, 2.0], [3.0, 4.0], [rank, 6.0]]).T
    into = make([[0.0] * 3] * 2)
    world.Sendrecv(out, right, 6, into, left, 6)
    _equal(into.tolist(), [[1, 3, left], [2, 4, 6]], "a transposed tensor")
    shared = make([[7.0, 8.0]] if rank == 0 else [[0.0, 0.0]])
    world.Bcast(shared, root=0)
    _equal(shared.tolist(), [[7, 8]], "a broadcast")
    total = make([[float(rank + 1), 0.5 if "float" in dtype else 1.0]])
    world.Allreduce(MPI.IN_PLACE, total, op=MPI.SUM)
    half = 0.5 if "float" in dtype else 1.0
    _equal(total.tolist(), [[size * (size + 1) / 2, half * size]], "a sum")


def _import(world: Any, name: str) -> None:
    importlib.import_module(name)


def _usable(name: str, world_has: Callable[[str], bool]) -> bool:
    if not world_has(name):
        return False
    if name == "cupy":
        from dlmpi import _gpus

        return _gpus.visible() > 0
    return True


def checks(
    has: Callable[[str], bool] = lambda name: find_spec(name) is not None,
) -> Iterator[tuple[str, Check]]:
    """Yield the checks and their names; every rank must have the same frameworks."""
    yield "the ranks see each other", _ranks
    yield "bytes around a ring", _ring
    yield "float64 sums and means", _reduce
    yield "calls that do not match are noticed", _signature
    for name, dtypes in _DTYPES.items():
        if _usable(name, has):
            yield f"import {name}", partial(_import, name=name)
            for dtype in dtypes:
                yield f"{name} {dtype}", partial(_framework, name=name, dtype=dtype)
