"""The tests' own oracles, held against second opinions: ml_dtypes and NumPy for the small floats,
NumPy's strides for the boxes. A wrong oracle would make wrong numbers look right."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from support.boxes import Box
from support.dtypes import BY_NAME, TABLE, random_bits
from support.floats import SMALL
from support.layouts import TABLE as LAYOUTS
from support.layouts import factor
from support.pairs import pairwise


def peer(name):
    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", SMALL)
def test_every_code(name):
    small = SMALL[name]
    codes = np.arange(2 * small.sign).astype(small.store)
    mine, theirs = small.decode(codes), codes.view(peer(name)).astype(np.float64)
    assert (np.isnan(mine) == np.isnan(theirs)).all()
    number = ~np.isnan(mine)
    assert (mine[number] == theirs[number]).all()
    assert (np.signbit(mine[number]) == np.signbit(theirs[number])).all()
    assert (small.encode(mine)[number] == codes[number]).all()


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", SMALL)
def test_roundings(name):
    """Halves between neighbours, near misses, and numbers far outside the range."""
    small, rng = SMALL[name], np.random.default_rng(0)
    between = (small.magnitudes[1:] + small.magnitudes[:-1]) / 2
    near = between * (1 + rng.choice([-1, 0, 1], len(between)) * 2.0**-20)
    far = rng.normal(size=20_000) * np.exp(6 * rng.normal(size=20_000))
    values = np.concatenate([between, near, far, [0.0, np.inf, small.magnitudes[-1] * 2]])
    values = np.concatenate([values, -values]).astype(np.float32)
    mine = small.encode(values.astype(np.float64))
    theirs = values.astype(peer(name)).view(small.store)
    assert (mine == theirs).all()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_boxes(layout):
    """Every layout has its elements inside the memory and guards that notice a stray byte."""
    rng, dtype = np.random.default_rng(0), BY_NAME["int16"]
    for n in (0, 1, 35, 105):
        box = Box(layout.frameworks[0], dtype, layout, n, rng)
        values = random_bits(dtype, n, rng)
        box.fill(values)
        assert len(box.flat()) == n
        if layout.writable:
            box.expect(values)
        for stray in (0, len(box.raw) - 1):
            box.raw[stray] ^= 1
            with pytest.raises(AssertionError, match="outside"):
                box.expect_untouched()
            box.raw[stray] ^= 1
        if n and layout.writable:
            with pytest.raises(AssertionError, match="wrong"):
                box.expect(values ^ 1)


def test_factors():
    for n in (0, 1, 7, 35, 105, 10_010):
        for dims in range(1, 5):
            assert np.prod(factor(n, dims)) == n
    assert factor(1, 0) == []


def test_pairs_meet():
    factors = {"a": range(7), "b": range(5), "c": range(3), "d": range(2)}
    rows = pairwise(factors, valid=lambda row: row["a"] != row["b"])
    assert rows == pairwise(factors, valid=lambda row: row["a"] != row["b"])
    for x, y in [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]:
        met = {(row[x], row[y]) for row in rows}
        allowed = {(i, j) for i in factors[x] for j in factors[y] if (x, y) != ("a", "b") or i != j}
        assert met == allowed
    assert len(rows) < 60


def test_names_are_unique():
    assert len({dtype.name for dtype in TABLE}) == len(TABLE)
