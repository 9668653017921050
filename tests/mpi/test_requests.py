"""Non-blocking and matched messages between tensors: every way to complete a request, requests that
end early, and what holds the memory meanwhile. Oracle: the bytes that the sender put in."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import numpy as np
import pytest
import torch

from dlmpi import MPI
from support.boxes import Box
from support.dtypes import TABLE, random_bits
from support.layouts import TABLE as LAYOUTS
from support.layouts import WRITABLE
from support.pairs import label, pairwise
from support.ranks import spread

pytestmark = pytest.mark.mpi
need_two = pytest.mark.mpi(min_size=2)


def waitany(requests):
    for _ in requests:
        assert MPI.Request.Waitany(requests) != MPI.UNDEFINED
    assert MPI.Request.Waitany(requests) == MPI.UNDEFINED


def waitsome(requests):
    done = 0
    while done < len(requests):
        done += len(MPI.Request.Waitsome(requests))


def until_testall(requests):
    while not MPI.Request.Testall(requests):
        pass


def until_testany(requests):
    left = len(requests)
    while left:
        index, flag = MPI.Request.Testany(requests)
        left -= flag and index != MPI.UNDEFINED


WAYS = {
    "Waitall": MPI.Request.Waitall,
    "waitall": MPI.Request.waitall,
    "Waitany": waitany,
    "Waitsome": waitsome,
    "Testall": until_testall,
    "Testany": until_testany,
    "Wait": lambda requests: [request.Wait() for request in requests],
    "wait": lambda requests: [request.wait() for request in requests],
}

#: One of each size and kind; test_p2p has all.
DTYPES = [d for d in TABLE if d.name in {"float64", "bfloat16", "complex64", "int8", "bool"}]

CASES = pairwise(
    {
        "mode": ("Isend", "Issend", "Ibsend", "Irsend"),
        "way": tuple(WAYS),
        "dtype": DTYPES,
        "send_in": ("numpy", "torch"),
        "send_as": LAYOUTS,
        "receive_in": ("numpy", "torch"),
        "receive_as": WRITABLE,
        "n": (0, 1, 10_010),
        "room": ("exact", "spare"),
    },
    valid=lambda row: all(
        row[f"{side}_in"] in row["dtype"].frameworks
        and row[f"{side}_in"] in row[f"{side}_as"].frameworks
        for side in ("send", "receive")
    ),
)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_ring(comm, rng, case):
    """Each rank sends to the next, among requests of other kinds."""
    dtype, n = case["dtype"], case["n"]
    rank, size = comm.rank, comm.size
    to, source = (rank + 1) % size, (rank - 1) % size
    boxes = []
    for r in range(size):
        framework, layout = spread(dtype, LAYOUTS, case["send_in"], case["send_as"], r)
        box = Box(framework, dtype, layout, n, rng)
        boxes.append(box.fill(random_bits(dtype, n, rng)))
    framework, layout = spread(dtype, WRITABLE, case["receive_in"], case["receive_as"], rank)
    out = Box(framework, dtype, layout, n + (13 if case["room"] == "spare" else 0), rng)
    total = np.zeros(3)

    requests = [comm.Irecv(out.tensor, source, 5)]
    if case["mode"] == "Irsend":
        comm.Barrier()
    if case["mode"] == "Ibsend":
        MPI.Attach_buffer(bytearray(dtype.itemsize * n + MPI.BSEND_OVERHEAD))
    try:
        requests.append(getattr(comm, case["mode"])(boxes[rank].tensor, to, 5))
        requests.append(comm.Iallreduce(np.ones(3), total))
        requests.append(comm.Ibarrier())
        WAYS[case["way"]](requests)
    finally:
        if case["mode"] == "Ibsend":
            MPI.Detach_buffer()

    assert all(request == MPI.REQUEST_NULL for request in requests)
    assert np.all(total == size)
    boxes[rank].expect_untouched()
    out.expect(boxes[source].flat())


@pytest.mark.parametrize("layout", WRITABLE, ids=str)
def test_statuses_and_get_status(comm, rng, layout):
    """A request that MPI calls complete has its elements in place, before it is completed."""
    dtype, n = TABLE[0], 35
    sent = random_bits(dtype, n, rng)
    out, status = Box("numpy", dtype, layout, n + 2, rng), MPI.Status()
    request = comm.Irecv(out.tensor, comm.rank, 7)
    assert not request.Get_status()
    comm.Isend(sent, comm.rank, 7).Wait()
    while not request.Get_status(status):
        pass
    out.expect(sent)
    assert status.Get_count(MPI.BYTE) == n * dtype.itemsize
    request.Wait(status)
    assert (status.Get_source(), status.Get_tag()) == (comm.rank, 7)
    assert status.Get_count(MPI.BYTE) == n * dtype.itemsize
    out.expect(sent)


def test_a_cancelled_receive_leaves_the_tensor(comm):
    base = np.arange(20.0)
    status = MPI.Status()
    request = comm.Irecv(base[::2], comm.rank, 99)
    request.Cancel()
    request.Wait(status)
    assert status.Is_cancelled()
    assert base.tolist() == list(range(20))


def test_torch_hears_of_a_receive_when_it_completes(comm):
    for out in (torch.zeros(4), torch.zeros(4, 2)[:, 0], torch.zeros(4, dtype=torch.bfloat16)):
        request = comm.Irecv(out, comm.rank, 3)
        before = out._version
        comm.Isend(torch.arange(4.0).to(out.dtype), comm.rank, 3).Wait()
        assert out._version == before
        MPI.Request.Waitall([request])
        assert out._version > before
        assert out.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("size", [100, 300_000])
@pytest.mark.parametrize("make", [np.full, partial(torch.full, dtype=torch.float64)])
@pytest.mark.parametrize("strided", [False, True], ids=["dense", "strided"])
def test_temporaries_are_held(comm, make, strided, size):
    """The only reference to what is sent is dlmpi's: nothing else may use its memory."""
    step = 2 if strided else 1
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    outs = [np.zeros(size) for _ in range(4)]
    requests = []
    for i, out in enumerate(outs):
        value = float(10 * comm.rank + i)
        comm.Isend(make((size * step,), value)[::step], to, i)
        gc.collect()
        make((size * step,), -1.0)
        requests.append(comm.Irecv(out, source, i))
    MPI.Request.Waitall(requests)
    for i, out in enumerate(outs):
        assert np.all(out == 10 * source + i)


class Watched(np.ndarray):
    """An array whose end can be seen."""


@need_two
@pytest.mark.parametrize("end", ["drop", "Free"])
def test_an_early_end_of_the_request_is_not_the_end_of_the_tensor(comm, end):
    """What was received arrives although nobody waits for it, and then the memory is let go."""
    if comm.rank > 1:
        return
    other = 1 - comm.rank
    base = np.zeros((50_000, 2)).view(Watched)
    alive = weakref.ref(base)
    request = comm.Irecv(base[:, 0], other, 1)
    plain = comm.Irecv(buffer := np.zeros(1).view(Watched), other, 2)
    kept = weakref.ref(buffer)
    if end == "Free":
        request.Free()
        plain.Free()
        assert request == plain == MPI.REQUEST_NULL
    del request, plain, base, buffer
    gc.collect()
    assert alive() is not None
    assert kept() is not None
    comm.Sendrecv(np.zeros(1), other, 8, np.zeros(1), other, 8)
    array = alive()
    comm.Isend(np.arange(50_000.0), other, 1).Wait()
    comm.Isend(np.ones(1), other, 2).Wait()
    for _ in range(1000):
        # Later operations look after those that nobody waits for.
        comm.Sendrecv(np.zeros(1), other, 9, np.zeros(1), other, 9)
        MPI.Request.Waitall(
            [comm.Irecv(np.zeros(1), comm.rank, 9), comm.Isend(np.ones(1), comm.rank, 9)]
        )
        if array[-1, 0] and kept() is None:
            break
    assert array[:, 0].tolist() == list(range(50_000))
    assert not array[:, 1].any()
    del array
    gc.collect()
    assert alive() is None
    assert kept() is None


def test_a_copy_of_a_request_may_outlive_it(comm):
    out = np.zeros((5, 2))
    request = MPI.Request(comm.Irecv(out[:, 1], comm.rank, 4))
    comm.Isend(np.arange(5.0), comm.rank, 4).Wait()
    request.Wait()
    assert out.tolist() == [[0, i] for i in range(5)]


@pytest.mark.parametrize("layout", WRITABLE, ids=str)
@pytest.mark.parametrize("probe", ["Mprobe", "Improbe"])
@pytest.mark.parametrize("receive", ["Recv", "Irecv"])
def test_matched_messages(comm, rng, layout, probe, receive):
    dtype, n = next(d for d in TABLE if d.name == "bfloat16"), 35
    sent = Box("torch", dtype, LAYOUTS[0], n, rng).fill(random_bits(dtype, n, rng))
    request = comm.Isend(sent.tensor, comm.rank, 6)
    message = None
    while message is None:
        message = getattr(comm, probe)(comm.rank, 6)
    out, status = Box(layout.frameworks[-1], dtype, layout, n, rng), MPI.Status()
    assert isinstance(message, MPI.Message)
    if receive == "Recv":
        message.Recv(out.tensor, status)
    else:
        message.Irecv(out.tensor).Wait(status)
    assert message == MPI.MESSAGE_NULL
    assert status.Get_count(MPI.BYTE) == 2 * n
    out.expect(sent.flat())
    request.Wait()
    assert isinstance(MPI.Message.Iprobe(comm, MPI.PROC_NULL), MPI.Message)


@pytest.mark.parametrize("layout", WRITABLE, ids=str)
@pytest.mark.parametrize("blocking", [True, False])
def test_replace(comm, rng, layout, blocking):
    dtype, n = TABLE[0], 35
    sent = [random_bits(dtype, n, rng) for _ in range(comm.size)]
    box = Box("numpy", dtype, layout, n, rng).fill(sent[comm.rank])
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    if blocking:
        status = MPI.Status()
        comm.Sendrecv_replace(box.tensor, to, 2, source, 2, status)
        assert status.Get_source() == source
    else:
        comm.Isendrecv_replace(box.tensor, to, 2, source, 2).Wait()
    box.expect(sent[source])


@pytest.mark.parametrize("layout", WRITABLE, ids=str)
def test_isendrecv(comm, rng, layout):
    dtype, n = TABLE[0], 35
    sent = [random_bits(dtype, n, rng) for _ in range(comm.size)]
    out = Box("numpy", dtype, layout, n, rng)
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    comm.Isendrecv(sent[comm.rank], to, 2, out.tensor, source, 2).Wait()
    out.expect(sent[source])


@pytest.mark.parametrize("tensor", [np.zeros(4), torch.zeros(4), None, "no tensor"], ids=repr)
def test_proc_null_does_not_look_at_the_buffer(comm, tensor):
    null = MPI.PROC_NULL
    requests = [comm.Irecv(tensor, null)]
    requests += [getattr(comm, m)(tensor, null) for m in ("Isend", "Issend", "Ibsend", "Irsend")]
    requests.append(comm.Isendrecv(tensor, null, recvbuf=tensor, source=null))
    MPI.Request.Waitall(requests)


def test_a_part_of_a_tensor(comm):
    for make in (np.zeros, lambda shape: torch.zeros(shape, dtype=torch.float64)):
        out = make((6, 2))
        request = comm.Irecv([out[:, 0], (2, 3)], comm.rank, 1)
        comm.Isend([torch.arange(9.0, dtype=torch.float64), 2, 4, MPI.DOUBLE], comm.rank, 1).Wait()
        request.Wait()
        assert out[:, 0].tolist() == [0, 0, 0, 4, 5, 0]
        assert not out[:, 1].any()


REFUSED = {
    "count": lambda t: [t, 9],
    "displacement": lambda t: [t, (4, 5)],
    "natural": lambda t: [t, 9, MPI.DOUBLE],
    "other type": lambda t: [t, 17, MPI.FLOAT],
    "raw displacement": lambda t: [t, 1, 16, MPI.FLOAT],
    "raw pair": lambda t: [t, (8, 9), MPI.FLOAT],
    "negative": lambda t: [t, -1, MPI.FLOAT],
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("make", [np.zeros, lambda n: torch.zeros(n, dtype=torch.float64)])
def test_what_does_not_fit_is_refused(comm, make, what):
    message = REFUSED[what](make(8))
    rank = comm.rank
    calls = [
        lambda: comm.Send(message, rank),
        lambda: comm.Recv(message, rank),
        lambda: comm.Isend(message, rank),
        lambda: comm.Irecv(message, rank),
        lambda: comm.Sendrecv_replace(message, rank, source=rank),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="buf: "):
            call()


def test_memory_that_is_sent_and_received_into_at_once_is_refused(comm):
    """But for a send side that is packed first, and parts that lie apart."""
    base = np.arange(8.0)
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for send, recv in ((base, base), (base[:5], base[4:]), ([base, (2, 1)], [base, (2, 2)])):
        with pytest.raises(ValueError, match="share memory"):
            comm.Isendrecv(send, to, 0, recv, source)
    comm.Isendrecv([base, (2, 0)], to, 0, [base, (2, 2)], source).Wait()
    assert base.tolist() == [0, 1, 0, 1, 4, 5, 6, 7]
    comm.Isendrecv(base[::2], to, 0, base[:4], source).Wait()
    assert base.tolist() == [0, 0, 4, 6, 4, 5, 6, 7]


def test_wrong_memory_is_refused(comm):
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(BufferError, match="read-only"):
        comm.Irecv(frozen, comm.rank)
    with pytest.raises(BufferError, match="buf"):
        comm.Irecv(torch.zeros(1).expand(3), comm.rank)
    with pytest.raises(TypeError, match="expected a tensor"):
        comm.Isend(object(), comm.rank)


def test_thousands_outstanding(comm, rng):
    """Dense and strided, dropped and kept, completed out of order."""
    count = 2000
    outs = [np.zeros((3, 2)) if i % 2 else np.zeros((3, 1)) for i in range(count)]
    requests = [comm.Irecv(out[:, 0], comm.rank, i) for i, out in enumerate(outs)]
    for i in range(count):
        comm.Isend(np.full(3, float(i)) if i % 3 else np.full((3, 2), float(i))[:, 1], comm.rank, i)
    MPI.Request.Waitall([requests[i] for i in rng.permutation(count)])
    for i, out in enumerate(outs):
        assert out[:, 0].tolist() == [i] * 3
