"""A process group of the backend: blocks of every size in the calls that take lists, and what is
built on groups here (autograd, helpers, the compression hook)."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import dlmpi.torch
from dlmpi import MPI
from dlmpi.torch import average_gradients, broadcast_module, hooks, nn
from support.process_groups import start

pytestmark = pytest.mark.mpi
RANK, SIZE = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
#: Elements of float64 in a block that travels as a message of its own.
LARGE = 1 << 15


@pytest.fixture(scope="module", autouse=True)
def group():
    start()


def length(case, source, dest):
    """How many elements go where: all small, all large, or some of each and none at all."""
    if case == "mixed":
        return (0, 7, LARGE + 3, 1)[(source + 2 * dest) % 4]
    return LARGE if case == "large" else 5


def block(case, source, dest, transposed=False):
    """Whole numbers that tell where they come from and go to."""
    n = length(case, source, dest)
    return torch.arange(n, dtype=torch.float64) + 1e6 * source + 1e8 * dest


def poisoned(like):
    """A row of a wider tensor, so that what must not be written lies beside it."""
    return torch.full((len(like), 2), torch.nan, dtype=like.dtype)[:, 0]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("case", ["small", "large", "mixed"])
class TestLists:
    def end(self, work):
        if work is not None:
            work.wait()

    def test_all_to_all(self, case, asynchronous):
        want = [block(case, source, RANK) for source in range(SIZE)]
        gets = [poisoned(one) for one in want]
        gives = [block(case, RANK, dest) for dest in range(SIZE)]
        self.end(dist.all_to_all(gets, gives, async_op=asynchronous))
        assert all(map(torch.equal, gets, want))

    def test_all_to_all_single(self, case, asynchronous):
        want = [block(case, source, RANK) for source in range(SIZE)]
        gives = [block(case, RANK, dest) for dest in range(SIZE)]
        room = torch.full((sum(map(len, want)), 3), torch.nan, dtype=torch.float64)
        work = dist.all_to_all_single(
            room,
            # Rows that are not contiguous.
            torch.cat(gives).expand(3, -1).T,
            list(map(len, want)),
            list(map(len, gives)),
            async_op=asynchronous,
        )
        self.end(work)
        assert torch.equal(room, torch.cat(want).expand(3, -1).T)

    def test_all_gather(self, case, asynchronous):
        want = [block(case, source, 0) for source in range(SIZE)]
        gets = [poisoned(one) for one in want]
        self.end(dist.all_gather(gets, block(case, RANK, 0), async_op=asynchronous))
        assert all(map(torch.equal, gets, want))

    def test_gather_and_scatter(self, case, asynchronous):
        root = SIZE - 1
        every = [block(case, source, root) for source in range(SIZE)]
        gets = [poisoned(one) for one in every] if root == RANK else None
        self.end(dist.gather(every[RANK], gets, root, async_op=asynchronous))
        if root == RANK:
            assert all(map(torch.equal, gets, every))
        room = poisoned(every[RANK])
        gives = every if root == RANK else None
        self.end(dist.scatter(room, gives, root, async_op=asynchronous))
        assert torch.equal(room, every[RANK])

    @pytest.mark.parametrize("op", ["SUM", "MAX", "AVG"])
    def test_reduce_scatter(self, case, asynchronous, op):
        parts = [block(case, 0, dest) + RANK for dest in range(SIZE)]
        sum_of_ranks = sum(range(SIZE))
        mine = block(case, 0, RANK)
        want = {
            "SUM": mine * SIZE + sum_of_ranks,
            "MAX": mine + SIZE - 1,
            "AVG": mine + sum_of_ranks / SIZE,
        }[op]
        room = poisoned(mine)
        operation = getattr(dist.ReduceOp, op)
        self.end(dist.reduce_scatter(room, parts, operation, async_op=asynchronous))
        # Whole numbers below 2**53: the mean alone is rounded.
        torch.testing.assert_close(room, want, rtol=1e-15 if op == "AVG" else 0, atol=0)


def test_rows_of_one_tensor_large_and_small():
    """Rows for some ranks travel as messages of their own, those for others with the collective."""

    def rows(source, dest):
        n = (4 << 20) // 8 if (source + dest) % 2 else 3
        return torch.arange(n, dtype=torch.float64) + 1e7 * source + 1e9 * dest

    gives = [rows(RANK, dest) for dest in range(SIZE)]
    want = [rows(source, RANK) for source in range(SIZE)]
    out = torch.full((sum(map(len, want)),), torch.nan, dtype=torch.float64)
    splits = list(map(len, want)), list(map(len, gives))
    dist.all_to_all_single(out, torch.cat(gives), *splits)
    assert torch.equal(out, torch.cat(want))


def test_large_blocks_under_way_beside_messages_of_the_user():
    """Messages of collectives never meet those of `send` and `recv`, whatever their order."""
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    got = torch.full((LARGE,), torch.nan, dtype=torch.float64)
    receiving = dist.irecv(got, left) if SIZE > 1 else None
    rooms = [[torch.empty(LARGE, dtype=torch.float64) for _ in range(SIZE)] for _ in range(3)]
    works = [
        dist.all_gather(room, torch.full((LARGE,), 10.0 * RANK + i).double(), async_op=True)
        for i, room in enumerate(rooms)
    ]
    if SIZE > 1:
        dist.send(torch.full((LARGE,), -1.0 - RANK).double(), right)
        receiving.wait()
        assert torch.all(got == -1.0 - left)
    for work in reversed(works):
        work.wait()
    for i, room in enumerate(rooms):
        assert [part.unique().tolist() for part in room] == [[10.0 * r + i] for r in range(SIZE)]


def test_the_largest_tag_is_not_for_users():
    largest = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    with pytest.raises(ValueError, match=f"tag={largest}: expected 0 to {largest - 1}"):
        dist.isend(torch.ones(1), (RANK + 1) % SIZE, tag=largest)


def test_autograd_over_a_group():
    whole = torch.arange(4.0 * SIZE * SIZE).reshape(SIZE, SIZE, 4)
    x = whole[RANK].clone().requires_grad_()
    y = nn.all_to_all(x)
    assert torch.equal(y, whole[:, RANK])
    total = nn.all_reduce(y.square()) + nn.all_gather(nn.reduce_scatter(x, "AVG"))
    total = total + nn.sendrecv(x, (RANK + 1) % SIZE, (RANK - 1) % SIZE)
    total.sum().backward()
    # Every rank's loss counts what the others gave: SIZE times 2 x, then 1, then 1.
    assert torch.equal(x.grad, 2 * SIZE * whole[RANK] + 2)


def test_helpers_over_a_group():
    torch.manual_seed(RANK)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    broadcast_module(model, root=SIZE - 1)
    torch.manual_seed(SIZE - 1)
    same = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    assert all(map(torch.equal, model.state_dict().values(), same.state_dict().values()))
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, float(RANK))
    average_gradients(model)
    for parameter in model.parameters():
        assert torch.all(parameter.grad == (SIZE - 1) / 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_compressed_gradients_are_added_up_in_float32(dtype):
    """A large number and small ones, which a sum in 16 bits would lose one after another."""
    large = 2 / torch.finfo(dtype).eps  # its neighbours are 2 away
    small = torch.nn.Parameter(torch.zeros(SIZE, 300))
    # DDP refuses modules whose hook types it does not know; a plain one will do.
    module = torch.nn.Module()
    module.weight = small
    module.forward = lambda: module.weight.sum() * 0 + (module.weight * gradient).sum()
    gradient = torch.full((SIZE, 300), large if RANK == 0 else 1.0)
    model = torch.nn.parallel.DistributedDataParallel(module)
    hooks.compress(model, dtype)
    model().backward()
    mean = torch.tensor((large + SIZE - 1) / SIZE).to(dtype).float()
    assert torch.all(small.grad == mean)


def test_a_hook_for_other_backends_is_refused():
    with pytest.raises(ValueError, match=r"dtype: got torch\.int8"):
        hooks.compress(None, torch.int8)
    other = dist.new_group(backend="gloo")
    dist.barrier()  # one that is destroyed while others still connect fails there
    bucket = type("Bucket", (), {"buffer": staticmethod(lambda: torch.ones(1))})
    with pytest.raises(ValueError, match=r"group: its backends are .*gloo"):
        hooks.compressed(hooks.Compression(torch.bfloat16, other), bucket)
    dist.destroy_process_group(other)


def test_the_package_says_what_it_has():
    assert {"nn", "hooks", "broadcast_module", "average_gradients"} <= set(dlmpi.torch.__all__)
