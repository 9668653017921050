"""Messages and broadcasts of a process group that ranks copy out of each other's memory: around
the lengths from which they do so, and those that look like it."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from support.process_groups import RANK, SIZE, start

pytestmark = pytest.mark.mpi

#: As in `handover.rs`.
LEAST = CHUNK = 256 << 10
CARD = 31
MARK = b"\xd1dlmpi\x01"
LENGTHS = [0, 1, CARD - 1, CARD, CARD + 1, LEAST - 1, LEAST, LEAST + 1]
LENGTHS += [2 * CHUNK, 2 * CHUNK + 3, 9 * CHUNK - 1]
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE
POISON = 0x7B


@pytest.fixture(scope="module", autouse=True)
def group():
    start()


@pytest.fixture
def draw(rng):
    """Bytes that all ranks draw alike; never two times the same."""

    def one(n: int) -> torch.Tensor:
        return torch.from_numpy(rng.integers(0, 256, n, dtype="uint8"))

    return one


def room(n: int) -> torch.Tensor:
    return torch.full((n,), POISON, dtype=torch.uint8)


def around(*pairs: tuple[torch.Tensor, torch.Tensor], **tag: int) -> None:
    """Send the first of each pair to the right, receive into the second from the left."""
    works = []
    for sent, got in pairs:
        works += [dist.isend(sent, RIGHT, **tag), dist.irecv(got, LEFT, **tag)]
    for work in works:
        work.wait()


@pytest.mark.skipif(SIZE == 1, reason="nobody to send to")
@pytest.mark.parametrize("n", LENGTHS)
def test_a_message_of_any_length(draw, n):
    every = [draw(n) for _ in range(SIZE)]
    for spare in (0, 1, CARD, CHUNK):
        got = room(n + spare)
        around((every[RANK].clone(), got), tag=7)
        assert torch.equal(got[:n], every[LEFT])
        assert (got[n:] == POISON).all()


@pytest.mark.skipif(SIZE == 1, reason="nobody to send to")
def test_messages_keep_their_order(draw):
    lengths = [5 * CHUNK, 3, LEAST, 0, CARD, 2 * LEAST + 1, 1]
    every = [[draw(n) for n in lengths] for _ in range(SIZE)]
    got = [room(5 * CHUNK) for _ in lengths]
    around(*zip(every[RANK], got, strict=True))
    for want, have in zip(every[LEFT], got, strict=True):
        assert torch.equal(have[: len(want)], want)
        assert (have[len(want) :] == POISON).all()


@pytest.mark.skipif(SIZE == 1, reason="nobody to send to")
@pytest.mark.parametrize("n", [4, CARD, CARD + 1, 3 * CHUNK])
def test_a_message_that_looks_like_a_card_arrives_as_it_is(draw, n):
    every = [draw(n) for _ in range(SIZE)]
    for each in every:
        head = MARK[:n]
        each[: len(head)] = torch.tensor(list(head), dtype=torch.uint8)
    got = room(n + 9)
    around((every[RANK], got))
    assert torch.equal(got[:n], every[LEFT])
    assert (got[n:] == POISON).all()


@pytest.mark.skipif(SIZE == 1, reason="nobody to send to")
@pytest.mark.parametrize("space", [0, CARD - 1, CARD, LEAST])
def test_a_message_that_is_too_long_is_an_error_of_the_receiver_alone(draw, space):
    sent, got = draw(3 * CHUNK), room(space)
    works = [dist.isend(sent, RIGHT), dist.irecv(got, LEFT)]
    works[0].wait()
    with pytest.raises(Exception, match="longer than the room"):
        works[1].wait()
    around((sent, room(3 * CHUNK)))


@pytest.mark.skipif(SIZE == 1, reason="nobody to send to")
def test_from_whoever_sends(draw):
    """A receive from any rank learns who sent, and how long it was."""
    every = [draw(LEAST + 1 + rank) for rank in range(SIZE)]
    if RANK:
        dist.send(every[RANK], 0)
        return
    seen = set()
    for _ in range(SIZE - 1):
        got = room(LEAST + SIZE)
        source = dist.recv(got)
        assert torch.equal(got[: len(every[source])], every[source])
        seen.add(source)
    assert seen == set(range(1, SIZE))


@pytest.mark.skipif(SIZE == 1, reason="nobody to send to")
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.float8_e5m2]
)
def test_layouts(draw, dtype):
    """Strided on one side, shifted on the other."""
    n = 300_000 * dtype.itemsize
    every = [draw(n).view(dtype).reshape(600, 500) for _ in range(SIZE)]
    sent = every[RANK].T.contiguous().T
    whole = room(n + 4 * dtype.itemsize)[dtype.itemsize :].view(dtype)[: 600 * 500]
    for got in (room(2 * n).view(dtype).reshape(600, 1000)[:, ::2], whole.reshape(600, 500)):
        around((sent, got))
        same = got.contiguous().view(torch.uint8) == every[LEFT].contiguous().view(torch.uint8)
        assert same.all()


@pytest.mark.parametrize("n", [*LENGTHS, pytest.param(32 << 20, id="32 MiB")])
def test_broadcasts(draw, n):
    for root in range(SIZE):
        want = draw(n)
        wide = room(2 * n)
        got = wide[::2] if root % 2 else wide[:n]
        if root == RANK:
            got.copy_(want)
        dist.broadcast(got, root)
        assert torch.equal(got, want)
        assert (wide[1::2] if root % 2 else wide[n:]).eq(POISON).all()


def test_broadcasts_overlap(draw):
    """In several groups, each waited for in another order."""
    others = [dist.new_group(list(range(SIZE))) for _ in range(2)]
    wants = [draw(3 * CHUNK + i) for i in range(6)]
    gots = [want.clone() if i % SIZE == RANK else room(len(want)) for i, want in enumerate(wants)]
    works = [
        dist.broadcast(got, i % SIZE, group=others[i % 2], async_op=True)
        for i, got in enumerate(gots)
    ]
    for i in (3, 0, 5, 1, 4, 2) if RANK % 2 else (2, 4, 1, 5, 0, 3):
        works[i].wait()
        assert torch.equal(gots[i], wants[i])


def test_exchanges(draw):
    """Every rank gives to every other one and takes, all at once."""
    blocks = [[draw(LEAST + 5 * a + b) for b in range(SIZE)] for a in range(SIZE)]
    got = [room(LEAST + 5 * a + RANK) for a in range(SIZE)]
    dist.all_to_all(got, [block.clone() for block in blocks[RANK]])
    for a in range(SIZE):
        assert torch.equal(got[a], blocks[a][RANK])
