"""The short way of packing and of `Reduce_local`: plain arrays and bytes against tensors, which
never take it. Oracles: NumPy, and the bytes of the elements."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dlmpi import MPI

COMM = MPI.COMM_SELF
TYPES = {"i2": MPI.SHORT, "u8": MPI.UNSIGNED_LONG, "f4": MPI.FLOAT, "D": MPI.C_DOUBLE_COMPLEX}
#: Few elements, and more than the short way takes.
SIZES = [0, 1, 7, 20_000]
OPS = {"SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "BXOR": np.bitwise_xor}


def numbers(n, code):
    return np.random.default_rng().integers(0, 9, n).astype(code)


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("n", SIZES)
def test_packing_into_any_memory(code, n):
    array, kind = numbers(n, code), TYPES[code]
    length = array.nbytes + 12
    want = b"\xab" * 5 + array.tobytes() + b"\xab" * 7
    for make in (
        bytearray,
        lambda b: np.frombuffer(bytearray(b), np.uint8),
        lambda b: memoryview(bytearray(b)),
    ):
        packed = make(b"\xab" * length)
        assert kind.Pack(array, packed, 5, COMM) == 5 + array.nbytes
        assert bytes(packed) == want
        for source in (packed, bytes(packed)):
            arena = np.full(n + 2, 113).astype(code)
            assert kind.Unpack(source, 5, arena[1:-1], COMM) == 5 + array.nbytes
            assert np.array_equal(arena[1:-1], array)
            assert arena[0] == arena[-1] == arena.dtype.type(113)
    assert array.flags.writeable


def refused(call):
    with pytest.raises((ValueError, TypeError, BufferError, MPI.Exception)) as found:
        call()
    return type(found.value), str(found.value)


def test_packing_is_refused_in_the_same_words():
    plain, tensor = np.ones(4), torch.ones(4, dtype=torch.float64)
    for position, size in ((1, 32), (-1, 40), (0, 31), (1 << 40, 32)):
        words = [
            refused(lambda x=x: MPI.DOUBLE.Pack(x, bytearray(size), position, COMM))  # noqa: B023
            for x in (plain, tensor)
        ]
        assert words[0] == words[1]
        words = [
            refused(lambda x=x: MPI.DOUBLE.Unpack(bytes(size), position, x, COMM))  # noqa: B023
            for x in (plain, tensor)
        ]
        assert words[0] == words[1]
    assert plain.tolist() == [1] * 4
    fixed = plain.copy()
    fixed.setflags(write=False)
    for call in (
        lambda: MPI.DOUBLE.Pack(plain, bytes(32), 0, COMM),
        lambda: MPI.DOUBLE.Unpack(bytearray(32), 0, fixed, COMM),
        lambda: MPI.DOUBLE.Pack(plain, bytearray(32), 0, MPI.COMM_NULL),
        lambda: MPI.DOUBLE.Pack(plain, bytearray(32), 0, None),
        lambda: MPI.DOUBLE.Pack(plain, bytearray(32)),
        lambda: MPI.DATATYPE_NULL.Pack(plain, bytearray(32), 0, COMM),
    ):
        refused(call)


def test_other_readings_mean_memory_as_it_lies():
    array, packed = numbers(6, "f4"), bytearray(24)
    for kind in (MPI.INT, MPI.BYTE, MPI.DOUBLE):
        packed[:] = bytes(24)
        assert kind.Pack(array, packed, 0, COMM) == 24
        assert packed == array.tobytes()


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("n", SIZES)
def test_reduce_local(op, code, n):
    a, b = numbers(n, code), numbers(n, code)
    call = getattr(MPI, op).Reduce_local
    if (op == "BXOR" and code in "f4D") or (op == "MAX" and code == "D"):
        for x in (b, torch.from_numpy(b)):
            assert refused(lambda x=x: call(a, x)) == refused(lambda: call(a, b))
        return
    arena = np.full(n + 2, 113).astype(code)
    arena[1:-1] = b
    assert call(a, inoutbuf=arena[1:-1]) is None
    assert np.array_equal(arena[1:-1], OPS[op](a, b))
    assert arena[0] == arena[-1] == arena.dtype.type(113)


def test_reduce_local_of_one_memory_and_of_what_does_not_match():
    array = np.arange(4.0)
    MPI.SUM.Reduce_local(array, array)
    assert array.tolist() == [0, 2, 4, 6]
    MPI.MAX.Reduce_local(np.array([np.nan, 1]), array[:2])
    assert np.isnan(array[0])
    assert array[1] == 2
    for other in (np.ones(3), np.ones(4, "f4"), torch.ones(5)):
        words = refused(lambda other=other: MPI.SUM.Reduce_local(other, array))
        assert words == refused(
            lambda other=other: MPI.SUM.Reduce_local(other, torch.from_numpy(array))
        )
