"""What torch builds on the calls of a group beside training: messages in batches, DDP in its forms,
functional collectives, threads, and groups whose ranks are numbered otherwise."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from dlmpi import MPI
from support.process_groups import RANK, SIZE, start

pytestmark = pytest.mark.mpi
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE


@pytest.fixture(scope="module", autouse=True)
def group():
    start()


@pytest.fixture(scope="module")
def turned():
    """All ranks in the other order."""
    made = dist.new_group(list(range(SIZE))[::-1], sort_ranks=False)
    yield made
    dist.barrier()
    dist.destroy_process_group(made)


def test_messages_in_a_batch(turned):
    for chosen in (None, turned):
        got = torch.full((4,), torch.nan)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, torch.full((4,), float(RANK)), RIGHT, chosen, 3),
                dist.P2POp(dist.irecv, got, LEFT, chosen, 3),
            ]
        )
        for work in works:
            work.wait()
        assert got.tolist() == [LEFT] * 4


def test_ranks_of_a_group_in_the_other_order(turned):
    """Roots, peers and blocks are by the group's ranks, which torch translates."""
    assert dist.get_rank(turned) == SIZE - 1 - RANK
    x = torch.full((2,), float(RANK))
    dist.broadcast(x, 0, turned)
    assert x.tolist() == [0, 0]
    out = torch.full((SIZE,), torch.nan)
    dist.all_gather_into_tensor(out, torch.tensor([float(RANK)]), turned)
    assert out.tolist() == list(range(SIZE))[::-1]
    x = torch.full((2,), float(RANK))
    dist.broadcast(x, group=turned, group_src=0)
    assert x.tolist() == [SIZE - 1] * 2
    if SIZE > 1:
        sender = dist.recv(got := torch.full((1,), torch.nan), group=turned) if RANK == 0 else None
        if RANK == SIZE - 1:
            dist.send(torch.tensor([7.0]), 0, turned)
        assert sender is None or (sender == SIZE - 1 and got.item() == 7)


def test_flags_of_a_backend_end_when_they_are_asked():
    """Those that torch's class has by itself ask each other without end."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    flags = ("supports_splitting", "supports_coalescing", "supports_shrinking", "supports_window")
    flags += ("supports_reconfigure", "_supports_time_estimate")
    assert [getattr(backend, flag) for flag in flags] == [True, *[False] * 5]
    assert backend.supports_tensor_alloc(torch.device("cpu")) is False
    assert backend.options.backend == "dlmpi"
    assert backend.name() == backend.getBackendName() == "dlmpi"
    assert backend.perform_nocolor_split(torch.device("cpu")) is None


class Net(torch.nn.Module):
    """Two layers of which one may be left out, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.first = torch.nn.Linear(4, 4, dtype=torch.float64)
        self.second = torch.nn.Linear(4, 4, dtype=torch.float64)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.rand(parameter.shape, generator=generator))
        self.register_buffer("seen", torch.full((1,), float(RANK)))

    def forward(self, x, both=True):
        return self.second(self.first(x)) if both else self.first(x)


def rows(rank, step=0):
    return (torch.arange(12, dtype=torch.float64).reshape(3, 4) + rank + 10 * step) / 20


def gradients(used):
    """The mean gradient of one process that does the work of every rank, `used` of both layers."""
    module = Net()
    for rank in range(SIZE):
        (module(rows(rank), used(rank)).square().sum() / SIZE).backward()
    return [parameter.grad for parameter in module.parameters()]


FORMS = {
    "plain": {},
    "static graph": {"static_graph": True},
    "views": {"gradient_as_bucket_view": True},
    "small buckets": {"bucket_cap_mb": 1e-4},
    "unused parameters": {"find_unused_parameters": True},
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_ddp(form):
    def used(rank):
        return form != "unused parameters" or rank % 2 == 0

    module = Net()
    model = DistributedDataParallel(module, **FORMS[form])
    for _ in range(2):
        model.zero_grad()
        model(rows(RANK), used(RANK)).square().sum().backward()
    for mine, want in zip(module.parameters(), gradients(used), strict=True):
        torch.testing.assert_close(mine.grad, want)
    assert module.seen.item() == 0  # rank 0's


@pytest.mark.parametrize("hook", ["fp16_compress_hook", "bf16_compress_hook"])
def test_compressing_hooks_of_torch(hook):
    module = Net()
    model = DistributedDataParallel(module)
    model.register_comm_hook(None, getattr(default_hooks, hook))
    model(rows(RANK)).square().sum().backward()
    for mine, want in zip(module.parameters(), gradients(lambda _: True), strict=True):
        torch.testing.assert_close(mine.grad, want, rtol=3e-2, atol=1e-2)


@pytest.mark.filterwarnings("ignore:You passed:UserWarning")
def test_ranks_with_fewer_batches_join():
    model = DistributedDataParallel(Net())
    steps = 1 + (RANK == 0)
    with Join([model]):
        for step in range(steps):
            model.zero_grad()
            model(rows(RANK, step)).square().sum().backward()
    alone = Net()
    alone(rows(0, 1)).square().sum().backward()
    for mine, its in zip(model.module.parameters(), alone.parameters(), strict=True):
        # In the last step rank 0 is alone; the others give nothing, and gradients are means.
        if RANK == 0:
            torch.testing.assert_close(mine.grad, its.grad / SIZE)


def test_norms_of_sharded_gradients():
    module = fully_shard(Net())
    module(rows(RANK)).square().sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    want = torch.stack([grad.norm() for grad in gradients(lambda _: True)]).norm()
    torch.testing.assert_close(norm.full_tensor(), want)


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_functional_collectives():
    x = torch.arange(3.0) + RANK
    every = [torch.arange(3.0) + rank for rank in range(SIZE)]
    world = dist.group.WORLD
    assert torch.equal(functional.all_reduce(x, "sum", world) + 0, sum(every))
    assert torch.equal(functional.all_gather_tensor(x, 0, world) + 0, torch.cat(every))
    assert torch.equal(functional.broadcast(x, SIZE - 1, world) + 0, every[-1])
    wide = torch.arange(3.0 * SIZE) * (RANK + 1)
    got = functional.reduce_scatter_tensor(wide, "sum", 0, world) + 0
    assert torch.equal(got, (torch.arange(3.0) + 3 * RANK) * (SIZE * (SIZE + 1) / 2))
    blocks = functional.all_to_all_single(wide, [3] * SIZE, [3] * SIZE, world) + 0
    want = [(torch.arange(3.0) + 3 * RANK) * (rank + 1) for rank in range(SIZE)]
    assert torch.equal(blocks, torch.cat(want))
    many = functional.all_reduce_coalesced([x, 2 * x], "sum", world)
    assert [torch.equal(y + 0, k * sum(every)) for k, y in enumerate(many, 1)] == [True] * 2


@pytest.mark.filterwarnings("ignore:.*torch.distributed.nn.functional.*")
def test_derivatives_of_torchs_own_functions():
    x = torch.arange(2.0, requires_grad=True)
    differentiable.all_reduce(x * (RANK + 1)).sum().backward()
    assert x.grad.tolist() == [SIZE * (RANK + 1.0)] * 2
    x = torch.arange(2.0, requires_grad=True)
    (torch.stack(differentiable.all_gather(x)).sum(0) * (RANK + 1)).sum().backward()
    assert x.grad.tolist() == [SIZE * (SIZE + 1) / 2] * 2


def test_threads_with_a_group_each():
    """As autograd's threads: each has calls under way, in its own order."""
    count = 3
    groups = [dist.new_group() for _ in range(count)]
    wrong = []

    def work(number):
        for step in range(20):
            x = torch.full((1 + 997 * (step % 3),), float(RANK + number))
            later = dist.all_reduce(x, group=groups[number], async_op=True)
            y = torch.ones(3)
            dist.all_reduce(y, group=groups[number])
            later.wait()
            right = y.eq(SIZE).all() and x.eq(SIZE * (SIZE - 1) / 2 + SIZE * number).all()
            if not right:
                wrong.append((number, step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads if RANK % 2 else threads[::-1]:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    dist.barrier()
    for made in groups:
        dist.destroy_process_group(made)


@pytest.mark.parametrize("elements", [1, 14, 28, 30, 2048, 2049])
def test_ranks_that_wait_meet_ranks_that_do_not(elements, rng):
    """Whether a call is waited for at once is each rank's own business."""
    for _ in range(30):
        forms = rng.integers(0, 3, SIZE)
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.full((elements,), float(RANK + 1), dtype=dtype)
            y = torch.full((elements,), float(RANK), dtype=dtype)
            if forms[RANK] == 0:
                dist.all_reduce(x)
                dist.all_reduce(y, dist.ReduceOp.MAX)
            else:
                works = [dist.all_reduce(x, async_op=True)]
                works.append(dist.all_reduce(y, dist.ReduceOp.MAX, async_op=True))
                for work in works if forms[RANK] == 1 else works[::-1]:
                    work.wait()
            assert x.eq(SIZE * (SIZE + 1) / 2).all()
            assert y.eq(SIZE - 1).all()


def test_a_group_with_a_device_of_its_own():
    """torch then asks the parent to split, and those outside to look on."""
    world, fresh = dist.group.WORLD, dist.new_group()
    # It cannot be taken back, and only the default group is asked.
    fresh.bound_device_id = torch.device("cpu", 0)
    dist.distributed_c10d._update_default_pg(fresh)
    try:
        last = dist.new_group([SIZE - 1])
    finally:
        dist.distributed_c10d._update_default_pg(world)
    if RANK == SIZE - 1:
        x = torch.ones(2)
        dist.all_reduce(x, group=last)
        assert x.tolist() == [1, 1]
        dist.destroy_process_group(last)
    assert MPI.COMM_WORLD.allreduce(1) == SIZE
    dist.destroy_process_group(fresh)
    assert world.bound_device_id is None
