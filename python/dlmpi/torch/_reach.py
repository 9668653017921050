"""The ranks that `dlmpi.torch.nn` and the helpers talk to: one set of calls, two ways to make them.

`reach(group)` takes a communicator or a torch process group. Every call here works on detached,
contiguous tensors and knows nothing of autograd. Reduce operations have one name each, whichever
library's constant the caller gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
import torch.distributed as dist

from dlmpi import _native

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Group", "OpName", "Ranks", "op_name", "reach"]

#: What callers may give: a communicator, a process group, or None for everybody.
Group = Any
OpName = Literal["SUM", "AVG", "MAX", "MIN"]
_OPS: tuple[OpName, ...] = ("SUM", "AVG", "MAX", "MIN")


class Ranks(Protocol):
    """The ranks of a communicator or group, and what is asked of them."""

    rank: int
    size: int

    def all_reduce(self, tensor: torch.Tensor, op: OpName) -> None:
        """Reduce in place."""

    def all_reduce_many(self, tensors: Sequence[torch.Tensor], op: OpName) -> None:
        """Reduce every tensor in place, in few messages."""

    def all_gather(self, room: torch.Tensor, tensor: torch.Tensor) -> None:
        """Fill ``room`` with every rank's ``tensor``, one after the other."""

    def reduce_scatter(self, room: torch.Tensor, tensor: torch.Tensor, op: OpName) -> None:
        """Fill ``room`` with the reduction of this rank's block of every ``tensor``."""

    def all_to_all(
        self, room: torch.Tensor, tensor: torch.Tensor, gets: Sequence[int], gives: Sequence[int]
    ) -> None:
        """Send ``gives[i]`` rows of ``tensor`` to rank ``i``; receive ``gets[i]`` rows from it."""

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """Fill ``tensor`` with the root's."""

    def gather_objects(self, value: object) -> list[Any]:
        """Return every rank's object."""

    def send(self, tensor: torch.Tensor, dst: int, tag: int) -> None:
        """Send to a rank of this group."""

    def recv(self, room: torch.Tensor, src: int, tag: int) -> None:
        """Receive from a rank of this group."""

    def sendrecv(
        self, tensor: torch.Tensor, dst: int, room: torch.Tensor, src: int, tag: int
    ) -> None:
        """Send and receive at once, without deadlock."""


class _OverComm:
    """A communicator of MPI."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        from dlmpi.comm import wrap

        self._comm = wrap(comm)
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()

    @staticmethod
    def _op(op: OpName) -> Any:
        from dlmpi.comm import mpi

        return _native.AVG if op == "AVG" else getattr(mpi, op)

    def all_reduce(self, tensor: torch.Tensor, op: OpName) -> None:
        from dlmpi.comm import mpi

        self._comm.Allreduce(mpi.IN_PLACE, tensor, self._op(op))

    def all_reduce_many(self, tensors: Sequence[torch.Tensor], op: OpName) -> None:
        _native.all_reduce_many(tensors, self._op(op), self._comm)

    def all_gather(self, room: torch.Tensor, tensor: torch.Tensor) -> None:
        self._comm.Allgather(tensor, room)

    def reduce_scatter(self, room: torch.Tensor, tensor: torch.Tensor, op: OpName) -> None:
        self._comm.Reduce_scatter_block(tensor, room, self._op(op))

    def all_to_all(
        self, room: torch.Tensor, tensor: torch.Tensor, gets: Sequence[int], gives: Sequence[int]
    ) -> None:
        row = _elements_of_a_row(tensor)
        self._comm.Alltoallv(
            [tensor, [rows * row for rows in gives]], [room, [rows * row for rows in gets]]
        )

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        self._comm.Bcast(tensor, root)

    def gather_objects(self, value: object) -> list[Any]:
        return list(self._comm.allgather(value))

    def send(self, tensor: torch.Tensor, dst: int, tag: int) -> None:
        self._comm.Send(tensor, dst, tag)

    def recv(self, room: torch.Tensor, src: int, tag: int) -> None:
        self._comm.Recv(room, src, tag)

    def sendrecv(
        self, tensor: torch.Tensor, dst: int, room: torch.Tensor, src: int, tag: int
    ) -> None:
        self._comm.Sendrecv(tensor, dst, tag, room, src, tag)


class _OverGroup:
    """A process group of torch, of any backend."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("group: this process is not in it; only its ranks may call")

    def _global(self, rank: int) -> int:
        return int(dist.get_global_rank(self._group, rank))

    def all_reduce(self, tensor: torch.Tensor, op: OpName) -> None:
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op), self._group)

    def all_reduce_many(self, tensors: Sequence[torch.Tensor], op: OpName) -> None:
        for bucket in buckets(tensors):
            flat = flatten(bucket)
            self.all_reduce(flat, op)
            unflatten(flat, bucket)

    def all_gather(self, room: torch.Tensor, tensor: torch.Tensor) -> None:
        dist.all_gather_into_tensor(room, tensor, self._group)

    def reduce_scatter(self, room: torch.Tensor, tensor: torch.Tensor, op: OpName) -> None:
        dist.reduce_scatter_tensor(room, tensor, getattr(dist.ReduceOp, op), self._group)

    def all_to_all(
        self, room: torch.Tensor, tensor: torch.Tensor, gets: Sequence[int], gives: Sequence[int]
    ) -> None:
        dist.all_to_all_single(room, tensor, list(gets), list(gives), self._group)

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        dist.broadcast(tensor, self._global(root), self._group)

    def gather_objects(self, value: object) -> list[Any]:
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, self._group)
        return found

    def send(self, tensor: torch.Tensor, dst: int, tag: int) -> None:
        dist.send(tensor, self._global(dst), self._group, tag)

    def recv(self, room: torch.Tensor, src: int, tag: int) -> None:
        dist.recv(room, self._global(src), self._group, tag)

    def sendrecv(
        self, tensor: torch.Tensor, dst: int, room: torch.Tensor, src: int, tag: int
    ) -> None:
        works = [
            dist.irecv(room, self._global(src), self._group, tag),
            dist.isend(tensor, self._global(dst), self._group, tag),
        ]
        for work in works:
            work.wait()


def reach(group: Group) -> Ranks:
    """Return the ranks of ``group``.

    None is the default process group of torch where there is one, else MPI's world.
    """
    if group is None and dist.is_available() and dist.is_initialized():
        return _OverGroup(dist.group.WORLD)
    if isinstance(group, dist.ProcessGroup):
        return _OverGroup(group)

    from dlmpi.comm import mpi

    if group is None:
        return _OverComm(mpi.COMM_WORLD)
    if isinstance(group, mpi.Intracomm):
        return _OverComm(group)
    raise TypeError(
        "group: expected a communicator (MPI.Intracomm), a torch process group or None, got "
        f"{type(group).__name__}"
    )


def op_name(op: Any) -> OpName:
    """Return the name of a reduce operation: of MPI's, dlmpi's or torch's constants, or a name."""
    if op is None:
        return "SUM"
    if isinstance(op, _native.AverageOp):
        return "AVG"
    for name in _OPS:
        if op == name or (isinstance(op, _TORCH_OPS) and op == getattr(dist.ReduceOp, name)):
            return name
    from dlmpi.comm import mpi

    for name in _OPS:
        if name != "AVG" and op == getattr(mpi, name):
            return name
    raise ValueError(f"op: got {op!r}; differentiable are {', '.join(_OPS)}")


_TORCH_OPS = (dist.ReduceOp, dist.ReduceOp.RedOpType)

#: Tensors are laid end to end up to this many bytes; larger ones travel alone.
BUCKET = 1 << 20


def buckets(tensors: Iterable[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Divide tensors into runs of one dtype and device of up to `BUCKET` bytes.

    The division hangs on what all ranks share alone: dtypes, sizes and the order.
    """
    found: list[list[torch.Tensor]] = []
    open_runs: dict[tuple[torch.dtype, torch.device], tuple[list[torch.Tensor], int]] = {}
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        run, used = open_runs.get((tensor.dtype, tensor.device), ([], BUCKET))
        if used + size > BUCKET:
            run, used = [], 0
            found.append(run)
        run.append(tensor)
        open_runs[tensor.dtype, tensor.device] = run, used + size
    return found


def flatten(bucket: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the tensors' elements in one new tensor, or the memory of a single plain one."""
    if len(bucket) == 1 and bucket[0].is_contiguous():
        return bucket[0].view(-1)
    return torch.cat([tensor.reshape(-1) for tensor in bucket])


def unflatten(flat: torch.Tensor, bucket: Sequence[torch.Tensor]) -> None:
    """Write what `flatten` gave back into the tensors it came from."""
    start = 0
    for tensor in bucket:
        part = flat[start : start + tensor.numel()].view(tensor.shape)
        if part.data_ptr() != tensor.data_ptr():
            tensor.copy_(part)
        start += tensor.numel()


def _elements_of_a_row(tensor: torch.Tensor) -> int:
    count = 1
    for size in tensor.shape[1:]:
        count *= size
    return count
