"""DLPack's structures in ctypes, and capsules over them that say anything, true or not.

Written from the header's layout. Nothing is checked here, which is its use: the door must check.
Every managed tensor counts the calls of its deleter."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

INT, UINT, FLOAT, OPAQUE, BFLOAT, COMPLEX, BOOL = range(7)
CPU, CUDA, CUDA_HOST, METAL, ROCM, CUDA_MANAGED = 1, 2, 3, 8, 10, 13
READ_ONLY, IS_COPIED, SUBBYTE_PADDED = 1, 2, 4


class Device(ctypes.Structure):
    _fields_: ClassVar = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_: ClassVar = [
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    ]


class Tensor(ctypes.Structure):
    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Legacy(ctypes.Structure):
    _fields_: ClassVar = [
        ("tensor", Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class Versioned(ctypes.Structure):
    _fields_: ClassVar = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


NAMES = {Legacy: b"dltensor", Versioned: b"dltensor_versioned"}
_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR]
_valid = _api.PyCapsule_IsValid
_valid.restype, _valid.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]
_pointer = _api.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]


def pointer(capsule: object, name: bytes) -> int:
    """Return the address that a capsule of this name holds."""
    return _pointer(id(capsule), name)


# What is exported and not yet deleted, by address: keeps the memory alive, as a manager would.
_alive: dict[int, Any] = {}


@_DESTRUCTOR
def _destroy(capsule: int) -> None:
    """A capsule that nobody consumed still calls the deleter, as the protocol wants."""
    for kind, name in NAMES.items():
        if _valid(capsule, name):
            address = _pointer(capsule, name)
            deleter = ctypes.cast(address, ctypes.POINTER(kind)).contents.deleter
            if deleter:
                DELETER(deleter)(address)


class Export:
    """One managed tensor: the structure, its capsule, and how often it was deleted."""

    deleted = 0

    def __init__(
        self,
        array: np.ndarray,
        kind: type = Versioned,
        *,
        version: tuple[int, int] = (1, 1),
        flags: int = 0,
        deleter: bool = True,
        name: bytes | None = None,
        **fields: Any,
    ) -> None:
        self.array = array
        self.managed = kind()
        if kind is Versioned:
            self.managed.major, self.managed.minor, self.managed.flags = *version, flags
        self._describe(array, fields)
        self._deleter = DELETER(self._delete)
        if deleter:
            self.managed.deleter = ctypes.cast(self._deleter, ctypes.c_void_p).value
        self.address = ctypes.addressof(self.managed)
        self._name = name or NAMES[kind]

    def _describe(self, array: np.ndarray, fields: dict[str, Any]) -> None:
        tensor = self.managed.tensor
        shape: Sequence[int] = fields.pop("shape", array.shape)
        strides = fields.pop("strides", [s // array.itemsize for s in array.strides])
        code, bits, lanes = fields.pop("dtype", (FLOAT, array.itemsize * 8, 1))
        self._shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        tensor.data = fields.pop("data", array.ctypes.data)
        tensor.device = Device(*fields.pop("device", (CPU, 0)))
        tensor.ndim = fields.pop("ndim", len(shape))
        tensor.dtype = DataType(code, bits, lanes)
        if not fields.pop("null_shape", False):
            tensor.shape = self._shape
        if strides is not None:
            self._strides = (ctypes.c_int64 * max(len(strides), 1))(*strides)
            tensor.strides = self._strides
        tensor.byte_offset = fields.pop("byte_offset", 0)
        assert not fields, f"no such fields: {fields}"

    def _delete(self, address: int) -> None:
        assert address == self.address
        self.deleted += 1
        _alive.pop(self.address, None)

    def capsule(self) -> Any:
        """A fresh capsule; valid once, as in the protocol."""
        _alive[self.address] = self
        return _new(self.address, self._name, _destroy)


def alive() -> int:
    """How many managed tensors are exported and not deleted."""
    return len(_alive)


def wait_until_alive(
    number: int, seconds: float = 30.0, meanwhile: Callable[[], None] | None = None
) -> None:
    """Who waits for an operation may be told of its end a moment before its memory is let go."""
    end = time.monotonic() + seconds
    while alive() != number:
        assert time.monotonic() < end, f"{alive()} managed tensors are alive, expected {number}"
        time.sleep(0.001)
        if meanwhile is not None:
            meanwhile()


_names: list[bytes] = []
_no_destructor = _DESTRUCTOR()


def plain_capsule(address: int, name: bytes) -> Any:
    """A capsule over something that lives as long as the process; `name` must, too."""
    _names.append(name)
    return _new(address, name, _no_destructor)
