"""The door: capsules that lie. Each is refused with a BufferError, or taken for what it really is,
and its deleter runs exactly once either way."""

from __future__ import annotations

import numpy as np
import pytest

from dlmpi import MPI
from support import capsules, producers
from support.capsules import Legacy, Versioned

SELF = MPI.COMM_SELF
BIG = 2**62

LIES = {
    "no data": {"data": 0},
    "negative size": {"shape": (-1,)},
    "one negative size of two": {"shape": (3, -2)},
    "sizes that overflow": {"shape": (BIG, BIG)},
    "bytes that overflow": {"shape": (2**61,)},
    "product that wraps to small": {"shape": (2**32, 2**32)},
    "zero does not hide overflow of strides": {"shape": (4,), "strides": (BIG,)},
    "lowest stride": {"shape": (4,), "strides": (-(2**63),)},
    "negative dimensions": {"ndim": -1},
    "too many dimensions": {"ndim": 65},
    "absurd dimensions": {"ndim": 2**31 - 1},
    "no shape": {"null_shape": True},
    "no bits": {"dtype": (capsules.FLOAT, 0, 1)},
    "no lanes": {"dtype": (capsules.FLOAT, 64, 0)},
    "a private dtype": {"dtype": (200, 128, 1)},
    "another private dtype": {"dtype": (202, 8, 1)},
    "offset that overflows": {"byte_offset": 2**64 - 1},
    "offset beyond an address": {"byte_offset": 2**63},
    "Metal": {"device": (capsules.METAL, 0)},
    "unknown device": {"device": (77, 0)},
    "device zero": {"device": (0, 0)},
    "negative device": {"device": (-5, 0)},
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("kind", [Legacy, Versioned])
def test_lies_are_refused(lie, kind):
    for use in (
        SELF.Bcast,
        lambda tensor: SELF.Recv(tensor, 0),
        lambda tensor: SELF.Allreduce(tensor, np.zeros(4)),
        lambda tensor: SELF.Allreduce(MPI.IN_PLACE, tensor),
    ):
        tensor = producers.Full(np.zeros(4), kind, **LIES[lie])
        with pytest.raises(BufferError) as raised:
            use(tensor)
        assert str(raised.value)
        assert tensor.deleted == [1]


@pytest.mark.parametrize("major", [2, 3, 99, 2**32 - 1])
def test_a_later_major_version_is_not_read(major):
    """Nothing past the deleter means what we know, so there is nonsense there."""
    tensor = producers.Full(
        np.zeros(4), version=(major, 0), ndim=2**31 - 1, null_shape=True, flags=2**64 - 1
    )
    with pytest.raises(BufferError, match=str(major)):
        SELF.Bcast(tensor)
    assert tensor.deleted == [1]


@pytest.mark.parametrize("version", [(1, 0), (1, 3), (1, 2**32 - 1)])
def test_minor_versions_are_all_read(version):
    tensor, out = producers.Full(np.arange(4.0), version=version), np.zeros(4)
    SELF.Sendrecv(tensor, 0, recvbuf=out, source=0)
    assert out.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [Legacy, Versioned])
@pytest.mark.parametrize(
    "fields",
    [
        {"strides": None},
        {"byte_offset": 16, "shape": (4,), "strides": (1,)},
        {"byte_offset": 56, "shape": (6,), "strides": (-1,)},
        {"shape": (2, 1, 3), "strides": (3, 99, 1)},
        {"shape": (3, 2), "strides": (1, 3)},
        {"shape": (), "strides": ()},
        {"shape": (), "strides": None, "null_shape": True},
        {"shape": (2, 2), "strides": (0, 1)},
        {"shape": (0,), "data": 0},
        {"shape": (3, 0, 5), "data": 0, "strides": (7, -2, 0)},
    ],
    ids=str,
)
def test_lawful_oddities_mean_what_they_say(kind, fields):
    memory = np.arange(10.0)
    shape = fields.get("shape", memory.shape)
    strides = fields.get("strides", (1,))
    if strides is None:
        strides = (1,) * len(shape)
    first = memory[fields.get("byte_offset", 0) // 8 :]
    want = np.ndarray(
        shape, np.float64, memory, fields.get("byte_offset", 0), [8 * s for s in strides]
    )
    assert first.size
    tensor, out = producers.Full(memory, kind, **fields), np.full(want.size, -1.0)
    SELF.Sendrecv(tensor, 0, recvbuf=out, source=0)
    assert out.tolist() == want.flatten().tolist()
    assert tensor.deleted == [1]


def test_no_deleter_is_fine():
    tensor, out = producers.Full(np.arange(3.0), deleter=False), np.zeros(3)
    SELF.Sendrecv(tensor, 0, recvbuf=out, source=0)
    assert out.tolist() == [0, 1, 2]
    assert tensor.deleted == [0]


@pytest.mark.parametrize(
    "name", [b"dltensor_versioned_2", b"used_dltensor", b"used_dltensor_versioned", b"x", b""]
)
def test_other_names_are_not_touched(name):
    tensor = producers.Full(np.zeros(3), name=name or b"\0")
    with pytest.raises(BufferError):
        SELF.Bcast(tensor)
    assert tensor.deleted == [0]


@pytest.mark.parametrize("flag", [capsules.READ_ONLY, capsules.IS_COPIED, 3])
def test_flags_matter_to_receives_only(flag):
    frozen, out = producers.Full(np.arange(3.0), flags=flag), np.zeros(3)
    SELF.Sendrecv(frozen, 0, recvbuf=out, source=0)
    assert out.tolist() == [0, 1, 2]
    SELF.Bcast(frozen, root=0)
    SELF.Scatter(frozen, out)
    for receive in (
        lambda: SELF.Recv(frozen, 0),
        lambda: SELF.Allreduce(out, frozen),
        lambda: SELF.Allgather(out, frozen),
    ):
        with pytest.raises(BufferError):
            receive()
    assert frozen.array.tolist() == [0, 1, 2]
    assert set(frozen.deleted) == {1}


def test_unknown_flags_are_refused_in_words():
    """A flag may change what the memory means, as that of padded sub-byte types did."""
    tensor = producers.Full(np.arange(3.0), flags=1 << 40)
    with pytest.raises(BufferError, match="flag"):
        SELF.Bcast(tensor)
    assert tensor.deleted == [1]


@pytest.mark.parametrize(
    ("dtype", "itemsize"),
    [
        ((99, 32, 1), 4),
        ((capsules.FLOAT, 32, 4), 16),
        ((capsules.INT, 128, 1), 16),
        ((capsules.OPAQUE, 64, 1), 8),
    ],
    ids=str,
)
def test_dtypes_without_arithmetic_here(dtype, itemsize):
    """Moved whole or refused; a reduction of them would be a wrong number."""
    memory = np.arange(64, dtype=np.uint8)
    fields = {"dtype": dtype, "shape": (64 // itemsize,), "strides": (1,)}
    out = np.zeros(64, np.uint8)
    try:
        target = producers.Full(out, **fields)
        SELF.Sendrecv(producers.Full(memory, **fields), 0, recvbuf=target, source=0)
    except BufferError:
        assert not out.any()
    else:
        assert out.tolist() == memory.tolist()
    with pytest.raises((ValueError, BufferError)):
        SELF.Allreduce(MPI.IN_PLACE, producers.Full(memory, **fields))
    assert memory.tolist() == list(range(64))


def test_packed_halves_of_bytes():
    """Seven 4-bit floats are four bytes, not seven: nothing beyond them is read or written."""
    fields = {"dtype": (17, 4, 1), "shape": (7,), "strides": (1,)}
    memory, out = np.arange(1, 9, dtype=np.uint8), np.zeros(8, np.uint8)
    target = producers.Full(out, **fields)
    SELF.Sendrecv(producers.Full(memory, **fields), 0, recvbuf=target, source=0)
    assert out.tolist() == [1, 2, 3, 4, 0, 0, 0, 0]


def test_padded_halves_of_bytes():
    fields = {"dtype": (17, 4, 1), "shape": (7,), "strides": (1,), "flags": capsules.SUBBYTE_PADDED}
    memory, out = np.arange(1, 9, dtype=np.uint8), np.zeros(8, np.uint8)
    target = producers.Full(out, **fields)
    SELF.Sendrecv(producers.Full(memory, **fields), 0, recvbuf=target, source=0)
    assert out.tolist() == [1, 2, 3, 4, 5, 6, 7, 0]


def test_memory_that_overlaps_itself_is_only_read():
    memory = np.arange(8.0)
    fields = {"shape": (3, 4), "strides": (2, 1)}
    out = np.zeros(12)
    SELF.Sendrecv(producers.Full(memory, **fields), 0, recvbuf=out, source=0)
    assert out.tolist() == [0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7]
    with pytest.raises(BufferError):
        SELF.Sendrecv(out, 0, recvbuf=producers.Full(memory, **fields), source=0)


def test_interleaved_memory_that_does_not_overlap_is_written():
    """Strides that look like an overlap to a simple test: rows interleave, elements do not."""
    memory = np.zeros(16)
    fields = {"shape": (3, 2), "strides": (2, 3)}
    target = producers.Full(memory, **fields)
    SELF.Sendrecv(np.arange(1.0, 7.0), 0, recvbuf=target, source=0)
    want = np.zeros(16)
    want[[0, 3, 2, 5, 4, 7]] = [1, 2, 3, 4, 5, 6]
    assert memory.tolist() == want.tolist()
