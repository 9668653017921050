"""The collectives of the torch.distributed backend: every call, operation and dtype."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from support.arithmetic import has_meaning
from support.dtypes import BY_NAME
from support.process_groups import (
    DTYPES,
    RANK,
    SIZE,
    bits,
    drawn,
    poisoned,
    reduced,
    start,
)

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module", autouse=True)
def group():
    start()


OPS = {
    "SUM": dist.ReduceOp.SUM,
    "PROD": dist.ReduceOp.PRODUCT,
    "MIN": dist.ReduceOp.MIN,
    "MAX": dist.ReduceOp.MAX,
    "BAND": dist.ReduceOp.BAND,
    "BOR": dist.ReduceOp.BOR,
    "BXOR": dist.ReduceOp.BXOR,
    "AVG": dist.ReduceOp.AVG,
}
#: What torch's operations mean for truth values.
LOGICAL = {"SUM": "LOR", "MAX": "LOR", "BOR": "LOR", "PROD": "LAND", "MIN": "LAND", "BAND": "LAND"}
LOGICAL["BXOR"] = "LXOR"
#: torch hands complex numbers on as pairs, and refuses what has no meaning for these.
PAIRED = ("SUM", "AVG")


def meaning(op, name):
    """The oracle's operation, or None where there is none."""
    row = BY_NAME[name]
    if row.kind == "bool":
        return LOGICAL.get(op)
    if row.kind == "complex" and op not in PAIRED:
        return None
    return op if has_meaning(op, row) else None


REDUCTIONS = [(op, name) for op in OPS for name in DTYPES if meaning(op, name)]


def equal(got, want):
    return torch.equal(bits(got), bits(want))


@pytest.mark.parametrize(("op", "name"), REDUCTIONS)
def test_reductions(op, name, rng):
    oracle = meaning(op, name)
    odd = [(), (0, 3), (1,)][int(rng.integers(3))]
    for shape in [odd, (7, 5)]:
        tensors = drawn(name, oracle, shape, rng)
        want = reduced(name, oracle, tensors)
        got = tensors[RANK].clone()
        assert dist.all_reduce(got, OPS[op]) is None
        assert equal(got, want)
        got = tensors[RANK].clone()
        work = dist.all_reduce(got, OPS[op], async_op=True)
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
        assert equal(got, want)
        root = int(rng.integers(SIZE))
        got = tensors[RANK].clone()
        dist.reduce(got, root, OPS[op])
        if root == RANK:
            assert equal(got, want)
    tensors = drawn(name, oracle, (SIZE, 3), rng)
    want = reduced(name, oracle, tensors)[RANK]
    out = poisoned(name, (3,))
    if BY_NAME[name].kind != "complex":
        dist.reduce_scatter_tensor(out, tensors[RANK], OPS[op])
        assert equal(out, want)
        out = poisoned(name, (3,))
        dist.reduce_scatter(out, list(tensors[RANK]), OPS[op])
        assert equal(out, want)


@pytest.mark.parametrize("name", DTYPES)
def test_movements(name, rng):
    for shape in [[(), (0,)][int(rng.integers(2))], (3, 5)]:
        tensors = drawn(name, "SUM", shape, rng)
        mine = tensors[RANK]
        root = int(rng.integers(SIZE))
        got = mine.clone()
        dist.broadcast(got, root)
        assert equal(got, tensors[root])
        parts = [poisoned(name, shape) for _ in range(SIZE)]
        dist.all_gather(parts, mine)
        assert all(map(equal, parts, tensors))
        out = poisoned(name, (SIZE, *shape))
        dist.all_gather_into_tensor(out, mine)
        assert equal(out, torch.stack(tensors))
        parts = [poisoned(name, shape) for _ in range(SIZE)] if root == RANK else None
        dist.gather(mine, parts, root)
        assert parts is None or all(map(equal, parts, tensors))
        out = poisoned(name, shape)
        dist.scatter(out, tensors if root == RANK else None, root)
        assert equal(out, tensors[RANK])
        # Row s of rank r goes to row r of rank s.
        stacks = [torch.stack([tensors[(r + s) % SIZE] for s in range(SIZE)]) for r in range(SIZE)]
        want = torch.stack([stacks[r][RANK] for r in range(SIZE)])
        out = poisoned(name, (SIZE, *shape))
        dist.all_to_all_single(out, stacks[RANK])
        assert equal(out, want)
        parts = [poisoned(name, shape) for _ in range(SIZE)]
        dist.all_to_all(parts, list(stacks[RANK]))
        assert all(map(equal, parts, want))


def test_uneven_lists(rng):
    sizes = [int(n) for n in rng.integers(0, 5, SIZE)]
    tensors = [torch.from_numpy(rng.normal(size=(n, 2))) for n in sizes]
    parts = [torch.full_like(tensor, 9) for tensor in tensors]
    dist.all_gather(parts, tensors[RANK])
    assert all(map(torch.equal, parts, tensors))
    out = torch.full_like(tensors[RANK], 9)
    dist.scatter(out, tensors if RANK == 0 else None, 0)
    assert torch.equal(out, tensors[RANK])
    parts = [torch.full_like(tensor, 9) for tensor in tensors] if RANK == SIZE - 1 else None
    dist.gather(tensors[RANK], parts, SIZE - 1)
    assert parts is None or all(map(torch.equal, parts, tensors))
    out = torch.full_like(tensors[RANK], 9)
    dist.reduce_scatter(out, [(RANK + 1) * tensor for tensor in tensors])
    torch.testing.assert_close(out, tensors[RANK] * (SIZE * (SIZE + 1) / 2))


def test_uneven_rows(rng):
    table = rng.integers(0, 4, (SIZE, SIZE))
    rows = [torch.from_numpy(rng.integers(0, 99, (int(row.sum()), 3))) for row in table]
    blocks = [torch.split(rows[r], table[r].tolist()) for r in range(SIZE)]
    want = torch.cat([blocks[r][RANK] for r in range(SIZE)])
    out = torch.full_like(want, -1)
    dist.all_to_all_single(out, rows[RANK], table[:, RANK].tolist(), table[RANK].tolist())
    assert torch.equal(out, want)
    parts = [torch.full_like(blocks[r][RANK], -1) for r in range(SIZE)]
    dist.all_to_all(parts, list(blocks[RANK]))
    assert torch.equal(torch.cat(parts), want)


@pytest.mark.parametrize("change", ["transposed", "stepped", "expanded-source"])
def test_layouts(change, rng):
    base = [torch.from_numpy(rng.integers(-50, 50, (6, 8))) for _ in range(SIZE)]
    view = {
        "transposed": lambda t: t.T,
        "stepped": lambda t: t[::2, 1::3],
        "expanded-source": lambda t: t[:, :1].expand(6, 8),
    }[change]
    want = torch.stack([view(t) for t in base])
    out = torch.full_like(want.contiguous(), -999)
    dist.all_gather_into_tensor(out, view(base[RANK]))
    assert torch.equal(out, want)
    if change != "expanded-source":
        whole = base[RANK].clone()
        got = view(whole)
        dist.all_reduce(got)
        assert torch.equal(got, want.sum(0))
        view(whole).zero_()
        untouched = base[RANK].clone()
        view(untouched).zero_()
        assert torch.equal(whole, untouched)
        parts = [view(torch.full_like(t, -999)) for t in base]
        dist.all_gather(parts, view(base[RANK]))
        assert torch.equal(torch.stack(parts), want)


def test_gathering_into_the_own_block(rng):
    tensors = [torch.from_numpy(rng.normal(size=5)) for _ in range(SIZE)]
    out = torch.full((SIZE, 5), 9.0, dtype=torch.float64)
    out[RANK] = tensors[RANK]
    dist.all_gather_into_tensor(out, out[RANK])
    assert torch.equal(out, torch.stack(tensors))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int32"])
def test_scaled_before_the_sum(name, rng):
    tensors = drawn(name, "SUM", (33,), rng)
    factor = 2.0 if name != "int32" else 3
    scaled = [(tensor * factor).to(tensor.dtype) for tensor in tensors]
    want = reduced(name, "SUM", scaled)
    for given in (factor, torch.tensor([factor])):
        op = dist._make_nccl_premul_sum(given)
        got = tensors[RANK].clone()
        dist.all_reduce(got, op)
        assert equal(got, want)


def test_the_mean_of_integers_is_cut(rng):
    tensors = [torch.from_numpy(rng.integers(-99, 99, 40)) for _ in range(SIZE)]
    got = tensors[RANK].clone()
    dist.all_reduce(got, dist.ReduceOp.AVG)
    assert torch.equal(got, torch.div(sum(tensors), SIZE, rounding_mode="trunc"))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_sums(name, rng):
    dtype = getattr(torch, name)
    small = [torch.from_numpy(rng.integers(0, 3, 17)).float() / 2 for _ in range(SIZE)]
    got = small[RANK].to(dtype)
    dist.all_reduce(got)
    assert torch.equal(got.float(), sum(small).to(dtype).float())


def test_coalesced(rng):
    shapes = [(3,), (0,), (2, 2), ()]
    tensors = {
        dtype: [
            [torch.from_numpy(rng.integers(0, 9, s)).to(dtype) for s in shapes] for _ in range(SIZE)
        ]
        for dtype in (torch.float32, torch.int64)
    }
    mine = [
        t.clone()
        for pair in zip(*(rows[RANK] for rows in tensors.values()), strict=True)
        for t in pair
    ]
    want = [sum(rows[r][i] for r in range(SIZE)) for i in range(4) for rows in tensors.values()]
    with dist._coalescing_manager():
        for tensor in mine:
            dist.all_reduce(tensor)
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(mine, want, strict=True))
    ins = [torch.full((2,), float(RANK)), torch.full((3, 1), RANK, dtype=torch.int16)]
    outs = [torch.full((SIZE * 2,), 9.0), torch.full((SIZE * 3, 1), 9, dtype=torch.int16)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for out, inp in zip(outs, ins, strict=True):
            dist.all_gather_into_tensor(out, inp)
    manager.wait()
    assert outs[0].tolist() == [float(r) for r in range(SIZE) for _ in range(2)]
    assert outs[1].flatten().tolist() == [r for r in range(SIZE) for _ in range(3)]
    ins = [torch.arange(SIZE * 2.0), torch.arange(SIZE * 3.0).to(torch.bfloat16)]
    outs = [torch.full((2,), 9.0), torch.full((3,), 9.0, dtype=torch.bfloat16)]
    with dist._coalescing_manager():
        for out, inp in zip(outs, ins, strict=True):
            dist.reduce_scatter_tensor(out, inp)
    assert outs[0].tolist() == [SIZE * (RANK * 2.0 + i) for i in range(2)]
    assert outs[1].tolist() == [SIZE * (RANK * 3.0 + i) for i in range(3)]


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("dense", [(), (2,)])
def test_sparse_sums(dense, rng):
    def one(r):
        entries = int(rng.integers(0, 6))
        indices = torch.from_numpy(rng.integers(0, 4, (2, entries)))
        values = torch.from_numpy(rng.integers(0, 9, (entries, *dense))).double()
        return torch.sparse_coo_tensor(indices, values, (4, 4, *dense))

    tensors = [one(r) for r in range(SIZE)]
    want = sum(tensor.to_dense() for tensor in tensors)
    got = tensors[RANK].clone()
    dist.all_reduce(got)
    assert torch.equal(got.to_dense(), want)
    with pytest.raises(ValueError, match="op=SUM"):
        dist.all_reduce(got, dist.ReduceOp.MAX)


def test_objects(rng):
    everyone = [{"rank": r, "values": rng.normal(size=r + 1).tolist()} for r in range(SIZE)]
    got = [None] * SIZE
    dist.all_gather_object(got, everyone[RANK])
    assert got == everyone
    box = [everyone[0] if RANK == 0 else None]
    dist.broadcast_object_list(box, 0)
    assert box == [everyone[0]]
    box = [None]
    dist.scatter_object_list(box, everyone if RANK == 0 else None, 0)
    assert box == [everyone[RANK]]


REFUSED = {
    "dtypes differ": (
        TypeError,
        lambda: dist.all_gather_into_tensor(torch.zeros(SIZE), torch.zeros(1, dtype=torch.int32)),
    ),
    "sizes differ": (
        ValueError,
        lambda: dist.all_gather_into_tensor(torch.zeros(SIZE + 1), torch.zeros(1)),
    ),
    "lists are short": (
        ValueError,
        lambda: dist.all_gather([torch.zeros(1)] * (SIZE + 1), torch.zeros(1)),
    ),
    "rows cannot be shared": (
        ValueError,
        lambda: dist.all_to_all_single(torch.zeros(SIZE * 2 + 1), torch.zeros(SIZE * 2 + 1)),
    ),
    "bits of floats": (
        (TypeError, ValueError),
        lambda: dist.all_reduce(torch.zeros(3), dist.ReduceOp.BXOR),
    ),
    "the mean of truth values": (
        ValueError,
        lambda: dist.all_reduce(torch.zeros(3, dtype=torch.bool), dist.ReduceOp.AVG),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_mpi_is_entered(case):
    if SIZE == 1 and case == "rows cannot be shared":
        pytest.skip("one rank shares any number of rows with itself")
    error, call = REFUSED[case]
    with pytest.raises(error):
        call()
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == SIZE
