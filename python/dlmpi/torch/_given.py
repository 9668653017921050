"""The shapes of arguments that the bindings of torch take besides its own options: one tensor for
a list, a number, an operation or a timeout in place of options, and all names of the tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import wraps
from inspect import signature
from typing import Any

import torch

__all__ = ["listed", "named", "options", "reducing", "rooted"]

_OUTPUTS = (
    *("output", "outputs", "output_tensor", "output_tensors", "output_lists"),
    *("outputTensor", "outputTensors"),
)
_INPUTS = (
    *("input", "inputs", "input_tensor", "input_tensors", "input_list"),
    *("inputTensor", "inputTensors"),
)
#: What the bindings call an argument of ours, in this or that version of torch.
_NAMES = {
    **{"tensors": ("tensor",), "dst": ("dstRank",), "src": ("srcRank",)},
    **dict.fromkeys(("out", "outs"), _OUTPUTS),
    **dict.fromkeys(("inp", "ins"), _INPUTS),
}


def named(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method take its arguments by all names that the bindings give them."""
    own = {given: name for name in signature(method).parameters for given in _NAMES.get(name, ())}

    @wraps(method)
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        for given in keywords.keys() & own.keys():
            name = own[given]
            if name in keywords:
                raise TypeError(f"{method.__name__}: {given!r} is given by two of its names")
            keywords[name] = keywords.pop(given)
        return method(self, *arguments, **keywords)

    return call


def listed(tensors: Any) -> Sequence[Any]:
    """Return a list of tensors, also where one tensor was given."""
    given: Sequence[Any] = [tensors] if isinstance(tensors, torch.Tensor) else tensors
    for each in given:
        if not isinstance(each, torch.Tensor):
            raise TypeError(f"expected tensors, got {type(each).__name__} among them")
    return given


def options(kind: type[Any], opts: Any, timeout: Any) -> Any:
    """Return torch's options, also where a timeout or nothing was given in their place."""
    if isinstance(opts, kind):
        return opts
    timeout = opts if isinstance(opts, timedelta) else timeout
    opts = kind()
    if timeout is not None:
        opts.timeout = timeout
    return opts


def rooted(kind: type[Any], opts: Any, root: Any, timeout: Any, op: Any = None) -> Any:
    """Return torch's options, also where a rank was given in their place."""
    if isinstance(opts, kind):
        return opts
    number = root if opts is None else opts
    opts = reducing(kind, None, op, timeout)
    opts.rootRank = 0 if number is None else number
    return opts


def reducing(kind: type[Any], opts: Any, op: Any, timeout: Any) -> Any:
    """Return torch's options, also where an operation was given in their place."""
    if isinstance(opts, kind):
        return opts
    op = op if opts is None else opts
    opts = options(kind, None, timeout)
    if op is not None:
        opts.reduceOp = op
    return opts
