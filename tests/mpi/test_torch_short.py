"""Short messages and lists of short blocks of a group, which take a shorter way than others: the
same results, with ranks that take the other way beside them, and nothing that waits for a thread
which nobody woke."""

from __future__ import annotations

import time
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist

from dlmpi import MPI
from support.process_groups import RANK, SIZE, start

pytestmark = pytest.mark.mpi
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE
PATIENCE = 30.0
MINUTE = timedelta(seconds=60)


@pytest.fixture(scope="module", autouse=True)
def group():
    start()


def block(n, source, dest, dtype=torch.float32):
    """Small whole numbers that tell where they come from and go to."""
    return (torch.arange(n) % 7 + 8 * source + 2 * dest).to(dtype)


def room(n, dtype=torch.float32, strided=False):
    """Memory beside which there is other memory; the two together."""
    whole = torch.full((2 * n + 2,), 99).to(dtype)
    return whole[inside(n, strided)], whole


def inside(n, strided):
    return slice(1, 2 * n + 1, 2) if strided else slice(1, n + 1)


def untouched(whole, n, strided):
    before = torch.full((1,), 99).to(whole.dtype).item()
    beside = whole.tolist()
    del beside[inside(n, strided)]
    return beside == [before] * (n + 2)


DTYPES = ["float32", "bfloat16", "float64", "int64", "uint8", "bool", "complex64", "float8_e5m2"]


@pytest.mark.parametrize("strided", ["nobody", "one rank", "everybody"])
@pytest.mark.parametrize("name", DTYPES)
class TestLists:
    N = 6

    def given(self, name, strided):
        dtype = getattr(torch, name)
        here = strided == "everybody" or (strided == "one rank" and RANK == SIZE - 1)
        return dtype, here, [room(self.N, dtype, here) for _ in range(SIZE)]

    def end(self, gets, want, rooms, here, before):
        assert [one.tolist() for one in gets] == [one.tolist() for one in want]
        assert all(untouched(whole, self.N, here) for _, whole in rooms)
        # autograd must know.
        assert all(one._version > old for one, old in zip(gets, before, strict=True))

    def test_all_gather(self, name, strided):
        dtype, here, rooms = self.given(name, strided)
        gets = [one for one, _ in rooms]
        before = [one._version for one in gets]
        dist.all_gather(gets, block(self.N, RANK, 0, dtype))
        want = [block(self.N, source, 0, dtype) for source in range(SIZE)]
        self.end(gets, want, rooms, here, before)

    def test_all_to_all(self, name, strided):
        dtype, here, rooms = self.given(name, strided)
        gets = [one for one, _ in rooms]
        before = [one._version for one in gets]
        dist.all_to_all(gets, [block(self.N, RANK, dest, dtype) for dest in range(SIZE)])
        want = [block(self.N, source, RANK, dtype) for source in range(SIZE)]
        self.end(gets, want, rooms, here, before)

    def test_gather(self, name, strided):
        dtype, here, rooms = self.given(name, strided)
        for root in range(SIZE):
            gets = [one for one, _ in rooms]
            before = [one._version for one in gets]
            dist.gather(block(self.N, RANK, root, dtype), gets if root == RANK else None, root)
            if root == RANK:
                want = [block(self.N, source, root, dtype) for source in range(SIZE)]
                self.end(gets, want, rooms, here, before)

    def test_scatter(self, name, strided):
        dtype, here, rooms = self.given(name, strided)
        for root in range(SIZE):
            (get, whole), before = rooms[0], rooms[0][0]._version
            gives = [block(self.N, root, dest, dtype) for dest in range(SIZE)]
            dist.scatter(get, gives if root == RANK else None, root)
            self.end([get], [block(self.N, root, RANK, dtype)], [(get, whole)], here, [before])

    def test_reduce_scatter(self, name, strided):
        if name in ("bool", "complex64", "float8_e5m2"):
            pytest.skip("sums of these are tested elsewhere")
        dtype, here, rooms = self.given(name, strided)
        (get, whole), before = rooms[0], rooms[0][0]._version
        dist.reduce_scatter(get, [block(self.N, RANK, dest, dtype) for dest in range(SIZE)])
        want = sum(block(self.N, source, RANK, torch.int64) for source in range(SIZE)).to(dtype)
        self.end([get], [want], [(get, whole)], here, [before])


def test_lists_of_any_lengths():
    """One block more, up to such that travel by themselves."""
    for n in (1, 2, 3, 1000, (64 << 10) - 1, 64 << 10, 100_000):
        counts = [max(n - 3 * rank, 0) for rank in range(SIZE)]
        gets = [torch.full((count,), -1.0) for count in counts]
        dist.all_gather(gets, block(counts[RANK], RANK, 0))
        want = [block(count, rank, 0) for rank, count in enumerate(counts)]
        assert all(map(torch.equal, gets, want))
        gets = [torch.full((n,), -1.0) for _ in range(SIZE)]
        dist.all_to_all(gets, [block(n, RANK, dest) for dest in range(SIZE)])
        assert all(map(torch.equal, gets, [block(n, rank, RANK) for rank in range(SIZE)]))


def test_lists_that_share_memory():
    rows = torch.zeros(SIZE, 3)
    rows[RANK] = block(3, RANK, 0)
    dist.all_gather(list(rows), rows[RANK])
    assert rows.tolist() == [block(3, rank, 0).tolist() for rank in range(SIZE)]
    rows = torch.stack([block(3, RANK, dest) for dest in range(SIZE)])
    dist.all_to_all(list(rows), list(rows))
    assert rows.tolist() == [block(3, rank, RANK).tolist() for rank in range(SIZE)]


def test_a_leaf_and_a_parameter_that_receive():
    leaf = torch.nn.Parameter(torch.zeros(3))
    with torch.no_grad():
        dist.scatter(leaf, [block(3, 0, dest) for dest in range(SIZE)] if RANK == 0 else None)
    assert leaf.tolist() == block(3, 0, RANK).tolist()
    assert leaf.is_leaf


@pytest.mark.parametrize("how", ["dtypes", "lengths", "a tensor", "a tuple"])
def test_lists_that_are_refused_before_anything_is_sent(how):
    odd = torch.zeros(3, dtype=torch.int32)
    gets = [torch.zeros(3) for _ in range(SIZE)]
    rooms = {
        "dtypes": [*gets[1:], odd],
        "lengths": [*gets, gets[0]],
        "a tensor": torch.zeros(SIZE, 3),
        "a tuple": (*gets, gets[0]),
    }[how]
    with pytest.raises((ValueError, TypeError)):
        dist.group.WORLD.allgather([rooms], [torch.zeros(3, dtype=torch.int64)])
    dist.all_gather(gets, block(3, RANK, 0))
    assert gets[LEFT].tolist() == block(3, LEFT, 0).tolist()


def test_arrays_of_another_framework_are_no_tensors():
    array = np.zeros(3, dtype=np.float32)
    MPI.COMM_SELF.Sendrecv(array, 0, 0, array.copy(), 0, 0)  # dlmpi knows their type
    rooms = [*(torch.zeros(3) for _ in range(SIZE - 1)), array]
    with pytest.raises((TypeError, AttributeError)):
        dist.group.WORLD.allgather([rooms], [torch.ones(3)])
    assert not array.any()


# Lengths that travel at once, and such that the sender waits with on some libraries.
@pytest.mark.parametrize("n", [1, 256, 2000, 15000, 20000, 100_000])
class TestMessages:
    def test_receives_end_in_the_order_in_which_they_were_begun(self, n):
        gets = [torch.zeros(n) for _ in range(4)]
        works = [dist.irecv(one, LEFT) for one in gets]
        sent = [dist.isend(block(n, RANK, 10 * number), RIGHT) for number in range(4)]
        # The last one first: it depends on those before it, which nobody carries on.
        for work in works[::-1]:
            work.wait()
        for work in sent:
            work.wait()
        for number, got in enumerate(gets):
            assert torch.equal(got, block(n, LEFT, 10 * number))

    def test_a_receive_that_nobody_waits_for(self, n):
        """Its rank does other things until its peer is through."""
        store = dist.distributed_c10d._get_default_store()
        key = f"short/{n}/{time.monotonic_ns() if RANK == 0 else ''}"
        keys = [key]
        dist.broadcast_object_list(keys, 0)
        for turn in range(3):
            got = torch.zeros(n)
            work = dist.irecv(got, LEFT, tag=turn)
            sent = dist.isend(block(n, RANK, turn), RIGHT, tag=turn)
            if turn == 1:
                del work
            sent.wait()
            store.set(f"{keys[0]}/{turn}/{RANK}", "sent")
            store.wait([f"{keys[0]}/{turn}/{LEFT}"], MINUTE)
            deadline = time.monotonic() + PATIENCE
            want = block(n, LEFT, turn)
            if turn == 0:
                while not work.is_completed() and time.monotonic() < deadline:
                    time.sleep(0)
                assert work.is_success()
            elif turn == 1:
                while not torch.equal(got, want) and time.monotonic() < deadline:
                    time.sleep(0.001)
            else:
                assert work.get_future().wait()[0] is got
            assert torch.equal(got, want)

    def test_who_sent_it(self, n):
        """Before anybody waits, and after."""
        for before in (False, True):
            got = torch.zeros(n)
            if before:
                work = dist.isend(block(n, RANK, 0), RIGHT)
                MPI.COMM_WORLD.Barrier()
            received = dist.irecv(got)
            if not before:
                work = dist.isend(block(n, RANK, 0), RIGHT)
            received.wait()
            work.wait()
            assert received._source_rank() == LEFT
            assert received.result()[0] is got
            assert torch.equal(got, block(n, LEFT, 0))
            with pytest.raises(RuntimeError):
                work._source_rank()


def test_two_groups_whose_messages_wait_for_each_other():
    """In turned orders: who waits in one group must not hold up the other."""
    if SIZE == 1:
        pytest.skip("needs a peer")
    others = [dist.new_group() for _ in range(2)]
    for turn in range(20):
        gets = [torch.zeros(5) for _ in others]
        order = [0, 1] if (RANK + turn) % 2 else [1, 0]
        works = [dist.irecv(gets[at], LEFT, others[at]) for at in order]
        sums = [dist.all_reduce(torch.ones(1), group=others[at], async_op=True) for at in order]
        for at in order[::-1]:
            dist.send(block(5, RANK, at), RIGHT, others[at])
        for work in [*works[::-1], *sums]:
            work.wait()
        assert all(torch.equal(gets[at], block(5, LEFT, at)) for at in order)
    for other in others:
        dist.destroy_process_group(other)
