"""`allreduce_many` on one rank: what it borrows, refuses, keeps and tells. COMM_SELF only; results
of several ranks are compared in tests/mpi/test_algorithms.py."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch

import dlmpi
from dlmpi import MPI

SELF = MPI.COMM_SELF


def shrunk():
    tensor = torch.ones(1000)
    tensor.untyped_storage().resize_(8)
    return tensor


def frozen():
    array = np.ones(5)
    array.flags.writeable = False
    return array


class Overriding(torch.Tensor):
    """Gives something else for its storage."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.untyped_storage:
            return object()
        return super().__torch_function__(func, types, args, kwargs or {})


REFUSED = {
    "negative": (lambda: torch._neg_view(torch.ones(3)), BufferError),
    "conjugate": (lambda: torch.ones(3, dtype=torch.complex64).conj(), BufferError),
    "shrunk": (shrunk, BufferError),
    "expanded": (lambda: torch.ones(1).expand(7), BufferError),
    "sparse": (lambda: torch.eye(3).to_sparse(), BufferError),
    "meta": (lambda: torch.ones(3, device="meta"), (BufferError, TypeError)),
    "subclass": (lambda: torch.ones(3).as_subclass(Overriding), BufferError),
    "frozen": (frozen, BufferError),
    "text": (lambda: "text", TypeError),
}


@pytest.mark.parametrize("at", [0, 1, 4])
@pytest.mark.parametrize("name", REFUSED)
def test_one_that_cannot_be_is_named(name, at):
    """Wherever it is in the list, the others stay as they are."""
    make, error = REFUSED[name]
    others = [torch.full((9,), 2.0), np.full(9, 3.0), torch.full((2, 3), 4.0), np.full(3, 5.0)]
    before = [other.tolist() for other in others]
    versions = [other._version for other in others[::2]]
    with pytest.raises(error, match=rf"tensors\[{at}\]"):
        dlmpi.allreduce_many([*others[:at], make(), *others[at:]], comm=SELF)
    assert [other.tolist() for other in others] == before
    assert [other._version for other in others[::2]] == versions


@pytest.mark.parametrize("framework", [np, torch])
def test_one_rank_has_its_sums(framework):
    """Nothing is to be done: every bit stays, of a NaN as well, and torch hears of a write."""
    bits = np.random.default_rng().integers(0, 1 << 32, 3000, dtype=np.uint32)
    whole = bits.copy().view(np.float32)
    tensors = [whole[:1000], whole[1000:2000:3], whole[2000:].reshape(20, 50).T]
    if framework is torch:
        tensors = [torch.from_numpy(tensor) for tensor in tensors]
    for op in (None, MPI.MAX, dlmpi.AVG):
        dlmpi.allreduce_many(tensors, op, SELF)
        assert (whole.view(np.uint32) == bits).all()
    if framework is torch:
        assert all(tensor._version >= 3 for tensor in tensors)


class Disturbing:
    """An array that, when it is asked for, gives a tensor other memory."""

    def __init__(self, array, work):
        self.array, self.work = array, work

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **asked):
        self.work()
        return self.array.__dlpack__(**asked)


class Noticed(np.ndarray):
    """Can be watched going."""


def test_memory_is_held_that_a_later_tensor_takes_away():
    """Its export is Python, and may do anything."""
    gone, seen = [], []

    def disturb():
        tensor.data = torch.zeros(9)
        seen.append(list(gone))

    for _ in range(3):
        memory = np.ones(9, np.float32).view(Noticed)
        weakref.finalize(memory, gone.append, 1)
        tensor = torch.from_numpy(memory)
        del memory
        dlmpi.allreduce_many([tensor, Disturbing(np.ones(9, np.float32), disturb)], comm=SELF)
        assert seen.pop() == []
        assert gone.pop() == 1


@pytest.mark.skipif(not hasattr(torch.Tensor, "_lazy_clone"), reason="this torch copies at once")
@pytest.mark.parametrize("which", [slice(None), slice(2, 5)], ids=["whole", "part"])
def test_a_copy_on_write_among_tensors_like_it(which):
    """It is no tensor like the others: the memory is another's until it is written."""
    original = torch.arange(9.0)
    clone = original._lazy_clone()
    others = [torch.ones(9), torch.ones(9)]
    dlmpi.allreduce_many(others, comm=SELF)
    dlmpi.allreduce_many([others[0], clone[which], others[1]], comm=SELF)
    assert torch._C._data_address(clone) != torch._C._data_address(original)
    clone.zero_()
    assert original.tolist() == list(range(9))


def test_a_tensor_inside_a_transform_is_refused():
    def inside(x):
        dlmpi.allreduce_many([torch.ones(4), x], comm=SELF)
        return x

    with pytest.raises((BufferError, TypeError, RuntimeError), match=r"tensors\[1\]"):
        torch.func.vmap(inside)(torch.ones(3, 4))


def test_an_iterator_is_taken_once():
    """It may make its tensors on the way, and they are gone when the call is over."""
    made, alive = [], []

    def tensors():
        for i in range(20):
            made.append(i)
            tensor = torch.ones(5) if i % 2 else np.ones(5)
            alive.append(weakref.ref(tensor))
            yield tensor

    dlmpi.allreduce_many(tensors(), comm=SELF)
    assert made == list(range(20))
    assert not any(ref() is not None for ref in alive)


def test_tensors_that_share_memory_in_any_order():
    whole = np.zeros(100)
    apart = [whole[i : i + 10] for i in range(0, 100, 10)]
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(10)
        dlmpi.allreduce_many([apart[i] for i in order], comm=SELF)
        twice = [*(apart[i] for i in order), whole[45:47]]
        first = int(np.flatnonzero(order == 4)[0])
        with pytest.raises(ValueError, match=f"tensors {first} and 10 share memory"):
            dlmpi.allreduce_many(twice, comm=SELF)
