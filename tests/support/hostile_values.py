"""What is wrong with an argument: values that no operation may take, by what the argument is.

Knows nothing of methods. A row is a name and a function that makes the value of a right one.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from dlmpi import MPI

#: Makes the wrong value.
Make = Callable[[], Any]
#: One past what a C int, an MPI_Count and anything at all can hold.
WIDE = {"2^31": 2**31, "2^63 - 1": 2**63 - 1, "2^63": 2**63, "2^80": 2**80}


class Refusing:
    """Fails in whatever way it is asked."""

    def __index__(self):
        raise ValueError("no index")

    def __len__(self):
        raise ValueError("no length")

    def __getattr__(self, name):
        raise AttributeError(name)


#: What is no integer.
NO_INTEGERS: dict[str, Make] = {
    "a fraction": lambda: 1.5,
    "a string": lambda: "1",
    "a list": lambda: [1],
    "an array": lambda: np.ones(3),
    "an object": object,
    "a communicator": lambda: MPI.COMM_SELF,
    "no integer after all": Refusing,
}


class Gpu:
    """Memory of a device, whose owner refuses to hand it out."""

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **_options):
        raise BufferError("not exported")


class Interface:
    """An array interface that says what it likes."""

    def __init__(self, name, value):
        self.value = value
        setattr(type(self), name, property(Interface.say))

    def say(self):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Capsule:
    """An export that gives anything."""

    def __init__(self, given, device=(1, 0)):
        self.given, self.device = given, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_options):
        return self.given


def interface(name: str, value: Any) -> Any:
    return type("Interface", (Interface,), {})(name, value)


def released() -> memoryview:
    view = memoryview(bytearray(64))
    view.release()
    return view


def shrunk() -> torch.Tensor:
    """A tensor that reaches beyond its storage."""
    tensor = torch.zeros(64, dtype=torch.float64)
    tensor.untyped_storage().resize_(8)
    return tensor


def freed() -> MPI.Datatype:
    kind = MPI.DOUBLE.Dup()
    kind.Free()
    return kind


def frozen(n: int) -> np.ndarray:
    array = np.zeros(n)
    array.flags.writeable = False
    return array


#: No message in any form, sent or received.
NO_MESSAGES: dict[str, Make] = {
    "a number": lambda: 3.5,
    "a string": lambda: "text",
    "a dict": lambda: {"a": 1},
    "an object": object,
    "a class": lambda: np.ndarray,
    "a communicator": lambda: MPI.COMM_SELF,
    "a Datatype": lambda: MPI.DOUBLE,
    "a list of numbers": lambda: [1.0, 2.0, 3.0],
    "nested lists": lambda: [[1.0, 2.0], [3.0, 4.0]],
    "an empty list": list,
    "five items": lambda: [np.zeros(4), 1, 0, MPI.DOUBLE, 1],
    "six items": lambda: [np.zeros(4)] * 6,
    "a type alone": lambda: [MPI.DOUBLE],
    "a set": lambda: {1, 2},
    "a generator": lambda: (i for i in range(3)),
    "foreign byte order": lambda: np.zeros(8, ">f8"),
    "an array of objects": lambda: np.array([None] * 8),
    "a record with an object": lambda: np.zeros(4, [("a", object), ("b", "f8")]),
    "a masked array": lambda: np.ma.masked_array(np.zeros(8), [True] * 8),
    "a meta tensor": lambda: torch.zeros(8, device="meta"),
    "a sparse tensor": lambda: torch.eye(4).to_sparse(),
    "a tensor without storage": shrunk,
    "a released view": released,
    "a refusing device": Gpu,
    "an object that fails": Refusing,
    "an unknown device": lambda: Capsule(None, (99, 0)),
    "a device in words": lambda: Capsule(None, "cuda"),
    "a capsule of nothing": lambda: Capsule(None),
    "a capsule of text": lambda: Capsule("dltensor"),
    "another's capsule": lambda: Capsule(datetime.datetime_CAPI),
    "CAI of garbage": lambda: interface("__cuda_array_interface__", {"shape": "x"}),
    "CAI that fails": lambda: interface("__cuda_array_interface__", RuntimeError("gone")),
    "CAI without memory": lambda: interface(
        "__cuda_array_interface__",
        {"shape": (4,), "typestr": "<f8", "data": (0, False), "version": 3},
    ),
    "array interface of garbage": lambda: interface("__array_interface__", {"data": (3, False)}),
    "array interface below zero": lambda: interface(
        "__array_interface__",
        {"shape": (-4,), "typestr": "<f8", "data": (4096, False), "version": 3},
    ),
    "array interface too large": lambda: interface(
        "__array_interface__",
        {"shape": (2**62, 8), "typestr": "<f8", "data": (4096, False), "version": 3},
    ),
}


#: What may be sent and never received into.
READ_ONLY: dict[str, Make] = {
    "read-only": lambda: frozen(64),
    "bytes": lambda: bytes(512),
    "a read-only view": lambda: memoryview(bytearray(512)).toreadonly(),
    "a NumPy scalar": lambda: np.float64(3),
    "one element repeated": lambda: torch.zeros(1, dtype=torch.float64).expand(64),
    "rows that overlap": lambda: torch.zeros(64).double().as_strided((8, 8), (2, 1)),
    "a conjugate": lambda: torch.zeros(64, dtype=torch.complex64).conj(),
    "a negative": lambda: torch._neg_view(torch.zeros(64).double()),
}
#: What is no Datatype of a message.
NO_TYPES: dict[str, Make] = {
    "no name of a type": lambda: "no such type",
    "an empty name": lambda: "",
    "DATATYPE_NULL": lambda: MPI.DATATYPE_NULL,
    "a freed type": freed,
    "an Op for a type": lambda: MPI.SUM,
    "a class for a type": lambda: float,
}


class Made(NamedTuple):
    """A Datatype and what it is, kept for the process: MPI has only so many."""

    name: str
    kind: MPI.Datatype


def _types() -> list[Made]:
    far = MPI.DOUBLE.Create_hindexed([1, 1], [0, 2**40])
    before = MPI.DOUBLE.Create_hindexed([1, 1], [0, -8])
    wide = MPI.DOUBLE.Create_contiguous(2**30)
    spread = MPI.DOUBLE.Create_resized(0, 2**50)
    return [
        Made("a type that reaches far", far.Commit()),
        Made("a type that begins before", before.Commit()),
        Made("a type of 8 GiB", wide.Commit()),
        Made("a type of huge extent, twice", spread.Commit()),
    ]


REACHING = _types()


def counted(tensor: Any, n: int) -> dict[str, Make]:
    """Messages of one tensor of n elements, whose count, displacement or type does not fit."""
    rows: dict[str, Make] = {
        f"count {name}": lambda value=value: [tensor, value]
        for name, value in {"n + 1": n + 1, "-1": -1, "-2^31": -(2**31), **WIDE}.items()
    }
    for name, make in NO_INTEGERS.items():
        if name not in ("a list", "an array", "a communicator"):
            rows[f"count {name}"] = lambda make=make: [tensor, make(), MPI.DOUBLE]
            rows[f"displacement {name}"] = lambda make=make: [tensor, (1, make())]
    for name, value in {"-1": -1, "n": n, **WIDE, "-2^62": -(2**62)}.items():
        rows[f"displacement {name}"] = lambda value=value: [tensor, (1, value)]
        rows[f"displacement {name}, typed"] = lambda value=value: [tensor, 1, value, MPI.DOUBLE]
    for name, make in NO_TYPES.items():
        rows[f"type {name}"] = lambda make=make: [tensor, 1, make()]
        rows[f"type {name}, alone"] = lambda make=make: [tensor, make()]
    for name, kind in REACHING:
        rows[name] = lambda kind=kind: [tensor, 2, kind]
    rows["a larger type"] = lambda: [tensor, n, MPI.C_DOUBLE_COMPLEX]
    rows["three for a pair"] = lambda: [tensor, (1, 0, 0)]
    return rows


def listed(tensor: Any, n: int, p: int) -> dict[str, Make]:
    """Messages of p blocks, whose lists of counts or displacements do not fit n elements."""
    ones = [1] * p
    wrong: dict[str, Any] = {
        "too long": [1] * (p + 1),
        "too short": [1] * (p - 1),
        "empty": [],
        "negative": [-1] * p,
        "beyond the end": [n + 1] * p,
        "fractions": [1.5] * p,
        "fractions in an array": np.full(p, 1.5),
        "strings": ["1"] * p,
        "nested": [[1]] * p,
        "None": [None] * p,
        "a string": "1" * p,
        "an object": object(),
        "an object that fails": Refusing(),
        **{name: [value] * p for name, value in WIDE.items()},
    }
    rows: dict[str, Make] = {}
    for name, value in wrong.items():
        rows[f"counts {name}"] = lambda value=value: [tensor, (value, None), MPI.DOUBLE]
        rows[f"displacements {name}"] = lambda value=value: [tensor, (ones, value), MPI.DOUBLE]
    for name, make in NO_TYPES.items():
        rows[f"type {name}"] = lambda make=make: [tensor, (ones, None), make()]
    return rows


def typed(tensor: Any, n: int, p: int) -> dict[str, Make]:
    """Messages with a count, a displacement in bytes and a Datatype per peer that do not fit."""
    ones, zeros, kinds = [1] * p, [0] * p, [MPI.DOUBLE] * p
    rows: dict[str, Make] = {
        "no lists": lambda: tensor,
        "counts alone": lambda: [tensor, ones],
        "one type": lambda: [tensor, ones, zeros, MPI.DOUBLE],
        "types too short": lambda: [tensor, ones, zeros, kinds[1:]],
        "types null": lambda: [tensor, ones, zeros, [MPI.DATATYPE_NULL] * p],
        "types freed": lambda: [tensor, ones, zeros, [freed()] * p],
        "types None": lambda: [tensor, ones, zeros, [None] * p],
        "types numbers": lambda: [tensor, ones, zeros, [3] * p],
    }
    for name, value in {"beyond the end": n + 1, "negative": -1, **WIDE}.items():
        rows[f"counts {name}"] = lambda value=value: [tensor, [value] * p, zeros, kinds]
    for name, value in {"beyond the end": 8 * n, "negative": -8, **WIDE}.items():
        rows[f"displacements {name}"] = lambda value=value: [tensor, ones, [value] * p, kinds]
    for name, value in {"fractions": 1.5, "strings": "1", "None": None, "nested": [1]}.items():
        rows[f"counts {name}"] = lambda value=value: [tensor, [value] * p, zeros, kinds]
        rows[f"displacements {name}"] = lambda value=value: [tensor, ones, [value] * p, kinds]
    for name, kind in REACHING:
        rows[name] = lambda kind=kind: [tensor, [2] * p, zeros, [kind] * p]
    return rows


def numbers(**wrong: int) -> dict[str, Make]:
    """Integers that are out of range, and what is no integer."""
    rows: dict[str, Make] = {name: lambda value=value: value for name, value in wrong.items()}
    rows |= {name: lambda value=value: value for name, value in WIDE.items()}
    rows |= NO_INTEGERS
    rows["None"] = lambda: None
    return rows


def freed_op() -> MPI.Op:
    op = MPI.Op.Create(lambda a, b, kind: None)
    op.Free()
    return op


#: No operation of a reduction of float64.
NO_OPS: dict[str, Make] = {
    "a name": lambda: "SUM",
    "a number": lambda: 3,
    "None": lambda: None,
    "a function": lambda: sum,
    "a Datatype": lambda: MPI.DOUBLE,
    "OP_NULL": lambda: MPI.OP_NULL,
    "freed": freed_op,
    "BAND of floats": lambda: MPI.BAND,
    "MAXLOC of floats": lambda: MPI.MAXLOC,
}
NO_INFOS: dict[str, Make] = {
    "a dict": lambda: {"a": "b"},
    "a string": lambda: "info",
    "None": lambda: None,
    "a communicator": lambda: MPI.COMM_SELF,
}
NO_STATUSES: dict[str, Make] = {
    "a number": lambda: 3,
    "a class": lambda: MPI.Status,
    "a list": list,
    "a request": MPI.Request,
}


BELOW = {"-77": -77, "-2^31": -(2**31)}
#: In a list of bytes there is no order of bytes and no mask.
BYTES_ALL_THE_SAME = ("a masked array", "foreign byte order")


def _targets() -> dict[str, Make]:
    rows = {k: v for k, v in NO_INTEGERS.items() if k not in ("a list", "an array")}
    for name, value in {"-1": -1, **WIDE}.items():
        rows[f"count {name}"] = lambda value=value: (0, value, MPI.DOUBLE)
        rows[f"displacement {name}"] = lambda value=value: (value, 1, MPI.DOUBLE)
        rows[f"displacement {name} alone"] = lambda value=value: value
    for name, make in NO_TYPES.items():
        rows[f"type {name}"] = lambda make=make: (0, 4, make())
    return rows


def _without(rows: dict[str, Make], *names: str) -> dict[str, Make]:
    return {name: make for name, make in rows.items() if name not in names}


def counts_alone(n: int, p: int) -> dict[str, Make]:
    """Counts of blocks that do not fit n elements each."""
    return {
        name: lambda make=make: make()[1][0]
        for name, make in listed(np.zeros(n), n, p).items()
        if name.startswith("counts")
    }


#: What may not stand in arguments of these names.
BY_NAME: dict[str, dict[str, Make]] = {
    "op": NO_OPS,
    "info": NO_INFOS,
    "status": NO_STATUSES,
    "target": _targets(),
    "target_disp": numbers(**BELOW, **{"-1": -1}),
    "position": numbers(**BELOW, **{"-1": -1}),
    # A file may be as long.
    "offset": _without(numbers(**BELOW, **{"-1": -1}), "2^31", "2^63 - 1"),
    "partitions": numbers(**BELOW, **{"-1": -1, "3 of 4": 3}),
    "datarep": {"a number": lambda: 3, "None": lambda: None},
    "comm": {"a number": lambda: 3, "None": lambda: None, "null": lambda: MPI.COMM_NULL},
}
