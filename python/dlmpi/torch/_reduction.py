"""torch's reduce operations in MPI's terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch._C._distributed_c10d import ReduceOp

from dlmpi import AVG, MPI

__all__ = ["Reduction", "known", "reduction"]


def _by_number(table: dict[Any, Any]) -> dict[int, Any]:
    """Key a table by the operations' numbers: torch's objects hash to them, and asking for `.op`
    costs more than the whole look-up."""
    return {hash(op): value for op, value in table.items()}


_OPS = _by_number(
    {
        ReduceOp.SUM: MPI.SUM,
        ReduceOp.PRODUCT: MPI.PROD,
        ReduceOp.MIN: MPI.MIN,
        ReduceOp.MAX: MPI.MAX,
        ReduceOp.BAND: MPI.BAND,
        ReduceOp.BOR: MPI.BOR,
        ReduceOp.BXOR: MPI.BXOR,
        ReduceOp.AVG: AVG,
        ReduceOp.PREMUL_SUM: MPI.SUM,
    }
)
#: What the operations mean for truth values.
_LOGICAL = _by_number(
    {
        ReduceOp.SUM: MPI.LOR,
        ReduceOp.PRODUCT: MPI.LAND,
        ReduceOp.MIN: MPI.LAND,
        ReduceOp.MAX: MPI.LOR,
        ReduceOp.BAND: MPI.LAND,
        ReduceOp.BOR: MPI.LOR,
        ReduceOp.BXOR: MPI.LXOR,
    }
)
_AVG, _PREMUL_SUM = hash(ReduceOp.AVG), hash(ReduceOp.PREMUL_SUM)


class Reduction(NamedTuple):
    """An operation, and what has to be done to tensors around it."""

    op: Any
    #: What is contributed in place of the tensor.
    before: Callable[[Any], Any] | None = None
    #: What is left to do with a result.
    after: Callable[[Any], None] | None = None


def _scaled_by(factor: Any) -> Callable[[Any], Any]:
    def scale(tensor: Any) -> Any:
        number = factor
        if isinstance(number, float) and not tensor.is_floating_point() and number.is_integer():
            # Integers beyond what a float holds exactly stay what they are.
            number = int(number)
        with torch.no_grad():
            return (tensor * number).to(tensor.dtype)

    return scale


def _divided_by(ranks: int) -> Callable[[Any], None]:
    def divide(tensor: Any) -> None:
        with torch.no_grad():
            tensor.copy_(torch.div(tensor, ranks, rounding_mode="trunc"))

    return divide


#: What was asked before: the same few operations and dtypes all day.
_seen: dict[tuple[int, torch.dtype, int], Reduction] = {}
#: The operations of those that need nothing around them.
known: dict[tuple[int, torch.dtype, int], Any] = {}


def reduction(what: str, given: Any, dtype: torch.dtype, ranks: int) -> Reduction:
    """Return the reduction that torch's `given` means for tensors of `dtype`."""
    kind = hash(given)
    seen = _seen.get((kind, dtype, ranks))
    if seen is not None:
        return seen
    table = _LOGICAL if dtype == torch.bool else _OPS
    op = table.get(kind)
    if op is None:
        raise ValueError(f"{what}: op={given} has no meaning for {dtype}")
    if kind == _PREMUL_SUM:
        return Reduction(op, before=_scaled_by(given.factor))
    if kind == _AVG and not (dtype.is_floating_point or dtype.is_complex):
        found = Reduction(MPI.SUM, after=_divided_by(ranks))
    else:
        found = Reduction(op)
        known[kind, dtype, ranks] = op
    _seen[kind, dtype, ranks] = found
    return found
