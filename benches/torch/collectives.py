"""Every collective of torch.distributed, dlmpi against gloo, interleaved in one run.

    mpiexec -n 2 python benches/torch/collectives.py [--sizes 8 65536] [--only all_reduce]

A size is that of the tensor that a rank holds; where there is a block for each rank, of all blocks.
What gloo does not have is measured against what a program would write for it, and marked with *:
the mean as a sum and a division.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from rivals import OURS, THEIRS, Call, compare, groups, options, ratio, write

TARGET = 2.0
SIZES = [8, 64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 32 << 20, 128 << 20]
DTYPES = (torch.float32, torch.bfloat16)


def _blocks(count: int, dtype: torch.dtype) -> list[torch.Tensor]:
    size = dist.get_world_size()
    return [torch.ones(max(count // size, 1), dtype=dtype) for _ in range(size)]


def _all_reduce(count: int, dtype: torch.dtype) -> Call:
    x = torch.zeros(count, dtype=dtype)
    return lambda group: dist.all_reduce(x, group=group)


def _broadcast(count: int, dtype: torch.dtype) -> Call:
    x = torch.zeros(count, dtype=dtype)
    return lambda group: dist.broadcast(x, 0, group=group)


def _reduce(count: int, dtype: torch.dtype) -> Call:
    x = torch.zeros(count, dtype=dtype)
    return lambda group: dist.reduce(x, 0, group=group)


def _all_gather_into_tensor(count: int, dtype: torch.dtype) -> Call:
    room, block = torch.cat(_blocks(count, dtype)), _blocks(count, dtype)[0]
    return lambda group: dist.all_gather_into_tensor(room, block, group=group)


def _all_gather(count: int, dtype: torch.dtype) -> Call:
    rooms, block = _blocks(count, dtype), _blocks(count, dtype)[0]
    return lambda group: dist.all_gather(rooms, block, group=group)


def _reduce_scatter_tensor(count: int, dtype: torch.dtype) -> Call:
    blocks, room = torch.cat(_blocks(count, dtype)), _blocks(count, dtype)[0]
    return lambda group: dist.reduce_scatter_tensor(room, blocks, group=group)


def _reduce_scatter(count: int, dtype: torch.dtype) -> Call:
    blocks, room = _blocks(count, dtype), _blocks(count, dtype)[0]
    return lambda group: dist.reduce_scatter(room, blocks, group=group)


def _all_to_all_single(count: int, dtype: torch.dtype) -> Call:
    sent, room = torch.cat(_blocks(count, dtype)), torch.cat(_blocks(count, dtype))
    return lambda group: dist.all_to_all_single(room, sent, group=group)


def _all_to_all(count: int, dtype: torch.dtype) -> Call:
    sent, rooms = _blocks(count, dtype), _blocks(count, dtype)
    return lambda group: dist.all_to_all(rooms, sent, group=group)


def _gather(count: int, dtype: torch.dtype) -> Call:
    rooms, block = _blocks(count, dtype), _blocks(count, dtype)[0]
    wanted = rooms if dist.get_rank() == 0 else None
    return lambda group: dist.gather(block, wanted, 0, group=group)


def _scatter(count: int, dtype: torch.dtype) -> Call:
    blocks, room = _blocks(count, dtype), _blocks(count, dtype)[0]
    sent = blocks if dist.get_rank() == 0 else None
    return lambda group: dist.scatter(room, sent, 0, group=group)


def _send_recv(count: int, dtype: torch.dtype) -> Call:
    """Rank 0 sends to 1 and gets it back; others look on."""
    x = torch.zeros(count, dtype=dtype)
    rank = dist.get_rank()

    def call(group: Any) -> None:
        if rank == 0:
            dist.send(x, 1, group)
            dist.recv(x, 1, group)
        elif rank == 1:
            dist.recv(x, 0, group)
            dist.send(x, 0, group)

    return call


def _barrier(count: int, dtype: torch.dtype) -> Call:
    return dist.barrier


CASES: dict[str, Callable[[int, torch.dtype], Call]] = {
    function.__name__[1:]: function
    for function in (
        _all_reduce,
        _broadcast,
        _reduce,
        _all_gather_into_tensor,
        _all_gather,
        _reduce_scatter_tensor,
        _reduce_scatter,
        _all_to_all_single,
        _all_to_all,
        _gather,
        _scatter,
        _send_recv,
        _barrier,
    )
}


def human(size: int) -> str:
    for unit, bound in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= bound:
            return f"{size / bound:g} {unit}"
    return f"{size} B"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    arguments = parser.parse_args()
    rows = []
    with groups() as by_name:
        say = print if dist.get_rank() == 0 else lambda *_: None
        for name in arguments.only:
            for dtype in (getattr(torch, dtype) for dtype in arguments.dtypes):
                for size in arguments.sizes if name != "barrier" else arguments.sizes[:1]:
                    call = CASES[name](max(size // dtype.itemsize, 1), dtype)
                    seconds = compare(call, by_name, arguments.rounds)
                    faster = ratio(seconds)
                    times = {who: sorted(s)[len(s) // 2] * 1e6 for who, s in seconds.items()}
                    say(
                        f"{name:24}{str(dtype)[6:]:10}{human(size):>9}"
                        f"{OURS:>8} {times[OURS]:10.1f} us{THEIRS:>6} {times[THEIRS]:10.1f} us"
                        f"  {faster:6.2f} x{'' if faster >= TARGET else '  MISSED'}",
                        flush=True,
                    ) if dist.get_rank() == 0 else None
                    rows.append(
                        {"call": name, "dtype": str(dtype)[6:], "nbytes": size}
                        | {"ratio": faster, "seconds": seconds}
                    )
        missed = [row for row in rows if row["ratio"] < TARGET]
        say(f"{len(rows) - len(missed)} of {len(rows)} are at least {TARGET:g} x faster")
        write(arguments.json, rows)


if __name__ == "__main__":
    main()
