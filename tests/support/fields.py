"""Every collective, blocking and not, and torch's: one rank of three disagrees in each field in
which it can, or refuses its argument. All ranks must raise and name all ranks, and the next call
must be right.

Run it under DLMPI_CHECK=always. Knows what can differ, not how dlmpi compares."""

from __future__ import annotations

import re
import sys
from functools import partial

import numpy as np

import dlmpi
from dlmpi import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
odd = rank == int(np.random.default_rng(int(sys.argv[2])).integers(size))
ROOTED = {"Bcast", "Gather", "Scatter", "Reduce"}
REDUCING = {"Allreduce", "Reduce", "Reduce_scatter_block", "Reduce_scatter", "Scan", "Exscan"}


def buffers(name, n, dtype):
    """The arguments of a call whose blocks have n elements; 3 elements are sent to each rank."""
    one, all_ = np.ones(n, dtype), np.ones(n * size, dtype)
    return {
        "Barrier": lambda: (),
        "Bcast": lambda: (one,),
        "Gather": lambda: (one, all_),
        "Scatter": lambda: (all_, one),
        "Allgather": lambda: (one, all_),
        "Alltoall": lambda: (all_, all_.copy()),
        "Reduce_scatter_block": lambda: (all_, one),
        "Reduce_scatter": lambda: (all_, one, [n] * size),
    }.get(name, lambda: (one, one.copy()))()


def call(name, n=3, dtype="f4", immediate=False, **how):
    method = getattr(comm, f"I{name.lower()}" if immediate else name)
    if name in ROOTED:
        how.setdefault("root", 0)
    request = method(*buffers(name, n, dtype), **how)
    if immediate:
        request.Wait()


def vector(name, immediate, wrong):
    """Allgatherv and Alltoallv, of which the odd rank counts otherwise, where all know counts."""
    counts = [2] * (size - 1) + [3 if wrong else 2]
    whole = np.ones(sum(counts))
    mine = np.ones(counts[rank])
    method = getattr(comm, f"I{name.lower()}" if immediate else name)
    request = method(mine, [whole, counts])
    if immediate:
        request.Wait()


def cases():
    """Name, what all ranks call and what the odd rank calls."""
    for immediate in (False, True):
        for name in ("Barrier", "Bcast", "Gather", "Scatter", "Allgather", "Alltoall", *REDUCING):
            same = partial(call, name, immediate=immediate)
            other = partial(call, "Barrier" if name != "Barrier" else "Bcast", immediate=immediate)
            rows = {"operation": other}
            if name != "Barrier":
                rows["elements"] = partial(same, n=5)
                # A movement compares bytes, not what they mean.
                rows["dtype"] = partial(same, dtype="f8")
            if name in ROOTED:
                rows["root"] = partial(same, root=1)
            if name in REDUCING:
                rows["dtype of the same size"] = partial(same, dtype="i4")
                rows["op"] = partial(same, op=MPI.MAX)
                rows["mean"] = partial(same, op=dlmpi.AVG)
            for field, differs in rows.items():
                if (field, name) == ("mean", "Scan") or (field, name) == ("mean", "Exscan"):
                    continue
                yield f"{name} {field} {immediate}", same, differs
            yield f"{name} refused {immediate}", same, None
        same = partial(vector, "Allgatherv", immediate, wrong=False)
        yield f"Allgatherv counts {immediate}", same, partial(same, wrong=True)
    many = lambda *lengths: dlmpi.allreduce_many([np.ones(n, "f4") for n in lengths])  # noqa: E731
    yield "many tensors", partial(many, 3, 4), partial(many, 3)
    yield "many elements", partial(many, 3, 4), partial(many, 4, 3)


def torchs():
    """The same of torch.distributed."""
    import torch
    import torch.distributed as dist

    import dlmpi.torch  # noqa: F401  (registers the backend)

    dist.init_process_group("dlmpi")
    ones = lambda n=3, dtype=torch.float32: torch.ones(n, dtype=dtype)  # noqa: E731
    rows = {
        "all_reduce": lambda n=3, dtype=torch.float32, op=dist.ReduceOp.SUM, **how: dist.all_reduce(
            ones(n, dtype), op, **how
        ),
        "broadcast": lambda n=3, src=0, **how: dist.broadcast(ones(n), src, **how),
        "reduce": lambda n=3, dst=0, **how: dist.reduce(ones(n), dst, **how),
        "all_gather_into_tensor": lambda n=3, **how: dist.all_gather_into_tensor(
            ones(n * size), ones(n), **how
        ),
        "reduce_scatter_tensor": lambda n=3, op=dist.ReduceOp.SUM, **how: (
            dist.reduce_scatter_tensor(ones(n), ones(n * size), op, **how)
        ),
        "all_gather": lambda n=3, **how: dist.all_gather(
            [ones(n) for _ in range(size)], ones(n), **how
        ),
        "barrier": dist.barrier,
    }
    differences = {
        "all_reduce": ({"n": 5}, {"dtype": torch.int32}, {"op": dist.ReduceOp.MAX}),
        "broadcast": ({"n": 5}, {"src": 1}),
        "reduce": ({"n": 5}, {"dst": 1}),
        "reduce_scatter_tensor": ({"n": 5}, {"op": dist.ReduceOp.MAX}),
        "barrier": (),
    }

    def run(name, async_op, **how):
        work = rows[name](async_op=async_op, **how)
        if async_op:
            work.wait()

    for number, name in enumerate(rows):
        async_op = number % 2 == 0
        same = partial(run, name, async_op)
        other = "barrier" if name != "barrier" else "all_reduce"
        yield f"{name} operation", same, partial(run, other, async_op)
        for how in differences.get(name, ({"n": 5},)):
            async_op = not async_op
            same = partial(run, name, async_op)
            yield f"{name} {how} {async_op}", same, partial(same, **how)


def refuse(name, immediate):
    getattr(comm, f"I{name.lower()}" if immediate else name)("no tensor", "at all")


failed, tried = [], 0
for label, same, differs in cases() if sys.argv[1] == "mpi" else torchs():
    name, _, how = label.partition(" ")
    if differs is None and name == "Barrier":
        continue
    act = same
    if odd:
        act = differs or partial(refuse, name, how.endswith("True"))
    told = ""
    try:
        act()
    except dlmpi.MismatchError as error:
        named = re.findall(r"^  ranks? ([\d, -]+(?:and \d+)?)", str(error), re.MULTILINE)
        ranks = sorted(map(int, re.findall(r"\d+", " ".join(named))))
        told = "" if ranks == list(range(size)) else f"names ranks {ranks}: {error}"
    except (TypeError, ValueError, BufferError) as error:
        told = "" if odd and differs is None else repr(error)
    except Exception as error:
        told = repr(error)
    else:
        told = "no error"
    out = np.ones(3)
    comm.Allreduce(MPI.IN_PLACE, out)
    if told or out.tolist() != [size] * 3:
        failed.append(f"{label}: {told} {out}")
    tried += 1
print(f"rank {rank}: tried {tried}, failed {failed}", flush=True)
assert tried > {"mpi": 100, "torch": 15}[sys.argv[1]]
assert not failed
