"""Gives every rank another framework and layout, from one row of a table."""

from __future__ import annotations

from collections.abc import Sequence

from support.dtypes import DType
from support.layouts import Layout


def spread(
    dtype: DType, layouts: Sequence[Layout], framework: str, layout: Layout, rank: int
) -> tuple[str, Layout]:
    """Rank 0 takes the row's own pair; rank r the r-th next one that the dtype allows."""
    pairs = [(f, row) for f in dtype.frameworks for row in layouts if f in row.frameworks]
    # A stride coprime to most table lengths: neighbours differ in layout and often in framework.
    return pairs[(pairs.index((framework, layout)) + 7 * rank) % len(pairs)]
