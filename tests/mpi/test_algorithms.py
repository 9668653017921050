"""Reductions of large tensors: every operation in every dtype, on sizes that divide badly, with
NaN, infinities, denormals and both zeros. Whatever algorithm the settings choose, the numbers are
right, the bits are the same on all ranks, and the same when the call is repeated.

`tests/failure/test_algorithms.py` runs this file under each setting of DLMPI_ALLREDUCE."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

import numpy as np
import pytest
import torch

import dlmpi
from dlmpi import MPI
from support.arithmetic import UFUNCS, has_meaning
from support.boxes import Box
from support.collectives import REDUCTIONS
from support.dtypes import BY_NAME, TABLE
from support.extremes import check, compare, draw
from support.layouts import BY_NAME as LAYOUT
from support.layouts import WRITABLE
from support.pairs import label, pairwise
from support.ranks import spread

pytestmark = pytest.mark.mpi

DTYPES = [d for d in TABLE if d.kind not in ("longdouble", "longcomplex", "float8")]
#: Bytes of which each rank owns a part, and then of the next as many (DESIGN §4.1).
CHUNK = 4 << 20
#: Below and above every threshold; shares of 2, 3 and 4 ranks that are uneven or empty.
SIZES = (1, 2, 63, 129, 4099, 65_537, 300_007, 1_700_009)

CASES = pairwise(
    {
        "reduction": REDUCTIONS,
        "op": (*UFUNCS, "AVG"),
        "dtype": DTYPES,
        "n": SIZES,
        "framework": ("numpy", "torch"),
        "layout": WRITABLE,
    },
    valid=lambda row: (
        has_meaning(row["op"], row["dtype"])
        and (row["op"] != "AVG" or row["reduction"].average)
        and row["framework"] in row["dtype"].frameworks
        and row["framework"] in row["layout"].frameworks
    ),
)


def operation(name):
    return dlmpi.AVG if name == "AVG" else getattr(MPI, name)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_numbers_are_right(comm, rng, case):
    reduction, op, dtype, n = case["reduction"], case["op"], case["dtype"], case["n"]
    rank, size, root = comm.rank, comm.size, int(rng.integers(comm.size))
    total = reduction.gives(size) * n
    sent = [draw(dtype, op, total, rng) for _ in range(size)]
    framework, layout = spread(dtype, WRITABLE, case["framework"], case["layout"], rank)
    mine = Box(framework, dtype, layout, total, rng).fill(sent[rank])
    out = Box(framework, dtype, layout, n, rng)
    reduction.call(comm, mine.tensor, out.tensor, operation(op), root)
    mine.expect_untouched()
    over, part = reduction.over(rank, size, root), reduction.part(rank, n)
    if not over:
        out.expect_untouched()
        return
    got = out.flat()
    out.expect(got)  # nothing around it was written
    compare(dtype, op, [sent[r][part] for r in over], got)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float64", "complex64"])
@pytest.mark.parametrize("n", [5, 70_001, 1_000_003])
def test_bits_are_equal_on_all_ranks_and_from_call_to_call(comm, rng, name, n):
    dtype = BY_NAME[name]
    mine = draw(dtype, "SUM", n, np.random.default_rng([int(rng.integers(1 << 30)), comm.rank]))
    results = []
    for in_place in (False, True, False, True):
        source = Box("torch", dtype, LAYOUT["compact"], n, rng).fill(mine)
        out = Box("torch", dtype, LAYOUT["compact"], n, rng).fill(mine)
        comm.Allreduce(MPI.IN_PLACE if in_place else source.tensor, out.tensor)
        results.append(out.flat())
    once, in_place, again, in_place_again = (result.tobytes() for result in results)
    assert (once, in_place) == (again, in_place_again)
    # The sign and payload of a NaN may hang on which of two the processor takes.
    np.testing.assert_array_equal(dtype.decode(results[0]), dtype.decode(results[1]))
    assert len(set(comm.allgather(once))) == 1
    assert len(set(comm.allgather(in_place))) == 1


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize("blocks_between", [False, True])
def test_the_first_ones_are_not_waited_for(comm, rng, name, blocks_between):
    """Ranks learn where they run while calls are under way, which then go the blocking way."""
    dtype, fresh, n = BY_NAME[name], comm.Dup(), 300_007
    sent = [dtype.encode(rng.normal(size=n)) for _ in range(comm.size)]

    def box(stored):
        return Box("numpy", dtype, LAYOUT["compact"], len(stored), rng).fill(stored)

    mine, poison = box(sent[comm.rank]), np.zeros(n, dtype.store)
    outs = [box(poison) for _ in range(3)]
    small, tail = box(sent[comm.rank][:5]), box(poison[:5])
    root = box(poison) if comm.rank == comm.size - 1 else None
    requests = [
        fresh.Iallreduce(small.tensor, tail.tensor),
        fresh.Iallreduce(mine.tensor, outs[0].tensor),
        fresh.Ireduce(mine.tensor, root and root.tensor, root=comm.size - 1),
        fresh.Iallreduce(mine.tensor, outs[1].tensor),
    ]
    if blocks_between:
        fresh.Allreduce(mine.tensor, outs[2].tensor)
    MPI.Request.Waitall(requests[::-1])
    if not blocks_between:
        fresh.Allreduce(mine.tensor, outs[2].tensor)
    for out in (*outs, root) if root else outs:
        check(dtype, "SUM", sent, out.flat())
        assert out.flat().tobytes() == outs[2].flat().tobytes()
    check(dtype, "SUM", [s[:5] for s in sent], tail.flat())
    mine.expect_untouched()
    fresh.Free()


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int16"])
@pytest.mark.parametrize("n", [7, 40_009])
def test_in_place(comm, rng, name, n):
    """The forms in which the result replaces the contributions."""
    dtype, rank, size = BY_NAME[name], comm.rank, comm.size
    sent = [draw(dtype, "SUM", n * size, rng) for _ in range(size)]
    root = int(rng.integers(size))

    def box(stored):
        return Box("numpy", dtype, LAYOUT["compact"], len(stored), rng).fill(stored)

    whole = box(sent[rank])
    if rank == root:
        comm.Reduce(MPI.IN_PLACE, whole.tensor, root=root)
        compare(dtype, "SUM", sent, whole.flat())
    else:
        comm.Reduce(whole.tensor, None, root=root)
        whole.expect_untouched()
    blocks = box(sent[rank])
    comm.Reduce_scatter_block(MPI.IN_PLACE, blocks.tensor)
    part = slice(rank * n, rank * n + n)
    compare(dtype, "SUM", [s[part] for s in sent], blocks.flat()[:n])
    # Uneven blocks, one of them empty where there is another.
    counts = [n * size - (size - 1) * (n // 2)] + [n // 2] * (size - 1)
    counts[0], counts[-1] = counts[0] + (counts[-1] if size > 1 else 0), counts[-1]
    if size > 1:
        counts[-1] = 0
    start = sum(counts[:rank])
    for in_place in (False, True):
        given = box(sent[rank])
        out = box(np.zeros(counts[rank], dtype.store))
        if in_place:
            comm.Reduce_scatter(MPI.IN_PLACE, given.tensor, counts)
            got = given.flat()[: counts[rank]]
        else:
            comm.Reduce_scatter(given.tensor, out.tensor, counts)
            got = out.flat()
        compare(dtype, "SUM", [s[start : start + counts[rank]] for s in sent], got)


def test_sub_communicators_and_many_calls(comm, rng):
    """Calls in a row on several communicators find their own messages."""
    half = comm.Split(comm.rank % 2, comm.rank)
    for i in range(20):
        n = int(rng.integers(20_000, 60_000))
        for c in (comm, half):
            members = c.allgather(comm.rank)
            data = np.full(n, comm.rank + i, np.float32)
            c.Allreduce(MPI.IN_PLACE, data)
            assert (data == sum(members) + i * len(members)).all()
    half.Free()


def secret(n):
    """Memory of n float32 that no other process can be given (Linux's memfd_secret)."""
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.syscall(447, 0) if sys.platform == "linux" else -1
    if file < 0:
        return None
    os.ftruncate(file, 4 * n)
    memory = mmap.mmap(file, 4 * n)
    os.close(file)
    return np.frombuffer(memory, np.float32)


@pytest.mark.parametrize("kind", ["contributions", "results"])
def test_memory_that_no_other_process_can_read(comm, rng, kind):
    if MPI.Get_library_version().startswith("MPICH"):
        pytest.skip("MPICH reads such memory itself, and fails")
    n = 1_700_009
    guarded = secret(n)
    if not all(comm.allgather(guarded is not None)):
        pytest.skip("this kernel has no secret memory")
    who = int(rng.integers(comm.size))
    sent, out = np.full(n, comm.rank + 1, np.float32), np.full(n, np.nan, np.float32)
    if comm.rank == who:
        guarded[:] = sent if kind == "contributions" else out
        sent, out = (guarded, out) if kind == "contributions" else (sent, guarded)
    comm.Allreduce(sent, out)
    assert (out == comm.size * (comm.size + 1) // 2).all()
    comm.Reduce(sent, out if comm.rank == who else None, root=who)
    assert (out == comm.size * (comm.size + 1) // 2).all()


def test_memory_with_a_hole_is_an_error_on_every_rank(comm, rng):
    """Its ends can be read and what lies between them cannot, which shows while all are at it."""
    if comm.size == 1 or sys.platform != "linux":
        pytest.skip("on one rank, and elsewhere, nobody reads memory of others")
    page, n = mmap.PAGESIZE, 1 << 21
    memory = mmap.mmap(-1, 4 * n)
    sent = np.frombuffer(memory, np.float32)
    sent[:] = 1
    who = int(rng.integers(comm.size))
    libc = ctypes.CDLL(None, use_errno=True)
    # Where another rank adds up, in the first chunk: this one would fall into it.
    middle = CHUNK * (2 * ((who + 1) % comm.size) + 1) // (2 * comm.size)
    start = ctypes.c_void_p(sent.ctypes.data + middle // page * page)
    if comm.rank == who:
        assert libc.mprotect(start, page, 0) == 0
    out = np.full(n, np.nan, np.float32)
    with pytest.raises(RuntimeError, match="memory of"):
        comm.Allreduce(sent, out)
    if comm.rank == who:
        assert libc.mprotect(start, page, mmap.PROT_READ | mmap.PROT_WRITE) == 0
    comm.Allreduce(sent, out)
    assert (out == comm.size).all()


def tensors(dtypes, shapes, rank):
    made = []
    for i, (name, n) in enumerate((d, n) for d in dtypes for n in shapes):
        rng = np.random.default_rng([i, rank])
        dtype = BY_NAME[name]
        framework = dtype.frameworks[i % len(dtype.frameworks)]
        rows = [row for row in WRITABLE if framework in row.frameworks]
        box = Box(framework, dtype, rows[i % len(rows)], n, rng)
        made.append((dtype, box.fill(draw(dtype, "SUM", n, rng))))
    return made


def test_many_tensors_at_once(comm):
    names = ["float32", "bfloat16", "int16", "float64", "float16", "complex64"]
    shapes = [1, 0, 1000, 333, 300_001, 12]
    before = [tensors(names, shapes, r) for r in range(comm.size)]
    sent = [[box.flat() for _, box in made] for made in before]
    mine = before[comm.rank]
    dlmpi.allreduce_many([box.tensor for _, box in mine], comm=comm)
    for i, (dtype, box) in enumerate(mine):
        got = box.flat()
        box.expect(got)
        compare(dtype, "SUM", [s[i] for s in sent], got)
    assert len(set(comm.allgather(b"".join(box.flat().tobytes() for _, box in mine)))) == 1


def test_many_means(comm):
    mine = tensors(["float32", "bfloat16"], [1, 1000, 7], comm.rank)
    sent = [
        [b.flat() for _, b in tensors(["float32", "bfloat16"], [1, 1000, 7], r)]
        for r in range(comm.size)
    ]
    dlmpi.allreduce_many((box.tensor for _, box in mine), dlmpi.AVG, comm)
    for i, (dtype, box) in enumerate(mine):
        compare(dtype, "AVG", [s[i] for s in sent], box.flat())


def test_torch_is_told_of_each_of_many(comm):
    tensors = [torch.full((n,), comm.rank + 1.0) for n in (1, 0, 1000)]
    half = torch.ones(5, dtype=torch.bfloat16)
    versions = [tensor._version for tensor in (*tensors, half)]
    dlmpi.allreduce_many([tensors[0], np.ones(2), *tensors[1:], half], comm=comm)
    assert all(t._version > v for t, v in zip((*tensors, half), versions, strict=True))
    assert all((t == comm.size * (comm.size + 1) // 2).all() for t in tensors)


def alike(rng):
    """torch tensors of few kinds that lie anywhere in their storages."""
    made = []
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.complex64, torch.uint8):
        for shape in ((7,), (3, 5), (2, 3, 4), (2, 3, 4, 5), (), (1, 1, 1, 6)):
            count = int(np.prod(shape))
            first = int(rng.integers(0, 50))
            room = torch.zeros(first + count + 3).to(dtype)
            made.append(room[first : first + count].view(shape))
    made += [torch.nn.Parameter(torch.ones(n)) for n in (1, 1000)]
    with torch.inference_mode():
        made.append(torch.ones(12))
    made.append(torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last))
    made.append(torch.ones(6, 5).t())
    return made


def test_many_of_a_kind(comm, rng):
    """Those of a kind that was seen before are recognised, wherever they lie; nothing else is."""
    for _ in range(3):
        tensors = alike(comm.bcast(rng))
        for i in rng.permutation(len(tensors)):  # in any order on this rank
            with torch.inference_mode(tensors[i].is_inference()), torch.no_grad():
                tensors[i].copy_(torch.arange(tensors[i].numel()).view(tensors[i].shape) % 5)
        dlmpi.allreduce_many(tensors, comm=comm)
        for tensor in tensors:
            expected = torch.arange(tensor.numel()).view(tensor.shape) % 5 * comm.size
            assert (tensor.detach().to(torch.complex64) == expected).all()
            room = tensor.detach().untyped_storage()
            outside = torch.tensor([], dtype=tensor.dtype).set_(room).to(torch.complex64).sum()
            assert outside == expected.sum()


def test_many_of_awkward_lengths(comm, rng):
    """Pieces shorter than a step are brought together first, others combined where they lie."""
    lengths = rng.integers(1, 5000, 200) // rng.choice([1, 50, 5000], 200) + 1
    sent = [
        [np.random.default_rng([i, r]).integers(-99, 99, n) for i, n in enumerate(lengths)]
        for r in range(comm.size)
    ]
    for dtype in (np.float32, np.int16, np.float16):
        mine = [part.astype(dtype) for part in sent[comm.rank]]
        dlmpi.allreduce_many(mine, comm=comm)
        for i, part in enumerate(mine):
            assert (part == sum(parts[i] for parts in sent)).all(), (i, lengths[i], dtype)


@pytest.mark.parametrize("setting", ["auto", "mpi", "own"])
def test_a_communicator_has_a_setting_of_its_own(comm, rng, setting):
    ours = dlmpi.wrap(comm.Dup(), allreduce=setting)
    n = int(rng.integers(1, 400_000))
    for _ in range(3):
        out = np.full(n, np.nan, np.float32)
        ours.Allreduce(np.full(n, comm.rank + 1, np.float32), out)
        assert (out == comm.size * (comm.size + 1) // 2).all()
    ours.Free()
    if comm.size == 1:
        return
    other = {"auto": "own", "mpi": "auto", "own": "mpi"}[setting]
    differing = dlmpi.wrap(comm.Dup(), allreduce=setting if comm.rank else other)
    with pytest.raises(dlmpi.MismatchError) as told:
        differing.Allreduce(MPI.IN_PLACE, np.ones(8))
    for name in (setting, other):
        assert f"DLMPI_ALLREDUCE={name}" in str(told.value)
    differing.Free()


def test_a_setting_that_is_none(comm):
    with pytest.raises(
        ValueError, match=r"allreduce: expected one of auto, mpi, own, ring, .* 'fast'"
    ):
        dlmpi.wrap(comm, allreduce="fast")


def test_many_of_none_and_of_what_cannot_be(comm):
    dlmpi.allreduce_many([], comm=comm)
    data = np.ones(8, np.float32)
    with pytest.raises(ValueError, match="tensors 0 and 1 share memory"):
        dlmpi.allreduce_many([data, data], comm=comm)
    with pytest.raises(ValueError, match="bool"):
        dlmpi.allreduce_many([data, np.ones(3, bool)], comm=comm)
    with pytest.raises(TypeError, match=r"tensors\[1\]"):
        dlmpi.allreduce_many([data, "text"], comm=comm)
    frozen = np.ones(3)
    frozen.flags.writeable = False
    with pytest.raises(BufferError, match=r"tensors\[0\]"):
        dlmpi.allreduce_many([frozen], comm=comm)
    assert (data == 1).all()


def test_many_disagreements_are_told(comm):
    if comm.size == 1:
        pytest.skip("one rank cannot disagree")
    fresh = comm.Dup()
    lengths = [3, 4 + (comm.rank == 0)]
    with pytest.raises(dlmpi.MismatchError, match="allreduce_many of 2 tensors with 8 elements"):
        dlmpi.allreduce_many([np.ones(n) for n in lengths], comm=fresh)
    data = [np.ones(n) for n in (3, 4)]
    dlmpi.allreduce_many(data, comm=fresh)
    assert all((d == comm.size).all() for d in data)
    fresh.Free()


@pytest.mark.parametrize("way", ["own", "ring", "halving"])
@pytest.mark.parametrize("name", ["Iallreduce", "Ireduce", "Ireduce_scatter_block"])
def test_the_first_one_takes_the_way_of_its_communicator(comm, rng, name, way):
    """Ranks learn meanwhile where they run. Sums in another order are other bits, now and then."""
    seed = int(comm.bcast(int(rng.integers(1 << 30))))
    n = 40 * comm.size
    for trial in range(5):
        ours = dlmpi.wrap(comm.Dup(), allreduce=way)
        sent = np.random.default_rng([seed, trial, comm.rank]).normal(size=n).astype(np.float32)
        gets = 40 if name == "Ireduce_scatter_block" else n
        outs = [np.zeros(gets, np.float32) for _ in range(3)]
        for out in outs[:2]:
            getattr(ours, name)(sent, out).Wait()
        getattr(ours, name[1:].capitalize())(sent, outs[2])
        assert len({out.tobytes() for out in outs}) == 1
        ours.Free()


def test_messages_go_on_while_ranks_wait_for_each_other(comm, rng):
    """A rank that waits in a reduction lets MPI deliver what another one needs to come to it."""
    right = np.full(3, comm.size * (comm.size + 1) / 2)
    peer = comm.rank ^ 1
    for turn in range(30):  # more than are made before memory is shared
        n = int(rng.integers(1, 1_000_000))
        sent, got = np.full(n, float(turn)), np.full(n, np.nan)
        message = None
        if peer < comm.size and comm.rank % 2 == 0:
            message = comm.Isend(sent, peer, 5)
        elif peer < comm.size:
            comm.Recv(got, peer, 5)
            assert (got == turn).all()
        out = np.empty(3)
        comm.Allreduce(np.full(3, comm.rank + 1.0), out)
        assert (out == right).all()
        if message is not None:
            message.Wait()


def test_calls_of_all_sizes_on_several_communicators(comm, rng):
    """Small ones, large ones and lists in turns, while non-blocking ones are under way."""
    comms = [comm, comm.Dup(), comm.Split(0, -comm.rank)]
    outs, requests = [], []
    for turn in range(80):
        on = comms[int(rng.integers(3))]
        n = int(rng.choice([1, 7, 28, 29, 500, 3000, 20_000, 200_000]))
        mine = np.arange(n, dtype=np.int64) * (on.rank + 1) + turn
        right = np.arange(n) * (comm.size * (comm.size + 1) // 2) + turn * comm.size
        if turn % 3 == 0:
            out = np.empty(n, np.int64)
            requests.append(on.Iallreduce(mine, out))
            outs.append((mine, out, right))
        elif turn % 3 == 1:
            on.Allreduce(MPI.IN_PLACE, mine)
            assert (mine == right).all()
        else:
            cut = sorted(rng.integers(0, n + 1, 3))
            dlmpi.allreduce_many(np.split(mine, cut), comm=on)
            assert (mine == right).all()
    MPI.Request.Waitall(requests)
    for _, out, right in outs:
        assert (out == right).all()
    for on in comms[1:]:
        on.Free()
