"""Samples a cross product so that every pair of values of two factors that can meet does meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Any

_TRIES = 40


def pairwise(
    factors: Mapping[str, Sequence[Any]],
    valid: Callable[[Mapping[str, Any]], bool] = lambda row: True,
    seed: int = 1,
) -> list[dict[str, Any]]:
    """Rows that cover all pairs that `valid` allows. The same rows for the same seed, so that
    every rank collects the same tests."""
    random, names = Random(seed), list(factors)
    missing = {
        (a, i, b, j): None
        for a, b in combinations(names, 2)
        for i in range(len(factors[a]))
        for j in range(len(factors[b]))
    }
    rows = []
    while missing:
        a, i, b, j = random.choice(list(missing)) if len(missing) < 50 else next(iter(missing))
        best, best_row = [], None
        for attempt in range(_TRIES * 10):
            picks = {name: random.randrange(len(factors[name])) for name in names}
            picks[a], picks[b] = i, j
            row = {name: factors[name][pick] for name, pick in picks.items()}
            if not valid(row):
                continue
            pairs = [(x, picks[x], y, picks[y]) for x, y in combinations(names, 2)]
            new = [pair for pair in pairs if pair in missing]
            if len(new) > len(best):
                best, best_row = new, row
            if attempt >= _TRIES and best_row is not None:
                break
        if best_row is None:  # the two can't meet
            del missing[a, i, b, j]
            continue
        for pair in best:
            del missing[pair]
        rows.append(best_row)
    return rows


def label(row: Mapping[str, Any]) -> str:
    """The test id of a row."""
    return "-".join(str(value) for value in row.values())
