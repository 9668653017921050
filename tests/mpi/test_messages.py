"""Every form of a message that mpi4py takes, with tensors in the place of buffers: counts and
displacements are elements in C order. Oracle: NumPy slices of the elements."""

from __future__ import annotations

import numpy as np
import pytest

from dlmpi import MPI
from support.boxes import Box
from support.dtypes import BY_NAME, TABLE, random_bits
from support.layouts import BY_NAME as LAYOUT
from support.layouts import TABLE as LAYOUTS
from support.layouts import WRITABLE
from support.pairs import label, pairwise

pytestmark = pytest.mark.mpi
N = 35

# name: (message of (tensor, count, displacement, datatype), has a count, has a displacement)
FORMS = {
    "tensor": (lambda t, c, d, dt: t, False, False),
    "list of one count": (lambda t, c, d, dt: [t, c], True, False),
    "tuple of one count": (lambda t, c, d, dt: (t, c), True, False),
    "count and displacement": (lambda t, c, d, dt: [t, (c, d)], True, True),
    "count and displacement as a list": (lambda t, c, d, dt: [t, [c, d]], True, True),
    "datatype": (lambda t, c, d, dt: [t, dt], False, False),
    "count, datatype": (lambda t, c, d, dt: [t, c, dt], True, False),
    "pair, datatype": (lambda t, c, d, dt: [t, (c, d), dt], True, True),
    "all four": (lambda t, c, d, dt: [t, c, d, dt], True, True),
    "count from numpy": (lambda t, c, d, dt: [t, np.int64(c)], True, False),
    "no count, datatype": (lambda t, c, d, dt: [t, None, dt], False, False),
    "only a displacement": (lambda t, c, d, dt: [t, None, d, dt], False, True),
}


def typed(form):
    return "datatype" in form or form in ("all four", "only a displacement")


CASES = pairwise(
    {
        "form": tuple(FORMS),
        "dtype": TABLE,
        "send_in": ("numpy", "torch"),
        "send_as": LAYOUTS,
        "receive_in": ("numpy", "torch"),
        "receive_as": WRITABLE,
    },
    valid=lambda row: (
        all(
            row[f"{side}_in"] in row["dtype"].frameworks
            and row[f"{side}_in"] in row[f"{side}_as"].frameworks
            for side in ("send", "receive")
        )
        and (row["dtype"].mpi is not None or not typed(row["form"]))
    ),
)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_forms(comm, rng, case):
    """Both sides of a ring speak one form, with their own counts and displacements."""
    dtype = case["dtype"]
    make, counted, displaced = FORMS[case["form"]]
    datatype = getattr(MPI, dtype.mpi) if dtype.mpi else None
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    count = int(rng.integers(0, N // 2)) if counted else None
    first, put = (int(d) for d in rng.integers(0, N // 2, 2)) if displaced else (0, 0)
    boxes = []
    for _ in range(comm.size):
        box = Box(case["send_in"], dtype, case["send_as"], N, rng)
        boxes.append(box.fill(random_bits(dtype, N, rng)))
    # Without a count the receive side has room for all that its displacement leaves.
    out = Box(case["receive_in"], dtype, case["receive_as"], 2 * N, rng)
    comm.Sendrecv(
        make(boxes[comm.rank].tensor, count, first, datatype),
        to,
        recvbuf=make(out.tensor, count, put, datatype),
        source=source,
    )
    part = boxes[source].flat()[first:]
    out.expect(part if count is None else part[:count], start=put)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "uint8"])
@pytest.mark.parametrize("layout", WRITABLE, ids=str)
def test_blocks_of_part_of_a_tensor(comm, rng, name, layout):
    """A count in Allgather and Alltoall is one block's, and the rest is left alone."""
    dtype, size, n = BY_NAME[name], comm.size, 5
    framework = layout.frameworks[-1]
    sent = [
        Box(framework, dtype, layout, size * n + 4, rng).fill(random_bits(dtype, size * n + 4, rng))
        for _ in range(size)
    ]
    mine = sent[comm.rank].tensor
    out = Box(framework, dtype, layout, size * n + 9, rng)
    comm.Allgather([mine, (n, 2)], [out.tensor, (n, 3)])
    out.expect(np.concatenate([box.flat()[2 : 2 + n] for box in sent]), start=3)
    out = Box(framework, dtype, layout, size * n + 9, rng)
    comm.Alltoall([mine, n], [out.tensor, (n, 1)])
    r = comm.rank
    out.expect(np.concatenate([box.flat()[r * n : (r + 1) * n] for box in sent]), start=1)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8"])
def test_reductions_of_part_of_a_tensor(comm, rng, name):
    dtype, n = BY_NAME[name], 6
    ones = dtype.encode(np.ones(20))
    for layout in WRITABLE:
        source = Box(layout.frameworks[-1], dtype, layout, 20, rng).fill(ones)
        out = Box(layout.frameworks[-1], dtype, layout, 20, rng)
        comm.Allreduce([source.tensor, (n, 4)], [out.tensor, (n, 11)])
        out.expect(dtype.encode(np.full(n, float(comm.size))), start=11)


def test_a_derived_datatype_means_raw_memory(comm):
    """As in mpi4py: the caller describes memory, so the tensor's own order is not looked at."""
    column = MPI.DOUBLE.Create_vector(4, 1, 5).Commit()
    try:
        source = np.arange(20.0).reshape(4, 5) + 100 * comm.rank
        out = np.full(4, -1.0)
        to, fro = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        comm.Sendrecv([source, 1, column], to, recvbuf=out, source=fro)
        assert out.tolist() == (np.arange(0.0, 20.0, 5.0) + 100 * fro).tolist()
        back = np.full((4, 5), -1.0)
        comm.Sendrecv(out, to, recvbuf=[back, 1, column], source=fro)
        assert (back[:, 1:] == -1).all()
        assert (back[:, 0] != -1).all()
    finally:
        column.Free()


def test_a_reinterpreting_datatype_is_lawful_when_moving(comm):
    """mpi4py takes [complex128, MPI.DOUBLE] and bytes as doubles; so does the drop-in."""
    to, fro = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    source, out = np.array([1 + 2j, comm.rank + 4j]), np.zeros(4)
    comm.Sendrecv([source, MPI.DOUBLE], to, recvbuf=out, source=fro)
    assert out.tolist() == [1, 2, fro, 4]
    raw = bytearray(32)
    comm.Sendrecv(out, to, recvbuf=[raw, MPI.DOUBLE], source=fro)
    assert np.frombuffer(raw)[:2].tolist() == [1, 2]


@pytest.mark.parametrize(
    "tensor", [b"raw bytes", bytearray(b"raw bytes"), memoryview(b"raw bytes")]
)
def test_plain_buffers_are_tensors_too(comm, tensor):
    to, fro = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    out = bytearray(9)
    comm.Sendrecv(tensor, to, recvbuf=out, source=fro)
    assert bytes(out) == b"raw bytes"


def test_datatype_by_name(comm):
    to, fro = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    out = Box("torch", BY_NAME["float32"], LAYOUT["stepped"], 3, np.random.default_rng(1))
    comm.Sendrecv([np.ones(3, np.float32), "f"], to, recvbuf=[out.tensor, 3, "f"], source=fro)
    out.expect(np.ones(3, np.float32))
