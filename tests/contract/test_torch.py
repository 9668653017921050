"""torch tensors: autograd, lazy signs and conjugates, tensors without memory. COMM_SELF only."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

import dlmpi
from dlmpi import MPI, _native

SELF = MPI.COMM_SELF


def echo(source, out):
    SELF.Sendrecv(source, 0, recvbuf=out, source=0)
    return out


LAZY = {
    "conj": lambda: torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64).conj(),
    "conj strided": lambda: torch.conj(torch.arange(6.0).to(torch.complex128).mul(1j)[::2]),
    "neg": lambda: torch._neg_view(torch.tensor([1.0, -2.0, 3.0])),
    "imag of conj": lambda: torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64).conj().imag,
    "adjoint": lambda: torch.tensor([[1 + 2j, 3j], [4, 5 - 1j]]).mH,
}


@pytest.mark.parametrize("lazy", LAZY)
def test_lazy_values_are_sent_as_they_read(lazy):
    tensor = LAZY[lazy]()
    out = torch.zeros(tensor.shape, dtype=tensor.dtype)
    echo(tensor, out)
    assert out.tolist() == tensor.tolist()
    SELF.Allreduce(tensor, out.zero_())
    assert out.tolist() == tensor.tolist()


@pytest.mark.parametrize("lazy", LAZY)
def test_lazy_values_are_not_received_into(lazy):
    tensor = LAZY[lazy]()
    before = tensor.tolist()
    source = torch.ones(tensor.shape, dtype=tensor.dtype)
    for receive in (
        lambda: echo(source, tensor),
        lambda: SELF.Allreduce(source, tensor),
        lambda: SELF.Allreduce(MPI.IN_PLACE, tensor),
        lambda: SELF.Recv(tensor, 0),
    ):
        with pytest.raises(BufferError, match=r"(?i)conj|neg"):
            receive()
    assert tensor.tolist() == before


class Bare:
    """Less than any storage."""

    __slots__ = ()


class Overriding(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        asked = func is torch.Tensor.untyped_storage
        return Bare() if asked else super().__torch_function__(func, types, args, kwargs or {})


class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return Bare() if func is torch.Tensor.untyped_storage else func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Mode, contextlib.nullcontext])
def test_an_answer_that_is_no_storage_is_not_read_as_one(mode):
    plain = torch.ones(3)
    tensor = plain if mode is Mode else plain.as_subclass(Overriding)
    with mode(), pytest.raises(BufferError, match="sendbuf: its export failed"):
        echo(tensor, np.zeros(3, "f4"))


WRITES = {
    "receive": lambda part: echo(torch.full_like(part, 7), part),
    "reduce": lambda part: SELF.Allreduce(torch.full_like(part, 7), part),
    "many": lambda part: dlmpi.allreduce_many([part], op=MPI.SUM, comm=SELF),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("which", [slice(None), slice(2, 5)], ids=["whole", "part"])
def test_a_copy_on_write_is_made_before_the_write(write, which):
    """The two share memory until one of them is written."""
    original = torch.arange(9.0)
    clone = original._lazy_clone()
    part = clone[which]
    # `data_ptr()` would make the copy itself.
    assert torch._C._is_cow_tensor(clone)
    WRITES[write](part)
    assert torch._C._data_address(clone) != torch._C._data_address(original)
    assert not torch._C._is_cow_tensor(clone)
    assert original.tolist() == list(range(9))
    if write != "many":
        assert (part == 7).all()


@pytest.mark.parametrize(
    "make", [lambda: torch.ones(4, requires_grad=True), lambda: torch.nn.Parameter(torch.ones(4))]
)
def test_tensors_with_gradients_travel(make):
    leaf, out = make(), torch.zeros(4)
    echo(leaf, out)
    assert out.tolist() == [1] * 4
    echo(torch.full((4,), 3.0), leaf)
    assert leaf.tolist() == [3] * 4
    assert leaf.requires_grad
    inner = leaf * 2
    echo(inner, out)
    assert out.tolist() == [6] * 4


RECEIVES = {
    "Sendrecv": lambda t: echo(torch.ones_like(t), t),
    "Recv": lambda t: (SELF.Isend(np.ones(4, np.float32), 0).Free(), SELF.Recv(t, 0)),
    "Allreduce": lambda t: SELF.Allreduce(torch.ones(4), t),
    "in place": lambda t: SELF.Allreduce(MPI.IN_PLACE, t),
    "Reduce": lambda t: SELF.Reduce(torch.ones(4), t),
    "Scan": lambda t: SELF.Scan(torch.ones(4), t),
    "Gather": lambda t: SELF.Gather(torch.ones(4), t),
    "Scatter": lambda t: SELF.Scatter(torch.ones(4), t),
    "Allgather": lambda t: SELF.Allgather(torch.ones(4), t),
    "Alltoall": lambda t: SELF.Alltoall(torch.ones(4), t),
    "Allgatherv": lambda t: SELF.Allgatherv(torch.ones(4), [t, [4]]),
    "Alltoallv": lambda t: SELF.Alltoallv([torch.ones(4), [4]], [t, [4]]),
    "Reduce_scatter": lambda t: SELF.Reduce_scatter(torch.ones(4), t),
    "Reduce_scatter_block": lambda t: SELF.Reduce_scatter_block(torch.ones(4), t),
}
SENDS = {
    "Sendrecv": lambda t: echo(t, torch.ones_like(t)),
    "Allreduce": lambda t: SELF.Allreduce(t, torch.zeros(4)),
    "Bcast from the root": lambda t: SELF.Bcast(t, root=0),
    "Allgather": lambda t: SELF.Allgather(t, torch.zeros(4)),
}


@pytest.mark.parametrize("receive", RECEIVES)
def test_a_write_is_told_to_autograd(receive):
    tensor = torch.zeros(4)
    before = tensor._version
    RECEIVES[receive](tensor)
    assert tensor._version > before


@pytest.mark.parametrize("send", SENDS)
def test_a_read_is_not_a_write(send):
    tensor = torch.ones(4)
    before = tensor._version
    SENDS[send](tensor)
    assert tensor._version == before


def test_views_share_the_version():
    base = torch.zeros(4, 4)
    echo(torch.ones(4, 2), base[:, ::2])
    assert base._version > 0
    assert base.sum() == 8


def test_overwriting_what_backward_needs_is_torchs_own_error():
    """Without the version counter the gradient would be silently wrong."""
    x = torch.ones(3, requires_grad=True)
    kept = x * 1
    y = (kept * kept).sum()
    echo(torch.full((3,), 50.0), kept)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


class Tagged(torch.Tensor):
    """A plain subclass, as users write them."""


def inference():
    with torch.inference_mode():
        return torch.arange(4.0)


ALIVE = {
    "channels_last": lambda: (
        torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    ),
    "transposed": lambda: torch.arange(12.0).reshape(3, 4).t(),
    "expanded": lambda: torch.arange(3.0).expand(4, 3),
    "unfolded": lambda: torch.arange(8.0).unfold(0, 3, 1),
    "narrowed": lambda: torch.arange(20.0).reshape(4, 5)[:, 1:3],
    "scalar": lambda: torch.tensor(4.5),
    "empty": lambda: torch.empty(3, 0, 2),
    "subclass": lambda: torch.arange(4.0).as_subclass(Tagged),
    "shared": lambda: torch.arange(4.0).share_memory_(),
    "inference": inference,
    "complex": lambda: torch.view_as_complex(torch.arange(8.0).reshape(4, 2)),
    "real of complex": lambda: torch.arange(4).to(torch.complex64).real,
}


@pytest.mark.parametrize("kind", ALIVE)
def test_kinds_of_tensors_are_sent_in_logical_order(kind):
    tensor = ALIVE[kind]()
    out = torch.zeros(tensor.shape, dtype=tensor.dtype)
    echo(tensor, out)
    assert out.tolist() == tensor.tolist()


@pytest.mark.parametrize("kind", sorted(ALIVE.keys() - {"expanded", "unfolded"}))
def test_kinds_of_tensors_are_received_into(kind):
    tensor = ALIVE[kind]()
    want = torch.arange(tensor.numel()).to(tensor.dtype).reshape(tensor.shape) + 7
    echo(want, tensor)
    assert tensor.tolist() == want.tolist()


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(4)


DEAD = {
    "meta": lambda: torch.zeros(4, device="meta"),
    "fake": fake,
    "zero": lambda: torch._efficientzerotensor(4),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(4), 0.5, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged
    ),
}


@pytest.mark.filterwarnings("ignore")  # torch's own, while it makes the odd ones
@pytest.mark.parametrize("kind", DEAD)
def test_tensors_without_plain_memory_are_refused(kind):
    tensor = DEAD[kind]()
    for use in (
        lambda: SELF.Bcast(tensor),
        lambda: SELF.Recv(tensor, 0),
        lambda: _native.describe(tensor),
    ):
        with pytest.raises(BufferError) as raised:
            use()
        assert len(str(raised.value)) < 500, "words, not a C++ backtrace"


def test_nothing_is_kept_after_a_call():
    tensor = torch.ones(4)
    gone = weakref.ref(tensor)
    storage = weakref.ref(tensor.untyped_storage())
    echo(tensor, torch.zeros(4))
    SELF.Allreduce(MPI.IN_PLACE, tensor)
    del tensor
    gc.collect()
    assert gone() is None
    assert storage() is None


ASKED = """
import torch
asked = []
def counted(owner, name):
    method = getattr(owner, name)
    setattr(owner, name, lambda tensor: asked.append(name) or method(tensor))
counted(torch.Tensor, "is_neg")
counted(torch.UntypedStorage, "data_ptr")
import dlmpi
from dlmpi import MPI
dlmpi.allreduce_many([torch.ones(3)], comm=MPI.COMM_SELF)
assert asked, "not counted"
asked.clear()
leaf = torch.ones(2, requires_grad=True)
lent = [torch.ones(5), torch.ones(4, 6).T, leaf.detach(), torch.ones(9)[2:]]
dlmpi.allreduce_many(lent, comm=MPI.COMM_SELF)
MPI.COMM_SELF.Allreduce(MPI.IN_PLACE, lent[0])
assert not asked, asked
"""


read_where_it_lies = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this torch is asked by methods"
)


def succeed(source, *arguments):
    """In a process of its own, which finds the tests' support."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), *sys.path]))
    command, env = [sys.executable, "-c", source, *arguments], os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        command, check=False, text=True, capture_output=True, timeout=120, env=env
    )
    assert done.returncode == 0, done.stderr


@read_where_it_lies
def test_torch_is_asked_by_methods_once_and_no_more():
    """Where a tensor's bits and its storage's bytes lie is found out; then they are read there."""
    succeed(ASKED)


DESCRIBED = """
import ctypes
import random
import numpy as np
import torch
from support import capsules

asked = []
view = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
table = capsules.pointer(torch.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
words = (ctypes.c_void_p * 7).from_buffer_copy((ctypes.c_char * 56).from_address(table))
real = view(words[5])

@view
def counted(tensor, out):
    asked.append(tensor)
    return real(tensor, out)

words[5] = ctypes.cast(counted, ctypes.c_void_p).value
torch.Tensor.__dlpack_c_exchange_api__ = capsules.plain_capsule(
    ctypes.addressof(words), b"dlpack_exchange_api"
)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.malloc.argtypes = [ctypes.c_size_t]

def leave(byte):
    blocks = [(libc.malloc(size), size) for size in range(32, 512, 16) for _ in range(8)]
    for block, size in blocks:
        ctypes.memset(block, byte, size)
        libc.free(block)

import dlmpi
from dlmpi import MPI
for _ in range(100):
    leave(random.randrange(256))
    dlmpi.allreduce_many([torch.ones(5)], comm=MPI.COMM_SELF)
assert len(asked) == 1, len(asked)
# Tensors whose memory is another's differ from them, and neither hides the other.
for _ in range(100):
    lent = torch.from_numpy(np.ones(5, np.float32))
    dlmpi.allreduce_many([lent, torch.ones(5)], comm=MPI.COMM_SELF)
assert len(asked) == 2, len(asked)
"""


@read_where_it_lies
def test_torch_describes_one_of_many_alike():
    """Bits that torch leaves as they were in memory make no tensor another kind."""
    succeed(DESCRIBED)


COUNTED = """
import _thread, sys, threading
import torch
import dlmpi
from dlmpi import MPI

class Plain(torch.Tensor):
    pass

told = []
tell = torch._C._increment_version
torch._C._increment_version = lambda tensors: told.extend(tensors) or tell(tensors)
dlmpi.allreduce_many([torch.ones(3), torch.ones(2, dtype=torch.bfloat16)], comm=MPI.COMM_SELF)
done = threading.Event()
threads = [threading.Thread(target=done.wait, args=(60,)) for _ in range(int(sys.argv[1]))]
for thread in threads:
    thread.start()
assert _thread._count() == len(threads)
base, parameter = torch.ones(6, 5), torch.nn.Parameter(torch.ones(7))
with torch.inference_mode():
    uncounted = torch.ones(4)
alike = [torch.ones(3), base[:2], base[2:4], parameter.detach()]
alike.append(torch.ones(5, dtype=torch.bfloat16))
others = [torch.ones(2, 3).t(), uncounted, torch.ones(9).as_subclass(Plain)]
for tensors in (alike, alike + others):
    counted = [t for t in (*tensors, base, parameter) if not t.is_inference()]
    twice = [1, 2, len(counted) - 2]
    for _ in range(3):
        told.clear()
        before = [t._version for t in counted]
        with torch.inference_mode():
            dlmpi.allreduce_many(tensors, comm=MPI.COMM_SELF)
        more = [t._version - old for t, old in zip(counted, before)]
        assert more == [2 if i in twice else 1 for i in range(len(counted))], more
        assert not {id(t) for t in told} & {id(t) for t in alike}
done.set()
"""


@read_where_it_lies
@pytest.mark.parametrize("threads", ["0", "1"], ids=["alone", "beside a thread"])
def test_each_write_is_counted_once(threads):
    """By the counter that a tensor shares with its views and with what is detached from it."""
    succeed(COUNTED, threads)
