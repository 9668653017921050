"""Non-blocking collectives: right values, mixed completion, and the orders that a queue of blocking
calls would deadlock in."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

import dlmpi
from dlmpi import MPI
from support.arithmetic import exact, expected, has_meaning
from support.boxes import Box
from support.collectives import MOVES, REDUCTIONS
from support.dtypes import TABLE, random_bits
from support.immediate import Immediate
from support.layouts import TABLE as LAYOUTS
from support.layouts import WRITABLE
from support.pairs import label, pairwise
from support.ranks import spread

pytestmark = pytest.mark.mpi

FRAMEWORKS = ("numpy", "torch")


def fits(row):
    return all(
        row["framework"] in row["dtype"].frameworks and row["framework"] in row[layout].frameworks
        for layout in ("send_as", "receive_as")
    )


DRAWN = {
    "dtype": TABLE,
    "framework": FRAMEWORKS,
    "send_as": LAYOUTS,
    "receive_as": WRITABLE,
    "n": (0, 1, 35, 3003),
}


@pytest.mark.parametrize("case", pairwise({"move": MOVES} | DRAWN, valid=fits), ids=label)
def test_moves(comm, rng, case):
    move, dtype, n = case["move"], case["dtype"], case["n"]
    rank, size, root = comm.rank, comm.size, int(rng.integers(comm.size))
    sent, mine = [], None
    for r in range(size):
        framework, layout = spread(dtype, LAYOUTS, case["framework"], case["send_as"], r)
        box = Box(framework, dtype, layout, move.gives(r, size, root) * n, rng)
        box.fill(random_bits(dtype, move.gives(r, size, root) * n, rng))
        sent.append(box.flat())
        mine = box if r == rank else mine
    give, get = move.gives(rank, size, root), move.gets(rank, size, root)
    framework, layout = spread(dtype, WRITABLE, case["framework"], case["receive_as"], rank)
    out = Box(framework, dtype, layout, get * n, rng)
    started = Immediate(comm)

    move.call(started, mine.tensor if give else None, out.tensor if get else None, root)
    MPI.Request.Waitall(started.requests)

    assert all(request == MPI.REQUEST_NULL for request in started.requests)
    if get:
        out.expect(move.want(sent, rank, size, root, n))


REDUCIBLE = [dtype for dtype in TABLE if has_meaning("SUM", dtype)]


@pytest.mark.parametrize(
    "case",
    pairwise({"reduction": REDUCTIONS} | DRAWN | {"dtype": REDUCIBLE}, valid=fits),
    ids=label,
)
def test_reduces(comm, rng, case):
    reduction, dtype, n = case["reduction"], case["dtype"], case["n"]
    rank, size, root = comm.rank, comm.size, int(rng.integers(comm.size))
    total = reduction.gives(size) * n
    sent, mine = [], None
    for r in range(size):
        framework, layout = spread(dtype, LAYOUTS, case["framework"], case["send_as"], r)
        box = Box(framework, dtype, layout, total, rng).fill(exact(dtype, "SUM", total, rng))
        sent.append(box.flat())
        mine = box if r == rank else mine
    framework, layout = spread(dtype, WRITABLE, case["framework"], case["receive_as"], rank)
    out = Box(framework, dtype, layout, n, rng)
    started = Immediate(comm)

    reduction.call(started, mine.tensor, out.tensor, MPI.SUM, root)
    for request in started.requests:
        request.Wait()

    over = reduction.over(rank, size, root)
    if over:
        part = reduction.part(rank, n)
        out.expect(expected(dtype, "SUM", [sent[i][part] for i in over]))
    else:
        out.expect_untouched()


def test_vector_forms(comm, rng):
    rank, size = comm.rank, comm.size
    counts = [3 * r + 1 for r in range(size)]
    displs = [sum(counts[:r]) + r for r in range(size)]  # one element between blocks stays
    sent = [rng.standard_normal(count) for count in counts]
    out = np.full(sum(counts) + size, -1.0)
    comm.Iallgatherv(sent[rank], [out, counts, displs]).Wait()
    want = np.full_like(out, -1.0)
    for r in range(size):
        want[displs[r] : displs[r] + counts[r]] = sent[r]
    assert np.array_equal(out, want)

    blocks = torch.full((size, 2), float(rank), dtype=torch.bfloat16)
    got = torch.empty(2, size, dtype=torch.bfloat16).t()
    comm.Ialltoallv([blocks, [2] * size], [got, [2] * size]).Wait()
    assert torch.equal(
        got, torch.arange(size, dtype=torch.bfloat16).repeat_interleave(2).view(size, 2)
    )


def test_temporaries_are_held(comm):
    """mpi4py drops the buffers of seven of these methods at once."""
    size = comm.size
    outs = [np.empty(50_000) for _ in range(8)]
    requests = [
        comm.Iallreduce(np.full(50_000, float(comm.rank + i)), out) for i, out in enumerate(outs)
    ]
    gc.collect()
    junk = [np.full(50_000, -7.0) for _ in range(16)]  # would land in freed memory
    MPI.Request.Waitall(requests)
    assert len(junk) == 16
    for i, out in enumerate(outs):
        assert np.all(out == sum(range(size)) + i * size)


def test_stock_completion_calls_mix_them_with_other_requests(comm, rng):
    rank, size = comm.rank, comm.size
    halves = torch.full((9,), 1.5, dtype=torch.float16)
    got, message = np.empty(3), np.arange(3.0) + rank
    started = [
        comm.Iallreduce(MPI.IN_PLACE, halves),
        comm.Irecv(got, (rank - 1) % size, 5),
        comm.Isend(message, (rank + 1) % size, 5),
        comm.Ibarrier(),
    ]
    done = set()
    while len(done) < len(started):
        done.add(MPI.Request.Waitany(started))
    assert all(request == MPI.REQUEST_NULL for request in started)
    assert torch.all(halves == 1.5 * size)
    assert np.array_equal(got, np.arange(3.0) + (rank - 1) % size)


def test_the_version_counter_counts_the_write(comm):
    out = torch.zeros(4)
    before = out._version
    comm.Iallreduce(torch.ones(4), out).Wait()
    assert out._version > before


@pytest.mark.parametrize("turn", range(3))
def test_three_groups_in_rotated_orders(comm, turn):
    """Each rank starts its two groups in another order; a queue of blocking calls would hang."""
    if comm.size < 3:
        pytest.skip("three groups of two need three ranks")
    pairs = [(0, 1), (1, 2), (2, 0)]
    groups = [comm.Split(0 if comm.rank in pair else MPI.UNDEFINED) for pair in pairs]
    mine = [(g, p) for g, p in zip(groups, pairs, strict=True) if g != MPI.COMM_NULL]
    if (comm.rank + turn) % 2:
        mine.reverse()
    outs = [(torch.full((17,), float(comm.rank + 1), dtype=torch.bfloat16), p) for _, p in mine]
    requests = [
        g.Iallreduce(MPI.IN_PLACE, out) for (g, _), (out, _) in zip(mine, outs, strict=True)
    ]
    for request in reversed(requests):
        request.Wait()
    for out, (a, b) in outs:
        assert torch.all(out == a + b + 2)
    for group, _ in mine:
        group.Free()


def test_many_on_one_communicator_never_cross_match(comm, rng):
    dup = comm.Dup()
    order = rng.permutation(60)
    outs = []
    requests = []
    for i in range(60):
        out = np.full(7, float(comm.rank * 1000 + i))
        outs.append(out)
        requests.append(dup.Iallreduce(MPI.IN_PLACE, out, op=MPI.MAX))
        if i % 7 == 0:  # blocking ones in between
            between = np.array([float(i)])
            dup.Allreduce(MPI.IN_PLACE, between)
            assert between[0] == i * comm.size
    for i in order:
        requests[i].Wait()
    for i, out in enumerate(outs):
        assert np.all(out == (comm.size - 1) * 1000 + i)
    dup.Free()


@pytest.mark.parametrize("turn", range(20))
def test_a_communicator_may_be_freed_with_operations_under_way(comm, turn):
    """The libraries delete its attributes at once, or inside a call that completes an operation."""
    dup = comm.Dup()
    outs = [np.full(1000, 1.0) for _ in range(turn % 6)]
    requests = [dup.Iallreduce(MPI.IN_PLACE, out) for out in outs]
    dup.Free()
    MPI.Request.Waitall(requests)
    assert all(np.all(out == comm.size) for out in outs)


def test_bad_input_is_refused_before_anything_starts(comm):
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(BufferError):
        comm.Iallreduce(np.ones(3), frozen)
    with pytest.raises(ValueError, match="AVG"):
        comm.Iallreduce(np.ones(3, int), np.ones(3, int), op=dlmpi.AVG)
    out = np.zeros(3)
    comm.Iallreduce(np.ones(3), out).Wait()
    assert np.all(out == comm.size)


def test_reduce_scatter_asks_the_ranks_for_their_counts(comm):
    """As in mpi4py: without counts, each rank gets as many elements as it has room for."""
    total = sum(range(1, comm.size + 1))
    out = np.zeros(comm.rank + 1, np.int64)
    request = comm.Ireduce_scatter(np.arange(total), out)
    request.Wait()
    first = sum(range(1, comm.rank + 1))
    assert out.tolist() == [comm.size * (first + i) for i in range(comm.rank + 1)]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64])
def test_user_operations_are_shown_the_type_that_mpi4py_shows(comm, dtype):
    """The names of C, as in mpi4py, so that operations written for it find theirs."""
    shown = []

    def larger(a, b, datatype):
        shown.append(datatype.name)
        b = np.frombuffer(b, dtype)
        np.maximum(np.frombuffer(a, dtype), b, out=b)

    operation = MPI.Op.Create(larger, commute=True)
    out = np.zeros(3, dtype)
    try:
        operation.Reduce_local(np.ones(3, dtype), np.zeros(3, dtype))
        expected = set(shown)
        shown.clear()
        comm.Allreduce(np.full(3, comm.rank + 1, dtype), out, op=operation)
    finally:
        operation.Free()
    assert out.tolist() == [comm.size] * 3
    assert set(shown) <= expected
