"""The lower-case methods on objects that hold tensors: right, shared with nobody, not copied.

Right values come from generators seeded alike on all ranks, and from `pickle` itself.
"""

from __future__ import annotations

import pickle
import tracemalloc

import ml_dtypes
import mpi4py
import numpy as np
import pytest
import torch

from dlmpi import MPI, _pickle, _pickle_reduce
from dlmpi.comm import mpi as plain

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
SIZE, RANK = COMM.size, COMM.rank
PLAIN = plain.COMM_WORLD
LARGE = 70_001  # elements of two bytes and more: a part by itself


def made(seed):
    """An object of many kinds of tensors, small and large, the same for a seed on every rank."""
    draw = torch.Generator().manual_seed(seed)
    numbers = np.random.default_rng(seed)
    tensor = torch.randn(300, 401, generator=draw)
    return {
        "contiguous": tensor,
        "again": tensor,
        "transposed": torch.randn(300, 400, generator=draw).T,
        "strided": torch.randn(400, 600, generator=draw)[::2, 1::3],
        "bfloat16": torch.randn(LARGE, generator=draw).bfloat16(),
        "parameter": torch.nn.Parameter(torch.randn(LARGE, generator=draw)),
        "gradient": torch.randn(5, generator=draw, requires_grad=True),
        "small": torch.tensor(seed),
        "empty": torch.empty(0, 3),
        "conjugate": torch.randn(LARGE, generator=draw).to(torch.complex64).conj(),
        "bool": torch.rand(LARGE * 2, generator=draw) < 0.5,
        "numpy": numbers.standard_normal(LARGE),
        "fortran": np.asfortranarray(numbers.standard_normal((300, 301))),
        "reversed": numbers.standard_normal(LARGE)[::-1],
        "ml_dtypes": numbers.standard_normal(LARGE).astype(ml_dtypes.bfloat16),
        "nested": [{"deep": (numbers.integers(0, 9, LARGE), None)}, "text" * 20_000],
        "bytearray": bytearray(numbers.bytes(LARGE)),
        "bytes": numbers.bytes(LARGE),
    }


def same(found, expected):
    """Compare as deep as it goes, types and properties included."""
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        assert found.requires_grad == expected.requires_grad
        assert torch.equal(found, expected)
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        assert found.flags.writeable
        assert np.array_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            same(found[key], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    else:
        assert found == expected


@pytest.mark.parametrize("sender", [COMM, PLAIN], ids=["ours", "mpi4py"])
@pytest.mark.parametrize("receiver", [COMM, PLAIN], ids=["ours", "mpi4py"])
@pytest.mark.parametrize("name", ["send", "ssend", "isend", "issend"])
def test_messages(sender, receiver, name):
    """Either side may be mpi4py: it is one message with one pickle."""
    if SIZE < 2:
        pytest.skip("needs two ranks")
    if RANK == 0:
        request = getattr(sender, name)(made(3), 1, 7)
        if request is not None:
            assert request.wait() is None
    elif RANK == 1:
        status = MPI.Status()
        found = receiver.recv(source=0, tag=7, status=status)
        same(found, made(3))
        assert (status.source, status.tag) == (0, 7)
        assert found["again"] is found["contiguous"]


def test_collectives(mixed):
    """Each is the messages of mpi4py's: ranks may mix."""
    for root in range(SIZE):
        sent = made(root) if root == RANK else None
        found = mixed.bcast(sent, root)
        same(found, made(root))
        assert found is not sent
        gathered = mixed.gather(made(RANK), root)
        if root == RANK:
            same(gathered, [made(rank) for rank in range(SIZE)])
        else:
            assert gathered is None
        scattered = [made(100 + rank) for rank in range(SIZE)] if root == RANK else None
        same(mixed.scatter(scattered, root), made(100 + RANK))
    same(mixed.allgather(made(RANK)), [made(rank) for rank in range(SIZE)])
    crossed = mixed.alltoall([made(10 * RANK + rank) for rank in range(SIZE)])
    same(crossed, [made(10 * rank + RANK) for rank in range(SIZE)])
    same(
        mixed.sendrecv(made(RANK), (RANK + 1) % SIZE, 1, None, (RANK - 1) % SIZE, 1),
        made((RANK - 1) % SIZE),
    )


def test_simple_objects_and_nothing():
    for value in (None, 0, 1.5, "text", b"", [], {}, (), [None]):
        assert COMM.bcast(value if RANK == 0 else "poison") == value
        assert COMM.allgather(value) == [value] * SIZE
    assert COMM.scatter(range(SIZE) if RANK == 0 else None) == RANK
    COMM.send("into nothing", MPI.PROC_NULL)
    assert COMM.recv(source=MPI.PROC_NULL) is None


def test_a_list_of_the_wrong_length_is_refused():
    """The same words as mpi4py's, before anything is sent."""
    with pytest.raises(ValueError, match=f"expecting {SIZE} items, got {SIZE + 1}"):
        COMM.alltoall([0] * (SIZE + 1))


def test_dropped_at_once():
    """A request holds the parts, which hold the tensors."""
    requests = [COMM.isend(made(seed), (RANK + 1) % SIZE, seed) for seed in range(5)]
    junk = [np.full(LARGE, 77.0) for _ in range(20)]
    for seed in reversed(range(5)):
        same(COMM.recv(source=(RANK - 1) % SIZE, tag=seed), made(seed))
    MPI.Request.Waitall(requests)
    assert all((one == 77).all() for one in junk)


def test_the_tensors_are_not_copied():
    """Neither do the sender's parts, nor what is made of a message, take memory of their own."""
    tensors = {"torch": torch.ones(1 << 20), "numpy": np.ones(1 << 20)}
    parts = _pickle.dump(tensors)
    places = [memoryview(part).nbytes for part in parts if not isinstance(part, bytes)]
    assert sorted(places) == [4 << 20, 8 << 20]
    views = [np.frombuffer(part, "u1") for part in parts if not isinstance(part, bytes)]
    addresses = {view.ctypes.data for view in views}
    assert addresses == {tensors["torch"].data_ptr(), tensors["numpy"].ctypes.data}

    message = np.frombuffer(bytearray(b"".join(memoryview(part) for part in parts)), "u1")
    tracemalloc.start()
    try:
        found = _pickle.load(memoryview(message))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    low, high = message.ctypes.data, message.ctypes.data + message.nbytes
    assert low <= found["torch"].data_ptr() < high
    assert low <= found["numpy"].ctypes.data < high
    assert peak < 1 << 18


def test_what_arrives_is_aligned_and_ones_own():
    if SIZE < 2:
        pytest.skip("needs two ranks")
    if RANK == 0:
        sent = made(1)
        COMM.send(sent, 1)
        sent["numpy"][:] = -1
        COMM.recv(source=1)
    elif RANK == 1:
        found = COMM.recv(source=0)
        assert found["contiguous"].data_ptr() % _pickle.ALIGNMENT == 0
        assert found["numpy"].ctypes.data % _pickle.ALIGNMENT == 0
        COMM.send(None, 0)
        same(found, made(1))
        # One block of memory holds them all, and each has its own part of it.
        found["contiguous"].fill_(7)
        found["again"] = found["contiguous"] = made(1)["contiguous"]
        same(found, made(1))


@pytest.mark.parametrize("trailer", [b"", b"anything", _pickle.END])
def test_pickles_of_others(trailer):
    """A pickle with junk behind it is a pickle; a table that lies is an error."""
    text = pickle.dumps({"a": 1}) + trailer
    message = memoryview(bytearray(text))
    if trailer == _pickle.END:
        lying = memoryview(bytearray(text[:-8] + (9).to_bytes(8, "little") + trailer))
        with pytest.raises(pickle.UnpicklingError):
            _pickle.load(lying)
        moved = bytearray(b"".join(memoryview(p) for p in _pickle.dump(np.ones(LARGE))))
        moved[-32] += 1
        with pytest.raises(pickle.UnpicklingError):
            _pickle.load(memoryview(moved))
    else:
        assert _pickle.load(message) == {"a": 1}


def test_a_tensor_of_a_device_lands_on_the_readers_current_one(monkeypatch):
    """Simulated: host tensors say that they are of `cuda:3`. No index may be in the pickle."""
    moved = []
    real = torch.Tensor.to
    monkeypatch.setattr(_pickle_reduce, "_device_type", lambda _: "cuda")
    text = b"".join(memoryview(part) for part in _pickle.dump({"x": torch.arange(9.0)}))
    assert b"cuda:" not in text

    def to(tensor, *where):
        moved.append(where)
        return real(tensor, "cpu")

    monkeypatch.setattr(torch.Tensor, "to", to)
    found = _pickle.load(memoryview(bytearray(text)))
    assert moved == [("cuda",)]
    assert torch.equal(found["x"], torch.arange(9.0))


def test_another_pickle_is_honoured():
    """What `MPI.pickle` was made to use is used, by every rank."""
    seen = []

    def dumps(obj, protocol=None):
        seen.append(obj)
        return pickle.dumps(obj, protocol)

    MPI.pickle.__init__(dumps, pickle.loads)
    try:
        assert COMM.bcast([RANK], 0) == [0]
        assert seen == ([[0]] if RANK == 0 else [])
    finally:
        MPI.pickle.__init__()
    assert MPI.pickle.PROTOCOL == pickle.HIGHEST_PROTOCOL
    MPI.pickle.PROTOCOL = 3
    try:
        same(COMM.allgather(np.arange(LARGE)), [np.arange(LARGE)] * SIZE)
        assert MPI.pickle.dumps(1)[1] == 3
    finally:
        MPI.pickle.PROTOCOL = None
    assert mpi4py.rc.recv_mprobe


@pytest.mark.parametrize(
    "room",
    [
        lambda: bytearray(1 << 12),
        lambda: np.zeros(1 << 10, np.int32),
        lambda: torch.zeros(1 << 10),
        lambda: torch.zeros(1 << 10, dtype=torch.bfloat16),
    ],
)
@pytest.mark.filterwarnings("ignore:the 'buf' argument")  # mpi4py's, of recv
def test_the_room_for_a_pickle_is_memory_of_any_tensor(room):
    dest, source = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    request = COMM.irecv(room(), source, 8)
    COMM.send(RANK, dest, 8)
    assert request.wait() == source
    request = COMM.isend(RANK, dest, 9)
    assert COMM.recv(room(), source, 9) == source
    request.wait()
    assert COMM.sendrecv([RANK], dest, 10, room(), source, 10) == [source]
