"""What the native module says of a tensor: one description for every way that it came in by."""

from __future__ import annotations

import array
import ctypes

import ml_dtypes
import numpy as np
import pytest
import torch

from dlmpi import MPI, _native
from support import capsules, producers
from support.boxes import Box
from support.dtypes import TABLE
from support.layouts import TABLE as LAYOUTS


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", TABLE, ids=str)
def test_shapes_and_strides(dtype, layout):
    rng = np.random.default_rng(5)
    for framework in dtype.frameworks:
        if framework not in layout.frameworks:
            continue
        box = Box(framework, dtype, layout, 24, rng)
        seen = _native.describe(box.tensor)
        assert tuple(seen["shape"]) == box.plan.shape
        wide = [i for i, size in enumerate(box.plan.shape) if size > 1]
        assert [seen["strides"][i] for i in wide] == [box.plan.strides[i] for i in wide]
        assert seen["device"] == "cpu"
        assert not seen["readonly"]
        names = {dtype.name}
        if dtype.name == "clongdouble":
            names = {"complexlongdouble", "clongdouble", "complex256", "complex_longdouble"}
        assert seen["dtype"] in names


@pytest.mark.parametrize(
    ("thing", "dtype", "shape"),
    [
        (b"abc", "uint8", (3,)),
        (array.array("d", [1, 2]), "float64", (2,)),
        (array.array("h", [1, 2, 3]), "int16", (3,)),
        (memoryview(np.zeros((2, 3), np.complex64)), "complex64", (2, 3)),
        ((ctypes.c_int32 * 5)(), "int32", (5,)),
        (np.float32(3), "float32", ()),
        (np.zeros((), np.int8), "int8", ()),
        (np.zeros(3, "=i4"), "int32", (3,)),
        (np.zeros(3, "<f8"), "float64", (3,)),
        (np.zeros(3, "?"), "bool", (3,)),
        (np.zeros(3, np.longlong), "int64", (3,)),
        (np.zeros(3, ml_dtypes.bfloat16), "bfloat16", (3,)),
        (producers.ArrayInterface(np.zeros((2, 2), np.uint16)), "uint16", (2, 2)),
        (torch.zeros(2, 3, dtype=torch.bfloat16), "bfloat16", (2, 3)),
        (torch.nn.Parameter(torch.zeros(3)), "float32", (3,)),
    ],
    ids=lambda value: f"{type(value).__name__}-{value}"[:40],
)
def test_all_ways_in(thing, dtype, shape):
    seen = _native.describe(thing)
    assert (seen["dtype"], tuple(seen["shape"])) == (dtype, shape)


def test_read_only_is_seen_and_refused():
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    assert _native.describe(frozen)["readonly"]
    assert _native.describe(b"abc")["readonly"]
    assert _native.describe(producers.Frozen(np.zeros(3)))["readonly"]
    for thing in (frozen, b"abc", producers.Frozen(np.zeros(3)), np.float64(1)):
        with pytest.raises(BufferError):
            _native.describe(thing, writable=True)


@pytest.mark.parametrize("thing", [None, 3, 2.5, "text", [1, 2], {}, object(), int, np], ids=type)
def test_not_a_tensor(thing):
    with pytest.raises(TypeError, match=type(thing).__name__):
        _native.describe(thing)


@pytest.mark.parametrize(
    "dtype",
    [">f8", ">i2", ">c16", "O", "T", [("a", "f4"), ("b", "O")]],
    ids=str,
)
def test_arrays_that_do_not_travel(dtype):
    """Big-endian numbers, pointers and text: refused in words."""
    with pytest.raises(BufferError) as raised:
        _native.describe(np.zeros(3, np.dtypes.StringDType() if dtype == "T" else dtype))
    assert str(raised.value)


def test_producers_before_interfaces():
    """An array with several protocols is described once, and alike by each."""

    class Both(producers.Full):
        @property
        def __array_interface__(self):
            raise AssertionError("DLPack comes first")

    seen = _native.describe(Both(np.zeros(4)))
    assert tuple(seen["shape"]) == (4,)


def test_a_masked_array_is_refused_or_whole():
    """The protocols do not carry the mask: what travels is the data, as in NumPy's own export."""
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    try:
        seen = _native.describe(masked)
    except BufferError:
        return
    assert tuple(seen["shape"]) == (2,)


def test_legacy_capsules_of_unknown_producers_are_no_permission_to_write():
    """They carry no flag: the arrays of immutable libraries are refused by their module's name."""
    for module in ("jaxlib._jax", "jax", "tensorflow.python.framework.ops"):
        members = {"__module__": module, "dtype": np.dtype(np.float64)}
        kind = type("Array", (producers.LegacyAnswer,), members)
        assert tuple(_native.describe(kind(np.zeros(2)))["shape"]) == (2,)
        with pytest.raises(BufferError, match=r"(?i)immutable|never|read"):
            _native.describe(kind(np.zeros(2)), writable=True)


def test_foreign_devices_are_refused_in_words():
    tensor = producers.Full(np.zeros(2), device=(capsules.METAL, 0))
    tensor.device = (capsules.METAL, 0)
    assert "metal" in _native.describe(tensor)["device"].lower()
    with pytest.raises(BufferError, match=r"(?i)metal"):
        MPI.COMM_SELF.Bcast(tensor)
