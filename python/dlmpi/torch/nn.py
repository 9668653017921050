"""Collectives and messages that autograd differentiates.

    from dlmpi.torch import nn
    y = nn.all_reduce(x)          # y.sum().backward() fills x.grad on every rank

The function that is differentiated is the sum of all ranks' losses: the gradient that arrives at
``x`` on one rank is that of this sum, so every rank runs ``backward``, through the same calls in
the same order. Backward passes are differentiable themselves, but those of `send` and `recv`.

``group`` is a communicator of MPI, a process group of torch (of any backend), or None: the default
process group where there is one, else ``COMM_WORLD``. Results are new tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from dlmpi.torch._reach import Group, OpName, Ranks, op_name, reach

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "recv",
    "reduce_scatter",
    "send",
    "sendrecv",
]


def all_reduce(x: torch.Tensor, op: Any = None, group: Group = None) -> torch.Tensor:
    """Return the reduction of every rank's ``x``: SUM if ``op`` is None, or AVG, MAX, MIN.

    Where ranks share the largest or smallest value, they share its gradient equally.
    """
    return _AllReduce.apply(x, op_name(op), reach(group))


def all_gather(x: torch.Tensor, dim: int = 0, group: Group = None) -> torch.Tensor:
    """Return every rank's ``x``, joined along ``dim``; all have one shape."""
    rows = x.reshape(1) if x.ndim == 0 else x
    return _AllGather.apply(rows.movedim(dim, 0), reach(group)).movedim(0, dim)


def reduce_scatter(
    x: torch.Tensor, op: Any = None, dim: int = 0, group: Group = None
) -> torch.Tensor:
    """Return this rank's part along ``dim`` of the reduction (SUM, AVG) of every rank's ``x``."""
    name, ranks = op_name(op), reach(group)
    if name not in ("SUM", "AVG"):
        raise ValueError(f"op: got {name}; reduce_scatter is differentiable for SUM and AVG")
    _check_divides(x, dim, ranks.size)
    return _ReduceScatter.apply(x.movedim(dim, 0), name, ranks).movedim(0, dim)


def all_to_all(
    x: torch.Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
) -> torch.Tensor:
    """Send rows of ``x`` to every rank; return the rows sent here, in the order of the ranks.

    ``input_split_sizes[i]`` rows go to rank ``i``, ``output_split_sizes[i]`` come from it. Without
    sizes every rank gets an equal share.
    """
    ranks = reach(group)
    if input_split_sizes is None or output_split_sizes is None:
        _check_divides(x, 0, ranks.size)
    equal = [x.shape[0] // ranks.size] * ranks.size
    gives = list(equal if input_split_sizes is None else input_split_sizes)
    gets = list(equal if output_split_sizes is None else output_split_sizes)
    for name, sizes in (("input_split_sizes", gives), ("output_split_sizes", gets)):
        if len(sizes) != ranks.size or min(sizes) < 0:
            raise ValueError(f"{name}: got {sizes}; expected {ranks.size} sizes, one for each rank")
    if sum(gives) != x.shape[0]:
        raise ValueError(f"input_split_sizes: their sum is {sum(gives)}; x has {x.shape[0]} rows")
    return _AllToAll.apply(x, tuple(gets), tuple(gives), ranks)


def broadcast(x: torch.Tensor, root: int = 0, group: Group = None) -> torch.Tensor:
    """Return the root's ``x``; the ``x`` of other ranks says shape and dtype, its gradient is 0."""
    ranks = reach(group)
    _check_rank("root", root, ranks)
    return _Broadcast.apply(x, root, ranks)


def send(x: torch.Tensor, dst: int, tag: int = 0, group: Group = None) -> torch.Tensor:
    """Send ``x`` to rank ``dst`` of the group; return a zero that receives its gradient.

    Add the zero to this rank's loss, or call its ``backward`` where there is no other loss: that is
    where the gradient of ``x`` arrives, which the `recv` of rank ``dst`` sends in its own backward
    pass. Both sides say alike whether there will be a gradient: ``x.requires_grad`` here,
    ``like.requires_grad`` there.
    """
    ranks = reach(group)
    _check_rank("dst", dst, ranks)
    return _Send.apply(x, dst, tag, ranks)


def recv(like: torch.Tensor, src: int, tag: int = 0, group: Group = None) -> torch.Tensor:
    """Return what rank ``src`` of the group sent, of the shape, dtype and device of ``like``.

    ``like`` is not changed. If it requires a gradient, the result's goes to rank ``src`` in the
    backward pass (see `send`), and that of ``like`` is 0: `torch.autograd.grad` comes by here
    only if ``like`` hangs on one of its inputs, ``backward`` always.
    """
    ranks = reach(group)
    _check_rank("src", src, ranks)
    return _Recv.apply(like, src, tag, ranks)


def sendrecv(
    x: torch.Tensor,
    dst: int,
    src: int,
    *,
    like: torch.Tensor | None = None,
    tag: int = 0,
    group: Group = None,
) -> torch.Tensor:
    """Send ``x`` to ``dst`` and return what ``src`` sends, of the shape of ``like`` or of ``x``.

    A step of a ring. Gradients take the way back. No deadlock, and no zero to keep, as with `send`
    and `recv` apart.
    """
    ranks = reach(group)
    _check_rank("dst", dst, ranks)
    _check_rank("src", src, ranks)
    shape = tuple(x.shape if like is None else like.shape)
    return _SendRecv.apply(x, shape, _Way(dst, src, tag, ranks))


def _check_divides(x: torch.Tensor, dim: int, size: int) -> None:
    if x.ndim == 0 or x.shape[dim] % size:
        raise ValueError(
            f"x: its shape is {tuple(x.shape)}; expected an axis {dim} of a multiple of {size} "
            "elements, as many for each rank"
        )


def _check_rank(name: str, rank: int, ranks: Ranks) -> None:
    if not 0 <= rank < ranks.size:
        raise ValueError(f"{name}: got {rank}; expected a rank of the group, 0 to {ranks.size - 1}")


def _plain(x: torch.Tensor) -> torch.Tensor:
    return x.detach().resolve_conj().resolve_neg().contiguous()


def _copy(x: torch.Tensor) -> torch.Tensor:
    return x.detach().clone(memory_format=torch.contiguous_format)


class _AllReduce(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, op: OpName, ranks: Ranks) -> torch.Tensor:
        ctx.op, ctx.ranks = op, ranks
        out = _copy(x)
        ranks.all_reduce(out, op)
        if op in ("MAX", "MIN"):
            ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        if ctx.op in ("SUM", "AVG"):
            return _AllReduce.apply(grad, ctx.op, ctx.ranks), None, None
        x, out = ctx.saved_tensors
        hit = (x == out).to(grad.dtype)
        ranks_that_hit = hit.clone()
        ctx.ranks.all_reduce(ranks_that_hit, "SUM")
        return _AllReduce.apply(grad, "SUM", ctx.ranks) * hit / ranks_that_hit, None, None


class _AllGather(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: Ranks) -> torch.Tensor:
        ctx.ranks = ranks
        room = x.new_empty((ranks.size * x.shape[0], *x.shape[1:]))
        ranks.all_gather(room, _plain(x))
        return room

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _ReduceScatter.apply(grad, "SUM", ctx.ranks), None


class _ReduceScatter(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, op: OpName, ranks: Ranks) -> torch.Tensor:
        ctx.op, ctx.ranks = op, ranks
        room = x.new_empty((x.shape[0] // ranks.size, *x.shape[1:]))
        ranks.reduce_scatter(room, _plain(x), op)
        return room

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        full = _AllGather.apply(grad, ctx.ranks)
        return full / ctx.ranks.size if ctx.op == "AVG" else full, None, None


class _AllToAll(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, gets: tuple[int, ...], gives: tuple[int, ...], ranks: Ranks
    ) -> torch.Tensor:
        ctx.gets, ctx.gives, ctx.ranks = gets, gives, ranks
        room = x.new_empty((sum(gets), *x.shape[1:]))
        ranks.all_to_all(room, _plain(x), gets, gives)
        return room

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _AllToAll.apply(grad, ctx.gives, ctx.gets, ctx.ranks), None, None, None


class _Broadcast(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, root: int, ranks: Ranks) -> torch.Tensor:
        ctx.root, ctx.ranks = root, ranks
        out = _copy(x)
        ranks.broadcast(out, root)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        total = _AllReduce.apply(grad, "SUM", ctx.ranks)
        if ctx.ranks.rank != ctx.root:
            # Its x had no part in the result. Still a function of the sum: a second backward pass
            # must go through the same calls on all ranks.
            total = total.masked_fill(torch.ones_like(total, dtype=torch.bool), 0)
        return total, None, None


class _Send(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dst: int, tag: int, ranks: Ranks) -> torch.Tensor:
        ctx.dst, ctx.tag, ctx.shape, ctx.ranks = dst, tag, tuple(x.shape), ranks
        ranks.send(_plain(x), dst, tag)
        return x.new_zeros(())

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        room = grad.new_empty(ctx.shape)
        ctx.ranks.recv(room, ctx.dst, ctx.tag)
        # This is the gradient of all losses, scaled as they are: what the zero was multiplied by on
        # its way into a loss says nothing.
        return room, None, None, None


class _Recv(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, like: torch.Tensor, src: int, tag: int, ranks: Ranks) -> torch.Tensor:
        ctx.src, ctx.tag, ctx.ranks = src, tag, ranks
        room = like.new_empty(like.shape)
        ranks.recv(room, src, tag)
        return room

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        ctx.ranks.send(_plain(grad), ctx.src, ctx.tag)
        return torch.zeros_like(grad), None, None, None


class _Way(NamedTuple):
    """Where messages go and come from."""

    dst: int
    src: int
    tag: int
    ranks: Ranks

    def back(self) -> _Way:
        return _Way(self.src, self.dst, self.tag, self.ranks)


class _SendRecv(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shape: tuple[int, ...], way: _Way) -> torch.Tensor:
        ctx.shape, ctx.way = tuple(x.shape), way
        room = x.new_empty(shape)
        way.ranks.sendrecv(_plain(x), way.dst, room, way.src, way.tag)
        return room

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _SendRecv.apply(grad, ctx.shape, ctx.way.back()), None, None
