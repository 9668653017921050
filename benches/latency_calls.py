"""The statements of `latency.py`: what programs for mpi4py do with small arrays and objects.

They are compiled into a loop over local names, so that what is measured is the call and nothing
else. On one rank a message goes to itself, else to the neighbour. Knows nothing of how they are
timed or counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_EXCHANGE = "r = comm.Irecv({b}, source); comm.{send}({a}, to); r.Wait()"
_OBJECT = "r = comm.isend({0}, to); comm.recv(None, source); r.wait()"

#: Collectives and their arguments. Their non-blocking forms take the same.
_COLLECTIVES = {
    "Barrier": "",
    "Bcast": "a",
    "Gather": "a, blocks",
    "Gatherv": "a, [blocks, counts]",
    "Scatter": "sent, b",
    "Scatterv": "[sent, counts], b",
    "Allgather": "a, blocks",
    "Allgatherv": "a, [blocks, counts]",
    "Alltoall": "sent, blocks",
    "Alltoallv": "[sent, counts], [blocks, counts]",
    "Alltoallw": "sent_w, blocks_w",
    "Reduce": "a, b",
    "Allreduce": "a, b",
    "Reduce_scatter_block": "sent, b",
    "Reduce_scatter": "sent, b, counts",
    "Scan": "a, b",
    "Exscan": "a, b",
}

#: Groups of rows: a name, and the statement.
CALLS: dict[str, dict[str, str]] = {
    "messages": {
        "Sendrecv": "comm.Sendrecv(a, to, 0, b, source)",
        "Sendrecv [a, DOUBLE]": "comm.Sendrecv([a, DOUBLE], to, 0, [b, DOUBLE], source)",
        "Sendrecv_replace": "comm.Sendrecv_replace(a, to, 0, source)",
        "Irecv Send Wait": _EXCHANGE.format(a="a", b="b", send="Send"),
        "Irecv Ssend Wait": _EXCHANGE.format(a="a", b="b", send="Ssend"),
        "  with [a, DOUBLE]": _EXCHANGE.format(a="[a, DOUBLE]", b="[b, DOUBLE]", send="Send"),
        "  with [a, n, DOUBLE]": _EXCHANGE.format(
            a="[a, n, DOUBLE]", b="[b, n, DOUBLE]", send="Send"
        ),
        "Irecv Isend Waitall": "Waitall([comm.Irecv(b, source), comm.Isend(a, to)])",
        "8 Irecv 8 Isend Waitall": (
            "Waitall([comm.Irecv(b, source) for _ in eight] + [comm.Isend(a, to) for _ in eight])"
        ),
        "Isend Recv Test": (
            "r = comm.Isend(a, to); comm.Recv(b, source)\n        while not r.Test(): pass"
        ),
        "Isend Mprobe Recv Wait": "r = comm.Isend(a, to); comm.Mprobe(source).Recv(b); r.Wait()",
        "Isendrecv Wait": "comm.Isendrecv(a, to, 0, b, source).Wait()",
    },
    "collectives": {name: f"comm.{name}({given})" for name, given in _COLLECTIVES.items()},
    "other forms": {
        "Bcast [a, DOUBLE]": "comm.Bcast([a, DOUBLE])",
        "Bcast [a, n, DOUBLE]": "comm.Bcast([a, n, DOUBLE], root=0)",
        "Allreduce [a, DOUBLE]": "comm.Allreduce([a, DOUBLE], [b, DOUBLE])",
        "Allreduce IN_PLACE": "comm.Allreduce(IN_PLACE, zeros)",
        "Allreduce op=MAX": "comm.Allreduce(a, b, op=MAX)",
        "Reduce root=0": "comm.Reduce(a, b, root=0)",
    },
    "non-blocking": {
        f"I{name.lower()} Wait": f"comm.I{name.lower()}({given}).Wait()"
        for name, given in _COLLECTIVES.items()
    },
    "persistent": {
        "Startall Waitall": "Startall(pair); Waitall(pair)",
        "Start Wait (Allreduce)": "summing.Start(); summing.Wait()",
    },
    "windows, packing": {
        "Put Flush": "window.Put(a, to); window.Flush(to)",
        "Get Flush": "window.Get(b, to); window.Flush(to)",
        "Accumulate Flush": "window.Accumulate(a, to); window.Flush(to)",
        "Pack": "DOUBLE.Pack(a, packed, 0, comm)",
        "Reduce_local": "SUM.Reduce_local(a, b)",
    },
    "objects": {
        "isend recv wait 5": _OBJECT.format(5),
        "isend recv wait (1, 'x')": _OBJECT.format((1, "x")),
        "isend recv wait dict": _OBJECT.format("record"),
        "sendrecv 5": "comm.sendrecv(5, to, 0, None, source)",
        "sendrecv dict": "comm.sendrecv(record, to, 0, None, source)",
        "bcast 5": "comm.bcast(5)",
        "gather 5": "comm.gather(5)",
        "scatter [5]": "comm.scatter(fives)",
        "allgather 5": "comm.allgather(5)",
        "alltoall [5]": "comm.alltoall(fives)",
        "reduce 5": "comm.reduce(5)",
        "allreduce 5": "comm.allreduce(5)",
        "scan 5": "comm.scan(5)",
        "bcast dict": "comm.bcast(record)",
        "allgather list": "comm.allgather(listed)",
        "barrier": "comm.barrier()",
    },
}

Loop = Callable[[int], None]


class Names:
    """What the statements name, for one communicator of one module."""

    def __init__(self, module: Any, comm: Any, size: int) -> None:
        n, ranks = size // 8, comm.size
        to, source = (comm.rank + 1) % ranks, (comm.rank - 1) % ranks
        counts, starts = [n] * ranks, [size * rank for rank in range(ranks)]
        a, b = np.arange(float(n)), np.empty(n)
        sent, blocks = np.arange(float(n * ranks)), np.empty(n * ranks)
        self._window = module.Win.Create(np.zeros(n), 8, comm=comm)
        self._window.Lock_all()
        self._pair = [comm.Recv_init(b, source), comm.Send_init(a, to)]
        self._summing = comm.Allreduce_init(a, b)
        self.names = {
            **{"comm": comm, "n": n, "to": to, "source": source, "counts": counts},
            **{"a": a, "b": b, "sent": sent, "blocks": blocks, "zeros": np.zeros(n)},
            "sent_w": [sent, (counts, starts), [module.DOUBLE] * ranks],
            "blocks_w": [blocks, (counts, starts), [module.DOUBLE] * ranks],
            **{name: getattr(module, name) for name in ("DOUBLE", "IN_PLACE", "MAX", "SUM")},
            "Waitall": module.Request.Waitall,
            "Startall": module.Prequest.Startall,
            **{"window": self._window, "pair": self._pair, "summing": self._summing},
            **{"packed": bytearray(size), "eight": range(8), "record": {"step": 1, "loss": 0.5}},
            **{"fives": [5] * ranks, "listed": [1, 2.0, "three"]},
        }

    def loop(self, statement: str) -> Loop:
        """Return a function that executes a statement as often as it is told."""
        given = ", ".join(self.names)
        text = f"def loop(times, {given}):\n    for _ in range(times):\n        {statement}\n"
        made: dict[str, Any] = {}
        exec(text, made)
        values, run = tuple(self.names.values()), made["loop"]
        return lambda times: run(times, *values)

    def free(self) -> None:
        """Free what the statements used."""
        for request in (*self._pair, self._summing):
            request.Free()
        self._window.Unlock_all()
        self._window.Free()
