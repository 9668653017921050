"""The collectives as a table: how many elements each rank gives and gets, and who gets what.

A row says it in terms of blocks of `n` elements; the tests supply frameworks, dtypes and layouts.
Knows nothing of a particular MPI module: a row only calls methods of the communicator given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Parts = Sequence[np.ndarray | None]


@dataclass(frozen=True)
class Move:
    """A collective that moves. `gives` and `gets` count blocks (0: this side takes no part)."""

    name: str
    gives: Callable[[int, int, int], int]  # (rank, size, root)
    gets: Callable[[int, int, int], int]
    want: Callable[[Parts, int, int, int, int], np.ndarray]  # (sent, rank, size, root, n)
    call: Callable[[Any, Any, Any, int], None]  # (comm, send, receive, root)

    def __str__(self) -> str:
        return self.name


def _bcast(comm: Any, send: Any, receive: Any, root: int) -> None:
    comm.Bcast(receive if send is None else send, root=root)


MOVES = (
    Move(
        "Bcast",
        lambda r, p, root: int(r == root),
        lambda r, p, root: int(r != root),
        lambda sent, r, p, root, n: sent[root],
        _bcast,
    ),
    Move(
        "Gather",
        lambda r, p, root: 1,
        lambda r, p, root: p if r == root else 0,
        lambda sent, r, p, root, n: np.concatenate(sent),
        lambda comm, send, receive, root: comm.Gather(send, receive, root=root),
    ),
    Move(
        "Scatter",
        lambda r, p, root: p if r == root else 0,
        lambda r, p, root: 1,
        lambda sent, r, p, root, n: sent[root][r * n : (r + 1) * n],
        lambda comm, send, receive, root: comm.Scatter(send, receive, root=root),
    ),
    Move(
        "Allgather",
        lambda r, p, root: 1,
        lambda r, p, root: p,
        lambda sent, r, p, root, n: np.concatenate(sent),
        lambda comm, send, receive, root: comm.Allgather(send, receive),
    ),
    Move(
        "Alltoall",
        lambda r, p, root: p,
        lambda r, p, root: p,
        lambda sent, r, p, root, n: np.concatenate([s[r * n : (r + 1) * n] for s in sent]),
        lambda comm, send, receive, root: comm.Alltoall(send, receive),
    ),
)


@dataclass(frozen=True)
class Reduction:
    """A collective that reduces. Every rank gives `gives` blocks; `over(r, p)` are the ranks whose
    inputs it gets reduced (none: its receive buffer stays as it is), `part` which block of them."""

    name: str
    gives: Callable[[int], int]
    over: Callable[[int, int, int], range]  # (rank, size, root)
    part: Callable[[int, int], slice]  # (rank, n)
    call: Callable[[Any, Any, Any, Any, int], None]  # (comm, send, receive, op, root)
    average: bool = True

    def __str__(self) -> str:
        return self.name


REDUCTIONS = (
    Reduction(
        "Reduce",
        lambda p: 1,
        lambda r, p, root: range(p if r == root else 0),
        lambda r, n: slice(0, n),
        lambda comm, send, receive, op, root: comm.Reduce(send, receive, op=op, root=root),
    ),
    Reduction(
        "Allreduce",
        lambda p: 1,
        lambda r, p, root: range(p),
        lambda r, n: slice(0, n),
        lambda comm, send, receive, op, root: comm.Allreduce(send, receive, op=op),
    ),
    Reduction(
        "Scan",
        lambda p: 1,
        lambda r, p, root: range(r + 1),
        lambda r, n: slice(0, n),
        lambda comm, send, receive, op, root: comm.Scan(send, receive, op=op),
        average=False,
    ),
    Reduction(
        "Exscan",
        lambda p: 1,
        lambda r, p, root: range(r),
        lambda r, n: slice(0, n),
        lambda comm, send, receive, op, root: comm.Exscan(send, receive, op=op),
        average=False,
    ),
    Reduction(
        "Reduce_scatter_block",
        lambda p: p,
        lambda r, p, root: range(p),
        lambda r, n: slice(r * n, (r + 1) * n),
        lambda comm, send, receive, op, root: comm.Reduce_scatter_block(send, receive, op=op),
    ),
    Reduction(
        "Reduce_scatter",
        lambda p: p,
        lambda r, p, root: range(p),
        lambda r, n: slice(r * n, (r + 1) * n),
        lambda comm, send, receive, op, root: comm.Reduce_scatter(send, receive, op=op),
    ),
)
