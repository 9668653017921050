"""The collectives of torch.distributed, each as calls of the communicator.

One method per name of torch's, with every call shape that its binding takes. What goes on the wire
is the same function on every rank, whatever lists, layouts and splits a rank gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)

from dlmpi import MPI
from dlmpi.torch import _sparse
from dlmpi.torch._blocks import LARGE_ROWS, apart, is_large, messages, rows
from dlmpi.torch._given import listed, named, options, reducing, rooted
from dlmpi.torch._lists import as_bytes, by_dtype, flat, same_dtype, scatter_back
from dlmpi.torch._reduction import known, reduction

if TYPE_CHECKING:
    from dlmpi.torch._core import Call, Core

__all__ = ["Calls"]

IN_PLACE = MPI.IN_PLACE


def _in_turn(*steps: Callable[[], None] | None) -> Callable[[], None] | None:
    real = [step for step in steps if step is not None]
    if len(real) < 2:
        return real[0] if real else None

    def run() -> None:
        for step in real:
            step()

    return run


class Calls:
    """Reductions and movements of one group."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # Reductions.

    def allreduce(
        self,
        tensors: Any = None,
        opts: Any = None,
        op: Any = None,
        timeout: Any = None,
        *,
        tensor: Any = None,
    ) -> Any:
        """Reduce each tensor over all ranks, in place."""
        core = self._core
        if (tensors is None) == (tensor is None):
            raise TypeError("allreduce: expected tensors or tensor")
        tensors = listed(tensor if tensors is None else tensors)
        opts = reducing(AllreduceOptions, opts, op, timeout)
        given = opts.reduceOp
        calls: list[Call] = []
        after = []
        for each in tensors:
            if each.is_sparse:
                return _sparse.allreduce(core, tensors, opts)
            how, change, finish = reduction("all_reduce", given, each.dtype, core.size)
            contributed = IN_PLACE if change is None else change(each)
            calls.append((core.Iallreduce, (contributed, each, how)))
            if finish is not None:
                after.append(_applied(finish, each))
        return core.launch("all_reduce", calls, tensors, opts, _in_turn(*after) if after else None)

    @named
    def allreduce_sparse(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce sparse tensors over all ranks, in place."""
        return self.allreduce(tensors, opts)

    @named
    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce many tensors as one message for each dtype."""
        core = self._core
        if opts is None:
            opts = AllreduceCoalescedOptions()
        calls: list[Call] = []
        after = []
        for places in by_dtype(tensors):
            part = [tensors[place] for place in places]
            joined = flat(part)
            how = reduction("all_reduce", opts.reduceOp, joined.dtype, core.size)
            sent = IN_PLACE if how.before is None else how.before(joined)
            calls.append((core.Iallreduce, (sent, joined, how.op)))
            divide = None if how.after is None else _applied(how.after, joined)
            home = None if joined.data_ptr() == part[0].data_ptr() else scatter_back(joined, part)
            after += [divide, home]
        return core.launch("all_reduce", calls, tensors, opts, _in_turn(*after))

    @named
    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None, root: Any = None
    ) -> Any:
        """Reduce each tensor to the root."""
        core = self._core
        tensors = listed(tensors)
        opts = rooted(ReduceOptions, opts, root, timeout, op)
        root = self._rank("reduce", "dst", opts.rootRank)
        calls: list[Call] = []
        after = []
        for tensor in tensors:
            how = reduction("reduce", opts.reduceOp, tensor.dtype, core.size)
            sent = tensor if how.before is None else how.before(tensor)
            if core.rank != root:
                calls.append((core.Ireduce, (sent, None, how.op, root)))
                continue
            sent = IN_PLACE if how.before is None else sent
            calls.append((core.Ireduce, (sent, tensor, how.op, root)))
            if how.after is not None:
                after.append(_applied(how.after, tensor))
        return core.launch("reduce", calls, tensors, opts, _in_turn(*after))

    @named
    def reduce_scatter(
        self, outs: Any, ins: Any, opts: Any = None, op: Any = None, timeout: Any = None
    ) -> Any:
        """Reduce one tensor per rank, each to its rank; sizes may differ."""
        core = self._core
        if isinstance(outs, torch.Tensor):
            outs, ins = [outs], [ins]
        opts = reducing(ReduceScatterOptions, opts, op, timeout)
        if len(outs) == len(ins) == 1:
            plain = known.get((hash(opts.reduceOp), outs[0].dtype, core.size))
            starter, what = core.Ireduce_scatter_block, "reduce_scatter"
            if plain and core.short(what, starter, ins[0], outs[0], opts, 0, plain):
                return core.done(outs)
        calls: list[Call] = []
        after = []
        for out, parts in zip(outs, ins, strict=True):
            self._one_per_rank("reduce_scatter", "input_list", parts)
            dtype = same_dtype("reduce_scatter", "input_list", parts)
            how = reduction("reduce_scatter", opts.reduceOp, dtype, core.size)
            if how.after is not None:
                after.append(_applied(how.after, out))
            if any(map(is_large, parts)):
                # All ranks know all sizes, and none of the parts need be copied.
                for rank, part in enumerate(parts):
                    sent = part if how.before is None else how.before(part)
                    room = out if rank == core.rank else None
                    calls.append((core.Ireduce, (sent, room, how.op, rank)))
                continue
            sent = flat(parts)
            sent = sent if how.before is None else how.before(sent)
            counts = [part.numel() for part in parts]
            if len(set(counts)) == 1:
                calls.append((core.Ireduce_scatter_block, (sent, out, how.op)))
            else:
                calls.append((core.Ireduce_scatter, (sent, out, counts, how.op)))
        inputs = [part for parts in ins for part in parts]
        return core.launch("reduce_scatter", calls, outs, opts, _in_turn(*after), inputs=inputs)

    @named
    def reduce_scatter_single(self, out: Any, inp: Any, opts: Any = None) -> Any:
        """Reduce one tensor with a block for each rank."""
        core = self._core
        if opts is None:
            opts = ReduceScatterOptions()
        self._times_ranks("reduce_scatter_tensor", "input", inp, "output", out)
        how = reduction("reduce_scatter_tensor", opts.reduceOp, inp.dtype, core.size)
        sent = inp if how.before is None else how.before(inp)
        after = None if how.after is None else _applied(how.after, out)
        calls = [(core.Ireduce_scatter_block, (sent, out, how.op))]
        return core.launch("reduce_scatter_tensor", calls, [out], opts, after, inputs=[inp])

    _reduce_scatter_base = reduce_scatter_single

    @named
    def reduce_scatter_single_coalesced(self, outs: Any, ins: Any, opts: Any = None) -> Any:
        """Reduce many tensors with a block for each rank as one message for each dtype."""
        core = self._core
        if opts is None:
            opts = ReduceScatterOptions()
        for out, inp in zip(outs, ins, strict=True):
            self._times_ranks("reduce_scatter_tensor", "input", inp, "output", out)
        calls: list[Call] = []
        after = []
        for places in by_dtype(ins):
            with torch.no_grad():
                blocks = [ins[place].detach().reshape(core.size, -1) for place in places]
                sent = torch.cat(blocks, dim=1)
            how = reduction("reduce_scatter_tensor", opts.reduceOp, sent.dtype, core.size)
            sent = sent if how.before is None else how.before(sent)
            room = sent.new_empty(sent.shape[1])
            calls.append((core.Ireduce_scatter_block, (sent, room, how.op)))
            divide = None if how.after is None else _applied(how.after, room)
            after += [divide, scatter_back(room, [outs[place] for place in places])]
        return core.launch("reduce_scatter_tensor_coalesced", calls, outs, opts, _in_turn(*after))

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # Movements.

    @named
    def broadcast(
        self, tensors: Any, opts: Any = None, timeout: Any = None, root: Any = None
    ) -> Any:
        """Send the root's tensors to all ranks."""
        core = self._core
        tensors = listed(tensors)
        opts = rooted(BroadcastOptions, opts, root, timeout)
        source = self._rank("broadcast", "src", opts.rootRank)
        calls = [(core.Ibcast, (tensor, source)) for tensor in tensors]
        return core.launch("broadcast", calls, tensors, opts)

    @named
    def allgather(self, outs: Any, ins: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Gather one tensor per rank on every rank; sizes may differ."""
        core = self._core
        opts = options(AllgatherOptions, opts, timeout)
        if isinstance(ins, torch.Tensor):
            outs, ins = [outs], [ins]
        single = len(outs) == len(ins) == 1
        if single and core.short("all_gather", core.Iallgatherv, ins[0], outs[0], opts):
            return core.done(outs[0])
        calls: list[Call] = []
        after, copies, written = [], [], []
        for parts, tensor in zip(outs, ins, strict=True):
            self._one_per_rank("all_gather", "tensor_list", parts)
            same_dtype("all_gather", "tensor_list and tensor", [*parts, tensor])
            large, rest = apart(parts)
            counts = [part.numel() for part in rest]
            room = tensor.new_empty(sum(counts))
            gives = dict.fromkeys(range(core.size), tensor) if is_large(tensor) else {}
            sent = tensor.new_empty(0) if gives else tensor
            calls.append((core.Iallgatherv, (sent, [room, counts])))
            more, own = messages(core, gives, large)
            calls += more
            after.append(scatter_back(room, rest))
            copies.append(own)
            written += parts
        own, home = _in_turn(*copies), _in_turn(*after)
        return core.launch("all_gather", calls, written, opts, home, inputs=ins, meanwhile=own)

    @named
    def all_gather_single(self, out: Any, inp: Any, opts: Any = None) -> Any:
        """Gather one block per rank into one tensor."""
        core = self._core
        self._times_ranks("all_gather_into_tensor", "output_tensor", out, "input_tensor", inp)
        calls = [(core.Iallgather, (inp, out))]
        return core.launch("all_gather_into_tensor", calls, [out], opts, inputs=[inp])

    _allgather_base = all_gather_single

    @named
    def all_gather_single_coalesced(self, outs: Any, ins: Any, opts: Any = None) -> Any:
        """Gather many tensors as one message."""
        core = self._core
        for out, inp in zip(outs, ins, strict=True):
            self._times_ranks("all_gather_into_tensor", "output_tensor", out, "input_tensor", inp)
            same_dtype("all_gather_into_tensor", "output and input", [out, inp])
        sent = as_bytes(ins)
        room = sent.new_empty((core.size, sent.numel()))

        def home() -> None:
            with torch.no_grad():
                at = 0
                for out, inp in zip(outs, ins, strict=True):
                    size = inp.numel() * inp.element_size()
                    block = room[:, at : at + size].contiguous().view(-1)
                    out.detach().copy_(block.view(out.dtype).view(out.shape))
                    at += size

        calls = [(core.Iallgather, (sent, room))]
        return core.launch("all_gather_into_tensor_coalesced", calls, outs, opts, home)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    @named
    def allgather_coalesced(self, outs: Any, ins: Any, opts: Any = None) -> Any:
        """Gather many tensors as one message, into a list for each rank."""
        core = self._core
        self._one_per_rank("all_gather_coalesced", "output_lists", outs)
        sent = as_bytes(ins)
        counts = [sum(t.numel() * t.element_size() for t in of_rank) for of_rank in outs]
        room = sent.new_empty(sum(counts))
        written = [tensor for of_rank in outs for tensor in of_rank]

        def home() -> None:
            with torch.no_grad():
                at = 0
                for out in written:
                    size = out.numel() * out.element_size()
                    out.detach().copy_(room[at : at + size].clone().view(out.dtype).view(out.shape))
                    at += size

        calls = [(core.Iallgatherv, (sent, [room, counts]))]
        return core.launch("all_gather", calls, written, opts, home, inputs=ins)

    @named
    def gather(
        self, outs: Any, ins: Any, opts: Any = None, timeout: Any = None, root: Any = None
    ) -> Any:
        """Gather one tensor per rank on the root; sizes may differ."""
        core = self._core
        if isinstance(ins, torch.Tensor):
            outs, ins = ([outs] if outs else []), [ins]
        opts = rooted(GatherOptions, opts, root, timeout)
        target = self._rank("gather", "dst", opts.rootRank)
        (tensor,) = ins
        room = outs[0] if core.rank == target and len(outs) == 1 else None
        known_here = room is not None or core.rank != target
        if known_here and core.short("gather", core.Igatherv, tensor, room, opts, target):
            return core.done(room or [])
        gives = {target: tensor} if is_large(tensor) else {}
        sent = tensor.new_empty(0) if gives else tensor
        if core.rank != target:
            calls: list[Call] = [(core.Igatherv, (sent, None, target))]
            calls += messages(core, gives, {})[0]
            return core.launch("gather", calls, [], opts, inputs=ins)
        (parts,) = outs
        self._one_per_rank("gather", "gather_list", parts)
        same_dtype("gather", "gather_list and tensor", [*parts, tensor])
        large, rest = apart(parts)
        counts = [part.numel() for part in rest]
        room = tensor.new_empty(sum(counts))
        calls = [(core.Igatherv, (sent, [room, counts], target))]
        more, own = messages(core, gives, large)
        home = scatter_back(room, rest)
        return core.launch("gather", calls + more, parts, opts, home, inputs=ins, meanwhile=own)

    @named
    def gather_single(self, out: Any, inp: Any, opts: Any = None) -> Any:
        """Gather one block per rank into one tensor of the root."""
        core = self._core
        opts = rooted(GatherOptions, opts, None, None)
        target = self._rank("gather", "dst", opts.rootRank)
        if core.rank != target:
            return core.launch("gather", [(core.Igather, (inp, None, target))], [], opts)
        self._times_ranks("gather", "output", out, "input", inp)
        return core.launch("gather", [(core.Igather, (inp, out, target))], [out], opts)

    gather_into_tensor = gather_single

    @named
    def scatter(
        self, outs: Any, ins: Any, opts: Any = None, timeout: Any = None, root: Any = None
    ) -> Any:
        """Send one tensor of the root's to each rank; sizes may differ."""
        core = self._core
        if isinstance(outs, torch.Tensor):
            outs, ins = [outs], ([ins] if ins else [])
        opts = rooted(ScatterOptions, opts, root, timeout)
        source = self._rank("scatter", "src", opts.rootRank)
        (out,) = outs
        given = ins[0] if core.rank == source and len(ins) == 1 else None
        known_here = given is not None or core.rank != source
        if known_here and core.short("scatter", core.Iscatterv, given, out, opts, source):
            return core.done(outs)
        gets = {source: out} if is_large(out) else {}
        room = out.new_empty(0) if gets else out
        if core.rank != source:
            calls: list[Call] = [(core.Iscatterv, (None, room, source))]
            return core.launch("scatter", calls + messages(core, {}, gets)[0], outs, opts)
        (parts,) = ins
        self._one_per_rank("scatter", "scatter_list", parts)
        same_dtype("scatter", "scatter_list and tensor", [*parts, out])
        large, rest = apart(parts)
        counts = [part.numel() for part in rest]
        calls = [(core.Iscatterv, ([flat(rest), counts], room, source))]
        more, own = messages(core, large, gets)
        return core.launch("scatter", calls + more, outs, opts, inputs=parts, meanwhile=own)

    @named
    def all_to_all_single(
        self,
        out: Any,
        inp: Any,
        output_split_sizes: Any = None,
        input_split_sizes: Any = None,
        opts: Any = None,
        *,
        timeout: Any = None,
    ) -> Any:
        """Send a block of rows to each rank and receive one from each."""
        core = self._core
        opts = options(AllToAllOptions, opts, timeout)
        sent = self._rows("input", inp, input_split_sizes)
        received = self._rows("output", out, output_split_sizes)
        what = "all_to_all_single"
        if max(*sent, *received, 0) * max(inp.element_size(), out.element_size()) < LARGE_ROWS:
            calls = [(core.Ialltoallv, ([inp, sent], [out, received]))]
            return core.launch(what, calls, [out], opts, inputs=[inp])
        same_dtype(what, "input and output", [inp, out])
        blocks = rows(inp, sent), rows(out, received)
        return self._exchange(what, [inp], [out], opts, blocks, LARGE_ROWS)

    alltoall_base = all_to_all_single

    @named
    def alltoall(self, outs: Any, ins: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Send a tensor to each rank and receive one from each; sizes may differ."""
        opts = options(AllToAllOptions, opts, timeout)
        if self._core.short("all_to_all", self._core.Ialltoallv, ins, outs, opts):
            return self._core.done(outs)
        for name, tensors in (("input_tensor_list", ins), ("output_tensor_list", outs)):
            self._one_per_rank("all_to_all", name, tensors)
        same_dtype("all_to_all", "the lists", [*ins, *outs])
        return self._exchange("all_to_all", ins, outs, opts, (ins, outs))

    def _exchange(
        self,
        what: str,
        ins: Any,
        outs: Any,
        opts: Any,
        blocks: tuple[Any, Any],
        *least: int,
    ) -> Any:
        """Send blocks to all ranks and receive those of all; they lie in `ins` and `outs`."""
        core = self._core
        gives, given = apart(blocks[0], *least)
        gets, got = apart(blocks[1], *least)
        counts = [tensor.numel() for tensor in got]
        room = outs[0].new_empty(sum(counts))
        sent = [flat(given), [tensor.numel() for tensor in given]]
        calls: list[Call] = [(core.Ialltoallv, (sent, [room, counts]))]
        more, own = messages(core, gives, gets)
        home = scatter_back(room, got)
        return core.launch(what, calls + more, outs, opts, home, inputs=ins, meanwhile=own)

    def barrier(self, opts: Any = None, timeout: Any = None) -> Any:
        """Wait for all ranks."""
        core = self._core
        opts = options(BarrierOptions, opts, timeout)
        return core.launch("barrier", [(core.Ibarrier, ())], [], opts)

    # What is refused before MPI is entered.

    def _rank(self, what: str, name: str, rank: int) -> int:
        if not 0 <= rank < self._core.size:
            raise ValueError(
                f"{what}: {name}={rank} is no rank of the group, which has {self._core.size}"
            )
        return rank

    def _one_per_rank(self, what: str, name: str, tensors: Sequence[Any]) -> None:
        if len(tensors) != self._core.size:
            raise ValueError(
                f"{what}: {name} has {len(tensors)} entries, expected one for each of the "
                f"{self._core.size} ranks of the group"
            )

    def _times_ranks(self, what: str, name: str, large: Any, other: str, small: Any) -> None:
        if large.dtype != small.dtype:
            raise TypeError(f"{what}: {name} holds {large.dtype} but {other} {small.dtype}")
        if large.numel() != small.numel() * self._core.size:
            raise ValueError(
                f"{what}: {name} has {large.numel()} elements, expected those of {other} "
                f"({small.numel()}) for each of the {self._core.size} ranks of the group"
            )

    def _rows(self, name: str, tensor: Any, splits: Any) -> list[int]:
        """Return the elements for each rank, given numbers of rows or nothing."""
        size = self._core.size
        rows = tensor.shape[0] if tensor.dim() else 1
        each = tensor.numel() // rows if rows else 0
        if not splits:
            if rows % size:
                raise ValueError(
                    f"all_to_all_single: {name} has {rows} rows, which {size} ranks cannot share "
                    f"evenly; give {name}_split_sizes"
                )
            return [rows // size * each] * size
        self._one_per_rank("all_to_all_single", f"{name}_split_sizes", splits)
        if sum(splits) != rows:
            raise ValueError(
                f"all_to_all_single: {name}_split_sizes add up to {sum(splits)}, but {name} has "
                f"{rows} rows"
            )
        return [split * each for split in splits]


def _applied(change: Callable[[Any], None], tensor: Any) -> Callable[[], None]:
    return lambda: change(tensor)
