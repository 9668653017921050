"""Calls that cannot be right: operations without a meaning for the dtype, sides that do not match,
counts out of bounds. Every rank gets a ValueError before MPI is entered."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dlmpi
from dlmpi import MPI
from support.agreement import still_works
from support.arithmetic import REFUSED
from support.boxes import Box
from support.dtypes import TABLE
from support.layouts import WRITABLE

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(("op", "kind"), REFUSED, ids=str)
def test_operations_without_a_meaning(comm, op, kind):
    """Refused on every rank in words that name the operation and the dtype; nothing is written."""
    given = dlmpi.AVG if op == "AVG" else getattr(MPI, op)
    for dtype in (row for row in TABLE if row.kind == kind):
        for framework in dtype.frameworks:
            source, out = (
                Box(framework, dtype, WRITABLE[0], 2 * comm.size, np.random.default_rng(i))
                for i in range(2)
            )
            source.fill(np.zeros(2 * comm.size, dtype.store))
            for method in ("Allreduce", "Reduce", "Reduce_scatter_block"):
                arguments = [source.tensor, out.tensor]
                if method == "Reduce_scatter_block":
                    arguments[1] = [out.tensor, 2]
                with pytest.raises(ValueError, match=f"(?i){op}") as raised:
                    getattr(comm, method)(*arguments, op=given)
                assert dtype.name in str(raised.value) or framework == "numpy"
            out.expect_untouched()
    still_works(comm)


def test_average_has_no_scan(comm):
    for method in (comm.Scan, comm.Exscan):
        with pytest.raises(ValueError, match="AVG"):
            method(np.ones(3), np.zeros(3), op=dlmpi.AVG)


@pytest.mark.parametrize("op", ["SUM", 3, None, 2.5, sum], ids=str)
def test_no_operation(comm, op):
    with pytest.raises(TypeError):
        comm.Allreduce(np.ones(3), np.zeros(3), op=op)


@pytest.mark.parametrize("method", ["Allreduce", "Scan", "Exscan"])
@pytest.mark.parametrize(
    ("send", "receive"),
    [
        (np.ones(4), np.ones(4, np.float32)),
        (np.ones(4), np.ones(4, np.int64)),
        (torch.ones(4, dtype=torch.bfloat16), np.ones(4, np.float16)),
        (np.ones(4, np.int64), np.ones(4, np.uint64)),
        (np.ones(4), np.ones(5)),
        (np.ones(5), torch.ones(4).double()),
        ([np.ones(4), 3], np.ones(4)),
    ],
    ids=lambda t: f"{getattr(t, 'dtype', 'spec')}{len(t)}",
)
def test_both_sides_of_a_reduction_must_match(comm, method, send, receive):
    with pytest.raises(ValueError, match=r"."):
        getattr(comm, method)(send, receive)
    still_works(comm)


def test_a_reduction_is_never_of_another_type_than_its_tensor(comm):
    for message in ([np.ones(4), MPI.FLOAT], [torch.ones(4), MPI.INT], [np.ones(4), MPI.BYTE]):
        with pytest.raises(ValueError, match=r"."):
            comm.Allreduce(message, np.ones(4))
        with pytest.raises(ValueError, match=r"."):
            comm.Allreduce(MPI.IN_PLACE, message)
    sixteen = torch.ones(4, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"."):
        comm.Allreduce(MPI.IN_PLACE, [sixteen, "e"])
    still_works(comm)


def test_totals_that_do_not_divide(comm):
    if comm.size == 1:
        pytest.skip("every total is a multiple of one rank")
    odd = np.zeros(2 * comm.size + 1)
    with pytest.raises(ValueError, match=r"."):
        comm.Allgather(np.zeros(2), odd)
    with pytest.raises(ValueError, match=r"."):
        comm.Alltoall(odd, np.zeros(2 * comm.size))
    with pytest.raises(ValueError, match=r"."):
        comm.Reduce_scatter_block(odd, np.zeros(2))
    still_works(comm)


@pytest.mark.parametrize(
    "counts",
    [
        lambda p: [9] * p,
        lambda p: [1] * (p + 1),
        lambda p: [1] * (p - 1),
        lambda p: [-1] + [1] * (p - 1),
        lambda p: ([1] * p, [9] * p),
        lambda p: ([1] * p, [-1] * p),
        lambda p: ([1] * p, [0] * (p + 1)),
        lambda p: ([2**62] * p, [2**62] * p),
        lambda p: [1.5] * p,
    ],
    ids=["too many", "long", "short", "negative", "far", "before", "displs", "huge", "fractions"],
)
def test_counts_of_vectors(comm, counts):
    bad = [np.zeros(8), counts(comm.size)]
    with pytest.raises((ValueError, TypeError)):
        comm.Allgatherv(np.zeros(1), bad)
    with pytest.raises((ValueError, TypeError)):
        comm.Alltoallv(bad, [np.zeros(comm.size), [1] * comm.size])
    with pytest.raises((ValueError, TypeError)):
        comm.Scatterv(bad, np.zeros(1), root=comm.rank)
    still_works(comm)


def test_blocks_of_a_receive_may_not_overlap(comm):
    """Two ranks' data in one place has no right answer; MPI calls it erroneous."""
    if comm.size == 1:
        pytest.skip("one block cannot overlap another")
    with pytest.raises((ValueError, BufferError)):
        comm.Allgatherv(np.zeros(2), [np.zeros(8), ([2] * comm.size, [0] * comm.size)])
    still_works(comm)


@pytest.mark.parametrize("tensor", [np.arange(6.0), torch.arange(6.0)], ids=["numpy", "torch"])
def test_one_tensor_on_both_sides_of_a_reduction(comm, tensor):
    """Right as if IN_PLACE, or an error: MPI forbids aliases, and some libraries do not look."""
    before = [float(v) for v in tensor]
    try:
        comm.Allreduce(tensor, tensor)
    except (ValueError, MPI.Exception):
        assert tensor.tolist() == before
    else:
        assert tensor.tolist() == [comm.size * v for v in before]
