"""Rules of third parties for their own tensors.

A package whose tensors follow the DLPack specification needs none. One whose tensors have rules
that no protocol can say declares an entry point of the group ``dlmpi.frameworks``, named like its
top-level package::

    [project.entry-points."dlmpi.frameworks"]
    mytensors = "mytensors.dlmpi_rules"

The object named is loaded when the first tensor of that package is met. Each of its attributes is
optional:

``export(tensor, writable)``
    Return what dlmpi shall take instead: any tensor, or a buffer. ``writable`` says whether it will
    be written. Raise ``BufferError``, in words, for a tensor that must not be lent.
``immutable``
    A sentence: why such tensors may never be written.
``wrote(tensor)``
    Called after the memory of a tensor was written.
``empty(tensor, shape)``
    Return what a result of this shape is received into, for the functions that return new tensors
    (`dlmpi.allreduce` and its like): same dtype, same device.
``finish(received, tensor)``
    Turn it into the result. Without it, the result is what ``empty`` returned.

Imports no framework and starts no MPI.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from dlmpi import _native

__all__ = ["GROUP", "register", "rules_of"]

#: The group of entry points.
GROUP = "dlmpi.frameworks"

_registered: dict[str, Any] = {}


def register(package: str, rules: object | None) -> None:
    """Set the rules of a top-level package's tensors for this process; None takes them back."""
    if rules is None:
        _registered.pop(package, None)
    else:
        _registered[package] = rules
    _native.forget_types()


@cache
def _declared() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _rules(package: str) -> Any:
    if package in _registered:
        return _registered[package]
    point = _declared().get(package)
    if point is None:
        return None
    _registered[package] = point.load()
    return _registered[package]


def rules_of(tensor_type: type) -> Any:
    """Return the rules for a type: of its own package, else of a class it derives from; or None."""
    for cls in tensor_type.__mro__:
        module = getattr(cls, "__module__", None)
        if isinstance(module, str):
            rules = _rules(module.partition(".")[0])
            if rules is not None:
                return rules
    return None
