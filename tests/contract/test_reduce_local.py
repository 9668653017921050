"""`Op.Reduce_local` on tensors. Oracle: NumPy, in float64 or exact integers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from mpi4py import MPI as PLAIN

import dlmpi
from dlmpi import MPI

OPS = {
    "SUM": np.add,
    "PROD": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e5m2]
DTYPES += [torch.int8, torch.int64, torch.uint8]


def shaped(values, dtype, step):
    room = torch.full((len(values) * step,), 3).to(dtype)
    tensor = room[::step]
    tensor[:] = torch.from_numpy(values).to(dtype)
    return tensor, room


@pytest.mark.parametrize("n", [0, 1, 5000])
@pytest.mark.parametrize("steps", [(1, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_dtypes_and_layouts(op, dtype, steps, n):
    rng = np.random.default_rng()
    low = 0 if dtype == torch.uint8 else -2
    a, b = (rng.integers(low, 3, n) for _ in range(2))
    mine, _ = shaped(a, dtype, steps[0])
    out, room = shaped(b, dtype, steps[1])
    version = out._version
    getattr(MPI, op).Reduce_local(mine, out)
    assert out.to(torch.float64).tolist() == OPS[op](a, b).tolist()
    assert mine.to(torch.float64).tolist() == a.tolist()
    gaps = room.to(torch.float64).reshape(-1, steps[1])[:, 1:]
    assert bool((gaps == 3).all())
    assert out._version > version


def test_the_same_memory_and_parts():
    tensor = torch.arange(6, dtype=torch.bfloat16)
    MPI.SUM.Reduce_local(tensor, tensor)
    assert tensor.tolist() == [0, 2, 4, 6, 8, 10]
    MPI.SUM.Reduce_local([tensor, 2], [tensor, (2, 1)])
    assert tensor.tolist() == [0, 2, 6, 6, 8, 10]


def test_operations_of_the_callers():
    def most(inbuf, inoutbuf, datatype):
        a, b = (np.frombuffer(memory, dtype=np.float64) for memory in (inbuf, inoutbuf))
        b[:] = 10 * a + b

    op = MPI.Op.Create(most)
    mine, out = torch.arange(4.0, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    op.Reduce_local(mine, out)
    assert out.tolist() == [1, 11, 21, 31]
    with pytest.raises(ValueError, match="bfloat16"):
        op.Reduce_local(mine.to(torch.bfloat16), out.to(torch.bfloat16))
    op.Free()


def test_what_cannot_be_is_refused():
    tensor = torch.ones(4)
    for inbuf, inoutbuf, error, words in (
        (tensor, tensor.double(), ValueError, "float64"),
        (tensor, torch.ones(5), ValueError, "4 elements, expected 5"),
        (tensor.bool(), tensor.bool(), ValueError, "bool"),
        (tensor, torch.ones(1).expand(4), BufferError, "inoutbuf"),
        ([tensor, 5], [tensor, 5], ValueError, "inbuf"),
        (tensor, "text", TypeError, "inoutbuf"),
    ):
        with pytest.raises(error, match=words):
            MPI.SUM.Reduce_local(inbuf, inoutbuf)
    assert tensor.tolist() == [1] * 4


def test_the_constants_are_mpi4pys():
    for name in ("SUM", "MAX", "LAND", "OP_NULL", "REPLACE", "MAXLOC"):
        ours, theirs = getattr(MPI, name), getattr(PLAIN, name)
        assert ours == theirs
        assert ours.handle == theirs.handle
        assert isinstance(theirs, MPI.Op)
        assert isinstance(ours, PLAIN.Op)
        assert pickle.loads(pickle.dumps(ours)) is ours
        ours.free()
        assert ours == theirs
    assert MPI.SUM(2, 3) == 5
    assert MPI.COMM_WORLD.allreduce(2, MPI.MAX) == 2
    out = torch.zeros(3, dtype=torch.bfloat16)
    MPI.COMM_SELF.Allreduce(out + 2, out, MPI.MAX)
    assert out.tolist() == [2] * 3
    assert dlmpi.AVG not in (MPI.SUM, MPI.MAX)
