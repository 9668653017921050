"""Every method of a torch process group, by every name and in every shape that its bindings take:
hooks of users call them directly. Once on a group of dlmpi alone, whose methods Python calls, and
once on one with a second backend beside it, whose methods torch calls from C++ by its own names."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from support.process_groups import RANK, SIZE, start

pytestmark = pytest.mark.mpi
SUM = dist.ReduceOp.SUM
MINUTE = timedelta(seconds=60)
ALL, LAST = range(SIZE), SIZE - 1
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE


@pytest.fixture(scope="module")
def groups():
    start()
    beside = dist.new_group(backend="cpu:dlmpi,cuda:gloo")
    yield {"alone": dist.group.WORLD, "beside another": beside}
    dist.barrier()  # a gloo group that ends while others still connect fails there
    dist.destroy_process_group(beside)


@pytest.fixture(params=["alone", "beside another"])
def group(request, groups):
    return groups[request.param]


def mine(rank=RANK, n=3):
    """Whole numbers that tell whose they are."""
    return torch.arange(n, dtype=torch.float64) + 10.0 * (rank + 1)


def room(*shape):
    return torch.full(shape, torch.nan, dtype=torch.float64)


TOTAL = sum(mine(rank) for rank in ALL)
STACK = torch.stack([mine(rank) for rank in ALL])


def options(kind, **fields):
    made = getattr(c10d, kind)()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def same(got, want):
    got, want = [[x] if isinstance(x, torch.Tensor) else list(x) for x in (got, want)]
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        assert one.tolist() == other.tolist()


#: Calls that leave the sum of all ranks in `x`.
REDUCTIONS = {
    "list, options": lambda g, x: g.allreduce([x], c10d.AllreduceOptions()),
    "list": lambda g, x: g.allreduce([x]),
    "list, op": lambda g, x: g.allreduce([x], SUM),
    "list, op, timeout": lambda g, x: g.allreduce([x], SUM, MINUTE),
    "tensor": lambda g, x: g.allreduce(x),
    "tensor, op": lambda g, x: g.allreduce(x, SUM),
    "keywords": lambda g, x: g.allreduce([x], op=SUM, timeout=MINUTE),
    "tensors=": lambda g, x: g.allreduce(tensors=[x], opts=c10d.AllreduceOptions()),
    "tensor=": lambda g, x: g.allreduce(tensor=x, op=SUM, timeout=MINUTE),
    "coalesced, tensors=": lambda g, x: g.allreduce_coalesced(tensors=[x]),
    "coalesced": lambda g, x: g.allreduce_coalesced([x]),
    "coalesced, options": lambda g, x: g.allreduce_coalesced([x], c10d.AllreduceCoalescedOptions()),
}
#: The same on the last rank alone.
ROOTED = {
    "list, options": lambda g, x: g.reduce([x], options("ReduceOptions", rootRank=LAST)),
    "tensor, root": lambda g, x: g.reduce(x, LAST),
    "tensor, root, op, timeout": lambda g, x: g.reduce(x, LAST, SUM, MINUTE),
    "keywords": lambda g, x: g.reduce(x, root=LAST, op=SUM, timeout=MINUTE),
    "tensor=": lambda g, x: g.reduce(tensor=x, root=LAST),
    "tensors=": lambda g, x: g.reduce(tensors=[x], opts=options("ReduceOptions", rootRank=LAST)),
}
#: Calls that leave the last rank's values in `x`.
BROADCASTS = {
    "list, options": lambda g, x: g.broadcast([x], options("BroadcastOptions", rootRank=LAST)),
    "tensor, root": lambda g, x: g.broadcast(x, LAST),
    "tensor, root, timeout": lambda g, x: g.broadcast(x, LAST, MINUTE),
    "keywords": lambda g, x: g.broadcast(x, root=LAST, timeout=MINUTE),
    "tensor=": lambda g, x: g.broadcast(tensor=x, root=LAST),
    "tensors=": lambda g, x: g.broadcast(
        tensors=[x], opts=options("BroadcastOptions", rootRank=LAST)
    ),
}
#: Calls that leave all ranks' values in a list or in one tensor.
GATHERS = {
    "lists, options": lambda g, out, x: g.allgather([list(out)], [x], c10d.AllgatherOptions()),
    "list, tensor": lambda g, out, x: g.allgather(list(out), x),
    "list, tensor, timeout": lambda g, out, x: g.allgather(list(out), x, MINUTE),
    "by rank": lambda g, out, x: g.allgather_coalesced([[row] for row in out], [x]),
    "all_gather_single": lambda g, out, x: g.all_gather_single(out, x),
    "all_gather_single, options": lambda g, out, x: g.all_gather_single(
        out, x, c10d.AllgatherOptions()
    ),
    "_allgather_base": lambda g, out, x: g._allgather_base(out, x),
    "all_gather_single_coalesced": lambda g, out, x: g.all_gather_single_coalesced([out], [x]),
    "allgather_into_tensor_coalesced": lambda g, out, x: g.allgather_into_tensor_coalesced(
        [out], [x]
    ),
    "output_tensors=, input_tensors=": lambda g, out, x: g.allgather(
        output_tensors=[list(out)], input_tensors=[x]
    ),
    "output_tensors=, input_tensor=": lambda g, out, x: g.allgather(
        output_tensors=list(out), input_tensor=x, timeout=MINUTE
    ),
    "output_lists=, input_list=": lambda g, out, x: g.allgather_coalesced(
        output_lists=[[row] for row in out], input_list=[x]
    ),
    "output=, input=": lambda g, out, x: g.all_gather_single(output=out, input=x),
    "_allgather_base, output=, input=": lambda g, out, x: g._allgather_base(output=out, input=x),
    "outputs=, inputs=": lambda g, out, x: g.all_gather_single_coalesced(outputs=[out], inputs=[x]),
    "allgather_into_tensor_coalesced, outputs=": lambda g, out, x: (
        g.allgather_into_tensor_coalesced(outputs=[out], inputs=[x])
    ),
}
#: The same on the last rank alone. Others give an empty list, or their own tensor for the room.
ROOTED_GATHERS = {
    "lists, options": lambda g, out, x: g.gather(
        [list(out)] if RANK == LAST else [], [x], options("GatherOptions", rootRank=LAST)
    ),
    "list, tensor, root": lambda g, out, x: g.gather(list(out) if RANK == LAST else [], x, LAST),
    "list, tensor, root, timeout": lambda g, out, x: g.gather(
        list(out) if RANK == LAST else [], x, LAST, MINUTE
    ),
    "gather_single": lambda g, out, x: g.gather_single(
        out, x, options("GatherOptions", rootRank=LAST)
    ),
    "gather_into_tensor": lambda g, out, x: g.gather_into_tensor(
        out, x, options("GatherOptions", rootRank=LAST)
    ),
    "output_tensors=, input_tensor=": lambda g, out, x: g.gather(
        output_tensors=list(out) if RANK == LAST else [], input_tensor=x, root=LAST
    ),
    "output_tensors=, input_tensors=": lambda g, out, x: g.gather(
        output_tensors=[list(out)] if RANK == LAST else [],
        input_tensors=[x],
        opts=options("GatherOptions", rootRank=LAST),
    ),
}
NOT_FORWARDED = ("gather_single", "gather_into_tensor")
#: Calls that leave in `x` the last rank's row for this rank.
SCATTERS = {
    "lists, options": lambda g, x, rows: g.scatter(
        [x], [rows] if RANK == LAST else [], options("ScatterOptions", rootRank=LAST)
    ),
    "tensor, list, root": lambda g, x, rows: g.scatter(x, rows if RANK == LAST else [], LAST),
    "tensor, list, root, timeout": lambda g, x, rows: g.scatter(
        x, rows if RANK == LAST else [], LAST, MINUTE
    ),
    "output_tensor=, input_tensors=": lambda g, x, rows: g.scatter(
        output_tensor=x, input_tensors=rows if RANK == LAST else [], root=LAST
    ),
    "output_tensors=, input_tensors=": lambda g, x, rows: g.scatter(
        output_tensors=[x],
        input_tensors=[rows] if RANK == LAST else [],
        opts=options("ScatterOptions", rootRank=LAST),
    ),
}
#: Calls that leave in `x` the sum of all ranks' rows for this rank.
SCATTERED_SUMS = {
    "lists, options": lambda g, x, rows: g.reduce_scatter(
        [x], [list(rows)], c10d.ReduceScatterOptions()
    ),
    "tensor, list": lambda g, x, rows: g.reduce_scatter(x, list(rows)),
    "tensor, list, op, timeout": lambda g, x, rows: g.reduce_scatter(x, list(rows), SUM, MINUTE),
    "reduce_scatter_single": lambda g, x, rows: g.reduce_scatter_single(x, rows),
    "_reduce_scatter_base": lambda g, x, rows: g._reduce_scatter_base(
        x, rows, c10d.ReduceScatterOptions()
    ),
    "reduce_scatter_single_coalesced": lambda g, x, rows: g.reduce_scatter_single_coalesced(
        [x], [rows]
    ),
    "reduce_scatter_tensor_coalesced": lambda g, x, rows: g.reduce_scatter_tensor_coalesced(
        [x], [rows], c10d.ReduceScatterOptions()
    ),
    "output_tensors=, input_tensors=": lambda g, x, rows: g.reduce_scatter(
        output_tensors=[x], input_tensors=[list(rows)]
    ),
    "output=, input=": lambda g, x, rows: g.reduce_scatter(output=x, input=list(rows), op=SUM),
    "outputTensor=, inputTensor=": lambda g, x, rows: g.reduce_scatter_single(
        outputTensor=x, inputTensor=rows
    ),
    "_reduce_scatter_base, outputTensor=": lambda g, x, rows: g._reduce_scatter_base(
        outputTensor=x, inputTensor=rows
    ),
    "outputs=, inputs=": lambda g, x, rows: g.reduce_scatter_single_coalesced(
        outputs=[x], inputs=[rows]
    ),
    "reduce_scatter_tensor_coalesced, outputs=": lambda g, x, rows: (
        g.reduce_scatter_tensor_coalesced(outputs=[x], inputs=[rows])
    ),
}
#: Calls that leave in the rows of `out` all ranks' rows for this rank.
EXCHANGES = {
    "lists": lambda g, out, rows: g.alltoall(list(out), list(rows)),
    "lists, options": lambda g, out, rows: g.alltoall(
        list(out), list(rows), c10d.AllToAllOptions()
    ),
    "all_to_all_single": lambda g, out, rows: g.all_to_all_single(out, rows, [], []),
    "all_to_all_single, timeout": lambda g, out, rows: g.all_to_all_single(
        out, rows, [1] * SIZE, [1] * SIZE, timeout=MINUTE
    ),
    "alltoall_base": lambda g, out, rows: g.alltoall_base(
        out, rows, [], [], c10d.AllToAllOptions()
    ),
    "output_tensors=, input_tensors=": lambda g, out, rows: g.alltoall(
        output_tensors=list(out), input_tensors=list(rows)
    ),
    "output=, input=": lambda g, out, rows: g.all_to_all_single(
        output=out, input=rows, output_split_sizes=[], input_split_sizes=[]
    ),
    "alltoall_base, output=, input=": lambda g, out, rows: g.alltoall_base(
        output=out, input=rows, output_split_sizes=[1] * SIZE, input_split_sizes=[1] * SIZE
    ),
}
BARRIERS = {
    "nothing": lambda g: g.barrier(),
    "options": lambda g: g.barrier(c10d.BarrierOptions()),
    "timeout": lambda g: g.barrier(MINUTE),
    "keyword": lambda g: g.barrier(timeout=MINUTE),
}


@pytest.mark.parametrize("shape", REDUCTIONS)
def test_allreduce(group, shape):
    x = mine()
    assert REDUCTIONS[shape](group, x).wait()
    same(x, TOTAL)


@pytest.mark.parametrize("shape", ROOTED)
def test_reduce(group, shape):
    x = mine()
    assert ROOTED[shape](group, x).wait()
    same(x, TOTAL if RANK == LAST else mine())


@pytest.mark.parametrize("shape", BROADCASTS)
def test_broadcast(group, shape):
    x = mine()
    assert BROADCASTS[shape](group, x).wait()
    same(x, mine(LAST))


@pytest.mark.parametrize("shape", GATHERS)
def test_allgather(group, shape):
    out = room(SIZE, 3)
    assert GATHERS[shape](group, out, mine()).wait()
    same(out, STACK)


@pytest.mark.parametrize("shape", ROOTED_GATHERS)
def test_gather(request, group, shape):
    if shape in NOT_FORWARDED and "beside another" in request.node.name:
        pytest.skip("torch 2.15 does not hand this call on to backends in Python")
    out = room(SIZE, 3)
    assert ROOTED_GATHERS[shape](group, out, mine()).wait()
    assert torch.equal(out, STACK) if RANK == LAST else out.isnan().all()


@pytest.mark.parametrize("shape", SCATTERS)
def test_scatter(group, shape):
    x = room(3)
    assert SCATTERS[shape](group, x, list(STACK)).wait()
    same(x, mine())


@pytest.mark.parametrize("shape", SCATTERED_SUMS)
def test_reduce_scatter(group, shape):
    x = room(3)
    assert SCATTERED_SUMS[shape](group, x, STACK * (RANK + 1)).wait()
    same(x, mine() * (SIZE * (SIZE + 1) / 2))


@pytest.mark.parametrize("shape", EXCHANGES)
def test_alltoall(group, shape):
    out = room(SIZE, 3)
    assert EXCHANGES[shape](group, out, STACK + 1000 * RANK).wait()
    same(out, torch.stack([mine() + 1000 * rank for rank in ALL]))


@pytest.mark.parametrize("shape", BARRIERS)
def test_barrier(group, shape):
    assert BARRIERS[shape](group).wait()


def test_messages(group):
    """By tag, out of order, and from anybody."""
    tagged, anyone = room(3), room(3)
    works = [
        group.send([mine(n=3) + 5], RIGHT, 5),
        group.send(tensors=[mine(n=3) + 7], dstRank=RIGHT, tag=7),
        group.recv(tensors=[tagged], srcRank=LEFT, tag=7),
        group.recv_anysource([anyone], 5),
    ]
    for work in works:
        work.wait()
    same([tagged, anyone], [mine(LEFT) + 7, mine(LEFT) + 5])


def test_arguments_that_are_none_or_given_twice_are_refused(groups):
    alone = groups["alone"]
    for call in (
        lambda x: alone.allreduce([x], tensor=x),
        lambda x: alone.allreduce(op=SUM),
        lambda x: alone.allreduce([x, None]),
        lambda x: alone.broadcast(tensors=[x], tensor=x, root=0),
        lambda x: alone.all_gather_single(room(SIZE), x, input=x),
    ):
        with pytest.raises(TypeError):
            call(mine(n=1))


def test_a_timeout_in_the_place_of_options_counts(groups):
    """Nothing of it is lost on the way to what waits."""
    alone = groups["alone"]
    x, out = mine(), room(SIZE, 3)
    works = [
        alone.barrier(MINUTE),
        alone.broadcast(x, 0, MINUTE),
        alone.allgather(list(out), x, MINUTE),
        alone.gather(list(out) if RANK == 0 else [], x, 0, MINUTE),
        alone.scatter(x, list(STACK) if RANK == 0 else [], 0, MINUTE),
        alone.alltoall_base(out, STACK, [], [], timeout=MINUTE),
        alone.barrier(),
    ]
    for work in works:
        work.wait()
    assert [work.limit for work in works] == [60.0] * 6 + [alone._core.timeout]


def test_what_is_asked_about_a_group(group):
    assert (group.rank(), group.size()) == (RANK, SIZE)
    assert group.group_name
    backend = group._get_backend(torch.device("cpu"))
    assert backend.name() == "dlmpi"
    before = backend._get_sequence_number_for_group()
    group.barrier().wait()
    assert backend._get_sequence_number_for_group() == before + 1
    asked = ("supports_splitting", "supports_coalescing", "supports_shrinking", "supports_window")
    assert [getattr(backend, name) for name in asked] == [True, False, False, False]
    assert backend.options._timeout == timedelta(minutes=30)
    group.monitored_barrier(MINUTE)
    group.monitored_barrier(timeout=MINUTE, wait_all_ranks=True)
