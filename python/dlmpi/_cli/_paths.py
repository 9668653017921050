"""The table of `info`: which path a tensor takes, by dtype, layout and device.

The answers are those of the plans that calls are made by, in the words of the trace (`direct`,
`pack`, `stage`, `software` and their sums), or `refused` with the reason. Nothing is sent.
"""

from __future__ import annotations

import re
from typing import Any

from dlmpi import _native
from dlmpi._cli import _device

__all__ = ["Row", "gather", "lines", "settle"]

Row = dict[str, str]

#: Collectives after which ranks have agreed on all that a path may hang on.
_SETTLED = 20


def settle(world: Any) -> None:
    """Make the collectives after which a communicator's paths stay what they are; collective."""
    from array import array

    from dlmpi import MPI

    for _ in range(_SETTLED):
        world.Allreduce(MPI.IN_PLACE, array("d", [1.0]))
    # Large ones are what ranks show each other their memory for.
    world.Allreduce(MPI.IN_PLACE, array("d", bytes(1 << 20)))


def gather(world: Any, local_rank: int) -> tuple[list[Row], str]:
    """Return the rows of host memory and of that of a CUDA device, or why there are none."""
    rows = _rows("cpu", _native.paths(world))
    driver = _device.find(local_rank)
    if isinstance(driver, str):
        return rows, driver
    try:
        with driver.memory(bytes(_native.PROBED)) as memory:
            memory.now()  # which waits for what was queued
            found = _native.paths(world, (driver.number, memory.address))
    except RuntimeError as error:
        return rows, str(error)
    return rows + _rows(f"cuda:{driver.number}", found), ""


def _rows(device: str, found: list[tuple[str, str, list[tuple[str, str]]]]) -> list[Row]:
    return [
        {"dtype": dtype, "device": device, "layout": layout, **dict(operations)}
        for dtype, layout, operations in found
    ]


def lines(rows: list[Row]) -> list[str]:
    """Return the table as text: dtypes that fare alike in one line, reasons of refusals below."""
    if not rows:
        return []
    same: dict[tuple[str, ...], list[str]] = {}
    reasons: dict[str, str] = {}
    for row in rows:
        cells = []
        for name, path in row.items():
            word, _, why = path.partition(": ")
            if name != "dtype":
                cells.append(word if word == "refused" else path)
            if word == "refused":
                # Once for all dtypes and sizes.
                reasons.setdefault(re.sub(r"\d+", "", why.replace(row["dtype"], "")), why)
        same.setdefault(tuple(cells), []).append(row["dtype"])
    head = [name for name in rows[0] if name != "dtype"]
    wide = [max(map(len, column)) for column in zip(head, *same, strict=True)]
    table = []
    for columns, dtypes in [(tuple(head), ["dtypes"]), *same.items()]:
        text = "  ".join(cell.ljust(width) for cell, width in zip(columns, wide, strict=True))
        table.append(f"{text}  {' '.join(dtypes)}")
    return table + [f"refused: {why}" for why in reasons.values()]
