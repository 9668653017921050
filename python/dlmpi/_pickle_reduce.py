"""How tensors are pickled in messages: as their elements, without a copy where memory allows.

torch pickles a tensor as its whole storage, by several copies, and for the device it came from.
Here it is its elements, and one of a GPU comes to the current device of whoever reads it. What is
written names functions of torch, NumPy and the standard library only, so that any process with
these can read it. Imports no framework.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import pickle
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["reduce"]

#: Device types whose tensors are pickled, and where the reader puts them: no index means that the
#: reader's current one is meant.
_LANDING: dict[str, str | None] = {"cpu": None, "cuda": "cuda", "xpu": "xpu"}


class _Steps:
    """Pickled as a function of one object, so that reductions nest: `function(argument)`."""

    __slots__ = ("argument", "function")

    def __init__(self, function: Callable[..., Any], argument: Any) -> None:
        self.function = function
        self.argument = argument


def reduce(obj: Any) -> Any:
    """Return how an object is pickled, or NotImplemented for its own way."""
    kind = type(obj)
    if kind is _Steps:
        return obj.function, (obj.argument,)
    if kind.__module__.startswith("torch"):
        torch = sys.modules.get("torch")
        if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
            return _tensor(obj, torch)
    elif kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return _array(obj)
    return NotImplemented


def _device_type(tensor: Any) -> str:
    return str(tensor.device.type)


def _plain(tensor: Any, torch: Any) -> bool:
    """Whether a tensor is its elements, dtype, shape, strides and `requires_grad`, and no more."""
    return (
        tensor.layout is torch.strided
        and _device_type(tensor) in _LANDING
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not tensor._backward_hooks
        and tensor.numel() > 0
        and not (tensor.__dict__ if type(tensor) is torch.Tensor else _attributes(tensor))
        and not any(getattr(tensor, "names", ()))
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def _attributes(parameter: Any) -> bool:
    return any(name != "_backward_hooks" for name in parameter.__dict__)


def _tensor(tensor: Any, torch: Any) -> Any:
    if not _plain(tensor, torch):
        return NotImplemented
    values = tensor.detach()
    landing = _LANDING[_device_type(tensor)]
    if landing is not None:
        values = values.cpu()
    if not _dense(values):
        values = values.contiguous()
    shape, strides = tuple(values.shape), tuple(values.stride())
    # The elements as they lie, from the first byte on.
    flat = values.as_strided((values.numel(),), (1,))
    made = _Steps(functools.partial(torch.frombuffer, dtype=values.dtype), _lent(flat))
    made = _Steps(operator.methodcaller("as_strided", shape, strides), made)
    if landing is not None:
        made = _Steps(operator.methodcaller("to", landing), made)
    if type(tensor) is torch.nn.Parameter:
        return torch.nn.Parameter, (made, tensor.requires_grad)
    if tensor.requires_grad:
        return operator.methodcaller("requires_grad_"), (made,)
    return made.function, (made.argument,)


def _dense(tensor: Any) -> bool:
    """Whether the elements fill one block of memory, in whatever order of the dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _lent(tensor: Any) -> pickle.PickleBuffer:
    """Return the memory of a contiguous tensor; the buffer holds the tensor."""
    memory = (ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(
        tensor.data_ptr()
    )
    memory.__dict__["tensor"] = tensor
    return pickle.PickleBuffer(memory)


def _array(array: Any) -> Any:
    """NumPy's own way is right where its arrays can be buffers; those of bfloat16 cannot."""
    dtype = array.dtype
    if dtype.kind != "V" or dtype.names or dtype.subdtype or dtype.isbuiltin != 2:
        return NotImplemented
    if array.size == 0 or dtype.itemsize not in (1, 2):
        return NotImplemented
    bits = array.view("u1" if dtype.itemsize == 1 else "u2")
    return operator.methodcaller("view", dtype), (bits,)
