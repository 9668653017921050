"""`Datatype.Pack`, `Unpack`, their portable forms and `Attach_buffer` on tensors. Oracle: the bytes
of a C-ordered copy, of the other byte order for the portable form."""

from __future__ import annotations

import gc
import pickle
import weakref

import numpy as np
import pytest
import torch
from mpi4py import MPI as PLAIN

from dlmpi import MPI

COMM = MPI.COMM_SELF
CASES = [
    (torch.float64, "DOUBLE"),
    (torch.float32, "FLOAT"),
    (torch.int16, "INT16_T"),
    (torch.complex64, "C_FLOAT_COMPLEX"),
    (torch.uint8, "BYTE"),
    (torch.bool, "C_BOOL"),
    (torch.bfloat16, "UINT16_T"),  # MPI has no type for these: an integer of their size
    (torch.float8_e5m2, "UINT8_T"),
]


def laid(shape, dtype, layout):
    """Random elements in some layout, and the whole memory below them."""
    rows, cols = shape
    values = torch.randint(0, 2, shape) if dtype == torch.bool else torch.randint(0, 100, shape)
    if layout == "C":
        room = torch.empty(shape).to(dtype)
        tensor = room
    elif layout == "Fortran":
        room = torch.empty(cols, rows).to(dtype)
        tensor = room.T
    else:
        room = torch.full((2 * rows, 3 * cols + 1), 1).to(dtype)
        tensor = room[::2, 1::3]
    tensor[:] = values.to(dtype)
    return tensor, room


def content(tensor):
    dense = tensor.detach().clone(memory_format=torch.contiguous_format)
    return dense.view(torch.uint8).numpy().tobytes() if dense.numel() else b""


@pytest.mark.parametrize("layout", ["C", "Fortran", "gaps"])
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (3, 5), (64, 129)], ids=str)
@pytest.mark.parametrize(("dtype", "name"), CASES, ids=str)
def test_elements_in_logical_order(dtype, name, shape, layout):
    tensor, _ = laid(shape, dtype, layout)
    datatype = getattr(MPI, name)
    size = datatype.Pack_size(tensor.numel(), COMM)
    packed = torch.full((size + 7,), 0xAB, dtype=torch.uint8)
    position = datatype.Pack(tensor, packed, 3, COMM)
    end = 3 + tensor.numel() * tensor.element_size()
    assert position == end
    assert packed[3:end].numpy().tobytes() == content(tensor)
    assert packed[:3].tolist() == [0xAB] * 3
    assert packed[end:].tolist() == [0xAB] * (len(packed) - end)
    out, room = laid(shape, dtype, layout)
    before, version = room.clone(), out._version
    assert datatype.Unpack(packed, 3, out, COMM) == end
    assert content(out) == content(tensor)
    assert out._version > version
    if layout == "gaps":
        before[::2, 1::3] = out
        assert content(room) == content(before)


@pytest.mark.parametrize("layout", ["C", "Fortran", "gaps"])
def test_the_portable_form(layout):
    tensor, _ = laid((5, 7), torch.float32, layout)
    size = MPI.FLOAT.Pack_external_size("external32", 35)
    packed = bytearray(size)
    assert MPI.FLOAT.Pack_external("external32", tensor, packed, 0) == 140
    assert packed[:140] == np.ascontiguousarray(tensor.numpy(), ">f4").tobytes()
    out, _ = laid((5, 7), torch.float32, layout)
    assert MPI.FLOAT.Unpack_external("external32", packed, 0, out) == 140
    assert out.tolist() == tensor.tolist()


def test_what_is_packed_is_what_is_sent():
    tensor, _ = laid((4, 6), torch.int32, "Fortran")
    packed = np.zeros(96, np.uint8)
    assert MPI.INT32_T.Pack(tensor, packed, 0, COMM) == 96
    out, _ = laid((4, 6), torch.int32, "gaps")
    COMM.Sendrecv([packed, MPI.PACKED], 0, 0, out, 0, 0)
    assert out.tolist() == tensor.tolist()


def test_a_derived_type_reads_memory_as_it_lies():
    memory = torch.arange(12, dtype=torch.float64)
    every_third = MPI.DOUBLE.Create_vector(4, 1, 3).Commit()
    assert type(every_third) is type(MPI.DOUBLE)
    every_third = every_third.Create_resized(0, 96).Commit()
    packed = torch.zeros(4, dtype=torch.float64)
    assert every_third.Pack(memory, packed, 0, COMM) == 32
    assert packed.tolist() == [0, 3, 6, 9]
    transposed = memory.view(3, 4).T
    assert every_third.Pack(transposed, packed.zero_(), 0, COMM) == 32
    assert packed.tolist() == [0, 3, 6, 9]
    with pytest.raises(BufferError, match="inbuf"):
        every_third.Pack(torch.ones(24)[::2], packed, 0, COMM)


def test_what_does_not_fit_is_refused():
    four, room = torch.ones(4), torch.zeros(17, dtype=torch.uint8)
    for call, error, words in (
        (lambda: MPI.FLOAT.Pack(four, room, 2, COMM), ValueError, "outbuf: the 4 elements"),
        (lambda: MPI.FLOAT.Pack(four, room, -1, COMM), ValueError, "position: expected 0 or more"),
        (lambda: MPI.FLOAT.Unpack(room, 2, four, COMM), ValueError, "inbuf: the 4 elements"),
        (lambda: MPI.FLOAT.Pack_external("external32", four, room, 2), ValueError, "outbuf"),
        (lambda: MPI.FLOAT.Pack(four, room[::2], 0, COMM), BufferError, "outbuf"),
        (lambda: MPI.FLOAT.Unpack(room, 0, torch.ones(1).expand(4), COMM), BufferError, "outbuf"),
        (lambda: MPI.FLOAT.Pack("text", room, 0, COMM), TypeError, "inbuf"),
        (lambda: MPI.FLOAT.Pack(four.to("meta"), room, 0, COMM), BufferError, "meta"),
    ):
        with pytest.raises(error, match=words):
            call()
    assert room.tolist() == [0] * 17
    assert four.tolist() == [1] * 4
    with pytest.raises(MPI.Exception):
        MPI.DATATYPE_NULL.Pack(four, room, 0, COMM)


def test_the_constants_are_mpi4pys():
    for name in ("DOUBLE", "BYTE", "DATATYPE_NULL", "SHORT_INT", "F_INT"):
        ours, theirs = getattr(MPI, name), getattr(PLAIN, name)
        assert ours == theirs
        assert ours.handle == theirs.handle
        assert isinstance(theirs, MPI.Datatype)
        assert isinstance(ours, PLAIN.Datatype)
        assert pickle.loads(pickle.dumps(ours)) is ours
        ours.free()
        assert ours == theirs
    assert MPI.F_INT is MPI.INTEGER
    assert MPI.Datatype.fromcode("d") is MPI.DOUBLE
    pair = MPI.Datatype.Create_struct([1, 2], [0, 8], [MPI.INT, PLAIN.DOUBLE]).Commit()
    again = pickle.loads(pickle.dumps(pair))
    for one in (pair, again):
        base, combiner, parts = one.decode()
        assert combiner == "STRUCT"
        assert parts["displacements"] == [0, 8]
        for part in (base, one, *parts["datatypes"], *one.contents[3]):
            assert type(part) is MPI.Datatype
        one.Free()
    assert COMM.allreduce(MPI.DOUBLE.Get_size()) == 8


@pytest.mark.parametrize("owner", ["process", "communicator", "session"])
def test_attached_memory_is_held_and_comes_back(owner):
    owners = {"process": lambda: MPI, "communicator": lambda: COMM, "session": MPI.Session.Init}
    try:
        place = owners[owner]()
    except NotImplementedError:
        pytest.skip("this MPI has no sessions")
    memory = torch.zeros(1000 + MPI.BSEND_OVERHEAD, dtype=torch.bfloat16)
    alive, address = weakref.ref(memory), memory.data_ptr()
    try:
        place.Attach_buffer(memory)
    except NotImplementedError:
        pytest.skip("this MPI has no buffers of communicators and sessions (MPI 4.1)")
    del memory
    gc.collect()
    assert alive() is not None
    if owner != "session":
        out = torch.empty(9)
        COMM.Bsend(torch.arange(9.0), 0)
        COMM.Recv(out)
        assert out.tolist() == list(range(9))
    memory = place.Detach_buffer()
    assert memory is alive()
    assert memory.data_ptr() == address
    del memory
    gc.collect()
    assert alive() is None
    with pytest.raises(BufferError, match="gaps"):
        place.Attach_buffer(torch.zeros(1000)[::2])
    kept = bytearray(2000)
    place.Attach_buffer(buf=kept)
    assert place.Detach_buffer() is kept
    if owner == "session":
        place.Finalize()
