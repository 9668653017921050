"""How each framework makes a tensor like another one: a table, one maker per framework.

A maker says what to send for a tensor, what to receive into, and what the received becomes.
Frameworks are met through the tensor itself; none is imported that is not loaded. Knows no
operation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlmpi import frameworks

__all__ = ["Maker", "maker_of", "shape_of"]

Shape = tuple[int, ...]


def _itself(tensor: Any) -> Any:
    return tensor


def _received(room: Any, tensor: Any) -> Any:
    return room


@dataclass(frozen=True)
class Maker:
    """What a framework's tensors become on the way."""

    #: The shape and dtype of this tensor, to receive into.
    room: Callable[[Any, Shape], Any]
    #: What to send for a tensor.
    lend: Callable[[Any], Any] = _itself
    #: The result: what was received, as the framework's own.
    finish: Callable[[Any, Any], Any] = _received


def shape_of(tensor: Any) -> Shape:
    """Return the shape of anything that has one."""
    shape: Any = getattr(tensor, "shape", None)
    if callable(shape):
        shape = shape()
    if shape is None:
        try:
            shape = memoryview(tensor).shape
        except TypeError:
            shape = (len(tensor),)
    return tuple(int(size) for size in shape)


def _numpy(shape: Shape, dtype: Any) -> Any:
    import numpy

    return numpy.empty(shape, dtype)


def _extended(name: str) -> Any:
    """Return the NumPy dtype of this name, with those that ml_dtypes adds."""
    import numpy

    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as error:
            raise ImportError(
                "a bfloat16 result of this framework is received through NumPy, which needs the "
                "package ml_dtypes: pip install ml-dtypes"
            ) from error
        return numpy.dtype(ml_dtypes.bfloat16)
    return numpy.dtype(name)


# NumPy: scalars come back as scalars, other subclasses as plain arrays.


def _finish_numpy(room: Any, array: Any) -> Any:
    scalar = isinstance(array, sys.modules["numpy"].generic)
    return room[()] if scalar and room.ndim == 0 else room


def _torch(tensor: Any, shape: Shape) -> Any:
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=tensor.dtype, device=tensor.device)


def _cupy(array: Any, shape: Shape) -> Any:
    with array.device:
        return sys.modules["cupy"].empty(shape, array.dtype)


# JAX: through NumPy, whose view of a CPU array costs no copy.


def _lend_jax(array: Any) -> Any:
    jax = sys.modules["jax"]
    # Traced, deleted and spread arrays are the door's to refuse, in words.
    if isinstance(array, jax.core.Tracer) or array.is_deleted() or len(array.devices()) > 1:
        return array
    import numpy

    return numpy.asarray(array)


def _finish_jax(room: Any, array: Any) -> Any:
    (device,) = array.devices()
    return sys.modules["jax"].device_put(room, device)


# TensorFlow: the same.


def _lend_tensorflow(tensor: Any) -> Any:
    return tensor.numpy() if hasattr(tensor, "numpy") else tensor


def _finish_tensorflow(room: Any, tensor: Any) -> Any:
    tensorflow = sys.modules["tensorflow"]
    with tensorflow.device(tensor.device):
        return tensorflow.constant(room)


def _room_mlx(array: Any, shape: Shape) -> Any:
    return _numpy(shape, _extended(str(array.dtype).rpartition(".")[2]))


def _finish_mlx(room: Any, array: Any) -> Any:
    mx = sys.modules["mlx.core"]
    if room.dtype.name != "bfloat16":
        return mx.array(room)
    # NumPy's bfloat16 means nothing to MLX; its bits do.
    return mx.array(room.view("u2")).view(mx.bfloat16)


def _paddle(tensor: Any, shape: Shape) -> Any:
    room = sys.modules["paddle"].empty(list(shape), dtype=tensor.dtype)
    return room if str(room.place) == str(tensor.place) else room.to(tensor.place)


def _room_arrow(array: Any, shape: Shape) -> Any:
    return _numpy(shape, array.type.to_pandas_dtype())


def _finish_arrow(room: Any, array: Any) -> Any:
    arrow = sys.modules["pyarrow"]
    one_axis = isinstance(array, arrow.Array) and room.ndim == 1
    return arrow.array(room) if one_axis else arrow.Tensor.from_numpy(room)


def _room_ffi(tensor: Any, shape: Shape) -> Any:
    return _numpy(shape, _extended(str(tensor.dtype)))


def _finish_ffi(room: Any, tensor: Any) -> Any:
    return sys.modules["tvm_ffi"].from_dlpack(room)


def _warp(array: Any, shape: Shape) -> Any:
    return sys.modules["warp"].empty(shape, dtype=array.dtype, device=array.device)


def _room_ort(value: Any, shape: Shape) -> Any:
    # One over a NumPy array would not keep the array.
    ours = sys.modules["onnxruntime"].OrtValue.ortvalue_from_shape_and_type
    return ours(list(shape), value.numpy().dtype, value.device_name().lower())._ortvalue


# The standard library's buffers: bytes come back as bytes.


def _buffer(buffer: Any, shape: Shape) -> Any:
    import array

    count = 1
    for size in shape:
        count *= size
    view = memoryview(buffer)
    if view.format in ("B", "b", "c"):
        return bytearray(count)
    return array.array(view.format, bytes(count * view.itemsize))


def _finish_buffer(room: Any, buffer: Any) -> Any:
    return bytes(room) if isinstance(buffer, bytes) else room


def _namespace(array: Any, shape: Shape) -> Any:
    """Whatever follows the array API."""
    xp = array.__array_namespace__()
    return xp.empty(shape, dtype=array.dtype, device=array.device)


_JAX = Maker(lambda array, shape: _numpy(shape, array.dtype), lend=_lend_jax, finish=_finish_jax)
_BUFFER = Maker(_buffer, finish=_finish_buffer)
_NAMESPACE = Maker(_namespace)

#: The makers, by the top-level package of a type.
_MAKERS = {
    "numpy": Maker(lambda array, shape: _numpy(shape, array.dtype), finish=_finish_numpy),
    "torch": Maker(_torch),
    "cupy": Maker(_cupy),
    "jax": _JAX,
    "jaxlib": _JAX,
    "tensorflow": Maker(
        lambda tensor, shape: _numpy(shape, tensor.dtype.as_numpy_dtype),
        lend=_lend_tensorflow,
        finish=_finish_tensorflow,
    ),
    "paddle": Maker(_paddle),
    "mlx": Maker(_room_mlx, finish=_finish_mlx),
    "pyarrow": Maker(_room_arrow, finish=_finish_arrow),
    "tvm_ffi": Maker(_room_ffi, finish=_finish_ffi),
    "warp": Maker(_warp),
    "onnxruntime": Maker(_room_ort),
    "array": _BUFFER,
}


def maker_of(tensor: Any) -> Maker:
    """Return the maker for a tensor's type: registered rules first, then the table."""
    rules = frameworks.rules_of(type(tensor))
    if rules is not None and hasattr(rules, "empty"):
        return Maker(rules.empty, finish=getattr(rules, "finish", None) or _received)
    for cls in type(tensor).__mro__:
        found = _MAKERS.get(str(getattr(cls, "__module__", "")).partition(".")[0])
        if found is not None:
            return found
    if isinstance(tensor, bytes | bytearray | memoryview):
        return _BUFFER
    if hasattr(type(tensor), "__array_namespace__"):
        return _NAMESPACE
    raise TypeError(
        f"how to make a {type(tensor).__module__}.{type(tensor).__qualname__} like this one is not "
        "known; receive into one with the upper-case methods, or register its package's rules with "
        f"`empty` (entry points, group {frameworks.GROUP!r})"
    )
