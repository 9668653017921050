"""The shapes of arguments that the bindings of torch take besides its own options: one tensor for
a list, and a number, an operation or a timeout in place of options."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

__all__ = ["listed", "options", "reducing", "rooted"]


def listed(tensors: Any) -> Sequence[Any]:
    """Return a list of tensors, also where one tensor was given."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


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
